"""Pictures of an atlas: few regions as a partition in memory, many tile by tile as an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from splinecam.plot import plot as plot_partition
from splinecam.plot.figures import flat_axes, new_axes, require_matplotlib
from splinecam.tiles.atlas_data import AtlasData
from splinecam.tiles.extracting import Shown, checked_box, colors_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_FEW = 200_000  # regions that are drawn as a partition in memory


def plot(
    atlas: AtlasData,
    *,
    ax: Axes | None = None,
    window: Sequence[float] | None = None,
    color: Any = None,
    few: int = _FEW,
    **options: Any,
) -> Axes:
    """Draw the regions, and the decision boundary, of the whole domain or of a window.

    Up to some 200,000 regions are drawn as ``Partition.plot`` draws them. More become an image that
    is computed tile by tile in the resolution of the picture, whenever it is drawn; the edges of
    the first layers are lines on it, of as many layers as have few edges. Colour scales then follow
    a part of the regions, evenly chosen, and ``color="merged"`` is not possible.

    window: the rectangle (u0, v0, u1, v1) to show, in plane coordinates. few: the number of regions
    up to which a partition in memory is drawn. ax, color, options: as for ``Partition.plot``;
    arrays have an entry for each region of the atlas.
    """
    require_matplotlib()
    shown = Shown.of(atlas, None if window is None else checked_box(window))
    canvas = new_axes(shown.domain) if ax is None else flat_axes(ax)
    if shown.count <= few:
        part, numbers = shown.some(shown.count)
        plot_partition(part, ax=canvas, color=colors_of(atlas, color, numbers), **options)
    else:
        from splinecam.tiles.large_pictures import draw_tiles

        draw_tiles(shown, canvas, color, **options)
    if shown.box is not None:
        u0, v0, u1, v1 = shown.box
        canvas.set_xlim(u0, u1)
        canvas.set_ylim(v0, v1)
    if ax is None:
        from splinecam.plot.decorations import fit_figure

        fit_figure(canvas, shown.domain)
    return canvas
