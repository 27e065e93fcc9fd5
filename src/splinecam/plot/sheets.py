"""Sheets in space, one facet per region: graphs, images in three outputs, slices, and axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_rgba
from matplotlib.transforms import Bbox
from mpl_toolkits.mplot3d import Axes3D, proj3d
from torch import Tensor

from splinecam.geometry.subdivision import Mesh
from splinecam.plot.arrays import Floats, Ints, to_numpy
from splinecam.plot.colors import Coloring, ColorOptions, color_regions
from splinecam.plot.decorations import add_colorbar, add_legend
from splinecam.plot.figures import new_figure, written
from splinecam.plot.palette import BOUNDARY, BOUNDARY_ON_DARK, INK, text_color, tick_colors
from splinecam.plot.scene import FlatPolygons, Scene, Strokes, nearest
from splinecam.questions.boundary import decision_boundary, winners_of
from splinecam.questions.partition_data import PartitionData

_SMALL, _TINY, _WIDE = 8.0, 5.5, 260.0  # sizes of numbers, the first on axes of so many points
_GREY, _FAINT = "#9aa1aa", 0.16  # of axes, and the opacity of the grid
_NUMBERS, _LABELS = 1.75, 4.0  # distances from the axes, in sizes of letters
# Inches: of a figure, of a colour bar beside it, around it, between titles.
_WIDTH, _HIGHEST, _BESIDE, _MARGIN, _GAP = 6.0, 6.5, 0.9, 0.1, 0.08
_FLAT = 0.02  # share of the largest extent that is added around flat directions
_ROUNDS, _EXACT = 6, 0.5  # of fitting, until nothing is off by so many pixels


def place_axes(ax: Axes3D | None, beside: bool) -> tuple[Axes3D, AxesFit]:
    """The given or new axes, which fill their place except for some room beside them."""
    if ax is not None:
        before = ax.get_axes_locator()
        before = before.before if isinstance(before, AxesFit) else before
        fit = AxesFit(ax, before=before, beside=_BESIDE * beside)
    else:
        figure = new_figure(figsize=(_WIDTH + _BESIDE * beside, _WIDTH), layout="none")
        ax = figure.add_subplot(projection="3d")
        fit = AxesFit(ax, own=True, beside=_BESIDE * beside)
        fit.fill_figure()
    ax.set_axes_locator(fit)
    return ax, fit


@dataclass(frozen=True, eq=False)
class AxesFit:
    """Places axes whenever they are drawn, such that their box and labels fill a cell."""

    ax: Axes3D
    own: bool = False  # whether the figure has no other axes, so that titles need room
    before: Any = None  # the earlier locator of the axes
    beside: float = 0.0  # inches that stay free at the right of the cell

    def __call__(self, _: Any, renderer: Any) -> Bbox:
        """Fit the view to the cell; the square of the axes, in shares of the figure."""
        ax = self.ax
        if ax.button_pressed is None:  # axes keep their size while they are turned
            ax.apply_aspect(ax.get_position())  # in case the figure was resized
            cell = self.cell(renderer)
            for _ in range(_ROUNDS):  # not exact, as letters keep their size
                if self._fill(cell, self.content(renderer)):
                    break
        place: Bbox = ax.bbox.transformed(ax.figure.transSubfigure.inverted())
        return place

    def get_subplotspec(self) -> Any:
        """The axes' place in a grid, for layout engines."""
        return self.ax.get_subplotspec()

    def fill_figure(self, high: float = _WIDTH) -> None:
        """Make the figure so many inches high, and let the axes fill it up to a margin."""
        figure = self.ax.figure
        figure.set_size_inches(_WIDTH + self.beside, high)
        x, y = _MARGIN / figure.get_figwidth(), _MARGIN / high
        self.ax.set_position((x, y, 1 - 2 * x, 1 - 2 * y))

    def cell(self, renderer: Any) -> Bbox:
        """The box for the axes, in pixels."""
        ax, figure = self.ax, self.ax.figure
        share = ax.get_position(original=True)
        share = self.before(ax, renderer) if self.before is not None else share
        left, low, right, top = share.transformed(figure.transSubfigure).extents
        if self.own:
            top -= self._heads(renderer, top)
        elif self.before is None and figure.get_layout_engine() is None:
            place = ax.get_subplotspec()
            if place is not None:  # the room between columns, or beside a single one
                _, _, starts, ends = place.get_gridspec().get_grid_positions(figure)
                gap = starts[1] - ends[0] if len(starts) > 1 else min(starts[0], 1 - ends[0])
                gap = max(0.0, float(gap)) * figure.bbox.width / 2
                left, right = left - gap, right + gap
        return Bbox.from_extents(left, low, right - self.beside * figure.dpi, top)

    def content(self, renderer: Any = None) -> Bbox:
        """The current box of the axes and their labels, in pixels."""
        ax = self.ax
        ax.M = ax.get_proj()
        limits = ax.get_xlim(), ax.get_ylim(), ax.get_zlim()
        drawn = [each.points for each in ax.collections if isinstance(each, Scene)]
        if getattr(ax, "_axis3don", True) or not drawn:
            points = np.stack(np.meshgrid(*limits), -1).reshape(-1, 3)
            boxes = [axis.get_tightbbox(renderer) for axis in (ax.xaxis, ax.yaxis, ax.zaxis)]
        else:  # without axes the surfaces alone
            points, boxes = np.concatenate(drawn), []
        x, y, _ = proj3d.proj_transform(*points.T, ax.M)
        box = Bbox.null()
        box.update_from_data_xy(ax.transData.transform(np.stack([x, y], 1)))
        return Bbox.union([box, *(each for each in boxes if each is not None)])

    def _fill(self, cell: Bbox, content: Bbox) -> bool:
        """Move the content into the cell by changing the view; return whether it was there."""
        ax, view, frame = self.ax, self.ax.viewLim, self.ax.bbox
        scale = min(cell.width / content.width, cell.height / content.height)
        middle, old = (np.add(box.min, box.max) / 2 for box in (cell, content))
        side, top = min(cell.size), middle[1] + scale * content.height / 2
        # The square of the axes goes to the content's top, where matplotlib puts a title.
        corner = np.array([middle[0] - side / 2, top - side])
        extent = view.size * side / (scale * np.asarray(frame.size))
        moved = middle + scale * (frame.min - old)  # where the view's corner is to be
        low = view.min - (moved - corner) * extent / side
        off = np.abs([*(middle - old), (scale - 1) * max(content.size), *(frame.min - corner)])
        view.set_points(np.stack([low, low + extent]))
        square = Bbox(np.stack([corner, corner + side]))
        ax.apply_aspect(square.transformed(ax.figure.transSubfigure.inverted()))
        return bool(off.max() < _EXACT)

    def _heads(self, renderer: Any, top: float) -> float:
        """The height of the titles of the axes and of the figure, in pixels."""
        ax, figure, gap = self.ax, self.ax.figure, _GAP * self.ax.figure.dpi
        titles = (ax.title, *(getattr(ax, f"_{side}_title") for side in ("left", "right")))
        shown = [title.get_window_extent(renderer).height for title in titles if title.get_text()]
        high = max(shown) + gap if shown else 0.0
        above = [text for text in figure.texts if text.get_text() == figure.get_suptitle() != ""]
        lows = [text.get_window_extent(renderer).y0 for text in above]
        return float(high + max([0.0, *(top - low + gap for low in lows)]))


