"""Regions in files for other programs: the command ``export``, and the table of ``stats``."""

from __future__ import annotations

import csv
import io
from argparse import Namespace
from pathlib import Path
from typing import Any

from splinecam._partition import Partition, load
from splinecam._util.files import writing
from splinecam.analysis.measures import table_columns
from splinecam.cli.console import Console, claim, write_text

__all__ = ["export_command", "write_table"]


def export_command(options: Namespace) -> int:
    """Write a saved partition to files, each in the format that its name ends with."""
    console = Console(options.quiet)
    for path in options.files:
        claim([path], force=options.force)
    part = load(options.saved)
    for path in options.files:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with console.timed("file"):
            _write(part, path, options)
        size = path.stat().st_size / 1e6
        console.out(f"{len(part):,} regions in {path}, {size:.3g} MB, {console.took('file')}")
    return 0


def _write(part: Partition, path: Path, options: Namespace) -> None:
    """Write one file."""
    progress = not options.quiet
    surface: dict[str, Any] = {"output": options.output, "space": options.space or "plane"}
    match path.suffix.lower():
        case ".parquet":
            part.to_parquet(path, columns=options.columns or "all")
        case ".ply":
            part.to_ply(path, columns=options.columns, progress=progress, **surface)
        case ".vtp" | ".vtk":
            part.to_vtk(path, columns=options.columns, progress=progress, **surface)
        case _:
            part.to_geojson(path, columns=options.columns, progress=progress)


def write_table(part: Partition, path: Path) -> None:
    """Write one row per region: a Parquet file, or text that is the same without pandas."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".parquet":
        part.to_parquet(path)
        return
    rows = table_columns(part)
    columns = [column.tolist() for column in rows.values()]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["region", *rows])
    writer.writerows(zip(range(len(part)), *columns, strict=True))
    write_text(path, text.getvalue())
