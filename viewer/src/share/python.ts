// "Copy Python": the lines that show the same view again.

import type { SceneHeader } from "../protocol/messages";
import { INITIAL, type ViewState } from "../state";
import { differences } from "../url";

/** Lines of Python that recreate a view. What is shown is named as the scene names it. */
export function pythonFor(
  scene: Pick<SceneHeader, "python" | "panes">,
  state: Readonly<ViewState>,
): string {
  const { color, output, ...rest } = differences(state, INITIAL);
  const options: string[] = [];
  if (color) options.push(`color=${literal(color)}`);
  if (output != null) options.push(`output=${literal(output)}`);
  const entries = Object.entries(rest).map(
    ([key, value]) => `        ${literal(snakeCase(key))}: ${literal(value)},`,
  );
  if (entries.length) options.push(`state={\n${entries.join("\n")}\n    }`);
  const call = [subjects(scene), ...options];
  const line = call.join(", ");
  const short = !line.includes("\n") && line.length < 70;
  const written = short ? line : `\n${call.map((each) => `    ${each},`).join("\n")}\n`;
  return `import splinecam as sc\n\nviewer = sc.view(${written})\n`;
}

/** A value as Python writes it. */
export function literal(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number")
    return Number.isFinite(value) ? String(value) : `float("${value}")`;
  if (typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  const entries = Object.entries(value).map(([key, each]) => `${literal(key)}: ${literal(each)}`);
  return `{${entries.join(", ")}}`;
}

/** The names of the state in Python: hidden_layers for hiddenLayers. */
export function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** What is viewed: as the scene says, or names that fit the number of panes and frames. */
function subjects({ python, panes }: Pick<SceneHeader, "python" | "panes">): string {
  if (python) return /^sc\.view\((.*)\)$/s.exec(python)?.[1] ?? python;
  const names = panes.map(({ frames }) => (frames.length > 1 ? "parts" : "part"));
  return names.map((name, k) => (names.length > 1 ? `${name}_${k + 1}` : name)).join(", ");
}