def label_axes(
    fit: AxesFit, names: Sequence[str], limits: Floats, height: float | None = None
) -> None:
    """Set limits (3, 2), names and ticks; height: of the box over a plane of width 1."""
    ax, extent = fit.ax, np.diff(limits)
    if height is None:
        flat = extent < _FLAT * (extent.max() or 1.0)
        limits = limits + flat * np.array([[-1, 1]]) * _FLAT * (extent.max() or 1.0)
        wide, deep, high = np.diff(limits)[:, 0]
    else:
        limits = limits + np.array([[0, 0], [0, 0], [-0.5, 0.5]]) * (extent[2] == 0)
        wide, deep, high = 1.0, float(extent[1, 0] / extent[0, 0]), height
    ax.set(**dict(zip(("xlim", "ylim", "zlim"), limits.tolist(), strict=True)))
    ax.set_box_aspect((wide, deep, high), zoom=1.0)
    wide = 72 * min(fit.cell(None).size) / ax.figure.dpi
    size = float(np.clip(_SMALL * wide / _WIDE, _TINY, _SMALL))
    colors = [tick_colors(ax.figure, axis)[1] for axis in "xyx"]
    ink = text_color(ax.figure, "axes.labelcolor")
    ax.patch.set_visible(False)  # it would hide what is below the axes
    for axis, label, color in zip((ax.xaxis, ax.yaxis, ax.zaxis), names, colors, strict=True):
        axis.set_label_text(written(label), fontsize=size + 1, color=ink)
        axis.set_tick_params(labelsize=size, labelcolor=color, color=_GREY)
        axis.get_offset_text().set(size=size, color=color)
        axis.get_major_locator().set_params(nbins=5 if size == _SMALL else 4)
        axis.set_pane_color((1.0, 1.0, 1.0, 0.0))
        axis.line.set(color=_GREY, linewidth=0.1 * size)
        axis._axinfo["grid"].update(color=to_rgba(ink, _FAINT), linewidth=0.06 * size)
    _pad_labels(fit, size)
    for _ in range(3 * fit.own):  # a new figure is as high as its content at the full width
        fit(ax, None)
        wide, high = fit.content().size / ax.figure.dpi
        scale = (_WIDTH - 2 * _MARGIN) / wide
        fit.fill_figure(min(scale * high + 2 * _MARGIN, _HIGHEST))


