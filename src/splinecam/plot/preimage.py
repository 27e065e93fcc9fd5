"""The picture of a preimage: the regions, the part that satisfies a condition, and a witness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splinecam.analysis.preimage import Preimage
from splinecam.plot.arrays import to_numpy
from splinecam.plot.figures import require_matplotlib
from splinecam.plot.hatching import HATCH, VEIL, hatch_rings
from splinecam.plot.palette import INK, PAPER
from splinecam.plot.regions import plot
from splinecam.plot.undecided import plot_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from splinecam.analysis.witnesses import Witness

__all__ = ["plot_preimage"]

_DOTS = "...."


def plot_preimage(
    found: Preimage,
    *,
    ax: Axes | None = None,
    hatch: str | None = HATCH,
    color: Any = INK,
    witness: Witness | None = None,
    words: tuple[str, str] = ("condition met", "witness"),
    **options: Any,
) -> Axes:
    """Draw the regions, hatch the part that satisfies the condition, and draw its outline.

    Curves and points at which the condition holds without an area are drawn like the outline. If
    smooth functions of the model were replaced, what is undecided is dotted.
    found: what ``part.preimage`` returns. hatch: the hatching in the words of matplotlib, or None.
    color: of the hatching, of the outline and of the witness. witness: an input to mark. words:
    what the legend calls the hatched part and the witness. options: those of ``part.plot``, in
    which ``color`` is called ``fill``.

    >>> import splinecam as sc, torch
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> ax = part.preimage([[1.0, 1.0]], [1.0]).plot(fill="white", axes="ticks")
    >>> ax.get_xlabel()
    '$x_{1}$'
    """
    require_matplotlib()
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from splinecam.plot.decorations import add_legend, clip_to, fit_figure
    from splinecam.plot.lines import Lines

    if "fill" in options:
        options["color"] = options.pop("fill")
    canvas = plot(found.partition, ax=ax, **{"band": False, **options})
    entries: list[tuple[str, Any]] = []
    if hatch:
        offsets, rings = found.rings()
        hatch_rings(canvas, to_numpy(offsets), to_numpy(rings), hatch, color)
        plot_band(found.band, ax=canvas, hatch=_DOTS, color=color)
        if len(rings):
            entries.append((words[0], Patch(facecolor=VEIL, edgecolor=color, hatch=hatch)))
        if len(found.band.rings()[1]):
            entries.append(("undecided", Patch(facecolor="none", edgecolor=color, hatch=_DOTS)))
    for curves in (found.outline, found.curves):
        for ink, width, zorder in ((PAPER, 2.8, 3.1), (color, 1.6, 3.2)):  # with a light rim
            lines = Lines(to_numpy(curves.ends), colors=ink, linewidths=width, zorder=zorder)
            canvas.add_collection(lines, autolim=False)
            clip_to(lines, canvas, found.partition.domain)
    places = to_numpy(found.points)
    style: dict[str, Any] = {"color": color, "markeredgecolor": PAPER, "zorder": 3.4, "ls": ""}
    canvas.plot(*places.T, marker="o", markersize=5, **style)
    if witness is not None:
        # Light with a dark rim, so that it shows on every class and on the hatching.
        star = {**style, "marker": "*", "color": PAPER, "markeredgecolor": color}
        canvas.plot(*witness.place, markersize=18, markeredgewidth=1.4, **star)
        entries.append((words[1], Line2D([], [], markersize=10, **star)))
    if entries and options.get("legend", True):
        add_legend(canvas, entries, below=True)
        if ax is None:
            fit_figure(canvas, found.partition.domain)
    return canvas
