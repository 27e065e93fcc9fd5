"""The cells of a mesh as an image that is computed in the resolution of the picture.

Every pixel is the mean of a few points, each with the colour of the cell in which it lies. There
are no seams between cells, borders are smooth, and cells smaller than a pixel are averaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import BboxBase

from splinecam.geometry.frame import Frame
from splinecam.geometry.subdivision import Mesh
from splinecam.plot.arrays import Floats, Ints, Pixels, Singles, to_numpy
from splinecam.plot.palette import INK, background, ink_on
from splinecam.plot.plane_image import PlaneImage, light_bytes, light_of
from splinecam.plot.raster import Cells, Grid

__all__ = ["CellColors", "CellImage", "ink_over"]

_TABLE = 1024  # entries of the table that a colour map is sampled into


@dataclass(frozen=True)
class CellColors:
    """What cells are coloured by: numbers for a colour map, or colours.

    numbers: (F,) one per cell, or, with slopes (F, 2) in the mesh's coordinates, the number at
    their origin. colors: (F, 4).
    """

    numbers: Floats | None = None
    slopes: Floats | None = None
    colors: Floats | None = None

    @property
    def ink(self) -> str | None:
        """The colour of lines on the cells; None if the cells are transparent."""
        if self.colors is None:
            return INK
        alpha = self.colors[:, 3:]
        if alpha.mean() < 0.5:
            return None
        return ink_on((self.colors[:, :3] * alpha).sum(0) / alpha.sum())

    def light(
        self, cells: Cells, grid: Grid, fine: int, scale: PlaneImage
    ) -> Iterator[tuple[int, int, Singles]]:
        """The light of pixels, of ``fine`` times ``fine`` points of a grid each, in bands.

        Yields the first and the last row of pixels of a band, and their light, (rows, columns, 4).
        scale: gives numbers their colours.
        """
        colors = self._lights(scale) if self.slopes is None else None
        for first, last, owner in cells.bands(grid, fine):
            total: Any = 0.0
            for i in range(fine):
                for j in range(fine):
                    some = owner[i::fine, j::fine]
                    if colors is not None:
                        total = total + np.take(colors, some, 0)
                    else:
                        x, y = grid.x()[j::fine], grid.y(first, last)[i::fine]
                        total = total + self._shaded(some, x, y, scale)
            yield first // fine, last // fine, total / fine**2

    def _lights(self, scale: PlaneImage) -> Singles:
        """The light of each cell, (F + 1, 4), and last nothing, for points outside."""
        rgba, alpha = self.colors, scale.get_alpha()
        if rgba is None:
            assert self.numbers is not None
            rgba = np.asarray(scale.to_rgba(np.ma.masked_invalid(self.numbers)))
        rgba = rgba * [1, 1, 1, 1 if alpha is None else alpha]
        return np.concatenate([light_of(rgba), np.zeros((1, 4), np.float32)])

    def _shaded(self, owner: Ints, x: Floats, y: Floats, scale: PlaneImage) -> Singles:
        """The light at points with abscissae x and ordinates y, by their cells' affine maps."""
        assert self.numbers is not None
        assert self.slopes is not None
        slopes = self.slopes[owner]
        numbers = self.numbers[owner]
        numbers += slopes[:, :, 0] * x + slopes[:, :, 1] * y[:, None]
        table = light_of(np.asarray(scale.cmap(np.linspace(0, 1, _TABLE))))
        place = np.asarray(np.ma.filled(scale.norm(numbers), 0.0))
        found: Singles = table[np.clip(place * _TABLE, 0, _TABLE - 1).astype(np.int64)]
        found[owner < 0] = 0
        return found


class CellImage(PlaneImage):
    """The cells of a mesh, drawn in the frame's plane coordinates."""

    def __init__(
        self, ax: Axes, mesh: Mesh, frame: Frame, fill: CellColors, **options: Any
    ) -> None:
        self.cells = Cells.of(mesh)
        self.fill = fill
        uv = to_numpy(mesh.uv)
        numbers = fill.numbers if fill.numbers is not None else np.zeros(0)
        super().__init__(ax, frame, uv.min(0), uv.max(0), numbers, **options)

    @property
    def ink(self) -> str | None:
        """The colour of lines on the cells; None if the cells are transparent."""
        return self.fill.ink

    # -- drawing ------------------------------------------------------------------------------

    def pixels(self, view: BboxBase, width: int, height: int) -> Pixels:
        """A picture (height, width, 4), from below, of a box in plane coordinates."""
        fine = self._points_per_pixel(view, width * height, self.cells.count)
        grid = self._grid(view, fine * width, fine * height)
        image = np.empty((height, width, 4), np.uint8)
        for first, last, light in self.fill.light(self.cells, grid, fine, self):
            image[first:last] = light_bytes(light)
        return self._turned(image, view)

    def cell_at(self, u: float, v: float) -> int:
        """The cell at plane coordinates, -1 outside."""
        x, y = (np.array([u, v]) - self._center) / self._scale
        _, _, owner = next(self.cells.bands(Grid(x, y, 1.0, 1.0, 1, 1)))
        return int(owner[0, 0])

    def get_cursor_data(self, event: Any) -> float | None:
        """The number that the cell under the cursor is coloured by, if any."""
        cell = self.cell_at(event.xdata, event.ydata)
        if cell < 0 or self.fill.numbers is None:
            return None
        number = float(self.fill.numbers[cell])
        if self.fill.slopes is not None:
            place = (np.array([event.xdata, event.ydata]) - self._center) / self._scale
            number += float(self.fill.slopes[cell] @ place)
        return number


def ink_over(ax: Axes) -> str:
    """The colour of lines that are seen on axes: on their cells, or on paper if they have none."""
    inks = [image.ink for image in ax.images if isinstance(image, PlaneImage)]
    return next((ink for ink in reversed(inks) if ink is not None), ink_on(background(ax)))
