"""The innermost loops in machine code: on a CPU, where numba is installed.

Tensor operations pass over the same numbers several times, and find room for each result; a loop
does it in one pass, in the cache of the thread that goes on with it. Nothing else depends on it:
without numba everything works, only slower.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam.births import Births, Kinks
from splinecam.threads import number_of_threads, share

__all__ = [
    "Ahead",
    "Along",
    "Loops",
    "MeshLoops",
    "Rectified",
    "Sight",
    "loops_for",
    "mesh_loops",
]

_log = logging.getLogger("splinecam")

# Numbers of a stage from which the loops pay: if they are there, if they have to be loaded (most of
# a second), and if they have to be compiled (some ten seconds, once).
_LOADED, _PAYS, _PAYS_COMPILING = 0, 1 << 21, 1 << 26

_BLOCK = 1 << 17  # numbers that a thread has at hand in its cache
_FEWEST, _MOST = 32, 512  # rows in a block, however wide or narrow
_IN_CELL = 4  # vertices in a cell of the grid that gives their order


@dataclass(frozen=True)
class Ahead:
    """What few functions, weight (m, n) and bias, make of positive parts: values (V, m).

    Found while these are at hand, they need not be read once more.
    """

    weight: Tensor
    bias: Tensor
    values: Tensor


class Sight:
    """What loops see of values on the way: their range, their signs, and what is made of them.

    least: (n,) up to where a value is zero; positive, negative: (V, W) words to be written.
    """

    def __init__(
        self, least: Tensor, positive: Tensor, negative: Tensor, ahead: Ahead | None = None
    ) -> None:
        shape = (number_of_threads(), least.shape[0])
        self._low, self._high = least.new_full(shape, inf), least.new_full(shape, -inf)
        self._zeros = torch.zeros((shape[0], 1), dtype=torch.bool)
        own = zip(self._low, self._high, self._zeros, strict=True)
        ahead = ahead or Ahead(least.new_empty((0, 0)), least[:0], least.new_empty((0, 0)))
        written = positive, negative, ahead.weight, ahead.bias, ahead.values
        rest = [x.numpy() for x in written]
        self.given = [(least.numpy(), *[x.numpy() for x in mine], *rest) for mine in own]
        """What a loop is given, for each thread."""

    @classmethod
    def nothing(cls) -> Sight:
        """What sees nothing."""
        return cls(torch.empty(0, dtype=torch.float64), *torch.empty((2, 0, 0), dtype=torch.int64))

    def range(self) -> tuple[Tensor, Tensor]:
        """Of all values so far, (n,) each."""
        return self._low.amin(0), self._high.amax(0)

    def zeros(self) -> bool:
        """Whether any value was zero."""
        return bool(self._zeros.any())


@dataclass(frozen=True)
class Rectified:
    """Weights (m, n) and a bias, to be applied to the positive parts of rows z (V, n).

    positive: (V, W) words of where these are; uv: (V, 2) where the vertices are.
    """

    z: Tensor
    positive: Tensor
    uv: Tensor
    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Along:
    """New rows of a table (V, m), from ``first`` on, along the lines that they lie on.

    columns: (n, m) what becomes of single units.
    """

    table: Tensor
    first: int
    births: Births
    kinks: Kinks
    columns: Tensor

    def arrays(self) -> tuple[Any, ...]:
        """What the loop is given."""
        b, k = self.births, self.kinks
        given = (b.p, b.q, b.t, k.line, k.offsets, k.t, k.unit, k.bend, self.columns)
        return tuple(x.numpy() for x in given)


class Loops:
    """The loops, and the threads that they run in."""

    def __init__(self, code: ModuleType) -> None:
        self._code = code

    def see(self, z: Tensor, start: int, end: int, sight: Sight) -> None:
        """Look at the rows from ``start`` to ``end`` of values z (V, n)."""
        rows = torch.arange(start, end)
        self._code.see(z.numpy(), rows.numpy(), 0, end - start, sight.given[0])

    def fill(self, along: Along, sight: Sight, rows: Tensor | None = None) -> None:
        """Fill in new rows, all if it is not said which."""
        if rows is None:
            rows = torch.arange(along.first, along.first + along.births.count)
        table, at, lines = along.table.numpy(), rows.numpy(), along.arrays()

        def work(thread: int, begin: int, end: int) -> None:
            self._code.fill(table, at, begin, end, along.first, lines, sight.given[thread])

        share(work, rows.shape[0], _rows(along.table.shape[1]))

    def product(self, stage: Rectified, out: Tensor, sight: Sight, along: Along | None) -> None:
        """The first rows of ``out`` (V, m), and new ones along lines between those.

        The units that are nowhere positive in a block of rows are left out of its product. Lines
        with both ends in a block are filled in while these are at hand.
        """
        m, n = stage.weight.shape
        count, step = stage.z.shape[0], _rows(max(n, m))
        order, rank = torch.empty((2, count), dtype=torch.int64)
        code, curve = self._code, _curve(count // _IN_CELL)
        code.grid_order(stage.uv.numpy(), curve, order.numpy(), rank.numpy())
        rows, starts = self._within(along, rank, step)
        room = [
            stage.z.new_empty((number_of_threads(), *s)) for s in ((step, n), (n, m), (step, m))
        ]
        units = np.empty((len(room[0]), n), np.uint32)  # not signed: that is faster
        own = [[x.numpy() for x in mine] for mine in zip(*room, strict=True)]
        given = stage.z.numpy(), stage.positive.numpy(), order.numpy()
        target, matrix = out.numpy(), stage.weight.T.contiguous().numpy()
        new, lines = rows.numpy(), () if along is None else along.arrays()
        bias = stage.bias.numpy()

        def work(thread: int, begin: int, end: int) -> None:
            x, part, y = own[thread]
            active = code.active(*given, begin, end, matrix, units[thread], x, part)
            x, part, result = (table[thread] for table in room)
            result = result[: end - begin]
            torch.mm(x[: end - begin, :active], part[:active], out=result)
            code.put(y, bias, given[2], begin, end, target, sight.given[thread])
            if along is not None:
                first, last = starts[begin // step], starts[begin // step + 1]
                code.fill(target, new, first, last, along.first, lines, sight.given[thread])

        share(work, count, step)
        if along is not None:
            self.fill(along, sight, rows[starts[-2] :])

    def _within(self, along: Along | None, rank: Tensor, step: int) -> tuple[Tensor, list[int]]:
        """The new rows by the block in which both ends of their line are, and where each begins."""
        if along is None:
            return rank[:0], []
        rows = torch.empty_like(along.births.p)
        starts = torch.empty(-(-rank.shape[0] // step) + 2, dtype=torch.int64)
        given = (rank, along.births.p, along.births.q)
        order, firsts = rows.numpy(), starts.numpy()
        args = [x.numpy() for x in given]
        self._code.within_blocks(args[0], step, *args[1:], along.first, order, firsts)
        return rows, starts.tolist()


def _curve(cells: int) -> NDArray[np.int32]:
    """Hilbert's curve through a square of about so many cells: the place of each, (n, n).

    Neighbours in it are neighbours in the plane, and most the other way around too.
    """
    return _hilbert(max(0, cells.bit_length() - 1) // 2)


@cache
def _hilbert(levels: int) -> NDArray[np.int32]:
    if levels == 0:
        return np.zeros((1, 1), np.int32)
    part = _hilbert(levels - 1)
    n = part.size
    halves = [[part.T, part + n], [3 * n + part[::-1, ::-1].T, part + 2 * n]]
    return np.ascontiguousarray(np.block(halves))


def _rows(width: int) -> int:
    """How many rows make a block."""
    return max(_FEWEST, min(_MOST, _BLOCK // max(width, 1)))


def loops_for(device: torch.device, numbers: int) -> Loops | None:
    """The loops, if they can be had and are worth it for a stage with so many numbers."""
    pays = _LOADED if "splinecam.loops" in sys.modules else _PAYS
    code = _machine_code() if device.type == "cpu" and numbers >= pays else None
    if code is None or (numbers < _PAYS_COMPILING and not _is_compiled(code)):
        return None
    return Loops(code)


class MeshLoops(NamedTuple):
    """The loops of the refinement."""

    mesh: ModuleType
    face: ModuleType


def mesh_loops() -> MeshLoops:
    """Those of the refinement, where ``loops_for`` gave some."""
    from splinecam import faceloops, meshloops

    return MeshLoops(meshloops, faceloops)


@cache
def _machine_code() -> ModuleType | None:
    """The loops; None where there is no numba, or one that does not work here."""
    if find_spec("numba") is None:
        return None
    try:
        from splinecam import loops
    except (ImportError, RuntimeError) as reason:  # too old, or no place to keep what it compiles
        _log.warning("numba is installed but cannot be used, which costs time only: %s", reason)
        return None
    return loops


def _is_compiled(code: ModuleType) -> bool:
    """Whether the loops were compiled before, here or in an earlier run."""
    loop = code.fill
    return bool(loop.signatures) or any(Path(loop.stats.cache_path).glob("loops.fill-*.nbi"))
