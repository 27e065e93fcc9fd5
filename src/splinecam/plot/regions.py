"""The picture of a partition, and hatched areas on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from splinecam.plot.arrays import to_numpy
from splinecam.plot.figures import flat_axes, new_axes, require_matplotlib
from splinecam.questions.certainty import Band, class_band
from splinecam.questions.partition_data import PartitionData

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from splinecam.plot.arrays import Floats, Ints
    from splinecam.plot.decorations import AxesStyle

HATCH = "//////"
VEIL = (1.0, 1.0, 1.0, 0.35)  # lies on the colours below the hatching


def hatch_rings(
    ax: Axes, offsets: Ints, points: Floats, hatch: str | None, color: Any, *, veil: Any = VEIL
) -> None:
    """Hatch the areas within closed rings, all as one path; offsets: where each ring begins.

    veil: the colour below the hatching, which is translucent.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if len(points) == 0:
        return
    codes = np.full(len(points), Path.LINETO, np.uint8)
    codes[offsets[:-1]] = Path.MOVETO
    codes[offsets[1:] - 1] = Path.CLOSEPOLY
    style: dict[str, Any] = {"facecolor": veil, "edgecolor": color, "linewidth": 0, "zorder": 2.9}
    ax.add_patch(PathPatch(Path(points, codes), hatch=hatch, **style))


_HATCH, _STRENGTH = "////", 0.3  # of the veil, which shows also where a band is narrow


def plot_band(
    band: Band, *, ax: Axes | None = None, hatch: str | None = _HATCH, color: Any = None
) -> Axes:
    """Hatch a band, by default on a new figure that shows it in the frame of the domain.

    band: what to hatch. ax: where to draw, such as the axes of ``part.plot``. hatch: the hatching
    in the words of matplotlib, or None for a veil alone. color: of the hatching, by default dark,
    or light on dark paper.

    >>> import splinecam as sc, torch
    >>> part = sc.partition(torch.nn.Linear(2, 1), sc.Domain.box(-1, 1), progress=False)
    >>> ax = part.plot()
    >>> part.decision_boundary().band.plot(ax) is ax  # an exact partition has no band
    True
    """
    require_matplotlib()
    from matplotlib.colors import to_rgba

    from splinecam.plot.cell_images import ink_over
    from splinecam.plot.decorations import draw_border, fit_figure, set_frame

    domain = band.partition.domain
    canvas = new_axes(domain) if ax is None else flat_axes(ax)
    if ax is None:
        set_frame(canvas, domain)
    offsets, rings = band.rings()
    ink = ink_over(canvas) if color is None else color
    veil = to_rgba(ink, _STRENGTH)
    hatch_rings(canvas, to_numpy(offsets), to_numpy(rings), hatch, ink, veil=veil)
    if ax is None:
        draw_border(canvas, domain)
        fit_figure(canvas, domain)
    return canvas


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
    from splinecam.plot.decorations import fit_figure

    options = ColorOptions(output, cmap, picture.limits_pair(limits), level, seed, names)
    color = default_color(part) if color is None else color
    with torch.no_grad():
        content = picture.Content.of(part, color, options, legend)
        canvas = new_axes(part.domain) if ax is None else flat_axes(ax)
        image = picture.draw_cells(canvas, content, axes)
        picture.draw_edges(canvas, content, edges, linewidth)
        if band and part.smoothing is not None and picture.boundary_shown(content, boundary):
            plot_band(class_band(part, smallest=False, level=level), ax=canvas)
        picture.draw_boundary(canvas, content, boundary, boundary_color)
        samples = picture.draw_samples(canvas, content, points, labels, images)
    if colorbar:
        picture.add_colorbar(canvas, content, image, colorbar)
    if content.shown is not None or legend:
        picture.add_legends(canvas, content, samples)
    if ax is None:
        fit_figure(canvas, part.domain)
    return canvas


def default_color(part: PartitionData) -> str:
    """What regions are coloured by unless a colour is given."""
    return "class" if part.values.shape[1] > 1 or part.stripped else "output"
