"""Networks for tests of the kernels, and comparisons of meshes and refinements."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from splinecam.geometry.subdivision import Mesh

INTEGER_ARRAYS = ("edges", "offsets", "corners", "edge_layer", "edge_unit", "vertex_layer")


def mlp(*widths: int, act: Callable[[], nn.Module] = nn.ReLU, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(widths[:-1]):
        layers += [nn.Linear(a, b, bias=bias), act()]
    return nn.Sequential(*layers, nn.Linear(*widths[-2:])).double().eval()


NETS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: mlp(2, 24, 24, 24, 3),
    "narrow words": lambda: mlp(2, 70, 9, 130, 1),
    "many outputs": lambda: mlp(2, 20, 20, 20),
    "no bias": lambda: mlp(2, 24, 24, 3, bias=False),
    "leaky": lambda: mlp(2, 24, 24, 3, act=nn.LeakyReLU),
    "two knots": lambda: mlp(2, 16, 16, 3, act=nn.Hardtanh),
    "one layer of many": lambda: mlp(2, 150, 2),
}


def assert_same_mesh(one: Mesh, other: Mesh) -> None:
    assert all(torch.equal(getattr(one, name), getattr(other, name)) for name in INTEGER_ARRAYS)
    assert float((one.uv - other.uv).abs().max()) < 1e-12


def assert_same_refinement(fast: Any, plain: Any) -> None:
    """The same mesh, new vertices and slope changes, up to rounding."""
    assert_same_mesh(fast.mesh, plain.mesh)
    for interpolated in ("on_edges", "inside"):
        one, other = getattr(fast, interpolated), getattr(plain, interpolated)
        assert torch.equal(one.p, other.p)
        assert torch.equal(one.q, other.q)
        assert torch.allclose(one.t, other.t, atol=1e-12)
    for one, other in zip(fast.breakpoints, plain.breakpoints, strict=True):
        assert torch.equal(one.unit, other.unit)
        assert torch.allclose(one.slope_change, other.slope_change, rtol=1e-9)
