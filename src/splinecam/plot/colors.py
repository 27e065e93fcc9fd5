"""What the regions are coloured by: classes, slopes, areas, outputs, layers, or given numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from matplotlib import colormaps, colors
from matplotlib.colors import Colormap, Normalize
from torch import Tensor

from splinecam.errors import SplineCamError
from splinecam.geometry.subdivision import Mesh
from splinecam.plot.arrays import Floats, Ints, to_numpy, weighted_quantiles
from splinecam.plot.palette import CLASSES, PAPER, STRONGEST, class_colors, paler, rgb
from splinecam.plot.rasters import CellColors
from splinecam.questions.boundary import output_of
from splinecam.questions.class_regions import class_regions
from splinecam.questions.measures import last_layers, region_classes
from splinecam.questions.partition_data import PartitionData, names_of
from splinecam.questions.wanted import Wanted

_COLORS = 14  # at first; there are more where the neighbours of a node have them all


def color_graph(count: int, pairs: Ints, seed: int = 0) -> Ints:
    """Random colours 0, 1, ... of nodes, (count,), such that the two of each pair (N, 2) differ.

    Pairs with -1 are ignored. Nodes with many neighbours choose first, otherwise the order is
    random. In each round, all nodes choose that precede their neighbours without a colour.

    >>> a, b, c = color_graph(3, np.array([[0, 1], [1, 2], [2, 0], [-1, 0]]))
    >>> len({int(a), int(b), int(c)})
    3
    """
    random = np.random.default_rng(seed)
    pairs = pairs[(pairs >= 0).all(1) & (pairs[:, 0] != pairs[:, 1])]
    degree = np.bincount(pairs.ravel(), minlength=count)
    turn = np.empty(count, np.int64)
    turn[np.lexsort((random.random(count), -degree))] = np.arange(count)
    color = np.full(count, -1)
    taken = np.zeros((count, _COLORS), bool)
    open_ = np.arange(count)
    while len(open_):
        later = np.where(turn[pairs[:, 0]] > turn[pairs[:, 1]], pairs[:, 0], pairs[:, 1])
        waits = np.zeros(count, bool)
        waits[later] = True
        now = open_[~waits[open_]]
        if taken[now].all(1).any():
            taken = np.concatenate([taken, np.zeros_like(taken)], 1)
        chance = random.random((len(now), taken.shape[1]), np.float32)
        color[now] = np.where(taken[now], -1, chance).argmax(1)
        chosen = color[pairs] >= 0
        for a, b in ((0, 1), (1, 0)):
            known = pairs[chosen[:, a]]
            taken[known[:, b], color[known[:, a]]] = True
        pairs = pairs[~chosen.any(1)]
        open_ = open_[waits[open_]]
    return color


Limits = tuple[float, float]

MAX_ENTRIES = 24  # of a legend
_SHARES = (0.01, 0.99)  # of the domain's area below the limits of a colour scale

# The default colour maps, and the part of each on which dark lines are seen.
_LIGHT = {
    "magma_r": (0.0, 0.6),
    "Blues": (0.0, 0.75),
    "YlGnBu_r": (0.17, 1.0),
    "viridis": (0.12, 1.0),
    "RdBu_r": (0.06, 0.94),
}
BALANCE = 0.1  # share of the shorter side of the level above which there are two colours
_SOFT = (0.30, 0.52)  # of the palette's colours in random colours


@dataclass(frozen=True)
class Coloring:
    """Cells with their colours, and the content of their legend or colour bar."""

    mesh: Mesh
    fill: CellColors
    label: str = ""
    norm: Normalize | None = None  # of numbers
    cmap: Colormap | None = None
    extremes: Limits = (0.0, 0.0)
    legend: tuple[tuple[str, Any], ...] = ()  # names and colours, if there are no numbers
    edges: Tensor | None = None  # (N,) between different colours, if only these are drawn
    scale: Limits | None = None  # the limits of colours that follow numbers without a norm

    @property
    def limits(self) -> Limits | None:
        """The ``limits`` that give the same colours; None if the colours have no scale."""
        if self.norm is None:
            return self.scale
        return float(self.norm.vmin or 0.0), float(self.norm.vmax or 0.0)

    @property
    def extend(self) -> str:
        """The pointed ends of the colour bar, in the words of matplotlib."""
        return "neither" if self.limits is None else beyond(self.extremes, self.limits)

    def cell_colors(self) -> Floats:
        """The colour of each cell, (F, 4); affine numbers count at the mean vertex."""
        if self.fill.colors is not None:
            return self.fill.colors
        numbers: Any = self.fill.numbers
        if self.fill.slopes is not None:
            numbers = numbers + (self.fill.slopes * to_numpy(self.mesh.means())).sum(1)
        scale, cmap = cast(Any, self.norm), cast(Any, self.cmap)
        return np.asarray(cmap(scale(numbers)), np.float64)


def beyond(extremes: Limits, limits: Limits) -> str:
    """At which ends numbers lie beyond the limits: "neither", "min", "max" or "both"."""
    below, above = extremes[0] < limits[0], extremes[1] > limits[1]
    return ("neither", "min", "max", "both")[below + 2 * above]


@dataclass(frozen=True)
class ColorOptions:
    """The options that colours depend on."""

    output: int | None = None
    cmap: Any = None
    limits: Limits | None = None
    level: float = 0.0
    seed: int = 0
    names: Sequence[str] | None = None
    shown: Literal["all"] | tuple[int, ...] | None = None  # in the legend; None: that occur

    def colormap(self, default: str) -> Colormap:
        """The given colour map, or the light part of the default one, on which edges are seen."""
        if isinstance(self.cmap, Colormap):
            return self.cmap
        if self.cmap is None:
            some = colormaps[default](np.linspace(*_LIGHT[default], 256))
            return colors.ListedColormap(some, default)
        try:
            return colormaps[self.cmap]
        except (KeyError, TypeError):
            hint = "give the name of a colour map of matplotlib, or a colour map"
            raise ValueError(f"cmap is {self.cmap!r}; {hint}") from None

    def scale_limits(self, numbers: Floats, areas: Floats) -> Limits:
        """The given limits, or numbers between which 98 % of the area lies."""
        if self.limits is not None:
            return self.limits
        low, high = weighted_quantiles(numbers, _SHARES, areas).tolist()
        return low, high


def color_regions(part: PartitionData, color: Any, options: ColorOptions) -> Coloring:
    """The colours that the option ``color`` of ``part.plot`` describes."""
    if options.limits is not None and not options.limits[0] < options.limits[1]:
        raise ValueError(f"limits are {options.limits}; give (low, high) with low < high")
    if not isinstance(color, str):
        return _given(part, color, options)
    if color in _KINDS:
        return _KINDS[color](part, options)
    if colors.is_color_like(color):
        alike = np.tile(colors.to_rgba(color), (len(part), 1))
        return Coloring(part.mesh, CellColors(colors=alike))
    kinds = ", ".join(f'"{kind}"' for kind in _KINDS)
    raise SplineCamError(
        f"color is {color!r}; choose {kinds}, the name of one colour, or give an array with "
        "one number or colour per region."
    )


def _by_class(part: PartitionData, options: ColorOptions) -> Coloring:
    """The winner's colour, paler where it leads by little; the boundary divides regions."""
    cells = class_regions(part, level=options.level)
    winner, lead = map(to_numpy, (cells.cell_class, cells.cell_leads))
    known = options.limits is not None and options.shown is not None
    area = np.zeros(len(winner)) if known else to_numpy(cells.cell_areas)
    if options.limits is None:
        typical = float(weighted_quantiles(lead, [0.5], area)[0])
    else:
        typical = options.limits[1]
    label, legend = class_legend(part, winner, area, options)
    fill, scale = CellColors(colors=_opaque(paler(winner, lead, typical))), (0.0, typical)
    mesh = cells.winners.overlay.mesh
    return Coloring(mesh, fill, label, legend=legend, scale=scale if typical > 0 else None)


