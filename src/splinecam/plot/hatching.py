"""Hatched areas, such as those on which two networks decide differently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from splinecam.plot.palette import INK, ink_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from splinecam.plot.arrays import Floats, Ints

__all__ = ["HATCH", "hatch_rings"]

HATCH = "//////"
_VEIL, _DARK_VEIL = (1.0, 1.0, 1.0, 0.35), (0.0, 0.0, 0.0, 0.35)  # lie on the colours below


def hatch_rings(ax: Axes, offsets: Ints, points: Floats, hatch: str | None, color: Any) -> None:
    """Hatch the areas within closed rings, all as one path; offsets: where each ring begins.

    Below dark lines is a light veil, and below light ones a dark veil.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if len(points) == 0:
        return
    codes = np.full(len(points), Path.LINETO, np.uint8)
    codes[offsets[:-1]] = Path.MOVETO
    codes[offsets[1:] - 1] = Path.CLOSEPOLY
    veil = _DARK_VEIL if ink_on(color) == INK else _VEIL
    style: dict[str, Any] = {"facecolor": veil, "edgecolor": color, "linewidth": 0, "zorder": 2.9}
    ax.add_patch(PathPatch(Path(points, codes), hatch=hatch, **style))
