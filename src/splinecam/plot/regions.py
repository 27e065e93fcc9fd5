"""Pictures of a partition with matplotlib, which is imported only when a picture is asked for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splinecam.boundary import LevelSet
from splinecam.classes import ClassRegions, class_regions
from splinecam.errors import SplineCamError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from splinecam.curves import Curves
    from splinecam.partition import Partition

    Floats = NDArray[np.float64]

__all__ = ["CLASSES", "plot", "plot_curves", "require_matplotlib"]

# Okabe and Ito's palette, told apart with every kind of colour vision; more classes repeat it.
CLASSES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#666666")
INK = "#16202c"

# Line widths in points: the widest, and the share of a typical region's size.
_MAX_WIDTH, _SHARE = 0.9, 0.035


def plot(
    part: Partition,
    *,
    ax: Axes | None = None,
    color: Any = "class",
    edges: bool = True,
    boundary: bool = True,
    level: float = 0.0,
    cmap: str | None = None,
    linewidth: float | None = None,
    boundary_color: str = INK,
    seed: int = 0,
) -> Axes:
    """Draw the regions, the edges by the layer that made them, and the decision boundary.

    ``color`` is ``"class"`` (winning output, paler where it wins by less), ``"slope"`` (size of the
    gradient, logarithmic), ``"random"`` (by ``seed``), or an array with a number ``(F,)`` or a
    colour ``(F, 3 or 4)`` per region; numbers are drawn with ``cmap`` between their 1st and 99th
    percentiles. With one output, the classes are the sides of ``level``. ``edges`` and ``boundary``
    switch the lines on and off; ``linewidth`` and ``boundary_color`` change them. Axes are plane
    coordinates: ``ax.scatter(*part.domain.project(x)[0].T, zorder=10)`` adds samples.
    """
    require_matplotlib()
    import matplotlib.pyplot as plt

    if ax is None:
        figure, ax = plt.subplots(figsize=(7, 7))
        figure.subplots_adjust(0.01, 0.01, 0.99, 0.99)
    _frame(part, ax)
    if isinstance(color, str) and color == "class":
        cells = class_regions(part, level=level)
        _fill(ax, cells.cell_corners, cells.cell_offsets, _class_colors(cells))
    else:
        uv = part.vertices[part.face_vertices]
        _fill(ax, uv, part.face_offsets, _face_colors(part, color, cmap, seed))
    width = _typical_width(part, ax) if linewidth is None else linewidth
    if edges:
        _draw_edges(part, ax, width)
    if boundary:
        segments = part.decision_boundary(level=level).ends
        thick = max(1.6, 2 * width)
        if not (isinstance(color, str) and color == "class"):  # a rim, to be seen on dark fills too
            _draw_lines(ax, segments, "white", thick + 1.6, zorder=3)
        _draw_lines(ax, segments, boundary_color, thick, zorder=3)
    return ax


def plot_curves(curves: Curves, *, ax: Axes | None = None, **style: Any) -> Axes:
    """Draw curves as a ``LineCollection``, which ``style`` goes to: color, linewidth, cmap, ...

    Several levels are coloured by level. Without ``ax`` a new figure shows the curves alone, in the
    frame of the domain.
    """
    require_matplotlib()
    import matplotlib.pyplot as plt
    from matplotlib.collections import LineCollection

    if ax is None:
        _, ax = plt.subplots(figsize=(7, 7))
        _frame(curves.partition, ax)
    if not {"color", "colors", "array", "edgecolor", "edgecolors"} & style.keys():
        if isinstance(curves, LevelSet) and len(curves.levels) > 1:
            style["array"] = curves.level.cpu().numpy()
        else:
            style["color"] = INK
    options: dict[str, Any] = {"linewidth": 1.6, "capstyle": "round", "zorder": 3, **style}
    points: Any = curves.ends.cpu().numpy()
    ax.add_collection(LineCollection(points, **options))
    ax.autoscale_view()  # unless the limits are set, as after part.plot()
    return ax


def require_matplotlib() -> None:
    """Raise an error that says what to install when matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise SplineCamError(
            "Plotting needs matplotlib, which is not installed. Run: pip install 'splinecam[plot]'"
        ) from error


# -- colours -------------------------------------------------------------------------------------


