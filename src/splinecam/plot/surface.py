"""The graph of an output over the plane: the spline itself, every facet where it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splinecam.analysis.boundary import decision_boundary, output_of, winners_of
from splinecam.analysis.partition_data import PartitionData
from splinecam.errors import SplineCamError
from splinecam.plot.palette import INK, PAPER, require_matplotlib

if TYPE_CHECKING:
    from mpl_toolkits.mplot3d import Axes3D
    from numpy.typing import NDArray

    from splinecam.analysis.winners import Winners
    from splinecam.geometry.subdivision import Mesh
    from splinecam.plot.colors import Coloring
    from splinecam.plot.scene import Items, Neighbours

    Floats = NDArray[np.float64]
    Whole = NDArray[np.int64]

__all__ = ["plot_surface"]

_MANY = 30_000  # facets up to which edges are drawn
_LIGHT = (70.0, 50.0)  # degrees: where the light is, counter-clockwise from the eye, and how high
_DARKEST, _BRIGHTEST = 0.45, 1.0  # of a facet's colour, by how it faces the light
_EDGE, _EDGE_ALPHA = (0.45, 0.2), (0.75, 0.4)  # width in points and strength: first, last layer
_EDGE_SHARE, _POINTS = 0.08, 250.0  # of the spacing, when the plane is about so many points wide
_BOUNDARY = 1.7  # points
_LIGHTNESS = 0.45  # of a surface on which the boundary is dark; on darker ones it is white
_PLANE = (0.35, 0.38, 0.42, 0.35)
_ELEVATION, _AZIMUTHS = 33.0, (-60.0, 30.0, 120.0, -150.0)


def plot_surface(
    part: PartitionData,
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
    plane: bool = False,
    view: tuple[float, float] | None = None,
    height: float = 0.6,
    colorbar: bool = False,
    seed: int = 0,
) -> Axes3D:
    """Draw the graph of one output over the plane: each region is a facet at its exact height.

    output: which one, needed where there are several. color, cmap, limits, seed: as for
    ``part.plot``; facets are darker where they face away from a light on the left. edges: draw the
    facets' edges, thinner for later layers. boundary: draw the decision boundary on the surface, of
    one output the line at ``level``. plane: add a translucent plane at ``level``. view: the eye's
    elevation and azimuth in degrees, by default where most of the surface is seen. height: of the
    surface for a plane of width 1. colorbar: add a bar or a legend of the colours.

    Facets are drawn from back to front in an exact order, so that what is hidden is hidden from
    everywhere; more than 30,000 without edges. The surface is an image in the resolution of the
    picture; in PDF and SVG facets are paths, if there are no more than some thousands.

    >>> import torch, splinecam as sc
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 9), torch.nn.ReLU(), torch.nn.Linear(9, 1))
    >>> part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    >>> ax = part.plot_surface(color="slope", view=(40, 20))
    """
    require_matplotlib()
    from splinecam.plot.colors import Asked, coloring
    from splinecam.plot.decorations import axis_names
    from splinecam.plot.scene import Scene
    from splinecam.plot.space import explain_colors, fit_height, label_axes, place_axes

    k = output_of(part, output)
    _check(part, ax, plane)
    with torch.no_grad():
        made = coloring(part, color, Asked(k, cmap, limits, level, seed))
        solid = _Solid.of(part, k, level, cut=plane or made.mesh is not part.mesh)
        slope = _steepness(part, solid, k, height)
        ax, fit = place_axes(ax, colorbar)
        if fit.own:
            view = view or _best_view(solid, slope)
        if view is not None:
            ax.view_init(*view)
        name = "f" if part.values.shape[1] == 1 else f"f, output {k}"
        label_axes(fit, solid.limits([level] * plane), height, (*axis_names(part.domain), name))
        if fit.own:
            fit_height(fit)
        colors = _face_colors(made)
        colors = colors if made.mesh is solid.mesh else colors[solid.region]
        colors = _shaded(colors, slope, ax.azim)
        few = solid.mesh.num_faces <= _MANY
        items = [_facets(solid, colors)]
        if edges and few:
            items.append(_edges(solid, part))
        if boundary:
            ink = boundary_color or _ink_on(solid, colors)
            items.append(_boundary(part, solid, k, level, ink))
        if plane:
            items.append(_plane(part, level))
    scene = Scene(_joined(items), _neighbours(solid), level=level, clip_on=False)
    ax.add_collection(scene)
    if colorbar:
        explain_colors(fit, made)
    return ax


def _check(part: PartitionData, ax: Any, plane: bool) -> None:
    """Whether the options go together."""
    if ax is not None and not hasattr(ax, "view_init"):
        raise TypeError(
            'ax must be axes in space: plt.figure().add_subplot(projection="3d"), not '
            f"{type(ax).__name__}"
        )
    if plane and part.values.shape[1] > 1:
        raise SplineCamError(
            f"plane=True is for models with one output, at its level; this one has "
            f"{part.values.shape[1]}."
        )


# -- what is drawn -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Solid:
    """Cells in space: points (V, 3) over the mesh's vertices; region: (F,) that each cell is in.

    half: (F,) whether it is above (1) or below (-1) the level, 0 if it is not cut there. layer:
    (E,) the cut that drew each edge, -1 for the border, -2 for the decision boundary. winners: of
    cells that are cut at the decision boundary.
    """

    mesh: Mesh
    points: Floats
    region: Whole
    half: Whole
    layer: Whole
    winners: Winners | None = None

    @classmethod
    def of(cls, part: PartitionData, k: int, level: float, *, cut: bool) -> _Solid:
        """The regions below output k, or the cells into which the decision boundary cuts them."""
        if not cut:
            points, region = _lifted(part, part.mesh, part.values[:, k]), np.arange(len(part))
            return cls(part.mesh, points, region, np.zeros_like(region), _numpy(part.edge_layer))
        found = winners_of(part, "argmax", level, whole=True)
        made, alone = found.overlay, part.values.shape[1] == 1
        points = _lifted(part, made.mesh, made.z[:, 1] + level if alone else made.z[:, k])
        half = np.asarray(2 * _numpy(found.winner) - 1) * alone
        layer = torch.where(made.source >= 0, part.edge_layer[made.source], -2)
        return cls(made.mesh, points, _numpy(made.face), half, _numpy(layer), found)

    def limits(self, heights: list[float]) -> Floats:
        """The ends of u, v and f, (3, 2), with some heights included."""
        z = [*heights, self.points[:, 2].min(), self.points[:, 2].max()]
        uv = self.points[:, :2]
        return np.array([*zip(uv.min(0), uv.max(0), strict=True), (min(z), max(z))])

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


def _lifted(part: PartitionData, mesh: Mesh, z: torch.Tensor) -> Floats:
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
        half=solid.half,
        face=colors,
        line=colors,
        width=np.zeros(len(cell)),
    )


def _lines(
    points: Floats, ends: Whole, cells: Whole, half: Any, rank: int, color: Any, width: Any
) -> Items:
    """Lines between points (P, 3) with ends (N, 2), drawn after cells (N, 2)."""
    from splinecam.plot.scene import Items

    count = len(ends)
    return Items(
        points=points,
        corners=ends,
        cells=cells,
        rank=np.full(count, rank),
        half=np.broadcast_to(half, (count,)),
        face=np.zeros((count, 4)),
        line=np.broadcast_to(color, (count, 4)),
        width=np.broadcast_to(width, (count,)),
    )


def _edges(solid: _Solid, part: PartitionData) -> Items:
    """The cells' edges but those of the boundary, thinner and paler for later layers."""
    from matplotlib.colors import to_rgba

    shown = np.flatnonzero(solid.layer >= -1)
    ends, layer = _numpy(solid.mesh.edges)[shown], np.maximum(solid.layer[shown], 0)
    late = layer / max(len(part.layers) - 1, 1)
    color = np.tile(to_rgba(INK), (len(shown), 1))
    color[:, 3] = _EDGE_ALPHA[0] + (_EDGE_ALPHA[1] - _EDGE_ALPHA[0]) * late
    # Lines are thinner where they are closer together.
    size = np.linalg.norm(np.diff(solid.points[ends, :2], axis=1)[:, 0], axis=1)
    total = np.cumsum(np.bincount(layer, size, minlength=len(part.layers)))
    spacing = _POINTS / np.ptp(solid.points[:, 0]) * part.domain.area / total[layer]
    width = np.minimum(_EDGE[0] + (_EDGE[1] - _EDGE[0]) * late, _EDGE_SHARE * spacing)
    width[solid.layer[shown] < 0] = _EDGE[0]
    beside = solid.beside[shown]
    return _lines(solid.points, ends, beside, solid.half[beside[:, 0]], 1, color, width)


