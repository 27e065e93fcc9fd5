"""The parts of a partition's picture: cells, edges, boundary, samples, and keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import is_color_like, to_rgb
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from torch import Tensor

from splinecam._util.arrays import lengths
from splinecam.errors import DomainError, SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.plot import decorations
from splinecam.plot.arrays import Bools, Floats, Ints, in_polygon, to_numpy
from splinecam.plot.artists import CellImage, PlaneImage, SegmentLines, ink_over, line_width
from splinecam.plot.colors import MAX_ENTRIES, Coloring, ColorOptions, class_names, color_regions
from splinecam.plot.decorations import AxesStyle, SideLegend, add_legend, is_flat
from splinecam.plot.palette import BOUNDARY, BOUNDARY_ON_DARK, INK, PAPER, class_colors
from splinecam.questions.boundary import (
    Boundary,
    boundary_of,
    decision_boundary,
    knows_classes,
    winners_of,
)
from splinecam.questions.partition_data import PartitionData, class_number

_OFF = 0.01  # of the domain's diameter; samples farther off the plane are hollow
_SIZE = 0.15  # of thumbnails, of the picture's longer side
_MOST = 64  # thumbnails on one picture
_QUOTED = 8  # names in an error message, at most
_GREY, _OTHER = "#a9aeb5", "other"  # of points whose labels are no classes


@dataclass(frozen=True)
class Classes:
    """The classes that labels may name."""

    count: int | None  # if it is known
    names: Sequence[str] | None
    known: bool = False  # whether the names were given
    first: int = 0  # the place of their first colour in the palette

    @classmethod
    def of(
        cls, part: PartitionData, names: Sequence[str] | None, level: float, *, any_label: bool
    ) -> Classes:
        """The classes of a partition's outputs; a single output has none with ``any_label``."""
        given = part.names if names is None else names
        if any_label and given is None and part._n_out == 1:
            return cls(None, None)
        called = class_names(part, names, level)
        return cls(len(called), called, given is not None)

    def fitting(self, labels: Any, *, distinct: bool) -> Classes:
        """These classes, or if they have no names, the labels' own, perhaps in distinct colours."""
        array = _array(labels)
        if self.known or not _are_names(array) or set(array.tolist()) <= set(self.names or ()):
            return self
        own = sorted(set(map(str, array.tolist())))
        return Classes(len(own), own, True, (self.count or 0) if distinct else 0)

    def numbers(self, labels: Any, points: int) -> Ints:
        """The classes of points, (N,), from their numbers or names; -1 for other labels."""
        array = _array(labels)
        if len(array) != points:
            raise ValueError(f"labels has {len(array)} entries for {points} points: give one each")
        if _are_names(array):
            return self._by_name(array)
        kind, number = array.dtype, np.zeros(0)
        if kind.kind in "iubf":
            number = np.where(np.isfinite(array), array, -1)
        if len(number) != points or (number != np.floor(number)).any():
            raise ValueError(f"labels must be whole numbers or names of classes, not {kind}")
        number = number.astype(np.int64)
        count = max(number.max(initial=0) + 1, 0) if self.count is None else self.count
        return np.where((number >= 0) & (number < count), number, -1)

    def _by_name(self, labels: Any) -> Ints:
        names = list(self.names or ())
        place = {name: k for k, name in enumerate(names)}
        unknown = next((str(label) for label in labels if label not in place), None)
        if unknown is not None:
            known = ", ".join(map(repr, names[:_QUOTED])) + ", ..." * (len(names) > _QUOTED)
            raise ValueError(
                f"labels: {unknown!r} is not among the names of the classes ({known or 'none'}): "
                "give these in order by names="
            )
        return np.array([place[label] for label in labels], np.int64)

    def name(self, number: int) -> str:
        """The name of a class."""
        return _OTHER if number < 0 else str(number) if self.names is None else self.names[number]


def _array(labels: Any) -> Any:
    return np.asarray(to_numpy(labels)).reshape(-1)


def _are_names(labels: Any) -> bool:
    return labels.dtype.kind in "UOT" and all(isinstance(label, str) for label in labels)


