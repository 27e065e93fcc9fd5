"""The picture of a band in which a boundary may lie: hatched, as one area without seams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splinecam.analysis.band import Band
from splinecam.plot.arrays import to_numpy
from splinecam.plot.figures import flat_axes, new_axes, require_matplotlib
from splinecam.plot.hatching import hatch_rings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_band"]

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

    from splinecam.plot.cell_image import ink_over
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
