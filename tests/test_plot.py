"""Pictures: what is drawn is what the partition holds."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from torch import nn

import splinecam as sc
from splinecam.plot import plot

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


@pytest.fixture(scope="module", params=[1, 3])
def part(request: pytest.FixtureRequest) -> sc.Partition:
    torch.manual_seed(0)
    outputs = request.param
    model = nn.Sequential(
        nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, outputs)
    )
    with torch.no_grad():
        model[-1].bias -= model(torch.zeros(1, 2))[0]
    return sc.partition(model, sc.Domain.box(-2, 2), device="cpu", progress=False)


def polygons(ax: Axes) -> list[np.ndarray]:
    fills = [c for c in ax.collections if isinstance(c, PolyCollection)]
    return [path.vertices[:-1] for fill in fills for path in fill.get_paths()]


def lines(ax: Axes) -> list[int]:
    return [len(c.get_segments()) for c in ax.collections if isinstance(c, LineCollection)]


def area(polygon: np.ndarray) -> float:
    x, y = polygon.T
    return 0.5 * float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))


@pytest.mark.parametrize("color", ["class", "slope", "random", "numbers", "colours"])
def test_regions_cover_the_domain(part: sc.Partition, color: str) -> None:
    count = len(part.regions)
    given = {"numbers": part.areas, "colours": np.full((count, 3), 0.5)}.get(color, color)
    drawn = polygons(plot(part, color=given))
    assert sum(map(area, drawn)) == pytest.approx(16.0)
    assert len(drawn) == (len(part.class_regions().cell_class) if color == "class" else count)


def test_edges_and_boundary(part: sc.Partition) -> None:
    segments = len(part.decision_boundary())
    assert sum(lines(plot(part))) == len(part.edges) + segments
    assert sum(lines(plot(part, boundary=False))) == len(part.edges)
    assert sum(lines(plot(part, edges=False))) == segments


def test_draws_on_the_given_axes_and_renders(part: sc.Partition) -> None:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(1, 1))
    assert plot(part, ax=ax) is ax
    assert part.plot(ax=ax, color="slope") is ax
    figure.canvas.draw()
    low, high = ax.get_xlim()
    assert low <= -2 < 2 <= high


def test_edges_thin_out_where_regions_are_dense(part: sc.Partition) -> None:
    def widest(side: float) -> float:
        model = nn.Sequential(nn.Linear(2, 40), nn.ReLU(), nn.Linear(40, 1))
        dense = sc.partition(model, sc.Domain.box(-side, side), device="cpu", progress=False)
        drawn = [
            c for c in plot(dense, boundary=False).collections if isinstance(c, LineCollection)
        ]
        return float(drawn[0].get_linewidths()[0])

    torch.manual_seed(0)
    few = widest(0.05)
    torch.manual_seed(0)
    assert widest(2.0) < few


def test_rejects(part: sc.Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(sc.SplineCamError, match='choose "class"'):
        plot(part, color="blue")
    with pytest.raises(sc.SplineCamError, match="give \\(F,\\)"):
        plot(part, color=torch.zeros(len(part.regions) + 1))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(sc.SplineCamError, match=r"pip install 'splinecam\[plot\]'"):
        plot(part)


def test_constant_network_is_drawn() -> None:
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.zero_()
    part = sc.partition(model, sc.Domain.box(-1, 1), device="cpu", progress=False)
    for color in ("class", "slope"):
        assert len(polygons(plot(part, color=color))) == 1


def test_curves_on_axes_of_ones_own(part: sc.Partition) -> None:
    import matplotlib.pyplot as plt

    curves = part.level_set([-0.1, 0.0, 0.1], output=0)
    _, ax = plt.subplots()
    curves.plot(ax=ax)
    (low, high), ends = ax.get_xlim(), curves.ends[:, :, 0]
    assert low <= float(ends.min())
    assert high >= float(ends.max())
    (lines_,) = ax.collections
    assert len(lines_.get_array()) == len(curves)
    framed = part.plot()
    before = framed.get_xlim()
    curves.plot(ax=framed, color="red")
    assert framed.get_xlim() == before


def test_curves_on_axes_of_the_domain(part: sc.Partition) -> None:
    ax = part.decision_boundary().plot(linewidth=3)
    assert ax.get_xlim()[0] == pytest.approx(-2, abs=0.1)
    assert lines(ax) == [len(part.decision_boundary())]


def test_read_only_numbers_as_colours(part: sc.Partition) -> None:
    numbers = part.areas.numpy().copy()
    numbers.flags.writeable = False
    assert len(polygons(plot(part, color=numbers))) == len(part)
