// A PNG of what one sees: the canvases side by side, with the legend below them.

import type { LegendContent } from "../panels/legend";

/** What is drawn around the pictures. */
export interface Surroundings {
  legend: LegendContent | null;
  /** The colours of paper and letters. */
  paper: string;
  ink: string;
}

/** Compose a picture. The canvases must have been drawn in the same task. */
export async function composePng(
  canvases: readonly HTMLCanvasElement[],
  around: Surroundings,
): Promise<Blob> {
  const width = canvases.reduce((sum, canvas) => sum + canvas.width, 0);
  const height = Math.max(...canvases.map((canvas) => canvas.height));
  const page = document.createElement("canvas");
  page.width = width;
  page.height = height;
  const context = page.getContext("2d");
  if (!context) throw new Error("the browser has no canvas");
  context.fillStyle = around.paper;
  context.fillRect(0, 0, width, height);
  let left = 0;
  for (const canvas of canvases) {
    context.drawImage(canvas, left, 0);
    left += canvas.width;
  }
  return new Promise((resolve, reject) => {
    const take = (blob: Blob | null) =>
      blob ? resolve(blob) : reject(new Error("the picture is too large for the browser"));
    page.toBlob(take, "image/png");
  });
}
