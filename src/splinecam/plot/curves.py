"""Pictures of curves, paths, preimages and differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from splinecam.plot import figures
from splinecam.plot.arrays import to_numpy
from splinecam.plot.figures import flat_axes, new_axes, require_matplotlib
from splinecam.plot.palette import CLASSES, GREY, INK, PAPER, class_colors, text_color
from splinecam.plot.regions import HATCH, VEIL, hatch_rings, plot, plot_band
from splinecam.questions.boundary import Boundary, LevelSet, decision_boundary
from splinecam.questions.certainty import Band
from splinecam.questions.curves import Curves
from splinecam.questions.difference import Difference
from splinecam.questions.flow import FlowCheck
from splinecam.questions.paths import PathPartition
from splinecam.questions.pieces import output_number
from splinecam.questions.preimage import Preimage

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from splinecam.plot.colors import Coloring
    from splinecam.plot.decorations import AxesStyle
    from splinecam.questions.preimage import Witness

_VISIBLE = 1e-3  # the share of a domain that a curve does not hide
_COLORS = {"color", "colors", "array", "edgecolor", "edgecolors"}


def plot_curves(
    curves: Curves,
    *,
    ax: Axes | None = None,
    each: bool | None = None,
    colorbar: bool = True,
    legend: bool = True,
    **style: Any,
) -> Axes:
    """Draw curves, by default on a new figure in the frame of the domain.

    each: a colour for every level, unit or pair of classes, with a colour bar or a legend unless
    these are switched off; by default for several levels, if no colour is given. style: goes to
    matplotlib's ``LineCollection``: color, linewidth, label, ...

    >>> import splinecam as sc
    >>> part = sc.partition(torch.nn.Linear(2, 1), sc.Domain.box(-1, 1), progress=False)
    >>> ax = part.level_set([-0.1, 0.0, 0.1]).plot()
    >>> len(ax.collections)
    1
    """
    require_matplotlib()
    from splinecam.plot import decorations

    domain, own = curves.partition.domain, ax is None
    if ax is None:
        ax = new_axes(domain)
        decorations.set_frame(ax, domain)
        decorations.draw_border(ax, domain)
    flat_axes(ax)
    given = {k for k in _COLORS & style.keys() if style[k] is not None}
    several = isinstance(curves, LevelSet) and len(curves.levels) > 1
    plain = {k: to_numpy(v) for k, v in style.items()}
    style = {"linewidth": 1.6 * decorations.picture_scale(ax), "zorder": 3.3, **plain}
    if not given and (several if each is None else each):
        _plot_each(curves, ax, colorbar, legend, style)
    else:
        _plot_alike(curves, ax, given, style)
    decorations.clip_to(ax.collections[-1], ax, domain)
    if own:
        decorations.fit_figure(ax, domain)
    ax.autoscale_view()  # unless the limits are set, as after part.plot()
    return ax


def _plot_alike(curves: Curves, ax: Axes, given: set[str], style: dict[str, Any]) -> None:
    """Draw the curves in one colour, or each segment in its given colour."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba_array

    from splinecam.plot.artists import SegmentLines, ink_over

    several = style.get("array") is not None
    several = several or any(len(to_rgba_array(style[k])) > 1 for k in given)
    if not given:
        style["color"] = ink_over(ax)
    segments = to_numpy(curves.ends)
    lines = LineCollection(segments, **style) if several else SegmentLines(segments, **style)
    ax.add_collection(lines)


