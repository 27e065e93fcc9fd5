"""Constraints on outputs, and the cells of regions on which they hold.

A row ``A y + C x <= b`` is about the sign of a function, which equal and opposite rows share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import take
from splinecam._util.options import as_float64
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.arrangement.crossings import Functions
from splinecam.arrangement.refine import Refinement, refine, unrefined
from splinecam.arrangement.zero_sets import Overlay, overlay
from splinecam.errors import SplineCamError
from splinecam.files.formulas import Formula
from splinecam.files.properties import Conjunction, OutputCondition, Property
from splinecam.geometry.convex import Claim, ConvexPolygons, cross
from splinecam.geometry.subdivision import Mesh
from splinecam.questions.partition_data import PartitionData

OUTSIDE, UNDECIDED, INSIDE = -1, 0, 1

_BLOCK = 1 << 22  # numbers in a block


def condition_of(A: Any, b: Any, inputs: int, outputs: int) -> OutputCondition:
    """The condition that arguments ``A, b`` of ``part.preimage`` describe."""
    if isinstance(A, Formula) and b is None:
        return A.condition(inputs, outputs)
    if isinstance(A, Property):
        raise TypeError("a Property has boxes of inputs, too: use part.check, or its .condition")
    if b is not None and isinstance(A, OutputCondition | Conjunction):
        raise TypeError("a condition has its own limits: leave out b")
    if isinstance(A, OutputCondition):
        return A
    if b is not None or isinstance(A, Conjunction):
        return disjunction([A if b is None else _conjunction(A, b)])
    try:
        pairs = [x if isinstance(x, Conjunction) else _conjunction(*x) for x in A]
    except (TypeError, ValueError):
        raise TypeError(
            "give A and b, a condition such as sc.output(0) <= 3, or a list of pairs (A, b) of "
            "which one must hold"
        ) from None
    if not pairs:
        raise ValueError("the list of pairs (A, b) is empty")
    return disjunction(pairs)


def _conjunction(rows: Any, limits: Any) -> Conjunction:
    A, b = as_float64(rows, "A"), as_float64(limits, "b")
    A = A[None] if A.dim() == 1 else A
    if A.dim() != 2:
        shape = tuple(A.shape)
        raise SplineCamError(f"A has shape {shape}; give (m, n_out), a row for each limit.")
    b = b.reshape(1).expand(A.shape[0]) if b.numel() == 1 else b.reshape(-1)
    if b.shape[0] != A.shape[0]:
        raise SplineCamError(f"A has {A.shape[0]} rows, but b has {b.shape[0]} limits.")
    return Conjunction(A, b, torch.zeros(b.shape, dtype=torch.bool), None)


def disjunction(parts: Sequence[Conjunction]) -> OutputCondition:
    """The condition that one of several conjunctions holds."""
    start = torch.tensor([0, *(len(part.b) for part in parts)]).cumsum(0)
    Q, factors = _products(parts)
    size = next((part.C.shape[1] for part in parts if part.C is not None), None)
    C = None
    if size is not None:  # other parts have no coefficients of inputs
        rows = (part.A.new_zeros(len(part.b), size) if part.C is None else part.C for part in parts)
        C = torch.cat(list(rows)).cpu()
    A, b, strict = (
        torch.cat(each).cpu() for each in zip(*((p.A, p.b, p.strict) for p in parts), strict=True)
    )
    return OutputCondition(A, b, strict, C, start, Q, factors)


def _products(parts: Sequence[Conjunction]) -> tuple[Tensor | None, Tensor | None]:
    """The products of variables of several conjunctions, in one list for all."""
    known = next((part.factors for part in parts if part.factors is not None), None)
    if known is None:
        return None, None
    if any(part.factors is not None and part.factors is not known for part in parts):
        raise SplineCamError("Conjunctions with products of variables have to share `factors`.")
    rows = [p.A.new_zeros(len(p.b), len(known)) if p.Q is None else p.Q for p in parts]
    return torch.cat(rows).cpu(), known.cpu()


def require_sizes(condition: OutputCondition, inputs: int, outputs: int) -> None:
    """Raise an error unless a condition fits the numbers of inputs and outputs."""
    for rows, size, kind in ((condition.A, outputs, "outputs"), (condition.C, inputs, "inputs")):
        if rows is not None and rows.shape[1] != size:
            raise SplineCamError(
                f"The condition is about {rows.shape[1]} {kind}; the network has {size}."
            )
    if condition.factors is None:
        return
    most = inputs + outputs * inputs if condition.about_slopes else inputs
    within = (condition.factors <= most) & (condition.factors >= -outputs)
    if condition.C is None or not bool(within.all()):
        raise SplineCamError(
            "The condition has products of variables beyond the inputs and outputs, or lacks C."
        )


def margins(condition: OutputCondition, x: Tensor, y: Tensor, errors: Tensor) -> Tensor:
    """By how much a condition holds at points beyond rounding, negative if it does not, (N,).

    x: (N, D) inputs; y: (N, n) outputs; errors: (N, n) or (n,), of the outputs.
    """
    A, b = condition.A.to(y), condition.b.to(y)
    C = A.new_zeros(len(b), x.shape[1]) if condition.C is None else condition.C.to(y)
    size = y.abs() @ A.abs().T + x.abs() @ C.abs().T + b.abs()
    rounding = errors @ A.abs().T + EPS * (A.shape[1] + C.shape[1] + 4) * size.amax(0)
    over = y @ A.T + x @ C.T - b
    if condition.Q is not None:
        Q = condition.Q.to(y)
        value, wrong = _multiplied(
            condition.products(x, y), condition.products(0 * x, errors + y - y)
        )
        over += value @ Q.T
        rounding = rounding + wrong @ Q.abs().T + EPS * (Q.shape[1] + 2) * (value.abs() @ Q.abs().T)
    over += SAFETY * rounding
    member = torch.repeat_interleave(condition.start.diff()).to(y.device).expand_as(over)
    none = y.new_full((len(y), len(condition)), -torch.inf)
    return -none.scatter_reduce(1, member, over, "amax").amin(1)


def _multiplied(x: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """The products of factors x (N, P, d) that are off by errors, (N, P), and their errors."""
    value, wrong = torch.ones_like(x[..., 0]), torch.zeros_like(x[..., 0])
    for factor, off in zip(x.unbind(2), error.unbind(2), strict=True):
        wrong = wrong * (factor.abs() + off) + value.abs() * off + EPS * (value * factor).abs()
        value = value * factor
    return value, wrong


@dataclass(frozen=True, eq=False)
class Constraints:
    """The K different functions of the m rows of k conjunctions.

    A function is ``A y + slope uv + offset``, with A: (K, n_out), slope: (K, 2), offset: (K,), and
    error: (K,) its rounding error at vertices. Q: (K, P) are the coefficients of products of
    variables, which come to it; None if all is linear. A row of a conjunction demands that ``sign *
    function <= 0``, or ``< 0`` if it is strict: (m,) each. count: k.
    """

    A: Tensor
    slope: Tensor
    offset: Tensor
    error: Tensor
    function: Tensor
    sign: Tensor
    strict: Tensor
    conjunction: Tensor
    count: int
    Q: Tensor | None = None

    @classmethod
    def of(cls, part: PartitionData, condition: OutputCondition) -> Constraints:
        """The constraints of a condition on the outputs of a partition."""
        n, D = part._n_out, part.domain.dim
        require_sizes(condition, D, n)
        C = condition.A.new_zeros(len(condition.b), D) if condition.C is None else condition.C
        Q = C[:, :0] if condition.Q is None else condition.Q
        rows = torch.cat([condition.A, C, Q, condition.b[:, None]], 1)
        if not bool(rows.isfinite().all()):
            raise SplineCamError("The condition has coefficients or limits that are not finite.")
        member = torch.repeat_interleave(torch.arange(len(condition)), condition.start.diff())
        # Rows without coefficients are true or false on their own.
        bare = ~rows[:, :-1].ne(0).any(1)
        false = bare & torch.where(condition.strict, condition.b <= 0, condition.b < 0)
        dead = torch.zeros(len(condition), dtype=torch.bool)
        dead[member[false]] = True
        first = rows[:, :-1].gather(1, rows[:, :-1].ne(0).int().argmax(1, keepdim=True))
        sign = first[:, 0].sign()
        unique, function = torch.unique(rows * sign[:, None] + 0.0, dim=0, return_inverse=True)
        dead[_contradictory(member, function, sign, condition.strict & ~bare)] = True
        kept = ~bare & ~dead[member]
        used, function = torch.unique(function[kept], return_inverse=True)
        A, C, Q, b = unique[used].to(part._outputs).split([n, D, Q.shape[1], 1], 1)
        functions = _in_plane(part, A, C, b)
        member = (torch.cumsum(~dead, 0) - 1)[member[kept]]
        columns = (function, sign[kept], condition.strict[kept], member)
        function, sign, strict, member = (x.to(part.mesh.uv.device) for x in columns)
        products = None if condition.Q is None else Q
        return cls(*functions, function, sign, strict, member, int((~dead).sum()), products)

    @property
    def tolerance(self) -> Tensor:
        """Values of functions up to which they count as zero, (K,)."""
        return SAFETY * self.error

    def at_vertices(self, part: PartitionData) -> Tensor:
        """The functions at the vertices of the partition, (V, K)."""
        return part._outputs @ self.A.T + part.vertices @ self.slope.T + self.offset

    def within(self, z: Tensor) -> Constraints:
        """Without conjunctions that nothing satisfies, from functions z (V, K) at all vertices."""
        low, high = z.amin(0), z.amax(0)
        least = torch.where(self.sign > 0, low[self.function], -high[self.function])
        dead = torch.zeros(self.count, dtype=torch.bool, device=z.device)
        dead[self.conjunction[least > self.tolerance[self.function]]] = True
        if not bool(dead.any()):
            return self
        kept = (~dead[self.conjunction]).nonzero()[:, 0]
        member = (torch.cumsum(~dead, 0) - 1)[self.conjunction[kept]]
        used, function = torch.unique(self.function[kept], return_inverse=True)
        functions = self.A[used], self.slope[used], self.offset[used], self.error[used]
        rows = function, self.sign[kept], self.strict[kept], member
        return Constraints(*functions, *rows, int((~dead).sum()))

    def claim(self, conjunction: int, slack: Tensor) -> Claim:
        """That a conjunction holds, though its functions are off by a slack (F, K)."""
        rows = (self.conjunction == conjunction).nonzero()[:, 0]
        function, sign = self.function[rows], self.sign[rows]

        def demands(some: ConvexPolygons, columns: slice) -> Tensor:
            chosen = function[columns]
            near = take(slack[some.source[:, None], chosen], some.owners)
            return near - sign[columns] * some.values[:, chosen]

        return demands

    def sides(self, mesh: Mesh, z: Tensor, *, divided: bool) -> Tensor:
        """Signs of functions z (V, K) on faces, (F, K); 0 within rounding, or if they cut one."""
        step, found = max(1, _BLOCK // max(1, mesh.corners.shape[0])), []
        blocks = zip(torch.split(z, step, 1), torch.split(self.tolerance, step), strict=True)
        for values, limit in blocks:
            low, high = mesh.ranges(values)
            if divided:  # what is beyond zero on the other side is rounding
                low = high = torch.where(high > -low, high, low)
            found.append(signs(low, high, limit))
        return torch.cat(found, 1)

    def status(self, sides: Tensor) -> Tensor:
        """INSIDE, OUTSIDE or UNDECIDED for each row of sides (N, K), (N,)."""

        def judge(demanded: Tensor) -> Tensor:
            inside = (self._count(demanded >= 0) == 0).any(1)
            outside = (self._count(demanded > 0) > 0).all(1)
            return inside.to(torch.int8) - (outside & ~inside).to(torch.int8)

        return self._in_blocks(sides, judge)

    def possible(self, sides: Tensor) -> Tensor:
        """Which conjunctions may hold for each row of sides (N, K), (N, k)."""
        return self._in_blocks(sides, lambda demanded: self._count(demanded > 0) == 0)

    def relevant(self, sides: Tensor) -> Tensor:
        """The functions on which it depends whether a conjunction holds that may, (N, K)."""

        def judge(demanded: Tensor) -> Tensor:
            alive = (self._count(demanded > 0) == 0)[:, self.conjunction]
            found = torch.zeros((len(demanded), sides.shape[1]), dtype=torch.int32)
            return found.to(alive.device).index_add(1, self.function, alive.int()) > 0

        return self._in_blocks(sides, judge) & (sides == 0)

    def holds(self, sides: Tensor) -> Tensor:
        """Which conjunctions hold for each row of sides (N, K) if 0 stands for zero, (N, k)."""

        def judge(demanded: Tensor) -> Tensor:
            broken = torch.where(self.strict, demanded >= 0, demanded > 0)
            return self._count(broken) == 0

        return self._in_blocks(sides, judge)

    def point_sides(self, z: Tensor) -> Tensor:
        """Signs of functions z (N, K) at points, 0 within rounding."""
        return signs(z, z, self.tolerance)

    def _in_blocks(self, sides: Tensor, judge: Callable[[Tensor], Tensor]) -> Tensor:
        """A judgement of which rows hold (-1) and which do not (1), (N, m), in blocks."""
        sign = self.sign.to(torch.int8)
        rows = max(1, _BLOCK // max(1, len(self.function), self.count))
        blocks = torch.split(sides, rows)  # at least one
        return torch.cat([judge(block[:, self.function] * sign) for block in blocks])

    def _count(self, rows: Tensor) -> Tensor:
        """How many of the rows of each conjunction a mask (N, m) chooses, (N, k)."""
        none = rows.new_zeros((rows.shape[0], self.count), dtype=torch.int32)
        return none.index_add(1, self.conjunction, rows.to(torch.int32))


def _contradictory(member: Tensor, function: Tensor, sign: Tensor, strict: Tensor) -> Tensor:
    """The conjunctions that demand of one function both signs, and that it is not zero."""
    pairs, place = torch.unique(torch.stack([member, function], 1), dim=0, return_inverse=True)
    demands = torch.stack([sign > 0, sign < 0, strict], 1).long()
    count = demands.new_zeros(len(pairs), 3).index_add_(0, place, demands)
    found: Tensor = pairs[(count > 0).all(1), 0]
    return found


def _in_plane(
    part: PartitionData, A: Tensor, C: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Functions ``A y + C x - b`` as A, slopes by plane coordinates, offsets, and their errors."""
    domain, like, b = part.domain, part._outputs, b[:, 0]
    origin, basis = domain.origin.reshape(-1).to(like), domain.basis.reshape(2, -1).to(like)
    reach = part.vertices.abs().amax(0)
    terms = A.ne(0).sum(1) + C.ne(0).sum(1) + 4
    size = A.abs() @ like.abs().amax(0) + b.abs() + C.abs() @ (basis.abs().T @ reach)
    size = size + C.abs() @ origin.abs()
    error = A.abs() @ part._value_error.to(like) + EPS * terms * size
    return A, C @ basis.T, C @ origin - b, error


