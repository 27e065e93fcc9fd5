"""The partition layer by layer: what each non-linearity adds, and the curve of one of its units."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from splinecam._util.csr import lengths
from splinecam.analysis.layers import layer_index, regions_by_layer
from splinecam.analysis.neurons import neurons
from splinecam.analysis.partition_data import PartitionData
from splinecam.plot.figures import new_figure
from splinecam.plot.palette import background, ink_on, require_matplotlib, text_color
from splinecam.plot.regions import plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


__all__ = ["plot_layers"]

_EARLIER = 0.37  # of the ink that a layer's lines have, for those before it
_HIGHLIGHT = "#D55E00"
# Widths in points and as a share of the lines' spacing: of a layer's lines, of those before it.
_LATEST, _LATEST_SHARE = 0.9, 0.12
_BEFORE, _BEFORE_SHARE = 0.5, 0.08
_CURVE, _RIM = 1.7, 1.4
_PAD, _GAP = 0.07, 0.055  # inches around a panel with its title, and between the two
_FONT, _SMALLEST, _LINE = 8.0, 5.0, 1.25  # of titles: sizes in points, and the height of a line
_MANY = 100_000  # regions up to which curves of units are made with the model


def plot_layers(
    part: PartitionData,
    *,
    unit: Mapping[str | int, int] | Sequence[int | None] | None = None,
    layers: Sequence[str | int] | None = None,
    columns: int | None = None,
    whole: bool = True,
    highlight: str = _HIGHLIGHT,
    size: float = 2.5,
    **style: Any,
) -> Figure:
    """Draw a panel per layer: the regions that it and the layers before it make, and one unit.

    The lines that a layer adds are dark, those of the layers before it grey, and the curve on which
    one of its units switches is drawn in the colour ``highlight``; where a unit switches nowhere on
    the domain, the title says so. With ``whole`` a last panel has all regions, as ``part.plot``
    draws them with ``style``: color, boundary, points, ...

    layers: names of ``part.layers`` or indices into them, by default all that add lines. unit:
    which units to show, one for each layer or by layer (others then show none); by default the one
    with the longest line of each layer, or none if the partition was loaded without its model.
    columns: panels in a row; size: of a panel, in inches.

    The curves are exact. Where there are more than 100,000 regions, pieces that lie on a line of
    another unit are left out, as only the model knows them.

    >>> import torch, splinecam as sc
    >>> relu, linear = torch.nn.ReLU(), torch.nn.Linear
    >>> model = torch.nn.Sequential(linear(2, 8), relu, linear(8, 8), relu, linear(8, 1))
    >>> part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    >>> figure = part.plot_layers(unit={"1": 3}, color="slope")
    """
    require_matplotlib()
    ops = _ops(part, layers)
    units = _units(part, ops, unit)
    if not len(ops) + whole:
        raise ValueError("there is nothing to draw: no layer adds lines, and whole is False")
    curves = [_curve(part, *each) for each in zip(ops, units, strict=True)]
    counts = regions_by_layer(part)
    titles = [_title(part, *each, counts) for each in zip(ops, units, curves, strict=True)]
    titles += [f"all layers\n{_regions(len(part))}"] * whole
    figure = _new_panels(part, titles, _across(columns, len(titles)), size)
    for ax, op, curve in zip(figure.axes, ops, curves, strict=False):
        _panel(part, ax, op, curve, highlight)
    if whole:
        options = {"axes": "off", "legend": False, "colorbar": False, **style}
        plot(part, ax=figure.axes[-1], **options)
        _make_room(figure)
    return figure


def _across(columns: int | None, panels: int) -> int:
    """How many panels a row has."""
    if columns is None:
        return panels if panels <= 4 else math.ceil(math.sqrt(panels))
    if operator.index(columns) < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    return min(operator.index(columns), panels)


# -- what is asked for -----------------------------------------------------------------------


def _ops(part: PartitionData, layers: Sequence[str | int] | None) -> list[int]:
    """The layers to show, as indices of cuts."""
    if layers is None:
        lines = torch.bincount(part.edge_layer + 1, minlength=len(part.layers) + 1)[1:]
        return torch.nonzero(lines)[:, 0].tolist()
    return [layer_index(part, layer) for layer in ([layers] if isinstance(layers, str) else layers)]


def _units(
    part: PartitionData,
    ops: list[int],
    unit: Mapping[str | int, int] | Sequence[int | None] | None,
) -> list[int | None]:
    """The unit to show of each layer, if any."""
    if unit is None:
        return [_longest(part, op) if part._model is not None else None for op in ops]
    if isinstance(unit, Mapping):
        chosen = {layer_index(part, layer): number for layer, number in unit.items()}
        unseen = set(chosen) - set(ops)
        if unseen:
            names = ", ".join(repr(part.layers[op]) for op in sorted(unseen))
            raise ValueError(f"units are chosen of {names}, which is not among the layers shown")
        return [chosen.get(op) for op in ops]
    if not isinstance(unit, Sequence) or len(unit) != len(ops):
        shown = ", ".join(repr(part.layers[op]) for op in ops)
        raise ValueError(f"unit must name one unit for each of the layers {shown}, not {unit!r}")
    return list(unit)


def _longest(part: PartitionData, op: int) -> int | None:
    """The unit that drew the most of a layer's lines."""
    edge = (part.edge_layer == op).nonzero()[:, 0]
    if not edge.shape[0]:
        return None
    ends = part.mesh.uv[part.edges[edge]]
    drawn = torch.bincount(part.edge_unit[edge], lengths(ends[:, 1] - ends[:, 0]))
    return int(drawn.argmax())


