"""Signs of many functions at many vertices, 64 functions a word.

A vertex has two words per 64 functions: where they are positive, and where they are negative;
neither bit set means zero. Comparing two vertices for all functions is then a few AND/OR.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from splinecam.bits import set_bits

__all__ = ["Signs", "set_bits"]

# Multiplying eight 0/1 bytes by this gathers them into the top byte of the word.
_GATHER = 0x0102040810204080


@dataclass(frozen=True)
class Signs:
    """positive, negative: (V, W) words; wanted: (W,) words of the functions that count."""

    positive: Tensor
    negative: Tensor
    wanted: Tensor

    @classmethod
    def empty(cls, vertices: int, m: int, device: torch.device) -> Signs:
        """Room for the signs of m functions."""
        mask = _pack(torch.ones((1, m), dtype=torch.bool, device=device))[0]
        words = mask.new_empty((2, vertices, mask.shape[0]))
        return cls(words[0], words[1], mask)

    def store(
        self, start: int, values: Tensor, tolerance: Tensor, spare: Tensor | None = None
    ) -> None:
        """Decide the signs of values (B, m) at the vertices from ``start`` on, once and for all.

        spare: as much room as the values take, to save the time of finding it.
        """
        rows = slice(start, start + values.shape[0])
        if values.device.type == "cpu":
            size = torch.abs(values, out=spare)
            if not bool((size.amin(0) <= tolerance).any()):
                # Without zeros one comparison will do; this one is several times faster than ">".
                self.positive[rows] = _pack(torch.clamp(values, min=0, out=size).bool())
                torch.bitwise_not(self.positive[rows], out=self.negative[rows])
                return
        self.positive[rows] = _pack(values > tolerance)
        self.negative[rows] = _pack(values < -tolerance)

    def only(self, wanted: Tensor) -> Signs:
        """The same with only some functions, (m,) booleans, that count."""
        mask = _pack(wanted[None])[0]
        return Signs(self.positive.bitwise_and_(mask), self.negative.bitwise_and_(mask), mask)

    def select(self, vertices: Tensor) -> Signs:
        """The signs at some of the vertices, (N,)."""
        return Signs(self.positive[vertices], self.negative[vertices], self.wanted)

    def zero(self) -> Tensor:
        """(V, W) words of where the functions vanish."""
        return self._zero

    @cached_property
    def vanish(self) -> bool:
        """Whether any function vanishes anywhere."""
        return bool(self._zero.any())

    @cached_property
    def _zero(self) -> Tensor:
        return (self.positive | self.negative).bitwise_xor_(self.wanted)

    def at(self, vertex: Tensor, column: Tensor) -> Tensor:
        """Sign -1, 0, +1 of single functions at single vertices, (N,)."""
        flat = vertex * self.positive.shape[1] + (column >> 6)
        bit = column & 63
        plus = (self.positive.view(-1)[flat] >> bit) & 1
        minus = (self.negative.view(-1)[flat] >> bit) & 1
        return plus - minus


def _pack(mask: Tensor) -> Tensor:
    """Booleans (B, m) to words (B, ceil(m / 64)), bit c % 64 of word c // 64."""
    rows, m = mask.shape
    padded = -(-m // 64) * 64
    if padded != m:
        mask = torch.nn.functional.pad(mask, (0, padded - m))
    eight = mask.contiguous().view(torch.int64)
    return ((eight * _GATHER) >> 56).to(torch.uint8).view(torch.int64).view(rows, -1)
