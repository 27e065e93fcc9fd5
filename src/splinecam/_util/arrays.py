"""Ragged arrays (CSR): rows of different lengths in one flat tensor; set bits; views.

A ragged array has counts (R,), the length of each row; offsets (R + 1,), the first entry of each
row; and owners (N,), the row of each entry.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.text import optional

# Bits of a sort key. Short keys sort twice as fast, if enough bits are left for a fraction.
_SHORT, _LONG, _ENOUGH = 31, 63, 10
_MANTISSA = 52

_EXCHANGES = 8  # rounds of exchanging neighbours, before everything is sorted exactly

_FEW = 1 << 12  # entries up to which fewer operations are faster than fewer passes


def take(x: Tensor, index: Tensor) -> Tensor:
    """``x[index]`` along the first axis, twice as fast on a CPU."""
    return x.index_select(0, index)


def as_rows(x: Tensor, lead: int = 1) -> Tensor:
    """Values with some leading dimensions as vectors; a single number is a vector, too."""
    return x.flatten(lead) if x.dim() > lead else x.unsqueeze(lead)


def lengths(d: Tensor) -> Tensor:
    """Euclidean lengths of vectors (..., 2); ``norm`` is much slower for short rows."""
    return (d[..., 0].square() + d[..., 1].square()).sqrt()


def take_each(x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    """The rows of ``x[:, index]``, in one operation on a GPU."""
    if backend_of(index.device).asynchronous:
        return x.index_select(1, index).unbind()
    return tuple(take(row, index) for row in x)


def places_in(mask: Tensor, count: int) -> Tensor:
    """Where a mask (N,) is set. As the count is known, the host need not wait for a GPU."""
    if backend_of(mask.device).asynchronous:
        rank = torch.cumsum(mask, 0).mul_(mask)  # from 1 on; entry 0 is discarded
        index = torch.arange(mask.shape[0], device=mask.device)
        return rank.new_empty(count + 1).scatter_(0, rank, index)[1:]
    return mask.nonzero()[:, 0]


def offsets_of(counts: Tensor) -> Tensor:
    """The first entry of each row, with the total appended: ``counts (R,) -> (R + 1,)``."""
    out = counts.new_zeros(counts.shape[0] + 1)
    torch.cumsum(counts, 0, out=out[1:])
    return out


def counts_of(owners: Tensor, rows: int) -> Tensor:
    """The number of entries of each row, (rows,); unlike ``bincount``, a GPU need not wait."""
    return owners.new_zeros(rows).scatter_add_(0, owners, torch.ones_like(owners))


def owners_of(counts: Tensor, total: int | None = None) -> Tensor:
    """The row of every entry: ``[2, 0, 3] -> [0, 0, 2, 2, 2]``."""
    if total is not None and backend_of(counts.device).asynchronous:
        return torch.repeat_interleave(counts, output_size=total)
    if total is not None and total < _FEW:
        return _repeated(torch.arange(counts.shape[0], device=counts.device), counts, total)
    begin = torch.cumsum(counts, 0)
    if total is None:
        total = int(begin[-1]) if begin.shape[0] else 0
    # A running sum of ones at the ends of the rows is several times faster than repeating.
    steps = counts.new_zeros(total + 1).scatter_add_(0, begin, torch.ones_like(counts))
    return torch.cumsum(steps, 0, out=steps)[:total]


def _repeated(values: Tensor, counts: Tensor, total: int) -> Tensor:
    """Each value as often as its count says; numpy does so without waking other threads."""
    if backend_of(counts.device).numpy_memory:
        return torch.from_numpy(np.repeat(values.numpy(), counts.numpy()))
    return torch.repeat_interleave(values, counts, output_size=total)


def places_of(counts: Tensor, owners: Tensor, offsets: Tensor) -> Tensor:
    """The position of every entry in its row: ``[2, 0, 3] -> [0, 1, 0, 1, 2]``."""
    return torch.arange(owners.shape[0], device=counts.device) - take(offsets, owners)


def take_rows(offsets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The flat indices of the entries of chosen rows, row by row, and the counts of these rows."""
    begin, end = take(offsets, rows), take(offsets[1:], rows)
    counts = end - begin
    return entries_of(begin, end, offsets_of(counts)), counts


