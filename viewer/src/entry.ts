// How a bundle begins: a page starts by itself, a notebook calls `render`.

import { sentenceOf, showFailure, watchErrors } from "./control/failure";
import { EmbeddedSource } from "./protocol/embedded";
import type { Source } from "./protocol/messages";
import { SocketSource } from "./protocol/socket";
import { type WidgetModel, WidgetSource } from "./protocol/widget";

const IN_FILE = "Ask whoever gave you this file for it once more, or write it anew with to_html.";
const IN_PAGE = "Load the page again; if that does not help, look at what Python says.";

const PATIENCE = 1500; // milliseconds after which a still picture is shown

/** A viewer that runs. */
export interface Running {
  report(error: unknown): void;
  dispose(): void;
}

/** Shows what a source has in an element; inPage: it is alone on its page. */
export type Start = (
  root: HTMLElement,
  open: () => Promise<Source>,
  inPage: boolean,
) => Promise<Running>;

interface RenderContext {
  model: WidgetModel & { get?(name: string): unknown };
  el: HTMLElement;
}

/** Show the viewer in a notebook; returns the function that ends it. */
function renderIn(show: Start, { model, el }: RenderContext): () => void {
  const root = document.createElement("div");
  const height = Number(model.get?.("height"));
  root.style.height = `${height > 0 ? height : 560}px`;
  el.replaceChildren(root);
  const still = () => String(model.get?.("still") ?? "");
  return start(show, root, async () => new WidgetSource(model), false, IN_PAGE, still);
}

/** Start a viewer in an element, or say there why this is not possible.
 *
 * still: the address of a picture that is shown as long as nobody answers. */
function start(
  show: Start,
  root: HTMLElement,
  open: () => Promise<Source>,
  inPage: boolean,
  advice: string,
  still = () => "",
): () => void {
  let app: Running | null = null;
  let ended = false;
  const report = (sentence: string) => {
    if (app) app.report(sentence);
    else showFailure(root, sentence, advice);
  };
  const unwatch = inPage ? watchErrors(report) : () => {};
  const unveil = showStill(root, still);
  show(root, open, inPage)
    .finally(unveil)
    .then((started) => {
      if (ended) started.dispose();
      else app = started;
    })
    .catch((error) => {
      if (!ended) report(sentenceOf(error));
    });
  return () => {
    ended = true;
    unveil();
    unwatch();
    app?.dispose();
  };
}

/** Show a picture after a while, as notebooks do that were exported; returns what removes it. */
function showStill(root: HTMLElement, still: () => string): () => void {
  const figure = document.createElement("figure");
  figure.className = "sc-still";
  const timer = window.setTimeout(() => {
    const picture = document.createElement("img");
    picture.src = still();
    picture.alt = "The regions of the network";
    const caption = document.createElement("figcaption");
    caption.textContent = "A still picture: no Python answers here.";
    figure.append(picture, caption);
    if (picture.src.startsWith("data:image/png;")) root.append(figure);
  }, PATIENCE);
  return () => {
    window.clearTimeout(timer);
    figure.remove();
  };
}

function startInPage(show: Start, root: HTMLElement): void {
  document.documentElement.classList.add("splinecam-page");
  forwardKeys(root);
  // Files have their data in an element whose id or type may be damaged; served pages have none.
  const marked = document.getElementById("splinecam-data");
  const data = marked ?? document.querySelector<HTMLElement>('script[type="text/plain"]');
  const open = async () => (data ? embedded(data) : new SocketSource(socketAddress()));
  const inFile = data !== null || location.protocol === "file:";
  start(show, root, open, true, inFile ? IN_FILE : IN_PAGE);
}

/** The answers in the page. The browser refuses a style whose fingerprint differs from the page's.
 *
 * If the end of the viewer's element is damaged, what follows lies in it, and would go with it. */
async function embedded(data: HTMLElement): Promise<Source> {
  document.head.append(...document.querySelectorAll("style"));
  if (!document.styleSheets.length)
    throw new Error("This file is damaged: its style is not valid.");
  return EmbeddedSource.read(data.textContent ?? "");
}

/** Alone on its page, the viewer has the keys also while nothing of it has the focus. */
function forwardKeys(root: HTMLElement): void {
  document.addEventListener("keydown", (event) => {
    if (event.target !== document.body) return;
    const { key, code, shiftKey, ctrlKey, altKey, metaKey } = event;
    const modifiers = { shiftKey, ctrlKey, altKey, metaKey, cancelable: true };
    if (!root.dispatchEvent(new KeyboardEvent("keydown", { key, code, ...modifiers }))) {
      event.preventDefault();
    }
  });
}

/** The socket lies beside the page. */
function socketAddress(): string {
  if (!/^https?:$/.test(location.protocol)) {
    throw new Error("This file is incomplete: the data that it should show is missing.");
  }
  const address = new URL("socket", location.href);
  address.protocol = address.protocol.replace("http", "ws");
  address.hash = "";
  return address.href;
}

/** Begin in the page, if it is one of the viewer; returns what notebooks call. */
export function enter(show: Start): { render(context: RenderContext): () => void } {
  const root = document.getElementById("splinecam");
  if (root) startInPage(show, root);
  return { render: (context) => renderIn(show, context) };
}
