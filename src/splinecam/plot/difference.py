"""The picture of the difference of two networks: its size, both boundaries, other decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from splinecam.analysis.boundary import Boundary, decision_boundary
from splinecam.analysis.difference import Difference
from splinecam.plot.arrays import to_numpy
from splinecam.plot.figures import flat_axes, new_axes, require_matplotlib
from splinecam.plot.hatching import HATCH, hatch_rings
from splinecam.plot.palette import CLASSES, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from splinecam.plot.colors import Coloring
    from splinecam.plot.decorations import AxesStyle

__all__ = ["plot_difference"]

_BOUNDARIES = (INK, CLASSES[1])  # of the first and of the second network


def plot_difference(  # noqa: PLR0913 - the options of a picture, each given by its name
    diff: Difference,
    *,
    ax: Axes | None = None,
    output: int | str | None = None,
    cmap: Any = None,
    limits: tuple[float, float] | None = None,
    edges: Any = False,
    boundary: bool = True,
    hatch: str | None = HATCH,
    level: float = 0.0,
    labels: tuple[str, str] = ("model a", "model b"),
    axes: AxesStyle = "scale",
    colorbar: bool = True,
    legend: bool = True,
) -> Axes:
    """Draw how much two networks differ, both decision boundaries, and where decisions differ.

    The colour of a pixel is the largest difference of an output there, without its sign. diff: what
    ``splinecam.difference`` returns. output: only this output, by its number or the name of its
    class. cmap, limits: the colour map, and the numbers at its ends, by default 0 and the largest
    difference. edges: True to draw the edges of the common partition, or as for ``part.plot``.
    boundary: whether to draw the decision boundaries. hatch: the hatching of the area on which
    decisions differ, in the words of matplotlib, or None. level: with one output,
    the number that divides the two classes. labels: what the legend calls the networks. axes,
    colorbar, legend: as for ``part.plot``.

    >>> import splinecam as sc
    >>> a, b = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    >>> ax = sc.difference(a, b, sc.Domain.box(-1, 1), progress=False).plot(axes="ticks")
    >>> ax.get_xlabel()
    '$x_{1}$'
    """
    require_matplotlib()
    from splinecam.plot import picture
    from splinecam.plot.decorations import add_legend, is_flat
    from splinecam.plot.points import Classes

    domain = diff.delta.domain
    with torch.no_grad():
        coloring = _coloring(diff, output, cmap, picture.limits_pair(limits))
        content = picture.Content(diff.delta, coloring, Classes(None, None), False, level, None)
        canvas = new_axes(domain) if ax is None else flat_axes(ax)
        image = picture.draw_cells(canvas, content, axes)
        picture.draw_edges(canvas, content, edges, None)
        if hatch:
            offsets, rings = diff.decisions(level=level).rings()
            hatch_rings(canvas, to_numpy(offsets), to_numpy(rings), hatch, INK)
        if boundary:
            for part, color in zip((diff.a, diff.b), _BOUNDARIES, strict=True):
                _draw_boundary(canvas, decision_boundary(part, level=level), color)
    if colorbar:
        picture.add_colorbar(canvas, content, image, True)
    if legend and boundary:
        entries = list(zip(labels, _BOUNDARIES, strict=True))
        add_legend(canvas, entries, "boundary of", below=is_flat(domain), curves=True)
    if ax is None:
        picture.fit_figure(canvas, domain)
    return canvas


def _coloring(
    diff: Difference, output: int | str | None, cmap: Any, limits: tuple[float, float] | None
) -> Coloring:
    """The modulus of the difference, which is affine on each cell, and its scale."""
    from matplotlib.colors import Normalize

    from splinecam.plot.cell_image import CellColors
    from splinecam.plot.colors import Coloring, ColorOptions, output_name

    if limits is not None and not limits[0] < limits[1]:
        raise ValueError(f"limits are {limits}; give (low, high) with low < high")
    cells = diff.magnitude(output)
    slopes = to_numpy(cells.slopes)
    top = float(cells.values.max())
    norm = Normalize(*(limits or (0.0, top or 1.0)))
    label = "largest difference of an output"
    if output is not None or diff.delta.values.shape[1] == 1:
        name = output_name(diff.a, 0 if output is None else diff.output_index(output))
        label = f"difference of {name}"
    colors = ColorOptions(cmap=cmap).colormap("Blues")
    fill = CellColors(numbers=to_numpy(cells.origin), slopes=slopes)
    return Coloring(cells.mesh, fill, label, norm, colors, (0.0, top))


def _draw_boundary(ax: Axes, curves: Boundary, color: Any) -> None:
    """Draw a decision boundary in a colour, with a light rim."""
    from splinecam.plot.decorations import clip_to
    from splinecam.plot.lines import Lines
    from splinecam.plot.palette import PAPER

    for ink, width, zorder in ((PAPER, 2.6, 3.1), (color, 1.4, 3.2)):
        lines = Lines(to_numpy(curves.ends), colors=ink, linewidths=width, zorder=zorder)
        ax.add_collection(lines, autolim=False)
        clip_to(lines, ax, curves.partition.domain)
