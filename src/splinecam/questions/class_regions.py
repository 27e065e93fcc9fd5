"""The part of the domain that belongs to each class: exact areas, convex cells and polygons."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.arrays import lengths, multi_polygons, offsets_of, take, take_rows
from splinecam.geometry.outlines import Outlines, closed_lines, outlines
from splinecam.geometry.subdivision import Mesh
from splinecam.questions.boundary import Kind, check_kind, unresolved_places, winners_of
from splinecam.questions.certainty import Band, certainty_of, class_areas, class_band
from splinecam.questions.curves import Curves
from splinecam.questions.partition_data import PartitionData, Unresolved, class_number, counted
from splinecam.questions.wanted import Wanted
from splinecam.questions.winners import Winners


@dataclass(frozen=True)
class ClassPolygon:
    """A connected piece of a class: outline (k, 2) counter-clockwise, holes (k, 2) clockwise."""

    outline: Tensor
    holes: tuple[Tensor, ...]
    area: float

    def __repr__(self) -> str:
        holes = f", {counted(len(self.holes), 'hole')}" if self.holes else ""
        return f"ClassPolygon({self.outline.shape[0]} vertices{holes}, area {self.area:.4g})"


@dataclass(frozen=True, eq=False)
class LabelledCells:
    """The pieces that neighbouring cells with the same label form; region, label: (C,) of cells."""

    partition: PartitionData
    mesh: Mesh
    region: Tensor
    label: Tensor

    @cached_property
    def outlines(self) -> Outlines:
        """The outlines of all pieces, as half-edges of the mesh."""
        return outlines(self.mesh, self.label)

    @cached_property
    def _corners(self) -> Tensor:
        """Plane coordinates of the points where the half-edges of all outlines begin."""
        vertex = self.mesh.edges.view(-1)[self.outlines.halves]
        return self.partition._frame.to_plane(self.mesh.uv)[vertex]

    def polygons(self, chosen: Tensor) -> list[ClassPolygon]:
        """The pieces that a mask (P,) chooses, the largest first."""
        found, piece = self.outlines, self.outlines.ring_piece
        areas = self._corners.new_zeros(found.piece_label.shape)
        areas.index_add_(0, piece, found.ring_area * self.partition._frame.scale**2)
        rings: dict[int, list[Tensor]] = {}
        for ring in chosen[piece].nonzero()[:, 0].tolist():
            line = self._corners[found.offsets[ring] : found.offsets[ring + 1]]
            rings.setdefault(int(piece[ring]), []).append(line)
        pieces = [  # the first ring of a piece is the outer one
            ClassPolygon(outline, tuple(holes), float(areas[index]))
            for index, (outline, *holes) in rings.items()
        ]
        return sorted(pieces, key=lambda piece: -piece.area)

    def rings(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """The closed outlines of pieces that a mask (P,) chooses: offsets, and points (N, 2)."""
        rings = chosen[self.outlines.ring_piece].nonzero()[:, 0]
        entries, counts = take_rows(self.outlines.offsets, rings)
        offsets, places = closed_lines(offsets_of(counts))
        return offsets, self._corners[entries[places]]

    def to_shapely(self, labels: int) -> NDArray[Any]:
        """The pieces of each label as one of shapely's MultiPolygons, (labels,)."""
        found = self.outlines
        pieces = found.ring_piece, found.piece_label
        return multi_polygons(found.offsets, self._corners, *pieces, labels)

    def outline(self, inside: Tensor) -> Curves:
        """The border of the cells that a mask (C,) chooses, without the border of the mesh."""
        beside = self.mesh.halfedge_face().view(-1, 2)
        chosen = take(inside, beside.clamp(min=0).view(-1)).view(-1, 2)
        edge = ((chosen[:, 0] != chosen[:, 1]) & (beside >= 0).all(1)).nonzero()[:, 0]
        return self.curves(edge)

    def curves(self, edge: Tensor) -> Curves:
        """Some edges (N,) of the mesh as curves with the label 0."""
        used, segments = torch.unique(self.mesh.edges[edge], return_inverse=True)
        points = self.partition._frame.to_plane(self.mesh.uv[used])
        beside = self.mesh.halfedge_face().view(-1, 2)[edge]
        regions = torch.where(beside < 0, -1, self.region[beside.clamp(min=0)])
        segments = segments.view(-1, 2)
        return Curves(self.partition, points, segments, regions, torch.zeros_like(edge))


