// The help: what one can do by pointing and by keys.

import { box, element, show, text } from "./dom";
import { iconButton } from "./icons";
import { GESTURES, type Shortcut } from "./shortcuts";

export class Help {
  readonly overlay: HTMLElement;
  private readonly close = iconButton("close", "Close the help", () => this.toggle(false));
  private before: HTMLElement | null = null;

  constructor() {
    this.overlay = element("div", {
      class: "sc-help",
      role: "dialog",
      "aria-modal": "true",
      "aria-label": "Help",
      click: (event) => {
        if (event.target === this.overlay) this.toggle(false);
      },
      keydown: (event) => {
        if (event.key !== "Tab") return;
        event.preventDefault(); // the close button is all there is to focus
        this.close.focus();
      },
    });
    show(this.overlay, false);
  }

  showShortcuts(shortcuts: readonly Shortcut[], gestures = GESTURES): void {
    const pointing = element("dl", { class: "sc-keys" });
    for (const [gesture, what] of gestures) row(pointing, [gesture], what, "sc-gesture");
    const keys = element("dl", { class: "sc-keys" });
    for (const { written, what } of shortcuts) row(keys, written, what, "sc-key");
    const head = box("sc-help-head", text("sc-card-title", "How to look around"), this.close);
    this.overlay.replaceChildren(box("sc-card", head, box("sc-help-body", pointing, keys)));
  }

  get isOpen(): boolean {
    return !this.overlay.hidden;
  }

  toggle(open = !this.isOpen): void {
    if (open === this.isOpen) return;
    const root = this.overlay.getRootNode() as Document | ShadowRoot;
    if (open) this.before = root.activeElement as HTMLElement | null;
    show(this.overlay, open);
    (open ? this.close : this.before)?.focus();
  }
}

function row(list: HTMLElement, names: readonly string[], what: string, kind: string): void {
  const term = element("dt", {}, ...names.map((name) => element("kbd", { class: kind }, name)));
  list.append(term, element("dd", {}, what));
}
