// The buttons over the picture: closer, farther, everything, full screen.

import type { Actions } from "./actions";
import { box, show } from "./dom";
import { iconButton } from "./icons";

/** How much closer a button or a key goes. */
export const ZOOM = 1.5;

/** fail: is told if the browser allows no full screen. */
export function mapButtons(
  root: HTMLElement,
  actions: Pick<Actions, "zoom" | "home">,
  fail: () => void,
): HTMLElement {
  const page = root.ownerDocument;
  const toggle = () => {
    const done = page.fullscreenElement ? page.exitFullscreen() : root.requestFullscreen();
    done.catch(fail);
  };
  const full = iconButton("expand", "Full screen", toggle);
  show(full, page.fullscreenEnabled);
  return box(
    "sc-map-buttons",
    iconButton("plus", "Zoom in (+)", () => actions.zoom(ZOOM)),
    iconButton("minus", "Zoom out (−)", () => actions.zoom(1 / ZOOM)),
    iconButton("home", "Show everything (0)", () => actions.home()),
    full,
  );
}
