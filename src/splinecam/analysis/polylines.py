"""Polylines: the chains that the segments of curves form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from splinecam._util.connectivity import chains
from splinecam._util.csr import offsets_of, owners_of, take
from splinecam._util.views import Views
from splinecam.analysis.segments import Segments

__all__ = ["Polyline", "Polylines", "polylines"]


def polylines(curves: Segments) -> Polylines:
    """The longest chains of segments of one label through points where just two of them meet.

    They are ordered by label and then by lowest segment, and have the direction of that segment;
    closed ones begin with it.
    """
    ends = curves.segments
    found = chains(ends, curves.label)
    counts = found.offsets[1:] - found.offsets[:-1]
    offsets = offsets_of(counts + (~found.closed).long())
    # Each segment contributes its first point, and the last one of an open line both points.
    along = take(ends, found.members)
    along = torch.where(found.backward[:, None], along.flip(1), along)
    points = ends.new_empty(int(offsets[-1]))
    shift = take(offsets[:-1] - found.offsets[:-1], owners_of(counts, len(curves)))
    points[torch.arange(len(curves), device=ends.device) + shift] = along[:, 0]
    points[offsets[1:][~found.closed] - 1] = along[found.offsets[1:][~found.closed] - 1, 1]
    label = take(curves.label, take(found.members, found.offsets[:-1]))
    return Polylines(curves, offsets, points, found.members, found.closed, label)


@dataclass(frozen=True, eq=False, repr=False)
class Polylines(Views["Polyline"]):
    """The polylines of curves, as a sequence of views.

    curves: the segments; offsets: (L + 1,) the place in ``points`` where each line begins; points:
    the indices of the points in order, without the first one again at the end of a closed line;
    segments: (S,) the segments in order along the lines, which begin at ``segment_offsets``;
    closed: (L,) whether each line is; label: (L,) the curve that it belongs to.
    """

    curves: Segments
    offsets: Tensor
    points: Tensor
    segments: Tensor
    closed: Tensor
    label: Tensor

    _noun: ClassVar[str] = "polyline"

    def __len__(self) -> int:
        return int(self.label.shape[0])

    def _view(self, index: int) -> Polyline:
        return Polyline(self, index)

    @cached_property
    def segment_offsets(self) -> Tensor:
        """The place in ``segments`` where each line begins, (L + 1,)."""
        return self.offsets - offsets_of((~self.closed).long())

    @cached_property
    def lengths(self) -> Tensor:
        """Length of each line, (L,)."""
        line = owners_of(self.segment_offsets[1:] - self.segment_offsets[:-1])
        each = take(self.curves.lengths, self.segments)
        return each.new_zeros(len(self)).index_add_(0, line, each)

    def __repr__(self) -> str:
        return f"Polylines({len(self):,}, {int(self.closed.sum()):,} of them closed)"


@dataclass(frozen=True, eq=False, repr=False)
class Polyline:
    """One polyline; the last point of a closed one is joined to the first."""

    lines: Polylines
    index: int

    @property
    def points(self) -> Tensor:
        """Plane coordinates of the points in order, (k, 2); the first is not repeated."""
        start, end = self.lines.offsets[self.index : self.index + 2].tolist()
        return self.lines.curves.points[self.lines.points[start:end]]

    @property
    def path(self) -> Tensor:
        """The points, and for a closed line the first one again at the end, for drawing."""
        return torch.cat([self.points, self.points[:1]]) if self.closed else self.points

    @property
    def segments(self) -> Tensor:
        """The segments in order, as indices into the curves."""
        start, end = self.lines.segment_offsets[self.index : self.index + 2].tolist()
        return self.lines.segments[start:end]

    @property
    def closed(self) -> bool:
        """Whether the line ends where it begins."""
        return bool(self.lines.closed[self.index])

    @property
    def length(self) -> float:
        """Length of the line."""
        return float(self.lines.lengths[self.index])

    @property
    def label(self) -> int:
        """The label of the curve that the line belongs to."""
        return int(self.lines.label[self.index])

    @property
    def key(self) -> Any:
        """What the label stands for, such as a pair of classes."""
        return self.lines.curves.key(self.label)

    def __repr__(self) -> str:
        kind, count = "closed" if self.closed else "open", len(self.segments)
        segments = f"{count:,} segment{'s' * (count != 1)}"
        return f"Polyline({self.key}, {kind}, {segments}, length {self.length:.4g})"