def certain_colors(part: PartitionData) -> Floats:
    """The colours (F, 3) of regions if some are undecided: these are left white."""
    wanted = Wanted.classes(part._n_out, "argmax")
    known = part._wanted is not None and part._wanted.covers(wanted)
    winner = to_numpy(region_classes(part) if known else -part.undecided.long())
    colors = paler(np.maximum(winner, 0), np.ones(len(winner)), 1.0)
    colors[winner < 0] = rgb(PAPER)
    return colors


def class_legend(
    part: PartitionData, winner: Ints, area: Floats, options: ColorOptions
) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """The heading and the entries of a legend; winner, area: (C,) of the cells."""
    names = class_names(part, options.names, options.level)
    areas = np.bincount(winner, area, minlength=len(names))
    if options.shown == "all":
        shown = list(range(len(names)))[:MAX_ENTRIES]
    elif options.shown is not None:
        shown = sorted(set(options.shown))[:MAX_ENTRIES]
    else:  # the largest ones
        there = min(MAX_ENTRIES, int((areas > 0).sum()))
        shown = sorted(np.argsort(-areas, kind="stable")[:there].tolist())
    palette = class_colors(len(names))
    heading = "class" if names == [str(k) for k in range(len(names))] else ""
    return heading, tuple((names[k], 1 - STRONGEST * (1 - palette[k])) for k in shown)


