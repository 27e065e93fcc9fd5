"""Images of the plane in three outputs, and slices in space: what is nearest is seen."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from mpl_toolkits.mplot3d import proj3d
from torch import nn

import splinecam as sc
from drawing import cut_up, network, pixels, scene_of, written
from splinecam.plot import scene as depth_buffer
from splinecam.plot.colors import ColorOptions, color_regions
from splinecam.plot.scene import FlatPolygons, nearest, render
from splinecam.plot.sheets import padded_corners

pytestmark = pytest.mark.few(1)


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    return cut_up(network(3))


@pytest.fixture(scope="module")
def slices() -> list[sc.Partition]:
    model = network(1, inputs=3)
    square = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    found = []
    for axis in range(3):
        corners = torch.zeros(4, 3)
        corners[:, [k for k in range(3) if k != axis]] = 2 * square
        found.append(sc.partition(model, sc.Domain.polygon(corners), progress=False))
    return found


# -- the nearest polygon at each pixel --------------------------------------------------------


def triangles(count: int, seed: int = 0) -> np.ndarray:
    """Corners (count, 3, 3) of triangles that overlap and intersect each other."""
    return np.random.default_rng(seed).uniform(-5, 45, (count, 3, 3))


def cast(corners: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The depth of each triangle at points (N, 2), infinite outside, and the least margin."""
    a, b, c = (corners[:, k, :2] for k in range(3))
    sides = np.stack([b - a, c - a], 2)
    share = np.linalg.solve(sides[None], (at[:, None] - a)[..., None])[..., 0]
    all_three = np.stack([1 - share.sum(2), share[..., 0], share[..., 1]], 2)
    depth = (all_three * corners[:, :, 2]).sum(2)
    return np.where(all_three.min(2) > 0, depth, np.inf), np.abs(all_three).min(2)


@pytest.mark.parametrize("block", [100, 1 << 22])
def test_the_nearest_of_intersecting_polygons_is_found(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depth_buffer, "_BLOCK", block)
    corners = triangles(60)
    found = nearest(
        [FlatPolygons.in_space(each, np.zeros((30, 4))) for each in np.split(corners, 2)], 40
    )
    row, column = np.mgrid[:40, :40]
    depth, margin = cast(corners, np.stack([column.ravel(), row.ravel()], 1) + 0.5)
    two = np.sort(depth, 1)[:, :2]
    close = np.isfinite(two[:, 1]) & (np.diff(np.nan_to_num(two, posinf=1e9))[:, 0] < 1e-4)
    clear = (margin.min(1) > 1e-9) & ~close
    wanted = np.where(np.isfinite(two[:, 0]), depth.argmin(1), -1)
    assert clear.mean() > 0.9
    assert np.array_equal(found.ravel()[clear], wanted[clear])
    assert len(np.unique(found)) > 20


def test_translucent_polygons_are_blended_from_front_to_back() -> None:
    square = np.array([[0.0, 0, 0], [8, 0, 0], [8, 8, 0], [0, 8, 0]])
    near, far = square.copy(), square.copy()
    near[:, 2], far[:, 2] = [0, 8, 8, 0], [8, 0, 0, 8]  # they cross in the middle
    red, blue = [1.0, 0, 0, 0.5], [0.0, 0, 1, 1.0]
    image = render([FlatPolygons.in_space(np.stack([near, far]), np.array([red, blue]))], 10, 9)
    assert np.allclose(image[4, 1], [0.5, 0, 0.5, 1])
    assert np.allclose(image[4, 6], [0, 0, 1, 1])
    assert not image[:, 8:].any()
    assert not image[8].any()


def test_neighbours_leave_no_pixel_between_them_and_cover_none_twice() -> None:
    part = cut_up(network(2, width=30))
    corners = part.vertices.numpy()[padded_corners(part.mesh)]
    flat = np.concatenate([7 * corners + 23, np.zeros((*corners.shape[:2], 1))], 2)
    color = np.tile([1.0, 1, 1, 0.5], (len(flat), 1))
    opacity = render([FlatPolygons.in_space(flat, color)], 50, 50)[..., 3]
    inside = slice(3, 43)
    assert np.allclose(opacity[inside, inside], 0.5)


