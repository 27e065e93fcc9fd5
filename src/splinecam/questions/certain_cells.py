"""Where conditions are certain although functions are known only within bounds.

Outputs have bounds if smooth functions were replaced. A limit is met or broken for certain where
this exceeds the bounds, weighted by the moduli of the coefficients.

A product of two affine functions is an affine function on a polygon, up to a bound that is
quadratic in its size: with f = a + df and g = b + dg, the product is a g + b f - a b + df dg, and

    df dg = ((s df + dg)^2 - (s df - dg)^2) / 4 s

lies between the largest moduli of both sums, which occur at corners. So polynomials of any degree
are enclosed from factor to factor. Polygons are halved until a line can take the place of the
curve on which the polynomial is zero; then they are cut along two lines, with the curve between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam._util.arrays import blocks_of, take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.errors import SplineCamError
from splinecam.files.properties import OutputCondition
from splinecam.geometry.convex import ConvexPolygons, divided, joined
from splinecam.questions.constraints import (
    INSIDE,
    OUTSIDE,
    UNDECIDED,
    Constraints,
    area_of,
    signs,
)
from splinecam.questions.exact_points import holds_nowhere
from splinecam.questions.partition_data import PartitionData

Measure = Callable[[ConvexPolygons], Tensor]
_MOST = 1 << 16  # polygons that are halved at once
_HALVINGS = 80

Parts = dict[int, list[ConvexPolygons]]


@dataclass(frozen=True, eq=False)
class CertainCells:
    """Where a condition is INSIDE or OUTSIDE for certain, or UNDECIDED, within bounds of functions.

    settled: (F,) the status of whole regions, UNDECIDED for the others; cells: the parts of those,
    by status, with their regions as sources.
    """

    partition: PartitionData
    settled: Tensor
    cells: dict[int, ConvexPolygons]

    def occurs(self, status: int) -> bool:
        """Whether a part of the domain has the status."""
        whole = status != UNDECIDED and bool((self.settled == status).any())
        return whole or len(self.cells[status]) > 0

    def area(self, status: int) -> float:
        """The area of the part of the domain that has the status."""
        area = float(self.cells[status].areas().sum())
        if status != UNDECIDED:
            area += area_of(self.partition.mesh, self.settled == status)
        return area * self.partition._frame.scale**2

    def having(self, status: int) -> ConvexPolygons:
        """All polygons that have the status, regions among them, without values."""
        cells = self.cells[status]
        if status == UNDECIDED:
            return cells
        whole = (self.settled == status).nonzero()[:, 0]
        none = self.partition._outputs[:, :0]
        return joined([ConvexPolygons.of_faces(self.partition.mesh, whole, none), cells])

    def widest(self, status: int, n: int) -> Tensor:
        """Points in the middle of the widest parts that have the status, at most n, (N, 2)."""
        cells = self.having(status)
        width = cells.areas() / cells.perimeters()
        best = cells.select(width.argsort(descending=True)[:n])
        total = best.uv.new_zeros((len(best), 2)).index_add_(0, best.owners, best.uv)
        return total / best.counts[:, None]


def certain_cells(part: PartitionData, condition: OutputCondition, allowed: float) -> CertainCells:
    """Where a condition is certain although functions are known only within bounds.

    allowed: the area that curves may leave undecided, or so. If the condition is certain nowhere,
    what is undecided is divided up to rounding.
    """
    enclosure = Enclosure.of(part, condition)
    status_of, values = enclosure.constraints.status, enclosure.at_vertices(part)
    every = torch.arange(len(part), device=values.device)
    settled, claims = torch.zeros_like(every), part._claims(condition)
    if claims is not None:
        settled = torch.where(part.complete, settled, claims.long())
    open_, found = (settled == UNDECIDED).nonzero()[:, 0], _Parts()
    allowed = allowed / part._frame.scale**2
    limit = max(1, backend_of(values.device).numbers // max(1, values.shape[1]))
    for first, last in blocks_of(take(part.mesh.counts(), open_), limit) if len(open_) else []:
        faces = open_[first:last]
        cells = enclosure.sloped(ConvexPolygons.of_faces(part.mesh, faces, values))
        settled[faces] = status = status_of(enclosure(cells).sides).long()
        _sort(found, enclosure, cells.select((status == UNDECIDED).nonzero()[:, 0]), allowed)
    if enclosure.factors is not None and not found[INSIDE] and not bool((settled > 0).any()):
        # What satisfies the condition may be smaller than what was left undecided.
        rest, found[UNDECIDED] = found[UNDECIDED], []
        if rest:
            _sort(found, enclosure, joined(rest), 0.0)
        if found[UNDECIDED] and holds_nowhere(part, condition, joined(found[UNDECIDED])):
            found[OUTSIDE] += found[UNDECIDED]
            found[UNDECIDED] = []
    none = ConvexPolygons.of_faces(part.mesh, every[:0], values)
    joint = {status: joined([none, *parts]) for status, parts in found.items()}
    bare = {status: replace(each, values=each.values[:, :0]) for status, each in joint.items()}
    return CertainCells(part, settled, bare)


def sorted_cells(
    enclosure: Enclosure, cells: ConvexPolygons, allowed: float, measure: Measure
) -> dict[int, ConvexPolygons]:
    """Parts of polygons by status; allowed: how much curves may leave undecided, or so."""
    found, none = _Parts(), cells.select(cells.source[:0])
    _sort(found, enclosure, cells, allowed, measure)
    if not found[INSIDE] and found[UNDECIDED]:
        rest, found[UNDECIDED] = joined(found[UNDECIDED]), []
        _sort(found, enclosure, rest, 0.0, measure)
    return {status: joined([none, *parts]) for status, parts in found.items()}


class _Parts(dict[int, list[ConvexPolygons]]):
    """Polygons by their status, without empty lists."""

    def __init__(self) -> None:
        super().__init__({status: [] for status in (INSIDE, OUTSIDE, UNDECIDED)})

    def add(self, status: int, cells: ConvexPolygons) -> None:
        if len(cells):
            self[status].append(cells)


def _sort(
    found: _Parts,
    enclosure: Enclosure,
    cells: ConvexPolygons,
    allowed: float,
    measure: Measure = ConvexPolygons.areas,
) -> None:
    """Divide polygons until curves leave no more than an allowed measure of them undecided.

    If that is zero, they are divided up to rounding, or until the condition holds somewhere.
    """
    ready = []
    for _ in range(_HALVINGS):
        near = enclosure(cells)
        status = enclosure.constraints.status(near.sides)
        for each in (INSIDE, OUTSIDE):
            found.add(each, cells.select((status == each).nonzero()[:, 0]))
        open_ = (status == UNDECIDED).nonzero()[:, 0]
        cells, weight = cells.select(open_), measure(cells)[open_] * near.blurred(open_)
        if float(weight.sum()) <= allowed or len(cells) > _MOST or (not allowed and found[INSIDE]):
            break
        coarse = weight > allowed / (2 * len(cells))
        ready.append(cells.select((~coarse).nonzero()[:, 0]))
        cells = _halved(cells.select(coarse.nonzero()[:, 0]))
    _cut(found, enclosure, joined([*ready, cells]))


def _cut(found: _Parts, enclosure: Enclosure, cells: ConvexPolygons) -> None:
    """Cut polygons along lines into parts that are inside, outside or between them."""
    near, constraints = enclosure(cells), enclosure.constraints
    rest = torch.cat([near.z, cells.values[:, near.z.shape[1] :]], 1)
    own = replace(cells, values=rest, source=torch.arange(len(cells), device=rest.device))
    alive = constraints.possible(near.sides).any(0).nonzero()[:, 0].tolist()
    certain, possible = (
        [constraints.claim(j, sign * near.slack) for j in alive] for sign in (-1, 1)
    )
    inside, other = divided(own, certain)
    undecided, outside = divided(other, possible, closed=True)
    for status, parts in ((INSIDE, inside), (UNDECIDED, undecided), (OUTSIDE, [outside])):
        for part in parts:
            found.add(status, replace(part, source=take(cells.source, part.source)))


def _halved(cells: ConvexPolygons) -> ConvexPolygons:
    """All polygons, each cut across its longest direction."""
    owner, count = cells.owners, cells.counts[:, None]
    middle = cells.uv.new_zeros(len(cells), 2).index_add_(0, owner, cells.uv) / count
    away = cells.uv - take(middle, owner)
    second = away.new_zeros(len(cells), 3).index_add_(
        0, owner, torch.stack([away[:, 0] ** 2, away[:, 1] ** 2, away.prod(1)], 1)
    )
    angle = torch.atan2(2 * second[:, 2], second[:, 0] - second[:, 1]) / 2
    along = torch.stack([angle.cos(), angle.sin()], 1)
    return joined([*cells.split((away * take(along, owner)).sum(1))])


@dataclass(frozen=True, eq=False)
class Enclosure:
    """How the functions of constraints become affine functions on polygons, with bounds.

    Polygons have values at corners: affine functions (K), and, if there are products, the linear
    parts of the constraints (K), and variables (W). constraints: the functions; bounds, errors: (F,
    K), (F, W) how far linear parts and variables are off in each region; variables: (W,) which ones
    they are, as in the condition; factors: (P, d) their numbers in each product, None if all is
    linear. slopes: (F, n D) of the regions, if they are asked for; places: (W, 3) the variables as
    functions of plane coordinates, without outputs and slopes.
    """

    constraints: Constraints
    bounds: Tensor
    errors: Tensor
    variables: Tensor
    factors: Tensor | None
    slopes: Tensor | None = None
    places: Tensor | None = None

    @classmethod
    def of(cls, part: PartitionData, condition: OutputCondition) -> Enclosure:
        """The enclosure of a condition on the outputs of a partition."""
        constraints, like = Constraints.of(part, condition), part._outputs
        smoothed = part.smoothing is not None
        region = part.region_bounds if smoothed else like.new_zeros(len(part), part._n_out)
        bounds = region @ constraints.A.abs().T + constraints.tolerance
        if condition.factors is None:
            return cls(constraints, bounds, region[:, :0], constraints.function[:0], None)
        used, factors = torch.unique(condition.factors.to(like.device), return_inverse=True)
        D, domain = part.domain.dim, part.domain
        inputs, outputs = ((used >= 0) & (used < D)).nonzero()[:, 0], (used < 0).nonzero()[:, 0]
        sloped = (used > D).nonzero()[:, 0]
        errors, places = like.new_zeros(len(part), len(used)), like.new_zeros(len(used), 3)
        places[used == D, 2] = 1.0
        rows = [*domain.basis.reshape(2, -1), domain.origin.reshape(-1)]
        places[inputs] = torch.stack([row.to(like)[used[inputs]] for row in rows], 1)
        reach = torch.cat([part.vertices.abs().amax(0), like.new_ones(1)])
        errors[:, inputs] = 4 * SAFETY * EPS * (places[inputs].abs() @ reach)
        rounding = SAFETY * part._value_error.to(like)
        errors[:, outputs] = (rounding + region)[:, ~used[outputs]]
        slopes = None
        if len(sloped):
            slopes, wrong = _slopes(part)
            errors[:, sloped] = wrong[:, used[sloped] - D - 1]
        return cls(constraints, bounds, errors, used, factors, slopes, places)

    def at_vertices(self, part: PartitionData) -> Tensor:
        """The values at the vertices of a partition, without slopes."""
        linear = self.constraints.at_vertices(part)
        return self.values(linear, part.vertices, part._outputs)

    def values(self, linear: Tensor, place: Tensor, y: Tensor) -> Tensor:
        """The values at points: linear parts (N, K), plane coordinates (N, 2), outputs (N, n)."""
        if self.factors is None or self.places is None:
            return linear
        known = torch.nn.functional.pad(place, (0, 1), value=1.0) @ self.places.T
        outputs = (self.variables < 0).nonzero()[:, 0]
        known[:, outputs] = y[:, ~self.variables[outputs]]
        return torch.cat([linear, linear, known], 1)

    def sloped(self, cells: ConvexPolygons) -> ConvexPolygons:
        """Polygons with the slopes of their regions among their values."""
        if self.slopes is None:
            return cells
        first = len(self.variables) - cells.values.shape[1]
        D, count = 2, self.slopes.shape[1]
        place = ((self.variables > D) & (self.variables <= D + count)).nonzero()[:, 0]
        values = cells.values.clone()
        own = take(self.slopes[:, self.variables[place] - D - 1], cells.source)
        values[:, place - first] = take(own, cells.owners)
        return replace(cells, values=values)

    def exact(self, cells: ConvexPolygons) -> Tensor:
        """The functions themselves at the corners of polygons, (N, K), without bounds."""
        Q, values = self.constraints.Q, cells.values
        if self.factors is None or Q is None:
            return values
        linear, variables = values[:, len(Q) : 2 * len(Q)], values[:, 2 * len(Q) :]
        return linear + variables[:, self.factors].prod(2) @ Q.T

    def __call__(self, cells: ConvexPolygons) -> Near:
        """The functions on polygons."""
        off, Q = take(self.bounds, cells.source), self.constraints.Q
        K, owner = off.shape[1], cells.owners
        if self.factors is None or Q is None:
            return Near(self.constraints, cells.values, off, off, *_range(cells.values, off, owner))
        z, variables = cells.values[:, K : 2 * K], cells.values[:, 2 * K :]
        error = take(self.errors, cells.source)
        error = error + _INTERPOLATED * _most(variables.abs(), error, owner)
        first, *others = ((variables[:, k], error[:, k], error[:, k]) for k in self.factors.T)
        for factor in others:
            first = _multiplied(first, factor, owner)
        product, slack, floor = first
        size = off + _most(product.abs(), slack, owner) @ Q.abs().T + _most(z.abs(), off, owner)
        off = off + (_INTERPOLATED + _ROUNDED * len(self.factors)) * size
        slack, floor = (off + each @ Q.abs().T for each in (slack, floor))
        z = z + product @ Q.T
        return Near(self.constraints, z, slack, floor, *_range(z, off, owner))


def _slopes(part: PartitionData) -> tuple[Tensor, Tensor]:
    """The slopes of all outputs by both inputs on each region, (F, n 2), and their errors."""
    if part.domain.dim != 2:
        raise SplineCamError(
            f"The derivatives of outputs are known for two inputs, and the network has "
            f"{part.domain.dim:,}: a flow would leave the plane."
        )
    maps, scale = part._known_maps, part._frame.scale
    inverse = torch.linalg.inv(part.domain.basis.reshape(2, 2).to(maps.weight))
    slopes = maps.weight @ inverse.T / scale
    error = SAFETY * maps.error / scale * inverse.abs().sum()
    error = error[:, None] + SAFETY * EPS * slopes.flatten(1).abs().amax(1, keepdim=True)
    return slopes.flatten(1), error.expand(-1, slopes[0].numel())


@dataclass(frozen=True, eq=False)
class Near:
    """Affine functions on polygons in the place of polynomials.

    z: (N, K) at corners; slack: (P, K) how far the polynomials are from them at most; floor: (P, K)
    the part of it that remains on smaller polygons; low, high: (P, K) the range of z.
    """

    constraints: Constraints
    z: Tensor
    slack: Tensor
    floor: Tensor
    low: Tensor
    high: Tensor

    @property
    def sides(self) -> Tensor:
        """Signs of the polynomials on polygons, (P, K), 0 if they are not certain."""
        return signs(self.low, self.high, self.slack)

    def blurred(self, chosen: Tensor) -> Tensor:
        """The share of polygons, by their numbers (Q,), that smaller ones would decide, (Q,)."""
        slack, width = self.slack[chosen], (self.high - self.low)[chosen]
        matters = self.constraints.relevant(self.sides[chosen]) & (slack > 4 * self.floor[chosen])
        share = torch.where(matters, (2 * slack / width).clamp(max=1.0), 0.0)
        return share.nan_to_num(1.0).amax(1) if share.shape[1] else slack.new_zeros(len(chosen))


_ROUNDED = 8 * SAFETY * EPS  # a product of two functions, relatively
_INTERPOLATED = 2 * _HALVINGS * EPS  # a value at a corner of a corner of ..., relatively

Form = tuple[Tensor, Tensor, Tensor]
"""Values (N, P) at corners, how far functions are from them, and how far on small polygons."""


def _multiplied(first: Form, second: Form, owner: Tensor) -> Form:
    """The products of functions, as the module describes it; owner: (N,) of each corner."""
    (f, off_f, floor_f), (g, off_g, floor_g) = first, second
    (low_f, high_f), (low_g, high_g) = _range(f, off_f, owner), _range(g, off_g, owner)
    a, half_f, b, half_g = low_f + high_f, high_f - low_f, low_g + high_g, high_g - low_g
    a, half_f, b, half_g = a / 2, half_f / 2, b / 2, half_g / 2
    df, dg = f - take(a, owner), g - take(b, owner)
    alike = (half_f > EPS * half_g) & (half_g > EPS * half_f)
    s = torch.where(alike, half_g / half_f, 0.0)
    stretched = take(s, owner) * df
    plus, minus = (_most(each.abs(), s, owner) ** 2 for each in (stretched + dg, stretched - dg))
    eighth = torch.where(alike, 1 / (8 * s), 0.0)
    half = torch.where(alike, (plus + minus) * eighth, half_f * half_g)
    middle = torch.where(alike, (plus - minus) * eighth, 0.0)
    most_f, most_g = a.abs() + half_f, b.abs() + half_g
    rounding = _ROUNDED * most_f * most_g
    off, floor = (
        most_f * e + most_g * d + d * e + rounding for d, e in ((off_f, off_g), (floor_f, floor_g))
    )
    return take(a, owner) * g + take(b, owner) * f - take(a * b - middle, owner), off + half, floor


def _range(values: Tensor, like: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
    """The least and largest values (N, m) at the corners of each polygon, as like (P, m)."""
    return -_most(-values, like, owner), _most(values, like, owner)


def _most(values: Tensor, like: Tensor, owner: Tensor) -> Tensor:
    """The largest values (N, m) at the corners of each polygon, as like (P, m)."""
    none = values.new_full((like.shape[0], values.shape[1]), -torch.inf)
    return none.scatter_reduce(0, owner[:, None].expand_as(values), values, "amax")