def _pad_labels(fit: AxesFit, size: float) -> None:
    """Set the distances of numbers and labels from the axes, given the size of letters."""
    ax = fit.ax
    fit(ax, None)
    # Distances are shares of the box; matplotlib assumes that it is half as wide as the axes.
    box = np.stack(np.meshgrid([0, 1], [0, 1], [0, 1]), -1).reshape(-1, 3)
    ends = np.array([ax.get_xlim(), ax.get_ylim(), ax.get_zlim()])
    x, y, _ = proj3d.proj_transform(*(ends[:, 0] + box * np.ptp(ends, axis=1)).T, ax.M)
    stretch = 2 * max(np.ptp(x), np.ptp(y)) / (np.sqrt(2) * ax.viewLim.width)
    for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
        axis.set_tick_params(pad=_NUMBERS * size / stretch - 8)
        axis.labelpad = _LABELS * size / stretch - 21
    fit(ax, None)
    numbers = [label.get_window_extent() for label in ax.zaxis.get_ticklabels()]
    wide = max((box.width for box in numbers), default=0) * 72 / ax.figure.dpi
    ax.zaxis.labelpad += max(0.0, wide - 2.5 * size) / stretch


def explain_colors(fit: AxesFit, coloring: Coloring) -> None:
    """Add a colour bar or a legend in the free room beside the axes."""
    figure = fit.ax.figure
    beside = figure.add_axes((0, 0, 1, 1), zorder=fit.ax.get_zorder() - 1)  # below, for the mouse
    beside.set_axes_locator(_Middle(fit))
    beside.apply_aspect(beside.get_axes_locator()(beside, None))
    beside.set_axis_off()
    if coloring.norm is not None:
        mappable = ScalarMappable(coloring.norm, coloring.cmap)
        add_colorbar(beside, mappable, coloring.label, extend=coloring.extend)
    if coloring.legend:
        add_legend(beside, coloring.legend, coloring.label)


@dataclass(frozen=True, eq=False)
class _Middle:
    """Places axes in the middle of the cell of other axes."""

    fit: AxesFit

    def __call__(self, _: Any, renderer: Any) -> Bbox:
        cell = self.fit.cell(renderer)
        low, high = cell.y0 + 0.15 * cell.height, cell.y1 - 0.15 * cell.height
        box = Bbox.from_extents(cell.x0, low, cell.x1, high)
        return box.transformed(self.fit.ax.figure.transSubfigure.inverted())

    def get_subplotspec(self) -> Any:
        return self.fit.get_subplotspec()


_LIGHT = (70.0, 50.0)  # degrees: where the light is, counter-clockwise from the eye, and how high
_EDGE, _EDGE_ALPHA = (0.45, 0.2), (0.75, 0.4)  # width in points and strength: first, last layer
_EDGE_SHARE, _POINTS = 0.08, 300.0  # of the spacing, when the sheet is about so many points wide
_BOUNDARY_WIDTH = 1.7  # points
_LIGHTNESS = 0.45  # of a sheet on which the boundary is dark
_PLANE = (0.35, 0.38, 0.42, 0.35)
_GRAPH_VIEWS = [(33.0, azimuth) for azimuth in (-60.0, 30.0, 120.0, -150.0)]
_VIEWS = list(product([50.0, 30.0, 15.0], [30.0 * k - 170 for k in range(12)]))
_SOME_VIEWS = list(product([30.0], [30.0 * k - 170 for k in range(1, 12, 3)]))
_MANY = 100_000  # corners of facets up to which all views are tried
_SEEN = 160  # pixels of the pictures from which the best view is chosen


