"""The part of a domain in which a question about the outputs is open, found from coarse to fine.

Squares are bounded, and those in which the question is open are quartered, as long as that saves
more work than it costs. Inside a square the outputs are near affine functions, so that most of it
may be settled though the whole is not. What is open is kept on a grid that is finer than squares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from splinecam._util.arrays import take
from splinecam.engine.box_bounds import Affine, BoxBounds
from splinecam.geometry.subdivision import Mesh
from splinecam.network.program import Program


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of the outputs on a domain.

    slack: says by how much the question is settled on convex sets, (N,); where that is positive, it
    is. It takes the values (N, k, m) of m affine functions at the k corners of each set, and bounds
    (N, m) on how far the outputs are from them. rows, offset: (m, n) and (m,), which make these
    functions of the n outputs, as ``y @ rows.T + offset``. By default they are the outputs, and the
    bounds are those of the differences to one output, whose own bound is 0.
    """

    slack: Callable[[Tensor, Tensor], Tensor]
    rows: Tensor | None = None
    offset: Tensor | None = None


_SIDE = 8  # cells along a side of a square
_WORTH = 100.0  # regions whose cost is that of four squares
_CELLS = 1 << 20  # on the grid, unless there are more than so many for each square
_EACH = 1 << 10
_CORNERS = 12  # of a face that is looked at closely
_CLOSE = 2.0**-30  # how far beside a cell a face may begin, relative to the cell


@dataclass(frozen=True)
class _Level:
    """Squares of one size.

    place: (B, 2) the column and the row of each; outputs: on each square; open: (B, 8, 8) whether
    the question is open in each cell, by rows and columns; number: the square at each row and
    column of the plane, or -1.
    """

    place: Tensor
    outputs: Affine
    open: Tensor
    number: Tensor

    def values(self, square: Tensor, at: Tensor) -> Tensor:
        """The outputs (..., n) at points (..., 2) of squares (...), from -1 to 1 in each."""
        middle, right, upper = (row[square] for row in self.outputs.rows)
        return middle + at[..., :1] * (right - middle) + at[..., 1:] * (upper - middle)


@dataclass(frozen=True, eq=False)
class OpenPart:
    """Where a question is open.

    question: asked of it; corner, size: of the square around the domain; levels: from the whole
    square to the smallest.
    """

    question: Question
    corner: Tensor
    size: float
    levels: list[_Level]

    @cached_property
    def cells(self) -> Tensor:
        """Whether the question is open in each cell of the finest grid, by rows and columns."""
        found = torch.ones((1, 1), dtype=torch.bool, device=self.corner.device)
        found = found.repeat_interleave(_SIDE, 0).repeat_interleave(_SIDE, 1)
        for k, level in enumerate(self.levels):
            if k:
                found = found.repeat_interleave(2, 0).repeat_interleave(2, 1)
            squares = found.view(2**k, _SIDE, 2**k, _SIDE).transpose(1, 2)
            column, row = level.place.unbind(1)
            squares[row, column] &= level.open
        return found

    @cached_property
    def _sums(self) -> Tensor:
        """How many cells before each row and column are open, (S + 1, S + 1)."""
        sums = torch.nn.functional.pad(self.cells.to(torch.int32), (1, 0, 1, 0))
        return sums.cumsum(0, dtype=torch.int32).cumsum(1, dtype=torch.int32)

    def faces(self, mesh: Mesh) -> Tensor:
        """Whether the question is open on each face, (F,), as far as squares can tell."""
        side = self.cells.shape[0]
        box = (mesh.boxes() - self.corner.repeat(2)) * (side / self.size)
        low = (box[:, :2] - _CLOSE).floor().long().clamp_(0, side)
        high = (box[:, 2:] + _CLOSE).floor().long().add_(1).clamp_(0, side)
        sums = self._sums.view(-1)
        (u, v), (u1, v1) = low.unbind(1), high.unbind(1)
        v, v1 = v * (side + 1), v1 * (side + 1)
        open_ = sums[v1 + u1] - sums[v + u1] - sums[v1 + u] + sums[v + u] > 0
        some = (open_ & (mesh.counts() <= _CORNERS)).nonzero()[:, 0]
        if len(some):
            open_[some] = ~self._settled(mesh, some)
        return open_

    def _settled(self, mesh: Mesh, faces: Tensor) -> Tensor:
        """Whether each of some faces that lies in one square is settled there, (N,)."""
        counts = take(mesh.counts(), faces)
        place = torch.arange(int(counts.max()), device=faces.device)
        entry = take(mesh.offsets, faces)[:, None] + torch.minimum(place, counts[:, None] - 1)
        uv = take(mesh.uv, mesh.corner_vertices()[entry].view(-1)).view(*entry.shape, 2)
        found = torch.zeros_like(faces, dtype=torch.bool)
        left = torch.arange(len(faces), device=faces.device)
        for level in reversed(self.levels):
            at, square = self._squares(level, uv[left])
            inside = (square == square[:, :1]).all(1) & (square[:, 0] >= 0)
            some = inside.nonzero()[:, 0]
            square = square[some, 0]
            values = level.values(square[:, None].expand(-1, entry.shape[1]), at[some])
            found[left[some]] = self.question(values, level.outputs.radius[square]) > 0
            left = left[~inside]
        return found

    def _squares(self, level: _Level, uv: Tensor) -> tuple[Tensor, Tensor]:
        """Where points (..., 2) lie in their squares of a level, from -1 to 1, and which, or -1."""
        count = level.number.shape[0]
        at = (uv - self.corner) * (count / self.size)
        place = at.floor().long().clamp_(0, count - 1)
        return 2 * (at - place) - 1, level.number[place[..., 1], place[..., 0]]

    def values(self, uv: Tensor) -> Tensor:
        """Outputs (N, n) at points where the question is settled, as a square has settled it."""
        found = uv.new_full((uv.shape[0], self.levels[0].outputs.radius.shape[1]), torch.nan)
        left = torch.arange(uv.shape[0], device=uv.device)
        for level in reversed(self.levels):
            at, square = self._squares(level, uv[left])
            some = (square >= 0).nonzero()[:, 0]
            square = square[some]
            values = level.values(square, at[some])
            clear = self.question(values[:, None], level.outputs.radius[square]) > 0
            found[left[some[clear]]] = values[clear]
            there = torch.zeros_like(left, dtype=torch.bool)
            there[some[clear]] = True
            left = left[~there]
        return found


