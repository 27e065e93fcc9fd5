// The button that chooses between light, dark, and what the page has.

import type { Store } from "../state";
import { iconButton, setIcon } from "./icons";
import { listenToTheme, type Theme, themeOf } from "./theme";

const THEMES = ["auto", "light", "dark"] as const;

export class ThemeButton {
  readonly button = iconButton("auto", "Theme", () => this.next());
  theme: Theme = "light";
  private readonly ends: (() => void)[];
  private listener: (theme: Theme) => void = () => {};
  private shown = "";

  constructor(
    private readonly root: HTMLElement,
    private readonly store: Store,
  ) {
    const update = () => this.update();
    this.ends = [listenToTheme(root.ownerDocument, update), store.listen(update)];
    this.update();
  }

  /** Be told when light becomes dark; called at once. */
  onTheme(listener: (theme: Theme) => void): void {
    this.listener = listener;
    listener(this.theme);
  }

  dispose(): void {
    for (const end of this.ends) end();
  }

  private next(): void {
    const { theme } = this.store.state;
    this.store.set({ theme: THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]! });
  }

  private update(): void {
    const choice = this.store.state.theme;
    if (this.shown !== choice) setIcon(this.button, choice, `Theme: ${choice}`);
    this.shown = choice;
    const theme = themeOf(choice, this.root.ownerDocument);
    this.root.dataset.theme = theme;
    if (theme === this.theme) return;
    this.theme = theme;
    this.listener(theme);
  }
}
