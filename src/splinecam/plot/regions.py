"""The pictures of a partition, whole and layer by layer, and hatched areas on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from splinecam._util.arrays import lengths
from splinecam.plot import figures
from splinecam.plot.arrays import to_numpy
from splinecam.plot.palette import HIGHLIGHT, background, ink_on, text_color
from splinecam.questions.boundary import knows_classes
from splinecam.questions.certainty import Band, class_band
from splinecam.questions.measures import layer_index, regions_by_layer
from splinecam.questions.neurons import neurons
from splinecam.questions.partition_data import PartitionData, counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from splinecam.plot.decorations import AxesStyle

HATCH = "//////"
VEIL = (1.0, 1.0, 1.0, 0.35)  # lies on the colours below the hatching


def hatch_rings(
    ax: Axes, rings: tuple[Tensor, Tensor], hatch: str | None, color: Any, *, veil: Any = VEIL
) -> None:
    """Hatch the areas in closed rings (offsets, points) on a veil, a translucent colour."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    offsets, points = map(to_numpy, rings)
    if len(points) == 0:
        return
    codes = np.full(len(points), Path.LINETO, np.uint8)
    codes[offsets[:-1]] = Path.MOVETO
    codes[offsets[1:] - 1] = Path.CLOSEPOLY
    style: dict[str, Any] = {"facecolor": veil, "edgecolor": color, "linewidth": 0, "zorder": 2.9}
    ax.add_patch(PathPatch(Path(points, codes), hatch=hatch, **style))


_HATCH, _STRENGTH = "////", 0.3  # the veil shows also where a band is narrow


def plot_band(
    band: Band, *, ax: Axes | None = None, hatch: str | None = _HATCH, color: Any = None
) -> Axes:
    """Hatch a band, by default on a new figure in the frame of the domain.

    band: what to hatch. ax: where to draw, such as the axes of ``part.plot``. hatch: the hatching
    in the words of matplotlib, or None for a veil alone. color: of the hatching, by default dark,
    or light on dark paper.

    >>> import splinecam as sc, torch
    >>> part = sc.partition(torch.nn.Linear(2, 1), sc.Domain.box(-1, 1), progress=False)
    >>> ax = part.plot()
    >>> part.decision_boundary().band.plot(ax) is ax  # an exact partition has no band
    True
    """
    figures.require_matplotlib()
    from matplotlib.colors import to_rgba

    from splinecam.plot.artists import ink_over
    from splinecam.plot.decorations import draw_border, fit_figure, set_frame

    domain = band.partition.domain
    canvas = figures.new_axes(domain) if ax is None else figures.flat_axes(ax)
    if ax is None:
        set_frame(canvas, domain)
    ink = ink_over(canvas) if color is None else color
    hatch_rings(canvas, band.rings(), hatch, ink, veil=to_rgba(ink, _STRENGTH))
    if ax is None:
        draw_border(canvas, domain)
        fit_figure(canvas, domain)
    return canvas


