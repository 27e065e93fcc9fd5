// A choice of one of many things, found by typing a part of its name or its number.

import { box, element, freshId, show } from "./dom";

export interface Choice {
  value: number | null;
  label: string;
}

const SHOWN = 50;

/** The choices whose label contains the words, those that begin with them first. */
export function matching(choices: readonly Choice[], words: string): Choice[] {
  const wanted = words.trim().toLowerCase();
  if (!wanted) return [...choices];
  const found = choices.filter((choice) => choice.label.toLowerCase().includes(wanted));
  const rank = (choice: Choice) =>
    String(choice.value) === wanted ? 0 : choice.label.toLowerCase().startsWith(wanted) ? 1 : 2;
  return found.sort((a, b) => rank(a) - rank(b));
}

/** A field with a list below it, by mouse, touch and keyboard. */
export class Picker {
  readonly row: HTMLElement;
  private readonly input: HTMLInputElement;
  private readonly list: HTMLElement;
  private choices: readonly Choice[] = [];
  private found: Choice[] = [];
  private active = -1;
  private chosen: number | null = null;

  constructor(
    label: string,
    private readonly change: (value: number | null) => void,
  ) {
    const id = freshId();
    const listId = freshId();
    this.list = element("div", {
      class: "sc-list",
      role: "listbox",
      id: listId,
      "aria-label": label,
    });
    this.input = element("input", {
      class: "sc-select",
      id,
      type: "text",
      role: "combobox",
      "aria-autocomplete": "list",
      "aria-expanded": "false",
      "aria-controls": listId,
      autocomplete: "off",
      spellcheck: "false",
      focus: () => {
        this.input.select();
        this.open("");
      },
      input: () => this.open(this.input.value),
      blur: () => this.close(),
      keydown: (event) => this.key(event),
    });
    const name = element("label", { class: "sc-field-label", for: id }, label);
    this.row = box("sc-field", name, box("sc-picker", this.input, this.list));
    show(this.list, false);
  }

  setChoices(choices: readonly Choice[]): void {
    this.choices = choices;
    this.set(this.chosen);
  }

  set(value: number | null): void {
    this.chosen = value;
    const choice = this.choices.find((each) => each.value === value) ?? this.choices[0];
    this.input.value = choice?.label ?? "";
    this.input.title = this.input.value;
  }

  private open(words: string): void {
    this.found = matching(this.choices, words);
    this.active = words ? 0 : this.found.findIndex((each) => each.value === this.chosen);
    const from = Math.max(0, Math.min(this.active - 5, this.found.length - SHOWN));
    const rows = this.found
      .slice(from, from + SHOWN)
      .map((choice, k) => this.option(choice, from + k));
    const left = this.found.length - rows.length;
    if (left > 0) rows.push(box("sc-list-note", `${left} more: type to find one`));
    if (!rows.length) rows.push(box("sc-list-note", "nothing has this name"));
    this.list.replaceChildren(...rows);
    show(this.list, true);
    this.input.setAttribute("aria-expanded", "true");
    this.mark();
  }

  private option(choice: Choice, index: number): HTMLElement {
    const row = element("div", {
      class: "sc-option",
      title: choice.label,
      role: "option",
      id: freshId(),
      "aria-selected": String(choice.value === this.chosen),
      pointerdown: (event) => event.preventDefault(),
      click: () => this.take(choice),
    });
    row.dataset.index = String(index);
    row.textContent = choice.label;
    return row;
  }

  private mark(): void {
    this.input.removeAttribute("aria-activedescendant");
    for (const row of this.list.children) {
      const active = (row as HTMLElement).dataset.index === String(this.active);
      row.classList.toggle("sc-active", active);
      if (!active) continue;
      this.input.setAttribute("aria-activedescendant", row.id);
      row.scrollIntoView({ block: "nearest" });
    }
  }

  private take(choice: Choice): void {
    this.set(choice.value);
    this.close();
    this.change(choice.value);
  }

  private close(): void {
    show(this.list, false);
    this.input.setAttribute("aria-expanded", "false");
    this.set(this.chosen);
  }

  private key(event: KeyboardEvent): void {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      if (this.list.hidden) this.open("");
      const last = Math.min(
        this.found.length - 1,
        Number(
          (this.list.lastElementChild as HTMLElement)?.dataset.index ?? Number.POSITIVE_INFINITY,
        ),
      );
      this.active = Math.max(0, Math.min(this.active + step, last));
      this.mark();
    } else if (event.key === "Enter") {
      const choice = this.found[this.active];
      if (choice && !this.list.hidden) this.take(choice);
    } else if (event.key === "Escape" && !this.list.hidden) {
      this.close();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
