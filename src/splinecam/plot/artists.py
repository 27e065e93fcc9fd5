"""Artists that are drawn as images in the resolution of the picture: segments and cells.

Every pixel of cells is the mean of a few points, each with the colour of its cell. Means are of
amounts of light: there are no seams between cells, borders are smooth, and tiny cells mix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.collections import LineCollection
from matplotlib.image import AxesImage
from matplotlib.path import Path
from matplotlib.transforms import Affine2D, Bbox, BboxBase, IdentityTransform

from splinecam.geometry.domain import Frame
from splinecam.geometry.subdivision import Mesh
from splinecam.plot.arrays import Floats, Ints, Pixels, to_numpy
from splinecam.plot.palette import background, ink_on
from splinecam.plot.rasters import CellColors, Cells, PointGrid, light_bytes

# matplotlib's renderer of images limits the segments of a path, and their length in image widths.
_CHUNK, _CROSSINGS = 10_000, 300
_MANY = 50_000  # segments that vector output holds as lines; more become an image
_DPI = 300  # of images in vector output, at least
_HAIRLINE = 0.2  # width in points that viewers of vector output do not change
_FAINT = 0.01  # width in pixels below which lines are invisible


def image_scale(renderer: Any) -> float:
    """Pixels per unit of the renderer in images that are drawn with it."""
    scale = float(renderer.get_image_magnification())
    return max(scale, _DPI / 72) if renderer.option_scale_image() else scale


def draw_image(
    artist: Any, renderer: Any, corner: Any, image: Pixels, size: tuple[float, float]
) -> None:
    """Draw an artist as an image, given its lower left corner and its size in vector output."""
    gc = renderer.new_gc()
    artist._set_gc_clip(gc)
    vector = (Affine2D().scale(*size),) if renderer.option_scale_image() else ()
    renderer.draw_image(gc, *corner, image, *vector)
    gc.restore()
    artist.stale = False


def figure_of(artist: Any) -> Any:
    """The figure that an artist is on, also if it is on a part of the figure."""
    return artist.figure.canvas.figure


def window_of(artist: Any) -> Any:
    """The part of the figure in which an artist is seen, a ``Bbox``, or None."""
    return Bbox.intersection(artist.axes.bbox, figure_of(artist).bbox)


def line_width(  # in this order for ``functools.partial``, as figures are pickled
    spacing: float, share: float, most: float, least: float, rim: float, points_per_unit: float
) -> float:
    """The width in points: a share of the spacing in the plane, between two widths, and a rim."""
    return max(least, min(most, share * spacing * points_per_unit)) + rim


class SegmentLines(LineCollection):
    """Segments (S, 2, 2) as compound paths, of one colour, or of one per group.

    groups: the number of segments in each group, one group after the other; colours and ``array``
    then have an entry per group. width_at: the width at a scale of the picture, see ``line_width``.
    """

    axes: Any

    def __init__(
        self,
        segments: Floats,
        *,
        groups: list[int] | None = None,
        width_at: Callable[[float], float] | None = None,
        **style: Any,
    ) -> None:
        self._ends = np.asarray(segments, np.float64).reshape(-1, 2, 2)
        self._groups = [len(self._ends)] if groups is None else groups
        self.width_at = width_at
        self._last: tuple[Any, Any] = (None, None)
        style = {"capstyle": "round", "snap": False, **style}
        self._starts = _chunks(self._ends, np.cumsum(self._groups))
        group = np.searchsorted(np.cumsum(self._groups), self._starts[:-1], side="right")
        for name in {"array", "colors"} & style.keys():  # every path has its group's
            if np.ndim(style[name]) and groups is not None:
                style[name] = np.asarray(style[name])[group]
        super().__init__([], **style)
        self.set_in_layout(False)  # measuring takes long, and the axes hold them

    def set_segments(self, segments: Any) -> None:
        """Make the paths; the segments were given when the lines were made."""
        step = np.array([Path.MOVETO, Path.LINETO], Path.code_type)
        self._paths = [
            Path(self._ends[i:j].reshape(-1, 2), np.tile(step, j - i))
            for i, j in pairwise(self._starts)
        ]
        self.stale = True

    def get_segments(self) -> list[Floats]:
        """The segments, (2, 2) each."""
        return list(self._ends)

    def draw(self, renderer: Any) -> None:
        """Draw as lines, or in vector output, where there are many, as an image."""
        if not self.get_visible() or not len(self._ends):
            return
        if self.width_at is not None:
            pixels = self.axes.bbox.width / abs(self.axes.viewLim.width)
            width = self.width_at(72 / figure_of(self).dpi * pixels)
            if width != self._width():
                self.set_linewidth(width)
        if renderer.points_to_pixels(self._width()) < _FAINT:
            return
        if not renderer.option_scale_image():
            super().draw(renderer)
            return
        if len(self._ends) <= _MANY:
            self._draw_hairlines(renderer)
            return
        self.update_scalarmappable()
        box = window_of(self)
        if box is None:
            return
        scale = image_scale(renderer)
        key = (*box.extents, *self.axes.viewLim.extents, scale, self._width())
        if self._last[0] != key:  # the last image is kept, as layouts draw twice
            self._last = key, self._image(box, scale)
        draw_image(self, renderer, box.min, self._last[1], (box.width, box.height))

    def _width(self) -> float:
        return float(np.max(self.get_linewidth()))

    def _draw_hairlines(self, renderer: Any) -> None:
        """Draw very thin lines, which viewers of vector output widen, as wider and paler ones."""
        width, alpha = self._width(), self.get_alpha()
        if width < _HAIRLINE:
            self.set_linewidth(_HAIRLINE)
            self.set_alpha((1.0 if alpha is None else float(alpha)) * width / _HAIRLINE)
        super().draw(renderer)
        if width < _HAIRLINE:
            self.set_linewidth(width)
            self.set_alpha(alpha)

    def _image(self, box: Bbox, scale: float) -> Pixels:
        """The lines in a box of the figure, with so many pixels per point, from below."""
        size = (max(1, round(scale * box.width)), max(1, round(scale * box.height)))
        agg: Any = RendererAgg(*size, 72 * scale)  # type: ignore[no-untyped-call]
        fit = Affine2D().translate(-box.x0, -box.y0)
        fit.scale(size[0] / box.width, size[1] / box.height)
        colors: Any = self.get_edgecolor()
        for k, path in enumerate(self._paths):
            gc = agg.new_gc()
            gc.set_foreground(colors[k % len(colors)], isRGBA=True)
            gc.set_linewidth(self._width())
            gc.set_capstyle(self.get_capstyle() or "round")
            gc.set_snap(False)
            agg.draw_path(gc, path, self.get_transform() + fit)
        return np.asarray(agg.buffer_rgba())[::-1]


def _chunks(segments: Floats, ends: Ints) -> list[int]:
    """Where the paths of segments (S, 2, 2) begin, and S; no path goes beyond its group."""
    if not len(segments):
        return [0]
    extent = max(np.ptp(axis) for axis in segments.reshape(-1, 2).T) or 1.0
    crossed = np.cumsum(np.abs(segments[:, 1] - segments[:, 0]).sum(1) / extent)
    starts = {0, len(segments), *ends.tolist(), *range(0, len(segments), _CHUNK)}
    full = np.arange(1, crossed[-1] // _CROSSINGS + 1) * _CROSSINGS
    return sorted(starts.union(np.searchsorted(crossed, full).tolist()))


_ROOMY, _CROWDED = 16, 2  # pixels per cell above which fewer points per pixel are enough


class PlaneImage(AxesImage):
    """An image of cells in plane coordinates, which subclasses compute with ``pixels``.

    It is a ``ScalarMappable`` like any image, with a norm, a colour map and colour bars. low, high:
    (2,) its corners in the local coordinates of the frame. ink: the colour of lines on the cells;
    None if the cells are transparent.
    """

    ink: str | None

    def __init__(
        self, ax: Axes, frame: Frame, low: Floats, high: Floats, numbers: Any, **options: Any
    ) -> None:
        self._center, self._scale = to_numpy(frame.center), frame.scale
        low, high = (self._center + self._scale * end for end in (low, high))
        extent = (low[0], high[0], low[1], high[1])
        # "none" keeps this image apart from other images in vector output.
        super().__init__(ax, extent=extent, interpolation="none", origin="lower", **options)
        self._A = np.ma.masked_invalid(numbers)
        self._last: tuple[Any, Any] = (None, None)
        self.set_clip_path(ax.patch)

    def pixels(self, view: BboxBase, width: int, height: int) -> Pixels:
        """A picture (height, width, 4), from below, of a box in plane coordinates."""
        raise NotImplementedError

    def draw(self, renderer: Any) -> None:
        """Draw the cells that are in view."""
        if not self.get_visible():
            return
        scale = image_scale(renderer)
        image, left, low, _ = self.make_image(renderer, scale)
        if image is not None:
            high, wide = image.shape[:2]
            draw_image(self, renderer, (left, low), image, (wide / scale, high / scale))

    def make_image(
        self, renderer: Any, magnification: float = 1.0, unsampled: bool = False
    ) -> tuple[Any, float, float, Any]:
        """The pixels in view, (h, w, 4) from below, and where they begin."""
        whole = Bbox.from_extents(*np.array(self.get_extent())[[0, 2, 1, 3]])
        window = window_of(self)
        if window is not None:
            window = Bbox.intersection(whole.transformed(self.axes.transData), window)
        if window is None or not (window.width > 0 and window.height > 0):
            return None, 0.0, 0.0, IdentityTransform()
        left, low = (math.floor(magnification * v) for v in window.min)
        right, top = (math.ceil(magnification * v) for v in window.max)
        width, height = right - left, top - low
        inverse = Affine2D().scale(1 / magnification) + self.axes.transData.inverted()
        view = Bbox.from_extents(left, low, right, top).transformed(inverse)
        norm = self.norm
        limits = (norm.vmin, norm.vmax, norm)
        key = (*view.extents, width, height, self.get_alpha(), *limits, self.cmap)
        if self._last[0] != key:  # the last image is kept, as layouts draw twice
            self._last = key, self.pixels(view, width, height)
        return self._last[1], left / magnification, low / magnification, IdentityTransform()

    def _points_per_pixel(self, view: BboxBase, pixels: int, cells: int) -> int:
        """The number of points per pixel and axis: more where the cells of the image are small."""
        whole = np.prod(np.diff(np.array(self.get_extent()).reshape(2, 2)))
        share = float(abs(view.width * view.height) / abs(whole))
        roomy = pixels / (cells * min(1.0, share))
        return 2 if roomy > _ROOMY else 3 if roomy > _CROWDED else 4

    def _grid(self, view: BboxBase, columns: int, rows: int) -> PointGrid:
        """The grid of a view in the mesh's coordinates."""
        low = (np.array([view.xmin, view.ymin]) - self._center) / self._scale
        step = np.array([abs(view.width) / columns, abs(view.height) / rows]) / self._scale
        (left, bottom), (run, rise) = low + step / 2, step
        return PointGrid(left, bottom, run, rise, columns, rows)

    @staticmethod
    def _turned(image: Pixels, view: BboxBase) -> Pixels:
        """An image of a view, turned round if the axes run backwards."""
        return image[:: -1 if view.y1 < view.y0 else 1, :: -1 if view.x1 < view.x0 else 1]

    def get_size(self) -> tuple[int, int]:
        """Rows and columns; a picture of cells has none of its own."""
        return 1, 1


