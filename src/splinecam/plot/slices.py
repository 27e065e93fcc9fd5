"""Slices of a network of three inputs, drawn where their planes lie in space."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from splinecam._util.options import kind_of
from splinecam.analysis.partition_data import PartitionData
from splinecam.errors import SplineCamError
from splinecam.plot.figures import axes_in_space, require_matplotlib
from splinecam.plot.palette import CLASSES

if TYPE_CHECKING:
    from mpl_toolkits.mplot3d import Axes3D

__all__ = ["plot_slices"]

_NAMES = ("x₁", "x₂", "x₃")
_DARKEST = 0.85  # share of its colour that a plane has when it faces away from the light


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

    Planes hide each other where they cross, and what is behind a translucent plane shines through.

    parts: the partitions, each of a domain in the same three inputs. color: as for ``part.plot``.
    colors: its options cmap, limits, output and seed. alpha: the opacity of the planes. edges: draw
    the regions' edges, thinner for later layers and where they are many. boundary: draw the
    decision boundary of each, of one output the line at ``level``. boundary_color: of the
    boundaries, one for all or a list of one each; by default they differ. view: the eye's elevation
    and azimuth in degrees, by default where most is seen.

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
    inks = _colors(boundary_color, len(slices))
    with torch.no_grad():
        sheets = [Sheet.of(part, _embedding(part), color, options) for part in slices]
        looks = [Look(color, edges, boundary, ink) for ink in inks]
        style: Any = {"names": _NAMES, "alpha": alpha, "darkest": _DARKEST}
        return draw_sheets(sheets, looks, ax=ax, view=view, **style)[0]


def _checked(parts: Iterable[PartitionData]) -> list[PartitionData]:
    """The partitions as a list; an error unless they are of planes in three inputs."""
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


def _colors(given: Any, count: int) -> list[Any]:
    """A colour for each of ``count`` boundaries."""
    if given is None:
        return [CLASSES[k % len(CLASSES)] for k in range(count)]
    if isinstance(given, list):
        if len(given) != count:
            raise ValueError(f"boundary_color has {len(given)} colours for {count} partitions")
        return list(given)
    return [given] * count


def _embedding(part: PartitionData) -> Any:
    """The function that places points of the plane in the space of inputs."""

    def place(uv: Tensor, _: Tensor) -> Tensor:
        return part.domain.embed(uv).flatten(1)

    return place
