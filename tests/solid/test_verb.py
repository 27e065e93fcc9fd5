"""The verb ``surface`` as one calls it: options, wrong input, degenerate networks and boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.solid.surface import Surface

CUBE = sc.Domain.cube(-1, 1)


class Model(nn.Module):
    """A model of one function of its inputs."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def network(outputs: int = 2) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, outputs)).double()


def surface_of(function: Callable[[Tensor], Tensor]) -> Surface:
    return sc.surface(Model(function), CUBE, progress=False)


@pytest.mark.parametrize("output", [None, 1.5, "0", True, (0, None), (0, 1, 1), [], np.float64(1)])
def test_an_output_that_is_no_index_is_refused(output: Any) -> None:
    with pytest.raises(TypeError, match="give one index, or a pair"):
        sc.surface(network(), CUBE, output=output)


@pytest.mark.parametrize("output", [np.int64(1), torch.tensor(1), [1], [0, np.int64(1)]])
def test_indices_of_all_kinds_are_outputs(output: Any) -> None:
    found = sc.surface(network(), CUBE, output=output)
    found.validate(segments=20)
    assert found.output in (1, (0, 1))


@pytest.mark.parametrize("level", [[], [0.0, None], None, "high"])
def test_a_level_that_is_no_number_is_refused(level: Any) -> None:
    with pytest.raises(TypeError, match="give one number"):
        sc.surface(network(), CUBE, level=level)


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_several_levels_have_a_surface_each_in_their_order(kind: Callable[[Any], Any]) -> None:
    found = sc.surface(network(), CUBE, level=kind([0.25, -0.25]))
    assert isinstance(found, tuple)
    assert [each.level for each in found] == [0.25, -0.25]
    for each in found:
        alone = sc.surface(network(), CUBE, level=each.level)
        assert len(each) == len(alone)
        assert torch.equal(each.vertices, alone.vertices)
    assert found[0].volume > found[1].volume


@pytest.mark.few(1)
@pytest.mark.parametrize("count", [2, 4])
def test_surfaces_around_classes_divide_the_box(count: int) -> None:
    model = network(count)
    with torch.no_grad():
        x = torch.rand((4000, 3)).double() * 2 - 1
        model[2].bias -= model(x).mean(0)
        shares = torch.bincount(model(x).argmax(1), minlength=count) / len(x)
        least = sc.surface(model, CUBE, output="argmin")
    found = sc.surface(model, CUBE, output="argmax")
    assert len(found) == len(least) == count
    for each, share in zip(found, shares.tolist(), strict=True):
        each.validate(segments=50)
        assert each.volume / 8 == pytest.approx(share, abs=0.03)
        assert each.capped().closed
    assert sum(each.volume for each in found) == pytest.approx(8, abs=1e-12)
    assert sum(each.volume for each in least) == pytest.approx(8, abs=1e-12)
    pairs = [(i, j) for i in range(count) for j in range(i)]
    ties = sum(sc.surface(model, CUBE, output=pair).area for pair in pairs)
    both = sum(each.area for each in found) / 2  # each face is there from both sides
    assert both == pytest.approx(ties) if count == 2 else 0 < both < ties


def test_a_class_that_never_wins_has_no_surface() -> None:
    model = network(3)
    with torch.no_grad():
        model[2].bias[1] -= 100
    found = sc.surface(model, CUBE, output="argmax")
    assert len(found[1]) == 0
    assert found[1].volume == 0
    assert found[0].area == pytest.approx(sc.surface(model, CUBE, output=(0, 2)).area)


def test_what_has_no_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="only one"):
        sc.surface(network(1), CUBE, output="argmax")
    with pytest.raises(TypeError, match="leave it out"):
        sc.surface(network(), CUBE, output="argmax", level=1.0)
    with pytest.raises(TypeError, match="'argmax'"):
        sc.surface(network(), CUBE, output="classes")
    with pytest.raises(sc.CaptureError, match="final softmax"):
        sc.surface(nn.Sequential(network(), nn.Softmax(1)), CUBE, output="argmax")


