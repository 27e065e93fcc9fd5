// A small picture of pixels: an input, a gradient, a thumbnail.

import { element } from "./dom";

/** Draw RGBA pixels on a canvas of their size; the page shows them without smoothing. */
export function drawPixels(
  canvas: HTMLCanvasElement,
  pixels: Uint8ClampedArray,
  height: number,
  width: number,
): void {
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const image = new ImageData(width, height);
  image.data.set(pixels.subarray(0, image.data.length));
  canvas.getContext("2d")?.putImageData(image, 0, 0);
}

/** A canvas for pixels; label: what it shows. */
export function picture(label: string): HTMLCanvasElement {
  return element("canvas", { class: "sc-picture", role: "img", "aria-label": label });
}

/** The k-th of several RGBA images (n, h, w, 4), as a canvas. */
export function thumbnail(
  images: { data: ArrayLike<number>; shape: number[] },
  index: number,
  label: string,
): HTMLCanvasElement {
  const [, height, width] = images.shape as [number, number, number];
  const size = 4 * height * width;
  const pixels = new Uint8ClampedArray(size);
  for (let k = 0; k < size; k += 1) pixels[k] = images.data[index * size + k] ?? 0;
  const canvas = picture(label);
  drawPixels(canvas, pixels, height, width);
  return canvas;
}
