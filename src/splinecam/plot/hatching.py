"""Hatched areas, such as those on which two networks decide differently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from splinecam.plot.arrays import Floats, Ints

__all__ = ["HATCH", "VEIL", "hatch_rings"]

HATCH = "//////"
VEIL = (1.0, 1.0, 1.0, 0.35)  # lies on the colours below the hatching


def hatch_rings(
    ax: Axes,
    offsets: Ints,
    points: Floats,
    hatch: str | None,
    color: Any,
    *,
    veil: Any = VEIL,
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
