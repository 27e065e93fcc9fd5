"""Pictures of curves."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.legend import Legend
from torch import nn

import splinecam as sc

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 3)
    )
    with torch.no_grad():
        model[-1].bias -= model(torch.zeros(1, 2))[0]
    return sc.partition(model, sc.Domain.box(-2, 2), device="cpu", progress=False)


def test_levels_are_coloured_by_level(part: sc.Partition) -> None:
    levels = part.level_set([-0.1, 0.0, 0.1], output=0)
    ax = levels.plot()
    (lines,) = ax.collections
    assert len(lines.get_segments()) == len(levels)
    assert lines.get_array().tolist() == [-0.1, 0.0, 0.1]
    assert lines.get_clim() == (-0.1, 0.1)
    assert ax.child_axes
    assert not levels.plot(colorbar=False).child_axes
    ax.figure.canvas.draw()


def test_given_numbers_and_colours(part: sc.Partition) -> None:
    levels = part.level_set([-0.1, 0.0, 0.1], output=0)
    (by_number,) = levels.plot(array=levels.level.cpu(), cmap="magma").collections
    assert len(by_number.get_array()) == len(levels)
    (red,) = levels.plot(color="red").collections
    assert red.get_edgecolor().tolist() == [[1, 0, 0, 1]]
    (each,) = levels.plot(color=np.zeros((len(levels), 3))).collections
    each.axes.figure.canvas.draw()
    assert len(each.get_edgecolor()) == len(levels)


def test_curves_on_new_axes(part: sc.Partition) -> None:
    import matplotlib.pyplot as plt

    curves = part.level_set(0.05, output=0)
    _, ax = plt.subplots()
    curves.plot(ax=ax)
    (low, high), ends = ax.get_xlim(), curves.ends[:, :, 0]
    assert low <= float(ends.min())
    assert high >= float(ends.max())
    framed = part.plot()
    before = framed.get_xlim()
    curves.plot(ax=framed, color="red")
    assert framed.get_xlim() == before


def test_on_axes_of_the_domain(part: sc.Partition) -> None:
    ax = part.decision_boundary().plot(linewidth=3, label="boundary")
    assert ax.get_xlim()[0] == pytest.approx(-2, abs=0.1)
    (lines,) = ax.collections
    assert len(lines.get_segments()) == len(part.decision_boundary())
    assert [text.get_text() for text in ax.legend().get_texts()] == ["boundary"]
    ax.figure.canvas.draw()


def test_each_pair_and_each_unit_has_its_colour(part: sc.Partition) -> None:
    boundary = part.decision_boundary()
    ax = boundary.plot(each=True)
    names = [text.get_text() for text in ax.findobj(Legend)[0].get_texts()]
    assert names == [f"{i} $|$ {j}" for i, j in boundary.pairs()]
    curves = part.neurons(layer="1")
    ax = curves.plot(each=True, legend=False)
    assert not ax.findobj(Legend)
    ax.figure.canvas.draw()
    assert len(np.unique(ax.collections[0].get_edgecolor(), axis=0)) == len(curves.units)


def test_no_segments_at_all(part: sc.Partition) -> None:
    nothing = part.level_set([100.0, 200.0], output=0)
    for options in ({}, {"each": True}, {"color": "red"}):
        ax = nothing.plot(**options)
        ax.figure.canvas.draw()
        assert not sum(len(lines.get_segments()) for lines in ax.collections)
