"""Layers with huge or tiny weights: the regions stay the same, or an error names the layer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.engine.along_segments import run_segments
from splinecam.engine.run import run
from splinecam.network.capture import capture
from strategies import mlp

KINDS = {
    "relu": (nn.ReLU, 1),
    "leaky": (lambda: nn.LeakyReLU(0.1), 1),
    "maxima of two": (lambda: nn.MaxPool1d(2), 2),
    "maxima of three": (lambda: nn.MaxPool1d(3), 3),
}
ENDS = torch.tensor([[[-3.0, -2.0]], [[2.5, 3.0]]], dtype=torch.float64)
OUTPUTS = 3


def scaled(kind: str, layer: int, exponent: int, *, back: bool) -> nn.Module:
    """A network with one layer times a power of two; back: the next one undoes it."""
    make, size = KINDS[kind]
    torch.manual_seed(0)
    widths = (2, 6 * size), (6, 6 * size), (6, OUTPUTS)
    linear = [nn.Linear(n, m, dtype=torch.float64) for n, m in widths]
    with torch.no_grad():
        for later in linear[layer + 1 :] if not back else ():
            later.bias.mul_(2.0**exponent)
        linear[layer].weight.mul_(2.0**exponent)
        linear[layer].bias.mul_(2.0**exponent)
        if back and layer < 2:
            linear[layer + 1].weight.mul_(2.0**-exponent)
    return nn.Sequential(linear[0], make(), linear[1], make(), linear[2]).eval()


def counts(model: nn.Module) -> list[tuple[int, ...]]:
    """The regions of a square, the pieces of a segment, and what both leave open.

    They are found twice: with the compiled kernel, and without it.
    """
    program, found = capture(model, (2,)), []
    for compiled in (True, False):
        with torch.no_grad():
            plane = run(program, sc.Domain.box(-3, 3), compiled=compiled)
            line = run_segments(program, *ENDS, compiled=compiled)
        open_places = len(plane.ambiguities) + len(line.doubts)
        found.append((plane.mesh.num_faces, int(line.t.shape[0]) - 1, open_places))
    return found


SCALES = [(0, 515, True), (1, -997, True), (0, 997, False)]
MORE = [(0, -665, True), (1, 515, True), (1, 665, False), (2, 665, True), (0, -997, False)]


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_regions_do_not_depend_on_the_scale_of_a_layer(kind: str) -> None:
    wanted = counts(scaled(kind, 0, 0, back=True))
    assert wanted[0] == wanted[1]
    assert min(wanted[0][:2]) > 8
    assert wanted[0][2] == 0
    for layer, exponent, back in SCALES + (MORE if kind == "relu" else []):
        found = counts(scaled(kind, layer, exponent, back=back))
        assert found == wanted, (layer, exponent, back)


@pytest.mark.parametrize("exponent", [515, -990])
def test_classes_do_not_depend_on_the_scale_of_outputs(exponent: int) -> None:
    areas, begins = [], []
    for model in (scaled("relu", 2, 0, back=True), scaled("relu", 2, exponent, back=True)):
        part = sc.partition(model, sc.Domain.box(-3, 3), device="cpu", progress=False)
        assert part.validate().ok
        areas.append(part.class_regions().areas)
        line = sc.Domain.segment(ENDS[0, 0], ENDS[1, 0])
        path = sc.along(model, line, device="cpu", progress=False)
        assert path.validate().ok
        begins.append(path.decisions().begin)
    assert float(areas[0].max()) < 36
    assert torch.allclose(areas[0], areas[1], rtol=0, atol=1e-9)
    assert torch.allclose(begins[0], begins[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("layer", "name"), [(0, "'1'"), (1, "'3'"), (2, "the output")])
def test_values_that_overflow_are_an_error_that_names_the_layer(layer: int, name: str) -> None:
    model = mlp(2, 6, 6, 3)
    with torch.no_grad():
        model[2 * layer].weight.mul_(1e307)
        model[2 * layer].bias.mul_(1e307)
    box, line = sc.Domain.box(-90, 90), sc.Domain.segment(90 * ENDS[0, 0], 90 * ENDS[1, 0])
    for verb, domain in ((sc.partition, box), (sc.along, line)):
        with pytest.raises(sc.SplineCamError, match=f"Values at {name} overflow"):
            verb(model, domain, device="cpu", progress=False)
    with pytest.raises(sc.SplineCamError, match=f"Values at {name} overflow"):
        sc.sweep(model, [box, box], device="cpu", progress=False)
