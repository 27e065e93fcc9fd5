"""The steps of drawing a partition: cells, edges, boundary, samples, and what explains them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from splinecam.analysis.boundary import decision_boundary
from splinecam.analysis.class_names import class_number
from splinecam.analysis.partition_data import PartitionData
from splinecam.plot import decorations, edges
from splinecam.plot.cell_image import CellImage, ink_over
from splinecam.plot.colors import Coloring, ColorOptions, color_regions
from splinecam.plot.decorations import AxesStyle, add_legend, fit_figure, is_flat
from splinecam.plot.palette import BOUNDARY, BOUNDARY_ON_DARK, INK
from splinecam.plot.points import Classes, Samples, draw_points, draw_thumbnails, samples_of
from splinecam.plot.side_layout import SideLegend

__all__ = [
    "Content",
    "add_colorbar",
    "add_legends",
    "draw_boundary",
    "draw_cells",
    "draw_edges",
    "draw_samples",
    "fit_figure",
    "limits_pair",
]


@dataclass(frozen=True)
class Content:
    """What a picture shows: a partition, its colours, and the classes that labels may name.

    by_class: whether colours are classes; shown: the classes in the legend, if they are chosen.
    """

    part: PartitionData
    coloring: Coloring
    classes: Classes
    by_class: bool
    level: float
    shown: Any

    @classmethod
    def of(cls, part: PartitionData, color: Any, options: ColorOptions, legend: Any) -> Content:
        """The content of the picture that the options of ``part.plot`` describe."""
        by_class = isinstance(color, str) and color == "class"
        classes = Classes.of(part, options.names, options.level, any_label=not by_class)
        shown = _shown_classes(part, legend, classes)
        coloring = color_regions(part, color, replace(options, shown=shown))
        return cls(part, coloring, classes, by_class, options.level, shown)


def limits_pair(limits: Any) -> tuple[float, float] | None:
    """The limits of a colour scale as two numbers."""
    if limits is None:
        return None
    try:
        low, high = (float(limit) for limit in limits)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"limits must be two numbers (low, high), not {limits!r}") from None
    return low, high


def _shown_classes(part: PartitionData, legend: Any, classes: Classes) -> Any:
    """The classes in the legend: None for those that occur, "all", or their numbers."""
    if isinstance(legend, bool | np.bool_) or legend is None:
        return None
    if isinstance(legend, str):
        if legend != "all":
            raise ValueError(f'legend is {legend!r}; give True, False, "all" or a list of classes')
        return "all"
    names = None if classes.names is None else tuple(classes.names)
    return tuple(class_number(k, names, max(2, part.values.shape[1])) for k in legend)


def draw_cells(ax: Axes, content: Content, style: AxesStyle) -> CellImage:
    """Draw the coloured cells in a frame, in place of the cells that were drawn earlier."""
    part, coloring = content.part, content.coloring
    for image in ax.images:
        if image.colorbar is not None and image.colorbar.ax in ax.child_axes:
            image.colorbar.remove()
    for legend in [each for each in ax.artists if isinstance(each, SideLegend)]:
        if not legend.curves:
            legend.remove()
    decorations.set_frame(ax, part.domain, style)
    decorations.make_room(ax)
    colors: Any = {"norm": coloring.norm, "cmap": coloring.cmap}
    image = CellImage(ax, coloring.mesh, part.frame, coloring.fill, **colors)
    ax.add_image(image)
    return image


def draw_edges(ax: Axes, content: Content, chosen: Any, width: float | None) -> None:
    """Draw the edges and the border of the domain; by default the edges of the colouring."""
    if chosen is None:
        chosen = True if content.coloring.edges is None else content.coloring.edges
    edges.draw_edges(content.part, ax, chosen, width, ink_over(ax))
    decorations.draw_border(ax, content.part.domain)


def draw_boundary(ax: Axes, content: Content, wanted: bool | None, color: Any) -> None:
    """Draw the decision boundary, by default on classes and where there are several outputs."""
    several = content.part.values.shape[1] > 1
    if (content.by_class or several) if wanted is None else wanted:
        light = ink_over(ax) == INK
        if color is None:
            color = BOUNDARY if light else BOUNDARY_ON_DARK
        curves = decision_boundary(content.part, level=content.level)
        edges.draw_boundary(ax, curves, color, rim=light and not content.by_class)


def draw_samples(
    ax: Axes, content: Content, points: Any, labels: Any, images: Any
) -> Samples | None:
    """Draw points and thumbnails, if there are any."""
    if points is None:
        if labels is not None or images is not None:
            raise ValueError("labels and images belong to points: give points= as well")
        return None
    domain = content.part.domain
    samples = samples_of(domain, points, labels, content.classes, distinct=content.by_class)
    draw_points(ax, samples)
    if images is not None and images is not False:
        draw_thumbnails(ax, samples, points if images is True else images)
    return samples


def add_colorbar(ax: Axes, content: Content, image: CellImage, wanted: Any) -> None:
    """Add a colour bar if colours follow numbers. wanted: True, or the ends that are pointed."""
    coloring = content.coloring
    if coloring.norm is not None:
        extend = coloring.extend if isinstance(wanted, bool) else wanted
        below = is_flat(content.part.domain)
        decorations.add_colorbar(ax, image, coloring.label, extend=extend, below=below)


def add_legends(ax: Axes, content: Content, samples: Samples | None) -> None:
    """Add the legends of the regions and of the samples; one if both show the same classes."""
    points: Sequence[tuple[str, Any]] = () if samples is None else samples.legend()
    coloring = content.coloring
    if coloring.legend:
        entries = list(coloring.legend)
        if samples is not None and content.by_class and content.classes is samples.classes:
            known = {name for name, _ in entries}
            entries += [entry for entry in points if entry[0] not in known]
            place = {name: k for k, name in enumerate(content.classes.names or ())}
            entries.sort(key=lambda entry: place.get(entry[0], len(place)))
            points = ()
        add_legend(ax, entries, coloring.label, below=is_flat(content.part.domain))
    if points:
        add_legend(ax, points, below=True)
