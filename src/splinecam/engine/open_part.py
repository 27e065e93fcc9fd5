"""The part of a domain in which a question about the outputs is open, found from coarse to fine.

Squares are bounded, and those in which the question is open are quartered, as long as that saves
more work than it costs. On a square the outputs are near affine functions; so the question may be
settled on a face that a square contains although it is open elsewhere in the square.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, prod

import torch
from torch import Tensor

from splinecam._util.arrays import take
from splinecam._util.backend import backend_of
from splinecam.engine.artificial_cuts import CutLines
from splinecam.engine.box_bounds import BoxBounds
from splinecam.engine.plan import Place
from splinecam.geometry.domain import Domain, Frame
from splinecam.geometry.subdivision import Mesh, polygon_mesh
from splinecam.kernels.kernel import Kernel


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of the outputs on a domain: by default, which of several is the largest.

    rows, offset: (m, n) and (m,), which make m functions of the n outputs, ``y @ rows.T + offset``.
    Then it is asked for the sign of each. start: (k + 1,) asks less: whether in one of k ranges of
    the functions all are negative.
    """

    rows: Tensor | None = None
    offset: Tensor | None = None
    start: Tensor | None = None

    def functions(self, outputs: Tensor) -> Tensor:
        """The functions (..., m) of outputs (..., n)."""
        if self.rows is None:
            return outputs
        found = outputs @ self.rows.to(outputs).T
        return found if self.offset is None else found + self.offset.to(outputs)

    def slack(self, values: Tensor, bounds: Tensor) -> Tensor:
        """By how much the question is settled on convex sets, (N,); where positive, it is.

        values: (N, k, m) affine functions at the k corners of each set; bounds: (N, m) how far the
        functions are from them, or how far their differences to one of them are.
        """
        if self.rows is None:
            # If one is the largest on the whole set, it is the largest at the first corner.
            best = values[:, 0].argmax(1, keepdim=True)
            lead = values.gather(2, best[:, None].expand(-1, values.shape[1], 1)) - values
            lead = lead.amin(1) - bounds - bounds.gather(1, best)
            return lead.scatter(1, best, torch.inf).amin(1)
        positive, negative = values.amin(1) - bounds, -values.amax(1) - bounds
        if self.start is None:
            return torch.maximum(positive, negative).amin(1)
        counts = self.start.diff().tolist()
        holds = [part.amin(1) for part in torch.split(negative, counts, 1)]
        fails = [part.amax(1) for part in torch.split(positive, counts, 1)]
        return torch.maximum(torch.stack(holds).amax(0), torch.stack(fails).amin(0))


# Times the effort for a square: regions in its open part for which it is quartered.
WORTH = 2.0
_FIRST, _LAST = 2, 12  # how often the square around the domain is halved, at least and at most
_CELLS = 4  # along a side of a square, by which its open part is estimated
_CORNERS = 12  # of a face that is looked at
_ROUNDS = 3  # in which faces are compared with smaller and smaller squares
_ROOM = 2**14  # rows times columns of a size for each square of that size, at most
_CLOSE = 2.0**-30  # how far beside a square a face may begin, relative to the square
_FUTILE, _LITTLE = 0.23, 0.05  # the share of the work for squares, and what is to be settled


