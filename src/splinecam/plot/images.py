"""Grids of images, such as inputs that lie on a decision boundary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from splinecam.errors import SplineCamError
from splinecam.plot import figures
from splinecam.plot.arrays import Floats, to_numpy
from splinecam.plot.figures import require_matplotlib, written
from splinecam.plot.palette import text_color
from splinecam.questions.boundary import Boundary, LevelSet
from splinecam.questions.curves import Curves, sample_segments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


_CHANNELS = (1, 3)  # numbers of channels that can be shown
_GAP, _MARGIN = 0.06, 0.04  # inches between images, and around the grid
_FONT, _SMALLEST = 8.0, 4.0  # points
_LINE = 1.45  # height of a line of text, in font sizes


def image_grid(
    images: Any,
    *,
    ax: Axes | None = None,
    shape: Sequence[int] | None = None,
    titles: Sequence[str] | None = None,
    columns: int | None = None,
    limits: tuple[float, float] | None = None,
    cmap: str = "gray",
    size: float = 1.0,
) -> Figure | SubFigure:
    """Show images side by side, in rows, each with its title above it.

    images: (N, H, W), (N, 1 or 3, H, W) or (N, H, W, 1 or 3); or flat, (N, D). shape: of one image,
    if they are flat. titles: one for each image. columns: images in a row. limits: the numbers
    drawn as black and white in all images, by default 0 and 255 for whole numbers, 0 and 1 for
    numbers between them, and else the least and the largest number. cmap: colours images with one
    channel. size: the width of an image in inches, unless the grid is drawn into ``ax``.

    >>> import splinecam as sc
    >>> figure = sc.plot.image_grid(torch.rand(6, 64), shape=(8, 8), titles="abcdef", columns=3)
    >>> len(figure.axes[0].images)
    6
    """
    require_matplotlib()
    pixels = _pixels(images, shape)
    count, high, wide = pixels.shape[:3]
    names = [""] * count if titles is None else [str(title) for title in titles]
    if len(names) != count:
        raise ValueError(f"{len(names)} titles for {count} images")
    # By default there are a few more images in a row than there are rows.
    across = figures.panel_columns(columns, count, max(math.ceil(math.sqrt(count)), min(count, 5)))
    down = math.ceil(count / across)
    font = font_that_fits(names, size, _FONT, _SMALLEST)
    head = _LINE * font / 72 if any(names) else 0.0
    tall = size * high / wide
    step = size + _GAP, tall + head + _GAP
    total = across * step[0] - _GAP + 2 * _MARGIN, down * step[1] - _GAP + 2 * _MARGIN
    alone = ax is None
    if ax is None:
        ax = figures.new_figure(figsize=total).add_axes((0, 0, 1, 1))
    ax.set_axis_off()  # its coordinates are inches, from the top
    black, white = map(float, limits) if limits is not None else _usual_limits(pixels)
    if not white > black:
        raise ValueError(f"limits must be two ascending numbers, not {limits}")
    scale = np.clip((pixels.astype(np.float64) - black) / (white - black), 0, 1)
    ink = text_color(ax.figure)
    for k in range(count):
        left = _MARGIN + k % across * step[0]
        top = _MARGIN + k // across * step[1] + head
        box = (left, left + size, top + tall, top)
        ax.imshow(scale[k], cmap=cmap, vmin=0, vmax=1, extent=box, aspect="auto")
        place = left + size / 2, top - 0.25 * head
        ax.text(*place, written(names[k]), size=font, color=ink, ha="center")
    ax.set(xlim=(0, total[0]), ylim=(total[1], 0), aspect="auto" if alone else "equal")
    return cast("Figure | SubFigure", figures.shown_once(ax.figure))


def plot_samples(
    curves: Curves,
    n: int = 25,
    *,
    generator: torch.Generator | None = None,
    shape: Sequence[int] | None = None,
    titles: bool = True,
    names: Sequence[str] | None = None,
    **style: Any,
) -> Figure | SubFigure:
    """Show random inputs on the curves as images, ordered by curve.

    n: their number. shape: of one image, where the model's inputs are flat. titles: whether each
    image has its two classes, its level, or its layer and unit above it. names: of the classes, by
    default those of the partition. style: goes to ``image_grid``: ax, columns, limits, cmap, size.

    Inputs far from the samples of a plane have far too dark and bright pixels, which would make all
    others grey. By default, ``limits`` are therefore 0 and 1 if the domain's origin (a sample, for
    ``Domain.through`` and ``around``) and most pixels are between them, and otherwise the first and
    the last percentile of all pixels.

    >>> import splinecam as sc
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    >>> domain = sc.Domain.around(torch.rand(8, 8), side=20.0)
    >>> boundary = sc.partition(model, domain, progress=False).decision_boundary()
    >>> figure = boundary.plot_samples(10)
    >>> len(figure.axes[0].images)
    10
    """
    part = curves.partition
    _image_shape(part.domain.input_shape if shape is None else tuple(shape), flat=shape is None)
    uv, segment = sample_segments(curves, n, generator)
    label, order = torch.sort(curves.label[segment], stable=True)
    made = part._inputs(uv[order], dtype=torch.float64).cpu()
    headings = [written(_heading(curves, k, names)) for k in label.tolist()] if titles else None
    if style.get("limits") is None:
        style["limits"] = sample_limits(made.numpy(), to_numpy(part.domain.origin))
    return image_grid(made, shape=shape, titles=headings, **style)


def _heading(curves: Curves, label: int, names: Sequence[str] | None) -> str:
    """The title of an image on the curve of a label."""
    key = curves.key(label)
    if isinstance(curves, Boundary):
        if names is not None and len(names) < curves.n_classes:
            raise ValueError(f"{len(names)} names for {curves.n_classes} classes")
        called = curves.partition.names if names is None else names
        return " | ".join(str(k) if called is None else called[k] for k in key)
    if isinstance(curves, LevelSet):
        return f"{key:.4g}"
    return ": ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _pixels(images: Any, shape: Sequence[int] | None) -> Any:
    """Images as (N, H, W) or (N, H, W, 3)."""
    if not isinstance(images, torch.Tensor | np.ndarray):
        images = [to_numpy(x) for x in images]
    array = np.asarray(to_numpy(images))
    if not array.ndim or not array.shape[0]:
        raise ValueError(f"there are no images in an array of shape {array.shape}")
    if array.dtype.kind not in "buif":
        raise TypeError(f"images must hold numbers, not {array.dtype}")
    if shape is not None:
        if math.prod(shape) != array[0].size:
            raise SplineCamError(
                f"{array[0].size:,} numbers per image do not fit the shape {tuple(shape)}."
            )
        array = array.reshape(len(array), *shape)
    where = _image_shape(array.shape[1:], flat=shape is None)
    if where is None:
        return array
    array = np.moveaxis(array, 1 + where, -1)
    return array[..., 0] if array.shape[-1] == 1 else array


def _image_shape(shape: tuple[int, ...], *, flat: bool) -> int | None:
    """The axis of the channels in the shape of one image, if any; raises if it is no image."""
    if len(shape) == 2 and all(shape):
        return None
    if len(shape) == 3 and all(shape):
        for axis in (0, 2):
            if shape[axis] in _CHANNELS:
                return axis
    hint = "Give shape=, such as (28, 28) or (3, 32, 32)." if flat and len(shape) == 1 else ""
    raise SplineCamError(
        f"Inputs of shape {tuple(shape)} are not images: these are (H, W), (1 or 3, H, W) or "
        f"(H, W, 1 or 3). {hint}".strip()
    )


def _usual_limits(pixels: Any) -> tuple[float, float]:
    if pixels.dtype.kind in "ui":
        return 0.0, 255.0
    finite = pixels[np.isfinite(pixels)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    return (low, max(high, low + (low == high))) if low < 0 or high > 1 else (0.0, 1.0)


def sample_limits(pixels: Floats, sample: Floats) -> tuple[float, float]:
    """Numbers for black and white that do not depend on a few images far from the sample."""
    margin = 0.5 / 255  # invisible
    usual = (pixels >= -margin) & (pixels <= 1 + margin)
    if sample.min() >= 0 and sample.max() <= 1 and usual.mean() > 2 / 3:
        return 0.0, 1.0
    low, high = np.percentile(pixels, (1, 99))
    return (float(low), float(high)) if high > low else _usual_limits(pixels)


def font_that_fits(lines: Sequence[str], width: float, most: float, least: float) -> float:
    """The font size, in points, at which the longest line fits a width in inches."""
    from matplotlib.textpath import TextPath

    longest = max(lines, key=len)
    if not longest.strip():
        return most
    size = float(TextPath((0, 0), longest, size=most).get_extents().width) / 72
    return max(least, min(most, 0.95 * most * width / size))
