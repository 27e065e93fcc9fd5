"""Planes are moved by anchors, turned and shifted, and stay where they were as far as possible."""

import math

import pytest
import torch

import splinecam as sc
from splinecam.viewer.planes import Plane, directions_of

BOX = sc.Domain.box(-1, 1)
AXES = sc.Domain.polygon([[0.0] * 5, [2.0, 0, 0, 0, 0], [2.0, 1, 0, 0, 0], [0.0, 1, 0, 0, 0]])


def samples(count: int = 12, dim: int = 20) -> torch.Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def is_orthonormal(plane: Plane) -> bool:
    rows = torch.stack([*plane.base.basis, *(each.vector for each in plane.directions)])
    return torch.allclose(rows @ rows.T, torch.eye(len(rows), dtype=torch.float64), atol=1e-12)


def test_axes_lead_out_of_a_plane_of_few_numbers():
    plane = Plane.of(AXES)
    assert [each.name for each in plane.directions] == ["x₃", "x₄", "x₅"]
    assert is_orthonormal(plane)
    slanted = Plane.of(sc.Domain.around([0.0] * 5, side=2.0, seed=2))
    assert len(slanted.directions) == 3
    assert all(each.name.startswith("towards x") for each in slanted.directions)
    assert is_orthonormal(slanted)
    assert len(Plane.of(sc.Domain.around([0.0] * 3, side=2.0)).directions) == 1


def test_components_of_data_or_random_directions_for_larger_inputs():
    x = samples()
    domain = sc.Domain.through(*x[:3])
    plane = Plane.of(domain, anchors=x[:3], points=x)
    assert [each.name for each in plane.directions] == ["component 1", "component 2", "component 3"]
    assert is_orthonormal(plane)
    rest = x - domain.embed(domain.project(x)[0])
    spread = [float((rest @ each.vector).norm()) for each in plane.directions]
    assert spread == sorted(spread, reverse=True)
    chance = Plane.of(domain, points=x[:3])  # which are in the plane
    assert chance.directions[0].name == "direction 1"
    assert is_orthonormal(chance)
    assert directions_of(BOX) == ()


def test_turns_and_shifts_are_absolute():
    plane = Plane.of(AXES)
    turned = plane.turned([0.3, -0.2, 0.1], [0.0, 0.5, -0.25])
    assert turned.turned().domain == AXES
    again = turned.turned([1.0, 1.0, 1.0]).turned([0.3, -0.2, 0.1], [0.0, 0.5, -0.25])
    assert again.domain == turned.domain
    gram = turned.domain.basis @ turned.domain.basis.T
    assert torch.allclose(gram, torch.eye(2, dtype=torch.float64), atol=1e-14)
    assert torch.equal(turned.domain.corners, AXES.corners)
    shifted = plane.turned(shift=[0.0, 0.5, 0.0]).domain
    x = shifted.embed(torch.zeros(1, 2)) - AXES.embed(torch.zeros(1, 2))
    assert x.tolist() == [[0, 0, 0, 0.5, 0]]


def test_a_turn_is_about_the_centre_towards_the_direction():
    plane = Plane.of(AXES).turned([math.pi / 2, 0.0, 0.0])
    center = AXES.center[None]
    assert torch.allclose(plane.domain.embed(center), AXES.embed(center), atol=1e-14)
    there = plane.domain.embed(center + torch.tensor([[1.0, 0.0]])) - AXES.embed(center)
    u_is_first = float(AXES.basis[0, 0].abs()) > 0.5
    row = AXES.basis[0] if u_is_first else AXES.basis[1]
    assert torch.allclose(there[0].abs(), torch.tensor([0.0, 0, 1, 0, 0]).double(), atol=1e-12)
    assert float((there[0] @ row).abs()) < 1e-12


def test_corners_follow_the_anchors():
    plane = Plane.of(BOX)
    assert plane.anchors.tolist() == BOX.corners[[0, 1, 3]].tolist()
    moved = plane.through([(-1, -1), (2, -0.5), (-1, 1)])
    assert moved.domain.corners.tolist() == [[-1, -1], [2, -0.5], [2, 1.5], [-1, 1]]
    assert torch.equal(moved.domain.basis, BOX.basis)
    back = moved.through([(-1, -1), (1, -1), (-1, 1)])
    assert back.domain == BOX
    triangle = sc.Domain.polygon([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert Plane.of(triangle).anchors.tolist() == triangle.corners.tolist()


def test_an_anchor_on_a_data_point():
    x = samples()
    domain = sc.Domain.through(*x[:3])
    plane = Plane.of(domain, anchors=x[:3].float(), points=x)
    at = plane.anchors.tolist()
    same = plane.through(at)
    assert torch.allclose(same.domain.corners, domain.corners, atol=1e-9)
    assert torch.equal(same.domain.origin, domain.origin)
    moved = plane.through([at[0], 7, at[2]])
    assert torch.allclose(moved.inputs, x[[0, 7, 2]], atol=1e-6)
    other = sc.Domain.through(*x[[0, 7, 2]])
    spans = moved.domain.basis.T @ moved.domain.basis - other.basis.T @ other.basis
    assert float(spans.abs().max()) < 1e-6
    # The picture neither jumps nor turns more than it must.
    near = (moved.domain.basis * domain.basis).sum()
    flipped = (-moved.domain.basis * domain.basis).sum()
    assert float(near) > max(1.0, float(flipped))
    assert is_orthonormal(moved)
    everything = plane.through([3, 4, 5])
    assert torch.allclose(everything.inputs, x[[3, 4, 5]], atol=1e-9)


def test_anchors_are_places_of_the_plane_as_it_is_turned():
    plane = Plane.of(AXES).turned([0.4, 0.0, 0.0], [0.0, 0.1, 0.0])
    here = plane.domain.embed(torch.tensor([[0.5, 0.5]]))
    at = plane.anchors.tolist()
    moved = plane.through([at[0], (0.5, 0.5), at[2]])
    assert not any(moved.turn)
    assert torch.equal(moved.inputs[1:2], here)
    assert is_orthonormal(moved)


@pytest.mark.parametrize(
    ("anchors", "text"),
    [
        ([(0, 0), (1, 1), (2, 2)], "one line"),
        ([(0, 0), (0, 0), (1, 0)], "one line"),
        ([(0, 0), (0, 0), (0, 0)], "one line"),
        ([(0, 0), (1e-12, 0), (0, 1e-12)], "too close"),
        ([(0, 0), (1, 0)], "three anchors"),
        ([(0, 0), (1, 0), (0, math.nan)], "two coordinates"),
        ([(0, 0), (1, 0), (0, 1, 2)], "two coordinates"),
        ([(0, 0), (1, 0), 99], "no data point 99"),
        ([(0, 0), (1, 0), 2], "not finite"),
        ([1, 1, (0, 1)], "identical|one line"),
    ],
)
def test_anchors_that_span_no_plane(anchors, text):
    points = samples(4, 5)
    points[2, 0] = math.inf
    with pytest.raises(sc.DomainError, match=text):
        Plane.of(AXES, points=points).through(anchors)


def test_wrong_numbers():
    plane = Plane.of(AXES)
    with pytest.raises(sc.DomainError, match="2 numbers for 3 directions"):
        plane.turned([0.1, 0.2])
    with pytest.raises(sc.DomainError, match="not finite"):
        plane.turned(shift=[math.inf, 0.0, 0.0])
    with pytest.raises(sc.DomainError, match="off the plane"):
        Plane.of(AXES, anchors=samples(3, 5))
    with pytest.raises(sc.DomainError, match="three inputs"):
        Plane.of(AXES, anchors=samples(2, 5))
