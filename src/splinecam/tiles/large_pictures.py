"""A picture of more regions than memory holds: an image of all, and lines of the first layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from splinecam.errors import SplineCamError
from splinecam.geometry.subdivision import Mesh
from splinecam.plot import picture
from splinecam.plot.arrays import to_numpy
from splinecam.plot.artists import TiledImage
from splinecam.plot.colors import ColorOptions, color_regions
from splinecam.plot.decorations import AxesStyle, draw_border
from splinecam.plot.rasters import CellColors
from splinecam.plot.regions import default_color
from splinecam.tiles import curves, extracting
from splinecam.tiles.curves import class_regions

_TYPICAL = 100_000  # regions that colour scales follow
_LINES = 200_000  # edges that are drawn


def draw_tiles(  # noqa: PLR0913 - the options of a picture, each given by its name
    shown: extracting.Shown,
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
    """Draw what is shown of an atlas on axes, with the options of ``Partition.plot``."""
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
        own = extracting.colors_of(atlas, color, numbers)
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
        find = partial(curves.decision_boundary, atlas, level=level)
        picture.draw_boundary(ax, content, boundary, boundary_color, find)
        samples = picture.draw_samples(ax, content, points, labels, images)
    if colorbar:
        picture.add_colorbar(ax, content, image, colorbar)
    if content.shown is not None or legend:
        picture.add_legends(ax, content, samples)


def _image(
    shown: extracting.Shown, ax: Axes, color: Any, options: ColorOptions, content: picture.Content
) -> TiledImage:
    """The image of all regions, with the colour scale of the content."""
    atlas, coloring = shown.atlas, content.coloring

    def tiles(box: extracting.Box) -> Iterator[tuple[Mesh, CellColors]]:
        for number in extracting.tiles_in(atlas, box):
            with torch.no_grad():
                tile = atlas.tile(number)
                faces = extracting.meeting(tile.mesh, box)
                if faces.shape[0]:
                    part = tile if faces.shape[0] == len(tile) else extracting.selected(tile, faces)
                    numbers = faces + int(atlas.first_region[number])
                    found = color_regions(
                        part, extracting.colors_of(atlas, color, numbers), options
                    )
                    yield found.mesh, found.fill

    boxes = to_numpy(atlas.boxes)
    around = np.concatenate([boxes[:, :2].min(0), boxes[:, 2:].max(0)])
    scale: Any = {"norm": coloring.norm, "cmap": coloring.cmap}
    ink = coloring.fill.ink
    return TiledImage(ax, atlas.frame, around, tiles, count=len(atlas), ink=ink, **scale)


def few_edges(shown: extracting.Shown, most: int = _LINES) -> tuple[Tensor, Tensor]:
    """Layers (N,) and ends (N, 2, 2) of the edges of as many layers as have few edges."""
    atlas, layers = shown.atlas, len(shown.atlas.layers)
    found: list[tuple[Tensor, Tensor]] = []
    count = torch.zeros(layers, dtype=torch.int64)
    box = None if shown.box is None else extracting.local_box(atlas.frame, shown.box)
    seen = torch.zeros(atlas.num_shared_edges, dtype=torch.bool, device=atlas.device)
    last = layers
    for number in shown.tiles:
        tile = atlas.tile(number)
        wanted = (tile.mesh.edge_layer >= 0) & (tile.mesh.edge_layer < last)
        local, shared = atlas.shared_edges(number)
        wanted[local[seen[shared]]] = False  # which is drawn with another tile
        seen[shared] = True
        if box is not None:
            ends = tile.mesh.uv[tile.mesh.edges]
            wanted &= extracting.touching(torch.cat([ends.amin(1), ends.amax(1)], 1), box)
        chosen = wanted.nonzero()[:, 0]
        layer = tile.mesh.edge_layer[chosen]
        found.append((layer, tile.vertices[tile.mesh.edges[chosen]]))
        count += torch.bincount(layer, minlength=layers).cpu()
        fitting = int((count.cumsum(0) <= most).sum())
        if fitting < last:
            last = fitting
            found = [(layer[layer < last], ends[layer < last]) for layer, ends in found]
    layer, ends = (torch.cat(each) for each in zip(*found, strict=True))
    return layer, ends
