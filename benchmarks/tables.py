"""Write measured figures into the tables of benchmarks/README.md.

make bench BENCH_FLAGS="--json cpu.json", then:

  python benchmarks/tables.py cpu.json
  python benchmarks/tables.py cpu.json cuda.json      # figures of two machines side by side

A table stands between the lines <!-- table GROUP --> and <!-- end -->. Tables of groups that were
not measured stay as they are.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import against
import sweeps
from bench import growth
from networks import GROUPS

README = Path(__file__).parent / "README.md"

Row = dict[str, Any]

# What is told of each device.
FIGURES = ("median", "best", "spread", "peak", "floor", "ratio")
GROWING = (*FIGURES, "µs each")
OTHERS = {"sweep": sweeps.TABLE, "relucent": against.TABLE}


def rounded(value: float | int | str | None) -> str:
    """A number with two digits, or all those before the point."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int) or value == 0:
        return f"{value:,}"
    return f"{value:,.{max(0, 1 - math.floor(math.log10(abs(value))))}f}"


def markdown(titles: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """A table."""
    cells = [titles, ["---"] * len(titles), *([rounded(cell) for cell in line] for line in lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def side_by_side(group: str, rows: list[Row], machines: dict[str, str]) -> str:
    """The figures of a group, a line for each workload; those of every device in columns."""
    devices = [name for name in machines if any(row["device"] == name for row in rows)]
    figures = GROWING if group in ("regions", "width") else FIGURES
    titles = ["workload", "regions"]
    for device in devices:
        first, *others = figures
        titles += [f"{machines[device]}: {first}", *others]
    found = {(row["device"], row["workload"]): row for row in rows}
    lines = []
    for name in dict.fromkeys(row["workload"] for row in rows):
        made = [found.get((device, name), {}) for device in devices]
        regions = next(row["regions"] for row in made if row)
        lines.append([name, regions, *(row.get(key) for row in made for key in figures)])
    text = markdown(titles, lines)
    for device in devices:
        told = growth(group, [row for row in rows if row["device"] == device])
        if told:
            lines = [f"- {' '.join(line.split())}" for line in told]
            text += f"\n\n{machines[device]}:\n\n" + "\n".join(lines)
    return text


def plain(group: str, rows: list[Row], machines: dict[str, str]) -> str:
    """A group that has columns of its own, with the machine in front."""
    titles = list(OTHERS[group].columns)
    lines = [[machines[row["device"]], *(row.get(title) for title in titles)] for row in rows]
    return markdown(["machine", *titles], lines)


def filled(text: str, rows: list[Row], machines: dict[str, str]) -> str:
    """The page with the tables of the groups that were measured."""
    for group in (*GROUPS, *OTHERS):
        own = [row for row in rows if row["group"] == group]
        if own:
            made = (plain if group in OTHERS else side_by_side)(group, own, machines)
            place = re.compile(rf"(<!-- table {group} -->\n).*?(<!-- end -->)", re.DOTALL)
            text = place.sub(lambda found: f"{found[1]}\n{made}\n\n{found[2]}", text)  # noqa: B023
    return text


def main(argv: Sequence[str] | None = None) -> None:
    """Read the files, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--page", type=Path, default=README, help="default: benchmarks/README.md")
    settings = parser.parse_args(argv)
    rows: list[Row] = []
    machines: dict[str, str] = {}
    for path in settings.files:
        content = json.loads(path.read_text())
        rows += content["rows"]
        machines |= content["machines"]
    settings.page.write_text(filled(settings.page.read_text(), rows, machines))


if __name__ == "__main__":
    main()
