"""Signs of many functions at many vertices, 64 functions a word.

A vertex has two words per 64 functions: where they are positive, and where they are negative;
neither bit set means zero. Comparing two vertices for all functions is then a few AND/OR.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.bits import set_bits
from splinecam.kernels import SignRange

__all__ = ["SignWriter", "Signs", "all_bits", "set_bits"]

# Multiplying eight 0/1 bytes by this gathers them into the top byte of the word.
_GATHER = 0x0102040810204080


@dataclass(frozen=True)
class Signs:
    """Signs as words: positive, negative (V, W); wanted: (W,) words of the functions that count.

    clear: whether it is known that nothing vanishes.
    """

    positive: Tensor
    negative: Tensor
    wanted: Tensor
    clear: bool = False

    def only(self, wanted: Tensor) -> Signs:
        """The signs of which only some functions, (m,) booleans, count; others change nowhere."""
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
    """Decide the signs of m functions at V vertices, a block of vertices at a time.

    The working memory of a block is used again for the next one: on a CPU fresh memory costs more
    than the work.
    """

    def __init__(self, vertices: int, tolerance: Tensor) -> None:
        m, device = tolerance.shape[0], tolerance.device
        self.tolerance = tolerance
        everything = all_bits(m, device)
        words = everything.new_empty((2, vertices, everything.shape[0]))
        self.signs = Signs(words[0], words[1], everything)
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