def class_names(part: PartitionData, names: Sequence[str] | None, level: float) -> list[str]:
    """The names of the classes, two for a single output: given, the partition's, or numbers."""
    n = part._n_out
    given = part.names if names is None else names_of(names, n)
    if given is not None:
        return list(given)
    name = output_name(part, 0)
    return [str(k) for k in range(n)] if n > 1 else [f"{name} ≤ {level:g}", f"{name} > {level:g}"]


def output_name(part: PartitionData, k: int) -> str:
    """The name of an output: a logit if a final sigmoid or softmax was left out."""
    name = "logit" if part.stripped else "output"
    return name if part._n_out == 1 else f"{name} {k}"


def _by_slope(part: PartitionData, options: ColorOptions) -> Coloring:
    weight, label = part.weight, "slope ‖A‖"
    if options.output is not None:
        k = output_of(part, options.output)
        weight, label = weight[:, k : k + 1], f"slope of {output_name(part, k)}"
    slope = to_numpy(torch.linalg.vector_norm(weight, dim=(1, 2)))
    return _logarithmic(part, slope, f"{label} (log scale)", options, "magma_r")


def _logarithmic(
    part: PartitionData, numbers: Floats, label: str, options: ColorOptions, cmap: str
) -> Coloring:
    """Numbers at or above 0 on a logarithmic scale; 0 has the lowest colour."""
    positive = numbers > 0
    if options.limits is not None and not options.limits[0] > 0:
        raise ValueError(f"limits are {options.limits}; a logarithmic scale needs 0 < low < high")
    low, high = options.scale_limits(numbers[positive], to_numpy(part.areas)[positive])
    extremes = _extremes(numbers)
    if not positive.any():
        low, high, extremes = 1.0, 1.0, (1.0, 1.0)
    if not low < high:
        low, high = low / 2, high * 2
    fill = CellColors(numbers=np.maximum(numbers, np.finfo(np.float64).tiny))
    norm = colors.LogNorm(low, high)
    return Coloring(part.mesh, fill, label, norm, options.colormap(cmap), extremes)


def _by_output(part: PartitionData, options: ColorOptions) -> Coloring:
    """The output itself, an affine function in every region."""
    k = output_of(part, options.output)
    maps = part._maps
    slopes, middle = maps.weight[:, k], maps.value[:, k]
    origin = to_numpy(middle - (slopes * maps.anchor).sum(1))
    norm, cmap = output_scale(part, to_numpy(middle), options)
    fill = CellColors(numbers=origin, slopes=to_numpy(slopes))
    extremes = _extremes(to_numpy(part.values[:, k]))
    return Coloring(part.mesh, fill, output_name(part, k), norm, cmap, extremes)


def output_scale(
    part: PartitionData, middle: Floats, options: ColorOptions
) -> tuple[Normalize, Colormap]:
    """The scale of an output with values (F,), with two colours unless most are on one side."""
    level = options.level
    low, high = options.scale_limits(middle, to_numpy(part.areas))
    below, above = level - low, high - level
    if min(below, above) > BALANCE * max(below, above):
        if options.limits is None:
            low, high = level - max(below, above), level + max(below, above)
        return colors.TwoSlopeNorm(level, low, high), options.colormap("RdBu_r")
    return _linear(low, high), options.colormap("viridis")


def _given(part: PartitionData, color: Any, options: ColorOptions) -> Coloring:
    """An array with a number or a colour per region."""
    given = to_numpy(color.detach().double()) if isinstance(color, Tensor) else color
    if isinstance(given, Sequence | np.ndarray) and any(isinstance(c, str) for c in given):
        try:
            given = colors.to_rgba_array(list(given))
        except ValueError as error:
            raise ValueError(f"color: {error}; give names of colours of matplotlib") from None
    try:
        array = np.array(given, np.float64)
    except (TypeError, ValueError):
        kind = type(color).__name__
        raise TypeError(f"color must be a name or an array of numbers, not {kind}") from None
    F = len(part)
    if array.ndim == 2 and array.shape[0] == F and array.shape[1] in (3, 4):
        if not (array.min(initial=0) >= 0 and array.max(initial=0) <= 1):
            raise ValueError("color: the entries of colours are numbers from 0 to 1")
        return Coloring(part.mesh, CellColors(colors=_opaque(array)))
    if array.shape != (F,):
        raise SplineCamError(
            f"color has shape {array.shape}, but there are {F:,} regions: give (F,) numbers or "
            "(F, 3 or 4) colours."
        )
    known = np.isfinite(array)
    norm = _linear(*options.scale_limits(array[known], to_numpy(part.areas)[known]))
    cmap, extremes = options.colormap("viridis"), _extremes(array[known])
    return Coloring(part.mesh, CellColors(numbers=array), "", norm, cmap, extremes)


