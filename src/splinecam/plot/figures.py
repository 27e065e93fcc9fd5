"""Figures and axes to draw on, and texts on them.

A notebook shows the figures of pyplot at the end of each cell, and the value of the cell's last
expression. It would show a figure of pyplot twice if a function returned it as it is.
"""

from __future__ import annotations

import operator
import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from splinecam._util.text import harmless, latex_text, optional
from splinecam.geometry.domain import Domain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Many fonts, among them cmr10, lack these signs; mathtext and LaTeX have fonts of their own.
_MATH = re.compile(r"‖A‖|x([₀-₉]+)|(?:(\d)×)?10([⁻⁰¹²³⁴-⁹]+)|[≤<>|]")
_SIGNS = {"‖A‖": r"\|A\|", "≤": r"\leq"}
_DIGITS = str.maketrans("₀₁₂₃₄₅₆₇₈₉⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789-0123456789")


def written(text: str) -> str:
    r"""Text for matplotlib that looks the same in any font, and with LaTeX (``text.usetex``).

    Signs and indices become formulas, and LaTeX's special characters are escaped. Text with a
    formula of the user's own stays as it is, if matplotlib can read it.

    >>> written("slope ‖A‖"), written("x₁₂"), written("2×10⁻⁶"), written("a_1")
    ('slope $\\|A\\|$', '$x_{12}$', '$2\\times10^{-6}$', 'a_1')
    """
    import matplotlib
    from matplotlib.mathtext import MathTextParser

    text = harmless(text)
    if text.count("$") > 1:
        with suppress(ValueError):  # unless matplotlib cannot draw it
            MathTextParser("path").parse(text)
            return text
    latex, done, parts = matplotlib.rcParams["text.usetex"], 0, []
    for found in _MATH.finditer(text):
        index, factor, power = found.groups()
        formula = _SIGNS.get(found[0], found[0])
        if index:
            formula = f"x_{{{index.translate(_DIGITS)}}}"
        elif power:
            start = rf"{factor}\times" if factor else ""
            formula = f"{start}10^{{{power.translate(_DIGITS)}}}"
        parts += [text[done : found.start()], f"${formula}$"]
        done = found.end()
    parts.append(text[done:])
    parts[::2] = [latex_text(x) if latex else x.replace("$", r"\$") for x in parts[::2]]
    return "".join(parts)


def require_matplotlib() -> None:
    """Raise an error that says what to install when matplotlib is missing."""
    optional("matplotlib", "Plotting", "plot")


def new_figure(**options: Any) -> Figure:
    """A figure of pyplot for the options of ``pyplot.figure``; a notebook shows it once."""
    import matplotlib.pyplot as plt

    figure: Figure = shown_once(plt.figure(**options))
    return figure


def shown_once(figure: Any) -> Any:
    """The same figure, which a notebook shows as a value and then not again."""
    from matplotlib.figure import Figure

    if isinstance(figure, Figure):  # parts of figures do not show themselves
        display: Any = figure
        display._ipython_display_ = partial(_display, figure)
    return figure


def _display(figure: Figure) -> None:
    """Close a figure that IPython is about to show, so that pyplot does not show it again."""
    import matplotlib
    import matplotlib.pyplot as plt

    if "inline" in matplotlib.get_backend().lower():
        plt.close(figure)
    raise NotImplementedError  # IPython then shows it in the formats of the user's choice


def new_axes(domain: Domain | None = None, *, width: float = 6.0) -> Axes:
    """Axes on a new figure, so many inches wide and as high as the domain requires.

    The layout makes room for labels, colour bars and legends.
    """
    require_matplotlib()
    aspect = 1.0
    if domain is not None:
        extent = domain.corners.amax(0) - domain.corners.amin(0)
        aspect = float(extent[1] / extent[0])
    height = min(max(aspect * width, width / 4), 2 * width)
    return new_figure(figsize=(width, height), layout="compressed").add_subplot()


def flat_axes(ax: Any) -> Axes:
    """The given axes if they are two-dimensional; raises a ``TypeError`` otherwise."""
    require_matplotlib()
    from matplotlib.axes import Axes

    if isinstance(ax, Axes) and ax.name == "rectilinear":
        return ax
    what = f"{ax.name} axes" if isinstance(ax, Axes) else type(ax).__name__
    several = isinstance(ax, np.ndarray | list)
    hint = "; of several axes give one, such as axes[0]" if several else ""
    raise TypeError(f"ax must be plain 2-D axes, as plt.subplots() gives them, not {what}{hint}")


def axes_in_space(ax: Any) -> None:
    """Raise a ``TypeError`` for flat axes; None stands for new ones."""
    if ax is not None and not hasattr(ax, "view_init"):
        raise TypeError(
            'ax must be axes in space: plt.figure().add_subplot(projection="3d"), not '
            f"{type(ax).__name__}"
        )


def panel_axes(
    axes: Any, count: int, across: int = 1, size: tuple[float, float] = (6.4, 4.8)
) -> list[Axes]:
    """The given axes, one for each panel, or new ones of a size in inches, so many in a row."""
    if axes is None:
        down = -(-count // across)
        figure = new_figure(figsize=(across * size[0], down * size[1]), layout="constrained")
        return [figure.add_subplot(down, across, k + 1) for k in range(count)]
    given: list[Axes] = list(np.atleast_1d(np.asarray(axes, dtype=object)).ravel())
    if len(given) != count:
        raise ValueError(f"{len(given)} axes were given, but {count} panels are drawn")
    return given


def panel_columns(columns: int | None, panels: int, default: int) -> int:
    """The number of panels in a row: the given number or the default, at most all panels."""
    wanted = default if columns is None else operator.index(columns)
    if wanted < 1:
        raise ValueError(f"columns must be at least 1, not {wanted}")
    return min(wanted, panels)


def plain_spines(ax: Axes, color: str) -> None:
    """Draw only the left and the lower axis, in one colour, below everything else."""
    ax.tick_params(labelsize=8, color=color, which="both")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(color)


def is_input_plane(domain: Domain) -> bool:
    """Whether the coordinates in the plane are the inputs themselves."""
    return domain.dim == 2 and not domain.origin.any() and bool(domain.basis.diagonal().eq(1).all())


def sliced_features(domain: Domain) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The indices of the two features that the plane's coordinates are, or None."""
    if not bool((domain.basis == 1).any(1).all()):
        return None
    axes = domain.basis.argmax(1)
    if bool(domain.origin[axes].any()) or int(domain.basis.count_nonzero()) != 2:
        return None
    first, second = (np.unravel_index(axis, domain.input_shape) for axis in axes.tolist())
    return tuple(map(int, first)), tuple(map(int, second))