def test_a_smooth_function_is_refused_with_what_to_do() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.GELU(), nn.Linear(2, 1))
    with pytest.raises(sc.CaptureError, match="PiecewiseLinear"):
        sc.surface(model, CUBE)
    with pytest.raises(TypeError, match=r"leave it out.*PiecewiseLinear"):
        sc.surface(model, CUBE, smooth=1e-3)


def test_values_that_overflow_are_an_error() -> None:
    """An overflow of float64 must not make cells look empty."""
    first, second, third = (nn.Linear(3, 3).double() for _ in range(3))
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)
    with torch.no_grad():
        for part in model.parameters():
            part *= 1e103
    with pytest.raises(sc.CaptureError, match="overflow"):
        sc.surface(model, CUBE)


@pytest.mark.parametrize("size", [1e-100, 1e100])
def test_a_body_beyond_float64_is_refused(size: float) -> None:
    with pytest.raises(sc.DomainError, match="The body is too"):
        sc.Domain.cube(-size, size)
    with pytest.raises(sc.DomainError, match="The body is too"):
        sc.Domain.tetrahedron(torch.zeros(3), *(size * torch.eye(3).double()))


def test_an_affine_network_has_a_plane() -> None:
    found = sc.surface(nn.Linear(3, 1).double(), sc.Domain.cube(-9, 9))
    assert len(found) == 1
    found.validate(segments=20)


def test_products_may_act_on_a_part_of_the_inputs() -> None:
    torch.manual_seed(3)
    parts = nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(6, 1)
    model, box = (
        nn.Sequential(*parts).double(),
        sc.Domain.box3([-5] * 3, [5] * 3, input_shape=(3, 1)),
    )
    x = torch.rand((500, 3, 1)).double() * 10 - 5
    found = sc.surface(model, box, level=float(model(x).mean().detach()))
    assert len(found) > 1
    found.validate(segments=50)


def test_edges_of_four_faces_are_reported() -> None:
    found = surface_of(lambda x: x[:, 0].abs() - x[:, 1].abs())
    assert found.report()["edges of several parts"] == 1
    ends = found.vertices[found.crowded_edges]
    assert ends.shape == (1, 2, 3)
    assert float(ends[..., :2].abs().max()) < 1e-15
    assert sc.surface(network(), CUBE).report()["edges of several parts"] == 0


def test_a_surface_through_edges_of_the_box_is_capped() -> None:
    found = surface_of(lambda x: x[:, 0].abs() - x[:, 1].abs())
    assert found.volume == pytest.approx(4)
    assert found.capped().closed
    assert found.capped().volume == pytest.approx(4)


@pytest.mark.parametrize("tilt", [-0.3, 0.0, 0.3, 2.0])
def test_caps_that_touch_in_a_vertex_close_the_surface(tilt: float) -> None:
    """Two cones with a common tip on a side of the box: the cap is two triangles there."""
    box = sc.Domain.box3([-1, -3, 0], [1, 3, 1])
    model = Model(lambda x: (x[:, 1] - tilt * x[:, 0]).abs() - (0.1 * x[:, 0]).abs() + x[:, 2])
    closed = sc.surface(model, box).capped()
    assert closed.closed
    assert closed.volume == pytest.approx(0.02 / 3)
    assert int((closed.face_region < 0).sum()) == 4


def test_an_output_that_vanishes_on_the_sides_of_the_box_has_its_volume() -> None:
    found = surface_of(lambda x: x.abs().amax(1) - 1)
    assert len(found) == 0
    assert found.volume == pytest.approx(8)
    assert found.capped().volume == pytest.approx(8)
    found.validate(segments=50)


@pytest.mark.parametrize(
    ("function", "volume"),
    [
        (lambda x: -x[:, 0].relu(), 4),
        (lambda x: -x[:, 0].relu() - x[:, 1].relu(), 6),
        (lambda x: torch.maximum(x[:, 0], x[:, 2]) - torch.maximum(x[:, 1], x[:, 0]), 8 / 3),
    ],
)
def test_a_surface_beside_a_flat_region_is_valid(
    function: Callable[[Tensor], Tensor], volume: float
) -> None:
    found = surface_of(function)
    assert found.report()["flat cells"] > 0
    assert found.volume == pytest.approx(volume)
    found.validate(segments=50)


