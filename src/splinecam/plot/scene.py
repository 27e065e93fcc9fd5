r"""A surface over the plane, seen from any side, with its cells drawn from back to front.

Of two cells of a convex domain that share an edge, the one beyond the edge, as seen from the eye,
is behind the other. As cells are convex, this order has no cycles. If each pair across an edge is
drawn in order, every cell is drawn before those that hide it.

        eye  >    \ B /
                   \ /  A           A, C, B or C, A, B: both are right.
                C   |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.collections import PolyCollection
from matplotlib.path import Path
from matplotlib.transforms import Affine2D
from mpl_toolkits.mplot3d import proj3d

from splinecam.plot.lines import Floats, Ints, Pixels, image_scale, place_image

NEAREST = 2  # the half of the level in which the eye is
_PATHS = 15_000  # items up to which vector output has paths
_SEAM = 0.2  # points by which polygons overlap in vector output
_THINNEST = 0.1  # pixels: of a ribbon
_WIDE, _FINEST = 380.0, 0.4  # narrower surfaces (in points) have thinner lines, down to a share
_JOIN = 0.3  # of the width of a line, by which its ends go beyond its points
_BLOCK = 1 << 18  # items turned into triangles at a time


@dataclass(frozen=True)
class Neighbours:
    """Pairs of cells: left and right (E,) of edges that begin at start (E, 2) and run along (E, 2).

    count: number of cells.
    """

    left: Ints
    right: Ints
    start: Floats
    along: Floats
    count: int


def eye_of(projection: Floats) -> Floats:
    """The eye of a projection matrix (4, 4), in homogeneous coordinates, (4,).

    It is the kernel of the projection; of a parallel projection, the direction towards the eye.
    """
    if projection[3, :3].any():
        eye = np.linalg.svd(projection[[0, 1, 3]])[2][-1]
        return np.asarray(eye / eye[3])
    toward = np.cross(projection[0, :3], projection[1, :3])
    away = projection[2, :3] @ toward > 0  # depths grow away from the eye
    return np.append(-toward if away else toward, 0.0)


def painters_order(pairs: Neighbours, eye: Floats) -> Ints:
    """The round in which each cell is drawn, (count,); later cells may hide earlier ones."""
    reach = eye[:2] - eye[3] * pairs.start
    side = pairs.along[:, 0] * reach[:, 1] - pairs.along[:, 1] * reach[:, 0]
    split = side != 0
    near = np.where(side > 0, pairs.left, pairs.right)[split]
    far = np.where(side > 0, pairs.right, pairs.left)[split]
    by_far = np.argsort(far, kind="stable")
    near, begin = near[by_far], np.searchsorted(far[by_far], np.arange(pairs.count + 1))
    waiting = np.bincount(near, minlength=pairs.count)  # cells behind each that are not drawn yet
    order = np.full(pairs.count, -1)
    ready, turn = np.flatnonzero(waiting == 0), 0
    while True:
        while len(ready):
            order[ready] = turn
            turn += 1
            size = begin[ready + 1] - begin[ready]
            entry = np.arange(size.sum()) + np.repeat(begin[ready] - np.cumsum(size) + size, size)
            met = near[entry]
            np.subtract.at(waiting, met, 1)
            ready = np.unique(met[waiting[met] == 0])
            ready = ready[order[ready] < 0]
        left = np.flatnonzero(order < 0)
        if not len(left):
            return order
        # Rounding has made a cycle of these cells: the one that waits for the fewest is drawn.
        ready = left[[np.argmin(waiting[left])]]


@dataclass(frozen=True)
class Items:
    """Polygons and lines in space, and the order in which they are drawn.

    points: (P, 3); corners: (I, k) the points of each item, the last one repeated; cells: (I, 2)
    the cells after which it is drawn; rank: (I,) the order of items with the same cells. half: (I,)
    whether it is above (1), at (0) or below (-1) a level, or is drawn with the half in which the
    eye is (NEAREST). face, line: (I, 4) colours, where the face of lines is transparent; width:
    (I,) of lines, in points.
    """

    points: Floats
    corners: Ints
    cells: Ints
    rank: Ints
    half: Ints
    face: Floats
    line: Floats
    width: Floats

    @classmethod
    def of(
        cls,
        points: Floats,
        corners: Ints,
        cells: Ints,
        half: Any,
        *,
        rank: int = 0,
        face: Any = None,
        line: Any = 0.0,
        width: Any = 0.0,
    ) -> Items:
        """Polygons, if ``face`` is given, or lines; single values hold for all of them."""
        count, line = len(corners), line if face is None else face
        return cls(
            points,
            corners,
            cells,
            rank=np.full(count, rank),
            half=np.broadcast_to(half, (count,)),
            face=np.broadcast_to(0.0 if face is None else face, (count, 4)),
            line=np.broadcast_to(line, (count, 4)),
            width=np.broadcast_to(width, (count,)),
        )

    def on_cells(self, first: int) -> Items:
        """The same items on cells whose numbers begin later."""
        return replace(self, cells=self.cells + first)

    def order(self, pairs: Neighbours, projection: Floats, level: float) -> Ints:
        """The items from back to front, (I,): first what is beyond the level, then the rest."""
        eye = eye_of(projection)
        side = 1 if eye[2] > level * eye[3] else -1
        half = np.where(self.half == NEAREST, 1, side * self.half)
        turn = painters_order(pairs, eye)[self.cells].max(1)
        return np.lexsort((self.rank, turn, half))

    def projected(self, projection: Floats) -> tuple[Floats, Floats]:
        """The points on the page, (P, 2), and their depths, (P,)."""
        x, y, depth = proj3d.proj_transform(*self.points.T, projection)
        return np.stack([x, y], 1), np.asarray(depth)


class Scene(PolyCollection):
    """Items, put in order whenever the view changes.

    They are drawn as a smooth image, in which triangles fan out from the items' first corners and
    lines become ribbons; in vector output as paths, if these are not too many.
    """

    def __init__(
        self, items: Items, pairs: Neighbours, *, level: float = 0.0, **style: Any
    ) -> None:
        super().__init__([], joinstyle="round", capstyle="round", **style)
        self.items, self.pairs, self.level = items, pairs, level
        self.set_in_layout(False)  # the axes' box holds it
        self._projection = np.zeros((4, 4))
        self._order = np.arange(len(items.cells))

    def do_3d_projection(self) -> float:
        """Put the items in order, and return the least depth."""
        axes: Any = self.axes
        projection = np.asarray(axes.M)
        if not np.array_equal(projection, self._projection):
            self._order = self.items.order(self.pairs, projection, self.level)
            self._projection = projection
        return float(self.items.projected(projection)[1].min(initial=np.inf))

    def draw(self, renderer: Any) -> None:
        """Draw the items from back to front."""
        if not self.get_visible():
            return
        if not renderer.option_scale_image() or len(self._order) > _PATHS:
            self._draw_image(renderer)
            return
        items, order = self.items, self._order
        uv = items.projected(self._projection)[0]
        # Viewers smooth the borders of paths: polygons overlap a little, to hide the seams.
        lines = items.width[order] * self._fineness(self.get_transform().transform(uv), 1.0)
        width = np.where(items.face[order, 3] > 0, _SEAM, lines)
        style: Any = {"facecolor": items.face[order], "edgecolor": items.line[order]}
        self.set(verts=uv[items.corners[order]], linewidth=width, **style)
        super().draw(renderer)

    def _draw_image(self, renderer: Any) -> None:
        """Draw an image of the figure's size."""
        figure: Any = self.get_figure(root=True)
        scale = image_scale(renderer)
        wide, high = np.ceil(scale * np.asarray(figure.bbox.size)).astype(int).tolist()
        page = self.get_transform() + Affine2D().scale(scale)
        image = self._image(page, wide, high, renderer.points_to_pixels(1.0) * scale)
        gc = renderer.new_gc()
        place_image(renderer, gc, (0, 0), image, scale)
        gc.restore()
        self.stale = False

    def _image(self, page: Any, wide: int, high: int, point: float) -> Pixels:
        """The items, (high, wide, 4) from below, every pixel the mean of four."""
        agg: Any = RendererAgg(2 * wide, 2 * high, 72)  # type: ignore[no-untyped-call]
        flat = page + Affine2D().scale(2)
        uv = flat.transform(self.items.projected(self._projection)[0])
        gc, still = agg.new_gc(), Affine2D()
        fine = self._fineness(uv, 2 * point)
        gc.set_linewidth(0)
        for some in self._runs():
            if len(some) == 1 and self.items.face[some[0], 3] > 0:
                outline, face = uv[self.items.corners[some[0]]], self.items.face[some[0]]
                agg.draw_path(gc, Path(outline), still, tuple(face))
                continue
            triangle, color = self._triangles(uv, some, 2 * point * fine)
            agg.draw_gouraud_triangles(gc, triangle, color, still)
        pixels = np.asarray(agg.buffer_rgba())[::-1].reshape(high, 2, wide, 2, 4) / 255
        alpha = pixels[..., 3:]
        mean, share = (pixels[..., :3] * alpha).mean((1, 3)), alpha.mean((1, 3))
        rgb = mean / np.where(share > 0, share, 1)
        return np.asarray(255 * np.concatenate([rgb, share], 2) + 0.5, np.uint8)

    def _fineness(self, uv: Floats, point: float) -> float:
        """The share of their width that lines have, if the points are at uv (P, 2) in pixels."""
        return float(np.clip(np.ptp(uv[:, 0]) / (_WIDE * point), _FINEST, 1))

    def _runs(self) -> list[Ints]:
        """The items in order, in blocks; a translucent plane is a block of its own."""
        alpha = self.items.face[self._order, 3]
        clear = np.flatnonzero((alpha > 0) & (alpha < 1) & (self.items.half[self._order] == 0))
        alone = clear if len(clear) == 1 else clear[:0]  # triangles of one would show their seams
        runs = np.split(self._order, np.unique([*alone, *(alone + 1)]).astype(np.int64))
        return [some for run in runs for some in np.array_split(run, 1 + len(run) // _BLOCK)]

    def _triangles(self, uv: Floats, some: Ints, point: float) -> tuple[Floats, Floats]:
        """The triangles (T, 3, 2) of some items and the colours of their corners (T, 3, 4)."""
        corners = self.items.corners[some]
        item, place = (corners[:, 1:-1] != corners[:, 2:]).nonzero()
        fan = np.stack([corners[item, 0], corners[item, place + 1], corners[item, place + 2]], 1)
        line = (self.items.face[some, 3] == 0).nonzero()[0]
        ends, width = uv[corners[line, :2]], self.items.width[some[line]] * point
        # Triangles are drawn half a pixel larger on all sides; what is thinner is paler instead.
        ink = self.items.line[some[line]].copy()
        join = np.where(ink[:, 3] == 1, _JOIN * width, 0.0)  # overlaps of others would show
        strips = ribbons(ends, np.maximum(width - 1, _THINNEST), join)
        ink[:, 3] *= np.minimum(width, 1)
        halves = strips[:, [[0, 1, 2], [0, 2, 3]]].reshape(-1, 3, 2)
        triangle = np.concatenate([uv[fan], halves])
        color = np.concatenate([self.items.face[some[item]], np.repeat(ink, 2, 0)])
        back_to_front = np.argsort(np.concatenate([item, np.repeat(line, 2)]), kind="stable")
        return triangle[back_to_front], np.repeat(color[back_to_front, None], 3, 1)


def ribbons(ends: Floats, width: Floats, join: Floats) -> Floats:
    """A rectangle for each line (N, 2, 2), longer by ``join`` at both ends, (N, 4, 2)."""
    along = ends[:, 1] - ends[:, 0]
    size = np.hypot(along[:, 0], along[:, 1])
    along /= np.where(size > 0, size, 1)[:, None]
    across = np.stack([-along[:, 1], along[:, 0]], 1) * (width / 2)[:, None]
    beyond = along * join[:, None]
    p, q = ends[:, 0] - beyond, ends[:, 1] + beyond
    return np.stack([p + across, p - across, q - across, q + across], 1)