def entries_of(begin: Tensor, end: Tensor, offsets: Tensor, total: int | None = None) -> Tensor:
    """The indices begin[0], ..., end[0] - 1, begin[1], ...; offsets: (R + 1,) of the rows."""
    if total is None:
        total = int(offsets[-1])
    if total < _FEW and not backend_of(begin.device).asynchronous:
        shift = _repeated(begin - offsets[:-1], end - begin, total)
        return shift.add_(torch.arange(total, device=shift.device))
    gaps = begin - 1
    torch.sub(begin[1:], end[:-1], out=gaps[1:])
    steps = begin.new_ones(total + 1).scatter_add_(0, offsets[:-1], gaps)
    return torch.cumsum(steps, 0, out=steps)[:total]


def following(offsets: Tensor, total: int) -> Tensor:
    """The entry after each entry of its row, (N,); the last one is followed by the first."""
    after = torch.arange(1, total + 2, device=offsets.device)
    begin, end = offsets[:-1], offsets[1:]
    return after.scatter_(0, torch.where(end > begin, end - 1, total), begin)[:total]


def blocks_of(counts: Tensor, limit: int) -> list[tuple[int, int]]:
    """Divide rows into runs (first, last + 1) with about ``limit`` entries each."""
    starts = offsets_of(counts)[:-1]
    runs = torch.unique_consecutive(starts // limit, return_counts=True)[1]
    return list(pairwise([0, *torch.cumsum(runs, 0).tolist()]))


def sort_rows(row: Tensor, s: Tensor, rows: int = 1 << 32) -> tuple[Tensor, Tensor, Tensor]:
    """The order of entries by row, below ``rows``, then ``s`` in [0, 1], and both in that order."""
    # One sort of (row, leading bits of s) is several times faster than two sorts. Neighbours with
    # equal leading bits that it leaves in the wrong order are exchanged afterwards.
    if backend_of(s.device).asynchronous:  # keys row + s in float64
        below = 1 - 2.0 ** (rows.bit_length() - _MANTISSA)
        key, order = torch.sort(torch.add(row, s, alpha=below), stable=True)
        at = key.long()
    else:
        key, bits = _keys(row, s, rows)
        key, order = torch.sort(key, stable=True)
        at = (key >> bits).long()
    for _ in range(_EXCHANGES):
        along = take(s, order)
        wrong = ((at[1:] == at[:-1]) & (along[1:] < along[:-1])).nonzero()[:, 0]
        if not wrong.shape[0]:
            return order, at, along
        _exchange(order, wrong)
    by_s = torch.sort(s, stable=True).indices
    order = take(by_s, torch.sort(take(row, by_s), stable=True).indices)
    return order, at, take(s, order)


def _keys(row: Tensor, s: Tensor, rows: int) -> tuple[Tensor, int]:
    """Integer sort keys of the row and leading bits of ``s``, and the number of these bits."""
    high = rows.bit_length()
    short = _SHORT - high >= _ENOUGH
    bits = _SHORT - high if short else min(_SHORT, _LONG - high)
    key = (s * (1 << bits)).long().clamp_(0, (1 << bits) - 1)
    key += row << bits
    return key.int() if short else key, bits


def _exchange(order: Tensor, wrong: Tensor) -> None:
    """Exchange the pairs that begin at given positions; of overlapping pairs every other one."""
    index = torch.arange(wrong.shape[0], device=wrong.device)
    follows = torch.zeros_like(wrong, dtype=torch.bool)
    follows[1:] = wrong[1:] - wrong[:-1] == 1
    run = torch.cummax(torch.where(follows, 0, index), 0).values
    turned = wrong[(index - run) % 2 == 0]
    order[turned], order[turned + 1] = order[turned + 1], order[turned]


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
    """The result of ``set_bits``, for words in which most rows have a bit set."""
    width, words = words.shape[1], words.view(-1)
    word = words.bool().nonzero()[:, 0]
    octets = take(words, word).view(torch.uint8)
    if backend_of(words.device).asynchronous:
        masks = _octet_tables(words.device)[2]
        bit = take(masks, octets.int()).view(torch.bool).nonzero()[:, 0]
        return _rows_and_columns(take(word, bit >> 6), bit & 63, width)
    at = octets.nonzero()[:, 0]
    octet = take(octets, at).int()
    counts, positions, _ = _octet_tables(words.device)
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
def _octet_tables(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Of each octet: the number of bits (256,), their positions (256 * 8,), and eight booleans."""
    bits = (torch.arange(256)[:, None] >> torch.arange(8)) & 1
    positions = torch.argsort(bits, dim=1, descending=True, stable=True)
    masks = bits.bool().view(torch.int64)[:, 0]
    return bits.sum(1).to(device), positions.view(-1).to(device), masks.to(device)


class Columns:
    """The base of dataclasses whose fields are tensors with a row for each item."""

    def select(self, chosen: Tensor | slice) -> Self:
        """Some of the items."""
        return type(self)(*(column[chosen] for column in vars(self).values()))

    @classmethod
    def join(cls, *parts: Self) -> Self:
        """The items of all parts."""
        return cls(*map(torch.cat, zip(*(vars(part).values() for part in parts), strict=True)))


View = TypeVar("View")


class Views(ABC, Generic[View]):
    """Items in order, item i made by ``_view(i)``; ``_noun`` is what an error calls an item."""

    _noun: ClassVar[str] = "item"

    @abstractmethod
    def _view(self, index: int) -> View: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, index: int) -> View: ...
    @overload
    def __getitem__(self, index: slice) -> list[View]: ...
    def __getitem__(self, index: int | slice) -> View | list[View]:
        if isinstance(index, slice):
            return [self._view(i) for i in range(*index.indices(len(self)))]
        position = operator.index(index)  # also accepts integer tensors and numpy integers
        if not -len(self) <= position < len(self):
            raise IndexError(
                f"{self._noun} {position} of {len(self):,} {self._noun}s, numbered from 0"
            )
        return self._view(position % len(self))

    def __iter__(self) -> Iterator[View]:
        return (self._view(i) for i in range(len(self)))


def polygons(offsets: Tensor, points: Tensor) -> NDArray[Any]:
    """The polygons (R,) whose corners are the rows of points (H, 2) that begin at offsets."""
    shapely = optional("shapely", "to_shapely", "shapely")
    found: NDArray[Any] = shapely.polygons(_rows(shapely.linearrings, offsets, points))
    return found


def line_strings(offsets: Tensor, points: Tensor) -> NDArray[Any]:
    """The lines (R,) through the rows of points (H, 2) that begin at offsets."""
    shapely = optional("shapely", "to_shapely", "shapely")
    return _rows(shapely.linestrings, offsets, points)


def multi_polygons(
    offsets: Tensor, points: Tensor, owners: Tensor, labels: Tensor, count: int
) -> NDArray[Any]:
    """The polygons of each label 0, ..., count - 1 together, (count,).

    offsets, points: the rings, as rows; owners: (R,) the polygon of each ring, ascending, the outer
    ring first; labels: (P,) of the polygons.
    """
    shapely = optional("shapely", "to_shapely", "shapely")
    rings = _rows(shapely.linearrings, offsets, points)
    pieces = shapely.polygons(rings, indices=owners.cpu().numpy())
    torn = ~shapely.is_valid(pieces)
    pieces[torn] = shapely.make_valid(pieces[torn], method="structure")
    label = labels.cpu().numpy()
    simple, piece = shapely.get_parts(pieces, return_index=True)
    order = np.argsort(label[piece], kind="stable")
    found = np.full(count, shapely.MultiPolygon(), dtype=object)
    shapely.multipolygons(simple[order], indices=label[piece][order], out=found)
    return found


def _rows(make: Any, offsets: Tensor, points: Tensor) -> NDArray[Any]:
    """What a constructor of shapely makes of each row."""
    counts = offsets.diff().cpu().numpy()
    if not len(counts):
        return np.empty(0, dtype=object)
    owner = np.repeat(np.arange(len(counts)), counts)
    found: NDArray[Any] = make(points.detach().cpu().numpy(), indices=owner)
    return found
