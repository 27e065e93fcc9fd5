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

Whole = NDArray[np.int64]

# Numbers of a stage from which the loops pay: if they are there, if they have to be loaded (most of
# a second), and if they have to be compiled (some ten seconds, once).
_LOADED, _PAYS, _PAYS_COMPILING = 0, 1 << 21, 1 << 26

_BLOCK = 1 << 17  # numbers that a thread has at hand in its cache
_LEAST = 1 << 12  # numbers that are worth to be shared
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
        self._low, self._high = np.full(shape, np.inf), np.full(shape, -np.inf)
        self._zeros = np.zeros((shape[0], 1), np.bool_)
        own = zip(self._low, self._high, self._zeros, strict=True)
        ahead = ahead or Ahead(least.new_empty((0, 0)), least[:0], least.new_empty((0, 0)))
        written = positive, negative, ahead.weight, ahead.bias, ahead.values
        rest = [x.numpy() for x in written]
        self.given = [(least.numpy(), *mine, *rest) for mine in own]
        """What a loop is given, for each thread."""

    @classmethod
    def nothing(cls) -> Sight:
        """What sees nothing."""
        return cls(torch.empty(0, dtype=torch.float64), *torch.empty((2, 0, 0), dtype=torch.int64))

    def range(self) -> tuple[Tensor, Tensor]:
        """Of all values so far, (n,) each."""
        return torch.from_numpy(self._low.min(0)), torch.from_numpy(self._high.max(0))

    def zeros(self) -> bool:
        """Whether any value was zero."""
        return bool(self._zeros.any())


@dataclass(frozen=True)
class Rectified:
    """What positive parts of rows z (V, n) add up to: of each unit its columns, (n, m), and a bias.

    positive: (V, W) words of where these are; uv: (V, 2) where the vertices are.
    """

    z: Tensor
    positive: Tensor
    uv: Tensor
    columns: Tensor
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
        self._code.see(z.numpy(), np.arange(start, end), 0, end - start, sight.given[0])

    def fill(self, along: Along, sight: Sight, rows: Whole | None = None) -> None:
        """Fill in new rows, all if it is not said which."""
        first, lines, table = along.first, along.arrays(), along.table.numpy()
        at = np.arange(first, first + along.births.count) if rows is None else rows

        def work(thread: int, begin: int, end: int) -> None:
            self._code.fill(table, at, begin, end, first, lines, sight.given[thread])

        width = max(table.shape[1], 1)
        share(work, len(at), max(_rows(width), _LEAST // width))

    def product(self, stage: Rectified, out: Tensor, sight: Sight, along: Along | None) -> None:
        """The first rows of ``out`` (V, m), and new ones along lines between those.

        The units that are nowhere positive in a block of rows are left out of its product. Lines
        with both ends in a block are filled in while these are at hand.
        """
        n, m = stage.columns.shape
        count, step = stage.z.shape[0], _rows(max(n, m))
        order, rank = np.empty((2, count), np.int64)
        code, curve = self._code, _curve(count // _IN_CELL)
        code.grid_order(stage.uv.numpy(), curve, order, rank)
        rows, starts = self._within(along, rank, step)
        shapes = (step, n), (n, m), (step, m)
        room = [[torch.empty(s, dtype=torch.float64) for s in shapes] for _ in sight.given]
        arrays = [[x.numpy() for x in mine] for mine in room]
        units = np.empty((len(room), n), np.uint32)  # not signed: that is faster
        given = stage.z.numpy(), stage.positive.numpy(), order
        target, bias, columns = out.numpy(), stage.bias.numpy(), stage.columns.numpy()
        lines = () if along is None else along.arrays()

        def work(thread: int, begin: int, end: int) -> None:
            x, part, y = arrays[thread]
            active = code.active(*given, begin, end, columns, units[thread], x, part)
            left, right, result = room[thread]
            torch.mm(left[: end - begin, :active], right[:active], out=result[: end - begin])
            code.put(y, bias, order, begin, end, target, sight.given[thread])
            if along is not None:
                first, last = starts[begin // step], starts[begin // step + 1]
                code.fill(target, rows, first, last, along.first, lines, sight.given[thread])

        share(work, count, step)
        if along is not None:
            self.fill(along, sight, rows[starts[-2] :])

    def _within(self, along: Along | None, rank: Whole, step: int) -> tuple[Whole, list[int]]:
        """The new rows by the block in which both ends of their line are, and where each begins."""
        if along is None:
            return rank[:0], []
        p, q = along.births.p.numpy(), along.births.q.numpy()
        rows, starts = np.empty(len(p), np.int64), np.empty(-(-len(rank) // step) + 2, np.int64)
        self._code.within_blocks(rank, step, p, q, along.first, rows, starts)
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
