"""The picture of a partition: regions, edges, decision boundary, samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch

from splinecam.analysis.partition_data import PartitionData
from splinecam.plot.figures import flat_axes, new_axes, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from splinecam.plot.decorations import AxesStyle

__all__ = ["default_color", "plot"]


def plot(  # noqa: PLR0913 - the options of a picture, each given by its name
    part: PartitionData,
    *,
    ax: Axes | None = None,
    color: Any = None,
    output: int | None = None,
    cmap: Any = None,
    limits: tuple[float, float] | None = None,
    edges: Any = None,
    boundary: bool | None = None,
    band: bool = True,
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
    output: the output that ``"slope"`` and ``"output"`` mean. cmap, limits: the colour map, and the
    numbers at its ends, by default those below which 1 % and 99 % of the area lie; slopes and areas
    are on a logarithmic scale. Of classes the second limit is the lead that has half of its colour,
    of vertices the largest number with a colour of its own. For pictures with equal limits that
    share a colour bar, switch off theirs, and call ``figure.colorbar(ax.images[0], ax=axes)``.
    colorbar: or ``"min"``, ``"max"``, ``"both"``, ``"neither"``, the ends that are pointed.
    legend: the classes that occur, ``"all"`` of them, so that a series of pictures has one legend,
    a list of some, or False.

    edges: False, the name of a colour for all of them, or the numbers of those to draw, such as
    ``part.merged().edges``. linewidth: of edges, in points. boundary: by default drawn on classes
    and where there are several outputs; with one output it is where that equals ``level``. band:
    hatch where the boundary of a model with smooth functions may lie, wherever it is drawn. points:
    inputs (N, ...), drawn where they project to, and hollow if they are off the plane; labels:
    their classes (N,), by number or name, grey if they are none; names of which the partition knows
    none get colours of their own. images: thumbnails (N, h, w) or (N, channels, h, w) beside them,
    or True if the points are images themselves. names: of the classes, two if there is one output;
    by default those of the partition. axes: ``"scale"`` for a scale bar, ``"ticks"``, or ``"off"``
    without axis labels, all in plane units.

    Lines are dark, or light on dark paper. The regions are an image that is computed in the
    resolution of the picture, also in PDF and SVG and after zooming; lines stay lines, unless there
    are very many.

    >>> import splinecam as sc
    >>> part = sc.partition(torch.nn.Linear(2, 3), sc.Domain.box(-1, 1), progress=False)
    >>> ax = part.plot(color="slope", axes="ticks")
    >>> ax.get_xlabel()
    '$x_{1}$'
    """
    require_matplotlib()
    from splinecam.plot import picture
    from splinecam.plot.colors import ColorOptions

    options = ColorOptions(output, cmap, picture.limits_pair(limits), level, seed, names)
    color = default_color(part) if color is None else color
    with torch.no_grad():
        content = picture.Content.of(part, color, options, legend)
        canvas = new_axes(part.domain) if ax is None else flat_axes(ax)
        image = picture.draw_cells(canvas, content, axes)
        picture.draw_edges(canvas, content, edges, linewidth)
        if band:
            picture.draw_band(canvas, content, boundary)
        picture.draw_boundary(canvas, content, boundary, boundary_color)
        samples = picture.draw_samples(canvas, content, points, labels, images)
    if colorbar:
        picture.add_colorbar(canvas, content, image, colorbar)
    if content.shown is not None or legend:
        picture.add_legends(canvas, content, samples)
    if ax is None:
        picture.fit_figure(canvas, part.domain)
    return canvas


def default_color(part: PartitionData) -> str:
    """What regions are coloured by unless a colour is given."""
    return "class" if part.values.shape[1] > 1 or part.stripped else "output"
