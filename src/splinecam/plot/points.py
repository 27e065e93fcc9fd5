"""Samples on a picture: points with the colours of their classes, and thumbnails beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.colors import to_rgb
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from splinecam.analysis.partition_data import PartitionData
from splinecam.errors import DomainError, SplineCamError
from splinecam.plot.colors import class_names
from splinecam.plot.palette import INK, PAPER, class_colors
from splinecam.plot.scalebar import scale_of
from splinecam.plot.side_layout import picture_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from splinecam.geometry.domain import Domain
    from splinecam.plot.palette import Floats

    Whole = NDArray[np.int64]

__all__ = ["Classes", "Samples", "draw_points", "draw_thumbnails", "samples_of"]

_OFF = 0.01  # of the domain's diameter: samples farther off the plane are drawn hollow
_SIZE = 0.15  # of thumbnails, of the picture's longer side
_MOST = 64  # thumbnails on one picture
_ENTRIES = 24  # of a legend, at most
_SAID = 8  # names in an error message, at most
_GREY, _OTHER = "#a9aeb5", "other"  # points whose labels are no classes


@dataclass(frozen=True)
class Classes:
    """The classes that labels may name.

    count: how many there are, if that is known; names: what they are called; known: whether
    somebody gave the names; first: the place of their first colour in the palette.
    """

    count: int | None
    names: Sequence[str] | None
    known: bool = False
    first: int = 0

    @classmethod
    def of(
        cls, part: PartitionData, names: Sequence[str] | None, level: float, *, any_label: bool
    ) -> Classes:
        """Those of a partition's outputs; if ``any_label`` may come, a single output has none."""
        given = part.names if names is None else names
        if any_label and given is None and part.values.shape[1] == 1:
            return cls(None, None)
        called = class_names(part, names, level)
        return cls(len(called), called, given is not None)

    def fitting(self, labels: Any, *, apart: bool) -> Classes:
        """The classes that labels name: these, or if nobody named these, the labels' own.

        apart: give the labels' own other colours than these, as nobody knows which is which.
        """
        array = _array(labels)
        if self.known or not _are_names(array) or set(array.tolist()) <= set(self.names or ()):
            return self
        own = sorted(set(map(str, array.tolist())))
        return Classes(len(own), own, True, (self.count or 0) if apart else 0)

    def numbers(self, labels: Any, points: int) -> Whole:
        """The classes of some points, (N,), from their numbers or names; -1 for all others."""
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

    def _by_name(self, labels: Any) -> Whole:
        names = list(self.names or ())
        place = {name: k for k, name in enumerate(names)}
        unknown = next((str(label) for label in labels if label not in place), None)
        if unknown is not None:
            known = ", ".join(map(repr, names[:_SAID])) + ", ..." * (len(names) > _SAID)
            raise ValueError(
                f"labels: {unknown!r} is not among the names of the classes ({known or 'none'}): "
                "give these in order by names="
            )
        return np.array([place[label] for label in labels], np.int64)

    def name(self, number: int) -> str:
        """What a class is called."""
        return _OTHER if number < 0 else str(number) if self.names is None else self.names[number]


def _array(labels: Any) -> NDArray[Any]:
    given = labels.detach().cpu() if isinstance(labels, torch.Tensor) else labels
    return np.asarray(given).reshape(-1)


def _are_names(labels: NDArray[Any]) -> bool:
    return labels.dtype.kind in "UOT" and all(isinstance(label, str) for label in labels)


@dataclass(frozen=True)
class Samples:
    """Samples on the plane: uv (N, 2), whether they are off it (N,), and their labels (N,).

    kept: (N,) which of the given samples they are: those in the domain. given: how many those are.
    """

    uv: Floats
    off: NDArray[np.bool_]
    labels: Whole | None
    kept: Whole
    given: int
    classes: Classes

    def legend(self) -> tuple[tuple[str, Any], ...]:
        """Names and colours of the classes there are, in order, others last."""
        if self.labels is None:
            return ()
        found = np.unique(self.labels)
        found = np.concatenate([found[found >= 0], found[found < 0]])[:_ENTRIES]
        palette = self._palette()
        return tuple((self.classes.name(k), palette[k]) for k in found.tolist())

    def colors(self) -> Floats:
        """The samples' colours, (N, 3)."""
        if self.labels is None:
            return np.tile(to_rgb(INK), (len(self.uv), 1))
        return np.asarray(self._palette()[self.labels])

    def _palette(self) -> Floats:
        """Colours of classes, and last, so that -1 finds it, that of points without one."""
        assert self.labels is not None
        first, count = self.classes.first, int(self.labels.max(initial=-1)) + 1
        return np.concatenate([class_colors(first + count)[first:], [to_rgb(_GREY)]])


def samples_of(
    domain: Domain, points: Any, labels: Any, classes: Classes, *, apart: bool = False
) -> Samples:
    """Inputs (N, ...) projected to the plane; those outside the domain are left out.

    apart: labels that name no known classes get other colours than these.
    """
    try:
        place, distance = domain.project(points)
    except DomainError as error:
        raise DomainError(f"points{str(error).removeprefix('x')}") from None
    uv, off = place.cpu().numpy(), (distance > _OFF * domain.diameter).cpu().numpy()
    lost = np.flatnonzero(~np.isfinite(uv).all(1))
    if len(lost):
        raise ValueError(f"points[{lost[0]}] is not finite ({len(lost)} of {len(uv)} points)")
    if labels is not None:
        classes = classes.fitting(labels, apart=apart)
    number = None if labels is None else classes.numbers(labels, len(uv))
    kept = np.flatnonzero(_inside(domain, uv))
    number = None if number is None else number[kept]
    return Samples(uv[kept], off[kept], number, kept, len(uv), classes)