@dataclass(frozen=True)
class Look:
    """How sheets are drawn."""

    edges: bool
    boundary_colors: Sequence[Any] | None  # of each sheet's boundary, if it is drawn
    alpha: float = 1.0  # the opacity of facets
    darkest: float = 0.5  # the share of its colour on a facet that faces away from the light
    height: float | None = None  # of a graph over a plane of width 1; None for equal scales
    plane: float | None = None  # the level of a translucent plane in a graph
    colorbar: bool = False  # explain the colours of the first sheet


@dataclass(frozen=True)
class Sheet:
    """The cells of a partition as facets in space."""

    part: PartitionData
    place: Callable[[Tensor, Tensor], Tensor]  # from uv (N, 2) and outputs to points (N, 3)
    coloring: Coloring
    points: Floats  # (V, 3) of the mesh's vertices
    region: Ints  # (F,) of each cell
    layer: Ints  # (E,) of each edge, -1 for the border, -2 for the decision boundary
    level: float  # where a single output changes its class
    height: float | None  # as in ``Look``

    @classmethod
    def of(
        cls,
        part: PartitionData,
        place: Callable[[Tensor, Tensor], Tensor],
        color: Any,
        options: ColorOptions,
        height: float | None = None,
    ) -> Sheet:
        """The regions with their colours, or the cells of the classes."""
        coloring = color_regions(part, color, options)
        level = options.level
        if coloring.mesh is part.mesh:
            points, region = place(part.vertices, part.values), np.arange(len(part))
            layer = part.mesh.edge_layer
        else:
            overlay = winners_of(part, "argmax", level, whole=True).overlay
            values = overlay.z[:, 1:] + level if part._n_out == 1 else overlay.z
            points = place(part._frame.to_plane(overlay.mesh.uv), values)
            layer = torch.where(overlay.source >= 0, part.mesh.edge_layer[overlay.source], -2)
            region = to_numpy(overlay.face)
        own = to_numpy(points), region, to_numpy(layer)
        return cls(part, place, coloring, *own, level, height)

    @property
    def mesh(self) -> Mesh:
        return self.coloring.mesh

    @cached_property
    def corners(self) -> Ints:
        """The vertices of each cell, (F, k), the last one repeated."""
        return padded_corners(self.mesh)

    @cached_property
    def page(self) -> Floats:
        """The points (V, 3) in units that have the same length on all axes."""
        if self.height is None:
            return self.points
        wide, _, high = np.ptp(self.points, axis=0)
        return np.asarray(self.points * [1, 1, self.height * wide / (high or 1.0)])

    @cached_property
    def normals(self) -> Floats:
        """The normals of the cells on the page, (F, 3), as long as the cells are large."""
        at = self.page[self.corners]
        at = at - at[:, :1]
        return np.asarray(np.cross(at, np.roll(at, -1, 1)).sum(1) / 2)

    @cached_property
    def areas(self) -> Floats:
        """The areas of the cells in the plane, (F,)."""
        return np.asarray(to_numpy(self.mesh.areas_and_centroids()[0]))

    def edges(self, alpha: float) -> Strokes:
        """The cells' edges except on the boundary, thinner and paler for later layers."""
        shown = np.flatnonzero(self.layer >= -1)
        ends, layer = to_numpy(self.mesh.edges)[shown], self.layer[shown]
        beside = _twice(to_numpy(self.mesh.halfedge_face().view(-1, 2))[shown])
        area = float(np.linalg.norm(self.normals, axis=1).sum())
        width, color = edge_style(self.page, ends, layer, len(self.part.layers), area)
        return Strokes.of(self.points[ends], beside, color * [1, 1, 1, alpha], width, 1)

    def boundary(self, color: Any, colors: Floats) -> Strokes:
        """The decision boundary, by default in a colour that is seen on ``colors`` (F, 4)."""
        if not color:
            lightness = self.areas @ colors[:, :3].mean(1) / self.areas.sum()
            color = BOUNDARY if lightness > _LIGHTNESS else BOUNDARY_ON_DARK
        maps, found = self.part._maps, decision_boundary(self.part, level=self.level)
        regions = _twice(to_numpy(found.regions))
        inside = torch.as_tensor(regions[:, :1], device=found.points.device)
        shift = (found.local_ends - maps.anchor[inside])[:, :, None]
        values = maps.value[inside] + (maps.weight[inside] * shift).sum(3)
        points = self.place(found.ends.flatten(0, 1), values.flatten(0, 1))
        # All cells of a region are in one plane; the largest cell shows it best.
        cell, by_size = np.zeros(len(self.part), np.int64), np.argsort(self.areas)
        cell[self.region[by_size]] = by_size
        ends = to_numpy(points).reshape(-1, 2, 3)
        return Strokes.of(ends, cell[regions], to_rgba(color), _BOUNDARY_WIDTH, 2)

    def lit_colors(self, view: tuple[float, float], look: Look) -> Floats:
        """The colours of the cells, (F, 4), in the light for an eye at elevation and azimuth."""
        colors = lit(self.coloring.cell_colors(), self.normals, view, look.darkest)
        return colors * [1, 1, 1, look.alpha]