def plot(  # noqa: PLR0913 - the options of a picture, each given by its name
    part: PartitionData,
    *,
    ax: Axes | None = None,
    color: Any = None,
    output: int | None = None,
    cmap: Any = None,
    limits: tuple[float, float] | None = None,
    edges: Any = None,
    boundary: bool | None = None,
    band: bool = True,
    level: float = 0.0,
    points: Any = None,
    labels: Any = None,
    images: Any = None,
    names: Sequence[str] | None = None,
    axes: AxesStyle = "scale",
    colorbar: bool | Literal["neither", "min", "max", "both"] = True,
    legend: bool | Literal["all"] | Sequence[int | str] = True,
    linewidth: float | None = None,
    boundary_color: Any = None,
    seed: int = 0,
) -> Axes:
    """Draw the regions, the edges by the layer that drew them, and the decision boundary.

    color: ``"class"`` (the winner, paler where it leads by less), ``"slope"`` (size of the gradient
    in the plane), ``"area"``, ``"output"`` (its exact value at every pixel), ``"layer"`` (the last
    one that bounds the region), ``"vertices"``, ``"random"`` (by ``seed``; neighbours differ),
    ``"merged"`` (likewise, the pieces of ``part.merged()``), an array of numbers (F,), colours
    (F, 3 or 4) or names of colours (F,), or one colour for all (``"white"``, ``"none"``). By
    default the class if there are several outputs or a final sigmoid was left out, else the output.
    output: the output that ``"slope"`` and ``"output"`` mean. cmap, limits: the colour map, and the
    numbers at its ends, by default those below which 1 % and 99 % of the area lie; slopes and areas
    are on a logarithmic scale. For classes the second limit is the lead at which a class has half
    of its colour, for vertices the largest number with a colour of its own. If pictures with equal
    limits share a colour bar, switch off theirs, and call ``figure.colorbar(ax.images[0],
    ax=axes)``. colorbar: True, False, or the pointed ends: ``"min"``, ``"max"``, ``"both"``,
    ``"neither"``. legend: True for the classes that occur, ``"all"`` for one legend in a series of
    pictures, a list of classes, or False.

    edges: False, the name of a colour for all edges, or the numbers of some, such as
    ``part.merged().edges``. linewidth: of edges, in points. boundary: by default drawn on classes
    and where there are several outputs; one output has its boundary where it equals ``level``.
    band: hatch where the boundary of a model with smooth functions may lie, if it is drawn. points:
    inputs (N, ...), drawn at their projections, and hollow if they are off the plane; labels: their
    classes (N,), by number or name. Labels that are no classes are grey; names that the partition
    does not know get colours of their own. images: thumbnails (N, h, w) or (N, channels, h, w)
    beside the points, or True if the points are images themselves. names: of the classes, two if
    there is one output; by default the partition's. axes: ``"scale"`` for a scale bar, ``"ticks"``,
    or ``"off"`` without axis labels, all in plane units.

    Lines are dark, or light on dark paper. The regions are an image in the resolution of the
    picture, also in PDF and SVG and after zooming; lines stay lines, unless there are very many.

    >>> import splinecam as sc
    >>> part = sc.partition(torch.nn.Linear(2, 3), sc.Domain.box(-1, 1), progress=False)
    >>> ax = part.plot(color="slope", axes="ticks")
    >>> ax.get_xlabel()
    '$x_{1}$'
    """
    figures.require_matplotlib()
    from splinecam.plot import picture
    from splinecam.plot.colors import ColorOptions, certain_colors
    from splinecam.plot.decorations import fit_figure

    options = ColorOptions(output, cmap, picture.limits_pair(limits), level, seed, names)
    if color is None:
        color = certain_colors(part) if part._is_partial else default_color(part, level)
    with torch.no_grad():
        content = picture.Content.of(part, color, options, legend)
        canvas = figures.new_axes(part.domain) if ax is None else figures.flat_axes(ax)
        image = picture.draw_cells(canvas, content, axes)
        picture.draw_edges(canvas, content, edges, linewidth)
        if band and part.smoothing is not None and picture.boundary_shown(content, boundary):
            plot_band(class_band(part, smallest=False, level=level), ax=canvas)
        picture.draw_boundary(canvas, content, boundary, boundary_color)
        samples = picture.draw_samples(canvas, content, points, labels, images)
    if colorbar:
        picture.add_colorbar(canvas, content, image, colorbar)
    if content.shown is not None or legend:
        picture.add_legends(canvas, content, samples)
    if ax is None:
        fit_figure(canvas, part.domain)
    return canvas


def default_color(part: PartitionData, level: float = 0.0) -> str:
    """What regions are coloured by unless a colour is given."""
    if part._wanted is not None:
        return "class" if knows_classes(part, level) else "random"
    return "class" if part._n_out > 1 or part.stripped else "output"


