"""Pictures in space: slices of three inputs, graphs of an output, images in three outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from splinecam._util.options import kind_of
from splinecam.errors import SplineCamError
from splinecam.plot.figures import axes_in_space, require_matplotlib
from splinecam.plot.palette import CLASSES
from splinecam.questions.boundary import output_of
from splinecam.questions.partition_data import PartitionData

if TYPE_CHECKING:
    from mpl_toolkits.mplot3d import Axes3D

_NAMES = ("x₁", "x₂", "x₃")
Place = Callable[[Tensor, Tensor], Tensor]  # (N, 2) in the plane and (N, n_out) outputs to (N, 3)

_MANY = 30_000  # regions up to which the edges of a graph are drawn
_DARKEST = 0.85  # share of its colour on a plane that faces away from the light


def plot_slices(
    parts: Iterable[PartitionData],
    *,
    ax: Axes3D | None = None,
    color: Any = "white",
    alpha: float = 1.0,
    edges: bool = True,
    boundary: bool = True,
    level: float = 0.0,
    boundary_color: Any = None,
    view: tuple[float, float] | None = None,
    **colors: Any,
) -> Axes3D:
    """Draw partitions of planes in a space of three inputs, each where its plane lies.

    Planes hide each other where they cross, and translucent planes let others shine through.

    parts: the partitions, each of a domain in the same three inputs. color: as for ``part.plot``.
    colors: its options cmap, limits, output and seed. alpha: the opacity of the planes. edges: draw
    the regions' edges, thinner for later layers and where they are dense. boundary: draw the
    decision boundary of each, of one output the line at ``level``. boundary_color: one for all
    boundaries or a list of one each; by default they differ. view: the eye's elevation and azimuth
    in degrees, by default where it sees most.

    >>> import torch, splinecam as sc
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 9), torch.nn.ReLU(), torch.nn.Linear(9, 1))
    >>> level, upright = torch.eye(3), torch.eye(3) - torch.tensor([1.0, 0.0, 0.0])
    >>> parts = [sc.partition(model, sc.Domain.polygon(each)) for each in (level, upright)]
    >>> ax = sc.plot.plot_slices(parts)
    >>> ax.get_zlabel()
    '$x_{3}$'
    """
    require_matplotlib()
    from splinecam.plot.colors import ColorOptions
    from splinecam.plot.sheets import Look, Sheet, draw_sheets

    slices = _checked(parts)
    axes_in_space(ax)
    options = ColorOptions(level=level, **colors)
    inks = boundary_color if isinstance(boundary_color, list) else [boundary_color] * len(slices)
    if boundary_color is None:
        inks = [CLASSES[k % len(CLASSES)] for k in range(len(slices))]
    if boundary and len(inks) != len(slices):
        raise ValueError(f"boundary_color has {len(inks)} colours for {len(slices)} partitions")

    def embedding(part: PartitionData) -> Place:
        return lambda uv, _: part.domain.embed(uv).flatten(1)

    with torch.no_grad():
        sheets = [Sheet.of(part, embedding(part), color, options) for part in slices]
        look = Look(edges, inks if boundary else None, alpha=alpha, darkest=_DARKEST)
        return draw_sheets(sheets, look, _NAMES, ax, view)


def _checked(parts: Iterable[PartitionData]) -> list[PartitionData]:
    """The partitions as a list; raises unless they are of planes in three inputs."""
    slices: list[PartitionData] = [parts] if isinstance(parts, PartitionData) else [*parts]
    if not slices:
        raise ValueError("there is nothing to draw: no partition was given")
    for part in slices:
        if not isinstance(part, PartitionData):
            raise TypeError(f"parts must be partitions, not {kind_of(part)}")
        if part.domain.dim != 3:
            raise SplineCamError(
                f"plot_slices draws planes in a space of three inputs, and a partition is of a "
                f"domain in {part.domain.dim} inputs: {part.domain!r}."
            )
    return slices


def plot_surface(  # noqa: PLR0913 - the options of a picture, each given by its name
    part: PartitionData,
    *,
    output: int | Any = None,
    ax: Axes3D | None = None,
    color: Any = None,
    cmap: Any = None,
    limits: tuple[float, float] | None = None,
    edges: bool = True,
    boundary: bool | None = None,
    level: float = 0.0,
    boundary_color: Any = None,
    plane: bool = False,
    view: tuple[float, float] | None = None,
    height: float = 0.6,
    colorbar: bool = False,
    seed: int = 0,
) -> Axes3D:
    """Draw the graph of one output over the plane, or the image of the plane in three outputs.

    In a graph, each region is a facet at its exact height. The image of the plane is a surface in
    the space of the outputs: each region is a facet where its affine map places it, all axes have
    the same scale, and the surface may fold over and intersect itself.

    output: the output, needed where there are several; three outputs, such as ``(0, 1, 2)``; or a
    matrix (n_out, 3) that projects all outputs onto three axes, such as principal components.
    color, cmap, limits, seed: as for ``part.plot``, by default the output in a graph, and
    ``"random"`` in the image of the plane, where facets have the colours of their regions in
    ``part.plot(color="random")``; facets are darker where they face away from a light on the left.
    edges: draw the facets' edges, thinner for later layers. boundary: draw the decision boundary on
    the surface, by default in a graph, of one output the line at ``level``. plane: add a
    translucent plane at ``level``. view: the eye's elevation and azimuth in degrees, by default
    where it sees most of the surface. height: of a graph over a plane of width 1. colorbar: add a
    bar or a legend of the colours.

    Each pixel shows the nearest facet. The surface is an image in the resolution of the picture, in
    PDF and SVG of at least 300 dpi. The graph of more than 30,000 regions has no edges.

    >>> import torch, splinecam as sc
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 9), torch.nn.ReLU(), torch.nn.Linear(9, 3))
    >>> part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    >>> ax = part.plot.surface(output=0, color="slope", view=(40, 20))
    >>> ax = part.plot.surface(output=(0, 1, 2))
    """
    require_matplotlib()
    from splinecam.plot.colors import ColorOptions
    from splinecam.plot.sheets import Look, Sheet, draw_sheets

    part._require("the graph of the outputs")
    axes_in_space(ax)
    if output is not None and np.ndim(output) > 0:
        place, names = _image_of(part, output)
        chosen, tall, lines = None, None, edges
        color, boundary = "random" if color is None else color, bool(boundary)
    else:
        chosen, tall, lines = output_of(part, output), height, edges and len(part) <= _MANY
        place, names = _graph_of(part, chosen)
        color, boundary = "output" if color is None else color, boundary is None or bool(boundary)
    if plane and tall is None:
        raise SplineCamError("plane=True is for the graph of one output, not for three.")
    if plane and part._n_out > 1:
        raise SplineCamError(
            f"plane=True is for models with one output, at its level; this one has {part._n_out}."
        )
    inks = [boundary_color] if boundary else None
    cut = level if plane else None
    look = Look(lines, inks, height=tall, plane=cut, colorbar=colorbar)
    with torch.no_grad():
        options = ColorOptions(chosen, cmap, limits, level, seed)
        sheet = Sheet.of(part, place, color, options, tall)
        return draw_sheets([sheet], look, names, ax, view)


def _graph_of(part: PartitionData, k: int) -> tuple[Place, list[str]]:
    """The function that places points at the height of output k, and the names of axes."""
    from splinecam.plot.decorations import axis_names

    name = "f" if part._n_out == 1 else f"f, output {k}"
    names = [*axis_names(part.domain), name]
    return lambda uv, values: torch.cat([uv, values[:, k : k + 1]], 1), names


def _image_of(part: PartitionData, output: Any) -> tuple[Place, list[str]]:
    """The function that places points in three outputs or sums of them, and the names of axes."""
    from splinecam.plot.colors import output_name

    n = part._n_out
    if np.ndim(output) == 1 and len(output) == 3:
        chosen = [output_of(part, k) for k in output]
        return lambda _, values: values[:, chosen], [output_name(part, k) for k in chosen]
    if tuple(np.shape(output)) == (n, 3):
        matrix = torch.as_tensor(output).to(part._outputs)
        return lambda _, values: values @ matrix, [f"axis {k}" for k in (1, 2, 3)]
    raise SplineCamError(
        f"output has the shape {tuple(np.shape(output))}: give one output, three of them such as "
        f"(0, 1, 2), or a matrix ({n}, 3) that projects the {n} outputs onto three axes."
    )
