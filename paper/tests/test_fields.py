"""Images and distances as functions of the place: coordinates, shapes, and where lines crowd."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam_paper.data import Photo, load_mesh, signed_distance
from splinecam_paper.data.photos import formula_photo
from splinecam_paper.fields import crowding, outputs, pixel_places, psnr
from splinecam_paper.inpaint import density_by_place, edge_length
from splinecam_paper.sdf2d import SHARES, distances, shape_of
from splinecam_paper.sdf3d import SLICES, places_in_space, slice_through


def with_lines(*offsets: float) -> sc.Partition:
    """The partition of [-1, 1]^2 by the lines x = offset, of a network that is x - 0.05."""
    first, last = nn.Linear(2, len(offsets) + 1), nn.Linear(len(offsets) + 1, 1)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 0.0]]))
        first.bias.copy_(torch.tensor([2.0, *(-offset for offset in offsets)]))
        last.weight.zero_()
        last.weight[0, 0] = 1.0
        last.bias.fill_(-2.05)
    return sc.partition(nn.Sequential(first, nn.ReLU(), last), sc.Domain.box(-1, 1), progress=False)


def test_edges_near_a_curve_are_compared_with_its_share_of_the_area() -> None:
    part = with_lines(0.0, 0.5)
    curve = part.level_set(0.0)
    # Half of the edges lie within 0.1 of the curve, as does a tenth of the area.
    assert crowding(part, curve, 0.1) == [pytest.approx(5.0, rel=0.1)]
    assert crowding(with_lines(0.5), curve, 0.1) == [0.0]
    assert math.isnan(crowding(with_lines(), curve, 0.1)[0])


def test_learnt_edge_is_compared_with_that_of_the_mask_in_pixels() -> None:
    part = with_lines(0.5)
    mask = (pixel_places(40)[:, 0] < 0).view(40, 40)
    found = distances(part, mask)  # the edges x = 0.05 and x = 0 are one pixel apart
    assert found == {
        "learnt_to_true": pytest.approx(1.0, abs=0.1),
        "true_to_learnt": pytest.approx(1.0, abs=0.1),
    }


def test_density_and_length_of_edges() -> None:
    part = with_lines(0.5, 0.51, 0.52)
    assert edge_length(part) == pytest.approx(6.0)
    places = pixel_places(20)
    right = places[:, 0] > 0.4
    found = density_by_place(part, places, {"left": ~right, "right": right}, points=50)
    assert found["right"] > found["left"]


def test_images_have_their_first_row_at_the_top() -> None:
    image = outputs(with_lines().model, pixel_places(3)).view(3, 3)
    assert image[0].tolist() == pytest.approx([-2 / 3 - 0.05, -0.05, 2 / 3 - 0.05], abs=1e-6)
    assert pixel_places(3)[0].tolist() == pytest.approx([-2 / 3, 2 / 3])
    assert psnr(image, image.clamp(0, 1)) == math.inf


@pytest.mark.parametrize("grey", SHARES)
def test_shapes_of_a_stand_in_have_two_sides(grey: float) -> None:
    photo = Photo("made", formula_photo(24), "made", stand_in=True)
    mask = shape_of(photo, grey)
    assert mask.any()
    assert not mask.all()


def test_places_in_space_are_mostly_near_the_surface() -> None:
    mesh = load_mesh("no such mesh", stand_in=True)
    places = places_in_space(mesh, 90, seed=0)
    assert places.shape == (90, 3)
    assert float(places.abs().max()) <= 1
    assert places.equal(places_in_space(mesh, 90, seed=0))
    near = signed_distance(mesh, places).abs() < 0.1
    assert near.double().mean() > 0.5


@pytest.mark.parametrize(("name", "axes"), SLICES.items())
def test_slices_lie_where_their_names_say(name: str, axes: tuple[int, int]) -> None:
    domain = slice_through(*axes)
    x = domain.embed(domain.corners)
    assert x[:, "xyz".index(name[0])].abs().max() == 0
    assert x[2, list(axes)].tolist() == [1.0, 1.0]