def edge_style(
    page: Floats, ends: Ints, layer: Ints, layers: int, area: float
) -> tuple[Floats, Floats]:
    """The widths (N,) and colours (N, 4) of edges: thinner and paler for later layers.

    page: (V, 3) points; ends: (N, 2) of edges; layer: (N,), -1 on the border; layers: how many
    there are; area: of all facets.
    """
    number = np.maximum(layer, 0)
    late = number / max(layers - 1, 1)
    color = np.tile(to_rgba(INK), (len(ends), 1))
    color[:, 3] = _EDGE_ALPHA[0] + (_EDGE_ALPHA[1] - _EDGE_ALPHA[0]) * late
    # Lines are thinner where they are closer together.
    size = np.linalg.norm(np.diff(page[ends], axis=1)[:, 0], axis=1)
    total = np.cumsum(np.bincount(number, size, minlength=layers))
    room = total[number] * np.ptp(page, axis=0).max()
    spacing = _POINTS * area / np.where(room > 0, room, 1)
    width = np.minimum(_EDGE[0] + (_EDGE[1] - _EDGE[0]) * late, _EDGE_SHARE * spacing)
    width[layer < 0] = _EDGE[0]
    return np.asarray(width), color


def lit(
    colors: Floats, normals: Floats, view: tuple[float, float], darkest: float, turn: int = 0
) -> Floats:
    """The colours (F, 4) of facets in the light, for an eye at elevation and azimuth.

    normals: (F, 3) of any length; darkest: the share of its colour on a facet that faces away from
    the light; turn: see ``toward``.
    """
    size = np.linalg.norm(normals, axis=1)
    normal = normals / np.where(size > 0, size, 1)[:, None]
    # A facet is seen from the side that faces the eye, and the light is on the eye's side.
    side = np.where(normal @ toward(*view, turn) < 0, -1, 1)
    light = toward(np.copysign(_LIGHT[1], view[0]), view[1] - _LIGHT[0], turn)
    strength = darkest + (1 - darkest) * (1 + side * (normal @ light)) / 2
    return np.concatenate([colors[:, :3] * strength[:, None], colors[:, 3:]], 1)


def _twice(pair: Ints) -> Ints:
    """Pairs (N, 2) with the other entry instead of -1."""
    return np.where(pair < 0, pair[:, ::-1], pair)


def padded_corners(mesh: Mesh) -> Ints:
    """The vertices of each cell, (F, k), the last one repeated up to the largest number."""
    vertex, offsets = to_numpy(mesh.corner_vertices()), to_numpy(mesh.offsets)
    last = np.diff(offsets)[:, None] - 1
    place = np.minimum(np.arange(int(last.max()) + 1), last)
    return np.asarray(vertex[offsets[:-1, None] + place])


def toward(elevation: float, azimuth: float, turn: int = 0) -> Floats:
    """The direction towards an eye, (3,); turn: 0 if the third axis points up, 1 for the first."""
    up, around = np.radians(elevation), np.radians(azimuth)
    way = [np.cos(up) * np.cos(around), np.cos(up) * np.sin(around), np.sin(up)]
    return np.roll(way, turn)


