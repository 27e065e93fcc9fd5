// Elements without innerHTML: text from models, data and files only ever becomes text.

type Child = Node | string | null;
type Listeners = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };

/** What an element is made with: attributes are texts, listeners are functions. */
export type Options = Listeners & { [attribute: string]: unknown };

/** A new element; strings become text. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  options: Options = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (typeof value === "function") made.addEventListener(name, value as EventListener);
    else if (value) made.setAttribute(name, String(value));
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** A block of a class, with children. */
export function box(name: string, ...children: Child[]): HTMLDivElement {
  return element("div", { class: name }, ...children);
}

/** Text of a class. */
export function text(name: string, words: string): HTMLSpanElement {
  return element("span", { class: name }, words);
}

/** Show or hide an element. */
export function show(target: HTMLElement, shown: boolean): void {
  target.hidden = !shown;
}

let count = 0;

/** A name that no other element of the page has. */
export function freshId(): string {
  count += 1;
  return `sc-${count}-${Math.random().toString(36).slice(2, 8)}`;
}

/** Let an element have some children: new ones are made, superfluous ones removed. */
export function repeat<E extends HTMLElement>(
  parent: HTMLElement,
  count: number,
  make: (index: number) => E,
): E[] {
  while (parent.children.length > count) parent.lastElementChild?.remove();
  while (parent.children.length < count) parent.append(make(parent.children.length));
  return [...parent.children] as E[];
}

/** Set the text of an element, unless it is there already. */
export function setText(target: HTMLElement, words: string, title = ""): void {
  if (target.textContent !== words) target.textContent = words;
  if (target.title !== title) target.title = title;
}
