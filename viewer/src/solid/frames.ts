// The surfaces of a scene: loaded when they are shown, and kept for a while.

import { askFor } from "../control/asking";
import type { Theme } from "../draw/colours";
import type { ColoringHeader, Message, Source } from "../protocol/messages";
import type { Known } from "./facts";
import type { SolidHeader } from "./messages";
import { type Painter, plainColor, type Sent } from "./painter";
import { Polygons } from "./polygons";

const KEPT = 6; // surfaces on the graphics card

export type Coloring = Message<ColoringHeader> | null;

/** A surface that is on the graphics card. */
export class Loaded {
  private numbers: ArrayLike<number> | null = null;

  constructor(
    readonly known: Known,
    readonly sent: Sent,
  ) {}

  /** Colour the faces; null: all alike. */
  paint(coloring: Coloring, theme: Theme): void {
    const { numbers, lut, colors } = coloring?.arrays ?? {};
    this.numbers = numbers?.data ?? null;
    const scale = coloring?.header.scale;
    if (colors) this.sent.paint(colors.data);
    else if (numbers && lut && scale) {
      const bytes = new Uint8Array(3 * numbers.data.length);
      for (let k = 0; k < numbers.data.length; k++) {
        const share = (numbers.data[k]! - scale.low) / (scale.high - scale.low);
        const at = 3 * Math.max(0, Math.min(255, Math.floor(256 * share)));
        if (Number.isNaN(share)) bytes.fill(160, 3 * k, 3 * k + 3);
        else for (let j = 0; j < 3; j++) bytes[3 * k + j] = lut.data[at + j]!;
      }
      this.sent.paint(bytes);
    } else this.sent.paint(plainColor(theme));
  }

  /** The number that a face is coloured by, or null. */
  shadeOf(face: number): number | null {
    return this.numbers?.[face] ?? null;
  }
}

export class Frames {
  /** The last one is the newest. */
  private readonly kept = new Map<number, Loaded>();
  private readonly colorings = new Map<string, Promise<Coloring>>();
  shown: Loaded | null = null;

  constructor(
    private readonly source: Source,
    private readonly scene: SolidHeader,
    private readonly painter: Painter,
  ) {}

  /** A surface, from now on among those that are kept. */
  async load(frame: number): Promise<Loaded | null> {
    const known = this.kept.get(frame);
    if (known) return known;
    const message = await askFor(this.source, { ask: "surface", frame }, "surface");
    if (!message) return null;
    const { gradients, bias, areas, region } = message.arrays;
    const polygons = Polygons.of(message);
    const found: Known = {
      header: message.header,
      polygons,
      gradients: gradients!.data,
      bias: bias!.data,
      areas: areas!.data,
      region: region!.data,
    };
    const loaded = new Loaded(found, this.painter.send(polygons, this.scene.layers.length));
    this.kept.set(frame, loaded);
    return loaded;
  }

  /** Show a surface that is loaded, and let go of those that were not shown for long. */
  show(frame: number): void {
    this.shown = this.kept.get(frame) ?? null;
    if (!this.shown) return;
    this.kept.delete(frame);
    this.kept.set(frame, this.shown);
    for (const [old, { sent }] of this.kept) {
      if (this.kept.size <= KEPT) break;
      sent.dispose();
      this.kept.delete(old);
    }
  }

  /** The colours of a surface by the name of a colouring; null: all faces alike. */
  coloring(frame: number, name: string): Promise<Coloring> {
    if (!name || name === "plain") return Promise.resolve(null);
    const key = `${frame} ${name}`;
    const asked =
      this.colorings.get(key) ??
      askFor(this.source, { ask: "coloring", frame, name }, "coloring").catch((error) => {
        this.colorings.delete(key);
        throw error;
      });
    this.colorings.set(key, asked);
    return asked;
  }
}