@dataclass(frozen=True)
class Samples:
    """Samples in the domain."""

    uv: Floats  # (N, 2)
    off: Bools  # (N,) whether they are off the plane
    labels: Ints | None  # (N,)
    kept: Ints  # (N,) their indices among all given samples
    given: int  # the number of all
    classes: Classes

    def legend(self) -> tuple[tuple[str, Any], ...]:
        """Names and colours of the classes that occur, in order, and last of other labels."""
        if self.labels is None:
            return ()
        found = np.unique(self.labels)
        found = np.concatenate([found[found >= 0], found[found < 0]])[:MAX_ENTRIES]
        palette = self._palette()
        return tuple((self.classes.name(k), palette[k]) for k in found.tolist())

    def colors(self) -> Floats:
        """The samples' colours, (N, 3)."""
        if self.labels is None:
            return np.tile(to_rgb(INK), (len(self.uv), 1))
        return np.asarray(self._palette()[self.labels])

    def _palette(self) -> Floats:
        """Colours of the classes, and at the index -1 the colour of points without a class."""
        assert self.labels is not None
        first, count = self.classes.first, int(self.labels.max(initial=-1)) + 1
        return np.concatenate([class_colors(first + count)[first:], [to_rgb(_GREY)]])


def samples_of(
    domain: Domain, points: Any, labels: Any, classes: Classes, *, distinct: bool = False
) -> Samples:
    """Inputs (N, ...) projected to the plane; distinct: unknown labels get other colours."""
    try:
        place, distance = domain.project(points)
    except DomainError as error:
        raise DomainError(f"points{str(error).removeprefix('x')}") from None
    uv, off = to_numpy(place), to_numpy(distance > _OFF * domain.diameter)
    lost = np.flatnonzero(~np.isfinite(uv).all(1))
    if len(lost):
        raise ValueError(f"points[{lost[0]}] is not finite ({len(lost)} of {len(uv)} points)")
    # Samples on the border count, also if single precision has rounded them out.
    slack = float(np.finfo(np.float32).eps * domain.diameter)
    kept, number = np.flatnonzero(in_polygon(domain.corners, uv, slack)), None
    if labels is not None:
        classes = classes.fitting(labels, distinct=distinct)
        number = classes.numbers(labels, len(uv))[kept]
    return Samples(uv[kept], off[kept], number, kept, len(uv), classes)


def draw_points(ax: Axes, samples: Samples) -> None:
    """Draw discs with a white rim in the colours of their classes, hollow if off the plane."""
    colors = samples.colors()
    many = len(samples.uv) > 200
    scale = decorations.picture_scale(ax)
    size = (12.0 if many else 26.0) * scale**2
    white = np.tile(to_rgb(PAPER), (len(colors), 1))
    for off, face, edge in ((False, colors, white), (True, white, colors)):
        rows = samples.off == off
        if rows.any():
            width = scale * (1.2 if off else 0.6 if many else 0.9)
            style: Any = {"c": face[rows], "edgecolors": edge[rows], "linewidths": width}
            x, y = samples.uv[rows].T
            ax.scatter(x, y, s=size, zorder=4, **style)


def draw_thumbnails(ax: Axes, samples: Samples, images: Any) -> None:
    """Draw small pictures (N, h, w) or (N, channels, h, w) beside their points, inside the axes."""
    pictures = pictures_of(images)
    if len(pictures) != samples.given:
        raise ValueError(
            f"images has {len(pictures)} pictures for {samples.given} points: give one each"
        )
    low, high = np.stack([ax.get_xlim(), ax.get_ylim()], 1)
    h, w = pictures.shape[1:3]
    size = _SIZE * float((high - low).max()) * np.array([w, h]) / max(h, w)
    corners = _places(samples.uv[:_MOST], size, low, high)
    colors, scale = samples.colors(), decorations.picture_scale(ax)
    for k, sample in enumerate(samples.kept[:_MOST]):
        (x, y), (w, h) = corners[k], size
        ends = np.stack([samples.uv[k], corners[k] + size / 2], 1)
        ax.add_artist(Line2D(*ends, color=INK, linewidth=0.7 * scale, zorder=3.5))
        for color, line, place in ((PAPER, 3.0, 4.9), (colors[k], 1.0, 5.1)):
            frame = Rectangle((x, y), w, h, fill=False, edgecolor=color, linewidth=scale * line)
            ax.add_artist(frame).set_zorder(place)
        style: Any = {"cmap": "gray", "origin": "upper", "interpolation": "none"}
        image = AxesImage(ax, extent=(x, x + w, y, y + h), **style)
        image.set_data(pictures[sample])
        image.set_zorder(5)
        ax.add_image(image)