def signs(low: Tensor, high: Tensor, limit: Tensor) -> Tensor:
    """1 for functions that are above a limit, -1 below its opposite, and 0 between or on both."""
    return (low > limit).to(torch.int8) - (high < -limit).to(torch.int8)


_FEW = 1 << 12  # faces whose areas are computed one by one, which rounds less if they are tiny


@dataclass(frozen=True, eq=False)
class PreimageCells:
    """Convex cells on which a condition holds everywhere, nowhere, or to within rounding.

    overlay: the cells, with the functions of ``constraints`` at its vertices; status: (C,) of each
    cell; member: (C,) whether a cell belongs to the preimage if functions that vanish to within
    rounding are zero; settled: (F,) the status of regions that the overlay leaves out; known:
    (V, 1) the vertices at which the functions are those of the network.
    """

    constraints: Constraints
    overlay: Overlay
    status: Tensor
    member: Tensor
    settled: Tensor
    known: Tensor

    @property
    def mesh(self) -> Mesh:
        return self.overlay.mesh

    def touches(self) -> bool:
        """Whether the condition holds anywhere, to within rounding."""
        if bool((self.settled == INSIDE).any()):
            return True
        status = self.constraints.status(self.constraints.point_sides(self.overlay.z))
        return bool((status != OUTSIDE).any())

    def thin(self) -> tuple[Tensor, Tensor]:
        """Edges (N,) and vertices (M,) on which the condition holds without an area beside them."""
        mesh = self.mesh
        holds = self.constraints.holds(self.constraints.point_sides(self.overlay.z)) & self.known
        somewhere = holds.any(1)
        beside = mesh.halfedge_face().view(-1, 2)
        at_area = ((beside >= 0) & self.member[beside.clamp(min=0)]).any(1)
        a, b = mesh.edges.unbind(1)
        maybe = (somewhere[a] & somewhere[b] & ~at_area).nonzero()[:, 0]
        edge = maybe[(holds[a[maybe]] & holds[b[maybe]]).any(1)]
        somewhere[mesh.edges[edge].view(-1)] = False
        somewhere[mesh.edges[at_area].view(-1)] = False
        return edge, somewhere.nonzero()[:, 0]


