"""Decision boundaries and level sets: where outputs tie, and where one of them has a given value.

On a region every output is affine, so that two outputs tie on a straight line. The part of the line
on which no third output is larger belongs to the boundary.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from splinecam._util.arrays import lengths
from splinecam._util.graphs import components
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.arrangement.crossings import Ambiguities, Functions
from splinecam.arrangement.zero_sets import zero_sets
from splinecam.errors import SplineCamError, option
from splinecam.questions.certainty import Band, class_band, level_band, pairwise_band
from splinecam.questions.curves import Curves
from splinecam.questions.partition_data import PartitionData, Unresolved, class_number, numbered
from splinecam.questions.wanted import Wanted
from splinecam.questions.winners import Winners, find_winners

Kind = Literal["argmax", "argmin", "pairwise"]


@dataclass(frozen=True, eq=False, repr=False)
class Boundary(Curves):
    """The decision boundary: S segments, each between two classes.

    sides: (S, 2) the class left and right of each segment, -1 outside the domain; where they differ
    the higher one is left. n_classes: the number of classes; kind: how they are decided;
    unresolved: places that float64 could not settle, usually none; level: of a single output; pair:
    the two classes that the boundary is limited to, if it is.
    """

    sides: Tensor
    n_classes: int
    kind: Kind
    unresolved: tuple[Unresolved, ...] = ()
    level: float = 0.0
    pair: tuple[int, int] | None = None

    @cached_property
    def band(self) -> Band:
        """Where the model itself may have its boundary, if its smooth functions were replaced.

        Outside of the band the model has the same class as the piecewise-linear network. The band
        between two classes is where both are possible. It is empty if the partition is exact.
        """
        part, pair = self.partition, self.pair
        if self.kind == "pairwise" and part._n_out > 1:
            pairs = combinations(range(self.n_classes), 2) if pair is None else [pair]
            return pairwise_band(part, list(pairs))
        return class_band(part, smallest=self.kind == "argmin", level=self.level, pair=pair)

    @property
    def classes(self) -> Tensor:
        """The two classes that tie on each segment, the lower one first, (S, 2)."""
        return torch.stack([self.label // self.n_classes, self.label % self.n_classes], 1)

    def between(self, i: int | str, j: int | str) -> Self:
        """The part between two classes, which are given by number or name."""
        i, j = pair_of((i, j), self.n_classes, self.partition.names)
        return replace(self.select(self.label == i * self.n_classes + j), pair=(i, j))

    def pairs(self) -> dict[tuple[int, int], float]:
        """The pairs of classes that meet, with the length of the boundary between them."""
        label, index = torch.unique(self.label, return_inverse=True)
        total = self.lengths.new_zeros(label.shape).index_add_(0, index, self.lengths)
        return {self.key(k): size for k, size in zip(label.tolist(), total.tolist(), strict=True)}

    def key(self, label: int) -> tuple[int, int]:
        """The two classes that a label stands for."""
        return divmod(label, self.n_classes)

    def _summary(self) -> str:
        met = torch.unique(self.label).tolist()
        names = self.partition.names or range(self.n_classes)
        which = f"{len(met)} pairs of classes"
        if len(met) == 1:
            which = "classes {} and {}".format(*(names[k] for k in self.key(met[0])))
        return f"{self.kind}, {which}, {super()._summary()}{_undecided(self.band)}"


@dataclass(frozen=True, eq=False, repr=False)
class LevelSet(Curves):
    """Where an output equals one of some levels; larger values lie left of each segment.

    levels: the levels, ascending; output: the index of the output; unresolved: places that float64
    could not settle, usually none; only: the level that the curves are limited to, if they are.
    """

    levels: tuple[float, ...]
    output: int
    unresolved: tuple[Unresolved, ...] = ()
    only: float | None = None

    @cached_property
    def band(self) -> Band:
        """Where the model itself may have these levels, if its smooth functions were replaced.

        The label of a polygon is the number of its level; polygons of several levels may overlap.
        The band is empty if the partition is exact.
        """
        band, only = level_band(self.partition, self.levels, self.output), self.only
        return band if only is None else band.select(band.label == self.levels.index(only))

    @property
    def level(self) -> Tensor:
        """The level of each segment, (S,)."""
        return self.points.new_tensor(self.levels)[self.label]

    def at(self, level: float) -> Self:
        """The part of one level."""
        if level not in self.levels:
            raise ValueError(f"level {level} is not among the levels {self.levels}")
        return replace(self.select(self.label == self.levels.index(level)), only=level)

    def key(self, label: int) -> float:
        """The level that a label stands for."""
        return self.levels[label]

    def _summary(self) -> str:
        count = len(self.levels)
        which = f"level {self.levels[0]:.4g}" if count == 1 else f"{count} levels"
        return f"{which} of output {self.output}, {super()._summary()}{_undecided(self.band)}"


def _undecided(band: Band) -> str:
    return f", within a band of area {band.area:.4g}" if len(band) else ""


def decision_boundary(
    part: PartitionData,
    *,
    classes: tuple[int | str, int | str] | None = None,
    kind: Kind = "argmax",
    level: float = 0.0,
) -> Boundary:
    """The points of the domain at which the decision is a tie, as segments.

    Where outputs are equal on an area, the outline of this area belongs to the boundary, and its
    interior does not. If smooth functions of the model were replaced, it is the boundary of the
    piecewise-linear network, and that of the model lies in its ``band``.

    classes: only the part between these two classes, given by number or name. kind: with several
    outputs, where the two largest are equal (``"argmax"``), the two smallest (``"argmin"``), or any
    two (``"pairwise"``). level: with one output, where it equals this number; class 1 is above the
    level, and class 0 below.

    >>> import splinecam as sc
    >>> from torch import manual_seed, nn
    >>> _ = manual_seed(0)
    >>> model = nn.Linear(2, 3).double()
    >>> part = sc.partition(model, sc.Domain.box(-9, 9), progress=False)
    >>> x = part.decision_boundary().sample(10)
    >>> best, second = model(x).topk(2).values.T
    >>> best.allclose(second)
    True
    """
    n, level = check_kind(part, kind, level)
    pair = None if classes is None else pair_of(classes, n, part.names)
    if kind == "pairwise" and part._n_out > 1:
        part._require("other boundaries", Wanted(kind, pair))
        return _pairwise(part, pair)
    winners = winners_of(part, kind, level, whole=False, pair=pair)
    found = boundary_of(part, winners, n, kind, level)
    return found if pair is None else found.between(*pair)


def boundary_of(
    part: PartitionData, winners: Winners, n: int, kind: Kind, level: float
) -> Boundary:
    """The decision boundary between the winners among n classes, see ``decision_boundary``."""
    (edge, classes, sides), mesh = winners.borders(), winners.overlay.mesh
    flip = (sides[:, 0] < sides[:, 1]) & (sides >= 0).all(1)
    faces = mesh.halfedge_face().view(-1, 2)[edge]
    regions = torch.where(faces < 0, -1, winners.overlay.face[faces])
    ends, regions, sides = (
        torch.where(flip[:, None], x.flip(1), x) for x in (mesh.edges[edge], regions, sides)
    )
    points, segments, kept = _segments(part, mesh.uv, ends)
    label = (classes[:, 0] * n + classes[:, 1])[kept]
    unresolved = unresolved_places(part, winners.overlay.ambiguities, "decision boundary")
    what = label, sides[kept], n, kind, unresolved, level
    return Boundary(part, points, segments, regions[kept], *what)


def level_set(
    part: PartitionData, levels: float | Sequence[float] | Tensor, *, output: int | None = None
) -> LevelSet:
    """The points of the domain at which an output has one of the given values, as segments.

    Where the output equals a level on an area, the outline of this area belongs to the level set,
    and its interior does not. If smooth functions of the model were replaced, the levels of the
    model lie in the ``band``.

    levels: one value, or several. output: the index of the output, needed if there are several.

    >>> import splinecam as sc
    >>> from torch import nn
    >>> part = sc.partition(nn.Linear(2, 1), sc.Domain.box(-1, 1), progress=False)
    >>> part.level_set([-0.1, 0.0, 0.1]).levels
    (-0.1, 0.0, 0.1)
    """
    index = output_of(part, output)
    wanted = levels_of(levels)
    part._require("other levels", Wanted("level", None, index, tuple(wanted.tolist())))
    z = part._outputs[:, index : index + 1]
    size = EPS * float(z.abs().max())
    error = part._value_error[index] + size + EPS * wanted.to(z).abs()
    unit = torch.zeros(wanted.shape, dtype=torch.int64, device=z.device)
    everything = torch.ones_like(unit, dtype=torch.bool)
    found = zero_sets(part.mesh, Functions(z, unit, wanted.to(z), error, everything, unit))
    points, segments, kept = _segments(part, found.uv, found.ends)
    regions, label = found.faces[kept], found.column[kept]
    what = tuple(wanted.tolist()), index, unresolved_places(part, found.ambiguities, "level set")
    return LevelSet(part, points, segments, regions, label, *what)


def output_of(part: PartitionData, output: int | None) -> int:
    """The index of an output, which may be left out if there is one only."""
    return output_index(part._n_out, output)


def output_index(n: int, output: int | None) -> int:
    """The index of one of n outputs, which may be left out if there is one only."""
    if output is None:
        if n > 1:
            raise SplineCamError(
                f"The model has {n} outputs: say which one, {option('output', '0')} to {n - 1}."
            )
        return 0
    meant = f"output must be a whole number, 0 to {n - 1}"
    return numbered(output, n, ("output", "outputs"), meant)


def levels_of(levels: float | Sequence[float] | Tensor) -> Tensor:
    """The different levels that a caller gives, ascending."""
    try:
        wanted: Tensor = torch.unique(torch.as_tensor(levels, dtype=torch.float64))
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"levels must be a number or several, not {levels!r}") from None
    if not bool(wanted.isfinite().all()):
        raise ValueError(f"levels must be finite numbers, not {levels}")
    return wanted


def winners_of(
    part: PartitionData,
    kind: Kind,
    level: float,
    *,
    whole: bool,
    pair: tuple[int, int] | None = None,
) -> Winners:
    """The winners of the regions with borders in them, or of all; the last ones are kept.

    pair: the two classes whose border is needed, if no other is.
    """
    part._require("other classes", Wanted.classes(part._n_out, kind, level, pair))

    def compute() -> Winners:
        with torch.inference_mode():  # which makes small operations faster
            found = find_winners(part, smallest=kind == "argmin", level=level, whole=whole)
        return found.kept()

    return part._remembered(f"winners, whole={whole}", (kind, level), compute)


def knows_classes(part: PartitionData, level: float) -> bool:
    """Whether a partition was made for its decision boundary, or for everything."""
    own = part._wanted
    return own is None or (
        not part._is_partial and own.covers(Wanted.classes(part._n_out, "argmax", level))
    )


def check_kind(
    part: PartitionData, kind: Kind, level: float, *, single: bool = False
) -> tuple[int, float]:
    """The number of classes, if ``single`` without "pairwise", and the level, after checks."""
    n = part._n_out
    if kind not in get_args(Kind):
        raise ValueError(f"kind is {kind!r}; choose one of {', '.join(map(repr, get_args(Kind)))}")
    try:
        level = float(level)
    except (TypeError, ValueError, RuntimeError):
        hint = "part.level_set takes several"
        raise TypeError(f"level must be a number, not {level!r}; {hint}") from None
    if not math.isfinite(level):
        raise ValueError(f"level must be a finite number, not {level}")
    if n > 1 and level != 0:
        raise SplineCamError(
            f"level={level} is for models with one output; this one has {n}. "
            "Use part.level_set(level, output=...) for one of them."
        )
    if n == 1 and kind == "argmin":
        raise SplineCamError('The model has one output: kind="argmin" needs several.')
    if single and kind == "pairwise":
        raise SplineCamError('Classes are decided by kind="argmax" or "argmin", not "pairwise".')
    return max(n, 2), level


def pair_of(
    classes: tuple[int | str, int | str], n: int, names: tuple[str, ...] | None
) -> tuple[int, int]:
    """The numbers of two different classes, the lower one first."""
    known: Any = classes
    if isinstance(classes, tuple | list):
        known = [class_number(k, names, n) if isinstance(k, str) else k for k in classes]
    try:
        i, j = sorted(range(n)[operator.index(k)] for k in known)
    except (TypeError, ValueError):
        raise TypeError(f"classes must be a pair of whole numbers, not {classes!r}") from None
    except IndexError:
        raise IndexError(f"classes {tuple(classes)} of {n} classes, numbered from 0") from None
    if i == j:
        raise ValueError(f"classes {tuple(classes)} are one class: give two different ones")
    return i, j


def _pairwise(part: PartitionData, pair: tuple[int, int] | None) -> Boundary:
    """Where any two outputs are equal, or a given pair of them."""
    z, n = part._outputs, part._n_out
    low, high = torch.triu_indices(n, n, 1, device=z.device)
    if pair is not None:
        low, high = low.new_tensor(pair[:1]), low.new_tensor(pair[1:])
    each = part._value_error + EPS * z.abs().amax(0)
    error = each[low] + each[high]
    # Only pairs whose ranges overlap can tie.
    least, most = z.amin(0), z.amax(0)
    slack = SAFETY * error
    overlap = (least[low] <= most[high] + slack) & (least[high] <= most[low] + slack)
    low, high, error = low[overlap], high[overlap], error[overlap]
    level, wanted = torch.zeros_like(error), torch.ones_like(error, dtype=torch.bool)
    met = zero_sets(part.mesh, Functions(z, high, level, error, wanted, high, low))
    points, segments, kept = _segments(part, met.uv, met.ends)
    a, b, regions = low[met.column[kept]], high[met.column[kept]], met.faces[kept]
    sides = torch.where(met.signs[kept] > 0, b[:, None], a[:, None]).masked_fill(regions < 0, -1)
    unresolved = unresolved_places(part, met.ambiguities, "decision boundary")
    label = a * n + b
    found = Boundary(part, points, segments, regions, label, sides, n, "pairwise", unresolved)
    return replace(found, pair=pair)


def _segments(part: PartitionData, uv: Tensor, ends: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The points (P, 2) and segments (S, 2) of curves between local vertices, by ends (N, 2).

    Segments without length in plane coordinates are left out; the last result says which stay.
    """
    used, segments = torch.unique(ends, return_inverse=True)
    points = part._frame.to_plane(uv[used])
    short = lengths(points[segments[:, 1]] - points[segments[:, 0]]) == 0
    kept = (~short).nonzero()[:, 0]
    if kept.shape[0] < short.shape[0]:  # the ends of a short segment become one point
        cluster = components(points.shape[0], *segments[short].unbind(1))
        first = cluster.new_zeros(int(cluster.max()) + 1)
        first[cluster.flip(0)] = torch.arange(points.shape[0], device=cluster.device).flip(0)
        points, segments = points[first], cluster[segments[kept]]
    return points, segments, kept


def unresolved_places(
    part: PartitionData, ambiguities: list[Ambiguities], name: str
) -> tuple[Unresolved, ...]:
    """Ambiguities in plane coordinates, named after the question that met them."""
    return tuple(
        Unresolved((u, v), name, ambiguity.reason)
        for ambiguity in ambiguities
        for u, v in part._frame.to_plane(ambiguity.uv).tolist()
    )