def pictures_of(images: Any) -> Any:
    """Images as (N, h, w) or (N, h, w, 3 or 4), with colours scaled to 0 to 1."""
    array = np.asarray(to_numpy(images), np.float64)
    side = math.isqrt(array.shape[-1])
    if array.ndim == 2 and side**2 == array.shape[-1] >= 16:  # flat square images
        array = array.reshape(-1, side, side)
    if array.ndim == 4 and array.shape[1] in (1, 3, 4):
        array = np.moveaxis(array, 1, 3)
    if array.ndim == 4 and array.shape[3] == 1:
        array = array[..., 0]
    if array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[3] not in (3, 4)):
        raise SplineCamError(
            f"images have shape {tuple(array.shape)}: give (N, h, w) or (N, channels, h, w) with "
            "1, 3 or 4 channels."
        )
    if array.ndim == 4:
        low, high = array.min((1, 2, 3), keepdims=True), array.max((1, 2, 3), keepdims=True)
        if low.min() < 0 or high.max() > 1:
            array = (array - low) / np.where(high > low, high - low, 1)
    return array


def _places(uv: Floats, size: Floats, low: Floats, high: Floats) -> Floats:
    """Lower left corners (N, 2) of boxes beside points, inside the limits, with little overlap."""
    gap, margin = 0.12 * size, 0.02 * (high - low)
    corners = np.empty_like(uv)
    sides = np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j], float)
    direction = sides / np.linalg.norm(sides, axis=1, keepdims=True)
    for k, point in enumerate(uv):
        wanted = point + sides * (size / 2 + gap) - size / 2
        corner = np.clip(wanted, low + margin, high - margin - size)
        shared = size - np.abs(corner[:, None] - corners[None, :k])
        overlap = np.where((shared > 0).all(2), shared.prod(2), 0).sum(1) / size.prod()
        covered = (np.abs(corner[:, None] + size / 2 - uv) < size / 2 + gap / 3).all(2).sum(1)
        inward = -(direction @ (point - (low + high) / 2)) / np.linalg.norm(high - low)
        moved = np.abs(corner - wanted).sum(1) / size.sum()
        corners[k] = corner[(4 * overlap + 2 * covered + inward + moved).argmin()]
    return corners


# Widths in points, and as a share of the lines' spacing, from the first layer to the last.
_WIDEST, _NARROWEST = 0.6, 0.35
_SHARE = 0.06
_STRONG, _WEAK = 0.6, 0.45  # opacity
_EDGES = "give True, False, the numbers of the edges to draw, or the name of a colour for all"

_BOUNDARY, _LEAST_BOUNDARY, _RIM = 1.9, 0.5, 1.6
_BOUNDARY_SHARE, _APART = 0.25, 0.02


@dataclass(frozen=True)
class Content:
    """The content of a picture: a partition, its colours, and the classes of labels."""

    part: PartitionData
    coloring: Coloring
    classes: Classes
    by_class: bool  # whether colours are classes
    level: float
    shown: Any  # the classes in the legend, if they are chosen

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
    """The classes in the legend: "all", their numbers, or None for all classes that occur."""
    if isinstance(legend, bool | np.bool_) or legend is None:
        return None
    if isinstance(legend, str):
        if legend != "all":
            raise ValueError(f'legend is {legend!r}; give True, False, "all" or a list of classes')
        return "all"
    names = None if classes.names is None else tuple(classes.names)
    return tuple(class_number(k, names, max(2, part._n_out)) for k in legend)


def draw_cells(ax: Axes, content: Content, style: AxesStyle) -> CellImage:
    """Draw the coloured cells in a frame, in place of the cells that were drawn earlier."""
    coloring = content.coloring
    prepare(ax, content.part.domain, style)
    colors: Any = {"norm": coloring.norm, "cmap": coloring.cmap}
    image = CellImage(ax, coloring.mesh, content.part._frame, coloring.fill, **colors)
    ax.add_image(image)
    return image


def prepare(ax: Axes, domain: Domain, style: AxesStyle) -> None:
    """Make axes the frame of a domain, and remove the bars and legends of earlier cells."""
    for image in ax.images:
        if image.colorbar is not None and image.colorbar.ax in ax.child_axes:
            image.colorbar.remove()
    for legend in [each for each in ax.artists if isinstance(each, SideLegend)]:
        if not legend.curves:
            legend.remove()
    decorations.set_frame(ax, domain, style)
    decorations.make_room(ax)