def _face_colors(part: Partition, color: Any, cmap: str | None, seed: int) -> Floats:
    """One RGB(A) row per region."""
    if isinstance(color, str):
        if color == "slope":
            slope = torch.linalg.vector_norm(part.weight, dim=(1, 2)).cpu().numpy()
            floor = slope.max(initial=0.0) * np.finfo(np.float64).eps
            return _mapped(np.log10(np.maximum(slope, floor or 1.0)), cmap or "magma")
        if color == "random":
            from matplotlib.colors import hsv_to_rgb

            hsv = np.random.default_rng(seed).random((len(part.areas), 3))
            return np.asarray(hsv_to_rgb(hsv * [1, 0.25, 0.2] + [0, 0.2, 0.75]), np.float64)
        raise SplineCamError(
            f'color is {color!r}; choose "class", "slope", "random", or give an array with one '
            "number or colour per region."
        )
    array = np.asarray(color.detach().cpu() if isinstance(color, torch.Tensor) else color, float)
    if array.ndim == 2 and array.shape[0] == len(part.areas) and array.shape[1] in (3, 4):
        return np.asarray(array)
    if array.shape != (len(part.areas),):
        raise SplineCamError(
            f"color has shape {array.shape}, but there are {len(part.areas)} regions: give (F,) "
            "numbers or (F, 3 or 4) colours."
        )
    return _mapped(array, cmap or "viridis")


def _mapped(values: Floats, cmap: str) -> Floats:
    """Numbers to colours; the ends of the scale are the 1st and 99th percentile."""
    from matplotlib import colormaps

    finite = values[np.isfinite(values)]
    low, high = np.percentile(finite, [1, 99]) if len(finite) else (0.0, 0.0)
    scaled = (values - low) / (high - low) if high > low else np.full_like(values, 0.5)
    return np.asarray(colormaps[cmap](np.clip(scaled, 0, 1)), np.float64)


def _class_colors(cells: ClassRegions) -> Floats:
    """The winner's colour, paler where it wins by little."""
    from matplotlib.colors import to_rgb

    palette = np.array([to_rgb(c) for c in CLASSES])
    base = palette[cells.cell_class.cpu().numpy() % len(palette)]
    lead = cells.cell_leads.cpu().numpy()
    scale = float(np.median(lead)) if len(lead) else 0.0
    strength = lead / (lead + scale) if scale > 0 else np.ones_like(lead)
    share = (0.12 + 0.68 * strength)[:, None]
    return np.asarray(1 - share * (1 - base))


# -- shapes --------------------------------------------------------------------------------------


def _frame(part: Partition, ax: Axes) -> None:
    """Limits from the domain, equal scales, no ticks."""
    corners = part.domain.corners.cpu().numpy()
    low, high = corners.min(0), corners.max(0)
    pad = 0.004 * (high - low)
    ax.set_xlim(low[0] - pad[0], high[0] + pad[0])
    ax.set_ylim(low[1] - pad[1], high[1] + pad[1])
    ax.set_aspect("equal")
    ax.set_axis_off()


def _fill(ax: Axes, uv: torch.Tensor, offsets: torch.Tensor, colors: Floats) -> None:
    """Convex cells with corners ``uv: (H, 2)`` in CSR form, one collection per corner count."""
    from matplotlib.collections import PolyCollection

    uv, offsets = uv.cpu(), offsets.cpu()
    counts = offsets[1:] - offsets[:-1]
    for k in torch.bincount(counts).nonzero().squeeze(1).tolist():
        rows = (counts == k).nonzero().squeeze(1)
        corners: Any = uv[offsets[rows][:, None] + torch.arange(k)].numpy()
        # Without anti-aliasing neighbours share no half-transparent pixels, so no seams show.
        ax.add_collection(
            PolyCollection(
                corners, facecolors=colors[rows.numpy()], linewidths=0, antialiaseds=False
            ),
            autolim=False,
        )


def _typical_width(part: Partition, ax: Axes) -> float:
    """A line width in points that leaves typical regions visible between their edges."""
    corners = part.domain.corners.cpu().numpy()
    extent = float((corners.max(0) - corners.min(0)).max())
    box = ax.get_position()
    figure = ax.figure.bbox.transformed(ax.figure.dpi_scale_trans.inverted())
    size = 72 * figure.width * box.width, 72 * figure.height * box.height
    cell = math.sqrt(part.domain.area / max(len(part.areas), 1)) / extent * float(min(size))
    return min(_MAX_WIDTH, _SHARE * cell)


def _draw_edges(part: Partition, ax: Axes, width: float) -> None:
    """Edges by the cut that made them: later layers lighter and thinner; the border on top."""
    uv = part.vertices.cpu()
    edges, op = part.edges.cpu(), part.edge_op.cpu()
    depth = max(len(part.cuts), 1)
    for k in reversed(range(len(part.cuts))):
        late = k / max(depth - 1, 1)
        _draw_lines(
            ax, uv[edges[op == k]], INK, width * (1.5 - 0.8 * late), 0.7 - 0.3 * late, zorder=2
        )
    _draw_lines(ax, uv[edges[op < 0]], INK, _MAX_WIDTH, zorder=2)


def _draw_lines(
    ax: Axes, segments: torch.Tensor, color: str, width: float, alpha: float = 1.0, *, zorder: int
) -> None:
    from matplotlib.collections import LineCollection

    points: Any = segments.cpu().numpy()
    lines = LineCollection(
        points,
        colors=color,
        linewidths=width,
        alpha=alpha,
        capstyle="round",
        zorder=zorder,
    )
    ax.add_collection(lines, autolim=False)
