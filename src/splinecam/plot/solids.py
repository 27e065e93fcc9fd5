"""Surfaces in three dimensions of the inputs: pictures, and what notebooks show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from splinecam._util.text import number_text
from splinecam.errors import SplineCamError
from splinecam.plot.arrays import Floats, Ints, Pixels
from splinecam.plot.figures import axes_in_space, require_matplotlib

if TYPE_CHECKING:
    from mpl_toolkits.mplot3d import Axes3D

_PLAIN = "#c3d0de"
_DARKEST = 0.35  # share of its colour on a face that faces away from the light
_MANY = 30_000  # faces up to which edges are drawn
_VIEW = (22.0, -52.0)  # degrees
_SIDE, _FINE = 220, 3  # pixels of the picture of a card, and samples per pixel and axis
_TURNS = {"x": 1, "y": -1, "z": 0}


@dataclass(frozen=True, eq=False)
class Facets:
    """What is drawn of a surface with V vertices, F convex faces and E edges.

    points: (V, 3); corners: (F, k) of each face, the last one repeated; normals: (F, 3); layer:
    (F,) the last layer that bounds each face, -1 for none; ends: (E, 2); beside: (E, 2) the faces
    at each edge, twice the same on the border; edge_layer: (E,), below -1 if not drawn; limits:
    (3, 2) of the axes; layers: their names.
    """

    points: Floats
    corners: Ints
    normals: Floats
    layer: Ints
    ends: Ints
    beside: Ints
    edge_layer: Ints
    limits: Floats
    layers: Sequence[str]


@dataclass(frozen=True)
class SolidLook:
    """How a surface is drawn; ``Surface.plot`` describes the options."""

    color: Any = _PLAIN
    cmap: Any = None
    limits: tuple[float, float] | None = None
    edges: bool | None = None
    view: tuple[float, float] = _VIEW
    up: str = "z"
    axes: bool = True
    ax: Any = None
    alpha: float = 1.0
    colorbar: bool = False


def plot_facets(facets: Facets, look: SolidLook) -> Axes3D:
    """Draw a surface on axes in space."""
    require_matplotlib()
    axes_in_space(look.ax)
    from splinecam.plot.scene import Scene, Strokes
    from splinecam.plot.sheets import edge_style, explain_colors, label_axes, lit, place_axes

    require_up(look.up)
    coloring = facet_coloring(facets, look)
    ax, fit = place_axes(look.ax, look.colorbar)
    ax.view_init(*look.view, vertical_axis=look.up)
    label_axes(fit, ("x₁", "x₂", "x₃"), facets.limits)
    if not look.axes:
        ax.set_axis_off()
    face = lit(coloring.cell_colors(), facets.normals, look.view, _DARKEST, _TURNS[look.up])
    many = len(facets.corners) > _MANY
    lines = None
    shown = facets.edge_layer >= -1
    if (not many if look.edges is None else look.edges) and shown.any():
        ends, beside = facets.ends[shown], facets.beside[shown]
        layer, count = facets.edge_layer[shown], max(len(facets.layers), 1)
        width, ink = edge_style(facets.points, ends, layer, count, _area(facets))
        ink[:, 3] *= look.alpha
        lines = Strokes.of(facets.points[ends], beside, ink, width, 1)
    colors = face * [1, 1, 1, look.alpha]
    if len(facets.corners):
        ax.add_collection(Scene(facets.points, facets.corners, colors, lines))
    if look.colorbar:
        explain_colors(fit, coloring)
    return ax


def _area(facets: Facets) -> float:
    at = facets.points[facets.corners]
    at = at - at[:, :1]
    return float(np.linalg.norm(np.cross(at, np.roll(at, -1, 1)).sum(1), axis=1).sum()) / 2


def require_up(up: str) -> None:
    """Raise an error unless this is the name of an axis."""
    if up not in _TURNS:
        raise ValueError(f"up is {up!r}; choose 'x', 'y' or 'z'")


def facet_coloring(facets: Facets, look: SolidLook) -> Any:
    """The colours of the faces, and what explains them."""
    from matplotlib.colors import Normalize, to_rgba

    from splinecam.plot.colors import Coloring, ColorOptions, random_colors
    from splinecam.plot.rasters import CellColors

    count, color, mesh = len(facets.corners), look.color, cast(Any, None)
    options = ColorOptions(cmap=look.cmap)

    def plain(colors: Any, label: str = "", legend: Any = ()) -> Any:
        return Coloring(mesh, CellColors(colors=colors), label, legend=legend)

    if isinstance(color, str) and color == "normal":
        return plain(np.pad(0.5 + 0.5 * facets.normals, ((0, 0), (0, 1)), constant_values=1))
    if isinstance(color, str) and color == "layer":
        shades = options.colormap("YlGnBu_r")(np.linspace(0.25, 0.95, max(len(facets.layers), 2)))
        palette = np.concatenate([shades[: len(facets.layers)], [[1, 1, 1, 1]]])
        legend = tuple((facets.layers[k], palette[k]) for k in np.unique(facets.layer) if k >= 0)
        return plain(palette[facets.layer], "last layer", legend)
    if isinstance(color, str) and color == "region":
        return plain(random_colors(count, facets.beside, options))
    if isinstance(color, str | tuple):
        return plain(np.tile(to_rgba(color), (count, 1)))
    numbers = np.asarray(color, np.float64)
    if numbers.shape != (count,):
        raise SplineCamError(
            f"color has the shape {numbers.shape}: give 'normal', 'layer', 'region', one colour, "
            f"or a number for each of the {count:,} faces."
        )
    extremes = (float(numbers.min()), float(numbers.max())) if count else (0.0, 1.0)
    low, high = look.limits or extremes
    norm = Normalize(low, high if high > low else low + 1)
    fill = CellColors(numbers=numbers)
    return Coloring(mesh, fill, "", norm, options.colormap("viridis"), extremes)


def solid_picture(facets: Facets) -> Pixels:
    """The surface from the usual side, (h, w, 4), without edges."""
    from matplotlib.colors import to_rgba

    from splinecam.plot.scene import FlatPolygons, averaged, render
    from splinecam.plot.sheets import lit, toward

    eye, right = toward(*_VIEW), toward(0.0, _VIEW[1] + 90)
    frame = np.array([right, np.cross(eye, right), -eye]).T
    page = facets.points @ frame
    low, high = page.min(0), page.max(0)
    page = (page - low) * (_FINE * _SIDE / max(float((high - low)[:2].max()), 1e-300))
    wide, tall = (-(-page.max(0)[:2] // _FINE)).astype(int) * _FINE
    plain = np.tile(to_rgba(_PLAIN), (len(facets.corners), 1))
    colors = lit(plain, facets.normals, _VIEW, _DARKEST)
    polygons = FlatPolygons.in_space(page[facets.corners], colors)
    return averaged(render([polygons], int(wide), int(tall)), _FINE)[::-1]


def solid_card(title: str, facets: Facets, rows: dict[str, Any]) -> str:
    """A picture of a surface, and its sizes; without matplotlib the sizes alone."""
    from splinecam.plot.notebook import card, picture, table

    image = ""
    if len(facets.corners):
        try:
            require_matplotlib()
            image = picture(solid_picture(facets), "surface")
        except SplineCamError:
            image = ""
    texts = [(name, x if isinstance(x, str) else number_text(x)) for name, x in rows.items()]
    return card(title, image, table(texts))
