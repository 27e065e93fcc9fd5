"""The partition layer by layer: what each non-linearity adds, and the curve of one of its units."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from splinecam.growth import regions_by_layer
from splinecam.neurons import op_of
from splinecam.plot.palette import INK, PAPER, require_matplotlib
from splinecam.plot.regions import plot
from splinecam.ragged import lengths

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from splinecam.partition import Partition

__all__ = ["plot_layers"]

_EARLIER = "#a9b0b9"
_HIGHLIGHT = "#D55E00"
# Widths in points and as a share of the lines' spacing: of a layer's lines, of those before it.
_LATEST, _LATEST_SHARE = 0.9, 0.12
_BEFORE, _BEFORE_SHARE = 0.5, 0.08
_CURVE, _RIM = 1.7, 1.4
_HEAD = 0.42  # inches for the title of a panel
_MANY = 100_000  # regions up to which curves of units are made with the model


def plot_layers(
    part: Partition,
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
    one of its units switches is drawn in the colour ``highlight``. With ``whole`` a last panel has
    all regions, as ``part.plot`` draws them with ``style``: color, boundary, points, ...

    layers: names of ``part.cuts`` or indices into them, by default all that add lines. unit: which
    units to show, one for each layer or by layer (others then show none); by default the one with
    the longest line of each layer, or none if the partition was loaded without its model. columns:
    panels in a row; size: of a panel, in inches.

    The curves are exact. Where there are more than 100,000 regions, pieces that lie on a line of
    another unit are left out, as only the model knows them.

    >>> import torch, splinecam as sc
    >>> relu, linear = torch.nn.ReLU(), torch.nn.Linear
    >>> model = torch.nn.Sequential(linear(2, 8), relu, linear(8, 8), relu, linear(8, 1))
    >>> part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    >>> figure = part.plot_layers(unit={"1": 3}, color="slope")
    """
    require_matplotlib()
    import matplotlib.pyplot as plt

    ops = _ops(part, layers)
    units = _units(part, ops, unit)
    counts = regions_by_layer(part)
    panels = len(ops) + whole
    if not panels:
        raise ValueError("there is nothing to draw: no layer adds lines, and whole is False")
    across = _across(columns, panels)
    down = math.ceil(panels / across)
    extent = part.domain.corners.amax(0) - part.domain.corners.amin(0)
    high = float(extent[1] / extent[0]) * size + _HEAD
    figure = plt.figure(figsize=(across * size, down * high), layout="constrained")
    for k, (op, chosen) in enumerate(zip(ops, units, strict=True)):
        ax = figure.add_subplot(down, across, k + 1)
        _panel(part, ax, op, chosen, highlight)
        _title(ax, f"layer {part.cuts[op]}", counts[op], chosen)
    if whole:
        ax = figure.add_subplot(down, across, panels)
        plot(part, ax=ax, **{"axes": "off", "legend": False, "colorbar": False, **style})
        _title(ax, "all layers", len(part), None)
    return figure


def _across(columns: int | None, panels: int) -> int:
    """How many panels a row has."""
    if columns is None:
        return panels if panels <= 4 else math.ceil(math.sqrt(panels))
    if operator.index(columns) < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    return min(operator.index(columns), panels)


# -- what is asked for -----------------------------------------------------------------------


def _ops(part: Partition, layers: Sequence[str | int] | None) -> list[int]:
    """The layers to show, as indices of cuts."""
    if layers is None:
        lines = torch.bincount(part.edge_op + 1, minlength=len(part.cuts) + 1)[1:]
        return torch.nonzero(lines)[:, 0].tolist()
    return [op_of(part, layer) for layer in ([layers] if isinstance(layers, str) else layers)]


def _units(
    part: Partition,
    ops: list[int],
    unit: Mapping[str | int, int] | Sequence[int | None] | None,
) -> list[int | None]:
    """The unit to show of each layer, if any."""
    if unit is None:
        return [_longest(part, op) if part._model is not None else None for op in ops]
    if isinstance(unit, Mapping):
        chosen = {op_of(part, layer): number for layer, number in unit.items()}
        unseen = set(chosen) - set(ops)
        if unseen:
            names = ", ".join(repr(part.cuts[op]) for op in sorted(unseen))
            raise ValueError(f"units are chosen of {names}, which is not among the layers shown")
        return [chosen.get(op) for op in ops]
    if not isinstance(unit, Sequence) or len(unit) != len(ops):
        shown = ", ".join(repr(part.cuts[op]) for op in ops)
        raise ValueError(f"unit must name one unit for each of the layers {shown}, not {unit!r}")
    return list(unit)


def _longest(part: Partition, op: int) -> int | None:
    """The unit that drew the most of a layer's lines."""
    edge = (part.edge_op == op).nonzero()[:, 0]
    if not edge.shape[0]:
        return None
    ends = part.mesh.uv[part.edges[edge]]
    drawn = torch.bincount(part.edge_unit[edge], lengths(ends[:, 1] - ends[:, 0]))
    return int(drawn.argmax())


# -- drawing ---------------------------------------------------------------------------------


def _panel(part: Partition, ax: Axes, op: int, unit: int | None, highlight: str) -> None:
    """Draw the lines up to a layer, and the curve of a unit."""
    from splinecam.plot.furniture import draw_border, set_frame

    set_frame(ax, part.domain, "off")
    by, ends = part.edge_op, part.vertices[part.edges]
    _lines(part, ax, ends[(by >= 0) & (by < op)], _EARLIER, _BEFORE, _BEFORE_SHARE)
    _lines(part, ax, ends[by == op], INK, _LATEST, _LATEST_SHARE)
    if unit is not None:
        curve = _curve(part, op, unit)
        _lines(part, ax, curve, PAPER, _CURVE + _RIM)
        _lines(part, ax, curve, highlight, _CURVE)
    draw_border(ax, part.domain)


def _curve(part: Partition, op: int, unit: int) -> Tensor:
    """Where a unit switches, (S, 2, 2)."""
    if len(part) <= _MANY:
        return part.neurons(layer=op, unit=unit).ends
    return part.vertices[part.edges[(part.edge_op == op) & (part.edge_unit == unit)]]


def _lines(
    part: Partition, ax: Axes, ends: Tensor, color: str, most: float, share: float | None = None
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


def _title(ax: Axes, name: str, regions: int, unit: int | None) -> None:
    shown = "" if unit is None else f", unit {unit}"
    text = f"{name}{shown}\n{regions:,} region{'s' * (regions != 1)}"
    ax.set_title(text, fontsize=8, color=INK, pad=4)
