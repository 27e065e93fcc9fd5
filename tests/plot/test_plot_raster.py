"""The raster of cells, and the colouring of graphs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.plot import rasters as cell_image
from splinecam.plot import rasters as raster
from splinecam.plot.colors import color_graph
from splinecam.plot.rasters import Cells, PointGrid

TRIANGLE = [[0.0, 0.0], [3.113, 0.537], [1.071, 2.039]]


def network(width: int = 16, *, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(2, width, bias=bias),
        nn.ReLU(),
        nn.Linear(width, width, bias=bias),
        nn.ReLU(),
        nn.Linear(width, 2, bias=bias),
    ).double()


def owners(part: sc.Partition, n: int) -> tuple[np.ndarray, torch.Tensor]:
    """The cells on a grid a little wider than the domain, and the grid's plane coordinates."""
    grid = PointGrid(-1.1, -1.1, 2.2 / (n - 1), 2.2 / (n - 1), n, n)
    found = np.concatenate([owner for _, _, owner in Cells.of(part.mesh).bands(grid)])
    x, y = np.meshgrid(grid.x(), grid.y(0, n))
    return found, part._frame.to_plane(torch.from_numpy(np.stack([x.ravel(), y.ravel()], 1)))


@pytest.mark.parametrize(
    "domain",
    [
        sc.Domain.box(-2, 2),
        sc.Domain.polygon(TRIANGLE),
        sc.Domain.box((-1e-6, 0), (1e-6, 3e-6)),
        sc.Domain.box(-1e6, 1e6),
    ],
    ids=["square", "triangle", "small", "large"],
)
def test_cells_are_those_that_locate_finds(domain: sc.Domain) -> None:
    part = sc.partition(network(), domain, progress=False)
    found, uv = owners(part, 211)
    assert np.array_equal(found.ravel(), part.locate(part.domain.embed(uv)).numpy())


def test_rows_through_vertices_and_along_edges() -> None:
    # Without biases all lines meet in the middle, which is a point of the grid.
    part = sc.partition(network(bias=False), sc.Domain.box(-2, 2), progress=False)
    found, uv = owners(part, 101)
    inside = found.ravel() >= 0
    flat = torch.from_numpy(found.ravel()[inside])
    values = part._frame.to_local(uv[inside])
    # In whatever cell a point on an edge is, the network has its value there.
    maps = part._maps
    off = (values - maps.anchor[flat])[:, :, None]
    seen = maps.value[flat] + (maps.weight[flat] @ off)[:, :, 0]
    expected = part.model(uv[inside])
    assert torch.allclose(seen, expected, atol=1e-9)
    assert inside.sum() > 2000


def test_shares_of_points_are_areas() -> None:
    part = sc.partition(network(), sc.Domain.box(-2, 2), progress=False)
    found, _ = owners(part, 900)
    share = np.bincount(found[found >= 0], minlength=len(part)) / (found >= 0).sum()
    assert np.abs(share - part.areas.numpy() / 16).max() < 5e-4


def test_narrow_bands_give_the_same_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    part = sc.partition(network(), sc.Domain.box(-2, 2), progress=False)
    whole, _ = owners(part, 120)
    monkeypatch.setattr(raster, "_BLOCK", 700)
    grid = PointGrid(-1.1, -1.1, 2.2 / 119, 2.2 / 119, 120, 120)
    bands = list(Cells.of(part.mesh).bands(grid, 3))
    assert len(bands) > 20
    assert all((last - first) % 3 == 0 for first, last, _ in bands)
    assert np.array_equal(np.concatenate([owner for _, _, owner in bands]), whole)


def test_a_view_of_a_part() -> None:
    part = sc.partition(network(), sc.Domain.box(-2, 2), progress=False)
    grid = PointGrid(0.1, 0.2, 1e-5, 1e-5, 30, 20)
    found = next(iter(Cells.of(part.mesh).bands(grid)))[2]
    x, y = np.meshgrid(grid.x(), grid.y(0, 20))
    uv = part._frame.to_plane(torch.from_numpy(np.stack([x.ravel(), y.ravel()], 1)))
    assert np.array_equal(found.ravel(), part.locate(uv).numpy())


def test_neighbours_get_different_numbers() -> None:
    part = sc.partition(network(40), sc.Domain.box(-2, 2), progress=False)
    pairs = part._edge_faces.numpy()
    number = color_graph(len(part), pairs, seed=3)
    inner = pairs[(pairs >= 0).all(1)]
    assert (number[inner[:, 0]] != number[inner[:, 1]]).all()
    assert number.min() == 0
    assert number.max() < 14
    assert np.array_equal(number, color_graph(len(part), pairs, seed=3))
    assert not np.array_equal(number, color_graph(len(part), pairs, seed=4))


def test_more_numbers_where_all_are_neighbours() -> None:
    pairs = np.array([(i, j) for i in range(40) for j in range(i)])
    assert len(np.unique(color_graph(40, pairs))) == 40
    assert color_graph(1, np.array([[-1, 0]])).tolist() != [-1]


@pytest.mark.parametrize("fine", [2, 3, 4])
def test_light_of_a_pixel_is_the_mean_of_its_points(fine: int) -> None:
    random = np.random.default_rng(fine)
    colors = random.random((6, 4)).astype(np.float32)
    owner = np.repeat(np.repeat(random.integers(-1, 5, (9, 7)), fine, 0), fine, 1)
    owner[:, 5] = 2  # some pixels have several cells
    points = [owner[i::fine, j::fine] for i in range(fine) for j in range(fine)]
    expected = sum(colors[some] for some in points) / fine**2
    assert np.array_equal(cell_image._mean_light(colors, points), expected)
