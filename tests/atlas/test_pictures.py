"""Pictures and views of an atlas: tile by tile, the same as of the partition in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import shapely
import torch

import splinecam as sc
from atlas_cases import Both, network
from splinecam.errors import DomainError
from splinecam.tiles.extracting import Shown, middle_window
from splinecam.tiles.large_pictures import few_edges

pytestmark = pytest.mark.few(1)

DOMAIN = sc.Domain.polygon([[-3, -3], [3, -2], [2, 3], [-2, 2]])
WINDOW = (-0.5, -0.25, 1.0, 0.5)


@pytest.fixture(scope="module")
def atlas(computed: Callable[..., Both]) -> sc.results.Atlas:
    return computed(network, DOMAIN).atlas


@pytest.fixture(scope="module")
def whole(computed: Callable[..., Both]) -> sc.Partition:
    return computed(network, DOMAIN).whole


def pixels(ax: Any) -> Any:
    ax.figure.set_dpi(50)
    ax.figure.canvas.draw()
    found = np.asarray(ax.figure.canvas.buffer_rgba()).astype(int)
    plt.close(ax.figure)
    return found


@pytest.mark.parametrize(
    "options",
    [{"boundary": True}, {"color": "output", "output": 1, "axes": "ticks"}, {"color": "vertices"}],
)
def test_tiles_make_the_picture_of_the_partition(
    options: dict[str, Any], atlas: sc.results.Atlas, whole: sc.Partition
) -> None:
    expected = pixels(whole.plot(**options))
    for few in (0, len(atlas)):
        found = pixels(atlas.plot(few=few, **options))
        assert found.shape == expected.shape
        assert (np.abs(found - expected).max(2) > 8).mean() < 1e-4


def test_a_window_is_drawn_alone(atlas: sc.results.Atlas) -> None:
    numbers = atlas.areas.sqrt()
    pictures = [
        pixels(atlas.plot(window=WINDOW, color=numbers, few=few, points=[[0.0, 0.0]]))
        for few in (0, len(atlas))
    ]
    assert (np.abs(pictures[0] - pictures[1]).max(2) > 8).mean() < 1e-4
    with pytest.raises(DomainError, match="outside"):
        atlas.plot(window=(8, 8, 9, 9))
    with pytest.raises(ValueError, match="empty"):
        atlas.plot(window=(1, 0, 0, 1))


def test_what_tiles_cannot_show_is_refused(atlas: sc.results.Atlas) -> None:
    with pytest.raises(sc.SplineCamError, match="merged"):
        atlas.plot(color="merged", few=0)
    with pytest.raises(TypeError, match="by layer"):
        atlas.plot(edges=[1, 2], few=0)
    with pytest.raises(ValueError, match="5 entries"):
        atlas.plot(color=np.arange(5))
    plt.close("all")


def test_lines_are_those_of_the_first_layers(atlas: sc.results.Atlas, whole: sc.Partition) -> None:
    counts = torch.bincount(whole.mesh.edge_layer[whole.mesh.edge_layer >= 0])
    for most, layers in ((int(counts.sum()), 2), (int(counts[0]), 1), (0, 0)):
        layer, ends = few_edges(Shown.of(atlas, None), most)
        assert layer.shape[0] == int(counts[:layers].sum())
        total = (ends[:, 1] - ends[:, 0]).norm(dim=1).sum()
        edges = whole.vertices[
            whole.mesh.edges[(whole.mesh.edge_layer >= 0) & (whole.mesh.edge_layer < layers)]
        ]
        assert float(total) == pytest.approx(float((edges[:, 1] - edges[:, 0]).norm(dim=1).sum()))


def test_a_window_has_the_regions_that_meet_it(
    atlas: sc.results.Atlas, whole: sc.Partition
) -> None:
    found = atlas.window(WINDOW)
    box = shapely.box(*WINDOW)
    meets = shapely.intersects(whole.to_shapely(), box)
    assert len(found) == int(meets.sum())
    assert float(found.areas.sum()) == pytest.approx(float(whole.areas[torch.tensor(meets)].sum()))
    assert found.stats()["NR"] == len(found)


def test_a_tiny_window_is_found_to_the_last_digits(atlas: sc.results.Atlas) -> None:
    corner = atlas[7].vertices.mean(0)
    u, v = corner.tolist()
    found = atlas.window((u - 1e-12, v - 1e-12, u + 1e-12, v + 1e-12))
    assert len(found) == 1
    assert sorted(found.vertices.tolist()) == sorted(atlas[7].vertices.tolist())
    edge = atlas[7].vertices[:2].mean(0).tolist()
    assert len(atlas.window((edge[0] - 1e-9, edge[1] - 1e-9, edge[0] + 1e-9, edge[1] + 1e-9))) <= 2


def test_the_middle_window_has_at_most_so_many_regions(atlas: sc.results.Atlas) -> None:
    for most in (20, 100):
        count = len(atlas.window(middle_window(atlas, most)))
        assert most / 4 < count <= most
    assert len(atlas.window(middle_window(atlas, len(atlas)))) == len(atlas)


def test_an_atlas_is_viewed(atlas: sc.results.Atlas) -> None:
    options: dict[str, Any] = {"browser": False, "block": False}
    viewer = atlas.view(**options)
    assert len(viewer.session.panes[0].partition(0)) == len(atlas)
    viewer.close()
    viewer = atlas.view(max_regions=100, **options)  # as far as one looks, by the network
    assert viewer.session.panes[0].start is not None
    viewer.close()


def test_an_atlas_without_its_model_is_viewed_in_windows(atlas: sc.results.Atlas) -> None:
    again = sc.load(atlas.folder)
    viewer = again.view(max_regions=100, browser=False, block=False)
    assert 25 < len(viewer.session.panes[0].partition(0)) <= 100
    assert viewer.state["width"] < 4
    viewer.close()
    viewer = again.view(window=WINDOW, browser=False, block=False)
    assert viewer.state["center"] == [0.25, 0.125]
    viewer.close()
    with pytest.raises(sc.SplineCamError, match="window="):
        sc.view(again, max_regions=100, browser=False, block=False)