def draw_edges(ax: Axes, content: Content, edges: Any, width: float | None) -> None:
    """Draw edges by layer, and the border; edges: their numbers, the colour of all, or a flag."""
    part = content.part
    if edges is None:
        edges = True if content.coloring.edges is None else content.coloring.edges
    ink = edge_ink(ax, edges)
    chosen = _chosen(part, True if isinstance(edges, str) else edges)
    layer, segments = part.mesh.edge_layer[chosen], part.vertices[part.mesh.edges[chosen]]
    draw_layers(ax, layer, segments, (len(part.layers), part.domain.area), ink, width)
    decorations.draw_border(ax, part.domain)


def edge_ink(ax: Axes, edges: Any) -> str:
    """The given colour of edges, or the ink that is seen on the cells."""
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
    """Draw segments (N, 2, 2) of layers (N,); shown: the number of layers, and the area."""
    # The first layer is on top, later ones are lighter and thinner. Lines are as wide as the space
    # between all lines up to their layer allows: the first stay visible where the last are dense.
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
        style: Any = {"width_at": width_at} if width is None else {"linewidths": width}
        style |= {"alpha": _STRONG + (_WEAK - _STRONG) * late, "zorder": 2 + (1 - late) / 2}
        lines = SegmentLines(to_numpy(segments[layer == k]), colors=ink, **style)
        ax.add_collection(lines, autolim=False)


def _chosen(part: PartitionData, edges: Any) -> Tensor:
    """Indices of the edges to draw, (N,)."""
    device = part.mesh.edges.device
    if isinstance(edges, (bool, np.bool_)):
        return torch.arange(part.mesh.edges.shape[0] if edges else 0, device=device)
    index = torch.as_tensor(edges, device=device).reshape(-1)
    if index.dtype == torch.bool and index.shape[0] == part.mesh.edges.shape[0]:
        return index.nonzero()[:, 0]
    if index.is_floating_point() or index.dtype == torch.bool:
        raise TypeError(f"edges: {_EDGES}")
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < part.mesh.edges.shape[0]:
        raise IndexError(f"edges: the partition has {part.mesh.edges.shape[0]:,}, numbered from 0")
    return index.long()


def draw_boundary(
    ax: Axes,
    content: Content,
    wanted: bool | None,
    color: Any,
    find: Callable[[], Boundary] | None = None,
) -> None:
    """Draw the decision boundary, or what ``find`` finds, by default where there are classes."""
    part, light = content.part, ink_over(ax) == INK
    if not boundary_shown(content, wanted):
        return
    if find is not None:
        curves = find()
    elif content.by_class:  # from the cells of the colours
        winners = winners_of(part, "argmax", content.level, whole=True)
        curves = boundary_of(part, winners, max(2, part._n_out), "argmax", content.level)
    else:
        curves = decision_boundary(part, level=content.level)
    if not len(curves):
        return
    if color is None:
        color = BOUNDARY if light else BOUNDARY_ON_DARK
    spacing = part.domain.area / max(curves.length, np.finfo(np.float64).tiny)
    spacing = min(spacing, _APART * part.domain.diameter)  # thinner lines on small pictures
    # A white rim makes it visible on the dark colours of numbers.
    segments, rim = to_numpy(curves.ends), light and not content.by_class
    for ink, extra, zorder in [(color, 0.0, 3.2)] + [(PAPER, _RIM, 3.1)] * rim:
        ends = _BOUNDARY, _LEAST_BOUNDARY, extra
        width = partial(line_width, spacing, _BOUNDARY_SHARE, *ends)
        lines = SegmentLines(segments, colors=ink, width_at=width, zorder=zorder)
        ax.add_collection(lines, autolim=False)
        decorations.clip_to(lines, ax, part.domain)


def boundary_shown(content: Content, wanted: bool | None) -> bool:
    """Whether the boundary is drawn: as wanted, or by default on classes and several outputs."""
    if wanted is not None:
        return wanted
    known = knows_classes(content.part, content.level)
    return content.by_class or (content.part._n_out > 1 and known)


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
    """Add a colour bar if colours follow numbers. wanted: True, or the pointed ends."""
    coloring = content.coloring
    if coloring.norm is not None:
        extend = coloring.extend if isinstance(wanted, bool) else wanted
        below = is_flat(content.part.domain)
        decorations.add_colorbar(ax, image, coloring.label, extend=extend, below=below)


def add_legends(ax: Axes, content: Content, samples: Samples | None) -> None:
    """Add the legends of regions and of samples; one legend if both show the same classes."""
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
