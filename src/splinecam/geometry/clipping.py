"""Convex polygons that lines divide, many at once; unlike the faces of a mesh they may overlap."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.csr import following, offsets_of, owners_of, take, take_rows
from splinecam.geometry.subdivision import Mesh

__all__ = ["ConvexPolygons", "joined"]


@dataclass(frozen=True)
class ConvexPolygons:
    """P convex polygons with N corners, and m numbers at every corner that are affine on each.

    offsets: (P + 1,) the place where the corners of each polygon begin, counter-clockwise; uv:
    (N, 2) the corners; values: (N, m) the numbers; source: (P,) what each polygon is a part of.
    """

    offsets: Tensor
    uv: Tensor
    values: Tensor
    source: Tensor

    @classmethod
    def of_faces(cls, mesh: Mesh, faces: Tensor, values: Tensor) -> ConvexPolygons:
        """Some faces (P,) of a mesh with values (V, m) at its vertices; they are the sources."""
        entries, counts = take_rows(mesh.offsets, faces)
        vertex = take(mesh.edges.view(-1), take(mesh.corners, entries))
        return cls(offsets_of(counts), take(mesh.uv, vertex), take(values, vertex), faces)

    def __len__(self) -> int:
        return int(self.source.shape[0])

    @property
    def counts(self) -> Tensor:
        """The number of corners of each polygon, (P,)."""
        return self.offsets.diff()

    @property
    def owners(self) -> Tensor:
        """The polygon of each corner, (N,)."""
        return owners_of(self.counts, self.uv.shape[0])

    def areas(self) -> Tensor:
        """The area of each polygon, (P,), from coordinates relative to its first corner."""
        corner, owner = self.uv - take(self.uv, self.offsets[self.owners]), self.owners
        ahead = take(corner, following(self.offsets, corner.shape[0]))
        cross = corner[:, 0] * ahead[:, 1] - corner[:, 1] * ahead[:, 0]
        doubled = cross.new_zeros(len(self)).index_add_(0, owner, cross)
        return doubled.clamp(min=0) / 2

    def select(self, chosen: Tensor) -> ConvexPolygons:
        """Some of the polygons, by their numbers (Q,)."""
        entries, counts = take_rows(self.offsets, chosen)
        uv, values = (take(each, entries) for each in (self.uv, self.values))
        return ConvexPolygons(offsets_of(counts), uv, values, take(self.source, chosen))

    def split(self, h: Tensor) -> tuple[ConvexPolygons, ConvexPolygons]:
        """The parts on which a function, h (N,) at the corners, is positive, and the others.

        A polygon that the function only touches with its zeros is not divided; if it is zero on all
        of a polygon, that is not positive.
        """
        owner, zero = self.owners, torch.zeros_like(self.source)
        above = zero.index_add(0, owner, (h > 0).long()) > 0
        below = (zero.index_add(0, owner, (h < 0).long()) > 0) | ~above
        if not bool(above.any()) or not bool(below.any()):
            none = self.select(self.source.new_zeros(0))
            return (self, none) if bool(above.any()) else (none, self)
        both = (above & below).nonzero()[:, 0]
        cut, inside = self.select(both), take(h, take_rows(self.offsets, both)[0])
        sides = zip((above & ~below, below & ~above), (inside, -inside), strict=True)
        positive, other = (
            joined([self.select(whole.nonzero()[:, 0]), cut._clipped(side)])
            for whole, side in sides
        )
        return positive, other

    def _clipped(self, h: Tensor) -> ConvexPolygons:
        """The parts with positive h (N,), which is positive and negative on every polygon."""
        ahead = following(self.offsets, h.shape[0])
        after = take(h, ahead)
        kept, crossed = h >= 0, (h > 0) & (after < 0) | (h < 0) & (after > 0)
        place = offsets_of(kept.long() + crossed.long())
        share = (h / (h - torch.where(crossed, after, h - 1)))[crossed, None]

        def corners(x: Tensor) -> Tensor:
            found = x.new_empty((int(place[-1]), *x.shape[1:]))
            found[place[:-1][kept]] = x[kept]
            start = x[crossed]
            met = start + share * (take(x, ahead[crossed]) - start)
            found[place[:-1][crossed] + kept[crossed].long()] = met
            return found

        offsets = take(place, self.offsets)
        return ConvexPolygons(offsets, corners(self.uv), corners(self.values), self.source)


def joined(parts: list[ConvexPolygons]) -> ConvexPolygons:
    """All polygons of several lists in one; each has the same number of values."""
    parts = [part for part in parts if len(part)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    counts = torch.cat([part.counts for part in parts])
    columns = zip(*((part.uv, part.values, part.source) for part in parts), strict=True)
    return ConvexPolygons(offsets_of(counts), *(torch.cat(column) for column in columns))
