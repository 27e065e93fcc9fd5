"""Where the set bits of words are, and whole rows of words without any."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import offsets_of, owners_of, take

__all__ = ["bits_of", "rows_with_bits", "set_bits"]

# Numbers as wide as so many booleans.
_WIDE = {1: torch.bool, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def rows_with_bits(words: Tensor) -> Tensor:
    """The rows of (R, W) words that have any bit set, (N,)."""
    marked = words.bool()
    whole = _WIDE.get(words.shape[1])
    if whole is not None:  # the marks of a row are one number
        return marked.view(whole).view(-1).nonzero()[:, 0]
    return marked.any(1).nonzero()[:, 0]


def set_bits(words: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of every set bit of (R, W) words, ordered by row, then column."""
    rows = rows_with_bits(words)
    row, column = bits_of(take(words, rows))
    return take(rows, row), column


def bits_of(words: Tensor) -> tuple[Tensor, Tensor]:
    """What ``set_bits`` gives, made for words of which most rows have a bit set."""
    width, words = words.shape[1], words.view(-1)
    word = words.bool().nonzero()[:, 0]
    octets = take(words, word).view(torch.uint8)
    if backend_of(words.device).asynchronous:
        bit = take(_masks(words.device), octets.int()).view(torch.bool).nonzero()[:, 0]
        return _rows_and_columns(take(word, bit >> 6), bit & 63, width)
    at = octets.nonzero()[:, 0]
    octet = take(octets, at).int()
    counts, places = _octet_tables(words.device)
    count = take(counts, octet)
    total = int(count.sum())
    which = 8 * octet  # the first place of each octet
    if total != at.shape[0]:
        owner = owners_of(count, total)
        rank = torch.arange(total, device=words.device) - take(offsets_of(count), owner)
        which, at = take(which, owner) + rank, take(at, owner)
    bit = take(places, which).add_(at & 7, alpha=8)
    return _rows_and_columns(take(word, at >> 3), bit, width)


def _rows_and_columns(word: Tensor, bit: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Of bits (N,) of words (N,), so many of which are a row."""
    if width == 1:
        return word, bit
    row = torch.div(word, width, rounding_mode="floor")
    return row, bit.add_(word.sub_(row, alpha=width), alpha=64)


@cache
def _octet_tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """How many bits each octet has, (256,), and the places of the first, the second, ..."""
    bits = (torch.arange(256)[:, None] >> torch.arange(8)) & 1
    places = torch.argsort(bits, dim=1, descending=True, stable=True)
    return bits.sum(1).to(device), places.view(-1).to(device)


@cache
def _masks(device: torch.device) -> Tensor:
    """The bits of each octet as eight booleans in a word, (256,)."""
    bits = (torch.arange(256)[:, None] >> torch.arange(8)) & 1
    return bits.bool().view(torch.int64)[:, 0].to(device)
