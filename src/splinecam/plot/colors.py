"""What the regions are coloured by: classes, slopes, areas, outputs, layers, or given numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.colors import (
    Colormap,
    ListedColormap,
    LogNorm,
    Normalize,
    TwoSlopeNorm,
    is_color_like,
    to_rgba,
    to_rgba_array,
)

from splinecam.analysis.boundary import output_of
from splinecam.analysis.class_names import names_of
from splinecam.analysis.class_regions import class_regions
from splinecam.analysis.partition_data import PartitionData
from splinecam.errors import SplineCamError
from splinecam.plot.coloring import color_apart
from splinecam.plot.fill import Shade
from splinecam.plot.palette import CLASSES, class_colors

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from splinecam.geometry.subdivision import Mesh
    from splinecam.plot.palette import Floats

    Limits = tuple[float, float]

__all__ = ["Asked", "Coloring", "class_names", "coloring"]

_PALEST, _STRONGEST = 0.12, 0.80  # how much of its colour a class has, from no lead to a large one
_SHARES = (0.01, 0.99)  # of the domain's area that lie below the limits of a colour scale
_ENTRIES = 24  # of a legend, at most

# The default colour maps, and between which of their ends dark lines are seen.
_LIGHT = {
    "magma_r": (0.0, 0.6),
    "YlGnBu_r": (0.17, 1.0),
    "viridis": (0.12, 1.0),
    "RdBu_r": (0.06, 0.94),
}
_BALANCE = 0.1  # the shorter side of an output's level, of the longer one, for two colours
_SOFT = (0.30, 0.52)  # of random colours: how much of the palette's they have


@dataclass(frozen=True)
class Coloring:
    """Cells with their colours, and what the reader is told of them.

    legend: names and colours; of numbers instead the label, the norm, the colour map, and whether
    there are numbers beyond the norm's limits (``extend``, as colour bars have it). edges: those
    between different colours, if only they are to be drawn, (N,). scale: the limits of colours
    that follow numbers without a norm.
    """

    mesh: Mesh
    shade: Shade
    label: str = ""
    norm: Normalize | None = None
    cmap: Colormap | None = None
    extend: str = "neither"
    legend: tuple[tuple[str, Any], ...] = ()
    edges: Tensor | None = None
    scale: Limits | None = None

    @property
    def limits(self) -> Limits | None:
        """What to ask for as ``limits`` to have the same colours; None if they have no scale."""
        if self.norm is None:
            return self.scale
        return float(self.norm.vmin or 0.0), float(self.norm.vmax or 0.0)


@dataclass(frozen=True)
class Asked:
    """The options of a picture that colours depend on.

    shown: the classes that the legend has, by default those that occur; ``"all"`` for every class
    or layer.
    """

    output: int | None
    cmap: Any
    limits: Limits | None
    level: float
    seed: int
    names: Sequence[str] | None = None
    shown: Literal["all"] | tuple[int, ...] | None = None

    def colormap(self, default: str) -> Colormap:
        """The colour map that was asked for, or else the default, with its darkest end left out.

        The edges are dark, and must be seen on all colours.
        """
        if isinstance(self.cmap, Colormap):
            return self.cmap
        if self.cmap is None:
            shades = colormaps[default](np.linspace(*_LIGHT[default], 256))
            return ListedColormap(shades, default)
        try:
            return colormaps[self.cmap]
        except (KeyError, TypeError):
            raise ValueError(
                f"cmap is {self.cmap!r}; give the name of a colour map of matplotlib, or one itself"
            ) from None


def coloring(part: PartitionData, color: Any, asked: Asked) -> Coloring:
    """The colours that ``color`` asks for."""
    if asked.limits is not None and not asked.limits[0] < asked.limits[1]:
        raise ValueError(f"limits are {asked.limits}; give (low, high) with low < high")
    if isinstance(color, str):
        if color in _KINDS:
            return _KINDS[color](part, asked)
        if is_color_like(color):
            return Coloring(part.mesh, Shade(colors=np.tile(to_rgba(color), (len(part), 1))))
        kinds = ", ".join(f'"{kind}"' for kind in _KINDS)
        raise SplineCamError(
            f"color is {color!r}; choose {kinds}, the name of one colour, or give an array with "
            "one number or colour per region."
        )
    return _given(part, color, asked)


# -- kinds ---------------------------------------------------------------------------------------


def _by_class(part: PartitionData, asked: Asked) -> Coloring:
    """The winner's colour, paler where it wins by little; regions are cut at the boundary."""
    cells = class_regions(part, level=asked.level)
    number = cells.cell_class.cpu().numpy()
    names = class_names(part, asked.names, asked.level)
    palette = class_colors(len(names))
    lead, area = cells.cell_leads.cpu().numpy(), cells.cell_areas.cpu().numpy()
    typical = float(_quantiles(lead, [0.5], area)[0]) if asked.limits is None else asked.limits[1]
    strength = lead / (lead + typical) if typical > 0 else np.ones_like(lead)
    share = (_PALEST + (_STRONGEST - _PALEST) * strength)[:, None]
    total = np.bincount(number, area, minlength=len(names))
    shown = _shown_classes(total, asked)
    mesh = cells.winners.overlay.mesh
    return Coloring(
        mesh,
        Shade(colors=_opaque(1 - share * (1 - palette[number]))),
        label="class" if names == [str(k) for k in range(len(names))] else "",
        legend=tuple((names[k], 1 - _STRONGEST * (1 - palette[k])) for k in shown),
        scale=(0.0, typical) if typical > 0 else None,
    )


