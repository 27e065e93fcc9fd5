// Copy a link, save a PNG or an SVG, copy Python.

import { copyText } from "../share/clipboard";
import { download, fileName } from "../share/download";
import { Menu } from "./menu";

/** What the menu needs: the texts and pictures of what one sees. */
export interface Shared {
  /** Whether the address of the page is that of the viewer. */
  inPage: boolean;
  title(): string;
  link(): string;
  python(): string;
  png(): Promise<Blob>;
  svg(): string | Promise<string>;
  /** Say that something is done, or why it is not. */
  tell(words: string): void;
  fail(words: string): void;
}

export function shareMenu(shared: Shared): Menu {
  const copy = async (words: string, what: string) => {
    if (await copyText(words)) shared.tell(`${what} copied`);
    else shared.fail(`The browser does not let this page copy. Copy it by hand: ${words}`);
  };
  const save = async (ending: string, content: () => Promise<Blob>) => {
    try {
      download(await content(), fileName(shared.title(), ending));
    } catch (error) {
      shared.fail(`The picture could not be saved: ${(error as Error).message}`);
    }
  };
  const svg = async () => new Blob([await shared.svg()], { type: "image/svg+xml" });
  const link = {
    label: "Copy link",
    note: "this view",
    run: () => void copy(shared.link(), "link"),
  };
  return new Menu("share", "Share", [
    ...(shared.inPage ? [link] : []),
    { label: "Save PNG", note: "what one sees", run: () => void save("png", () => shared.png()) },
    { label: "Save SVG", note: "lines and areas", run: () => void save("svg", svg) },
    {
      label: "Copy Python",
      note: "to see it again",
      run: () => void copy(shared.python(), "Python"),
    },
  ]);
}