class CellImage(PlaneImage):
    """The cells of a mesh, drawn in the frame's plane coordinates."""

    def __init__(
        self, ax: Axes, mesh: Mesh, frame: Frame, fill: CellColors, **options: Any
    ) -> None:
        self.cells, self.fill, self.ink = Cells.of(mesh), fill, fill.ink
        uv = to_numpy(mesh.uv)
        numbers = fill.numbers if fill.numbers is not None else np.zeros(0)
        super().__init__(ax, frame, uv.min(0), uv.max(0), numbers, **options)

    def pixels(self, view: BboxBase, width: int, height: int) -> Pixels:
        fine = self._points_per_pixel(view, width * height, self.cells.mesh.num_faces)
        grid = self._grid(view, fine * width, fine * height)
        image = np.empty((height, width, 4), np.uint8)
        for first, last, light in self.fill.light(self.cells, grid, fine, self):
            image[first:last] = light_bytes(light)
        return self._turned(image, view)

    def get_cursor_data(self, event: Any) -> float | None:
        """The number that the cell under the cursor is coloured by, if any."""
        place = (np.array([event.xdata, event.ydata]) - self._center) / self._scale
        _, _, owner = next(self.cells.bands(PointGrid(place[0], place[1], 1.0, 1.0, 1, 1)))
        cell = int(owner[0, 0])
        if cell < 0 or self.fill.numbers is None:
            return None
        number = float(self.fill.numbers[cell])
        if self.fill.slopes is not None:
            number += float(self.fill.slopes[cell] @ place)
        return number