def _boundary(part: PartitionData, solid: _Solid, k: int, level: float, color: Any) -> Items:
    """The decision boundary, on the surface."""
    from matplotlib.colors import to_rgba

    from splinecam.plot.scene import NEAREST

    style = NEAREST, 2, to_rgba(color), _BOUNDARY
    if solid.winners is not None:  # it runs along edges of the cells
        edge = _numpy(solid.winners.borders().edge)
        return _lines(solid.points, _numpy(solid.mesh.edges)[edge], solid.beside[edge], *style)
    found = decision_boundary(part, level=level)
    cells = _twice(_numpy(found.regions))
    maps, inside = part.maps, torch.as_tensor(cells[:, :1], device=found.points.device)
    shift = found.local_ends - maps.anchor[inside]
    z = maps.value[inside, k] + (maps.weight[inside, k] * shift).sum(2)
    points = np.concatenate([_numpy(found.ends), _numpy(z)[:, :, None]], 2).reshape(-1, 3)
    return _lines(points, np.arange(len(points)).reshape(-1, 2), cells, *style)


def _plane(part: PartitionData, level: float) -> Items:
    """The domain at the height of the level."""
    from splinecam.plot.scene import Items

    uv = _numpy(part.domain.corners)
    return Items(
        points=np.concatenate([uv, np.full((len(uv), 1), level)], 1),
        corners=np.arange(len(uv))[None],
        cells=np.zeros((1, 2), np.int64),
        rank=np.zeros(1, np.int64),
        half=np.zeros(1, np.int64),
        face=np.array([_PLANE]),
        line=np.zeros((1, 4)),
        width=np.zeros(1),
    )


def _joined(parts: list[Items]) -> Items:
    """All items in one, padded to the same number of corners."""
    from splinecam.plot.scene import Items

    start = np.cumsum([0, *(len(each.points) for each in parts)])
    wide = max(3, *(each.corners.shape[1] for each in parts))
    corners = [
        np.pad(each.corners, ((0, 0), (0, wide - each.corners.shape[1])), mode="edge") + first
        for each, first in zip(parts, start, strict=False)
    ]
    names = ("cells", "rank", "half", "face", "line", "width")
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


def _steepness(part: PartitionData, solid: _Solid, k: int, height: float) -> Floats:
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
