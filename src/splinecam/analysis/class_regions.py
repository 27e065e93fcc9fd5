"""The part of the domain that each class has: exact areas, convex cells and polygons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from splinecam.analysis.boundary import Kind, check_kind, doubts_of, winners_of
from splinecam.analysis.class_names import class_number
from splinecam.analysis.partition_data import PartitionData, Unresolved
from splinecam.analysis.winners import Winners
from splinecam.errors import SplineCamError
from splinecam.geometry.rings import Outlines, outlines

__all__ = ["ClassPolygon", "ClassRegions", "class_regions"]


@dataclass(frozen=True)
class ClassPolygon:
    """A connected piece of a class: outline (k, 2) counter-clockwise, holes (k, 2) clockwise."""

    outline: Tensor
    holes: tuple[Tensor, ...]
    area: float

    def __repr__(self) -> str:
        holes = f", {len(self.holes)} hole{'s' * (len(self.holes) != 1)}" if self.holes else ""
        return f"ClassPolygon({self.outline.shape[0]} vertices{holes}, area {self.area:.4g})"


@dataclass(frozen=True, eq=False, repr=False)
class ClassRegions:
    """The domain divided by class: regions, cut where the decision changes, into C convex cells.

    Where several classes are equal on a whole cell, the first of them has it.
    """

    partition: PartitionData
    n_classes: int
    kind: Kind
    level: float

    @cached_property
    def winners(self) -> Winners:
        """The winner of each cell."""
        return winners_of(self.partition, self.kind, self.level, whole=True)

    @cached_property
    def _borders(self) -> Winners:
        """The same, without the regions that one class has to itself."""
        return winners_of(self.partition, self.kind, self.level, whole=False)

    @property
    def cell_class(self) -> Tensor:
        """The class of each cell, (C,)."""
        return self.winners.winner

    @property
    def cell_region(self) -> Tensor:
        """The region in which each cell lies, (C,)."""
        return self.winners.overlay.face

    @property
    def cell_offsets(self) -> Tensor:
        """Where each cell's corners begin in ``cell_corners``, (C + 1,)."""
        return self.winners.overlay.mesh.offsets

    @cached_property
    def cell_corners(self) -> Tensor:
        """Plane coordinates of the cells' corners, counter-clockwise, cell after cell, (H, 2)."""
        mesh = self.winners.overlay.mesh
        return self.partition.frame.to_plane(mesh.uv)[mesh.corner_vertices()]

    @cached_property
    def cell_areas(self) -> Tensor:
        """Area of each cell, (C,)."""
        return self._areas_of(self.winners)

    def _areas_of(self, found: Winners) -> Tensor:
        return found.overlay.mesh.areas_and_centroids()[0] * self.partition.frame.scale**2

    @cached_property
    def cell_leads(self) -> Tensor:
        """By how much each cell's class leads, on average of its corners, (C,)."""
        made = self.winners.overlay
        top = torch.topk(made.mesh.sums(made.z[made.mesh.corner_vertices()]), 2, 1).values
        return (top[:, 0] - top[:, 1]) / made.mesh.counts()

    @cached_property
    def areas(self) -> Tensor:
        """Area of each class, (n_classes,); they add up to the domain's."""
        found, areas = self._borders, self.partition.areas
        alone = (found.settled >= 0).nonzero()[:, 0]
        total = areas.new_zeros(self.n_classes)
        total.index_add_(0, found.settled[alone], areas[alone])
        return total.index_add_(0, found.winner, self._areas_of(found))

    @property
    def tied_area(self) -> float:
        """Area on which two classes or more are equal, which counts for the first of them."""
        return float(self._areas_of(self._borders)[self._borders.tied].sum())

    @property
    def unresolved(self) -> tuple[Unresolved, ...]:
        """Places that float64 could not settle (usually none)."""
        return doubts_of(self.partition, self._borders.overlay.ambiguities, "class regions")

    @cached_property
    def _outlines(self) -> Outlines:
        return outlines(self.winners.overlay.mesh, self.cell_class)

    def polygons(self, number: int | str) -> list[ClassPolygon]:
        """The connected pieces of one class, given by number or name, the largest first."""
        chosen = class_number(number, self.partition.names, self.n_classes)
        return sorted(self._polygons(chosen), key=lambda piece: -piece.area)

    def _polygons(self, number: int) -> Iterator[ClassPolygon]:
        made, mesh = self._outlines, self.winners.overlay.mesh
        piece = made.ring_piece
        rings = (made.piece_label[piece] == number).nonzero()[:, 0]
        uv = self.partition.frame.to_plane(mesh.uv)[mesh.edges.view(-1)[made.halves]]
        scale = self.partition.frame.scale**2
        areas = self.cell_areas.new_zeros(made.piece_label.shape).index_add_(
            0, piece, made.ring_area * scale
        )
        pieces: dict[int, list[Tensor]] = {}
        for ring in rings.tolist():  # outer rings come first
            line = uv[made.offsets[ring] : made.offsets[ring + 1]]
            pieces.setdefault(int(piece[ring]), []).append(line)
        for index, (outline, *holes) in pieces.items():
            yield ClassPolygon(outline, tuple(holes), float(areas[index]))

    def boundary_length(self) -> float:
        """Length of the borders between classes, from the outlines of their polygons."""
        made, mesh = self._outlines, self.winners.overlay.mesh
        inner = made.halves[(mesh.halfedge_face()[made.halves ^ 1] >= 0)]
        ends = mesh.uv[mesh.edges.view(-1)[torch.stack([inner, inner ^ 1])]]
        sides = torch.linalg.vector_norm(ends[1] - ends[0], dim=1)
        return float(sides.sum()) * self.partition.frame.scale / 2

    def _repr_html_(self) -> str:
        """A small picture and the shares of the classes, as notebooks show it."""
        from splinecam.plot.notebook import class_regions_card

        return class_regions_card(self)

    def __repr__(self) -> str:
        share = (self.areas / self.areas.sum()).tolist()
        top = sorted(range(self.n_classes), key=lambda k: -share[k])[:5]
        names = self.partition.names or range(self.n_classes)
        parts = [f"{names[k]}: {100 * share[k]:.3g} %" for k in top if share[k] > 0]
        more = ", ..." if self.n_classes > 5 and int((self.areas > 0).sum()) > 5 else ""
        return f"ClassRegions({', '.join(parts)}{more})"


def class_regions(
    part: PartitionData, *, kind: Kind = "argmax", level: float = 0.0
) -> ClassRegions:
    """Divide the domain by class; with one output, class 1 is above ``level`` and 0 is the rest.

    >>> import splinecam as sc, torch
    >>> model = torch.nn.Linear(2, 2)
    >>> part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    >>> round(float(part.class_regions().areas.sum()), 12)
    4.0
    """
    n, level = check_kind(part, kind, level)
    if kind == "pairwise":
        raise SplineCamError('Classes are decided by kind="argmax" or "argmin", not "pairwise".')
    return ClassRegions(part, n, kind, level)