def _inside(domain: Domain, uv: Floats) -> NDArray[np.bool_]:
    """Which points (N, 2) lie in the domain, borders included, (N,)."""
    corners = domain.corners.cpu().numpy()
    side = np.roll(corners, -1, 0) - corners
    off = uv[:, None] - corners
    cross = side[:, 0] * off[:, :, 1] - side[:, 1] * off[:, :, 0]
    # Samples on the border are in, also if they are off it by the rounding of single precision.
    slack = np.finfo(np.float32).eps * domain.diameter
    return np.asarray((cross >= -slack * np.linalg.norm(side, axis=1)).all(1))


def draw_points(ax: Axes, samples: Samples, *, zorder: float = 4) -> None:
    """Discs with a white rim in the colours of their classes; hollow where off the plane."""
    colors = samples.colors()
    many = len(samples.uv) > 200
    scale = scale_of(max(picture_size(ax)))
    size = (12.0 if many else 26.0) * scale**2
    for off, face, edge in ((False, colors, PAPER), (True, PAPER, colors)):
        rows = samples.off == off
        if rows.any():
            ax.scatter(
                samples.uv[rows, 0],
                samples.uv[rows, 1],
                s=size,
                c=face[rows] if isinstance(face, np.ndarray) else face,
                edgecolors=edge[rows] if isinstance(edge, np.ndarray) else edge,
                linewidths=scale * (1.2 if off else 0.6 if many else 0.9),
                zorder=zorder,
            )


def draw_thumbnails(
    ax: Axes, domain: Domain, samples: Samples, images: Any, *, zorder: float = 5
) -> None:
    """Small pictures (N, h, w) or (N, channels, h, w) beside their points, inside the axes."""
    pictures = _pictures(images)
    if len(pictures) != samples.given:
        raise ValueError(
            f"images has {len(pictures)} pictures for {samples.given} points: give one each"
        )
    shown = samples.kept[:_MOST]
    low, high = np.stack([ax.get_xlim(), ax.get_ylim()], 1)
    h, w = pictures.shape[1:3]
    size = _SIZE * float((high - low).max()) * np.array([w, h]) / max(h, w)
    corners = _places(samples.uv[:_MOST], size, low, high)
    colors = samples.colors()
    for k, sample in enumerate(shown):
        frame = colors[k]
        _draw_thumbnail(ax, pictures[sample], samples.uv[k], corners[k], size, frame, zorder)


def _draw_thumbnail(
    ax: Axes, picture: Any, point: Floats, corner: Floats, size: Floats, frame: Any, zorder: float
) -> None:
    """One picture in a thin frame, tied to its point."""
    (x, y), (w, h) = corner, size
    middle = corner + size / 2
    scale = scale_of(max(picture_size(ax)))
    tie = Line2D([point[0], middle[0]], [point[1], middle[1]], color=INK, linewidth=0.7 * scale)
    tie.set_zorder(zorder - 1.5)
    image = AxesImage(
        ax, extent=(x, x + w, y, y + h), cmap="gray", origin="upper", interpolation="none"
    )
    image.set_data(picture)
    image.set_zorder(zorder)
    rim, edge = (
        Rectangle((x, y), w, h, fill=False, edgecolor=color, linewidth=scale * line, zorder=place)
        for color, line, place in ((PAPER, 3.0, zorder - 0.1), (frame, 1.0, zorder + 0.1))
    )
    for artist in (tie, rim, edge):
        ax.add_artist(artist)
    ax.add_image(image)


def _pictures(images: Any) -> Any:
    """Images as (N, h, w) or (N, h, w, 3 or 4); colours scaled to 0 to 1."""
    given = images.detach().cpu() if isinstance(images, torch.Tensor) else images
    array = np.asarray(given, np.float64)
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
        axes = (1, 2, 3)
        low, high = array.min(axes, keepdims=True), array.max(axes, keepdims=True)
        if low.min() < 0 or high.max() > 1:
            array = (array - low) / np.where(high > low, high - low, 1)
    return array


def _places(uv: Floats, size: Floats, low: Floats, high: Floats) -> Floats:
    """Lower left corners (N, 2) of boxes beside points, inside the limits, with little overlap."""
    gap = 0.12 * size
    corners = np.empty_like(uv)
    # Away from the middle of the picture first.
    ways = np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j], float)
    margin = 0.02 * (high - low)
    for k, point in enumerate(uv):
        middles = point + ways * (size / 2 + gap)
        corner = np.clip(middles - size / 2, low + margin, high - margin - size)
        boxes = corners[:k]
        shared = size - np.abs(corner[:, None] - boxes[None])
        overlap = np.where((shared > 0).all(2), shared.prod(2), 0).sum(1) / size.prod()
        near = np.abs(corner[:, None] + size / 2 - uv[None]) < size / 2 + gap / 3
        covered = near.all(2).sum(1)
        inward = -(
            (ways / np.linalg.norm(ways, axis=1, keepdims=True)) @ (point - (low + high) / 2)
        )
        inward = inward / np.linalg.norm(high - low)
        moved = np.abs(corner - (middles - size / 2)).sum(1) / size.sum()
        corners[k] = corner[(4 * overlap + 2 * covered + inward + moved).argmin()]
    return corners