def open_part(
    program: Program, mesh: Mesh, embed: Callable[[Tensor], Tensor], question: Question
) -> OpenPart | None:
    """Where a question is open on a domain, None if to find out is not worth it.

    mesh: the domain as one face; embed: gives the inputs at local coordinates (N, 2).
    """
    if not BoxBounds.fits(program):
        return None
    low, high = mesh.uv.amin(0), mesh.uv.amax(0)
    size = float((high - low).amax()) * (1 + 2.0**-20)
    corner = (low + high - size) / 2
    place = torch.zeros((1, 2), dtype=torch.int64, device=low.device)
    levels: list[_Level] = []
    bounds = BoxBounds(program)
    leader = prod(program.output_shape) > 1
    while len(place):
        half = size / 2 ** (len(levels) + 1)
        middle = corner + (2 * place + 1) * half
        step = half * torch.eye(2, dtype=middle.dtype, device=middle.device)
        points = torch.stack([middle, middle + step[0], middle + step[1]])
        x = embed(points.flatten(0, 1))
        x = x.view(3, len(place), *x.shape[1:])
        outputs, passed = bounds(x, leader)
        open_ = _open_cells(outputs, question)
        levels.append(_Level(place, outputs, open_, _numbered(place, 2 ** len(levels))))
        share = open_.flatten(1).double().mean(1)
        fine = (1 + passed + passed * passed / 4) * share > _WORTH
        place = _quarters(place[fine], open_[fine])
        if (2 * _SIDE << len(levels)) ** 2 // 4 > max(_CELLS, _EACH * len(place)):
            break
    if len(levels) == 1 and bool(levels[0].open.all()):
        return None
    return OpenPart(question, corner, size, levels)


def _numbered(place: Tensor, count: int) -> Tensor:
    """The number of the square at each row and column, (count, count), or -1."""
    number = place.new_full((count, count), -1)
    number[place[:, 1], place[:, 0]] = torch.arange(len(place), device=place.device)
    return number


def _open_cells(outputs: Affine, question: Question) -> Tensor:
    """Whether the question is open in the cells of squares, (B, 8, 8) by rows and columns."""
    count, n = outputs.radius.shape
    device = outputs.radius.device
    open_ = torch.zeros((count, _SIDE, _SIDE), dtype=torch.bool, device=device)
    middle, right, upper = (row[:, None] for row in outputs.rows)
    signs = torch.tensor([[-1.0, -1], [1, -1], [1, 1], [-1, 1]], dtype=middle.dtype, device=device)
    u, v = signs.T[..., None]
    corners = middle + u * (right - middle) + v * (upper - middle)
    some = (~(question(corners, outputs.radius) > 0)).nonzero()[:, 0]
    if not len(some):
        return open_
    line = torch.linspace(-1, 1, _SIDE + 1, dtype=middle.dtype, device=device)[:, None]
    base, du, dv = middle[some], (right - middle)[some], (upper - middle)[some]
    grid = (base + line * dv)[:, :, None] + (line * du)[:, None]  # (B', 9, 9, n) by rows
    cells = [grid[:, i : i + _SIDE, j : j + _SIDE] for i in (0, 1) for j in (0, 1)]
    corners = torch.stack(cells, 3).reshape(-1, 4, n)
    bounds = outputs.radius[some].repeat_interleave(_SIDE * _SIDE, 0)
    open_[some] = ~(question(corners, bounds) > 0).view(-1, _SIDE, _SIDE)
    return open_


def _quarters(place: Tensor, open_: Tensor) -> Tensor:
    """The quarters of squares in which a cell is open, (B', 2)."""
    half = _SIDE // 2
    parts = open_.view(-1, 2, half, 2, half).any(4).any(2)  # (B, row, column)
    square, row, column = parts.nonzero().unbind(1)
    return 2 * place[square] + torch.stack([column, row], 1)
