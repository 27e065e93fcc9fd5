"""Pictures of an atlas: few regions as a partition in memory, many tile by tile as an image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from splinecam.errors import DomainError, SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.geometry.subdivision import Mesh
from splinecam.partitions.partition import Partition
from splinecam.plot import plot as plot_partition
from splinecam.plot import regions as picture
from splinecam.plot.colors import ColorOptions, color_regions
from splinecam.plot.decorations import AxesStyle, draw_border
from splinecam.plot.figures import flat_axes, new_axes, require_matplotlib
from splinecam.plot.lines import to_numpy
from splinecam.plot.rasters import CellColors, TiledImage
from splinecam.plot.regions import default_color
from splinecam.questions.partition_data import PartitionData
from splinecam.tiles import curves
from splinecam.tiles.atlas_data import AtlasData
from splinecam.tiles.curves import class_regions
from splinecam.tiles.extracting import (
    Box,
    checked_box,
    extract,
    local_box,
    meeting,
    selected,
    tiles_in,
    touching,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Shown:
    """What a picture shows of an atlas.

    box: the window, None for the whole; domain: the rectangle, or the whole polygon; tiles: the
    numbers of those in the window; count: the number of regions in it.
    """

    atlas: AtlasData
    box: Box | None
    domain: Domain
    tiles: list[int]
    count: int

    @classmethod
    def of(cls, atlas: AtlasData, box: Box | None) -> Shown:
        """What is in a window, or in the whole atlas."""
        if box is None:
            return cls(atlas, None, atlas.domain, list(range(atlas.num_tiles)), len(atlas))
        local = local_box(atlas.frame, box)
        tiles = tiles_in(atlas, local)
        count = sum(meeting(atlas.tile(k).mesh, local).shape[0] for k in tiles)
        if not count:
            raise DomainError(f"The window {list(box)} is outside of the domain.")
        u0, v0, u1, v1 = box
        corners = torch.tensor([[u0, v0], [u1, v0], [u1, v1], [u0, v1]], dtype=torch.float64)
        domain = replace(atlas.domain, corners=corners.to(atlas.domain.corners))
        return cls(atlas, box, domain, tiles, count)

    def some(self, count: int) -> tuple[Partition, Tensor]:
        """About so many of the regions, evenly chosen, or all of them, and their numbers (F,)."""
        step = max(1, -(-self.count // count))
        local = None if self.box is None else local_box(self.atlas.frame, self.box)

        def evenly(tile: PartitionData) -> Tensor:
            if local is not None:
                return meeting(tile.mesh, local)[::step]
            return torch.arange(0, len(tile), step, device=tile.mesh.uv.device)

        return extract(self.atlas, evenly, self.tiles)


def colors_of(atlas: AtlasData, color: Any, numbers: Tensor) -> Any:
    """The part of an array with an entry for each region of the atlas, or the colour as it is."""
    if color is None or isinstance(color, str):
        return color
    try:
        size = len(color)
    except TypeError:
        return color  # which is wrong, as the picture says
    if size != len(atlas):
        raise ValueError(f"color has {size:,} entries, but the atlas has {len(atlas):,} regions")
    if isinstance(color, Tensor):
        return color[numbers.to(color.device)]
    if isinstance(color, list | tuple):
        return [color[k] for k in numbers.tolist()]
    return color[numbers.cpu().numpy()]


_TYPICAL = 100_000  # regions that colour scales follow
_LINES = 200_000  # edges that are drawn


def draw_tiles(  # noqa: PLR0913 - the options of a picture, each given by its name
    shown: Shown,
    ax: Axes,
    color: Any = None,
    *,
    output: int | None = None,
    cmap: Any = None,
    limits: tuple[float, float] | None = None,
    edges: Any = None,
    boundary: bool | None = None,
    level: float = 0.0,
    points: Any = None,
    labels: Any = None,
    images: Any = None,
    names: Any = None,
    axes: AxesStyle = "scale",
    colorbar: Any = True,
    legend: Any = True,
    linewidth: float | None = None,
    boundary_color: Any = None,
    seed: int = 0,
) -> None:
    """Draw what is shown of an atlas on axes; the options are those of ``Partition.plot``."""
    atlas = shown.atlas
    color = default_color(atlas.tile(0)) if color is None else color
    if isinstance(color, str) and color == "merged":
        raise SplineCamError(
            'color="merged" needs all regions in memory: choose another colour, or a smaller window'
        )
    if not (edges is None or isinstance(edges, bool | np.bool_ | str)):
        raise TypeError("edges of so many regions are drawn by layer: give True, False or a colour")
    options = ColorOptions(output, cmap, picture.limits_pair(limits), level, seed, names)
    with torch.no_grad():
        if legend is True and isinstance(color, str) and color == "class" and shown.box is None:
            there = class_regions(atlas, level=level).areas > 0
            legend = there.nonzero()[:, 0].tolist()
        part, numbers = shown.some(_TYPICAL)
        own = colors_of(atlas, color, numbers)
        content = picture.Content.of(part, own, options, legend)
        picture.prepare(ax, atlas.domain, axes)
        image = _image(shown, ax, color, replace(options, limits=content.coloring.limits), content)
        ax.add_image(image)
        if edges is None or isinstance(edges, str) or edges:
            layer, segments = few_edges(shown)
            area = (len(atlas.layers), shown.domain.area)
            ink = picture.edge_ink(ax, edges)
            picture.draw_layers(ax, layer, segments, area, ink, linewidth)
        draw_border(ax, atlas.domain)

        def find() -> Any:
            return curves.decision_boundary(atlas, level=level)

        picture.draw_boundary(ax, content, boundary, boundary_color, find)
        samples = picture.draw_samples(ax, content, points, labels, images)
    if colorbar:
        picture.add_colorbar(ax, content, image, colorbar)
    if content.shown is not None or legend:
        picture.add_legends(ax, content, samples)


def _image(
    shown: Shown, ax: Axes, color: Any, options: ColorOptions, content: picture.Content
) -> TiledImage:
    """The image of all regions, with the colour scale of the content."""
    atlas, coloring = shown.atlas, content.coloring

    def tiles(box: Box) -> Iterator[tuple[Mesh, CellColors]]:
        for number in tiles_in(atlas, box):
            with torch.no_grad():
                tile = atlas.tile(number)
                faces = meeting(tile.mesh, box)
                if faces.shape[0]:
                    part = tile if faces.shape[0] == len(tile) else selected(tile, faces)
                    numbers = faces + int(atlas.first_region[number])
                    found = color_regions(part, colors_of(atlas, color, numbers), options)
                    yield found.mesh, found.fill

    boxes = to_numpy(atlas.boxes)
    around = np.concatenate([boxes[:, :2].min(0), boxes[:, 2:].max(0)])
    scale: Any = {"norm": coloring.norm, "cmap": coloring.cmap}
    ink = coloring.fill.ink
    return TiledImage(ax, atlas.frame, around, tiles, count=len(atlas), ink=ink, **scale)


def few_edges(shown: Shown, most: int = _LINES) -> tuple[Tensor, Tensor]:
    """The edges of the first layers, of as many layers as have at most so many edges together.

    Returns the layer of each edge, (N,), and its ends in the plane, (N, 2, 2).
    """
    atlas, layers = shown.atlas, len(shown.atlas.layers)
    found: list[tuple[Tensor, Tensor]] = []
    count = torch.zeros(layers, dtype=torch.int64)
    box = None if shown.box is None else local_box(atlas.frame, shown.box)
    seen = torch.zeros(atlas.num_shared_edges, dtype=torch.bool, device=atlas.device)
    last = layers
    for number in shown.tiles:
        tile = atlas.tile(number)
        wanted = (tile.edge_layer >= 0) & (tile.edge_layer < last)
        local, shared = atlas.shared_edges(number)
        wanted[local[seen[shared]]] = False  # which is drawn with another tile
        seen[shared] = True
        if box is not None:
            ends = tile.mesh.uv[tile.edges]
            wanted &= touching(torch.cat([ends.amin(1), ends.amax(1)], 1), box)
        chosen = wanted.nonzero()[:, 0]
        layer = tile.edge_layer[chosen]
        found.append((layer, tile.vertices[tile.edges[chosen]]))
        count += torch.bincount(layer, minlength=layers).cpu()
        fitting = int((count.cumsum(0) <= most).sum())
        if fitting < last:
            last = fitting
            found = [(layer[layer < last], ends[layer < last]) for layer, ends in found]
    layer, ends = (torch.cat(each) for each in zip(*found, strict=True))
    return layer, ends


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
        draw_tiles(shown, canvas, color, **options)
    if shown.box is not None:
        u0, v0, u1, v1 = shown.box
        canvas.set_xlim(u0, u1)
        canvas.set_ylim(v0, v1)
    if ax is None:
        from splinecam.plot.decorations import fit_figure

        fit_figure(canvas, shown.domain)
    return canvas
