"""The picture of a partition: regions, edges, decision boundary, samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from splinecam.plot.palette import INK, new_axes, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from splinecam.partition import Partition
    from splinecam.plot.furniture import AxesStyle

__all__ = ["plot"]


def plot(
    part: Partition,
    *,
    ax: Axes | None = None,
    color: Any = None,
    output: int | None = None,
    cmap: Any = None,
    limits: tuple[float, float] | None = None,
    edges: Any = True,
    boundary: bool | None = None,
    level: float = 0.0,
    points: Any = None,
    labels: Any = None,
    images: Any = None,
    axes: AxesStyle = "scale",
    colorbar: bool = True,
    legend: bool = True,
    linewidth: float | None = None,
    boundary_color: Any = INK,
    seed: int = 0,
) -> Axes:
    """Draw the regions, the edges by the layer that drew them, and the decision boundary.

    color: ``"class"`` (the winner, paler where it leads by less), ``"slope"`` (size of the gradient
    in the plane), ``"area"``, ``"output"`` (its exact value at every pixel), ``"layer"`` (the last
    one that bounds the region), ``"vertices"``, ``"random"`` (by ``seed``; neighbours differ), an
    array of numbers (F,) or colours (F, 3 or 4), or one colour for all (``"white"``, ``"none"``).
    By default the class if there are several outputs or a final sigmoid was left out, else the
    output. output: which one ``"slope"`` and
    ``"output"`` mean. cmap, limits: the colour map, and the numbers at its ends, by default those
    below which 1 % and 99 % of the area lie.

    edges: False, or numbers of the edges to draw, such as ``part.merged().edges``. boundary: by
    default drawn on classes and where there are several outputs; with one output it is where that
    equals ``level``. points: inputs (N, ...), drawn where they project to, and hollow if they are
    off the plane; labels: their classes (N,); images: thumbnails (N, h, w) or (N, channels, h, w)
    beside them, or True if the points are images themselves. axes: ``"scale"`` for a scale bar,
    ``"ticks"``, or ``"off"``, all in plane units. linewidth: of edges, in points.

    The regions are an image that is computed in the resolution of the picture, also in PDF and SVG
    and after zooming; lines stay lines, unless there are very many.

    >>> import splinecam as sc
    >>> part = sc.partition(torch.nn.Linear(2, 3), sc.Domain.box(-1, 1), progress=False)
    >>> ax = part.plot(color="slope", axes="ticks")
    >>> ax.get_xlabel()
    'x₁'
    """
    require_matplotlib()
    from splinecam.plot.colors import Asked, coloring
    from splinecam.plot.edges import draw_boundary, draw_edges
    from splinecam.plot.fill import CellImage
    from splinecam.plot.furniture import draw_border, fit_figure, set_frame

    several, own = part.values.shape[1] > 1, ax is None
    if color is None:
        color = "class" if several or part.stripped else "output"
    classes = isinstance(color, str) and color == "class"
    with torch.no_grad():
        made = coloring(part, color, Asked(output, cmap, _pair(limits), level, seed))
        ax = new_axes(part.domain) if ax is None else ax
        set_frame(ax, part.domain, axes)
        image = CellImage(ax, made.mesh, part.frame, made.shade, norm=made.norm, cmap=made.cmap)
        ax.add_image(image)
        draw_edges(part, ax, edges, linewidth)
        draw_border(ax, part.domain)
        if (classes or several) if boundary is None else boundary:
            draw_boundary(ax, part.decision_boundary(level=level), boundary_color, rim=not classes)
        named = _draw_samples(part, ax, points, labels, images)
    _explain(ax, image, made, named if several or not classes else (), colorbar, legend)
    if own:
        fit_figure(ax, part.domain)
    return ax


def _pair(limits: Any) -> tuple[float, float] | None:
    """The limits of a colour scale as two numbers."""
    if limits is None:
        return None
    try:
        low, high = (float(limit) for limit in limits)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"limits must be two numbers (low, high), not {limits!r}") from None
    return low, high


def _draw_samples(
    part: Partition, ax: Axes, points: Any, labels: Any, images: Any
) -> tuple[tuple[str, Any], ...]:
    """Points and thumbnails; the names and colours of their classes."""
    from splinecam.plot.points import draw_points, draw_thumbnails, samples_of

    if points is None:
        if labels is not None or images is not None:
            raise ValueError("labels and images belong to points: give points= as well")
        return ()
    samples = samples_of(part.domain, points, labels)
    draw_points(ax, samples)
    if images is not None and images is not False:
        draw_thumbnails(ax, part.domain, samples, points if images is True else images)
    return samples.legend()


def _explain(ax: Axes, image: Any, made: Any, samples: Any, colorbar: bool, legend: bool) -> None:
    """The colour bar or the legend of the regions, and the legend of the samples."""
    from splinecam.plot.furniture import add_colorbar, add_legend

    if colorbar and made.norm is not None:
        add_colorbar(ax, image, made.label, extend=made.extend)
    if legend and made.legend:
        known = {name for name, _ in made.legend} if made.label == "class" else set()
        entries = (*made.legend, *(entry for entry in samples if known and entry[0] not in known))
        add_legend(ax, entries, made.label)
        samples = () if known else samples
    if legend and samples:
        add_legend(ax, samples, below=True)
