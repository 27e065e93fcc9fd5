// The derivative of an output in input space, on the region that one looks at.

import { storedGradient } from "../geometry/inputs";
import type { Mesh } from "../geometry/mesh";
import type { GradientHeader, Message } from "../protocol/messages";
import { askFor } from "./asking";
import type { Hit } from "./hover";
import { Latest, Recent } from "./latest";
import type { Stage } from "./stage";

const FEW = 64; // numbers of an input that is shown as numbers
const DWELL = 120; // milliseconds that the cursor rests on a region before Python is asked

interface Question {
  mesh: Mesh;
  region: number;
  /** The output that wins at the place; null: Python finds out. */
  output: number | null;
  key: string;
}

export class Gradients {
  private known = new Recent<Message<GradientHeader>>(64);
  private questions = new Latest<Question>((question) => this.work(question));
  private timer = 0;
  private wanted = "";

  constructor(private stage: Stage) {}

  /** Show the gradient on the region of a hit, if inputs are images or a few numbers. */
  show(hit: Hit | null): void {
    clearTimeout(this.timer);
    this.wanted = "";
    if (!hit || hit.cell < 0 || hit.level.mesh.isSettled(hit.cell)) return;
    const { image, inputShape } = hit.pane.header.domain;
    const size = inputShape.reduce((a, b) => a * b, 1);
    if (!image && (size <= 2 || size > FEW)) return; // in the plane, the map says it
    const { mesh } = hit.level;
    const region = mesh.region[hit.cell]!;
    const many = hit.pane.header.outputCount > 1; // a single output has two classes
    const output = many ? (mesh.cellClass?.[hit.cell] ?? null) : null;
    const question = { mesh, region, output, key: `${mesh.id} ${region} ${output}` };
    this.wanted = question.key;
    const known = this.known.get(question.key) ?? embedded(mesh, region);
    if (known) this.stage.panels.showGradient(known);
    else if (hit.pane.header.live) {
      this.timer = window.setTimeout(() => this.questions.push(question), DWELL);
    }
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.questions.drop();
  }

  private async work({ mesh, region, output, key }: Question): Promise<void> {
    try {
      const request = { ask: "gradient", mesh: mesh.id, region, output } as const;
      const answer = await askFor(this.stage.source, request, "gradient");
      if (!answer || this.stage.disposed) return;
      this.known.set(key, answer);
      if (this.wanted === key) this.stage.panels.showGradient(answer);
    } catch (error) {
      if (!this.stage.disposed) this.stage.report(error);
    }
  }
}

/** The gradient that a file holds with the mesh. */
function embedded(mesh: Mesh, region: number): Message<GradientHeader> | null {
  const data = storedGradient(mesh, region);
  if (!data) return null;
  const output = mesh.gradientOutput?.[region] ?? 0;
  const header = { kind: "gradient", mesh: mesh.id, region, output } as const;
  return { header, arrays: { gradient: { data, shape: [data.length] } } };
}
