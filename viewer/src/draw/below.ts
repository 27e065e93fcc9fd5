// A canvas below that of the graphics card, for pictures that the processor paints one after the other.
//
// Where it does the work of the graphics card too, a picture would be copied into a texture, drawn
// with it and read back, which takes it longer than painting a small one. Here it is put as it is.

import { Sketchpad } from "./sketchpad";
import type { View } from "./view";

export class Below {
  private pad: Sketchpad | null = null;
  /** Where the picture is that is shown; null: none. */
  private at: View | null = null;

  constructor(private readonly canvas: HTMLCanvasElement) {
    this.hide();
  }

  /** Whether a view is what is shown. */
  shows(view: View): boolean {
    return view.isAt(this.at);
  }

  /** What to paint a view on. */
  padFor({ size: [width, height] }: View): Sketchpad {
    const { canvas } = this;
    if (!this.pad || canvas.width !== width || canvas.height !== height) {
      [canvas.width, canvas.height] = [width, height];
      this.pad = new Sketchpad([width, height], true);
    }
    return this.pad;
  }

  /** Show what was painted of a view. */
  show(view: View): void {
    const bytes = new Uint8ClampedArray(this.pad!.pixels.buffer);
    const context = this.canvas.getContext("2d", { alpha: false });
    context?.putImageData(new ImageData(bytes, ...view.size), 0, 0);
    if (!this.at) this.canvas.hidden = false;
    this.at = view;
  }

  hide(): void {
    this.canvas.hidden = true;
    this.at = null;
  }
}
