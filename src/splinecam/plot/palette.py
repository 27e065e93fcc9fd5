"""Colours of all pictures, told apart with every kind of colour vision, and fresh axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splinecam.errors import SplineCamError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from splinecam.domain import Domain

    Floats = NDArray[np.float64]

__all__ = ["CLASSES", "INK", "PAPER", "class_colors", "new_axes", "require_matplotlib"]

# Okabe and Ito's palette, told apart with every kind of colour vision.
CLASSES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#666666")
# Hues for the ninth class on, which differ from the first eight in lightness.
_MORE = ("#332288", "#882255", "#8C8A2D", "#4B2E05")
INK = "#16202c"
PAPER = "#ffffff"

_DARKER, _LIGHTER = 0.6, 0.55  # of the colours beyond the twelfth: the share that stays


def class_colors(n: int) -> Floats:
    """A colour for each of n classes, (n, 3): hues first, then darker and lighter ones.

    >>> class_colors(10).shape
    (10, 3)
    """
    require_matplotlib()
    from matplotlib.colors import to_rgb

    hues = np.array([to_rgb(c) for c in (*CLASSES, *_MORE)])
    every = np.concatenate([hues, _DARKER * hues, 1 - _LIGHTER * (1 - hues)])
    return np.asarray(every[np.arange(n) % len(every)])


def new_axes(domain: Domain | None = None, *, width: float = 6.0) -> Axes:
    """Axes on a new figure, so many inches wide and as high as the domain asks for.

    The layout makes room for labels, colour bars and legends, so that none is cut off.
    """
    require_matplotlib()
    import matplotlib.pyplot as plt

    aspect = 1.0
    if domain is not None:
        extent = domain.corners.amax(0) - domain.corners.amin(0)
        aspect = float(extent[1] / extent[0])
    height = min(max(aspect * width, width / 4), 2 * width)
    _, ax = plt.subplots(figsize=(width, height), layout="compressed")
    return ax


def require_matplotlib() -> None:
    """Raise an error that says what to install when matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise SplineCamError(
            "Plotting needs matplotlib, which is not installed. Run: pip install 'splinecam[plot]'"
        ) from error
