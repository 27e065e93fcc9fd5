// "Copy Python": the lines that show the same view again.

import type { ViewState } from "../state";
import { differences } from "../url";

/** Lines of Python that recreate a view.
 *
 * shown: the scene's line of Python, which names what is shown; defaults: the state that this
 * begins with. */
export function pythonFor(
  shown: string,
  state: Readonly<ViewState>,
  defaults: Readonly<ViewState>,
): string {
  const change = differences(state, defaults);
  const lines = ["import splinecam as sc", "", viewerLine(shown)];
  const keys = Object.keys(change) as (keyof ViewState)[];
  if (keys.length) {
    const entries = keys.map((key) => `    ${literal(key)}: ${literal(change[key])},`);
    lines.push("viewer.state = {", ...entries, "}");
  }
  return `${lines.join("\n")}\n`;
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

function viewerLine(shown: string): string {
  return `viewer = ${shown || "sc.view(part)"}`;
}