def _plot_each(
    curves: Curves, ax: Axes, colorbar: bool, legend: bool, style: dict[str, Any]
) -> None:
    """Draw every label in its colour, from a colour map for levels, otherwise from the palette."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    from splinecam.plot.artists import SegmentLines, ink_over
    from splinecam.plot.colors import MAX_ENTRIES
    from splinecam.plot.decorations import add_colorbar, add_legend, is_flat, make_room

    below = is_flat(curves.partition.domain)
    label, order = torch.sort(curves.label, stable=True)
    found, count = torch.unique_consecutive(label, return_counts=True)
    segments, groups = to_numpy(curves.ends[order]), count.tolist()
    if isinstance(curves, LevelSet):
        levels = np.asarray(curves.levels)[to_numpy(found)]
        first = 0 if ink_over(ax) == INK else 0.3
        colors = ListedColormap(colormaps["viridis"](np.linspace(first, 1, 256)))
        style = {"cmap": colors, "clim": (min(curves.levels), max(curves.levels)), **style}
        lines = SegmentLines(segments, array=levels, groups=groups, **style)
        ax.add_collection(lines)
        if colorbar:
            several = curves.partition._n_out > 1
            name = f"level of output {curves.output}" if several else "level"
            make_room(ax)
            bar = add_colorbar(ax, lines, name, below=below)
            if len(curves.levels) <= 12:
                bar.set_ticks(list(curves.levels))
        return
    palette = class_colors(len(found))
    ax.add_collection(SegmentLines(segments, colors=palette, groups=groups, **style))
    if legend and 0 < len(found) <= MAX_ENTRIES:
        names = [_name(curves, k) for k in found.tolist()]
        make_room(ax)
        add_legend(ax, list(zip(names, palette, strict=True)), below=below, curves=True)


def _name(curves: Curves, label: int) -> str:
    """The name of a label: "1 | 2" for a pair of classes, "layer 1, unit 5" for a unit."""
    key = curves.key(label)
    if not isinstance(key, tuple):
        return str(key)
    if isinstance(curves, Boundary) and curves.partition.names is not None:
        return " | ".join(curves.partition.names[k] for k in key)
    return ("layer {}, unit {}" if isinstance(key[0], str) else "{} | {}").format(*key)


def plot_partition(
    cycles: Sequence[Tensor],
    ax: Axes | None = None,
    xlims: Sequence[float] | None = None,
    ylims: Sequence[float] | None = None,
    *,
    edgecolor: Any = "w",
    linewidth: float = 0.3,
    alpha: float = 1.0,
    colors: Sequence[Any] | None = None,
    figsize: tuple[float, float] = (15, 15),
    color_range: Sequence[float] = (0.3, 1.0),
) -> Axes:
    """Draw a list of polygons, as the paper's code does; ``part.plot`` shows a partition better.

    cycles: polygons (k, 2), closed or open. ax: the axes to draw on, by default new ones on a
    figure of ``figsize`` inches. xlims, ylims: the visible part of the plane, by default all of it.
    edgecolor, linewidth: of the edges. alpha: the opacity. colors: one for each polygon, or some to
    draw from at random; by default random colours. color_range: the least and the largest red,
    green and blue of these. figsize: width and height of a new figure. The same polygons always get
    the same colours.

    >>> import torch
    >>> ax = plot_partition([torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])])
    >>> len(ax.collections[0].get_paths())
    1
    """
    require_matplotlib()
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba_array

    canvas = figures.new_figure(figsize=figsize).add_subplot() if ax is None else flat_axes(ax)
    random = np.random.default_rng(0)
    face: Any = colors
    if colors is None:
        face = random.random((len(cycles), 3)).clip(color_range[0], color_range[1])
    elif len(colors) != len(cycles):
        face = [colors[k] for k in random.integers(len(colors), size=len(cycles))]
    polygons, face = [np.asarray(to_numpy(polygon)) for polygon in cycles], to_rgba_array(face)
    style: Any = {"edgecolors": edgecolor, "linewidths": linewidth, "alpha": alpha}
    canvas.add_collection(PolyCollection(polygons, facecolors=face, **style))
    canvas.autoscale_view()
    canvas.set(xticks=[], yticks=[])
    if xlims is not None:
        canvas.set_xlim(*map(float, xlims))
    if ylims is not None:
        canvas.set_ylim(*map(float, ylims))
    return canvas


_MOST = 12  # outputs that are drawn by default, with the largest values
_BAND = 0.03  # height of the band of classes, as a share of the axes
_TICK = 0.035  # height of the ticks of breakpoints, as a share of the axes
_MANY = 400  # breakpoints above which ticks are fainter
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

    outputs: their numbers or names, by default all of up to 12. breakpoints: mark them by ticks at
    the bottom. classes: draw a band at the top in the colours of the classes. legend: name the
    outputs, if there are several. style: goes to matplotlib's ``Axes.plot``.

    >>> import torch, splinecam as sc
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> line = sc.Domain.segment([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    >>> ax = sc.along(net, line, progress=False).plot()
    >>> len(ax.lines)
    2
    """
    require_matplotlib()
    if ax is None:
        ax = figures.new_figure(figsize=_SIZE, layout="constrained").add_subplot()
    flat_axes(ax)
    figures.plain_spines(ax, GREY)
    count = part.values.shape[1]
    colors = class_colors(max(2, count))
    distance, values = to_numpy(part.t) * part.path.length, to_numpy(part.values)
    for k in _chosen(part, outputs):
        name = part.names[k] if part.names is not None and count > 1 else f"output {k}"
        own = {"color": colors[k], "linewidth": 1.6, "label": figures.written(name), **style}
        ax.plot(distance, values[:, k], **own)
    ax.set_xlim(0.0, part.path.length)
    ax.margins(y=0.1)
    ax.set_xlabel("distance along the path")
    ax.set_ylabel("output")
    if breakpoints:
        _draw_breakpoints(ax, part)
    if classes:
        found = part.decisions()
        begin = to_numpy(found.begin) * part.path.length
        end = np.append(begin[1:], part.path.length)
        band: Any = {"color": colors[to_numpy(found.label)], "align": "edge", "linewidth": 0}
        ax.bar(begin, _BAND, end - begin, 1 - _BAND, transform=ax.get_xaxis_transform(), **band)
    if legend and len(ax.lines) > 1:
        ax.legend(frameon=False, fontsize="small", ncols=1 + len(ax.lines) // 6)
    return ax


def _chosen(part: PathPartition, outputs: Sequence[int | str] | None) -> list[int]:
    """The outputs to draw."""
    if outputs is not None:
        return [output_number(each, part.names, part.values.shape[1]) for each in outputs]
    largest = to_numpy(part.values).max(0)
    return sorted(np.argsort(-largest, kind="stable")[:_MOST].tolist())


def _draw_breakpoints(ax: Axes, part: PathPartition) -> None:
    """Draw a tick at the bottom for every breakpoint."""
    from matplotlib.collections import LineCollection

    at = to_numpy(part.breakpoints) * part.path.length
    ticks = np.zeros((len(at), 2, 2))
    ticks[:, :, 0], ticks[:, 1, 1] = at[:, None], _TICK
    faint = 0.55 * min(1.0, (_MANY / max(1, len(at))) ** 0.5)
    style: Any = {"colors": text_color(ax.figure), "transform": ax.get_xaxis_transform()}
    lines = LineCollection(list(ticks), alpha=faint, linewidths=0.7, **style)
    ax.add_collection(lines, autolim=False)


_DOTS = "...."


def plot_preimage(
    found: Preimage,
    *,
    ax: Axes | None = None,
    hatch: str | None = HATCH,
    color: Any = INK,
    witness: Witness | None = None,
    words: tuple[str, str] = ("condition met", "witness"),
    **options: Any,
) -> Axes:
    """Draw the regions, hatch the part that satisfies the condition, and draw its outline.

    Curves and points at which the condition holds without an area are drawn like the outline, and
    so are thin polygons around the curves of a polynomial. If smooth functions of the model were
    replaced, the undecided part is dotted. found: the result of
    ``part.preimage``. hatch: the hatching in the words of matplotlib, or None. color: of the
    hatching, of the outline and of the witness. witness: an input to mark. words: names of the
    hatched part and of the witness in the legend. options: those of ``part.plot``; its ``color`` is
    called ``fill``.

    >>> import splinecam as sc, torch
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> ax = part.preimage([[1.0, 1.0]], [1.0]).plot(fill="white", axes="ticks")
    >>> ax.get_xlabel()
    '$x_{1}$'
    """
    require_matplotlib()
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from splinecam.plot.decorations import add_legend, fit_figure

    if "fill" in options:
        options["color"] = options.pop("fill")
    canvas = plot(found.partition, ax=ax, **{"band": False, **options})
    entries: list[tuple[str, Any]] = []
    curved = found.condition.factors is not None
    outlined = curved and found.partition.smoothing is None
    if hatch:
        rings = (found.cover if curved else found).rings()
        hatch_rings(canvas, rings, hatch, color)
        band = found.rim if outlined else found.band
        plot_band(band, ax=canvas, hatch=_DOTS, color=color)
        if len(rings[1]):
            entries.append((words[0], Patch(facecolor=VEIL, edgecolor=color, hatch=hatch)))
        if band.share > _VISIBLE * outlined:
            entries.append(("undecided", Patch(facecolor="none", edgecolor=color, hatch=_DOTS)))
    style: dict[str, Any] = {"color": color, "markeredgecolor": PAPER, "zorder": 3.4, "ls": ""}
    if outlined:
        _draw_rimmed(canvas, found.rim, color, 1.6)
    if not curved:
        for curves in (found.outline, found.curves):
            _draw_rimmed(canvas, curves, color, 1.6)
        canvas.plot(*to_numpy(found.points).T, marker="o", markersize=5, **style)
    if witness is not None:
        # Light with a dark rim, it shows on every class and on the hatching.
        star = {**style, "marker": "*", "color": PAPER, "markeredgecolor": color}
        canvas.plot(*witness.place, markersize=18, markeredgewidth=1.4, **star)
        entries.append((words[1], Line2D([], [], markersize=10, **star)))
    if entries and options.get("legend", True):
        add_legend(canvas, entries, below=True)
        if ax is None:
            fit_figure(canvas, found.partition.domain)
    return canvas


def plot_flow(
    found: FlowCheck, *, ax: Axes | None = None, color: Any = CLASSES[6], **options: Any
) -> Axes:
    """Draw the regions, the curve on which an output is zero, and where a flow leaves the set.

    found: of ``sc.check_barrier``, its ``flow``. color: of the parts where the flow leaves the set,
    with a star where it is fastest. options: those of ``part.plot``; its ``color`` is called
    ``fill``.
    """
    require_matplotlib()
    from matplotlib.lines import Line2D

    from splinecam.plot.artists import SegmentLines
    from splinecam.plot.decorations import add_legend, clip_to, fit_figure

    curves, pieces = found.curves, found.pieces
    fill = options.pop("fill", "class")
    canvas = plot(curves.partition, ax=ax, **{"boundary": False, "color": fill, **options})
    _draw_rimmed(canvas, curves, INK, 4.0)
    entries: list[tuple[str, Any]] = [("border of the set", Line2D([], [], color=INK))]
    ends = to_numpy(pieces[1])
    if len(ends):
        lines = SegmentLines(ends, colors=color, linewidths=2.6, zorder=3.3)
        canvas.add_collection(lines, autolim=False)
        clip_to(lines, canvas, curves.partition.domain)
        entries.append(("left by the flow", Line2D([], [], color=color, linewidth=3.2)))
    if found.least is not None:
        star: Any = {"marker": "*", "color": PAPER, "markeredgecolor": INK, "ls": ""}
        canvas.plot(*found.least, markersize=16, markeredgewidth=1.4, zorder=3.4, **star)
    add_legend(canvas, entries, below=True)
    if ax is None:
        fit_figure(canvas, curves.partition.domain)
    return canvas


_BOUNDARIES = (INK, CLASSES[1])  # of the first and of the second network


def plot_difference(  # noqa: PLR0913 - the options of a picture, each given by its name
    diff: Difference,
    *,
    ax: Axes | None = None,
    output: int | str | None = None,
    cmap: Any = None,
    limits: tuple[float, float] | None = None,
    edges: Any = False,
    boundary: bool = True,
    hatch: str | None = HATCH,
    level: float = 0.0,
    labels: tuple[str, str] = ("model a", "model b"),
    axes: AxesStyle = "scale",
    colorbar: bool = True,
    legend: bool = True,
) -> Axes:
    """Draw how much two networks differ, both decision boundaries, and where decisions differ.

    The colour of a pixel is the largest difference of an output there, without its sign. diff: the
    result of ``splinecam.difference``. output: only this output, by its number or the name of its
    class. cmap, limits: the colour map, and the numbers at its ends, by default 0 and the largest
    difference. edges: True to draw the edges of the common partition, or as for ``part.plot``.
    boundary: whether to draw the decision boundaries. hatch: the hatching where decisions differ,
    in the words of matplotlib, or None. level: with one output, the number between the two classes.
    labels: names of the networks in the legend. axes, colorbar, legend: as for ``part.plot``.

    >>> import splinecam as sc
    >>> a, b = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    >>> ax = sc.difference(a, b, sc.Domain.box(-1, 1), progress=False).plot(axes="ticks")
    >>> ax.get_xlabel()
    '$x_{1}$'
    """
    require_matplotlib()
    from splinecam.plot import picture
    from splinecam.plot.decorations import add_legend, fit_figure, is_flat

    domain = diff.delta.domain
    with torch.no_grad():
        coloring = _coloring(diff, output, cmap, picture.limits_pair(limits))
        classes = picture.Classes(None, None)
        content = picture.Content(diff.delta, coloring, classes, False, level, None)
        canvas = new_axes(domain) if ax is None else flat_axes(ax)
        image = picture.draw_cells(canvas, content, axes)
        picture.draw_edges(canvas, content, edges, None)
        if hatch:
            hatch_rings(canvas, diff.decisions(level=level).rings(), hatch, INK)
        if boundary:
            for part, color in zip((diff.a, diff.b), _BOUNDARIES, strict=True):
                _draw_rimmed(canvas, decision_boundary(part, level=level), color, 1.4)
    if colorbar:
        picture.add_colorbar(canvas, content, image, True)
    if legend and boundary:
        entries = list(zip(labels, _BOUNDARIES, strict=True))
        add_legend(canvas, entries, "boundary of", below=is_flat(domain), curves=True)
    if ax is None:
        fit_figure(canvas, domain)
    return canvas


def _coloring(
    diff: Difference, output: int | str | None, cmap: Any, limits: tuple[float, float] | None
) -> Coloring:
    """The modulus of the difference on cells where it is affine, and its scale."""
    from matplotlib.colors import Normalize

    from splinecam.plot.colors import Coloring, ColorOptions, output_name
    from splinecam.plot.rasters import CellColors

    if limits is not None and not limits[0] < limits[1]:
        raise ValueError(f"limits are {limits}; give (low, high) with low < high")
    cells = diff.magnitude(output)
    top = float(cells.values.max())
    norm = Normalize(*(limits or (0.0, top or 1.0)))
    label = "largest difference of an output"
    if output is not None or diff.delta.values.shape[1] == 1:
        name = output_name(diff.a, 0 if output is None else diff.output_index(output))
        label = f"difference of {name}"
    colors = ColorOptions(cmap=cmap).colormap("Blues")
    fill = CellColors(numbers=to_numpy(cells.origin), slopes=to_numpy(cells.slopes))
    return Coloring(cells.mesh, fill, label, norm, colors, (0.0, top))


def _draw_rimmed(ax: Axes, curves: Curves | Band, color: Any, width: float) -> None:
    """Draw curves in a colour and a width in points, with a light rim."""
    from splinecam.plot.artists import SegmentLines
    from splinecam.plot.decorations import clip_to

    for ink, wide, zorder in ((PAPER, width + 1.2, 3.1), (color, width, 3.2)):
        lines = SegmentLines(to_numpy(curves.ends), colors=ink, linewidths=wide, zorder=zorder)
        ax.add_collection(lines, autolim=False)
        clip_to(lines, ax, curves.partition.domain)
