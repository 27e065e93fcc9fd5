"""Figures that notebooks show once.

A notebook shows the figures of pyplot at the end of each cell, and the value of the last expression
of the cell: a function that makes a figure with pyplot and returns it would show it twice.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["new_figure", "once"]


def new_figure(**options: Any) -> Figure:
    """A figure of pyplot, with the options of ``pyplot.figure``, that a notebook shows once."""
    import matplotlib.pyplot as plt

    figure: Figure = once(plt.figure(**options))
    return figure


def once(figure: Any) -> Any:
    """The same figure, which a notebook that shows it as a value does not show again.

    >>> import matplotlib.pyplot as plt
    >>> figure = once(plt.figure())
    >>> plt.close(figure)
    """
    from matplotlib.figure import Figure

    if isinstance(figure, Figure):  # parts of figures do not show themselves
        display: Any = figure
        display._ipython_display_ = partial(_display, figure)
    return figure


def _display(figure: Figure) -> None:
    """Take a figure that is about to be shown from those that pyplot shows after the cell.

    The error makes IPython show it in the formats that the user has chosen.
    """
    import matplotlib
    import matplotlib.pyplot as plt

    if "inline" in matplotlib.get_backend().lower():
        plt.close(figure)
    raise NotImplementedError
