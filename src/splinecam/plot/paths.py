"""Pictures of paths: the outputs along a path, with its breakpoints and classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from splinecam.analysis.path_partition import PathPartition
from splinecam.analysis.pieces import output_number
from splinecam.plot.arrays import to_numpy
from splinecam.plot.figures import flat_axes, new_figure, plain_spines, require_matplotlib, written
from splinecam.plot.palette import GREY, class_palette, text_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_path"]

_MOST = 12  # outputs that are drawn by default: those that are largest somewhere come first
_BAND = 0.03  # height of the band of classes, as a share of the axes
_TICK = 0.035  # height of the ticks of breakpoints, as a share of the axes
_MANY = 400  # breakpoints from which on their ticks become fainter
_SIZE = 7.0, 3.6  # inches


def plot_path(
    part: PathPartition,
    *,
    ax: Axes | None = None,
    outputs: Sequence[int | str] | None = None,
    breakpoints: bool = True,
    classes: bool = True,
    legend: bool = True,
    **style: Any,
) -> Axes:
    """Draw the outputs along a path, over its length.

    outputs: which ones, by number or name, by default all of up to 12. breakpoints: mark them by
    ticks at the bottom. classes: a band at the top in the colours of the classes. legend: name the
    outputs, if there are several. style: goes to matplotlib's ``Axes.plot``.

    >>> import torch, splinecam as sc
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> line = sc.Domain.segment([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    >>> ax = sc.partition(net, line, progress=False).plot()
    >>> len(ax.lines)
    2
    """
    require_matplotlib()
    if ax is None:
        ax = new_figure(figsize=_SIZE, layout="constrained").add_subplot()
    flat_axes(ax)
    plain_spines(ax, GREY)
    count = part.values.shape[1]
    colors = class_palette(max(2, count))
    distance, values = to_numpy(part.t) * part.path.length, to_numpy(part.values)
    for k in _chosen(part, outputs):
        name = part.names[k] if part.names is not None and count > 1 else f"output {k}"
        own = {
            "color": colors[k if count > 1 else 0],
            "linewidth": 1.6,
            "label": written(name),
            **style,
        }
        ax.plot(distance, values[:, k], **own)
    ax.set_xlim(0.0, part.path.length)
    ax.margins(y=0.1)
    ax.set_xlabel("distance along the path")
    ax.set_ylabel("output")
    if breakpoints:
        _draw_breakpoints(ax, part)
    if classes:
        _draw_classes(ax, part, colors)
    if legend and len(ax.lines) > 1:
        ax.legend(frameon=False, fontsize="small", ncols=1 + len(ax.lines) // 6)
    return ax


def _chosen(part: PathPartition, outputs: Sequence[int | str] | None) -> list[int]:
    """The outputs to draw."""
    count = part.values.shape[1]
    if outputs is not None:
        return [output_number(each, part.names, count) for each in outputs]
    if count <= _MOST:
        return list(range(count))
    top = np.sort(np.argsort(-to_numpy(part.values).max(0), kind="stable")[:_MOST])
    return [int(k) for k in top]


def _draw_breakpoints(ax: Axes, part: PathPartition) -> None:
    """Draw a tick at the bottom for every breakpoint."""
    from matplotlib.collections import LineCollection

    at = to_numpy(part.breakpoints) * part.path.length
    ticks = np.zeros((len(at), 2, 2))
    ticks[:, :, 0], ticks[:, 1, 1] = at[:, None], _TICK
    faint = 0.55 * min(1.0, (_MANY / max(1, len(at))) ** 0.5)
    color = text_color(ax.figure)
    place = ax.get_xaxis_transform()
    lines = LineCollection(list(ticks), colors=color, alpha=faint, linewidths=0.7, transform=place)
    ax.add_collection(lines, autolim=False)


def _draw_classes(ax: Axes, part: PathPartition, colors: Any) -> None:
    """Draw a band at the top in the colours of the classes."""
    found = part.decisions()
    begin = to_numpy(found.begin) * part.path.length
    end = np.append(begin[1:], part.path.length)
    ax.bar(
        begin,
        _BAND,
        end - begin,
        1 - _BAND,
        align="edge",
        color=colors[to_numpy(found.label)],
        transform=ax.get_xaxis_transform(),
        linewidth=0,
    )
