"""Cells in tiles, of which one at a time is in memory, as an image in the picture's resolution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import BboxBase

from splinecam.geometry.frame import Frame
from splinecam.geometry.subdivision import Mesh
from splinecam.plot.arrays import Floats, Pixels
from splinecam.plot.cell_image import CellColors
from splinecam.plot.plane_image import PlaneImage, light_bytes
from splinecam.plot.raster import Cells, Grid

__all__ = ["TiledImage"]

# The cells of each tile in a rectangle (u0, v0, u1, v1) of local coordinates, and their colours.
Tiles = Callable[[tuple[float, float, float, float]], Iterator[tuple[Mesh, CellColors]]]


class TiledImage(PlaneImage):
    """The cells of many meshes that cover the domain together, drawn one mesh after the other.

    box: (4,) the smallest and the largest local coordinates of all; tiles: gives the meshes in a
    rectangle; count: the number of all cells; ink: the colour of lines on them.
    """

    def __init__(
        self,
        ax: Axes,
        frame: Frame,
        box: Floats,
        tiles: Tiles,
        *,
        count: int,
        ink: str | None,
        **options: Any,
    ) -> None:
        super().__init__(ax, frame, box[:2], box[2:], np.zeros(0), **options)
        self._tiles, self._count, self._ink = tiles, count, ink

    @property
    def ink(self) -> str | None:
        """The colour of lines on the cells; None if the cells are transparent."""
        return self._ink

    def pixels(self, view: BboxBase, width: int, height: int) -> Pixels:
        """A picture (height, width, 4), from below, of a box in plane coordinates."""
        fine = self._points_per_pixel(view, width * height, self._count)
        grid = self._grid(view, fine * width, fine * height)
        total = np.zeros((height, width, 4), np.float32)
        right, top = grid.x()[-1] + grid.step / 2, grid.y(0, grid.rows)[-1] + grid.rise / 2
        shown = grid.left - grid.step / 2, grid.low - grid.rise / 2, right, top
        for mesh, fill in self._tiles(shown):
            part, column, row = _part_of(grid, fine, mesh)
            if part.columns > 0 and part.rows > 0:
                cells, wide = Cells.of(mesh, part), part.columns // fine
                for first, last, light in fill.light(cells, part, fine, self):
                    total[row + first : row + last, column : column + wide] += light
        # Rounding may give a point on a seam to both of its tiles.
        total /= np.maximum(total[:, :, 3:], 1)
        return self._turned(light_bytes(total), view)

    def get_cursor_data(self, event: Any) -> None:
        """Nothing: the cell under the cursor is not in memory."""


def _part_of(grid: Grid, fine: int, mesh: Mesh) -> tuple[Grid, int, int]:
    """The part of a grid around a mesh, in whole pixels, and its first column and row of pixels."""
    low, high = mesh.uv.amin(0).tolist(), mesh.uv.amax(0).tolist()
    starts, counts = [], []
    for axis, (start, step, count) in enumerate(
        ((grid.left, grid.step, grid.columns), (grid.low, grid.rise, grid.rows))
    ):
        first, last = ((end - start) / (fine * step) for end in (low[axis], high[axis]))
        begin = int(np.clip(np.floor(first), 0, count // fine))
        end = int(np.clip(np.ceil(last) + 1, 0, count // fine))
        starts.append(begin)
        counts.append(end - begin)
    (column, row), (columns, rows) = starts, counts
    left, bottom = grid.left + fine * column * grid.step, grid.low + fine * row * grid.rise
    part = Grid(left, bottom, grid.step, grid.rise, fine * columns, fine * rows)
    return part, column, row
