"""The graph of an output over the plane: the spline itself, every facet where it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splinecam.boundary import output_of, winners_of
from splinecam.plot.palette import INK, PAPER, require_matplotlib

if TYPE_CHECKING:
    from mpl_toolkits.mplot3d import Axes3D
    from numpy.typing import NDArray

    from splinecam.mesh import Mesh
    from splinecam.partition import Partition
    from splinecam.plot.colors import Coloring
    from splinecam.plot.scene import Items, Neighbours

    Floats = NDArray[np.float64]
    Whole = NDArray[np.int64]

__all__ = ["plot_surface"]

_MANY = 30_000  # facets drawn as paths, with their edges; more become an image
_LIGHT = (70.0, 50.0)  # degrees: where the light is, counter-clockwise from the eye, and how high
_DARKEST, _BRIGHTEST = 0.45, 1.0  # of a facet's colour, by how it faces the light
_EDGE, _EDGE_ALPHA = (0.45, 0.2), (0.75, 0.4)  # width in points and strength: first, last layer
_BOUNDARY = 1.7  # points
_LIGHTNESS = 0.45  # of a surface on which the boundary is dark; on darker ones it is white
_ELEVATION, _AZIMUTHS = 33.0, (-60.0, 30.0, 120.0, -150.0)
_SMALL = 8  # font size of ticks
_GREY = "#9aa1aa"
_WIDTH, _BESIDE, _MARGIN = 6.0, 0.9, 0.1  # inches: of a figure, for a colour bar, around it


def plot_surface(
    part: Partition,
    *,
    output: int | None = None,
    ax: Axes3D | None = None,
    color: Any = "output",
    cmap: Any = None,
    limits: tuple[float, float] | None = None,
    edges: bool = True,
    boundary: bool = True,
    level: float = 0.0,
    boundary_color: Any = None,
    view: tuple[float, float] | None = None,
    height: float = 0.6,
    colorbar: bool = False,
    seed: int = 0,
) -> Axes3D:
    """Draw the graph of one output over the plane: each region is a facet at its exact height.

    output: which one, needed where there are several. ``color``, ``cmap``, ``limits`` and ``seed``
    are as for ``part.plot``; facets are darker where they face away from a light on the left.
    ``edges`` draws the facets' edges, thinner for later layers, and ``boundary`` the decision
    boundary on the surface (of one output the line at ``level``). ``view`` is the eye's elevation
    and azimuth in degrees, by default where most of the surface is seen; ``height`` is that of the
    surface for a plane of width 1. ``colorbar`` adds a bar or a legend of the colours.

    Facets are drawn from back to front in an exact order, so that what is hidden is hidden from
    everywhere. More than 30,000 are drawn as an image, without edges.

    >>> import torch, splinecam as sc
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 9), torch.nn.ReLU(), torch.nn.Linear(9, 1))
    >>> part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    >>> ax = part.plot_surface(color="slope", view=(40, 20))
    """
    require_matplotlib()
    from splinecam.plot.colors import Asked, coloring
    from splinecam.plot.scene import Polygons, Triangles

    k = output_of(part, output)
    with torch.no_grad():
        made = coloring(part, color, Asked(k, cmap, limits, level, seed))
        solid = _Solid.of(part, made.mesh, k, level)
        few = solid.mesh.num_faces <= _MANY
        slope = _steepness(part, solid, k, height)
        own = ax is None
        if ax is None:
            ax = _axes(colorbar)
            view = view or _best_view(solid, slope)
        if view is not None:
            ax.view_init(*view)
        _furnish(part, ax, k, height)
        if own:
            _fit(ax)
        colors = _shaded(_face_colors(made), slope, ax.azim)
        items = [_facets(solid, colors)]
        if edges and few:
            items.append(_edges(solid, part))
        if boundary:
            ink = boundary_color or _ink_on(solid, colors)
            items.append(_boundary(part, solid, k, level, ink))
        everything, pairs = _joined(items), _neighbours(solid)
    draw = Polygons if few else Triangles
    ax.add_collection(draw(everything, pairs, clip_on=False))
    if colorbar:
        _explain(ax, made)
    return ax


# -- what is drawn -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Solid:
    """Cells in space: points (V, 3) over the mesh's vertices; region: (F,) that each cell is in.

    layer: (E,) the cut that drew each edge, -1 for the border, -2 for the decision boundary.
    """

    mesh: Mesh
    points: Floats
    region: Whole
    layer: Whole

    @classmethod
    def of(cls, part: Partition, mesh: Mesh, k: int, level: float) -> _Solid:
        """The regions, or the cells of the classes, below output k."""
        if mesh is part.mesh:
            region = np.arange(len(part))
            return cls(mesh, _lifted(part, mesh, part.values[:, k]), region, _numpy(part.edge_op))
        made = winners_of(part, "argmax", level, whole=True).overlay
        z = made.z[:, k] if part.values.shape[1] > 1 else made.z[:, 1] + level
        layer = torch.where(made.source >= 0, part.edge_op[made.source], -2)
        return cls(mesh, _lifted(part, mesh, z), _numpy(made.face), _numpy(layer))

    @cached_property
    def areas(self) -> Floats:
        """Area of each cell, (F,), in the mesh's coordinates."""
        return np.asarray(_numpy(self.mesh.areas_and_centroids()[0]))

    @cached_property
    def beside(self) -> Whole:
        """The cells beside each edge, the same twice at the border, (E, 2)."""
        return _twice(_numpy(self.mesh.halfedge_face().view(-1, 2)))


