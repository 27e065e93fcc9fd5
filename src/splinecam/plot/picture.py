"""The parts of a partition's picture: cells, edges, boundary, samples, and keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import is_color_like
from torch import Tensor

from splinecam._util.arrays import lengths
from splinecam.geometry.domain import Domain
from splinecam.plot import decorations
from splinecam.plot.arrays import to_numpy
from splinecam.plot.cell_images import CellImage, PlaneImage, ink_over
from splinecam.plot.colors import Coloring, ColorOptions, color_regions
from splinecam.plot.decorations import AxesStyle, SideLegend, add_legend, is_flat
from splinecam.plot.lines import Lines, line_width
from splinecam.plot.palette import BOUNDARY, BOUNDARY_ON_DARK, INK, PAPER
from splinecam.plot.points import Classes, Samples, draw_points, draw_thumbnails, samples_of
from splinecam.questions.boundary import Boundary, boundary_of, decision_boundary, winners_of
from splinecam.questions.partition_data import PartitionData, class_number

# Widths in points, and as a share of the lines' spacing, from the first layer to the last.
_WIDEST, _NARROWEST = 0.6, 0.35
_SHARE = 0.06
_STRONG, _WEAK = 0.6, 0.45  # opacity
_EDGES = "give True, False, the numbers of the edges to draw, or the name of a colour for all"

_BOUNDARY, _LEAST_BOUNDARY, _RIM = 1.9, 0.5, 1.6
_BOUNDARY_SHARE, _APART = 0.25, 0.02


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
        entries = () if shown is None and not legend else shown
        coloring = color_regions(part, color, replace(options, shown=entries))
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
    coloring = content.coloring
    prepare(ax, content.part.domain, style)
    colors: Any = {"norm": coloring.norm, "cmap": coloring.cmap}
    image = CellImage(ax, coloring.mesh, content.part._frame, coloring.fill, **colors)
    ax.add_image(image)
    return image


def prepare(ax: Axes, domain: Domain, style: AxesStyle) -> None:
    """Make axes the frame of a domain, without what explained the cells that were there."""
    for image in ax.images:
        if image.colorbar is not None and image.colorbar.ax in ax.child_axes:
            image.colorbar.remove()
    for legend in [each for each in ax.artists if isinstance(each, SideLegend)]:
        if not legend.curves:
            legend.remove()
    decorations.set_frame(ax, domain, style)
    decorations.make_room(ax)


def draw_edges(ax: Axes, content: Content, edges: Any, width: float | None) -> None:
    """Draw edges by layer, the first layer on top, and the border of the domain.

    Later layers are lighter and thinner. The width of a layer's lines follows from how close the
    lines of this layer and of those before are, so that the first layers stay visible where the
    last ones are dense. edges: the numbers of those to draw, the colour of all, or a flag; by
    default those of the colouring.
    """
    part = content.part
    if edges is None:
        edges = True if content.coloring.edges is None else content.coloring.edges
    ink = edge_ink(ax, edges)
    chosen = _chosen(part, True if isinstance(edges, str) else edges)
    layer, segments = part.mesh.edge_layer[chosen], part.vertices[part.edges[chosen]]
    draw_layers(ax, layer, segments, (len(part.layers), part.domain.area), ink, width)
    decorations.draw_border(ax, part.domain)


def edge_ink(ax: Axes, edges: Any) -> str:
    """The colour of edges: as given, or one that is seen on the cells."""
    if isinstance(edges, str):
        if not is_color_like(edges):
            raise TypeError(f"edges is {edges!r}, which is no colour; {_EDGES}")
        return edges
    return ink_over(ax)


def draw_layers(
    ax: Axes,
    layer: Tensor,
    segments: Tensor,
    shown: tuple[int, float],
    ink: str,
    width: float | None,
) -> None:
    """Draw segments (N, 2, 2) of the given layers (N,), -1 on the border.

    shown: the number of layers, and the area that the segments are spread over.
    """
    layers, area = shown
    length = lengths(segments[:, 1] - segments[:, 0])
    inner = layer >= 0
    total = length.new_zeros(layers).index_add_(0, layer[inner], length[inner])
    spacing = (area / total.cumsum(0)).cpu().tolist()
    depth = max(layers - 1, 1)
    for k in reversed(range(layers)):
        late = k / depth
        most = _WIDEST + (_NARROWEST - _WIDEST) * late
        width_at = partial(line_width, spacing[k], _SHARE, most, 0.0, 0.0)
        style: dict[str, Any] = {"width_at": width_at}
        if width is not None:
            style = {"linewidths": width}
        style |= {"alpha": _STRONG + (_WEAK - _STRONG) * late, "zorder": 2 + (1 - late) / 2}
        lines = Lines(to_numpy(segments[layer == k]), colors=ink, **style)
        ax.add_collection(lines, autolim=False)


def _chosen(part: PartitionData, edges: Any) -> Tensor:
    """Indices of the edges to draw, (N,)."""
    device = part.edges.device
    if isinstance(edges, (bool, np.bool_)):
        return torch.arange(part.edges.shape[0] if edges else 0, device=device)
    index = torch.as_tensor(edges, device=device).reshape(-1)
    if index.dtype == torch.bool and index.shape[0] == part.edges.shape[0]:
        return index.nonzero()[:, 0]
    if index.is_floating_point() or index.dtype == torch.bool:
        raise TypeError(f"edges: {_EDGES}")
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < part.edges.shape[0]:
        raise IndexError(f"edges: the partition has {part.edges.shape[0]:,}, numbered from 0")
    return index.long()


def draw_boundary(
    ax: Axes,
    content: Content,
    wanted: bool | None,
    color: Any,
    find: Callable[[], Boundary] | None = None,
) -> None:
    """Draw the decision boundary, by default on classes and where there are several outputs.

    A white rim makes it visible on the dark colours of numbers. find: finds the boundary, by
    default in the partition of the content.
    """
    part, light = content.part, ink_over(ax) == INK
    if not boundary_shown(content, wanted):
        return
    curves = _boundary(content) if find is None else find()
    if not len(curves):
        return
    if color is None:
        color = BOUNDARY if light else BOUNDARY_ON_DARK
    spacing = part.domain.area / max(curves.length, np.finfo(np.float64).tiny)
    spacing = min(spacing, _APART * part.domain.diameter)  # thinner lines on small pictures
    segments, rim = to_numpy(curves.ends), light and not content.by_class
    for ink, extra, zorder in [(color, 0.0, 3.2)] + [(PAPER, _RIM, 3.1)] * rim:
        ends = _BOUNDARY, _LEAST_BOUNDARY, extra
        width = partial(line_width, spacing, _BOUNDARY_SHARE, *ends)
        lines = Lines(segments, colors=ink, width_at=width, zorder=zorder)
        ax.add_collection(lines, autolim=False)
        decorations.clip_to(lines, ax, part.domain)


def _boundary(content: Content) -> Boundary:
    """The decision boundary; where colours are classes, from the cells that they have found."""
    part, level = content.part, content.level
    if not content.by_class:
        return decision_boundary(part, level=level)
    winners = winners_of(part, "argmax", level, whole=True)
    return boundary_of(part, winners, max(2, part.values.shape[1]), "argmax", level)


def boundary_shown(content: Content, wanted: bool | None) -> bool:
    """Whether the boundary is drawn: as wanted, or else on classes and several outputs."""
    return content.by_class or content.part.values.shape[1] > 1 if wanted is None else wanted


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


def add_colorbar(ax: Axes, content: Content, image: PlaneImage, wanted: Any) -> None:
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
