"""Decide the instances of VNN-COMP that have two free inputs, and compare with published results.

Clone a repository of benchmarks, such as ``VNN-COMP/vnncomp2025_benchmarks``, and one of results,
such as ``VNN-COMP/vnncomp2025_results``. Then run ``python benchmarks/competition.py
benchmarks/tllverifybench_2023 benchmarks/cersyve --results vnncomp2025_results``. Each instance
is a process of its own, ``splinecam check-property``; its seconds are those of the processor, its
start and the import of torch included. The column *published* is the verdict of most tools.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from common import Table

import splinecam as sc

DECIDED = ("sat", "unsat")
# Modules are compiled once, as by an installation, and not by each process.
INSTALLED = {name: x for name, x in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
Key = tuple[str, str]  # names of a network and of a property, without folders and endings

TABLE = Table(
    {
        "network": "<52",
        "property": "<16",
        "verdict": ">9",
        "published": ">11",
        "CPU s": ">8.2f",
        "clock s": ">9.2f",
        "MB": ">7.0f",
    }
)


@dataclass(frozen=True)
class Instance:
    """One line of a benchmark's ``instances.csv``."""

    network: Path
    prop: Path

    @property
    def key(self) -> Key:
        return _stem(self.network.name), _stem(self.prop.name)


@dataclass
class Published:
    """What the tools of a year said: the verdicts, and the seconds of those that decided."""

    verdicts: dict[Key, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    seconds: dict[str, dict[Key, float]] = field(default_factory=lambda: defaultdict(dict))

    def consensus(self, key: Key) -> str | None:
        """The verdict of most tools; None if none decided."""
        found = self.verdicts.get(key)
        return found.most_common(1)[0][0] if found else None


def _stem(name: str) -> str:
    """A file's name without its ending; endings within it, as in ``eps_0.1.vnnlib``, stay."""
    return name.removesuffix(".gz").removesuffix(".onnx").removesuffix(".vnnlib")


def _there(path: Path) -> Path:
    """The file, or the one beside it that is compressed."""
    return path if path.exists() else path.with_name(path.name + ".gz")


def instances(folder: Path) -> Iterator[Instance]:
    """Yield the instances of a benchmark whose property leaves two inputs free."""
    with (folder / "instances.csv").open() as file:
        for network, prop, *_ in csv.reader(file):
            found = Instance(_there(folder / network), _there(folder / prop))
            if free_inputs(found.prop) == 2:
                yield found


def free_inputs(path: Path) -> int | None:
    """How many inputs may vary in the property's boxes; None if the library refuses the file."""
    try:
        prop = sc.read_vnnlib(path)
    except sc.SplineCamError:
        return None
    low, high = prop.box
    return int((low < high).sum())


def published(folder: Path) -> Published:
    """Read the results of all tools: one folder each, with a ``results.csv``."""
    result = Published()
    for path in sorted(folder.glob("*/results.csv")):
        with path.open() as file:
            for row in csv.reader(file):
                if len(row) < 6 or row[4] not in DECIDED:
                    continue
                key = _stem(Path(row[1]).name), _stem(Path(row[2]).name)
                result.verdicts[key][row[4]] += 1
                result.seconds[path.parent.name][key] = float(row[5])
    return result


def decide(instance: Instance, folder: Path, area: bool) -> dict[str, Any]:
    """Run ``splinecam check-property`` in a process; its verdict, its seconds and its memory."""
    network = folder / (_stem(instance.network.name) + ".onnx")
    opened = gzip.open if instance.network.suffix == ".gz" else open
    with opened(instance.network, "rb") as packed, network.open("wb") as file:
        shutil.copyfileobj(packed, file)
    verdict, said = folder / "verdict.txt", folder / "said.json"
    verdict.unlink(missing_ok=True)
    command = [sys.executable, "-m", "splinecam", "check-property", network, instance.prop]
    command += ["--verdict", verdict, "--json", "--force", "--quiet", *(["--area"] if area else [])]
    start = perf_counter()
    process = os.posix_spawn(
        sys.executable,
        [str(part) for part in command],
        INSTALLED,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)],
    )
    _, _, used = os.wait4(process, 0)
    network.unlink()
    return {
        "verdict": verdict.read_text().split()[0] if verdict.exists() else "refused",
        "CPU s": used.ru_utime + used.ru_stime,
        "clock s": perf_counter() - start,
        "MB": used.ru_maxrss / 1024,
        "said": said.read_text(),
    }


def summary(rows: list[dict[str, Any]], keys: list[Key], results: Published) -> None:
    """Print the sums of a benchmark, ours and those of each tool."""
    ours = [row for row in rows if row["verdict"] in DECIDED]
    total, most, memory = (
        f(row[name] for row in rows) for f, name in ((sum, "CPU s"), (max, "CPU s"), (max, "MB"))
    )
    print(
        f"\n{'splinecam':<20}{len(ours):>4} of {len(rows)} decided, {total:8.1f} s of CPU, "
        f"at most {most:.2f} s and {memory:.0f} MB"
    )
    for tool, seconds in results.seconds.items():
        found = [seconds[key] for key in keys if key in seconds]
        if found:
            print(f"{tool:<20}{len(found):>4} of {len(rows)} decided, {sum(found):8.1f} s")


def main() -> None:
    """Decide the instances of all benchmarks, and print a table of each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, help="benchmarks, with instances.csv")
    parser.add_argument("--results", type=Path, help="results of a year: TOOL/results.csv")
    parser.add_argument("--area", action="store_true", help="find all that is unsafe")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows, too")
    options = parser.parse_args()
    results = published(options.results) if options.results else Published()
    written: list[dict[str, Any]] = []
    wrong = 0
    for folder in options.folders:
        print(f"\n{folder.parent.name if folder.name[0].isdigit() else folder.name}")
        print(TABLE.heading())
        rows, keys = [], []
        with tempfile.TemporaryDirectory() as scratch:
            for instance in instances(folder):
                row = decide(instance, Path(scratch), options.area)
                row |= {"network": instance.key[0], "property": instance.key[1]}
                row["published"] = results.consensus(instance.key)
                differs = row["verdict"] in DECIDED and row["published"] not in (
                    None,
                    row["verdict"],
                )
                wrong += differs
                print(TABLE.line(row, "DIFFERS" if differs else ""), flush=True)
                rows.append(row)
                keys.append(instance.key)
        if rows:
            summary(rows, keys, results)
        written += rows
    if options.json:
        options.json.write_text(json.dumps(written, indent=1))
    if wrong:
        sys.exit(f"{wrong} verdicts differ from those of most tools.")


if __name__ == "__main__":
    main()