def _numpy(x: torch.Tensor) -> Any:
    return x.detach().cpu().numpy()


def _lifted(part: Partition, mesh: Mesh, z: torch.Tensor) -> Floats:
    return np.asarray(np.concatenate([_numpy(part.frame.to_plane(mesh.uv)), _numpy(z)[:, None]], 1))


def _twice(pair: Whole) -> Whole:
    """Pairs (N, 2) in which -1 is replaced by the other one."""
    return np.where(pair < 0, pair[:, ::-1], pair)


def _facets(solid: _Solid, colors: Floats) -> Items:
    """The cells, padded to the largest number of corners."""
    from splinecam.plot.scene import Items

    vertex, offsets = _numpy(solid.mesh.corner_vertices()), _numpy(solid.mesh.offsets)
    last = np.diff(offsets)[:, None] - 1
    place = np.minimum(np.arange(int(last.max()) + 1), last)
    cell = np.arange(len(last))
    return Items(
        points=solid.points,
        corners=vertex[offsets[:-1, None] + place],
        cells=np.stack([cell, cell], 1),
        rank=np.zeros_like(cell),
        face=colors,
        line=colors,
        width=np.zeros(len(cell)),
    )


def _lines(points: Floats, ends: Whole, cells: Whole, rank: int, color: Any, width: Any) -> Items:
    """Lines between points (P, 3) with ends (N, 2), drawn after cells (N, 2)."""
    from splinecam.plot.scene import Items

    count = len(ends)
    return Items(
        points=points,
        corners=ends,
        cells=cells,
        rank=np.full(count, rank),
        face=np.zeros((count, 4)),
        line=np.broadcast_to(color, (count, 4)),
        width=np.broadcast_to(width, (count,)),
    )


def _edges(solid: _Solid, part: Partition) -> Items:
    """The cells' edges but those of the boundary, thinner and paler for later layers."""
    from matplotlib.colors import to_rgba

    shown = np.flatnonzero(solid.layer >= -1)
    late = np.maximum(solid.layer[shown], 0) / max(len(part.cuts) - 1, 1)
    color = np.tile(to_rgba(INK), (len(shown), 1))
    color[:, 3] = _EDGE_ALPHA[0] + (_EDGE_ALPHA[1] - _EDGE_ALPHA[0]) * late
    width = _EDGE[0] + (_EDGE[1] - _EDGE[0]) * late
    ends = _numpy(solid.mesh.edges)[shown]
    return _lines(solid.points, ends, solid.beside[shown], 1, color, width)


def _boundary(part: Partition, solid: _Solid, k: int, level: float, color: Any) -> Items:
    """The decision boundary, on the surface."""
    from matplotlib.colors import to_rgba

    style = 2, to_rgba(color), _BOUNDARY
    if solid.mesh is not part.mesh:  # it runs along edges of the cells
        edge = _numpy(winners_of(part, "argmax", level, whole=True).borders().edge)
        return _lines(solid.points, _numpy(solid.mesh.edges)[edge], solid.beside[edge], *style)
    found = part.decision_boundary(level=level)
    cells = _twice(_numpy(found.regions))
    maps, inside = part.maps, torch.as_tensor(cells[:, :1], device=found.points.device)
    shift = found.local_ends - maps.anchor[inside]
    z = maps.value[inside, k] + (maps.weight[inside, k] * shift).sum(2)
    points = np.concatenate([_numpy(found.ends), _numpy(z)[:, :, None]], 2).reshape(-1, 3)
    return _lines(points, np.arange(len(points)).reshape(-1, 2), cells, *style)


def _joined(parts: list[Items]) -> Items:
    """All items in one, padded to the same number of corners."""
    from splinecam.plot.scene import Items

    start = np.cumsum([0, *(len(each.points) for each in parts)])
    wide = max(3, *(each.corners.shape[1] for each in parts))
    corners = [
        np.pad(each.corners, ((0, 0), (0, wide - each.corners.shape[1])), mode="edge") + first
        for each, first in zip(parts, start, strict=False)
    ]
    names = ("cells", "rank", "face", "line", "width")
    rest = {name: np.concatenate([getattr(each, name) for each in parts]) for name in names}
    points = np.concatenate([each.points for each in parts])
    return Items(points=points, corners=np.concatenate(corners), **rest)


def _neighbours(solid: _Solid) -> Neighbours:
    """The pairs of cells with an edge between them."""
    from splinecam.plot.scene import Neighbours

    left, right = solid.beside.T
    inner = left != right
    ends = solid.points[_numpy(solid.mesh.edges)[inner], :2]
    start = ends[:, 0]
    return Neighbours(left[inner], right[inner], start, ends[:, 1] - start, solid.mesh.num_faces)