def _shown_classes(areas: NDArray[Any], asked: Asked) -> list[int]:
    """The classes in the legend, ascending: those asked for, or the largest, by their areas."""
    if asked.shown == "all":
        return list(range(len(areas)))[:_ENTRIES]
    if asked.shown is not None:
        return sorted(set(asked.shown))[:_ENTRIES]
    there = int((areas > 0).sum())
    found: list[int] = np.sort(np.argsort(-areas, kind="stable")[: min(_ENTRIES, there)]).tolist()
    return found


def class_names(part: PartitionData, names: Sequence[str] | None, level: float) -> list[str]:
    """What the classes are called: as asked for, as the partition says, or by their numbers.

    A single output has two classes.
    """
    n = int(part.values.shape[1])
    given = part.names if names is None else names_of(names, n)
    if given is not None:
        return list(given)
    name = _output_name(part, 0)
    return [str(k) for k in range(n)] if n > 1 else [f"{name} ≤ {level:g}", f"{name} > {level:g}"]


def _output_name(part: PartitionData, k: int) -> str:
    """What an output is called: a logit if a final sigmoid or softmax was left out."""
    name = "logit" if part.stripped else "output"
    return name if part.values.shape[1] == 1 else f"{name} {k}"


def _by_slope(part: PartitionData, asked: Asked) -> Coloring:
    weight, label = part.weight, "slope ‖A‖"
    if asked.output is not None:
        k = output_of(part, asked.output)
        weight, label = weight[:, k : k + 1], f"slope of {_output_name(part, k)}"
    slope = torch.linalg.vector_norm(weight, dim=(1, 2)).cpu().numpy()
    return _logarithmic(part, slope, f"{label} (log scale)", asked, "magma_r")


def _by_area(part: PartitionData, asked: Asked) -> Coloring:
    return _logarithmic(part, part.areas.cpu().numpy(), "area (log scale)", asked, "YlGnBu_r")


