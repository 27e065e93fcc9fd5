"""Samples on a picture: points in the colours of their classes, and thumbnails beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from splinecam.errors import DomainError, SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.plot.arrays import Bools, Floats, Ints, to_numpy
from splinecam.plot.colors import MAX_ENTRIES, class_names
from splinecam.plot.decorations import picture_size, scale_of
from splinecam.plot.palette import INK, PAPER, class_palette
from splinecam.questions.partition_data import PartitionData

_OFF = 0.01  # of the domain's diameter: samples farther off the plane are drawn hollow
_SIZE = 0.15  # of thumbnails, of the picture's longer side
_MOST = 64  # thumbnails on one picture
_QUOTED = 8  # names in an error message, at most
_GREY, _OTHER = "#a9aeb5", "other"  # points whose labels are no classes


@dataclass(frozen=True)
class Classes:
    """The classes that labels may name.

    count: their number, if it is known; names: their names; known: whether the names were given;
    first: the place of their first colour in the palette.
    """

    count: int | None
    names: Sequence[str] | None
    known: bool = False
    first: int = 0

    @classmethod
    def of(
        cls, part: PartitionData, names: Sequence[str] | None, level: float, *, any_label: bool
    ) -> Classes:
        """The classes of a partition's outputs; a single output has none with ``any_label``."""
        given = part.names if names is None else names
        if any_label and given is None and part.values.shape[1] == 1:
            return cls(None, None)
        called = class_names(part, names, level)
        return cls(len(called), called, given is not None)

    def fitting(self, labels: Any, *, distinct: bool) -> Classes:
        """The classes that labels name: these, or if these have no names, the labels' own.

        distinct: give the labels' own classes other colours than these.
        """
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
    """Samples in the domain: uv (N, 2), whether they are off the plane (N,), labels (N,).

    kept: (N,) their indices among all ``given`` samples.
    """

    uv: Floats
    off: Bools
    labels: Ints | None
    kept: Ints
    given: int
    classes: Classes

    def legend(self) -> tuple[tuple[str, Any], ...]:
        """Names and colours of the classes that occur, in order; other labels come last."""
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
        """Colours of the classes, and last, at the index -1, that of points without a class."""
        assert self.labels is not None
        first, count = self.classes.first, int(self.labels.max(initial=-1)) + 1
        return np.concatenate([class_palette(first + count)[first:], [to_rgb(_GREY)]])


def samples_of(
    domain: Domain, points: Any, labels: Any, classes: Classes, *, distinct: bool = False
) -> Samples:
    """Inputs (N, ...) projected to the plane, without those outside the domain.

    distinct: labels that name no known classes get other colours than these.
    """
    try:
        place, distance = domain.project(points)
    except DomainError as error:
        raise DomainError(f"points{str(error).removeprefix('x')}") from None
    uv, off = to_numpy(place), to_numpy(distance > _OFF * domain.diameter)
    lost = np.flatnonzero(~np.isfinite(uv).all(1))
    if len(lost):
        raise ValueError(f"points[{lost[0]}] is not finite ({len(lost)} of {len(uv)} points)")
    if labels is not None:
        classes = classes.fitting(labels, distinct=distinct)
    number = None if labels is None else classes.numbers(labels, len(uv))
    kept = np.flatnonzero(_inside(domain, uv))
    number = None if number is None else number[kept]
    return Samples(uv[kept], off[kept], number, kept, len(uv), classes)


def _inside(domain: Domain, uv: Floats) -> Bools:
    """Which points (N, 2) lie in the domain, borders included, (N,)."""
    corners = to_numpy(domain.corners)
    side = np.roll(corners, -1, 0) - corners
    off = uv[:, None] - corners
    cross = side[:, 0] * off[:, :, 1] - side[:, 1] * off[:, :, 0]
    # Samples on the border are in, also if they are off it by the rounding of single precision.
    slack = np.finfo(np.float32).eps * domain.diameter
    return np.asarray((cross >= -slack * np.linalg.norm(side, axis=1)).all(1))


def draw_points(ax: Axes, samples: Samples, *, zorder: float = 4) -> None:
    """Draw discs with a white rim in the colours of their classes; hollow where off the plane."""
    colors = samples.colors()
    many = len(samples.uv) > 200
    scale = scale_of(max(picture_size(ax)))
    size = (12.0 if many else 26.0) * scale**2
    white = np.tile(to_rgb(PAPER), (len(colors), 1))
    for off, face, edge in ((False, colors, white), (True, white, colors)):
        rows = samples.off == off
        if rows.any():
            width = scale * (1.2 if off else 0.6 if many else 0.9)
            style: Any = {"c": face[rows], "edgecolors": edge[rows], "linewidths": width}
            x, y = samples.uv[rows].T
            ax.scatter(x, y, s=size, zorder=zorder, **style)


def draw_thumbnails(ax: Axes, samples: Samples, images: Any, *, zorder: float = 5) -> None:
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
    colors, scale = samples.colors(), scale_of(max(picture_size(ax)))
    for k, sample in enumerate(samples.kept[:_MOST]):
        (x, y), (w, h) = corners[k], size
        ends = np.stack([samples.uv[k], corners[k] + size / 2], 1)
        ax.add_artist(Line2D(*ends, color=INK, linewidth=0.7 * scale, zorder=zorder - 1.5))
        for color, line, place in ((PAPER, 3.0, zorder - 0.1), (colors[k], 1.0, zorder + 0.1)):
            frame = Rectangle((x, y), w, h, fill=False, edgecolor=color, linewidth=scale * line)
            ax.add_artist(frame).set_zorder(place)
        style: Any = {"cmap": "gray", "origin": "upper", "interpolation": "none"}
        image = AxesImage(ax, extent=(x, x + w, y, y + h), **style)
        image.set_data(pictures[sample])
        image.set_zorder(zorder)
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
    unit = sides / np.linalg.norm(sides, axis=1, keepdims=True)
    for k, point in enumerate(uv):
        wanted = point + sides * (size / 2 + gap) - size / 2
        corner = np.clip(wanted, low + margin, high - margin - size)
        shared = size - np.abs(corner[:, None] - corners[None, :k])
        overlap = np.where((shared > 0).all(2), shared.prod(2), 0).sum(1) / size.prod()
        covered = (np.abs(corner[:, None] + size / 2 - uv) < size / 2 + gap / 3).all(2).sum(1)
        inward = -(unit @ (point - (low + high) / 2)) / np.linalg.norm(high - low)
        moved = np.abs(corner - wanted).sum(1) / size.sum()
        corners[k] = corner[(4 * overlap + 2 * covered + inward + moved).argmin()]
    return corners
