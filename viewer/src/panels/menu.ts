// A button with a menu, by mouse, touch and keyboard.

import { box, element, show } from "./dom";
import { type IconName, iconButton } from "./icons";

export interface Item {
  label: string;
  note: string;
  run(): void;
}

export class Menu {
  readonly button: HTMLButtonElement;
  readonly holder: HTMLElement;
  private readonly list = element("div", { class: "sc-menu", role: "menu" });

  constructor(name: IconName, label: string, items: readonly Item[]) {
    this.button = iconButton(name, label, () => this.toggle());
    this.button.setAttribute("aria-haspopup", "menu");
    this.list.setAttribute("aria-label", label);
    for (const item of items) {
      const click = () => {
        this.toggle(false);
        item.run();
      };
      const entry = element("button", {
        class: "sc-item",
        type: "button",
        role: "menuitem",
        tabindex: "-1",
        click,
      });
      entry.append(box("sc-item-label", item.label), box("sc-item-note", item.note));
      this.list.append(entry);
    }
    this.holder = box("sc-menu-holder", this.button, this.list);
    this.holder.addEventListener("keydown", (event) => this.key(event));
    this.holder.addEventListener("focusout", (event) => {
      if (!this.holder.contains(event.relatedTarget as Node | null)) this.toggle(false);
    });
    this.toggle(false);
  }

  toggle(open = this.list.hidden !== false): void {
    const inside = this.list.contains((this.list.getRootNode() as Document).activeElement);
    show(this.list, open);
    this.button.setAttribute("aria-expanded", String(open));
    if (open) (this.list.firstElementChild as HTMLElement | null)?.focus();
    else if (inside) this.button.focus();
  }

  private key(event: KeyboardEvent): void {
    if (this.list.hidden) return;
    const items = [...this.list.children] as HTMLElement[];
    const root = this.list.getRootNode() as Document | ShadowRoot;
    const at = items.indexOf(root.activeElement as HTMLElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (event.key === "Escape") this.toggle(false);
    else if (next !== undefined) items.at(next % items.length)?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
