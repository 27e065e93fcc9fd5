"""The command ``splinecam difference``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from splinecam.cli import main

CODE = """
from torch import nn, manual_seed

def build(width=6, seed=0, outputs=3):
    manual_seed(seed)
    return nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, outputs))

def other():
    return build(8, seed=1)

def two():
    return build(outputs=2)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nets.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_prints_the_numbers_and_draws(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["nets.py:build", "nets.py:other", "--box", "-2", "2", "--device", "cpu"]
    assert main(["difference", *words, "--out", "pictures/d.png"]) == 0
    out, err = capsys.readouterr()
    assert "largest difference of an output" in out
    assert "LargestDifference(" in out
    assert "Regions" in err
    assert (folder / "pictures" / "d.png").stat().st_size > 1000
    assert main(["difference", *words, "--out", "pictures/d.png"]) == 1
    assert "--force" in capsys.readouterr().err


def test_json_of_one_factory_with_two_weights(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = []
    for seed, name in enumerate(("a.pt", "b.pt")):
        torch.manual_seed(seed)
        models.append(nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 3)))
        torch.save(models[-1].state_dict(), folder / name)
    words = ["nets.py:build", "nets.py:build", "--weights", "a.pt", "--weights-b", "b.pt"]
    assert main(["difference", *words, "--box", "-1", "1", "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    worst = found["largest"][2]
    assert worst["norm"] == "inf"
    x = torch.tensor([worst["input"]])
    off = float((models[0](x) - models[1](x)).detach().abs().max())
    assert worst["value"] == pytest.approx(off, abs=1e-5)
    assert sum(map(sum, found["areas"])) == pytest.approx(4.0)
    assert found["unresolved"] == []


def test_smooth_networks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = CODE.replace("nn.ReLU()", "nn.GELU()")
    (folder / "smooth.py").write_text(text)
    words = ["smooth.py:build", "smooth.py:build", "--box", "-1", "1", "--device", "cpu"]
    assert main(["difference", *words]) == 1
    assert "--smooth 1e-3 replaces it" in capsys.readouterr().err
    assert main(["difference", *words, "--smooth", "0.05", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["largest"][2]["value"] <= 0.1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--out", "d.jpg"], "--out d.jpg must end in .png, .pdf or .svg"),
        (["--output", "1"], "--output goes with --out"),
        (["--force"], "--force goes with --out"),
    ],
)
def test_options_that_do_not_go_together(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["difference", "nets.py:build", "nets.py:other", "--box", "-1", "1", *words])
    assert stop.value.code == 2
    assert problem in capsys.readouterr().err


def test_other_shapes_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["difference", "nets.py:build", "nets.py:two", "--box", "-1", "1"]) == 1
    assert "outputs of the shape (3,), and model_b of the shape (2,)" in capsys.readouterr().err
