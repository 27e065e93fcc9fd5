"""Where the set bits of words are, and whole rows of words without any."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from splinecam.ragged import offsets_of, owners_of, take

__all__ = ["rows_with_bits", "set_bits"]

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
    rows, width = rows_with_bits(words), words.shape[1]
    words = take(words, rows).view(-1)
    word = words.bool().nonzero()[:, 0]
    octets = take(words, word).view(torch.uint8)
    at = octets.nonzero()[:, 0]
    octet = take(octets, at).int()
    counts, places = _octet_tables(words.device)
    offsets = offsets_of(take(counts, octet))
    total = int(offsets[-1])
    first = offsets[:-1]
    if total != at.shape[0]:
        owner = owners_of(take(counts, octet), total)
        octet, at, first = take(octet, owner), take(at, owner), take(first, owner)
    rank = torch.arange(total, device=words.device) - first
    bit = take(places, 8 * octet + rank) + 8 * (at & 7)
    word = take(word, at >> 3)
    if width == 1:
        return take(rows, word), bit
    row = torch.div(word, width, rounding_mode="floor")
    return take(rows, row), 64 * (word - width * row) + bit


@cache
def _octet_tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """How many bits each octet has, (256,), and the places of the first, the second, ..."""
    bits = (torch.arange(256)[:, None] >> torch.arange(8)) & 1
    places = torch.argsort(bits, dim=1, descending=True, stable=True)
    return bits.sum(1).to(device), places.view(-1).to(device)
