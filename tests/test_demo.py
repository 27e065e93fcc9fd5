"""The demo runs, tells what it found and writes a picture."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from splinecam.demo import main, train, two_spirals


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


def test_main(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--out", str(tmp_path / "new"), "--device", "cpu", "--steps", "5", "--dpi", "40"])
    printed = capsys.readouterr().out
    for word in ("regions (NR)", "ARV", "ANV", "ARE", "boundary length", "Seconds: training"):
        assert word in printed
    picture = tmp_path / "new" / "demo.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in printed
