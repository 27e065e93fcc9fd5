// Icons as small SVG drawings of 16 by 16, made by calls and not from text.

import { element } from "./dom";

const SVG = "http://www.w3.org/2000/svg";

const PATHS = {
  sliders:
    "M2 4.5h6m4 0h2M2 11.5h2m4 0h6M8 4.5a2 2 0 1 0 4 0a2 2 0 1 0-4 0M4 11.5a2 2 0 1 0 4 0a2 2 0 1 0-4 0",
  share: "M8 10V2m0 0L5 5m3-3l3 3M4 7.5H3V14h10V7.5h-1",
  help: "M1.5 8a6.5 6.5 0 1 0 13 0a6.5 6.5 0 1 0-13 0M6.2 6.4a1.8 1.8 0 1 1 2.7 1.6C8.2 8.4 8 8.7 8 9.3M8 11.4v.1",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  home: "M2.5 7.5L8 2.5l5.5 5M4 6.5V13.5h8V6.5",
  expand: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  close: "M4 4l8 8M12 4l-8 8",
  down: "M4 6l4 4l4-4",
  light:
    "M8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1M5 8a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
  dark: "M13 9.5A5.5 5.5 0 1 1 6.5 3A4.5 4.5 0 0 0 13 9.5Z",
  auto: "M2.5 8a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0M8 2.5v11M8 5h4.5M8 8h5.5M8 11h4.5",
  play: "M5 3l8 5l-8 5Z",
  pause: "M5 3v10M11 3v10",
  pin: "M6 2h4M7 2v4.5L4.5 9h7L9 6.5V2M8 9v5",
} as const;

export type IconName = keyof typeof PATHS;

/** A drawing that says nothing to screen readers: the button around it has a label. */
export function icon(name: IconName): SVGSVGElement {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", "0 0 16 16");
  drawing.setAttribute("aria-hidden", "true");
  drawing.classList.add("sc-icon");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  drawing.append(path);
  return drawing;
}

/** A button that consists of an icon; label: what it does. */
export function iconButton(
  name: IconName,
  label: string,
  click: (event: MouseEvent) => void,
): HTMLButtonElement {
  const options = { class: "sc-button", type: "button", title: label, "aria-label": label, click };
  const button = element("button", options);
  button.append(icon(name));
  return button;
}

/** Change the icon and the label of a button. */
export function setIcon(button: HTMLButtonElement, name: IconName, label: string): void {
  button.replaceChildren(icon(name));
  button.title = label;
  button.setAttribute("aria-label", label);
}
