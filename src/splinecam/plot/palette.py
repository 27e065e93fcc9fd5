"""Colours of all pictures, told apart with every kind of colour vision, and axes to draw on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from splinecam.errors import SplineCamError
from splinecam.plot.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from splinecam.geometry.domain import Domain

    Floats = NDArray[np.float64]

__all__ = [
    "CLASSES",
    "INK",
    "PAPER",
    "background",
    "class_colors",
    "flat_axes",
    "hues",
    "ink_on",
    "new_axes",
    "require_matplotlib",
    "text_color",
]

# Okabe and Ito's palette, told apart with every kind of colour vision.
CLASSES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#666666")
# Hues for the ninth class on, which differ from the first eight in lightness.
_MORE = ("#332288", "#882255", "#8C8A2D", "#4B2E05")
INK = "#16202c"
PAPER = "#ffffff"

_PALE_INK = "#e6e9ee"  # on dark paper
_DARK = 0.4  # brightness below which paper is dark

_DARKER, _LIGHTER = 0.6, 0.55  # of the colours beyond the twelfth: the share that stays


def class_colors(n: int) -> Floats:
    """A colour for each of n classes, (n, 3): hues first, then darker and lighter ones.

    >>> class_colors(10).shape
    (10, 3)
    """
    require_matplotlib()
    return hues(n)


def hues(n: int) -> Floats:
    """The same colours, (n, 3), also where there is no matplotlib."""
    plain = np.array([[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in (*CLASSES, *_MORE)]) / 255
    every = np.concatenate([plain, _DARKER * plain, 1 - _LIGHTER * (1 - plain)])
    return np.asarray(every[np.arange(n) % len(every)])


def ink_on(paper: Any) -> str:
    """The colour of lines and letters that is seen on paper of a colour.

    >>> ink_on("white") == INK, ink_on("black") == INK
    (True, False)
    """
    from matplotlib.colors import to_rgb

    return INK if float(np.dot(to_rgb(paper), (0.299, 0.587, 0.114))) > _DARK else _PALE_INK


def background(artist: Any) -> Any:
    """The colour of axes or a figure behind what is drawn on them; white if there is none."""
    from matplotlib.colors import to_rgba

    patch = artist.patch
    color = to_rgba(patch.get_facecolor())
    if patch.get_visible() and getattr(artist, "axison", True) and color[3] > 0:
        return color[:3]
    behind = getattr(artist, "figure", None)
    return PAPER if behind is None or behind is artist else background(behind)


def text_color(figure: Any, setting: str = "text.color") -> Any:
    """The colour of letters on a figure: matplotlib's setting, or if that is black, our ink."""
    from matplotlib import rcParams
    from matplotlib.colors import same_color

    color = cast(Any, rcParams)[setting]
    return ink_on(background(figure)) if same_color(color, "black") else color


def flat_axes(ax: Any) -> Axes:
    """Axes that were given to draw on, if they are two-dimensional."""
    require_matplotlib()
    from matplotlib.axes import Axes

    if isinstance(ax, Axes) and ax.name == "rectilinear":
        return ax
    what = f"{ax.name} axes" if isinstance(ax, Axes) else type(ax).__name__
    hint = (
        "; of several axes give one, such as axes[0]" if isinstance(ax, np.ndarray | list) else ""
    )
    raise TypeError(f"ax must be plain 2-D axes, as plt.subplots() gives them, not {what}{hint}")


def new_axes(domain: Domain | None = None, *, width: float = 6.0) -> Axes:
    """Axes on a new figure, so many inches wide and as high as the domain asks for.

    The layout makes room for labels, colour bars and legends, so that none is cut off.
    """
    require_matplotlib()

    aspect = 1.0
    if domain is not None:
        extent = domain.corners.amax(0) - domain.corners.amin(0)
        aspect = float(extent[1] / extent[0])
    height = min(max(aspect * width, width / 4), 2 * width)
    return new_figure(figsize=(width, height), layout="compressed").add_subplot()


def require_matplotlib() -> None:
    """Raise an error that says what to install when matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise SplineCamError(
            "Plotting needs matplotlib, which is not installed. Run: pip install 'splinecam[plot]'"
        ) from error