# -- colours -------------------------------------------------------------------------------------


def _face_colors(made: Coloring) -> Floats:
    """The colour of each cell, (F, 4); of an affine number that in its middle."""
    shade = made.shade
    if shade.colors is not None:
        return shade.colors
    assert shade.numbers is not None
    assert made.norm is not None
    assert made.cmap is not None
    numbers = shade.numbers
    if shade.slopes is not None:
        numbers = numbers + (shade.slopes * _numpy(made.mesh.means())).sum(1)
    return np.asarray(made.cmap(made.norm(numbers)), np.float64)


def _steepness(part: Partition, solid: _Solid, k: int, height: float) -> Floats:
    """Slopes of the cells on the page, where the plane has the width 1, (F, 2)."""
    extent = np.ptp(solid.points, axis=0)
    stretch = height * extent[0] / (extent[2] or 1.0)
    return np.asarray(stretch * _numpy(part.weight[:, k])[solid.region])


def _facing(slope: Floats, azimuth: float, elevation: float) -> Floats:
    """How much facets with slopes (F, 2) look into a direction: cosines, times their sizes."""
    around, up = np.radians(azimuth), np.radians(elevation)
    toward = np.cos(up) * np.array([np.cos(around), np.sin(around)])
    return np.asarray(np.sin(up) - slope @ toward)


def _shaded(colors: Floats, slope: Floats, azimuth: float) -> Floats:
    """Colours (F, 4) as they look in the light."""
    facing = _facing(slope, azimuth - _LIGHT[0], _LIGHT[1]) / np.sqrt(1 + (slope**2).sum(1))
    strength = _DARKEST + (_BRIGHTEST - _DARKEST) * (1 + facing) / 2
    lit = colors.copy()
    lit[:, :3] = np.clip(colors[:, :3] * strength[:, None], 0, 1)
    return lit


def _ink_on(solid: _Solid, colors: Floats) -> str:
    """A colour that is seen on the cells' colours (F, 4): dark, or white where they are dark."""
    areas = solid.areas
    light = areas @ colors[:, :3].mean(1) / areas.sum()
    return INK if light > _LIGHTNESS else PAPER


def _best_view(solid: _Solid, slope: Floats) -> tuple[float, float]:
    """The view in which the facets that look at the eye are largest together."""
    seen = [solid.areas @ np.maximum(_facing(slope, a, _ELEVATION), 0) for a in _AZIMUTHS]
    return _ELEVATION, _AZIMUTHS[int(np.argmax(seen))]


# -- axes ----------------------------------------------------------------------------------------


def _axes(beside: bool) -> Axes3D:
    """New axes with a light grid, and room for colours beside them."""
    import matplotlib.pyplot as plt

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


def _fit(ax: Axes3D) -> None:
    """Make the box and its labels as wide as the figure, and the figure as high as they are."""
    from matplotlib.transforms import Bbox
    from mpl_toolkits.mplot3d import proj3d

    from splinecam.plot.scene import new_page

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
        scale = (_WIDTH - 2 * _MARGIN) / wide
        figure.set_figheight(scale * high + 2 * _MARGIN)
        left, low = _MARGIN - scale * (left - frame.x0), _MARGIN - scale * (low - frame.y0)
        ax.set_position(_shares(figure, left, low, scale * frame.width))


def _furnish(part: Partition, ax: Axes3D, k: int, height: float) -> None:
    """Limits, labels and proportions."""
    corners, values = _numpy(part.domain.corners), _numpy(part.values[:, k])
    (left, low), (right, top) = corners.min(0), corners.max(0)
    least, most = float(values.min()), float(values.max())
    if least == most:
        least, most = least - 0.5, most + 0.5
    ax.set(xlim=(left, right), ylim=(low, top), zlim=(least, most))
    ax.set_box_aspect((1.0, (top - low) / (right - left), height), zoom=1.0)
    name = "f" if part.values.shape[1] == 1 else f"f, output {k}"
    for axis, label in zip((ax.xaxis, ax.yaxis, ax.zaxis), ("u", "v", name), strict=True):
        axis.set_label_text(label, fontsize=_SMALL + 1, color=INK)
        axis.set_tick_params(labelsize=_SMALL, labelcolor=INK)
        axis.get_major_locator().set_params(nbins=5)


def _explain(ax: Axes3D, made: Coloring) -> None:
    """A colour bar or a legend."""
    from matplotlib.cm import ScalarMappable

    from splinecam.plot.furniture import add_colorbar, add_legend

    place, wide = ax.get_position(original=True), ax.figure.get_figwidth()
    right = min(1.0, _WIDTH / wide) if wide > _WIDTH else place.x1
    left, low = 0.5 * right, place.y0 + 0.2 * place.height
    beside = ax.figure.add_axes((left, low, right - left, 0.6 * place.height), zorder=-1)
    beside.set_axis_off()
    if made.norm is not None:
        add_colorbar(beside, ScalarMappable(made.norm, made.cmap), made.label, extend=made.extend)
    if made.legend:
        add_legend(beside, made.legend, made.label)