def preimage_cells(
    part: PartitionData, condition: OutputCondition, *, whole: bool
) -> PreimageCells:
    """The cells of the regions in which a condition changes, or of all if ``whole``."""
    if condition.Q is not None:
        raise SplineCamError(
            "The condition has products of variables, so that its border is curved and known "
            "within bounds only: see .area, .undecided_area, .cover, .band, .witnesses and .plot."
        )
    constraints = Constraints.of(part, condition)
    z = constraints.at_vertices(part)
    live = constraints.within(z)
    if live is not constraints:
        constraints, z = live, live.at_vertices(part)
    settled = constraints.status(constraints.sides(part.mesh, z, divided=False))
    claims = part._claims(condition)
    if claims is not None:
        settled = torch.where(part.complete, settled, claims)
    faces = None if whole else (settled == UNDECIDED).nonzero()[:, 0]
    settled = torch.zeros_like(settled) if whole else settled
    error = constraints.error
    wanted = (z.amin(0) < -error) & (z.amax(0) > error)

    def cut(mesh: Mesh, values: Tensor, layer: int) -> Refinement:
        unit = torch.arange(values.shape[1], device=values.device)
        zero = torch.zeros_like(error)
        if not mesh.num_faces:
            return unrefined(mesh, [])
        return refine(mesh, Functions(values, unit, zero, error, wanted, unit), layer)

    found = overlay(part.mesh, z, cut, faces)
    sides = constraints.sides(found.mesh, found.z, divided=True)
    status, member = constraints.status(sides), constraints.holds(sides).any(1)
    known = torch.ones_like(found.z[:, :1], dtype=torch.bool)
    if claims is not None:  # inside of settled regions, functions are not the network's
        own, complete = claims[found.face], part.complete[found.face]
        status, member = torch.where(complete, status, own), torch.where(complete, member, own > 0)
        known.zero_()[found.mesh.corner_vertices()[complete[found.mesh.owners()]]] = True
    return PreimageCells(constraints, found, status, member, settled, known)


def area_of(mesh: Mesh, chosen: Tensor) -> float:
    """The area of the faces that a mask (F,) chooses; of many, it follows from their border."""
    number = int(chosen.sum())
    if not number:
        return 0.0
    if number <= _FEW:
        return float(mesh.select(chosen.nonzero()[:, 0])[0].areas_and_centroids()[0].sum())
    beside = mesh.halfedge_face().view(-1, 2)
    left, right = ((beside[:, k] >= 0) & chosen[beside[:, k].clamp(min=0)] for k in (0, 1))
    edge = (left != right).nonzero()[:, 0]
    p, q = mesh.uv[mesh.edges[edge]].unbind(1)
    turned = cross(p, q)
    return float(torch.where(left[edge], turned, -turned).sum()) / 2
