"""The partitions of many segments, as flat arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import Views, blocks_of, owners_of, take
from splinecam.geometry.paths import SegmentBatch
from splinecam.questions.partition_data import names_of
from splinecam.questions.paths import PathPartition
from splinecam.questions.pieces import Decisions, Pieces, decisions, mean_gradients, output_number

_BLOCK = 1 << 22  # points whose outputs are compared at a time


@dataclass(frozen=True)
class FirstChanges:
    """The first change of the class along each of S segments, (S,) each.

    t: its position, infinite where the class does not change; distance: from the start of the
    segment; before, after: the classes, both the same where there is no change.
    """

    t: Tensor
    distance: Tensor
    before: Tensor
    after: Tensor

    def __repr__(self) -> str:
        changed = int(self.t.isfinite().sum())
        return f"FirstChanges(in {changed:,} of {self.t.shape[0]:,} segments)"


class SegmentPartitions(Views[PathPartition]):
    """Many segments, each divided at the points where a unit of the network switches.

    The points of all segments lie one after the other in flat arrays. ``parts[i]`` is the
    ``PathPartition`` of one segment.

    segments: the segments; offsets: (S + 1,) where the points of each segment begin; t: (P,) their
    positions, from 0 to 1 on each segment; values: (P, n_out) the outputs there; value_error:
    (n_out,) a bound on their rounding errors along all segments; layers: the names of the
    non-linearities.

    >>> import splinecam as sc
    >>> segments = sc.Domain.segments([0.0, 0.0], [[1.0, 1.0], [-1.0, 1.0]])
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> parts = sc.along(net, segments, progress=False)
    >>> parts.counts.shape, parts.integrated_gradients().shape
    (torch.Size([2]), torch.Size([2, 2]))
    """

    _noun = "segment"

    def __init__(
        self, segments: SegmentBatch, pieces: Pieces, names: Sequence[str] | None = None
    ) -> None:
        self.segments, self.pieces = segments, pieces
        breaks = pieces.breaks
        self.offsets, self.t, self.values = breaks.offsets, breaks.t, breaks.values
        self.value_error, self.layer_errors = breaks.error, breaks.layer_errors
        self.layers = tuple(layer.name for layer in pieces.program.layers)
        self.names = names_of(names, self.values.shape[1])

    def __len__(self) -> int:
        return len(self.segments)

    def _view(self, index: int) -> PathPartition:
        return PathPartition(self.segments[index], self._part(index, index + 1), self.names)

    def _part(self, begin: int, end: int) -> Pieces:
        """The pieces of some consecutive segments."""
        first, last = self.offsets[[begin, end]].tolist()
        doubts = []
        for doubt in self.pieces.breaks.doubts:
            mine = (doubt.segment >= begin) & (doubt.segment < end)
            if bool(mine.any()):
                doubts.append(replace(doubt, segment=doubt.segment[mine] - begin, t=doubt.t[mine]))
        breaks = replace(
            self.pieces.breaks,
            offsets=self.offsets[begin : end + 1] - first,
            t=self.t[first:last],
            values=self.values[first:last],
            doubts=doubts,
        )
        starts, ends = self.pieces.starts[begin:end], self.pieces.ends[begin:end]
        return replace(self.pieces, starts=starts, ends=ends, breaks=breaks)

    def _blocks(self) -> list[tuple[int, int]]:
        """Runs of segments with so many points that little memory is needed besides the result."""
        return blocks_of(self.offsets.diff().cpu(), _BLOCK)

    @property
    def counts(self) -> Tensor:
        """The number of pieces of each segment, (S,)."""
        return self.offsets.diff() - 1

    @property
    def unresolved(self) -> int:
        """How many positions float64 could not settle, usually none; ``parts[i]`` tells where."""
        return sum(int(doubt.t.shape[0]) for doubt in self.pieces.breaks.doubts)

    def integrated_gradients(self, output: Any = None) -> Tensor:
        """Exact integrated gradients along each segment, ``(S, *input_shape)``.

        output: its number, or the name of its class; needed if there are several.
        """
        number = output_number(output, self.names, self.values.shape[1])
        found = []
        for begin, end in self._blocks():
            part = self._part(begin, end)
            found.append(mean_gradients(part, number, begin) * (part.ends - part.starts))
        return torch.cat(found).view(-1, *self.segments.input_shape)

    def total_variation(self, output: Any = None) -> Tensor:
        """How much the outputs change along each segment in all, up and down: (S, n_out).

        output: the number or the name of one output, for which the result is (S,).
        """
        columns = slice(None)
        if output is not None:
            number = output_number(output, self.names, self.values.shape[1])
            columns = slice(number, number + 1)
        found = []
        for begin, end in self._blocks():
            part = self._part(begin, end)
            change = part.breaks.values[:, columns].diff(dim=0).abs_()
            change[part.breaks.offsets[1:-1] - 1] = 0.0  # from one segment to the next
            owner = owners_of(part.counts, part.breaks.t.shape[0])[:-1]
            total = change.new_zeros((end - begin, change.shape[1]))
            found.append(total.index_add_(0, owner, change))
        varied = torch.cat(found)
        return varied if output is None else varied[:, 0]

    def decisions(self, level: float = 0.0) -> Decisions:
        """The classes along all segments, as intervals; see ``Decisions``."""
        found = []
        for begin, end in self._blocks():
            one = decisions(self._part(begin, end), level)
            found.append((one.segment + begin, one.begin, one.label))
        segment, at, label = (torch.cat(column) for column in zip(*found, strict=True))
        return Decisions(segment, at, label)

    def first_changes(self, level: float = 0.0) -> FirstChanges:
        """The first change of the class along each segment.

        The class is the largest output; of one output it is 1 above the level, else 0.
        """
        found = self.decisions(level)
        first = found.is_first.nonzero()[:, 0]
        before = take(found.label, first)
        after, t = before.clone(), torch.full_like(self.pieces.starts[:, 0], torch.inf)
        second = (first + 1).clamp(max=found.label.shape[0] - 1)
        changed = (~take(found.is_first, second) & (second > first)).nonzero()[:, 0]
        t[changed] = found.begin[second[changed]]
        after[changed] = found.label[second[changed]]
        return FirstChanges(t, t * self.segments.lengths.to(t.device), before, after)

    def __repr__(self) -> str:
        pieces, count = int(self.t.shape[0]) - len(self), len(self)
        return f"SegmentPartitions({count:,} segment{'s' * (count != 1)}, {pieces:,} pieces)"
