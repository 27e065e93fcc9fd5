"""Facets in space: no gaps, and the areas that the maps give them."""

from __future__ import annotations

import math

import torch
from torch import nn

from splinecam import Domain, partition
from splinecam_paper.surface import facet_areas, largest_gap
from splinecam_paper.training import mlp


def test_facets_of_a_stretched_plane_have_its_area() -> None:
    model = nn.Linear(2, 3, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[2.0, 0.0], [0.0, 3.0], [0.0, 4.0]]))
    part = partition(model, Domain.box(-1, 1), progress=False)
    assert math.isclose(float(facet_areas(part).sum()), 4 * 2 * 5)
    assert largest_gap(part) == 0


def test_facets_fit_together() -> None:
    part = partition(mlp([2, 9, 9, 3]).double(), Domain.box(-1, 1), progress=False)
    assert len(part) > 20
    assert largest_gap(part) < 1e-12