_EARLIER = 0.37  # the strength of the lines of earlier layers
# Widths in points and as a share of the lines' spacing: of a layer's lines, of earlier lines.
_LATEST, _LATEST_SHARE = 0.9, 0.12
_BEFORE, _BEFORE_SHARE = 0.5, 0.08
_CURVE, _RIM = 1.7, 1.4
_PAD, _GAP = 0.07, 0.055  # inches around a panel with its title, and between the two
_FONT, _SMALLEST, _LINE = 8.0, 5.0, 1.25  # of titles: sizes in points, and the height of a line
_MANY = 100_000  # regions up to which the model computes the curves of units


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
    """Draw a panel per layer: the regions up to this layer, and the curve of one unit.

    The new lines of a layer are dark, earlier lines are grey, and the curve on which one of its
    units switches has the colour ``highlight``. If the unit switches nowhere on the domain, the
    title says so. With ``whole`` a last panel has all regions, as ``part.plot`` draws them with
    ``style``: color, boundary, points, ...

    layers: names of ``part.layers`` or indices into them, by default all that add lines. unit:
    the units to show, one for each layer or by layer (others then show none); by default the unit
    with the longest line of each layer, or none if the partition was loaded without its model.
    columns: panels in a row; whole: whether the last panel is drawn; highlight: the colour of the
    curve; size: of a panel, in inches.

    The curves are exact. With more than 100,000 regions, pieces on a line of another unit are
    missing, as only the model knows them.

    >>> import torch, splinecam as sc
    >>> relu, linear = torch.nn.ReLU(), torch.nn.Linear
    >>> model = torch.nn.Sequential(linear(2, 8), relu, linear(8, 8), relu, linear(8, 1))
    >>> part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    >>> figure = part.plot.layers(unit={"1": 3}, color="slope")
    """
    figures.require_matplotlib()
    from splinecam.plot.decorations import overhang

    part._require("the regions after each layer")
    if layers is None:
        lines = torch.bincount(part.mesh.edge_layer + 1, minlength=len(part.layers) + 1)[1:]
        shown = torch.nonzero(lines)[:, 0].tolist()
    else:
        chosen = [layers] if isinstance(layers, str) else layers
        shown = [layer_index(part, layer) for layer in chosen]
    units = _units(part, shown, unit)
    if not len(shown) + whole:
        raise ValueError("there is nothing to draw: no layer adds lines, and whole is False")
    curves = [_curve(part, *each) for each in zip(shown, units, strict=True)]
    counts = regions_by_layer(part)
    three = zip(shown, units, curves, strict=True)
    titles = [figures.written(_title(part, *each, counts)) for each in three]
    titles += [f"all layers\n{counted(len(part), 'region')}"] * whole
    default = len(titles) if len(titles) <= 4 else math.ceil(math.sqrt(len(titles)))
    figure = _new_panels(part, titles, figures.panel_columns(columns, len(titles), default), size)
    for ax, layer, curve in zip(figure.axes, shown, curves, strict=False):
        _draw_panel(part, ax, layer, curve, highlight)
    if whole:
        options = {"axes": "off", "legend": False, "colorbar": False, **style}
        last = plot(part, ax=figure.axes[-1], **options)
        left, right, below = (size / figure.dpi for size in overhang(last))
        wide, high = figure.get_size_inches()
        figure.set_size_inches(wide + left + right, high + below)
    return figure


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
            raise ValueError(f"unit has units of {names}, which is not among the layers shown")
        return [chosen.get(k) for k in layers]
    if not isinstance(unit, Sequence) or len(unit) != len(layers):
        shown = ", ".join(repr(part.layers[k]) for k in layers)
        raise ValueError(f"unit must name one unit for each of the layers {shown}, not {unit!r}")
    return list(unit)