def _by_output(part: PartitionData, asked: Asked) -> Coloring:
    """The output itself, which is affine in every region."""
    k = output_of(part, asked.output)
    maps = part.maps
    slopes, middle = maps.weight[:, k], maps.value[:, k]
    origin = (middle - (slopes * maps.anchor).sum(1)).cpu().numpy()
    at_means, area = middle.cpu().numpy(), part.areas.cpu().numpy()
    values = part.values[:, k].cpu().numpy()
    ends = (float(values.min()), float(values.max()))
    low, high = asked.limits or tuple(_quantiles(at_means, _SHARES, area).tolist())
    name = _output_name(part, k)
    shade = Shade(numbers=origin, slopes=slopes.cpu().numpy())
    below, above = asked.level - low, high - asked.level
    if min(below, above) > _BALANCE * max(below, above):
        if asked.limits is None:
            low, high = asked.level - max(below, above), asked.level + max(below, above)
        norm: Normalize = TwoSlopeNorm(asked.level, low, high)
        extend = _extend(*ends, low, high)
        return Coloring(part.mesh, shade, name, norm, asked.colormap("RdBu_r"), extend)
    norm, extend = _linear(low, high), _extend(*ends, low, high)
    return Coloring(part.mesh, shade, name, norm, asked.colormap("viridis"), extend)


def _by_layer(part: PartitionData, asked: Asked) -> Coloring:
    """The last layer that bounds a region."""
    mesh = part.mesh
    op = mesh.edge_layer[mesh.corners >> 1]
    last = torch.full_like(mesh.offsets[1:], -1).scatter_reduce(0, mesh.owners(), op, "amax")
    born = last.cpu().numpy()
    ramp = asked.colormap("YlGnBu_r")(np.linspace(0.25, 0.95, max(len(part.layers), 2)))
    palette = np.concatenate([ramp[: len(part.layers)], [[1, 1, 1, 1]]])  # -1: the whole domain
    shown = np.arange(len(part.layers)) if asked.shown == "all" else np.unique(born)
    names = [*part.layers, "none"]
    legend = tuple((names[k], palette[k]) for k in shown[:_ENTRIES])
    return Coloring(mesh, Shade(colors=palette[born]), "last cut", legend=legend)


def _by_vertices(part: PartitionData, asked: Asked) -> Coloring:
    corners = part.num_corners.cpu().numpy()
    most = max(int(_quantiles(corners, [0.999])[0] if asked.limits is None else asked.limits[1]), 4)
    ramp = asked.colormap("YlGnBu_r")(np.linspace(1.0, 0.1, most - 2))
    shown = np.unique(np.minimum(corners, most)) if asked.limits is None else np.arange(3, most + 1)
    more = corners.max() > most or asked.limits is not None
    names = [f"{k}{' or more' * bool(k == most and more)}" for k in shown]
    legend = tuple((name, ramp[k - 3]) for name, k in zip(names, shown, strict=True))
    colors = ramp[np.minimum(corners, most) - 3]
    return Coloring(
        part.mesh, Shade(colors=colors), "vertices", legend=legend, scale=(3.0, float(most))
    )


def _by_chance(part: PartitionData, asked: Asked) -> Coloring:
    """Soft colours; regions that share an edge never have the same."""
    return Coloring(part.mesh, _apart(len(part), part.edge_faces.cpu().numpy(), asked))


def _by_piece(part: PartitionData, asked: Asked) -> Coloring:
    """Soft colours of the pieces with one affine map each, and only the edges between them."""
    pieces = part.merged()
    label, faces = pieces.labels.cpu().numpy(), part.edge_faces.cpu().numpy()
    colors = _apart(len(pieces), np.where(faces >= 0, label[faces], -1), asked).colors
    assert colors is not None
    return Coloring(part.mesh, Shade(colors=colors[label]), edges=pieces.edges)


def _apart(count: int, pairs: NDArray[np.int64], asked: Asked) -> Shade:
    """Soft colours for cells such that the two of each pair (N, 2) differ."""
    number = color_apart(count, pairs, asked.seed)
    if asked.cmap is not None:
        return Shade(colors=asked.colormap("")(number / max(1, number.max(initial=0))))
    hues = class_colors(len(CLASSES) - 1)  # without grey
    soft = np.concatenate([1 - share * (1 - hues) for share in _SOFT])
    return Shade(colors=_opaque(soft[number % len(soft)]))


