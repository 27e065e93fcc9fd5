// Light or dark: as chosen, or as the notebook or the system has it.

import type { Theme } from "../draw/colours";
import type { ViewState } from "../state";

export type { Theme };

/** The theme to draw with; `host` is the page that the viewer is in. */
export function themeOf(choice: ViewState["theme"], host: Document): Theme {
  if (choice !== "auto") return choice;
  return notebookTheme(host) ?? (systemIsDark(host).matches ? "dark" : "light");
}

/** Call back when the theme of the page or of the system changes; returns how to end this. */
export function listenToTheme(host: Document, callback: () => void): () => void {
  const query = systemIsDark(host);
  query.addEventListener("change", callback);
  const observer = new MutationObserver(callback);
  const attributeFilter = ["class", "theme", "data-jp-theme-light", "data-vscode-theme-kind"];
  for (const target of [host.documentElement, host.body]) {
    if (target) observer.observe(target, { attributes: true, attributeFilter });
  }
  return () => {
    query.removeEventListener("change", callback);
    observer.disconnect();
  };
}

function systemIsDark(host: Document): MediaQueryList {
  return (host.defaultView ?? window).matchMedia("(prefers-color-scheme: dark)");
}

/** What JupyterLab, VS Code, Colab or marimo say about themselves; null elsewhere. */
function notebookTheme(host: Document): Theme | null {
  const { documentElement: page, body } = host;
  const jupyter = body?.dataset.jpThemeLight;
  if (jupyter) return jupyter === "false" ? "dark" : "light";
  const code = body?.dataset.vscodeThemeKind;
  if (code) return code.includes("light") ? "light" : "dark";
  const colab = page.getAttribute("theme");
  if (colab === "dark" || colab === "light") return colab;
  return page.classList.contains("dark") || body?.classList.contains("dark") ? "dark" : null;
}