def _longest(part: PartitionData, layer: int) -> int | None:
    """The unit with the longest line of a layer, if any; a refinement has no units."""
    edge = (part.mesh.edge_layer == layer).nonzero()[:, 0]
    if layer >= len(part._network.layers) or not edge.shape[0]:
        return None
    ends = part.mesh.uv[part.mesh.edges[edge]]
    drawn = torch.bincount(part.mesh.edge_unit[edge], lengths(ends[:, 1] - ends[:, 0]))
    return int(drawn.argmax())


def _curve(part: PartitionData, layer: int, unit: int | None) -> Tensor | None:
    """The segments (S, 2, 2) on which a unit switches."""
    if unit is None:
        return None
    if len(part) <= _MANY:
        return neurons(part, layer=layer, unit=unit).ends
    own = (part.mesh.edge_layer == layer) & (part.mesh.edge_unit == unit)
    return part.vertices[part.mesh.edges[own]]


def _title(
    part: PartitionData, layer: int, unit: int | None, curve: Tensor | None, counts: list[int]
) -> str:
    """The layer, the number of regions so far, and the unit."""
    name = f"layer {layer + 1} of {len(part.layers)} ({part.layers[layer]!r})"
    text = f"{name}\n{counted(counts[layer], 'region')}"
    if curve is None:
        return text
    return f"{text}, unit {unit}" + ("" if len(curve) else " switches nowhere")


def _new_panels(part: PartitionData, titles: list[str], columns: int, size: float) -> Figure:
    """A new figure with axes and their titles, as high as they need."""
    from splinecam.plot.decorations import set_frame
    from splinecam.plot.images import font_that_fits

    wide = size - 2 * _PAD
    lines = [line for title in titles for line in title.split("\n")]
    font = font_that_fits(lines, wide, _FONT, _SMALLEST)
    figure = figures.new_figure()
    rows = math.ceil(len(titles) / columns)
    for k, title in enumerate(titles):
        ax = figure.add_subplot(rows, columns, k + 1)
        set_frame(ax, part.domain, "off")
        ax.set_title(figures.written(title), fontsize=font, color=text_color(figure), pad=72 * _GAP)
    view = figure.axes[0].viewLim
    high = wide * view.height / view.width + 2 * _LINE * font / 72 + _GAP + 2 * _PAD
    figure.set_size_inches(columns * size, rows * high)
    figure.set_layout_engine("compressed", w_pad=_PAD, h_pad=_PAD, wspace=0, hspace=0)
    return figure


def _draw_panel(
    part: PartitionData, ax: Axes, layer: int, curve: Tensor | None, highlight: str
) -> None:
    """Draw the lines of the layers up to a given one, and the curve of a unit."""
    from matplotlib.colors import to_rgb

    from splinecam.plot.artists import SegmentLines, line_width
    from splinecam.plot.decorations import draw_border

    def draw(ends: Tensor, color: Any, most: float, share: float | None = None) -> None:
        length = float(lengths(ends[:, 1] - ends[:, 0]).sum())
        style: dict[str, Any] = {"linewidths": most}
        if share is not None and length > 0:
            width = partial(line_width, part.domain.area / length, share, most, 0.0, 0.0)
            # Round caps of thin lines would overlap and look like beads.
            style = {"width_at": width, "capstyle": "butt"}
        ax.add_collection(
            SegmentLines(to_numpy(ends), colors=color, zorder=2, **style), autolim=False
        )

    by, ends = part.mesh.edge_layer, part.vertices[part.mesh.edges]
    paper = to_rgb(background(ax))
    ink = to_rgb(ink_on(paper))
    pale = tuple(b + _EARLIER * (a - b) for a, b in zip(ink, paper, strict=True))
    draw(ends[(by >= 0) & (by < layer)], pale, _BEFORE, _BEFORE_SHARE)
    draw(ends[by == layer], ink, _LATEST, _LATEST_SHARE)
    if curve is not None:
        draw(curve, paper, _CURVE + _RIM)
        draw(curve, highlight, _CURVE)
    draw_border(ax, part.domain)