def _given(part: PartitionData, color: Any, asked: Asked) -> Coloring:
    """An array with a number or a colour per region."""
    given = color.detach().double().cpu().numpy() if isinstance(color, torch.Tensor) else color
    if isinstance(given, Sequence | np.ndarray) and any(isinstance(c, str) for c in given):
        given = _named(given)
    try:
        array = np.array(given, np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"color must be a name or an array of numbers, not {type(color).__name__}"
        ) from None
    F = len(part)
    if array.ndim == 2 and array.shape[0] == F and array.shape[1] in (3, 4):
        if not (array.min(initial=0) >= 0 and array.max(initial=0) <= 1):
            raise ValueError("color: the entries of colours are numbers from 0 to 1")
        return Coloring(part.mesh, Shade(colors=_opaque(array)))
    if array.shape != (F,):
        raise SplineCamError(
            f"color has shape {array.shape}, but there are {F:,} regions: give (F,) numbers or "
            "(F, 3 or 4) colours."
        )
    known = np.isfinite(array)
    finite, area = array[known], part.areas.cpu().numpy()[known]
    low, high = asked.limits or tuple(_quantiles(finite, _SHARES, area).tolist())
    extend = _extend(*_ends(finite), low, high)
    cmap = asked.colormap("viridis")
    return Coloring(part.mesh, Shade(numbers=array), "", _linear(low, high), cmap, extend)


def _named(names: Any) -> Floats:
    """Colours by name, (n, 4)."""
    try:
        return np.asarray(to_rgba_array(list(names)), np.float64)
    except ValueError as error:
        raise ValueError(f"color: {error}; give names of colours of matplotlib") from None


_KINDS: dict[str, Callable[[PartitionData, Asked], Coloring]] = {
    "class": _by_class,
    "slope": _by_slope,
    "area": _by_area,
    "output": _by_output,
    "layer": _by_layer,
    "vertices": _by_vertices,
    "merged": _by_piece,
    "random": _by_chance,
}


# -- numbers -------------------------------------------------------------------------------------


def _logarithmic(
    part: PartitionData, numbers: Floats, label: str, asked: Asked, cmap: str
) -> Coloring:
    """Numbers at or above 0 on a logarithmic scale; 0 has the lowest colour."""
    positive = numbers[numbers > 0]
    if asked.limits is not None and not asked.limits[0] > 0:
        raise ValueError(f"limits are {asked.limits}; a logarithmic scale needs 0 < low < high")
    area = part.areas.cpu().numpy()[numbers > 0]
    low, high = asked.limits or tuple(_quantiles(positive, _SHARES, area).tolist())
    if not len(positive):  # all of them are 0
        low, high = 1.0, 1.0
    extend = _extend(*_ends(numbers), low, high) if len(positive) else "neither"
    if not low < high:
        low, high = low / 2, high * 2
    shade = Shade(numbers=np.maximum(numbers, np.finfo(np.float64).tiny))
    return Coloring(part.mesh, shade, label, LogNorm(low, high), asked.colormap(cmap), extend)


def _linear(low: float, high: float) -> Normalize:
    """A norm between two numbers; around them if they are one."""
    if low == high:
        reach = abs(low) / 2 or 0.5
        low, high = low - reach, high + reach
    return Normalize(low, high)


def _quantiles(values: Any, shares: Sequence[float], weights: Floats | None = None) -> Floats:
    """Below which numbers so large shares of the values lie, by weight."""
    if not len(values):
        return np.zeros(len(shares))
    if weights is None or not weights.sum() > 0:
        return np.asarray(np.quantile(values, shares), np.float64)
    order = np.argsort(values)
    total = np.cumsum(np.maximum(weights[order], 0))
    place = np.searchsorted(total, np.asarray(shares) * total[-1])
    return np.asarray(values[order[np.minimum(place, len(order) - 1)]], np.float64)


def _ends(numbers: Floats) -> tuple[float, float]:
    return (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 0.0)


def _extend(least: float, most: float, low: float, high: float) -> str:
    """Whether numbers lie below or above the limits, in the words of colour bars."""
    below, above = least < low, most > high
    return {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[below, above]


def _opaque(colors: Floats) -> Floats:
    """Colours (n, 3 or 4) as (n, 4)."""
    if colors.shape[1] == 4:
        return colors
    return np.concatenate([colors, np.ones((len(colors), 1))], 1)