# -- the image of the plane -------------------------------------------------------------------


def test_facets_are_where_the_maps_place_the_regions(part: sc.Partition) -> None:
    scene = scene_of(part.plot.surface(output=(2, 0, 1)))
    assert np.array_equal(scene.points, part.values[:, [2, 0, 1]])
    assert len(scene.corners) == len(part)
    assert len(scene.strokes.ends) == len(part.mesh.edges)
    ax = part.plot.surface(output=(2, 0, 1), boundary=True, edges=False)
    assert (ax.get_xlabel(), ax.get_zlabel()) == ("output 2", "output 1")
    ends = scene_of(ax).strokes.ends
    assert len(ends) == len(part.decision_boundary())
    top = np.sort(ends.reshape(-1, 3), 1)
    assert np.allclose(top[:, 2], top[:, 1])


def test_outputs_are_projected_by_a_matrix(part: sc.Partition) -> None:
    matrix = torch.tensor([[1.0, 0, 1], [0, 2, 0], [1, 0, -1]])
    for given in (matrix, matrix.numpy()):
        scene = scene_of(part.plot.surface(output=given))
        assert np.allclose(scene.points, part.values @ matrix.double())


def test_all_axes_have_one_scale(part: sc.Partition) -> None:
    ax = part.plot.surface(output=(0, 1, 2))
    extent = np.ptp([ax.get_xlim(), ax.get_ylim(), ax.get_zlim()], axis=1)
    assert np.allclose(ax._box_aspect / ax._box_aspect[0], extent / extent[0])


def test_colours_are_those_of_the_regions(part: sc.Partition) -> None:
    faces = scene_of(part.plot.surface(output=(0, 1, 2), seed=3)).face
    flat = color_regions(part, "random", ColorOptions(seed=3))
    share = faces[:, :3] / flat.fill.colors[:, :3]
    assert np.allclose(share, share[:, :1])
    assert 0.5 <= share.min() < share.max() <= 1
    part.plot.surface(output=(0, 1, 2), color="class", colorbar=True)


def test_the_facet_that_is_seen_is_in_front(part: sc.Partition) -> None:
    ax = part.plot.surface(output=(0, 1, 2), edges=False)
    shown, scene = pixels(ax.figure), scene_of(ax)
    x, y, depth = proj3d.proj_transform(*scene.points.T, ax.M)
    place = ax.transData.transform(np.stack([x, y], 1))
    corners = np.concatenate([place, depth[:, None]], 1)[scene.corners]
    side = int(max(shown.shape[:2]))
    seen = nearest([FlatPolygons.in_space(corners, scene.face)], side)
    inner = (seen[1:-1, 1:-1] >= 0) & np.all(
        [seen[1:-1, 1:-1] == np.roll(seen, s, a)[1:-1, 1:-1] for s in (1, -1) for a in (0, 1)], 0
    )
    row, column = np.nonzero(inner)
    color = shown[len(shown) - 2 - row, column + 1]
    assert len(row) > 1000
    off = np.abs(color - scene.face[seen[row + 1, column + 1], :3]).max(1)
    assert (off < 0.01).mean() > 0.98  # corners of other facets reach into some pixels


def test_flat_images_and_small_ones_are_drawn() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    with torch.no_grad():
        model[2].weight[1:] = 0
    part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    assert pixels(part.plot.surface(output=(0, 1, 2)).figure).min() < 0.9
    with torch.no_grad():
        model[2].weight[:] = 0
    point = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    assert pixels(point.plot.surface(output=(0, 1, 2)).figure).min() < 0.9


