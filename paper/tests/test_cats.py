"""The curvature of boundaries, and planes through three images."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from splinecam import Domain, partition
from splinecam_paper.cats import AREA, plane, triples, turning


class Diamond(nn.Module):
    """Is a point inside of the square with the corners (±1, 0) and (0, ±1)?"""

    def forward(self, x: Tensor) -> Tensor:
        inside = 1 - x.abs().sum(1)
        return torch.stack([torch.zeros_like(inside), inside], 1)


def test_turning_of_a_closed_convex_boundary_is_a_full_turn() -> None:
    part = partition(Diamond(), Domain.box(-2, 2), progress=False)
    assert math.isclose(turning(part.decision_boundary()), 2 * math.pi)
    half = partition(Diamond(), Domain.box((0, -2), (2, 2)), progress=False)
    assert math.isclose(turning(half.decision_boundary()), math.pi / 2)


def test_straight_boundary_does_not_turn() -> None:
    part = partition(nn.Linear(2, 2), Domain.box(-9, 9), progress=False)
    assert turning(part.decision_boundary()) == 0


def test_plane_has_the_area_of_the_paper_and_the_images_in_its_middle() -> None:
    three = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    domain = plane(three)
    assert math.isclose(domain.area, AREA)
    uv, distance = domain.project(three)
    assert float(distance.max()) < 1e-6
    assert bool(((uv > domain.corners.amin(0)) & (uv < domain.corners.amax(0))).all())


def test_triples_have_both_classes_and_share_no_image() -> None:
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.rand(30, 4, generator=generator), torch.arange(30) % 2
    found = triples(x, labels, 5)
    assert len(found) == 5
    assert len({image for three in found for image in three}) == 15
    assert all(sum(labels[three].tolist()) in (1, 2) for three in found)
