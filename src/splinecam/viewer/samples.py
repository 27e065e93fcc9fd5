"""Data points and anchors as they are sent: their places in the plane, classes and thumbnails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from splinecam._util.points import as_float64
from splinecam.analysis.partition_data import PartitionData
from splinecam.geometry.domain import Domain
from splinecam.plot.arrays import Bools, Floats, Pixels, to_numpy
from splinecam.plot.palette import class_palette
from splinecam.plot.points import Classes, pictures_of, samples_of
from splinecam.viewer.answers import Answer
from splinecam.viewer.scene_options import SceneOptions

__all__ = ["anchors_of", "hex_color", "points_of", "thumbnails"]

_LARGEST = 48  # pixels on the longer side of a thumbnail
_MOST = 64  # thumbnails of one scene
_NAMED = 1 << 16  # names of labels that are sent, at most


def points_of(
    part: PartitionData, domain: Domain, options: SceneOptions, notes: list[str]
) -> Answer:
    """The data points that lie in a domain; empty without any.

    notes: gets a sentence about points that are left out.
    """
    if options.points is None:
        if options.labels is not None or options.images not in (None, False):
            raise ValueError("labels and images belong to points: give points= as well")
        return Answer({})
    given = as_float64(options.points, "points")
    given = given.reshape(-1, *domain.input_shape) if given.numel() == domain.dim else given
    images = options.images
    if images is True:
        images = given if options.shape is None else given.reshape(-1, *options.shape)
    images = None if images is None or images is False else images
    labels, finite = options.labels, to_numpy(given.flatten(1).isfinite().all(1))
    if not finite.all():
        lost = int((~finite).sum())
        which = f"{lost:,} of {len(finite):,} data points"
        notes.append(f"{which} {'is' if lost == 1 else 'are'} left out: not finite.")
        given = given[torch.from_numpy(finite).to(given.device)]
        labels, images = _rows(labels, finite), _rows(images, finite)
    classes = Classes.of(part, options.names, options.level or 0.0, any_label=True)
    found = samples_of(domain, given, labels, classes, distinct=True)
    outside = len(given) - len(found.uv)
    if outside:
        notes.append(f"{outside:,} of {len(finite):,} data points are outside of the domain.")
    number = np.flatnonzero(finite)[found.kept].astype(np.uint32)
    arrays: dict[str, Any] = {"points": found.uv, "off": found.off.astype(np.uint8)}
    arrays["number"] = number
    header: dict[str, Any] = {"count": len(found.uv), "thumbnail": None, "labels": [], "colors": []}
    if found.labels is not None:
        count = min(int(found.labels.max(initial=-1)) + 1, _NAMED)
        header["labels"] = [found.classes.name(k) for k in range(count)]
        palette = class_palette(found.classes.first + count)[found.classes.first :]
        header["colors"] = [hex_color(color) for color in palette]
        arrays["label"] = found.labels.astype(np.int16 if count < 1 << 15 else np.int32)
    if images is not None:
        pictures = pictures_of(images)
        if len(pictures) != len(given):
            raise ValueError(
                f"images has {len(pictures)} pictures for {len(given)} points: give one each"
            )
        small = thumbnails(pictures[found.kept[:_MOST]])
        header["thumbnail"], arrays["thumbnails"] = list(small.shape[1:3]), small
    return Answer(header, arrays)


def _rows(values: Any, kept: Bools) -> Any:
    """Some of the labels or images; all if their number is wrong, which is noticed later."""
    if values is None:
        return None
    array = np.asarray(to_numpy(values))
    return array[kept] if len(array) == len(kept) else array


def anchors_of(domain: Domain, anchors: Any, shape: Sequence[int] | None) -> Answer:
    """Three inputs that span the plane, with thumbnails if they are images; empty without any."""
    if anchors is None:
        return Answer({})
    given = as_float64(anchors, "anchors")
    if given.ndim < 2 or len(given) != 3 or not bool(given.isfinite().all()):
        raise ValueError(f"anchors must be three inputs of finite numbers, not {given.shape}")
    at = domain.project(given)[0]
    header: dict[str, Any] = {"at": at.tolist(), "thumbnail": None}
    size = tuple(domain.input_shape if shape is None else shape)
    if len(size) not in (2, 3) or (len(size) == 3 and size[0] not in (1, 3)):
        return Answer(header)
    small = thumbnails(pictures_of(given.reshape(3, *size)))
    header["thumbnail"] = list(small.shape[1:3])
    return Answer(header, {"anchors": small})


def thumbnails(pictures: Floats) -> Pixels:
    """Pictures (N, h, w) or (N, h, w, 3 or 4) as pixels (N, h, w, 4), scaled down if large.

    Grey pictures are black at their smallest number and white at their largest.
    """
    array = np.nan_to_num(np.asarray(pictures, np.float64), posinf=0.0, neginf=0.0)
    if array.ndim == 3:
        low, high = (f(array, axis=(1, 2), keepdims=True) for f in (np.min, np.max))
        array = ((array - low) / np.where(high > low, high - low, 1))[..., None]
    if array.shape[3] < 3:
        array = np.repeat(array, 3, 3)
    if array.shape[3] == 3:
        array = np.pad(array, ((0, 0), (0, 0), (0, 0), (0, 1)), constant_values=1.0)
    height, width = array.shape[1:3]
    shrink = min(1.0, _LARGEST / max(height, width, 1))
    if shrink < 1 and len(array):
        size = max(1, round(shrink * height)), max(1, round(shrink * width))
        stacked = torch.from_numpy(np.moveaxis(array, 3, 1).copy())
        pooled = torch.nn.functional.adaptive_avg_pool2d(stacked, size)
        array = np.moveaxis(pooled.numpy(), 1, 3)
    return np.ascontiguousarray(255 * np.clip(array, 0, 1) + 0.5, np.uint8)


def hex_color(color: Floats) -> str:
    """A colour of numbers from 0 to 1 as text, such as "#16202c"."""
    red, green, blue = (round(255 * min(1.0, max(0.0, float(part)))) for part in color[:3])
    return f"#{red:02x}{green:02x}{blue:02x}"