def _linear(low: float, high: float) -> Normalize:
    """A norm between two numbers, or around them if they are equal."""
    if low == high:
        reach = abs(low) / 2 or 0.5
        low, high = low - reach, high + reach
    return Normalize(low, high)


def _extremes(numbers: Floats) -> Limits:
    return (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 0.0)


def _by_layer(part: PartitionData, options: ColorOptions) -> Coloring:
    """The last layer that bounds a region."""
    latest = to_numpy(last_layers(part))
    ramp = options.colormap("YlGnBu_r")(np.linspace(0.25, 0.95, max(len(part.layers), 2)))
    palette = np.concatenate([ramp[: len(part.layers)], [[1, 1, 1, 1]]])  # -1: the whole domain
    shown = np.arange(len(part.layers)) if options.shown == "all" else np.unique(latest)
    names = [*part.layers, "none"]
    legend = tuple((names[k], palette[k]) for k in shown[:MAX_ENTRIES])
    return Coloring(part.mesh, CellColors(colors=palette[latest]), "last layer", legend=legend)


def _by_vertices(part: PartitionData, options: ColorOptions) -> Coloring:
    corners, limits = to_numpy(part.mesh.counts()), options.limits
    most = max(int(weighted_quantiles(corners, [0.999])[0] if limits is None else limits[1]), 4)
    ramp = options.colormap("YlGnBu_r")(np.linspace(1.0, 0.1, most - 2))
    shown = np.unique(np.minimum(corners, most)) if limits is None else np.arange(3, most + 1)
    more = corners.max() > most or limits is not None
    legend = tuple((f"{k}{' or more' * bool(k == most and more)}", ramp[k - 3]) for k in shown)
    fill = CellColors(colors=ramp[np.minimum(corners, most) - 3])
    return Coloring(part.mesh, fill, "vertices", legend=legend, scale=(3.0, float(most)))


def _by_chance(part: PartitionData, options: ColorOptions) -> Coloring:
    """Soft random colours; regions that share an edge never have the same colour."""
    colors = random_colors(len(part), to_numpy(part._edge_faces), options)
    return Coloring(part.mesh, CellColors(colors=colors))


def _by_piece(part: PartitionData, options: ColorOptions) -> Coloring:
    """Soft random colours of pieces with one affine map each, and the edges between these."""
    pieces = part.merged()
    label, faces = to_numpy(pieces.labels), to_numpy(part._edge_faces)
    colors = random_colors(len(pieces), np.where(faces >= 0, label[faces], -1), options)
    return Coloring(part.mesh, CellColors(colors=colors[label]), edges=pieces.edges)


def random_colors(count: int, pairs: Ints, options: ColorOptions) -> Floats:
    """Soft colours (count, 4) such that the two cells of each pair (N, 2) differ."""
    number = color_graph(count, pairs, options.seed)
    if options.cmap is not None:
        return np.asarray(options.colormap("")(number / max(1, number.max(initial=0))))
    hues = class_colors(len(CLASSES) - 1)  # without grey
    soft = np.concatenate([1 - share * (1 - hues) for share in _SOFT])
    return _opaque(soft[number % len(soft)])


def _opaque(colors: Floats) -> Floats:
    """Colours (n, 3 or 4) as (n, 4)."""
    return np.pad(colors, ((0, 0), (0, 4 - colors.shape[1])), constant_values=1.0)


_KINDS: dict[str, Callable[[PartitionData, ColorOptions], Coloring]] = {
    "class": _by_class,
    "slope": _by_slope,
    "area": lambda part, options: _logarithmic(
        part, to_numpy(part.areas), "area (log scale)", options, "YlGnBu_r"
    ),
    "output": _by_output,
    "layer": _by_layer,
    "vertices": _by_vertices,
    "merged": _by_piece,
    "random": _by_chance,
}