def best_view(sheets: Sequence[Sheet]) -> tuple[float, float]:
    """The elevation and azimuth from which most is seen of the least visible sheet."""
    if sheets[0].height is not None:  # a graph is seen where it faces the eye
        normals = sheets[0].normals
        return max(_GRAPH_VIEWS, key=lambda view: np.maximum(normals @ toward(*view), 0).sum())
    corners = np.concatenate([each.page[each.corners].reshape(-1, 3) for each in sheets])
    middle = np.asarray(corners.min(0) + corners.max(0)) / 2
    reach = float(np.ptp(corners, axis=0).max()) or 1.0
    views = _SOME_VIEWS if len(corners) > _MANY else _VIEWS
    return max(views, key=lambda view: _seen(sheets, view, middle, reach))


def _seen(
    sheets: Sequence[Sheet], view: tuple[float, float], middle: Floats, reach: float
) -> float:
    """The visible share of the least visible sheet's plane, less where it is seen at an angle."""
    eye, right = toward(*view), toward(0.0, view[1] + 90)
    axes = np.array([right, np.cross(eye, right), -eye]).T * _SEEN / (2 * reach)
    shift = np.array([_SEEN / 2, _SEEN / 2, 0.0])
    page = [((each.page - middle) @ axes + shift)[each.corners] for each in sheets]
    item = nearest([FlatPolygons.in_space(each, np.zeros((len(each), 4))) for each in page], _SEEN)
    start = np.cumsum([0, *(len(each) for each in page)])
    count = np.bincount(item[item >= 0], minlength=start[-1])
    shares = []
    for sheet, first, last in zip(sheets, start, start[1:], strict=False):
        size = np.linalg.norm(sheet.normals, axis=1)
        shadow = np.abs(sheet.normals @ eye)  # the size on the page
        whole = np.maximum(shadow * (_SEEN / (2 * reach)) ** 2, 1)
        share = np.minimum(count[first:last] / whole, 1) * shadow / np.where(size > 0, size, 1)
        shares.append(float(sheet.areas @ share / sheet.areas.sum()))
    return min(shares)


def draw_sheets(
    sheets: Sequence[Sheet],
    look: Look,
    names: Sequence[str],
    ax: Axes3D | None,
    view: tuple[float, float] | None,
) -> Axes3D:
    """Draw sheets on axes with some names, as seen from an elevation and azimuth."""
    ax, fit = place_axes(ax, look.colorbar)
    if view is None and fit.own:
        view = best_view(sheets)
    if view is not None:
        ax.view_init(*view)
    points, corners = [each.points for each in sheets], [each.corners for each in sheets]
    if look.plane is not None:
        uv = to_numpy(sheets[0].part.domain.corners)
        points.append(np.concatenate([uv, np.full((len(uv), 1), look.plane)], 1))
        corners.append(np.arange(len(uv))[None])
    every = np.concatenate(points)
    label_axes(fit, names, np.stack([every.min(0), every.max(0)], 1), look.height)
    face, strokes, first = [], [], 0
    for k, sheet in enumerate(sheets):
        face.append(sheet.lit_colors((float(ax.elev), float(ax.azim)), look))
        own = [sheet.edges(look.alpha)] if look.edges else []
        if look.boundary_colors is not None:
            own.append(sheet.boundary(look.boundary_colors[k], face[k]))
        strokes += [replace(each, facets=each.facets + first) for each in own]
        first += len(sheet.corners)
    lines = Strokes.joined(strokes) if strokes else None
    if look.plane is not None:
        face.append(np.array([_PLANE]))
        if lines is not None:  # the boundary lies on the plane, too
            third = np.where(lines.rank == 2, first, lines.facets[:, 0])
            lines = replace(lines, facets=np.column_stack([lines.facets, third]))
    # All facets get as many corners, numbered through all points.
    start = np.cumsum([0, *(len(each) for each in points)])
    most = max(each.shape[1] for each in corners)
    padded = [np.pad(c, ((0, 0), (0, most - c.shape[1])), mode="edge") for c in corners]
    joined = np.concatenate([c + begin for c, begin in zip(padded, start, strict=False)])
    ax.add_collection(Scene(every, joined, np.concatenate(face), lines))
    if look.colorbar:
        explain_colors(fit, sheets[0].coloring)
    return ax
