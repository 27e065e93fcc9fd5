"""The colours of all pictures, which people with any kind of colour vision can tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:  # so that the reference names the types by these short names
    from splinecam.plot.arrays import Floats, Ints

# The palette of Okabe and Ito.
CLASSES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#666666")
# Hues for the ninth class and later ones, which differ from the first eight in lightness.
_MORE = ("#332288", "#882255", "#8C8A2D", "#4B2E05")
INK = "#16202c"  # lines and letters on light paper
_INK_ON_DARK = "#e6e9ee"
PAPER = "#ffffff"
GREY = "#888888"  # axes and ticks of charts
BOUNDARY = INK  # the decision boundary, unless ``boundary_color`` is given
BOUNDARY_ON_DARK = _INK_ON_DARK
HIGHLIGHT = CLASSES[1]  # the curve of a unit in ``plot_layers``

_DARK = 0.4  # brightness below which paper is dark
_DARKER, _LIGHTER = 0.6, 0.55  # the shares that colours after the twelfth keep
_PALEST, STRONGEST = 0.12, 0.80  # the least and the largest share of a class's colour, by its lead


def class_colors(n: int) -> Floats:
    """A colour for each of n classes, (n, 3): hues first, then darker and lighter ones.

    >>> class_colors(10).shape
    (10, 3)
    """
    plain = np.array([rgb(color) for color in (*CLASSES, *_MORE)])
    every = np.concatenate([plain, _DARKER * plain, 1 - _LIGHTER * (1 - plain)])
    return np.asarray(every[np.arange(n) % len(every)])


def rgb(color: str) -> Floats:
    """A colour such as "#16202c" as three numbers from 0 to 1."""
    return np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)]) / 255


def paler(winner: Ints, lead: Floats, typical: float) -> Floats:
    """The colours (..., 3) of winning classes (...); with a ``typical`` lead they have half."""
    strength = lead / (lead + typical) if typical > 0 else np.ones_like(lead)
    share = (_PALEST + (STRONGEST - _PALEST) * strength)[..., None]
    palette = class_colors(int(winner.max(initial=0)) + 1)
    return np.asarray(1 - share * (1 - palette[winner]))


def ink_on(paper: Any) -> str:
    """The colour of lines and letters on a background, dark or light.

    >>> ink_on("white") == INK, ink_on("black") == INK
    (True, False)
    """
    from matplotlib.colors import to_rgb

    return INK if float(np.dot(to_rgb(paper), (0.299, 0.587, 0.114))) > _DARK else _INK_ON_DARK


def background(artist: Any) -> Any:
    """The colour of the paper of axes or a figure; white if there is none."""
    from matplotlib.colors import to_rgba

    patch = artist.patch
    color = to_rgba(patch.get_facecolor())
    if patch.get_visible() and getattr(artist, "axison", True) and color[3] > 0:
        return color[:3]
    behind = getattr(artist, "figure", None)
    return PAPER if behind is None or behind is artist else background(behind)


def text_color(figure: Any, setting: str = "text.color") -> Any:
    """The colour of letters on a figure: matplotlib's setting, or our ink instead of black."""
    from matplotlib import rcParams
    from matplotlib.colors import same_color

    color = cast(Any, rcParams)[setting]
    return ink_on(background(figure)) if same_color(color, "black") else color


def tick_colors(figure: Any, axis: str) -> tuple[Any, Any]:
    """The colours of the ticks of an axis ("x" or "y") and of their numbers."""
    from matplotlib import rcParams

    mark = text_color(figure, f"{axis}tick.color")
    if cast(Any, rcParams)[f"{axis}tick.labelcolor"] == "inherit":
        return mark, mark
    return mark, text_color(figure, f"{axis}tick.labelcolor")
