"""Means with bands and distributions over the steps of a training."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import splinecam as sc
from drawing import pixels


def numbers(steps: int = 6, points: int = 40) -> np.ndarray:
    return np.random.default_rng(0).uniform(1, 5, (steps, points))


def test_bands_hold_the_mean_or_the_middle_of_the_points() -> None:
    values = numbers()
    for band in ("mean", "points"):
        ax = sc.plot.plot_bands(range(6), {"train": values}, band=band)
        assert np.allclose(ax.lines[0].get_ydata(), values.mean(1))
        outline = ax.collections[0].get_paths()[0].vertices
        low = [outline[outline[:, 0] == k, 1].min() for k in range(6)]
        if band == "points":
            assert np.allclose(low, np.percentile(values, 10, axis=1))
        else:
            error = values.std(1, ddof=1) / np.sqrt(40)
            assert np.allclose(low, values.mean(1) - 1.96 * error)
    assert (ax.get_xlabel(), ax.get_yscale(), ax.get_ylim()[0]) == ("epoch", "linear", 0)


def test_missing_numbers_are_left_out() -> None:
    values = numbers()
    values[2] = np.nan
    values[3, 5:] = np.nan
    ax = sc.plot.plot_bands(torch.arange(6), {"a": values, "b": torch.tensor(numbers())})
    assert ax.lines[0].get_xdata().tolist() == [0, 1, 3, 4, 5]
    assert ax.lines[0].get_ydata()[2] == pytest.approx(values[3, :5].mean())
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert shown == ["a (40)", "b (40)"]
    assert ax.lines[0].get_color() != ax.lines[1].get_color()


def test_single_numbers_have_no_band_and_wide_ranges_a_logarithmic_axis() -> None:
    own = plt.figure().add_subplot()
    ax = sc.plot.plot_bands([1, 10, 100], [1.0, 50.0, 900.0], ax=own, ylabel="regions")
    assert ax is own
    assert not ax.collections
    assert ax.get_legend() is None
    assert (ax.get_yscale(), ax.get_ylabel()) == ("log", "regions")
    assert sc.plot.plot_bands([1, 2], [1.0, 50.0], log=False).get_yscale() == "linear"


@pytest.mark.parametrize("log", [None, True, False])
def test_columns_are_widest_where_numbers_are_dense(log: bool | None) -> None:
    random = np.random.default_rng(1)
    values = 10 ** np.concatenate(
        [random.normal(0, 0.05, (2, 90)), random.normal(2, 0.4, (2, 30))], 1
    )
    ax = sc.plot.plot_distributions([5, 50], {"train": values, "test": values}, log=log)
    assert ax.get_yscale() == ("linear" if log is False else "log")
    assert [text.get_text() for text in ax.get_xticklabels()] == ["5", "50"]
    outlines = [each.get_paths()[0].vertices for each in ax.collections[::2]]
    assert len(outlines) == 4
    for outline, middle in zip(outlines, [-0.21, 0.79, 0.21, 1.21], strict=True):
        off = outline[:, 0] - middle
        assert np.abs(off).max() == pytest.approx(0.46 * 0.42, rel=1e-3)
        assert 0.5 < outline[np.abs(off).argmax(), 1] < 2
    medians = [line.get_ydata()[0] for line in ax.lines]
    assert np.allclose(medians, np.tile(np.median(values, 1), 2))
    assert len(ax.get_legend().get_texts()) == 2
    assert pixels(ax.figure).min() < 0.5


def test_distributions_of_few_and_equal_numbers() -> None:
    values = np.array([[3.0, 3.0, 3.0], [1.0, 2.0, np.nan], [np.nan] * 3])
    ax = sc.plot.plot_distributions([0, 1, 2], values)
    assert len(ax.lines) == 2
    assert ax.get_legend() is None
    skipped = sc.plot.plot_distributions([0], [[0.0, 1.0, 100.0]], log=True)
    assert skipped.lines[0].get_ydata()[0] == 50.5


@pytest.mark.parametrize("draw", [sc.plot.plot_bands, sc.plot.plot_distributions])
def test_what_does_not_fit_is_rejected(draw: object) -> None:
    assert callable(draw)
    with pytest.raises(ValueError, match=r"of 'a' have the shape \(6, 40\), and x has \(5,\)"):
        draw(range(5), {"a": numbers()})
    with pytest.raises(ValueError, match="nothing to draw"):
        draw([], {})
    with pytest.raises(ValueError, match="have no number"):
        draw([0, 1], {"a": [np.nan, np.nan]})
    with pytest.raises(TypeError, match="2-D axes"):
        draw(range(6), numbers(), ax=plt.figure().add_subplot(projection="3d"))
    with pytest.raises(ValueError, match="band is 'all'"):
        sc.plot.plot_bands(range(6), numbers(), band="all")  # type: ignore[arg-type]
