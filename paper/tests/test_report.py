"""The table of an experiment: the paper's values, ours, and why they may differ."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch

from splinecam_paper.experiment import Experiment, Report, Row, Setup, foot, table, write_report


def content(*rows: Row) -> dict[str, object]:
    run = {"quick": False, "seed": 3, "seconds": 12.4, "machine": "2 cores", "splinecam": "0.1.0"}
    return {"experiment": "net", "rows": list(rows), "notes": ["A note."], **run}


def test_long_reasons_are_numbered_and_explained_once() -> None:
    reason = "the paper shows curves without numbers"
    rows = [
        Row("regions", 4, 5, reason, seed=0, area=2.0, seconds=0.01234),
        Row("ARV", None, 0.5, reason),
        Row("ANV", "4", "4 and 4", "yes"),
    ]
    found = table(content(*rows))
    assert [cells for _, cells in found.rows] == [
        ["4", "5", "(1)", "0", "2", "0.0123"],
        ["", "0.5", "(1)", "", "", ""],
        ["4", "4 and 4", "yes", "", "", ""],
    ]
    below = foot(content(*rows))
    assert below.startswith("(1) The paper shows curves without numbers.\n\nnet: a full run")
    assert below.endswith("A note.")


def test_table_from_the_json_file_is_the_one_that_was_written(tmp_path: Path) -> None:
    report = Report(rows=[Row("regions", 4, 5, "another machine, and other weights")])
    report.numbers = {"areas": torch.ones(2), "none": math.nan, "by seed": {0: (1, 2)}}
    experiment = Experiment("net", "a net", ["Fig. 1"], {}, {}, {}, lambda *_: report)
    write_report(experiment, report, Setup(tmp_path, device="cpu"), {"width": 3}, 1.0)
    found = json.loads((tmp_path / "net.json").read_text())
    assert found["numbers"] == {"areas": [1.0, 1.0], "none": None, "by seed": {"0": [1, 2]}}
    assert found["settings"] == {"width": 3}
    text = (tmp_path / "net.md").read_text()
    assert text == f"{table(found).markdown()}\n\n{foot(found)}\n"
