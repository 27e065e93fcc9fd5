"""Where functions change sign: at vertices and along edges, and the new vertices there.

A vertex has two words per 64 functions: where they are positive, and where they are negative;
neither bit set means zero. Comparing two vertices for all functions is then a few AND/OR.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from splinecam._util.arrays import (
    Columns,
    counts_of,
    lengths,
    offsets_of,
    set_bits,
    sort_rows,
    take,
    take_each,
)
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS, SAFETY, UV_ERROR, cluster, touching
from splinecam.geometry.subdivision import InterpolatedVertices, Mesh
from splinecam.kernels.kernel import SignRange


@dataclass(frozen=True)
class Functions:
    """Columns ``z[:, unit] - level``, or ``z[:, unit] - z[:, other]``, (m,), to cut by."""

    z: Tensor  # (V, n) values at the vertices
    unit: Tensor
    level: Tensor
    error: Tensor
    wanted: Tensor  # which columns may change sign; others are only carried along
    label: Tensor  # the unit that edges along a zero set name
    other: Tensor | None = None
    slope_difference: Tensor | None = None  # of the result, if only its slope changes there
    known_signs: Signs | None = None

    @classmethod
    def crossing(
        cls,
        z: Tensor,
        levels: Tensor,
        error: Tensor,
        low: Tensor,
        high: Tensor,
        slope_differences: Tensor | None = None,
        signs: Signs | None = None,
    ) -> Functions:
        """The functions, of n units at K levels, that may change sign.

        levels, slope_differences: (K, n); error, low, high: (n,) rounding error and range of the
        units; signs: of all units, if they are known and all levels are zero.
        """
        differences = slope_differences
        if signs is not None:
            unit = torch.arange(z.shape[1], device=z.device)
            wanted = (low < -error) & (high > error)
            chosen = None if differences is None else differences[0]
            return cls(z, unit, levels[0], error, wanted, unit, None, chosen, signs)
        error = error + EPS * levels.abs()
        wanted = (low < levels - error) & (high > levels + error)
        # A whole layer is faster than a selection of more than an eighth of it.
        if levels.shape[0] == 1 and 8 * int(wanted.sum()) > wanted.shape[1]:
            unit = torch.arange(wanted.shape[1], device=z.device)
            chosen = None if differences is None else differences[0]
            return cls(z, unit, levels[0], error[0], wanted[0], unit, None, chosen)
        k, unit = wanted.nonzero(as_tuple=True)
        chosen = None if differences is None else differences[k, unit]
        level, error, wanted = levels[k, unit], error[k, unit], wanted[k, unit]
        return cls(z, unit, level, error, wanted, unit, None, chosen)

    @classmethod
    def differences(
        cls,
        z: Tensor,
        unit: Tensor,
        other: Tensor,
        label: Tensor,
        error: Tensor,
        low: Tensor,
        high: Tensor,
    ) -> Functions:
        """The differences of two units, (m,) each, that may change sign."""
        slack = error[unit] + error[other]
        wanted = (low[unit] < high[other] - slack) & (high[unit] > low[other] + slack)
        chosen = (wanted & (unit != other)).nonzero()[:, 0]
        unit, other, slack = unit[chosen], other[chosen], slack[chosen]
        zero, everything = torch.zeros_like(slack), torch.ones_like(slack, dtype=torch.bool)
        return cls(z, unit, zero, slack, everything, label[chosen], other)

    @property
    def m(self) -> int:
        return int(self.unit.shape[0])

    @property
    def whole(self) -> bool:
        """Whether the columns are known to be the units themselves."""
        return self.known_signs is not None

    def units(self, column: Tensor) -> Tensor:
        """The units of some columns, (N,)."""
        return column if self.whole else take(self.unit, column)

    def at(self, vertex: Tensor, column: Tensor) -> Tensor:
        """Values of single functions at single vertices, (N,)."""
        n, flat = self.z.shape[1], self.z.view(-1)
        if self.whole:
            return take(flat, torch.add(column, vertex, alpha=n))
        row = vertex * n
        value = take(flat, row + take(self.unit, column))
        if self.other is not None:
            return value - take(flat, row + take(self.other, column))
        return value - take(self.level, column)

    def signs(self) -> tuple[Signs, Tensor]:
        """The signs at all vertices, and the vertices (N,) with unclear values, taken for zeros."""
        signs = (self.known_signs or self._find()).only(self.wanted)
        if not signs.vanish:
            return signs, self.unit[:0]
        vertex, column = set_bits(signs.zero)
        # Too large for rounding, and too small to have a sign.
        unclear = self.at(vertex, column).abs() > take(self.error, column)
        return signs, torch.unique_consecutive(vertex[unclear])

    def _find(self) -> Signs:
        """Signs of all functions, a block of vertices at a time."""
        vertices, n = self.z.shape
        writer = SignWriter(vertices, SAFETY * self.error)
        everything = torch.equal(self.unit, torch.arange(n, device=self.unit.device))
        shifted = bool(self.level.any())
        step = max(1, backend_of(self.z.device).function_values // max(self.m, 1))
        for start in range(0, vertices, step):
            block = self.z[start : start + step]
            picked = block if everything else block[:, self.unit]
            if self.other is not None:
                picked = picked - block[:, self.other]
            writer.write(start, picked - self.level if shifted else picked)
        return writer.signs


# Multiplying eight 0/1 bytes by this gathers them into the top byte of the word.
_GATHER = 0x0102040810204080


@dataclass(frozen=True)
class Signs:
    """Signs as words."""

    positive: Tensor  # (V, W)
    negative: Tensor  # (V, W)
    wanted: Tensor  # (W,) words of the functions that count
    clear: bool = False  # whether it is known that nothing vanishes

    def only(self, wanted: Tensor) -> Signs:
        """The signs with only some functions, (m,) booleans; the others change nowhere."""
        if self.clear:
            return self
        mask = _pack(wanted[None])[0]
        return Signs(self.positive.bitwise_and_(mask), self.negative.bitwise_and_(mask), mask)

    def select(self, vertices: Tensor) -> Signs:
        """The signs at some of the vertices, (N,)."""
        return replace(self, positive=self.positive[vertices], negative=self.negative[vertices])

    @cached_property
    def zero(self) -> Tensor:
        """(V, W) words of where the functions vanish."""
        return (self.positive | self.negative).bitwise_xor_(self.wanted)

    @cached_property
    def vanish(self) -> bool:
        """Whether any function vanishes anywhere."""
        return not self.clear and bool(self.zero.any())

    def at(self, vertex: Tensor, column: Tensor) -> Tensor:
        """Sign -1, 0, +1 of single functions at single vertices, (N,)."""
        flat = vertex * self.positive.shape[1] + (column >> 6)
        bit = column & 63
        plus = (self.positive.view(-1)[flat] >> bit) & 1
        minus = (self.negative.view(-1)[flat] >> bit) & 1
        return plus - minus


def all_bits(m: int, device: torch.device) -> Tensor:
    """The words of m bits that are all set."""
    rest = [(1 << m % 64) - 1] if m % 64 else []
    return torch.tensor([-1] * (m // 64) + rest, dtype=torch.int64, device=device)


class SignWriter:
    """Decides the signs of m functions at V vertices, a block of vertices at a time."""

    def __init__(self, vertices: int, tolerance: Tensor) -> None:
        m, device = tolerance.shape[0], tolerance.device
        self.tolerance = tolerance
        everything = all_bits(m, device)
        words = everything.new_empty((2, vertices, everything.shape[0]))
        self.signs = Signs(words[0], words[1], everything)
        # Blocks share their working memory: on a CPU fresh memory costs more than the work.
        self._size = tolerance.new_empty((0, m))
        self._mask = torch.zeros((0, 64 * everything.shape[0]), dtype=torch.bool, device=device)

    def write(self, start: int, values: Tensor) -> None:
        """Decide the signs of values (B, m) at the vertices from ``start`` on."""
        rows = slice(start, start + values.shape[0])
        positive, negative = self.signs.positive[rows], self.signs.negative[rows]
        if not backend_of(values.device).asynchronous and self._clear(values, positive):
            torch.bitwise_not(positive, out=negative)
            return
        _pack(values > self.tolerance, positive)
        _pack(values < -self.tolerance, negative)

    def sign_range(self) -> SignRange:
        """The memory that the compiled kernel writes signs and ranges to."""
        return SignRange(self.tolerance, self.signs.positive, self.signs.negative)

    def _clear(self, values: Tensor, positive: Tensor) -> bool:
        """Find where values are positive, unless some are zero."""
        count, m = values.shape
        if self._size.shape[0] < count:
            self._size = values.new_empty(values.shape)
            self._mask = self._mask.new_zeros((count, self._mask.shape[1]))
        size, mask = self._size[:count], self._mask[:count]
        torch.abs(values, out=size)
        if bool((size.amin(0) <= self.tolerance).any()):
            return False
        # A conversion to booleans is several times faster than a comparison.
        mask[:, :m].copy_(torch.clamp(values, min=0, out=size))
        eight = mask.view(torch.int64)
        positive.view(torch.uint8).copy_(eight.mul_(_GATHER).bitwise_right_shift_(56))
        if m < mask.shape[1]:
            mask.zero_()  # the padding was multiplied as well
        return True


def _pack(mask: Tensor, out: Tensor | None = None) -> Tensor:
    """Booleans (B, m) to words (B, ceil(m / 64)), bit c % 64 of word c // 64."""
    rows, m = mask.shape
    words = -(-m // 64)
    if m % 64:
        mask = torch.nn.functional.pad(mask, (0, 64 * words - m))
    gathered = (mask.contiguous().view(torch.int64) * _GATHER).view(torch.uint8)
    if out is None:
        out = torch.empty((rows, words), dtype=torch.int64, device=mask.device)
    out.view(torch.uint8).copy_(gathered[:, 7::8])  # the top bytes
    return out


@dataclass
class VertexValues:
    """The values of n units at the vertices of a mesh that is being refined."""

    table: Tensor  # (V + W, n) at old vertices, and at new ones
    ends: Tensor  # (W, 2) the vertices between which new ones lie
    position_error: Tensor  # (W,) as a fraction of that line
    first: int  # V
    late: tuple[InterpolatedVertices, ...] = ()  # others, whose values are computed when needed

    @classmethod
    def of(cls, z: Tensor) -> VertexValues:
        """The values z (V, n) at the vertices of a mesh."""
        none = torch.zeros((0, 2), dtype=torch.int64, device=z.device)
        return cls(z.contiguous(), none, z[:0, 0], z.shape[0])

    def grow(self, interpolated: InterpolatedVertices, position_error: Tensor) -> None:
        """Compute and keep the values at new vertices, (W,)."""
        self.table = torch.cat([self.table, interpolated.interpolate(self.table)])
        self.ends = torch.cat([self.ends, torch.stack([interpolated.p, interpolated.q], 1)])
        self.position_error = torch.cat([self.position_error, position_error])

    def add_late(self, *levels: InterpolatedVertices) -> None:
        """Note how further vertices lie between older ones; those lie between themselves."""
        known = self.table.shape[0]
        total = known + sum(level.count for level in levels)
        index, zero = torch.arange(total, device=self.table.device), self.table.new_zeros(total)
        for level in levels:
            old, rest = index[:known], index[known + level.count :]
            p, q = (torch.cat([old, ends, rest]) for ends in (level.p, level.q))
            t = torch.cat([zero[:known], level.t, zero[known + level.count :]])
            self.late = (*self.late, InterpolatedVertices(p, q, t))
            known += level.count

    def at(self, vertex: Tensor, unit: Tensor, level: int | None = None) -> Tensor:
        """Values of units (N, R) at vertices (N,), (N, R); level: how many of ``late`` to use."""
        level = len(self.late) if level is None else level
        if not level:
            flat = torch.add(unit, vertex[:, None], alpha=self.table.shape[1])
            return take(self.table.view(-1), flat.view(-1)).view(unit.shape)
        interpolated = self.late[level - 1]
        ends = (take(end, vertex) for end in (interpolated.p, interpolated.q))
        p, q = (self.at(end, unit, level - 1) for end in ends)
        return torch.lerp(p, q, take(interpolated.t, vertex)[:, None])


@dataclass(frozen=True)
class UnitDifferences:
    """Columns to cut by: the difference of two units each, (m,), with its rounding error."""

    values: VertexValues
    first: Tensor
    second: Tensor
    error: Tensor

    @property
    def m(self) -> int:
        return int(self.first.shape[0])

    def at(self, vertex: Tensor, column: Tensor) -> Tensor:
        """Values of single differences at single vertices, (N,)."""
        units = torch.stack([take(self.first, column), take(self.second, column)], 1)
        first, second = self.values.at(vertex, units).unbind(1)
        return first - second

    def position_error(self, vertex: Tensor, column: Tensor) -> Tensor:
        """How far a difference may be off because a vertex may be off its place, (N,)."""
        values, off = self.values, self.error.new_zeros(vertex.shape)
        place = vertex - values.first
        new = ((place >= 0) & (place < values.ends.shape[0])).nonzero()[:, 0]
        ends, column = values.ends[place[new]], column[new]
        change = self.at(ends[:, 0], column) - self.at(ends[:, 1], column)
        off[new] = change.abs() * values.position_error[place[new]]
        return off


UNCLEAR = "a unit switches too close to a vertex to tell its side"
TWICE = "a unit crosses a region's border more than twice"


@dataclass(frozen=True)
class Ambiguities:
    """Places (N, 2) that rounding leaves undecided, and the reason."""

    uv: Tensor
    reason: str


@dataclass(frozen=True)
class EdgePoints(Columns):
    """New vertices on edges, (C,) each, ordered along each edge."""

    edge: Tensor  # the divided edge
    a: Tensor  # its end vertices
    b: Tensor
    t: Tensor  # the fraction of the edge
    error: Tensor  # how far rounding may shift it
    uv: Tensor  # (C, 2) the place

    @property
    def count(self) -> int:
        return int(self.t.shape[0])

    def interpolated(self) -> InterpolatedVertices:
        return InterpolatedVertices(self.a, self.b, self.t)


@dataclass(frozen=True)
class EdgeCrossings:
    """Places where functions change sign along edges, (N,) each, ordered along each edge."""

    edge: Tensor
    column: Tensor  # the function
    falling: Tensor  # whether the function falls from edges[e, 0] on
    t: Tensor  # the fraction of the edge
    change: Tensor  # by how much the function changes along the edge
    position_error: Tensor  # (N, 2) how far rounding may shift the place
    point: Tensor  # the new vertex; crossings that rounding cannot tell apart share one
    points: EdgePoints
    counts: Tensor  # (E,) how many new vertices each edge has
    ambiguities: list[Ambiguities]

    @property
    def distinct(self) -> bool:
        """Whether every crossing has a vertex of its own."""
        return self.points.edge.shape == self.edge.shape

    @cached_property
    def first(self) -> Tensor:
        """Where the new vertices of each edge begin, (E + 1,)."""
        return offsets_of(self.counts)

    def divide(self, mesh: Mesh, layer: int) -> Mesh:
        """The mesh with its edges divided; its faces still name whole edges."""
        made_by = mesh.vertex_layer.new_full(self.points.t.shape, layer)
        return mesh.divide(self.points.edge, self.points.uv, made_by)


def find_edge_crossings(
    mesh: Mesh, functions: Functions | UnitDifferences, edge: Tensor, column: Tensor
) -> EdgeCrossings:
    """The crossings of edges (N,), ascending, by functions (N,) that change sign along them."""
    a, b = take_each(mesh.edges.T, edge)
    value = functions.at(a, column)
    change = value - functions.at(b, column)
    order, _, t = sort_rows(edge, value / change, mesh.num_edges)
    column, change = take(column, order), take(change, order)
    falling, change = change > 0, change.abs()

    start, end = take(mesh.uv, a), take(mesh.uv, b)
    length = lengths(end - start)
    shift = take(functions.error, column) / change
    uv = torch.lerp(start, end, t[:, None])
    points = EdgePoints(edge, a, b, t, shift + UV_ERROR / length, uv)
    at_end = torch.minimum(t, 1 - t) * length <= UV_ERROR
    point, points, ambiguities = _united(points, at_end)
    return EdgeCrossings(
        edge=edge,
        column=column,
        falling=falling,
        t=t,
        change=change,
        position_error=(end - start) * shift[:, None],
        point=point,
        points=points,
        counts=counts_of(points.edge, mesh.num_edges),
        ambiguities=ambiguities,
    )


def _united(points: EdgePoints, at_end: Tensor) -> tuple[Tensor, EdgePoints, list[Ambiguities]]:
    """Unite points that rounding cannot tell apart: the new number of each, and the points."""
    point, ambiguities = torch.arange(points.count, device=points.edge.device), []
    touch = touching(points.edge, points.t, points.error)
    close, ended = torch.stack([touch.any(), at_end.any()]).tolist()  # one transfer from a GPU
    if close:
        point, best, ambiguous = cluster(points.edge, points.t, points.error)
        if bool(ambiguous.any()):
            chosen = torch.cat([ambiguous.nonzero()[:, 0], best[point[ambiguous]]])
            reason = "crossings of an edge too close to tell apart"
            ambiguities.append(Ambiguities(points.uv[chosen], reason))
        points, at_end = points.select(best), take(at_end, best)
    if ended and bool(at_end.any()):
        ambiguities.append(Ambiguities(points.uv[at_end], "a crossing too close to an edge's end"))
    return point, points, ambiguities
