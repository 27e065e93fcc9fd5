"""Sizes of blocks, and repetitions, change nothing: the same cells in the same order."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import splinecam as sc
from checks import follow_lines
from splinecam._util.backend import using
from splinecam.engine.run import Outcome, run
from splinecam.network.capture import capture


def _outcome(model: nn.Module, domain: sc.Domain, device: str = "cpu") -> Outcome:
    program = capture(model, domain.input_shape, device=torch.device(device))
    with torch.no_grad():
        return run(program, domain)


def _network(kind: str) -> tuple[nn.Module, sc.Domain]:
    torch.manual_seed(2)
    layers: list[nn.Module] = []
    if kind == "images":
        layers += [nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        layers += [nn.Linear(27, 12), nn.ReLU(), nn.Linear(12, 2)]
        return nn.Sequential(*layers).eval(), sc.Domain.around(torch.randn(1, 6, 6), side=6, seed=0)
    for width in (2, 40, 40):
        layers += [nn.Linear(width, 40, bias=kind == "plain"), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(40, 3)).eval(), sc.Domain.box(-3, 3)


def _same_cells(one: Outcome, other: Outcome) -> bool:
    names = ("edges", "offsets", "corners", "edge_layer", "edge_unit", "vertex_layer")
    pairs = [(getattr(one.mesh, x).cpu(), getattr(other.mesh, x).cpu()) for x in names]
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.fixture(params=["every vertex", "along lines"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "along lines":
        follow_lines(monkeypatch)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("kind", ["plain", "through the origin", "images"])
def test_size_of_blocks(kind: str) -> None:
    model, domain = _network(kind)
    whole = _outcome(model, domain)
    for size in (1 << 7, 1 << 11):
        with using(activations=size, function_values=size, sign_words=size, chord_pairs=size):
            in_blocks = _outcome(model, domain)
        assert _same_cells(whole, in_blocks)
        assert float((whole.mesh.uv - in_blocks.mesh.uv).abs().max()) < 1e-12
    with using(walks_faces=False):
        assert _same_cells(whole, _outcome(model, domain))


@pytest.mark.usefixtures("_way")
def test_repetition() -> None:
    model, domain = _network("plain")
    first, second = _outcome(model, domain), _outcome(model, domain)
    assert _same_cells(first, second)
    assert torch.equal(first.mesh.uv, second.mesh.uv)
    assert torch.equal(first.output, second.output)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("kind", ["plain", "through the origin", "images"])
def test_the_same_cells_on_a_gpu(kind: str) -> None:
    model, domain = _network(kind)
    here, there = _outcome(model, domain), _outcome(model, domain, "cuda")
    assert _same_cells(here, there)
    assert float((here.mesh.uv - there.mesh.uv.cpu()).abs().max()) < 1e-12
    assert _same_cells(there, _outcome(model, domain, "cuda"))