@pytest.mark.parametrize(
    ("other", "faces"),
    [
        (lambda x: x[:, 1].abs().relu(), 2),  # two flat regions above one below
        (lambda x: torch.stack([x[:, 1], x[:, 1] * 2, x[:, 2].abs() + 3], 1).amax(1), 2),
    ],
)
def test_faces_beside_flat_regions_end_where_one_of_both_regions_ends(
    other: Callable[[Tensor], Tensor], faces: int
) -> None:
    """Planes on which two units of a maximum are equal, but a third one is ahead, end nothing."""
    found = surface_of(lambda x: -(-x[:, 0]).relu() + 0 * other(x))
    assert found.report()["flat cells"] > 0
    assert found.area == pytest.approx(4)
    assert len(found) == faces
    found.validate(segments=50)


def test_an_output_that_vanishes_in_the_middle_of_an_edge_of_the_box_has_its_volume() -> None:
    corners = [1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]
    model, box = Model(lambda x: -x[:, 0].abs() - x[:, 1].abs()), sc.Domain.tetrahedron(*corners)
    assert sc.surface(model, box).volume == pytest.approx(8 / 3)


def test_an_empty_surface_is_drawn_with_no_numbers() -> None:
    pytest.importorskip("matplotlib")
    found = sc.surface(network(), CUBE, level=1e3)
    axes = found.plot(color=[], colorbar=True)
    assert axes.get_title() == ""
    found.plot(axes=False).figure.canvas.draw()


def test_an_output_that_is_smaller_than_rounding_is_unresolved() -> None:
    """An output that is zero up to rounding in the whole box hides where it is zero."""
    found = surface_of(lambda x: (x.abs().sum(1) + 2.0**54) - 2.0**54 - 1)
    assert len(found.unresolved) == found.report()["unresolved"] > 0
    assert found.unresolved[0] == pytest.approx([0.0] * 3)
    flat = surface_of(lambda x: x[:, 0].relu())
    assert flat.report()["flat cells"] > 0
    assert flat.unresolved == ()


def test_a_region_in_which_the_output_is_zero_up_to_rounding_is_unresolved() -> None:
    found = surface_of(lambda x: 0.1 + (0.2 - x[:, 0].relu()) - 0.3)
    assert len(found.unresolved) == 1
    assert found.unresolved[0][0] < 0


def test_a_face_that_is_a_border_of_two_sloping_regions_has_the_lower_map() -> None:
    """Autograd gives neither slope on the face itself."""
    found = surface_of(lambda x: 2 * x[:, 0].relu() - (-x[:, 0]).relu())
    assert found.unresolved == ()
    assert torch.allclose(found.gradients, torch.eye(3, dtype=torch.float64)[:1])
    found.validate(segments=50)


@pytest.mark.parametrize("half", [1e-6, 1e-3])
def test_an_octahedron_far_from_the_origin_is_found(half: float) -> None:
    far = 1e6
    model = Model(lambda x: (x - far).abs().sum(1) - half)
    found = sc.surface(model, sc.Domain.cube(far - 2 * half, far + 2 * half))
    assert len(found) == 8
    assert found.closed
    assert found.volume == pytest.approx(4 / 3 * half**3, rel=1e-2)
    found.validate(segments=50)


@pytest.mark.parametrize("half", [1e-6, 1e-3])
@pytest.mark.parametrize("far", [1.0, 1e3, 1e6])
def test_small_boxes_far_from_the_origin_are_valid(far: float, half: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    centre = torch.full((1, 3), far).double()
    with torch.no_grad():
        plain = sc.surface(model.double(), CUBE, level=float(model(0 * centre)))
        model[0].weight /= half
        model[0].bias -= model[0].weight @ centre[0]
        box = sc.Domain.box3(centre[0] - half, centre[0] + half)
        found = sc.surface(model, box, level=float(model(centre)))
    found.validate(segments=50)
    assert len(found) == len(plain)


def test_the_report_of_an_empty_surface_has_the_same_numbers() -> None:
    levels = float(network()(torch.zeros(1, 3).double())[0, 0].detach()), 1e3
    some, none = (sc.surface(network(), CUBE, level=level).report() for level in levels)
    assert {*some} == {*none}
    assert none["faces"] == 0 < some["faces"]
