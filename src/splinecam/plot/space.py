"""Axes in space that fit their figure, and what stands beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.transforms import Bbox
from mpl_toolkits.mplot3d import proj3d

from splinecam.plot.furniture import add_colorbar, add_legend
from splinecam.plot.palette import INK
from splinecam.plot.scene import new_page

if TYPE_CHECKING:
    from mpl_toolkits.mplot3d import Axes3D

    from splinecam.plot.colors import Coloring

__all__ = ["explain_colors", "fit_to_figure", "label_axes", "new_axes_in_space"]

_SMALL = 8  # font size of ticks
_GREY = "#9aa1aa"
# Inches: of a figure, of a colour bar beside it, around it.
_WIDTH, _HIGHEST, _BESIDE, _MARGIN = 6.0, 6.5, 0.9, 0.1


def new_axes_in_space(beside: bool) -> Axes3D:
    """New axes with a light grid, and room for colours beside them."""
    style: Any = {f"axes3d.{axis}axis.panecolor": (1.0, 1.0, 1.0, 0.0) for axis in "xyz"}
    style |= {"grid.color": "#d9dde2", "grid.linewidth": 0.5, "axes.edgecolor": _GREY}
    style |= {"xtick.color": _GREY, "ytick.color": _GREY}
    with plt.rc_context(style):
        side = _WIDTH / 2
        figure = plt.figure(figsize=(_WIDTH + _BESIDE * beside, _WIDTH))
        return figure.add_axes(_shares(figure, side / 2, side / 2, side), projection="3d")


def _shares(figure: Any, left: float, low: float, side: float) -> tuple[float, float, float, float]:
    """A square in inches as shares of a figure."""
    wide, high = figure.get_size_inches()
    return left / wide, low / high, side / wide, side / high


def fit_to_figure(ax: Axes3D) -> None:
    """Make the box and its labels as wide as the figure, and the figure as high as they are.

    A box that is much higher than wide gets narrower.
    """
    figure, limits = ax.figure, (ax.get_xlim(), ax.get_ylim(), ax.get_zlim())
    corners = np.stack(np.meshgrid(*limits), -1).reshape(-1, 3)
    for _ in range(3):  # labels keep their size, so that the first fit is not exact
        ax.M = ax.get_proj()
        page = new_page(figure.bbox.width, figure.bbox.height, figure.dpi)
        x, y, _ = proj3d.proj_transform(*corners.T, ax.M)
        box = Bbox.null()
        box.update_from_data_xy(ax.transData.transform(np.stack([x, y], 1)))
        labels = [axis.get_tightbbox(page) for axis in (ax.xaxis, ax.yaxis, ax.zaxis)]
        box = Bbox.union([box, *(each for each in labels if each is not None)])
        left, low, wide, high = (float(v) / figure.dpi for v in box.bounds)
        frame = ax.bbox.transformed(figure.dpi_scale_trans.inverted())
        scale = min((_WIDTH - 2 * _MARGIN) / wide, (_HIGHEST - 2 * _MARGIN) / high)
        figure.set_figheight(scale * high + 2 * _MARGIN)
        left = (_WIDTH - scale * wide) / 2 - scale * (left - frame.x0)
        low = _MARGIN - scale * (low - frame.y0)
        ax.set_position(_shares(figure, left, low, scale * frame.width))


def label_axes(ax: Axes3D, limits: Any, height: float, name: str) -> None:
    """Limits (3, 2) of u, v and f, their names, and the height for a plane of width 1."""
    (left, right), (low, top), (least, most) = limits
    if least == most:
        least, most = least - 0.5, most + 0.5
    ax.set(xlim=(left, right), ylim=(low, top), zlim=(least, most))
    ax.set_box_aspect((1.0, (top - low) / (right - left), height), zoom=1.0)
    for axis, label in zip((ax.xaxis, ax.yaxis, ax.zaxis), ("u", "v", name), strict=True):
        axis.set_label_text(label, fontsize=_SMALL + 1, color=INK)
        axis.set_tick_params(labelsize=_SMALL, labelcolor=INK)
        axis.get_major_locator().set_params(nbins=5)


def explain_colors(ax: Axes3D, made: Coloring, *, own: bool) -> None:
    """A colour bar or a legend beside the axes, in the room that figures of our own have for it."""
    place = ax.get_position(original=True)
    left, low, right, high = place.extents
    if own:
        left, low, right, high = 0.0, 0.0, _WIDTH / ax.figure.get_figwidth(), 1.0
    box = (left, low + 0.15 * (high - low), right - left, 0.7 * (high - low))
    ax.patch.set_visible(False)  # which would cover what is below the axes
    beside = ax.figure.add_axes(box, zorder=ax.get_zorder() - 1)  # so that the mouse finds the axes
    beside.set_axis_off()
    if made.norm is not None:
        add_colorbar(beside, ScalarMappable(made.norm, made.cmap), made.label, extend=made.extend)
    if made.legend:
        add_legend(beside, made.legend, made.label)