@dataclass(frozen=True, eq=False)
class OpenPart:
    """Where a question is open; coordinates are relative to the square around the domain.

    question: asked; corner, size: of that square. Of S squares of several sizes: centre (S, 2) and
    half (S,) of the side; rows (S, 3, n) affine functions near the outputs, at the centre, and from
    there to the right and upwards; radius (S, m) as the question takes it; settled (S,) whether the
    question is. finest: for numbers of halvings from ``_FIRST`` on, the smallest square that is not
    smaller, at each row and column.
    """

    question: Question
    corner: Tensor
    size: float
    centre: Tensor
    half: Tensor
    rows: Tensor
    radius: Tensor
    settled: Tensor
    finest: Tensor
    deepest: int

    def faces(self, mesh: Mesh, kernel: Kernel | None, settled: Tensor | None = None) -> Tensor:
        """Whether the question is open on each face, (F,), as far as squares can tell.

        settled: (F,) faces that the compiled kernel need not look at.
        """
        if kernel is not None:
            return kernel.open_faces(mesh, *self._compiled, settled)
        box = (mesh.boxes() - self.corner.repeat(2)) / self.size
        fits = -torch.frexp((box[:, 2:] - box[:, :2]).amax(1)).exponent
        open_, last = torch.ones_like(fits, dtype=torch.bool), torch.full_like(fits, -1)
        for k in range(_ROUNDS):  # squares as large as a face, half as large, ...
            level = (fits + k).clamp_(max=self.deepest)
            new = (level >= _FIRST) & (level > last)
            left, last = (open_ & new).nonzero()[:, 0], level
            square = self._squares(box[left], level[left], 2**k + 1)
            open_[left] = ~self._settles(mesh, left, square)
        return open_

    @cached_property
    def _compiled(self) -> tuple[dict[str, float], dict[str, Tensor]]:
        """What the compiled kernel takes."""
        start, rows = self.question.start, self.rows
        if self.question.rows is not None:
            rows = rows @ self.question.rows.to(rows).T
            if self.question.offset is not None:
                rows[:, 0] += self.question.offset.to(rows)
        u, v = self.corner.tolist()
        numbers = {"corner_u": u, "corner_v": v, "size": self.size, "functions": rows.shape[2]}
        numbers |= {"first": _FIRST, "deepest": self.deepest}
        numbers["largest"] = int(self.question.rows is None)
        numbers["conjunctions"] = 0 if start is None else len(start) - 1
        names = "centre", "half", "radius", "settled", "finest"
        arrays = {name: getattr(self, name).contiguous() for name in names}
        arrays["rows"] = rows.contiguous()
        return numbers, arrays if start is None else {**arrays, "start": start}

    def _settles(self, mesh: Mesh, faces: Tensor, square: Tensor) -> Tensor:
        """Whether squares (N, s) that cover some faces settle the question on each, (N,)."""
        found = take(self.settled, square.view(-1)).view(square.shape)
        counts = take(mesh.counts(), faces)
        pair, place = (~found & (counts <= _CORNERS)[:, None]).nonzero().unbind(1)
        if len(pair):
            corner = torch.arange(int(counts[pair].max()), device=faces.device)
            entry = torch.minimum(corner, counts[:, None] - 1) + take(mesh.offsets, faces)[:, None]
            vertex = take(mesh.corner_vertices(), entry[pair].view(-1))
            points = (take(mesh.uv, vertex) - self.corner) / self.size
            points = points.view(len(pair), -1, 2)
            found[pair, place] = self._slack(square[pair, place], points)[0] > 0
        return found.all(1)

    def _squares(self, box: Tensor, level: Tensor, count: int) -> Tensor:
        """The finest squares (N, count * count) that meet boxes."""
        side = (1 << level)[:, None]
        low = (box[:, :2] * side - _CLOSE).floor().long()
        high = torch.minimum((box[:, 2:] * side + _CLOSE).floor().long(), side - 1)
        step = torch.arange(count, device=box.device)
        place = torch.minimum(low[:, :, None] + step, high[:, :, None]).clamp_(min=0)
        start = ((side * side - 4**_FIRST) // 3).long()  # squares of all lower levels
        at = place[:, 1, :, None] * side[:, None] + place[:, 0, None] + start[:, None]
        return take(self.finest, at.flatten()).long().view(len(box), count * count)

    def _slack(self, square: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        """By how much sets (N, k, 2) are settled where they meet squares, and outputs there."""
        at = (points - take(self.centre, square)[:, None]) / take(self.half, square)[:, None, None]
        middle, right, upper = take(self.rows, square)[:, :, None].unbind(1)
        values = middle + at[..., :1] * right + at[..., 1:] * upper
        bounds = take(self.radius, square)
        return self.question.slack(self.question.functions(values), bounds), values

    def grid(self, most: int) -> CutLines:
        """The lines between squares after some halvings, at most so many."""
        count = 2 ** min(self.deepest, most)
        step = torch.arange(1, count).to(self.corner) * (self.size / count)
        normal = torch.eye(2).to(step).repeat_interleave(count - 1, 0)
        return CutLines(normal, (self.corner[:, None] + step).view(-1))

    def fill(self, kernel: Kernel, values: Tensor, row: Tensor, uv: Tensor) -> None:
        """Write ``values`` into some rows of outputs (V, n) at points (V, 2)."""
        kernel.settled_values(*self._compiled, (row, uv, self.rows.contiguous()), values)

    def values(self, uv: Tensor) -> Tensor:
        """Outputs (N, n) at points where the question is settled, as a square has settled it.

        They are no numbers where it is open.
        """
        found = uv.new_full((len(uv), self.rows.shape[2]), torch.nan)
        left = torch.arange(len(uv), device=uv.device)
        point = ((uv - self.corner) / self.size).repeat(1, 2)
        for level in range(self.deepest, _FIRST - 1, -1):
            square = self._squares(point[left], torch.full_like(left, level), 1)[:, 0]
            slack, values = self._slack(square, point[left, None, :2])
            clear = slack > 0
            found[left[clear]] = values[clear, 0]
            left = left[~clear]
        return found


def open_part(
    place: Place,
    domain: Domain,
    question: Question,
    report: Callable[[str, int, float], None],
    is_ended: Callable[[], bool] | None = None,
) -> OpenPart | None:
    """Where a question is open on a domain, None if to find out is not worth it.

    report: is told of the share that is settled, as of a layer. is_ended: whether smaller squares
    are not to be looked at.
    """
    program = place.program
    if not BoxBounds.fits(program):
        return None
    frame = Frame.of(domain)
    mesh = polygon_mesh(frame.to_local(domain.corners)).to(program.device)
    low, high = mesh.uv.amin(0), mesh.uv.amax(0)
    size = float((high - low).amax()) * (1 + 2.0**-20)
    corner = (low + high - size) / 2
    functions = None if question.rows is None else question.rows.to(low)
    bounds = BoxBounds(program, functions, place.kernel)
    if (least := _least(bounds, place)) is None:
        return None
    side = torch.arange(2**_FIRST, device=low.device)
    at = _within(torch.cartesian_prod(side, side), (mesh.uv - corner) / size, _FIRST)
    whole = len(at) * 0.25**_FIRST
    parts: list[tuple[Tensor, ...]] = []
    finest: list[Tensor] = []
    count, left, expected, futile = 0, 0.0, inf, True
    parent, kept = None, None
    for level in range(_FIRST, _LAST + 1):
        finest.append(_finest(finest[-1] if finest else None, at, level, count))
        half = 0.5**level / 2
        centre = (2 * at + 1).to(low) * half
        step = half * torch.eye(2, dtype=low.dtype, device=low.device)
        points = corner + size * torch.stack([centre, centre + step[0], centre + step[1]])
        x = domain.embed(frame.to_plane(points.flatten(0, 1)))
        place_in = (at % 2).to(low) - 0.5
        found, effort, kept = bounds.on_squares(x.view(3, len(at), *x.shape[1:]), parent, place_in)
        rows, radius, passed = found
        rows = torch.cat([rows[:1], rows[1:] - rows[:1]]).transpose(0, 1)
        open_ = _open_cells(rows, radius, question)
        share = open_.flatten(1).double().mean(1)
        each = torch.full_like(share, half)
        parts.append((centre, each, rows, radius, share == 0))
        unsettled = left + float(share.sum()) * 0.25**level
        count += len(at)
        regions = (1 + passed + passed * passed / 4) / bounds.excess
        if level == _FIRST:
            expected = float(regions.sum())
        if expected < least:
            return None
        report(f"{1 - unsettled / whole:.0%} settled", 0, 0.0)
        fine = regions * share > WORTH * effort
        left += float(share[~fine].sum()) * 0.25**level  # of squares that are not divided
        next_ = _within(_quarters(at[fine], open_[fine]), (mesh.uv - corner) / size, level + 1)
        if kept is not None:
            number = finest[-1].view(2**level, 2**level)[next_[:, 1] // 2, next_[:, 0] // 2]
            parent = kept.address[number.long() - (count - len(at))]
        at = next_
        futile = unsettled > (1 - _LITTLE) * whole
        most = (_FUTILE / 4 if futile else _FUTILE) * expected
        if is_ended is not None and is_ended():
            break
        if (
            len(at) * _ROOM < 4 ** (level + 1)
            or (count + len(at)) * float(effort.mean()) * WORTH / 2 > most
        ):
            break
    if futile:
        return None
    centre, halves, rows, radius, settled = (torch.cat(each) for each in zip(*parts, strict=True))
    squares = centre, halves, rows, radius, settled
    return OpenPart(question, corner, size, *squares, torch.cat(finest), level)


def may_pay(place: Place, domains: Sequence[Domain]) -> list[bool]:
    """Whether each domain may have as many regions as ``open_part`` expects at least.

    They are bounded together, each by one square.
    """
    program = place.program
    if not BoxBounds.fits(program):
        return [False] * len(domains)
    bounds = BoxBounds(program, None, place.kernel)
    if (least := _least(bounds, place)) is None:
        return [False] * len(domains)
    inputs = []
    for domain in domains:
        frame = Frame.of(domain)
        low, high = frame.to_local(domain.corners).aminmax(dim=0)
        half = (high - low).amax() * torch.eye(3, 2, dtype=low.dtype).roll(1, 0) / 2
        inputs.append(domain.embed(frame.to_plane((low + high) / 2 + half)))
    x = torch.stack(inputs, 1).to(program.device)
    passed = bounds(x).passed
    # A quarter of a square passes no more knots than the square.
    most = 4**_FIRST * (1 + passed + passed * passed / 4) / bounds.excess
    found: list[bool] = (most >= least).tolist()
    return found


def _least(bounds: BoxBounds, place: Place) -> float | None:
    """From how many expected regions on squares pay; None if units are too few for so many."""
    units = sum(prod(layer.shape) for layer in bounds.program.layers)
    least = backend_of(place.then or place.device).squares_from / bounds.effort
    return None if units * units / 4 < least else least


def _within(place: Tensor, corners: Tensor, level: int) -> Tensor:
    """The squares (B', 2) that may meet the domain, whose corners (k, 2) turn to the left."""
    side = corners.roll(-1, 0) - corners
    inwards = torch.stack([-side[:, 1], side[:, 0]])  # (2, k)
    depth = ((2 * place + 1).to(corners) / 2 ** (level + 1)) @ inwards - (corners.T * inwards).sum(
        0
    )
    reach = inwards.abs().sum(0) / 2 ** (level + 1)
    return place[(depth >= -(1 + 2.0**-20) * reach).all(1)]


def _finest(coarser: Tensor | None, place: Tensor, level: int, first: int) -> Tensor:
    """The smallest squares at each row and column; first: the number of the first new one."""
    new = torch.arange(first, first + len(place), dtype=torch.int32, device=place.device)
    side = 2**level
    found = torch.zeros((side, side), dtype=torch.int32, device=place.device)
    if coarser is not None:
        half = coarser.view(side // 2, 1, side // 2, 1)
        found = half.expand(-1, 2, -1, 2).reshape(side, side)
    found[place[:, 1], place[:, 0]] = new
    return found.view(-1)


def _open_cells(rows: Tensor, radius: Tensor, question: Question) -> Tensor:
    """Whether the question is open in the cells of squares, (B, cells, cells) by rows, columns."""
    middle, right, upper = rows[:, :, None].unbind(1)
    line = torch.linspace(-1, 1, _CELLS + 1, dtype=rows.dtype, device=rows.device)[:, None]
    grid = (middle + line * upper)[:, :, None] + (line * right)[:, None]
    grid = question.functions(grid)
    cells = [grid[:, i : i + _CELLS, j : j + _CELLS] for i in (0, 1) for j in (0, 1)]
    corners = torch.stack(cells, 3).reshape(-1, 4, grid.shape[3])
    slack = question.slack(corners, radius.repeat_interleave(_CELLS * _CELLS, 0))
    return ~(slack > 0).view(-1, _CELLS, _CELLS)


def _quarters(place: Tensor, open_: Tensor) -> Tensor:
    """The quarters of squares in which a cell is open, (B', 2)."""
    half = _CELLS // 2
    parts = open_.view(-1, 2, half, 2, half).any(4).any(2)  # (B, row, column)
    square, row, column = parts.nonzero().unbind(1)
    return 2 * place[square] + torch.stack([column, row], 1)
