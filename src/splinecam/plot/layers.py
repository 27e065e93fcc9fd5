"""The partition layer by layer: the lines of each layer, and the curve of one of its units."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from splinecam._util.arrays import lengths
from splinecam.plot.arrays import to_numpy
from splinecam.plot.figures import new_figure, require_matplotlib, written
from splinecam.plot.palette import HIGHLIGHT, background, ink_on, text_color
from splinecam.plot.regions import plot
from splinecam.questions.measures import layer_index, regions_by_layer
from splinecam.questions.neurons import neurons
from splinecam.questions.partition_data import PartitionData

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_EARLIER = 0.37  # the strength of the lines of earlier layers
# Widths in points and as a share of the lines' spacing: of a layer's lines, of earlier lines.
_LATEST, _LATEST_SHARE = 0.9, 0.12
_BEFORE, _BEFORE_SHARE = 0.5, 0.08
_CURVE, _RIM = 1.7, 1.4
_PAD, _GAP = 0.07, 0.055  # inches around a panel with its title, and between the two
_FONT, _SMALLEST, _LINE = 8.0, 5.0, 1.25  # of titles: sizes in points, and the height of a line
_MANY = 100_000  # regions up to which curves of units are computed with the model


def plot_layers(
    part: PartitionData,
    *,
    unit: Mapping[str | int, int] | Sequence[int | None] | None = None,
    layers: Sequence[str | int] | None = None,
    columns: int | None = None,
    whole: bool = True,
    highlight: str = HIGHLIGHT,
    size: float = 2.5,
    **style: Any,
) -> Figure:
    """Draw a panel per layer: the regions that it and the layers before it make, and one unit.

    The lines that a layer adds are dark, those of the layers before it grey, and the curve on which
    one of its units switches is drawn in the colour ``highlight``; where a unit switches nowhere on
    the domain, the title says so. With ``whole`` a last panel has all regions, as ``part.plot``
    draws them with ``style``: color, boundary, points, ...

    layers: names of ``part.layers`` or indices into them, by default all that add lines. unit:
    the units to show, one for each layer or by layer (others then show none); by default the one
    with the longest line of each layer, or none if the partition was loaded without its model.
    columns: panels in a row; whole: whether the last panel is drawn; highlight: the colour of the
    curve; size: of a panel, in inches.

    The curves are exact. Where there are more than 100,000 regions, pieces that lie on a line of
    another unit are left out, as only the model knows them.

    >>> import torch, splinecam as sc
    >>> relu, linear = torch.nn.ReLU(), torch.nn.Linear
    >>> model = torch.nn.Sequential(linear(2, 8), relu, linear(8, 8), relu, linear(8, 1))
    >>> part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    >>> figure = part.plot.layers(unit={"1": 3}, color="slope")
    """
    require_matplotlib()
    shown = _shown_layers(part, layers)
    units = _units(part, shown, unit)
    if not len(shown) + whole:
        raise ValueError("there is nothing to draw: no layer adds lines, and whole is False")
    curves = [_curve(part, *each) for each in zip(shown, units, strict=True)]
    counts = regions_by_layer(part)
    titles = [
        written(_title(part, *each, counts)) for each in zip(shown, units, curves, strict=True)
    ]
    titles += [f"all layers\n{_regions(len(part))}"] * whole
    figure = _new_panels(part, titles, _columns(columns, len(titles)), size)
    for ax, layer, curve in zip(figure.axes, shown, curves, strict=False):
        _draw_panel(part, ax, layer, curve, highlight)
    if whole:
        options = {"axes": "off", "legend": False, "colorbar": False, **style}
        plot(part, ax=figure.axes[-1], **options)
        _make_room(figure)
    return figure


def _columns(columns: int | None, panels: int) -> int:
    """The number of panels in a row."""
    if columns is None:
        return panels if panels <= 4 else math.ceil(math.sqrt(panels))
    if operator.index(columns) < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    return min(operator.index(columns), panels)


def _shown_layers(part: PartitionData, layers: Sequence[str | int] | None) -> list[int]:
    """The indices of the layers to show, by default of all that add lines."""
    if layers is None:
        lines = torch.bincount(part.mesh.edge_layer + 1, minlength=len(part.layers) + 1)[1:]
        return torch.nonzero(lines)[:, 0].tolist()
    return [layer_index(part, layer) for layer in ([layers] if isinstance(layers, str) else layers)]


def _units(
    part: PartitionData,
    layers: list[int],
    unit: Mapping[str | int, int] | Sequence[int | None] | None,
) -> list[int | None]:
    """The unit to show of each layer, if any."""
    if unit is None:
        return [_longest(part, k) if part._model is not None else None for k in layers]
    if isinstance(unit, Mapping):
        chosen = {layer_index(part, layer): number for layer, number in unit.items()}
        unseen = set(chosen) - set(layers)
        if unseen:
            names = ", ".join(repr(part.layers[k]) for k in sorted(unseen))
            raise ValueError(f"units are chosen of {names}, which is not among the layers shown")
        return [chosen.get(k) for k in layers]
    if not isinstance(unit, Sequence) or len(unit) != len(layers):
        shown = ", ".join(repr(part.layers[k]) for k in layers)
        raise ValueError(f"unit must name one unit for each of the layers {shown}, not {unit!r}")
    return list(unit)


def _longest(part: PartitionData, layer: int) -> int | None:
    """The unit with the longest line of a layer; none of a refinement."""
    if layer >= len(part._network.layers):
        return None
    edge = (part.mesh.edge_layer == layer).nonzero()[:, 0]
    if not edge.shape[0]:
        return None
    ends = part.mesh.uv[part.edges[edge]]
    drawn = torch.bincount(part.mesh.edge_unit[edge], lengths(ends[:, 1] - ends[:, 0]))
    return int(drawn.argmax())


def _curve(part: PartitionData, layer: int, unit: int | None) -> Tensor | None:
    """The segments (S, 2, 2) on which a unit switches."""
    if unit is None:
        return None
    if len(part) <= _MANY:
        return neurons(part, layer=layer, unit=unit).ends
    return part.vertices[
        part.edges[(part.mesh.edge_layer == layer) & (part.mesh.edge_unit == unit)]
    ]


def _title(
    part: PartitionData, layer: int, unit: int | None, curve: Tensor | None, counts: list[int]
) -> str:
    """The layer, the number of regions so far, and the unit."""
    name = f"layer {layer + 1} of {len(part.layers)} ({part.layers[layer]!r})"
    text = f"{name}\n{_regions(counts[layer])}"
    if curve is None:
        return text
    return f"{text}, unit {unit}" + ("" if len(curve) else " switches nowhere")


def _regions(count: int) -> str:
    return f"{count:,} region{'s' * (count != 1)}"


def _new_panels(part: PartitionData, titles: list[str], columns: int, size: float) -> Figure:
    """A new figure with axes and their titles, as high as they need."""
    from splinecam.plot.decorations import set_frame
    from splinecam.plot.images import font_that_fits

    wide = size - 2 * _PAD
    lines = [line for title in titles for line in title.split("\n")]
    font = font_that_fits(lines, wide, _FONT, _SMALLEST)
    figure = new_figure()
    rows = math.ceil(len(titles) / columns)
    for k, title in enumerate(titles):
        ax = figure.add_subplot(rows, columns, k + 1)
        set_frame(ax, part.domain, "off")
        ax.set_title(written(title), fontsize=font, color=text_color(figure), pad=72 * _GAP)
    view = figure.axes[0].viewLim
    high = wide * view.height / view.width + 2 * _LINE * font / 72 + _GAP + 2 * _PAD
    figure.set_size_inches(columns * size, rows * high)
    figure.set_layout_engine("compressed", w_pad=_PAD, h_pad=_PAD, wspace=0, hspace=0)
    return figure


def _make_room(figure: Figure) -> None:
    """Let the figure grow by the colour bars and legends of the last panel."""
    from splinecam.plot.decorations import overhang

    left, right, below = (size / figure.dpi for size in overhang(figure.axes[-1]))
    wide, high = figure.get_size_inches()
    figure.set_size_inches(wide + left + right, high + below)


def _draw_panel(
    part: PartitionData, ax: Axes, layer: int, curve: Tensor | None, highlight: str
) -> None:
    """Draw the lines of the layers up to one of them, and the curve of a unit."""
    from matplotlib.colors import to_rgb

    from splinecam.plot.decorations import draw_border
    from splinecam.plot.lines import Lines, line_width

    def draw(ends: Tensor, color: Any, most: float, share: float | None = None) -> None:
        length = float(lengths(ends[:, 1] - ends[:, 0]).sum())
        style: dict[str, Any] = {"linewidths": most}
        if share is not None and length > 0:
            width = partial(line_width, part.domain.area / length, share, most, 0.0, 0.0)
            # Round caps of thin lines overlap in pixels of their own, which shows as beads.
            style = {"width_at": width, "capstyle": "butt"}
        ax.add_collection(Lines(to_numpy(ends), colors=color, zorder=2, **style), autolim=False)

    by, ends = part.mesh.edge_layer, part.vertices[part.edges]
    paper = to_rgb(background(ax))
    ink = to_rgb(ink_on(paper))
    pale = tuple(b + _EARLIER * (a - b) for a, b in zip(ink, paper, strict=True))
    draw(ends[(by >= 0) & (by < layer)], pale, _BEFORE, _BEFORE_SHARE)
    draw(ends[by == layer], ink, _LATEST, _LATEST_SHARE)
    if curve is not None:
        draw(curve, paper, _CURVE + _RIM)
        draw(curve, highlight, _CURVE)
    draw_border(ax, part.domain)
