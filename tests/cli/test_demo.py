"""The demo runs, tells what it found, writes its files and says what to do with them."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest
import torch

import splinecam as sc
from splinecam import cli
from splinecam.cli.demo import train, two_spirals

SMALL = ["--device", "cpu", "--steps", "5", "--dpi", "40"]


def test_two_spirals_are_fixed_by_the_seed() -> None:
    x, label = two_spirals(100)
    assert torch.equal(x, two_spirals(100)[0])
    assert not torch.equal(x, two_spirals(100, seed=1)[0])
    assert float(x.abs().max()) < 1.05
    assert label.sum() == 50


def test_training_is_fixed_by_the_seed_and_leaves_the_random_state() -> None:
    x, label = two_spirals(50)
    before = torch.get_rng_state()
    first, again = (train(x, label, width=8, steps=3) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    with torch.no_grad():
        assert torch.equal(first(x), again(x))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch.export, about its own code
def test_what_to_try_next_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert cli.main(["demo", "--out", "new", *SMALL]) == 0
    printed = capsys.readouterr().out
    for word in ("regions (NR)", "ARV", "ANV", "ARE", "boundary length", "Training"):
        assert word in printed
    for name in ("demo.png", "demo-surface.png", "demo-layers.png"):
        assert (tmp_path / "new" / name).read_bytes().startswith(b"\x89PNG")
        assert f"new/{name}" in printed
    assert 'id="splinecam-data"' in (tmp_path / "new/demo.html").read_text()
    found = json.loads((tmp_path / "new/demo.json").read_text())
    assert found["stats"]["NR"] == len(sc.load("new/demo.npz"))
    commands = [
        line.split("splinecam ", 1)[1]
        for line in printed.partition("Try next:")[2].splitlines()
        if line
    ]
    assert len(commands) == 3
    assert ["--boundary" in command for command in commands] == [True, True, False]
    for command in commands:
        assert cli.main(shlex.split(command)) == 0
    assert capsys.readouterr().out.splitlines()[-8].split() == [
        "new/demo.npz",
        "new/zoom/partition.npz",
    ]
