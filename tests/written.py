"""Minima and maxima written with ReLUs: networks for tests, and a check of regions that unite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.testing.assertions import _located, _map_differences, polygons
from splinecam.testing.oracle.cells import ExactPartition

WAYS = {
    # The larger of a and b as factors of ReLUs, whose units have factors of a and of b.
    "pairs": ([0.5, -0.5, 0.5, 0.5], [[1, 1], [-1, -1], [1, -1], [-1, 1]]),
    "step": ([1, -1, 1], [[1, 0], [-1, 0], [-1, 1]]),  # a + relu(b - a)
    "modulus": ([1, -1, 0.5, 0.5], [[0.5, 0.5], [-0.5, -0.5], [1, -1], [-1, 1]]),
}


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A layer with a weight and, perhaps, a bias, in float64."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None).double()
    with torch.no_grad():
        made.weight.copy_(weight)
        if bias is not None:
            made.bias.copy_(bias)
    return made


def tree(
    groups: Sequence[Sequence[int]],
    values: int,
    way: str = "pairs",
    smallest: Sequence[bool] | bool = False,
) -> list[nn.Module]:
    """The maximum, or the minimum, of each group of some values, in pairs until one is left."""
    signs = [smallest] * len(groups) if isinstance(smallest, bool) else smallest
    left, body = [list(group) for group in groups], list[nn.Module]()
    factors, units = WAYS[way]
    while not body or any(len(group) > 1 for group in left):
        before, after, rest = list[Tensor](), list[list[tuple[int, float]]](), list[list[int]]()
        for group, low in zip(left, signs, strict=True):
            rest.append([])
            for pair in (group[i : i + 2] for i in range(0, len(group), 2)):
                new = list[tuple[int, float]]()
                own = units if len(pair) == 2 else [[1], [-1]]
                for factor, unit in zip(factors if len(pair) == 2 else [1, -1], own, strict=True):
                    row = torch.zeros(values, dtype=torch.float64)
                    for value, number in zip(pair, unit, strict=True):
                        row[value] += -number if low else number
                    new.append((len(before), -factor if low else factor))
                    before.append(row)
                rest[-1].append(len(after))
                after.append(new)
        result = torch.zeros((len(after), len(before)), dtype=torch.float64)
        for i, new in enumerate(after):
            for unit, factor in new:
                result[i, unit] = factor
        body += [linear(torch.stack(before)), nn.ReLU(), linear(result)]
        left, values = rest, len(after)
    return body


def multiplied(body: Sequence[nn.Module]) -> list[nn.Module]:
    """The same layers with one matrix in place of two without biases that follow each other."""
    found: list[nn.Module] = []
    for module in body:
        last = found[-1] if found else None
        if isinstance(module, nn.Linear) and isinstance(last, nn.Linear):
            bias = None if last.bias is None else module.weight @ last.bias
            found[-1] = linear((module.weight @ last.weight).detach(), bias)
        else:
            found.append(module)
    return found


def assert_united_cells(part: sc.Partition, exact: ExactPartition, *, atol: float) -> None:
    """Raise unless every region unites cells of the oracle that have its map, and fills them.

    atol: how far maps may be off, and the width of cells that need not have one.
    """
    faces = polygons(part)
    covered, wrong = np.zeros(len(faces)), []
    for cell, face in zip(exact.cells, _located(faces, exact.cells), strict=True):
        covered[face] += float(cell.area)
        if cell.width < atol:
            continue
        weight, bias = part.weight[face].numpy(), part.bias[face].numpy()
        wrong += _map_differences(weight, bias, cell, exact, atol)
    off = np.abs(covered - part.areas.numpy()).max()
    assert off <= atol * float(exact.area), f"a region is off by an area of {off:.3g}"
    assert not wrong, "; ".join(wrong[:8])