# -- drawing ---------------------------------------------------------------------------------


def _new_panels(part: PartitionData, titles: list[str], across: int, size: float) -> Figure:
    """Axes with titles, on a figure that is as high as they ask for."""
    from splinecam.plot.decorations import set_frame
    from splinecam.plot.images import font_that_fits

    wide = size - 2 * _PAD
    lines = [line for title in titles for line in title.split("\n")]
    font = font_that_fits(lines, wide, _FONT, _SMALLEST)
    figure = new_figure()
    down = math.ceil(len(titles) / across)
    for k, title in enumerate(titles):
        ax = figure.add_subplot(down, across, k + 1)
        set_frame(ax, part.domain, "off")
        ax.set_title(title, fontsize=font, color=text_color(figure), pad=72 * _GAP)
    view = figure.axes[0].viewLim
    high = wide * view.height / view.width + 2 * _LINE * font / 72 + _GAP + 2 * _PAD
    figure.set_size_inches(across * size, down * high)
    figure.set_layout_engine("compressed", w_pad=_PAD, h_pad=_PAD, wspace=0, hspace=0)
    return figure


def _make_room(figure: Figure) -> None:
    """Let the figure grow by what the user wants to have around the last panel."""
    from splinecam.plot.side_layout import overhang

    left, right, below = (size / figure.dpi for size in overhang(figure.axes[-1]))
    wide, high = figure.get_size_inches()
    figure.set_size_inches(wide + left + right, high + below)


def _panel(part: PartitionData, ax: Axes, op: int, curve: Tensor | None, highlight: str) -> None:
    """Draw the lines up to a layer, and the curve of a unit, as they are seen on the figure."""
    from matplotlib.colors import to_rgb

    from splinecam.plot.decorations import draw_border

    by, ends = part.edge_layer, part.vertices[part.edges]
    paper = to_rgb(background(ax))
    ink = to_rgb(ink_on(paper))
    pale = tuple(b + _EARLIER * (a - b) for a, b in zip(ink, paper, strict=True))
    _lines(part, ax, ends[(by >= 0) & (by < op)], pale, _BEFORE, _BEFORE_SHARE)
    _lines(part, ax, ends[by == op], ink, _LATEST, _LATEST_SHARE)
    if curve is not None:
        _lines(part, ax, curve, paper, _CURVE + _RIM)
        _lines(part, ax, curve, highlight, _CURVE)
    draw_border(ax, part.domain)


def _curve(part: PartitionData, op: int, unit: int | None) -> Tensor | None:
    """Where a unit switches, (S, 2, 2)."""
    if unit is None:
        return None
    if len(part) <= _MANY:
        return neurons(part, layer=op, unit=unit).ends
    return part.vertices[part.edges[(part.edge_layer == op) & (part.edge_unit == unit)]]


def _lines(
    part: PartitionData, ax: Axes, ends: Tensor, color: Any, most: float, share: float | None = None
) -> None:
    """Segments (S, 2, 2) of a width in points, thinner where they are closer together."""
    from splinecam.plot.lines import Lines, Pen

    length = float(lengths(ends[:, 1] - ends[:, 0]).sum())
    style: dict[str, Any] = {"linewidths": most}
    if share is not None and length > 0:
        # Round caps of thin lines overlap in pixels of their own, which shows as beads.
        style = {"pen": Pen(part.domain.area / length, share, most), "capstyle": "butt"}
    drawn = Lines(ends.cpu().numpy(), colors=color, zorder=2, **style)
    ax.add_collection(drawn, autolim=False)


def _title(
    part: PartitionData, op: int, unit: int | None, curve: Tensor | None, counts: list[int]
) -> str:
    """Which layer it is, the regions so far, and the unit."""
    text = f"layer {op + 1} of {len(part.layers)} ({part.layers[op]!r})\n{_regions(counts[op])}"
    if curve is None:
        return text
    return f"{text}, unit {unit}" + ("" if len(curve) else " switches nowhere")


def _regions(count: int) -> str:
    return f"{count:,} region{'s' * (count != 1)}"
