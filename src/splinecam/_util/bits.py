"""The positions of the set bits in words of 64 bits."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import offsets_of, owners_of, take

__all__ = ["bits_of", "rows_with_bits", "set_bits"]

# The integer types that are as wide as so many booleans.
_INTEGERS = {1: torch.bool, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def rows_with_bits(words: Tensor) -> Tensor:
    """The rows of (R, W) words that have any bit set, (N,)."""
    nonzero = words.bool()
    integer = _INTEGERS.get(words.shape[1])
    if integer is not None:  # all booleans of a row are read as one integer
        return nonzero.view(integer).view(-1).nonzero()[:, 0]
    return nonzero.any(1).nonzero()[:, 0]


def set_bits(words: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of every set bit of (R, W) words, ordered by row, then column."""
    rows = rows_with_bits(words)
    row, column = bits_of(take(words, rows))
    return take(rows, row), column


def bits_of(words: Tensor) -> tuple[Tensor, Tensor]:
    """What ``set_bits`` returns, made for words of which most rows have a bit set."""
    width, words = words.shape[1], words.view(-1)
    word = words.bool().nonzero()[:, 0]
    octets = take(words, word).view(torch.uint8)
    if backend_of(words.device).asynchronous:
        bit = take(_masks(words.device), octets.int()).view(torch.bool).nonzero()[:, 0]
        return _rows_and_columns(take(word, bit >> 6), bit & 63, width)
    at = octets.nonzero()[:, 0]
    octet = take(octets, at).int()
    counts, positions = _octet_tables(words.device)
    count = take(counts, octet)
    total = int(count.sum())
    entry = 8 * octet  # the first position of each octet
    if total != at.shape[0]:
        owner = owners_of(count, total)
        rank = torch.arange(total, device=words.device) - take(offsets_of(count), owner)
        entry, at = take(entry, owner) + rank, take(at, owner)
    bit = take(positions, entry).add_(at & 7, alpha=8)
    return _rows_and_columns(take(word, at >> 3), bit, width)


def _rows_and_columns(word: Tensor, bit: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Row and column of bits (N,) in words (N,); width: words in a row."""
    if width == 1:
        return word, bit
    row = torch.div(word, width, rounding_mode="floor")
    return row, bit.add_(word.sub_(row, alpha=width), alpha=64)


@cache
def _octet_tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """The number of bits of each octet (256,), and the positions of its bits (256 * 8,)."""
    bits = (torch.arange(256)[:, None] >> torch.arange(8)) & 1
    positions = torch.argsort(bits, dim=1, descending=True, stable=True)
    return bits.sum(1).to(device), positions.view(-1).to(device)


@cache
def _masks(device: torch.device) -> Tensor:
    """The bits of each octet as eight booleans in a word, (256,)."""
    bits = (torch.arange(256)[:, None] >> torch.arange(8)) & 1
    return bits.bool().view(torch.int64)[:, 0].to(device)
