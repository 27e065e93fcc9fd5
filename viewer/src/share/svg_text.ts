// Numbers, colours and text as SVG writes them.

import type { Rgb } from "../draw/colours";

/** A coordinate with two decimals. */
export function coordinate(value: number): string {
  const rounded = Math.round(100 * value) / 100;
  return String(rounded === 0 ? 0 : rounded);
}

/** The path of a closed ring, x y x y and so on. */
export function ringPath(ring: ArrayLike<number>): string {
  let path = "";
  for (let k = 0; k < ring.length; k += 2) {
    path += `${k ? "L" : "M"}${coordinate(ring[k]!)} ${coordinate(ring[k + 1]!)}`;
  }
  return path ? `${path}Z` : "";
}

/** A colour from numbers from 0 to 1. */
export function hexOf([r, g, b]: Rgb): string {
  const part = (share: number) =>
    Math.round(255 * share)
      .toString(16)
      .padStart(2, "0");
  return `#${part(r)}${part(g)}${part(b)}`;
}

/** Text that may stand between tags and in attributes; characters that XML does not know go. */
export function escaped(text: string): string {
  return text
    .replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "")
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/"/g, "&quot;")
    .replace(/'/g, "&#39;");
}

/** A colour of a message if it is one, else black: nothing else reaches an attribute. */
export function safeColor(color: string): string {
  return /^#[0-9a-f]{3,8}$/i.test(color) ? color : "#000000";
}