@pytest.mark.slow
def test_images_on_axes_of_ones_own_and_in_vector_output(part: sc.Partition) -> None:
    ax = plt.figure().add_subplot(projection="3d")
    ax.view_init(20, 20)
    assert part.plot.surface(output=(0, 1, 2), ax=ax) is ax
    assert (ax.elev, ax.azim) == (20, 20)
    before = pixels(ax.figure)
    ax.view_init(20, 100)
    assert np.abs(pixels(ax.figure) - before).mean() > 0.01
    assert written(ax.figure, "pdf") > 10_000
    scene_of(ax).set_visible(False)
    assert np.abs(pixels(ax.figure) - before).mean() > 0.01


def test_wrong_outputs_of_an_image_are_rejected(part: sc.Partition) -> None:
    with pytest.raises(sc.SplineCamError, match=r"three of them such as \(0, 1, 2\)"):
        part.plot.surface(output=(0, 1))
    with pytest.raises(sc.SplineCamError, match=r"a matrix \(3, 3\)"):
        part.plot.surface(output=torch.eye(4)[:, :3])
    with pytest.raises(IndexError, match="output 7"):
        part.plot.surface(output=(0, 1, 7))
    with pytest.raises(sc.SplineCamError, match="graph of one output"):
        part.plot.surface(output=(0, 1, 2), plane=True)


# -- slices -----------------------------------------------------------------------------------


def test_slices_lie_where_their_planes_are(slices: list[sc.Partition]) -> None:
    ax = sc.plot.plot_slices(slices)
    scene, strokes = scene_of(ax), scene_of(ax).strokes
    start = 0
    for part in slices:
        end = start + len(part.vertices)
        assert np.array_equal(scene.points[start:end], part.domain.embed(part.vertices))
        start = end
    assert len(scene.corners) == len(scene.face) == sum(map(len, slices))
    # A line lies in the plane of its cells.
    cell = scene.points[scene.corners[strokes.facets[:, 0], 0]]
    assert np.isclose(strokes.ends[:, 0], cell).any(1).all()
    values = slices[0].model(torch.tensor(strokes.ends[strokes.rank == 2]))
    assert float(values.detach().abs().max()) < 1e-9
    assert [ax.get_xlabel(), ax.get_ylabel(), ax.get_zlabel()] == ["$x_{1}$", "$x_{2}$", "$x_{3}$"]


@pytest.mark.slow
def test_slices_are_coloured_and_let_others_shine_through(slices: list[sc.Partition]) -> None:
    solid = pixels(sc.plot.plot_slices(slices, color="output", view=(30, 40)).figure)
    clear = pixels(sc.plot.plot_slices(slices, color="output", alpha=0.3, view=(30, 40)).figure)
    assert clear.mean() > solid.mean() + 0.02
    ax = sc.plot.plot_slices(slices, color="class", boundary_color=["red", "blue", "green"])
    lines = scene_of(ax).strokes
    assert len(np.unique(lines.color[lines.rank == 2], axis=0)) == 3
    ax = sc.plot.plot_slices(slices[0], color="random", seed=1, edges=False, boundary=False)
    assert len(scene_of(ax).corners) == len(slices[0])
    assert scene_of(ax).strokes is None


def test_wrong_slices_are_rejected(slices: list[sc.Partition], part: sc.Partition) -> None:
    with pytest.raises(
        sc.SplineCamError, match="three inputs, and a partition is of a domain in 2"
    ):
        sc.plot.plot_slices([slices[0], part])
    with pytest.raises(ValueError, match="no partition"):
        sc.plot.plot_slices([])
    with pytest.raises(TypeError, match="must be partitions"):
        sc.plot.plot_slices([slices[0].model])
    with pytest.raises(ValueError, match="2 colours for 3"):
        sc.plot.plot_slices(slices, boundary_color=["red", "blue"])
    with pytest.raises(TypeError, match="projection"):
        sc.plot.plot_slices(slices, ax=plt.figure().add_subplot())
