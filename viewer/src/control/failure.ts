// A card in the page that says what went wrong, so that a page is never blank.

/** Show nothing but a card in an element: what is wrong, and what to do next. */
export function showFailure(root: HTMLElement, what: string, next: string): void {
  const card = document.createElement("div");
  card.className = "splinecam-failure";
  card.setAttribute("role", "alert");
  const title = document.createElement("strong");
  title.textContent = what;
  const advice = document.createElement("p");
  advice.textContent = next;
  card.append(title, advice);
  // The style sheet itself may be what is damaged.
  Object.assign(card.style, {
    boxSizing: "border-box",
    maxWidth: "36em",
    margin: "10vh auto",
    padding: "1.2em 1.5em",
    border: "1px solid #b3261e",
    borderRadius: "6px",
    background: "#fff",
    color: "#222",
    font: "16px/1.5 system-ui, sans-serif",
  });
  root.replaceChildren(card);
}

/** The sentence of whatever was thrown. */
export function sentenceOf(thrown: unknown): string {
  const text = thrown instanceof Error ? thrown.message : String(thrown);
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}

/** Call back for errors that nobody caught, of the viewer's own code only; returns what ends it. */
export function watchErrors(report: (sentence: string) => void): () => void {
  const onError = (event: ErrorEvent) => {
    // Browsers tell so about layouts that settle in the next frame; nothing is wrong then.
    if (!event.message.includes("ResizeObserver")) report(sentenceOf(event.error ?? event.message));
  };
  const onRejection = (event: PromiseRejectionEvent) => report(sentenceOf(event.reason));
  window.addEventListener("error", onError);
  window.addEventListener("unhandledrejection", onRejection);
  return () => {
    window.removeEventListener("error", onError);
    window.removeEventListener("unhandledrejection", onRejection);
  };
}
