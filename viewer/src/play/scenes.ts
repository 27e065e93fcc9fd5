// Three guided scenes: what a region is, in a minute.

import { box, element, setText } from "../panels/dom";
import { POINT_AT } from "./diagram";
import type { Experiment } from "./experiment";
import type { Unit } from "./view";

interface Scene {
  title: string;
  words: string;
  experiment: Partial<Experiment>;
  unit: Unit | null;
  /** Steps of training before it is shown. */
  steps: number;
}

const SMALL = { data: "moons", activation: "relu", color: "output", seed: 3, noise: 0.05 };

export const SCENES: readonly Scene[] = [
  {
    title: "1 · One unit is a line",
    words:
      "A unit adds up its inputs and cuts off what is below zero. It switches along a straight " +
      "line, the yellow one. On one side the output is flat, on the other it rises evenly: two " +
      "linear regions. The other thick line is the decision boundary, where the output is zero.",
    experiment: { ...SMALL, layers: [1], seed: 5 },
    unit: [0, 0],
    steps: 0,
  },
  {
    title: "2 · A layer is an arrangement of lines",
    words:
      "Eight units draw eight lines. Between them every unit is either on or off, so the network " +
      `is one affine map on each piece: its colours rise evenly. ${POINT_AT} a piece to read its ` +
      `map; the diagram fills the units that are on there. ${POINT_AT} a line to see whose it is.`,
    experiment: { ...SMALL, layers: [8] },
    unit: null,
    steps: 0,
  },
  {
    title: "3 · The second layer folds",
    words:
      "A unit of the second layer is a line too, but in the space that the first layer has bent. " +
      "Seen from here it is folded: it turns at every line of the first layer that it meets. So " +
      "few units give many regions, and training moves them where the data needs them. Press Play.",
    experiment: { ...SMALL, layers: [8, 8], seed: 5 },
    unit: [1, 0],
    steps: 150,
  },
];

export class Guide {
  readonly card = box("pg-guide");
  private readonly title = element("h2", { tabindex: "-1" });
  private readonly words = element("p");
  private readonly next = element("button", { type: "button", class: "pg-primary" }, "Next");
  private readonly back = element("button", { type: "button" }, "Back");
  private at = 0;

  /** show: sets up a scene; end: called when the guide is closed. */
  constructor(
    private readonly show: (scene: Scene) => void,
    private readonly end: () => void,
  ) {
    const close = element("button", { type: "button" }, "Close");
    this.next.addEventListener("click", () => {
      if (this.at + 1 < SCENES.length) this.go(this.at + 1);
      else this.close();
    });
    this.back.addEventListener("click", () => this.go(this.at - 1));
    close.addEventListener("click", () => this.close());
    this.card.setAttribute("role", "region");
    this.card.setAttribute("aria-label", "Guided tour");
    this.card.append(this.title, this.words, box("pg-row", this.back, this.next, close));
    this.card.hidden = true;
  }

  go(at: number): void {
    this.at = at;
    const scene = SCENES[at]!;
    this.card.hidden = false;
    setText(this.title, scene.title);
    setText(this.words, scene.words);
    this.back.disabled = at === 0;
    setText(this.next, at + 1 < SCENES.length ? "Next" : "Done");
    this.show(scene);
    this.title.focus({ preventScroll: true });
  }

  close(): void {
    this.card.hidden = true;
    this.end();
  }
}
