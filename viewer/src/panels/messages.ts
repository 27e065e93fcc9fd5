// What the viewer says: status, notes, progress of loading, errors. A page is never blank.

import { box, element, show, text } from "./dom";
import { iconButton } from "./icons";

const NOTE = 2500; // milliseconds that a note is shown

/** What the dot beside the status shows. */
export type StatusKind = "exact" | "busy" | "note";

export class Messages {
  readonly status = element("div", { class: "sc-status", role: "status" });
  readonly layer = box("sc-messages");
  readonly note = element("div", { class: "sc-note", role: "status" });
  /** What only screen readers are told. */
  readonly said = element("div", { class: "sc-said", role: "status", "aria-live": "polite" });
  private readonly words = text("sc-status-text", "");
  private noteTimer = 0;
  private readonly progress = element("progress", { class: "sc-progress" });
  private readonly loading = box("sc-card", text("sc-card-title", ""), this.progress);
  private readonly errors = new Map<string, HTMLElement>();

  constructor() {
    this.status.append(text("sc-dot", ""), this.words);
    show(this.status, false);
    show(this.loading, false);
    show(this.note, false);
    this.layer.append(this.loading);
  }

  showStatus(words: string, kind: StatusKind): void {
    if (this.words.textContent !== words) this.words.textContent = words;
    this.status.title = words;
    this.status.dataset.kind = kind;
    show(this.status, words !== "");
  }

  /** Show a line for a moment. */
  showNote(words: string): void {
    this.note.textContent = words;
    show(this.note, true);
    window.clearTimeout(this.noteTimer);
    this.noteTimer = window.setTimeout(() => show(this.note, false), NOTE);
  }

  /** Show what is being loaded and how much of it is there (0 to 1, null: unknown); "" ends it. */
  showProgress(words: string, share: number | null): void {
    show(this.loading, words !== "");
    (this.loading.firstChild as HTMLElement).textContent = words;
    if (share === null) this.progress.removeAttribute("value");
    else this.progress.value = Math.max(0, Math.min(1, share));
    this.progress.setAttribute("aria-label", words);
  }

  /** Show an error until it is dismissed; fatal: nothing else can be shown. */
  showError(words: string, fatal: boolean): void {
    this.showProgress("", null);
    if (this.errors.has(words)) return;
    const title = fatal ? "This cannot be shown" : "Something went wrong";
    const body = box("sc-card-body", words);
    const card = element("div", { class: "sc-card sc-error", role: "alert" });
    card.append(text("sc-card-title", title), body);
    const dismiss = () => {
      card.remove();
      this.errors.delete(words);
    };
    if (!fatal) card.prepend(iconButton("close", "Dismiss", dismiss));
    this.errors.set(words, card);
    this.layer.append(card);
    if (this.errors.size > 3) this.errors.values().next().value?.remove();
  }

  /** Remove all errors, for instance because what failed has succeeded. */
  clearErrors(): void {
    for (const card of this.errors.values()) card.remove();
    this.errors.clear();
  }
}
