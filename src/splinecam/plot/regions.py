"""The picture of a partition: regions, edges, decision boundary, samples."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from splinecam.analysis.boundary import decision_boundary
from splinecam.analysis.class_names import class_number
from splinecam.analysis.partition_data import PartitionData
from splinecam.plot.palette import INK, flat_axes, new_axes, require_matplotlib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from splinecam.plot.colors import Coloring
    from splinecam.plot.decorations import AxesStyle
    from splinecam.plot.points import Classes, Samples

__all__ = ["default_color", "plot"]


def plot(
    part: PartitionData,
    *,
    ax: Axes | None = None,
    color: Any = None,
    output: int | None = None,
    cmap: Any = None,
    limits: tuple[float, float] | None = None,
    edges: Any = None,
    boundary: bool | None = None,
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
    output: which one ``"slope"`` and ``"output"`` mean. cmap, limits: the colour map, and the
    numbers at its ends, by default those below which 1 % and 99 % of the area lie; slopes and areas
    are on a logarithmic scale. Of classes the second limit is the lead that has half of its colour,
    of vertices the largest number with a colour of its own. For pictures with equal limits that
    share a colour bar, switch off theirs, and call ``figure.colorbar(ax.images[0], ax=axes)``.
    colorbar: or ``"min"``, ``"max"``, ``"both"``, ``"neither"``, the ends that are pointed.
    legend: the classes that occur, ``"all"`` of them, so that a series of pictures has one legend,
    a list of some, or False.

    edges: False, the name of a colour for all of them, or the numbers of those to draw, such as
    ``part.merged().edges``. boundary: by default drawn on classes and where there are several
    outputs; with one output it is where that equals ``level``. points: inputs (N, ...), drawn where
    they project to, and hollow if they are off the plane; labels: their classes (N,), by number or
    name, grey if they are none; names of which the partition knows none get colours of their own.
    images: thumbnails (N, h, w) or (N, channels, h, w) beside them, or True if the points are
    images themselves. names: of the classes, two if there is one output; by default those of the
    partition. legend: the classes that occur, ``"all"`` of them, so that a series of pictures has
    one legend, a list of some, or False. axes: ``"scale"`` for a scale bar, ``"ticks"``, or
    ``"off"`` without axis labels, all in plane units. linewidth: of edges, in points.

    Lines are dark, or light on dark paper. The regions are an image that is computed in the
    resolution of the picture, also in PDF and SVG and after zooming; lines stay lines, unless there
    are very many.

    >>> import splinecam as sc
    >>> part = sc.partition(torch.nn.Linear(2, 3), sc.Domain.box(-1, 1), progress=False)
    >>> ax = part.plot(color="slope", axes="ticks")
    >>> ax.get_xlabel()
    'x₁'
    """
    require_matplotlib()
    from splinecam.plot.colors import Asked, coloring
    from splinecam.plot.decorations import (
        add_colorbar,
        draw_border,
        fit_figure,
        is_flat,
        make_room,
        set_frame,
    )
    from splinecam.plot.edges import draw_boundary, draw_edges
    from splinecam.plot.fill import CellImage, ink_over
    from splinecam.plot.points import Classes

    several, own = part.values.shape[1] > 1, ax is None
    color = default_color(part) if color is None else color
    classes = isinstance(color, str) and color == "class"
    with torch.no_grad():
        known = Classes.of(part, names, level, any_label=not classes)
        shown = _shown(part, legend, known)
        made = coloring(part, color, Asked(output, cmap, _pair(limits), level, seed, names, shown))
        if not isinstance(colorbar, bool):
            made = replace(made, extend=colorbar)
        ax = new_axes(part.domain) if ax is None else flat_axes(ax)
        _forget(ax)
        set_frame(ax, part.domain, axes)
        make_room(ax)
        image = CellImage(ax, made.mesh, part.frame, made.shade, norm=made.norm, cmap=made.cmap)
        ax.add_image(image)
        ink = ink_over(ax)
        if edges is None:
            edges = True if made.edges is None else made.edges
        draw_edges(part, ax, edges, linewidth, ink)
        draw_border(ax, part.domain)
        if (classes or several) if boundary is None else boundary:
            line = ink if boundary_color is None else boundary_color
            rim = ink == INK and not classes
            draw_boundary(ax, decision_boundary(part, level=level), line, rim=rim)
        samples = _draw_samples(part, ax, points, labels, images, known, apart=classes)
    below = is_flat(part.domain)
    if colorbar and made.norm is not None:
        add_colorbar(ax, image, made.label, extend=made.extend, below=below)
    if shown is not None or legend:
        _add_legends(ax, made, samples, known if classes else None, below)
    if own:
        fit_figure(ax, part.domain)
    return ax


def default_color(part: PartitionData) -> str:
    """What regions are coloured by if nothing is asked for."""
    return "class" if part.values.shape[1] > 1 or part.stripped else "output"


def _pair(limits: Any) -> tuple[float, float] | None:
    """The limits of a colour scale as two numbers."""
    if limits is None:
        return None
    try:
        low, high = (float(limit) for limit in limits)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"limits must be two numbers (low, high), not {limits!r}") from None
    return low, high


def _shown(part: PartitionData, legend: Any, known: Classes) -> Any:
    """The classes that are to be in the legend: None for those that occur, or "all", or which."""
    if isinstance(legend, bool | np.bool_) or legend is None:
        return None
    if isinstance(legend, str):
        if legend != "all":
            raise ValueError(f'legend is {legend!r}; give True, False, "all" or a list of classes')
        return "all"
    names = None if known.names is None else tuple(known.names)
    return tuple(class_number(k, names, max(2, part.values.shape[1])) for k in legend)


def _forget(ax: Axes) -> None:
    """Remove the colour bar and the legends of regions that are about to be covered."""
    from splinecam.plot.side_layout import SideLegend

    for image in ax.images:
        if image.colorbar is not None and image.colorbar.ax in ax.child_axes:
            image.colorbar.remove()
    for legend in [each for each in ax.artists if isinstance(each, SideLegend)]:
        if not legend.curves:
            legend.remove()


def _draw_samples(
    part: PartitionData,
    ax: Axes,
    points: Any,
    labels: Any,
    images: Any,
    classes: Classes,
    *,
    apart: bool,
) -> Samples | None:
    """Points and thumbnails, if there are some."""
    from splinecam.plot.points import draw_points, draw_thumbnails, samples_of

    if points is None:
        if labels is not None or images is not None:
            raise ValueError("labels and images belong to points: give points= as well")
        return None
    samples = samples_of(part.domain, points, labels, classes, apart=apart)
    draw_points(ax, samples)
    if images is not None and images is not False:
        draw_thumbnails(ax, part.domain, samples, points if images is True else images)
    return samples


def _add_legends(
    ax: Axes, made: Coloring, samples: Samples | None, classes: Classes | None, below: bool
) -> None:
    """The legend of the regions and that of the samples; one if both are the same classes."""
    from splinecam.plot.decorations import add_legend

    points = () if samples is None else samples.legend()
    if made.legend:
        entries = list(made.legend)
        if samples is not None and classes is samples.classes:
            known = {name for name, _ in entries}
            entries += [entry for entry in points if entry[0] not in known]
            place = {name: k for k, name in enumerate(classes.names or ())}
            entries.sort(key=lambda entry: place.get(entry[0], len(place)))
            points = ()
        add_legend(ax, entries, made.label, below=below)
    if points:
        add_legend(ax, points, below=True)
