"""How far a network is from the piecewise-linear function of a mesh, on every face of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows, take
from splinecam._util.backend import backend_of
from splinecam.errors import LimitError
from splinecam.geometry.domain import Domain, Frame
from splinecam.geometry.subdivision import Mesh
from splinecam.network.program import Program
from splinecam.smooth.following import follow
from splinecam.smooth.grid import CellBounds, SmoothCells
from splinecam.smooth.layer_bounds import UPWARDS, Boxes, Followed
from splinecam.smooth.refinement import extremes, on_vectors, squared_radii

_UNITS = 8  # a network of so many costs at three points about as much as a look at bounds
_FEW, _DIVIDED = 1 << 10, 32.0  # so few triangles are divided where bounds exceed goals by less
_FACES, _FINEST = 4, 256  # faces of a cell, and cells along the domain's longer side
_FLAT, _TINY = 2.0**-20, 2.0**-1000
_VISIBLE = 2.0**-8  # of a bound: what along a side of a triangle is worth dividing it
_NEAR = 2.0**-12  # of a side: how far from a corner slopes are taken


class Close(NamedTuple):
    """Bounds on a network in N triangles, given its differences from planes at the corners.

    bend: (2, N, n) by how much differences may be above the largest at the corners, and below the
    least; gap: (2, N, n) how much of that need not be so; branch: (N, n) how far it is from a
    smooth function; sides: (N, 3) how long the sides after each corner are. The longest are to be
    divided: sides count by how much second derivatives along them vary, or by what is gained at
    kinks.
    """

    bend: Tensor
    gap: Tensor
    branch: Tensor
    sides: Tensor


@dataclass(frozen=True)
class Inside:
    """Bounds on a network in polygons with corners (N, k, 2).

    The first, (2, N, n), say by how much its difference from any plane may be above the largest
    difference at the corners, and below the least. The second, (N, n), say how far it is from a
    smooth function.

    cells: bounds on the cells of a grid, if all layers are smooth. In a network with kinks each
    polygon is looked at by itself: where kinks cross it, it has the pieces of its centre, and
    values at the corners tell how far the network is beyond these.
    """

    real: Program
    domain: Domain
    cells: CellBounds | None = None

    def __call__(self, corners: Tensor) -> tuple[Tensor, Tensor]:
        if self.cells is None:
            return self._by_circles(corners)
        boxes = torch.cat(extremes(corners), 1)
        *curvatures, branch = self.cells.largest(boxes).unbind(1)
        bend = torch.stack(curvatures) * (squared_radii(corners)[:, None] / 2)
        some = (~torch.isfinite(bend).all(0).all(1)).nonzero()[:, 0]
        if len(some):
            bend[:, some], branch[some] = self._by_circles(corners[some])
        return bend, branch

    def _by_circles(self, corners: Tensor) -> tuple[Tensor, Tensor]:
        """The same of polygons that are all looked at by themselves."""
        found = self._followed(corners, False)
        bend = found.curvatures * found.along(squared_radii(corners) / 2) + found.spread
        return as_rows(bend, 2), as_rows(found.rounding)

    def finer(self, faces: int) -> Inside:
        """The same with cells that suit so many faces."""
        if self.cells is None or faces < _FACES * len(self.cells.grid.kept):
            return self
        resolution = self.cells.grid.resolution
        while resolution < _FINEST and (2 * resolution) ** 2 * _FACES < faces:
            resolution *= 2
        grid = SmoothCells.of(self.domain, resolution, self.real.device)
        found = follow(self.real, self.domain, grid.boxes)
        return replace(self, cells=CellBounds.of(grid, found))

    def closely(self, corners: Tensor, errors: Tensor, goal: Tensor) -> Close:
        """Bounds in triangles with differences (N, 3, n) at their corners.

        They are looked at closely where that is needed for goals (2, N, n).
        """
        if self.cells is None:
            return self._alone(corners, errors, goal)
        boxes = torch.cat(extremes(corners), 1)
        *forms, rounding = torch.split(self.cells.forms_on(boxes).movedim(1, 0), [3, 3, 1, 1])
        bend, gap, varies = _by_forms(corners, errors, *forms)
        found = Close(bend, gap, rounding[0], _sides(varies, gap, goal)[0])
        costly = 1 + sum(self.real.widths) / _UNITS
        if len(corners) <= _FEW:
            costly = max(costly, _DIVIDED)
        some = (~(bend <= costly * goal).all(0).all(1)).nonzero()[:, 0]
        if len(some):
            close = self._alone(corners[some], errors[some], goal[:, some])
            known, certain = bend[:, some], gap[:, some]
            worse = close.bend >= known
            bend[:, some] = torch.where(worse, known, close.bend)
            gap[:, some] = torch.where(worse, certain, close.gap)
            rounding[0, some] = torch.fmin(rounding[0, some], close.branch)
            found.sides[some] = close.sides
        return found

    def _alone(self, corners: Tensor, errors: Tensor, goal: Tensor) -> Close:
        """The same of triangles that are all looked at by themselves."""
        known = self._followed(corners, True)
        spread = as_rows(known.spread)
        forms = as_rows(known.seconds, 2), as_rows(known.variation, 2), spread
        bend, gap, varies = _by_forms(corners, errors, *forms)
        sides, worst = _sides(varies, gap, goal)
        entry = torch.arange(len(worst), device=worst.device), worst
        most = gap.amax(0)[entry]
        crossed = 4 * spread[entry] > most
        some = (crossed & (bend > goal).any(0).any(1)).nonzero()[:, 0]
        if len(some):
            sides[some] = self._across_kinks(corners[some], most[some], worst[some])
        return Close(bend, gap, as_rows(known.rounding), sides)

    def _followed(self, corners: Tensor, closely: bool) -> Followed:
        return follow(self.real, self.domain, Boxes.around(corners), corners, closely)

    def _across_kinks(self, corners: Tensor, bend: Tensor, worst: Tensor) -> Tensor:
        """How much gradients of an output, by its number (N,), differ along each side, (N, 3).

        A kink between two corners is seen wherever it is, and counts in each side by how far that
        goes across it. So of a flat triangle the longest side counts most, as it must: parts that
        have all of it are no better. Where there is little to see, long sides count more.
        """
        ahead = corners.roll(-1, 1) - corners
        behind = ahead.roll(1, 1)
        points = torch.cat([corners, corners + _NEAR * ahead, corners - _NEAR * behind], 1)
        values = outputs_at(self.real, self.domain, points.view(-1, 2)).view(len(corners), 9, -1)
        z = values.gather(2, worst[:, None, None].expand(-1, 9, 1))[:, :, 0]
        after, before = (z[:, 3:6] - z[:, :3]) / _NEAR, (z[:, :3] - z[:, 6:]) / _NEAR
        # At each corner along the side after it, the opposite one, and the one before it.
        slopes = torch.stack([after, -after - before, before], 2)
        slopes = torch.stack([slopes[:, k].roll(k, 1) for k in range(3)], 1)
        jumps = slopes.amax(1) - slopes.amin(1)
        length = ahead.square().sum(2)
        return jumps + _VISIBLE * bend[:, None] * length / length.amax(1, keepdim=True)


def _by_forms(
    corners: Tensor, errors: Tensor, seconds: Tensor, variation: Tensor, spread: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """``bend`` and ``gap`` in triangles, and how much second derivatives vary along their sides.

    seconds, variation, spread: as in ``Followed``. The last result is (3, N, n). Where second
    derivatives are at least H, a function is at most the quadratic one with these derivatives and
    the same numbers at the corners: their difference is convex.
    """
    ends, at = torch.stack(errors.unbind(1)), torch.stack(corners.unbind(1))
    along = at.roll(-1, 0).sub_(at)
    varies, second = (on_vectors(form, along) for form in (variation, seconds))
    bent = torch.stack([varies - second, varies + second], 1)
    bend = _peaks(torch.stack([ends, -ends], 1), bent).mul_(UPWARDS).add_(spread)
    return bend, torch.minimum(bend, reduce(torch.maximum, varies) / 3 + 2 * spread), varies


def _sides(varies: Tensor, gap: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
    """``Close.sides`` by the output that is furthest from its goal, and the number of it, (N,)."""
    worst = (gap / goal).amax(0).argmax(1)
    return varies.gather(2, worst[:, None].expand(3, -1, 1))[:, :, 0].T.contiguous(), worst


def _peaks(errors: Tensor, bent: Tensor) -> Tensor:
    """By how much quadratic functions on triangles exceed their largest numbers at corners.

    errors: (3, ...) these numbers; bent: (3, ...) second derivatives downwards along the sides
    after each corner. With shares x, y, z of the corners, the function is the sum of their numbers
    and of half of the derivatives, each times the shares of both ends. It is largest where all of
    its derivatives are zero, or on a side.
    """
    e, f, g = errors.unbind(0)
    ahead, high = torch.stack([f, g, e]), torch.maximum(torch.maximum(e, f), g)
    # On a side between equal numbers it is higher in the middle, by an eighth of the derivative.
    part = (ahead - errors).abs_().mul_(-2).div_(torch.where(bent > 0, bent, 1.0))
    part = part.add_(1).clamp_(min=0).square_().mul_(bent.clamp(min=0)).div_(8)
    found = reduce(torch.maximum, torch.maximum(errors, ahead).add_(part)) - high
    scale = reduce(torch.maximum, bent.abs()).clamp_(min=_TINY)
    p, q, r = bent / scale
    a, b, c = p + 2 * ((f - e) / scale), r + 2 * ((g - e) / scale), p + r - q
    size = 4 * p * r
    # Where it is almost flat in one direction, it is at most a little larger than on the sides.
    concave = (p > 0) & (size - c * c > _FLAT * size)
    size = torch.where(concave, size - c * c, 1.0)
    y, z = (2 * r * a - c * b) / size, (2 * p * b - c * a) / size
    x = 1 - y - z
    inside = concave & (x > 0) & (y > 0) & (z > 0)
    top = x * (e - high) + y * (f - high) + z * (g - high)
    top += scale / 2 * (x * y * p + y * z * q + z * x * r)
    found = torch.where(inside, torch.maximum(found, top), found)
    return found.add_(scale, alpha=_FLAT)


GOAL = 2.0**-4  # the share of the tolerance by which bounds may exceed what is found
_ENOUGH = 0.6  # the share of the tolerance below which bounds need not be close
_DEEPEST = 48  # how often a triangle is divided at most
_BELOW, _LEAST = 0.9, 2.0**-3  # of what is left to the tolerance, and of the goal: what is added
_LONG = 4.0  # times the squared length of its shortest side: triangles are then divided in two
_BLOCK = 1 << 16  # triangles at a time, or a little more
_MOST, _OF_EACH = 1 << 25, 1 << 6  # triangles in all, or of each face on average


def outputs_at(program: Program, domain: Domain, uv: Tensor) -> Tensor:
    """The outputs (N, n) of a network at local points (N, 2)."""
    frame, widest = Frame.of(domain), max([domain.dim, *program.widths])
    step = max(1, backend_of(program.device).activations // widest)
    return torch.cat(
        [as_rows(program(domain.embed(frame.to_plane(some)))) for some in torch.split(uv, step)]
    )


@dataclass(frozen=True)
class Compared:
    """A network beside a piecewise-linear function with values (V, n) at the vertices of a mesh.

    network: gives its outputs (N, n) at local points (N, 2); inside: bounds them in polygons.
    allowed: (n,) what bounds are not to exceed.
    """

    mesh: Mesh
    values: Tensor
    network: Callable[[Tensor], Tensor]
    inside: Inside
    allowed: Tensor

    @cached_property
    def errors(self) -> Tensor:
        """The network less the values at the vertices, (V, n)."""
        return self.network(self.mesh.uv).sub_(self.values)

    def goals(self, largest: Tensor) -> Tensor:
        """By how much bounds may exceed the largest differences (N, n) that are found.

        Where these are large, it is little, so that bounds stay below what is allowed. Where they
        are small, bounds need not be close.
        """
        goal = GOAL * self.allowed
        more = _BELOW * (self.allowed - largest)
        close = torch.minimum(torch.maximum(more, _LEAST * goal), goal)
        return torch.maximum(close, _ENOUGH * self.allowed - largest)

    def _room(self, largest: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """How much may be added to differences (N, n) at corners, above and below, (2, N, n).

        largest: the largest differences that are found. Where those at the corners are smaller,
        bounds on what is added to them may be larger.
        """
        limit = largest + self.goals(largest)
        return torch.stack([limit - high, limit + low])

    def region_bounds(self) -> Tensor:
        """Bounds (F, n) on how far the network is from the map of each face.

        On a face both are smooth. So inside of it their difference is above those at its corners by
        at most half of the second derivative downwards times the square of the radius of a circle
        around the face, and likewise below. Where that is more than the goal, the face is looked at
        in smaller triangles. Few faces are not worth the first look.
        """
        mesh, outputs = self.mesh, self.values.shape[1]
        errors = self.errors
        if mesh.num_faces <= _FEW:
            faces = torch.arange(mesh.num_faces, device=errors.device)
            return self._in_triangles(faces).mul_(UPWARDS)
        found = errors.new_empty((mesh.num_faces, outputs))
        large = torch.empty(mesh.num_faces, dtype=torch.bool, device=errors.device)
        for face, vertex in mesh.by_size(backend_of(errors.device).numbers // outputs):
            flat = vertex.reshape(-1)
            bend, branch = self.inside(take(mesh.uv, flat).view(*vertex.shape, 2))
            low, high = extremes(take(errors, flat).view(*vertex.shape, outputs))
            largest, reached = torch.maximum(high, -low), _reached(low, high, bend)
            found[face] = reached + 2 * branch
            enough = reached <= largest + self.goals(largest)
            large[face] = ~enough.all(1)  # also where bounds are no numbers
        if bool(large.any()):
            found[large] = self._in_triangles(large.nonzero()[:, 0])
        return found.mul_(UPWARDS)

    def _in_triangles(self, faces: Tensor) -> Tensor:
        """The bounds of some faces, (N, n), from triangles that are as small as need be."""
        errors = self.errors
        found = errors.new_zeros((len(faces), errors.shape[1]))
        known = torch.zeros_like(found)  # the largest differences that are found in each face
        inside = self.inside.finer(len(faces))
        stack = _fans(self.mesh, faces, self.values, errors)
        looked_at, most = 0, max(_MOST, _OF_EACH * len(faces))
        while stack:
            some = _next(stack)
            looked_at += len(some.owner)
            if looked_at > most:
                raise LimitError(
                    f"Bounds on the second derivative of the network are so large that {most:,} "
                    "triangles are too few to show how far it is from the result. Allow a larger "
                    "error, or choose a smaller domain."
                )
            owner = some.owner[:, None].expand(-1, found.shape[1])
            low, high = extremes(some.errors)
            known.scatter_reduce_(0, owner, torch.maximum(high, -low), "amax")
            room = self._room(take(known, some.owner), low, high)
            bend, gap, branch, sides = inside.closely(some.corners, some.errors, room)
            certain = (bend - gap).nan_to_num_(0.0, posinf=0.0)
            known.scatter_reduce_(0, owner, _reached(low, high, certain), "amax")
            room = self._room(take(known, some.owner), low, high)
            done = (bend <= room).all(0).all(1) | ~torch.isfinite(room).all(0).all(1)
            done |= some.depth == _DEEPEST
            reached = _reached(low, high, bend) + 2 * branch
            found.scatter_reduce_(0, owner, torch.where(done[:, None], reached, 0.0), "amax")
            rest = (~done).nonzero()[:, 0]
            stack += some.select(rest).divided(sides[rest], self.network)
        return found


def _reached(low: Tensor, high: Tensor, bend: Tensor) -> Tensor:
    """The largest modulus (N, n) of differences with these extremes at corners, see ``Inside``."""
    return torch.maximum(high + bend[0], bend[1] - low)


# Parts of triangles by the numbers of their points: three corners, and those with given shares.
_Parts = tuple[Sequence[Sequence[float]], Sequence[Sequence[int]]]


def _lattice(count: int) -> _Parts:
    """Parts of a triangle whose sides are divided into so many, with sides in the same order."""
    places = [(0, 0), (count, 0), (0, count)]
    rows = [(j, k) for j in range(count + 1) for k in range(count + 1 - j)]
    places += [place for place in rows if place not in places]
    up = [((j, k), (j + 1, k), (j, k + 1)) for j, k in rows if j + k < count]
    down = [((j + 1, k + 1), (j, k + 1), (j + 1, k)) for j, k in rows if j + k < count - 1]
    shares = [((count - j - k) / count, j / count, k / count) for j, k in places[3:]]
    return shares, [[places.index(place) for place in part] for part in up + down]


_HALVES: _Parts = [(0.5, 0.5, 0.0)], [(0, 3, 2), (3, 1, 2)]
_QUARTERS, _SIXTEENTHS = _lattice(2), _lattice(4)


@dataclass(frozen=True)
class _Triangles:
    """Triangles of faces, (T,) each: corners (T, 3, 2), values and errors (T, 3, n) there.

    depth: how often they were divided.
    """

    owner: Tensor
    depth: Tensor
    corners: Tensor
    values: Tensor
    errors: Tensor

    def select(self, chosen: Tensor) -> _Triangles:
        """Some of them, by their numbers."""
        return _Triangles(*(take(part, chosen) for part in vars(self).values()))

    def blocks(self) -> list[_Triangles]:
        """The same in parts that are not too large."""
        parts = (torch.split(part, _BLOCK) for part in vars(self).values())
        return [_Triangles(*each) for each in zip(*parts, strict=True) if len(each[0])]

    def divided(self, sides: Tensor, network: Callable[[Tensor], Tensor]) -> list[_Triangles]:
        """Four triangles of each, or two where one of its sides, (T, 3), is long; in blocks.

        Few triangles are divided into more, since looks at them cost more than they do.
        """
        longest, first = sides.max(1)
        long = _LONG * sides.amin(1) < longest
        if 16 * len(long) <= _FEW:
            return self._parts(network, _SIXTEENTHS).blocks()
        place = (first[:, None] + torch.arange(3, device=first.device)) % 3
        triangle = torch.arange(len(first), device=first.device)[:, None]
        each = (part[triangle, place] for part in (self.corners, self.values, self.errors))
        turned = _Triangles(self.owner, self.depth, *each)
        kinds = (long.nonzero()[:, 0], _HALVES), ((~long).nonzero()[:, 0], _QUARTERS)
        parts = (turned.select(some)._parts(network, how) for some, how in kinds if len(some))
        return [block for part in parts for block in part.blocks()]

    def _parts(self, network: Callable[[Tensor], Tensor], how: _Parts) -> _Triangles:
        """Parts of each."""
        shares = self.corners.new_tensor(how[0])
        points, values = (shares @ each for each in (self.corners, self.values))
        outputs = network(points.view(-1, 2)).view(values.shape)
        new = points, values, outputs - values
        known = self.corners, self.values, self.errors
        place = torch.tensor(how[1], device=shares.device)
        split = (
            torch.cat(each, 1)[:, place].flatten(0, 1) for each in zip(known, new, strict=True)
        )
        count = len(place)
        return _Triangles(
            self.owner.repeat_interleave(count), (self.depth + 1).repeat_interleave(count), *split
        )


def _joined(parts: list[_Triangles]) -> _Triangles:
    return _Triangles(*map(torch.cat, zip(*(vars(part).values() for part in parts), strict=True)))


def _next(stack: list[_Triangles]) -> _Triangles:
    """Take the last triangles of a stack, enough for one look at them if there are so many."""
    taken, count = [], 0
    while stack and count < _BLOCK:
        taken.append(stack.pop())
        count += len(taken[-1].owner)
    return _joined(taken)


def _fans(mesh: Mesh, faces: Tensor, values: Tensor, errors: Tensor) -> list[_Triangles]:
    """Triangles from the first corner of each face to its other sides, in parts."""
    counts = mesh.counts()[faces] - 2
    owner = torch.repeat_interleave(torch.arange(len(faces), device=faces.device), counts)
    place = torch.arange(len(owner), device=faces.device)
    place = place - (counts.cumsum(0) - counts)[owner]
    first = mesh.offsets[faces][owner]
    corner = torch.stack([first, first + place + 1, first + place + 2], 1)
    vertex = mesh.corner_vertices()[corner]
    depth = torch.zeros_like(owner)
    return _Triangles(owner, depth, mesh.uv[vertex], values[vertex], errors[vertex]).blocks()
