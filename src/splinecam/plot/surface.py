"""The graph of an output over the plane, with every facet at its exact height."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from splinecam.analysis.boundary import output_of
from splinecam.analysis.partition_data import PartitionData
from splinecam.errors import SplineCamError
from splinecam.plot.figures import require_matplotlib

if TYPE_CHECKING:
    from mpl_toolkits.mplot3d import Axes3D

__all__ = ["plot_surface"]


def plot_surface(  # noqa: PLR0913 - the options of a picture, each given by its name
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

    output: the output, needed where there are several. color, cmap, limits, seed: as for
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
    from splinecam.plot import axes3d, surface_items
    from splinecam.plot.colors import ColorOptions, color_regions
    from splinecam.plot.scene import Scene

    k = output_of(part, output)
    _check(part, ax, plane)
    with torch.no_grad():
        coloring = color_regions(part, color, ColorOptions(k, cmap, limits, level, seed))
        split = plane or coloring.mesh is not part.mesh
        surface = surface_items.Surface.of(part, k, level, split=split, height=height)
        ax, fit = axes3d.place_axes(ax, colorbar)
        if view is None and fit.own:
            view = surface.best_view()
        if view is not None:
            ax.view_init(*view)
        axes3d.label_axes(fit, part.domain, surface.limits([level] * plane), surface.name, height)
        colors = surface.lit_colors(coloring, ax.azim)
        items = [surface_items.facets(surface, colors)]
        if edges and surface.mesh.num_faces <= surface_items.MANY:
            items.append(surface_items.edges(surface))
        if boundary:
            items.append(surface_items.boundary(surface, boundary_color, colors))
        if plane:
            items.append(surface_items.plane(part, level))
    scene = Scene(surface_items.joined(items), surface.neighbours(), level=level, clip_on=False)
    ax.add_collection(scene)
    if colorbar:
        axes3d.explain_colors(fit, coloring)
    return ax


def _check(part: PartitionData, ax: Any, plane: bool) -> None:
    """Raise an error for axes that are not in space, and for a plane where it has no height."""
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
