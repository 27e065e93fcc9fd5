"""Certificates: what is written passes the checker, and nothing that was changed does."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
import splinecam_check as checker
from certificate_changes import changed, text_of
from splinecam.errors import SplineCamError
from splinecam.testing import Abs, Residual, exact_partition

BOX = sc.Domain.box(-1, 1)
CONVOLUTION = nn.Sequential(
    nn.Linear(2, 16), nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2),
    nn.Flatten(), nn.LeakyReLU(0.1), nn.Linear(8, 3),
)  # fmt: skip
NETWORKS = {
    "relu": nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)),
    "hardtanh": nn.Sequential(nn.Linear(2, 6), nn.Hardtanh(-0.3, 0.4), nn.Linear(6, 1)),
    "prelu": nn.Sequential(nn.Linear(2, 4), nn.PReLU(4), nn.Linear(4, 4), nn.ReLU6()),
    "convolution": CONVOLUTION,
    "skip": nn.Sequential(nn.Linear(2, 5), Residual(nn.Sequential(nn.Linear(5, 5), Abs()))),
    "no biases": nn.Sequential(
        nn.Linear(2, 5, bias=False), nn.ReLU(), nn.Linear(5, 5, bias=False), nn.ReLU()
    ),
    "input": nn.Sequential(nn.ReLU(), nn.Linear(2, 3), nn.ReLU()),
    "affine": nn.Sequential(nn.Linear(2, 2)),
}


def drawn(model: nn.Module, seed: int) -> nn.Module:
    """The model with other weights, which are large enough to cut the domain often."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model


def certified(model: nn.Module, path: Path, **options: Any) -> list[str]:
    part = sc.partition(model, BOX, progress=False)
    written = part.certify(path, **options)
    with path.open() as file:
        proved = checker.check(file)
    assert f"regions {written.regions} " in proved
    return proved


EXPORTED = ("convolution", "skip")  # torch takes seconds to begin with these


@pytest.mark.few(7)
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        pytest.param(name, seed, marks=[pytest.mark.slow] * (name in EXPORTED))
        for seed in range(3)
        for name in NETWORKS
    ],
)
def test_a_certificate_proves_the_partition_of_the_oracle(
    name: str, seed: int, tmp_path: Path
) -> None:
    model = drawn(NETWORKS[name], seed)
    cells = exact_partition(model, BOX).cells
    proved = certified(model, tmp_path / "x.cert", exact=True)
    assert f"regions {len({cell.pattern for cell in cells})} " in proved
    assert not any(line.startswith("except") for line in proved)
    largest = [max(cell.value(p)[0] for p in cell.vertices) for cell in cells]
    assert f"largest 0 {float(max(largest))}" in proved


def test_areas_of_classes_are_exact_fractions(tmp_path: Path) -> None:
    certified(nn.ReLU(), tmp_path / "x.cert")
    claims = next(line for line in lines_of(tmp_path / "x.cert") if "claims" in line)["claims"]
    areas = next(claim["areas"] for claim in claims if claim["claim"] == "areas")
    assert [checker.number(low) for low, _ in areas] == [Fraction(5, 2), Fraction(3, 2)]


def nearly_united(gap: float) -> nn.Sequential:
    """Three lines that enclose a tiny triangle."""
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        model[0].bias.copy_(torch.tensor([0.0, 0.0, gap]))
    return model


def test_what_float64_united_is_left_out_or_split(tmp_path: Path) -> None:
    model, path = nearly_united(-1e-17), tmp_path / "x.cert"
    part = sc.partition(model, BOX, progress=False)
    assert len(part) == 6
    written = part.certify(path)
    assert written.regions == 6
    assert torch.tensor(written.left_out).abs().max() < 1e-15
    with path.open() as file:
        assert [line[:6] for line in checker.check(file)][-1] == "except"
    written = part.certify(path, exact=True)
    assert (written.regions, written.left_out) == (7, ())
    with path.open() as file:
        assert "regions 7 " in checker.check(file)


@pytest.mark.parametrize("limit", [0.5, -1.5, -1.0])
def test_a_property_is_proved_to_hold_or_to_fail(limit: float, tmp_path: Path) -> None:
    path, unsafe = tmp_path / "x.cert", [([[1.0, 1.0]], [limit])]
    part = sc.partition(nn.Linear(2, 2), BOX, progress=False)
    part.model.load_state_dict({"weight": torch.eye(2) / 2, "bias": torch.zeros(2)})
    part = sc.partition(part.model, BOX, progress=False)
    status = part.check(unsafe, certificate=path).status
    with path.open() as file:
        proved = checker.check(file)
    # y0 + y1 is -1 at one corner: equality, which float64 does not decide.
    assert status == {0.5: "violated", -1.5: "holds", -1.0: "unresolved"}[limit]
    assert any(line.startswith("holds" if limit < -1 else "fails") for line in proved)


def test_a_layer_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    class Sorting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sort(-1).values

    part = sc.partition(Sorting(), BOX, progress=False)
    with pytest.raises(SplineCamError, match="cannot be written in a certificate"):
        part.certify(tmp_path / "x.cert")


# -- changed certificates are rejected --------------------------------------------------------


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("certificates") / "x.cert"
    certified(drawn(NETWORKS["relu"], 1), path)
    return lines_of(path)


def test_the_file_passes_as_it_is(written: list[dict[str, Any]]) -> None:
    assert len(checker.check(text_of(written))) == 5


@pytest.mark.parametrize("seed", range(60))
def test_a_changed_certificate_is_rejected(seed: int, written: list[dict[str, Any]]) -> None:
    kind, text = changed(written, random.Random(seed))
    with pytest.raises((ValueError, LookupError, TypeError, ArithmeticError, AttributeError)):
        assert checker.check(text) == kind


def test_the_checker_is_one_file_that_runs_alone(tmp_path: Path) -> None:
    certified(nn.ReLU(), tmp_path / "x.cert")
    source = Path(checker.__file__)
    assert len(source.read_text().splitlines()) <= 300
    assert "import splinecam" not in source.read_text()
    alone = tmp_path / "alone.py"
    alone.write_text(source.read_text())
    command = [sys.executable, "-I", "-S", alone, tmp_path / "x.cert"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "proved regions 4" in done.stdout
    (tmp_path / "x.cert").write_text("{}\n")
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