@dataclass(frozen=True, eq=False, repr=False)
class ClassRegions:
    """The domain divided by class: the regions, cut along the decision boundary, in C convex cells.

    A cell on which several classes tie belongs to the first of them. n_classes: the number of
    classes; kind, level: as for ``part.class_regions``.
    """

    partition: PartitionData
    n_classes: int
    kind: Kind
    level: float

    @cached_property
    def winners(self) -> Winners:
        """The cells of the whole domain with their classes."""
        return winners_of(self.partition, self.kind, self.level, whole=True)

    @cached_property
    def _borders(self) -> Winners:
        """The same without the regions that belong to one class as a whole."""
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
        """The place in ``cell_corners`` where each cell's corners begin, (C + 1,)."""
        return self.winners.overlay.mesh.offsets

    @cached_property
    def cell_corners(self) -> Tensor:
        """Plane coordinates of the cells' corners, counter-clockwise, cell after cell, (H, 2)."""
        mesh = self.winners.overlay.mesh
        return self.partition._frame.to_plane(mesh.uv)[mesh.corner_vertices()]

    @cached_property
    def cell_areas(self) -> Tensor:
        """Area of each cell, (C,)."""
        return self._areas_of(self.winners)

    def _areas_of(self, found: Winners) -> Tensor:
        return found.overlay.mesh.areas_and_centroids()[0] * self.partition._frame.scale**2

    @cached_property
    def cell_leads(self) -> Tensor:
        """The lead of each cell's class over the second, averaged over its corners, (C,)."""
        mesh, z = self.winners.overlay.mesh, self.winners.overlay.z
        top = torch.topk(mesh.sums(z[mesh.corner_vertices()]), 2, 1).values
        return (top[:, 0] - top[:, 1]) / mesh.counts()

    @cached_property
    def areas(self) -> Tensor:
        """Area of each class, (n_classes,); the areas add up to that of the domain."""
        found, areas = self._borders, self.partition.areas
        undivided = (found.settled >= 0).nonzero()[:, 0]
        total = areas.new_zeros(self.n_classes)
        total.index_add_(0, found.settled[undivided], areas[undivided])
        return total.index_add_(0, found.winner, self._areas_of(found))

    @cached_property
    def areas_at_least(self) -> Tensor:
        """The area on which each class is certain, (n_classes,); the ``areas`` if it is exact."""
        return self._class_areas(possible=False)

    @cached_property
    def areas_at_most(self) -> Tensor:
        """The area on which each class is possible, (n_classes,)."""
        return self._class_areas(possible=True)

    @property
    def undecided(self) -> float:
        """The area on which no class is certain; zero if the partition is exact."""
        return self.undecided_regions().area

    def undecided_regions(self) -> Band:
        """The part of the domain on which no class is certain; empty if the partition is exact."""
        return self._band

    @cached_property
    def _band(self) -> Band:
        return class_band(self.partition, smallest=self.kind == "argmin", level=self.level)

    def _class_areas(self, *, possible: bool) -> Tensor:
        if self.partition.smoothing is None:
            return self.areas
        found = certainty_of(self.partition, smallest=self.kind == "argmin", level=self.level)
        total = class_areas(self.partition, found, self.n_classes, possible=possible)
        return torch.maximum(total, self.areas) if possible else total  # despite rounding

    @property
    def tied_area(self) -> float:
        """Area on which two classes or more tie, which counts for the first of them."""
        return float(self._areas_of(self._borders)[self._borders.tied].sum())

    @property
    def unresolved(self) -> tuple[Unresolved, ...]:
        """Places that float64 could not settle, usually none."""
        return unresolved_places(self.partition, self._borders.overlay.ambiguities, "class regions")

    @cached_property
    def _cells(self) -> LabelledCells:
        mesh, region = self.winners.overlay.mesh, self.cell_region
        return LabelledCells(self.partition, mesh, region, self.cell_class)

    def polygons(self, number: int | str) -> list[ClassPolygon]:
        """The connected pieces of one class, the largest first.

        number: the number or the name of the class.
        """
        chosen = class_number(number, self.partition.names, self.n_classes)
        return self._cells.polygons(self._cells.outlines.piece_label == chosen)

    def to_shapely(self) -> NDArray[Any]:
        """The classes as an array of shapely's MultiPolygons in plane coordinates, (n_classes,).

        A piece that touches itself at a point is divided there, or gets a hole, so that it is valid
        in shapely's sense; a class that occurs nowhere is empty.

        >>> import splinecam as sc
        >>> part = sc.partition(torch.nn.Linear(2, 3), sc.Domain.box(-1, 1), progress=False)
        >>> round(sum(polygon.area for polygon in part.class_regions().to_shapely()), 12)
        4.0
        """
        return self._cells.to_shapely(self.n_classes)

    def boundary_length(self) -> float:
        """Length of the borders between classes, from the outlines of their polygons."""
        halves, mesh = self._cells.outlines.halves, self._cells.mesh
        inner = halves[mesh.halfedge_face()[halves ^ 1] >= 0]
        start, end = mesh.uv[mesh.edges.view(-1)[torch.stack([inner, inner ^ 1])]]
        return float(lengths(end - start).sum()) * self.partition._frame.scale / 2

    def _repr_html_(self) -> str:
        from splinecam.plot.notebook import class_regions_card

        return class_regions_card(self)

    def __repr__(self) -> str:
        share = (self.areas / self.areas.sum()).tolist()
        top = sorted(range(self.n_classes), key=lambda k: -share[k])[:5]
        names = self.partition.names or range(self.n_classes)
        parts = [f"{names[k]}: {100 * share[k]:.3g} %" for k in top if share[k] > 0]
        more = ", ..." if self.n_classes > 5 and int((self.areas > 0).sum()) > 5 else ""
        if self.partition.smoothing is not None:
            more += f"; undecided: {100 * self.undecided_regions().share:.3g} %"
        return f"ClassRegions({', '.join(parts)}{more})"


def class_regions(
    part: PartitionData, *, kind: Kind = "argmax", level: float = 0.0
) -> ClassRegions:
    """The domain divided by class.

    kind: the class of a point is its largest output (``"argmax"``) or its smallest (``"argmin"``).
    level: with one output, class 1 is above this number, and class 0 is the rest.

    >>> import splinecam as sc, torch
    >>> model = torch.nn.Linear(2, 2)
    >>> part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    >>> round(float(part.class_regions().areas.sum()), 12)
    4.0
    """
    n, level = check_kind(part, kind, level, single=True)
    part._require("other classes", Wanted.classes(part._n_out, kind, level))
    return ClassRegions(part, n, kind, level)