def ink_over(ax: Axes) -> str:
    """The colour of lines on axes: it is seen on their cells, or on paper if there are none."""
    inks = [image.ink for image in ax.images if isinstance(image, PlaneImage)]
    return next((ink for ink in reversed(inks) if ink is not None), ink_on(background(ax)))


# The cells of each tile in a rectangle (u0, v0, u1, v1) of local coordinates, and their colours.
Tiles = Callable[[tuple[float, float, float, float]], Iterator[tuple[Mesh, CellColors]]]


class TiledImage(PlaneImage):
    """The cells of many meshes that cover the domain together, drawn one mesh after the other."""

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
        self._tiles, self._count, self.ink = tiles, count, ink

    def pixels(self, view: BboxBase, width: int, height: int) -> Pixels:
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


def _part_of(grid: PointGrid, fine: int, mesh: Mesh) -> tuple[PointGrid, int, int]:
    """The part of a grid around a mesh, in whole pixels, and its first column and row of pixels."""
    low, high = to_numpy(mesh.uv.amin(0)), to_numpy(mesh.uv.amax(0))
    start, step = np.array([grid.left, grid.low]), np.array([grid.step, grid.rise])
    most = np.array([grid.columns, grid.rows]) // fine
    begin = np.clip(np.floor((low - start) / (fine * step)), 0, most).astype(int)
    end = np.clip(np.ceil((high - start) / (fine * step)) + 1, 0, most).astype(int)
    (column, row), (columns, rows) = begin.tolist(), (end - begin).tolist()
    left, bottom = grid.left + fine * column * grid.step, grid.low + fine * row * grid.rise
    part = PointGrid(left, bottom, grid.step, grid.rise, fine * columns, fine * rows)
    return part, column, row
