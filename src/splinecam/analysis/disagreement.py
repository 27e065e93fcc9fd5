"""Where the decisions of two networks differ: exact areas, polygons and curves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from splinecam._util.csr import take
from splinecam.analysis.boundary import Kind, check_kind, unresolved_places
from splinecam.analysis.class_names import class_number
from splinecam.analysis.class_regions import ClassPolygon, piece_polygons, ring_points
from splinecam.analysis.curves import Curves
from splinecam.analysis.partition_data import PartitionData, Unresolved
from splinecam.analysis.winners import CLOSE, Leads, Scores, face_winners
from splinecam.arrangement.edge_crossings import Ambiguities
from splinecam.arrangement.overlay import overlay
from splinecam.arrangement.refinement import Refinement
from splinecam.errors import SplineCamError
from splinecam.geometry.rings import Outlines, outlines
from splinecam.geometry.subdivision import Mesh

__all__ = ["Disagreement", "disagreement"]

_PRINTED = 3  # pairs of classes


@dataclass(frozen=True, eq=False, repr=False)
class Disagreement:
    """The decisions of two networks in each part of the domain.

    partition: of the first network, on the regions of both; n_classes: the number of classes;
    areas: (n_classes, n_classes) the area of the points that belong to one class by the first
    network (row) and to another by the second (column); the areas add up to that of the domain.
    mesh: the regions that are not of one class by both, cut along both decision boundaries;
    cell_classes: (C, 2) the classes of its cells by both networks; cell_region: (C,) the region in
    which each lies. unresolved: places that float64 could not settle, usually none.
    """

    partition: PartitionData
    n_classes: int
    areas: Tensor
    mesh: Mesh
    cell_classes: Tensor
    cell_region: Tensor
    unresolved: tuple[Unresolved, ...]

    @property
    def area(self) -> float:
        """The area on which the decisions differ."""
        return float((self.areas - self.areas.diag().diag()).sum())

    @property
    def share(self) -> float:
        """The same as a share of the domain, between 0 and 1."""
        return self.area / float(self.areas.sum())

    def pairs(self) -> dict[tuple[int, int], float]:
        """The pairs of different classes, by the first and the second network, with their areas.

        The largest area comes first.
        """
        off = self.areas - self.areas.diag().diag()
        found = {(i, j): float(off[i, j]) for i, j in off.nonzero().tolist()}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @cached_property
    def _labels(self) -> Tensor:
        """The pair of classes of each cell as one number, -1 where both agree, (C,)."""
        a, b = self.cell_classes.unbind(1)
        return torch.where(a == b, -1, a * self.n_classes + b)

    @cached_property
    def _outlines(self) -> Outlines:
        return outlines(self.mesh, self._labels)

    def polygons(
        self, class_a: int | str | None = None, class_b: int | str | None = None
    ) -> list[ClassPolygon]:
        """The connected pieces of the area on which the decisions differ, the largest first.

        Each has one pair of classes. class_a, class_b: only the pieces of these classes, given by
        number or name, of the first and of the second network.
        """
        label = self._outlines.piece_label
        chosen = label >= 0
        for which, own in ((class_a, label // self.n_classes), (class_b, label % self.n_classes)):
            if which is not None:
                number = class_number(which, self.partition.names, self.n_classes)
                chosen &= own == number
        return piece_polygons(self.mesh, self.partition.frame, self._outlines, chosen)

    def rings(self) -> tuple[Tensor, Tensor]:
        """The outlines of the pieces and of their holes, as closed rings in plane coordinates.

        Each ring ends with its first point; the first result says where each begins, (R + 1,).
        """
        found = self._outlines
        return ring_points(self.mesh, self.partition.frame, found, found.piece_label >= 0)

    @cached_property
    def outline(self) -> Curves:
        """The outline of the area on which the decisions differ, without the domain's border.

        It consists of parts of both decision boundaries. The label of a segment is 0.
        """
        mesh, beside = self.mesh, self.mesh.halfedge_face().view(-1, 2)
        apart = take(self._labels, beside.clamp(min=0).view(-1)).view(-1, 2) >= 0
        # Cells beside which the mesh ends agree, unless they lie at the domain's border.
        edge = ((apart[:, 0] != apart[:, 1]) & (beside >= 0).all(1)).nonzero()[:, 0]
        used, segments = torch.unique(mesh.edges[edge], return_inverse=True)
        points = self.partition.frame.to_plane(mesh.uv[used])
        regions = take(self.cell_region, beside[edge].view(-1)).view(-1, 2)
        return Curves(self.partition, points, segments, regions, torch.zeros_like(edge))

    def __repr__(self) -> str:
        names = self.partition.names or range(self.n_classes)
        largest = list(self.pairs().items())[:_PRINTED]
        parts = [f"{names[i]} -> {names[j]}: area {area:.4g}" for (i, j), area in largest]
        more = ["..."] if len(self.pairs()) > _PRINTED else []
        return (
            f"Disagreement({', '.join([f'{100 * self.share:.3g} % of the domain', *parts, *more])})"
        )


def disagreement(
    a: PartitionData, b: PartitionData, *, kind: Kind = "argmax", level: float = 0.0
) -> Disagreement:
    """Where the decisions of two networks differ, from partitions with the same mesh.

    kind, level: as for ``part.class_regions``.
    """
    n, level = check_kind(a, kind, level)
    if kind == "pairwise":
        raise SplineCamError('Classes are decided by kind="argmax" or "argmin", not "pairwise".')
    with torch.no_grad():
        return _disagreement(a, b, n, smallest=kind == "argmin", level=level)


def _disagreement(
    a: PartitionData, b: PartitionData, n: int, *, smallest: bool, level: float
) -> Disagreement:
    both = [Scores.of(part, smallest=smallest, level=level) for part in (a, b)]
    leads = [Leads.of(scores.z, scores.error) for scores in both]
    first = take(a.face_vertices, a.face_offsets[:-1])
    settled = torch.stack([take(lead.winner, first) for lead in leads], 1)
    open_ = settled[:, 0] != settled[:, 1]
    for lead in leads:
        open_[lead.disputed(a.mesh)] = True
    faces = open_.nonzero()[:, 0]
    places = [a.mesh.uv[lead.unclear] for lead in leads if lead.unclear.shape[0]]
    ambiguities = [Ambiguities(uv, CLOSE) for uv in places]

    # The mesh is cut by the first network's decisions, and then by those of the second.
    def cut_first(mesh: Mesh, z: Tensor, layer: int) -> Refinement:
        return both[0].cut(mesh, z[:, :n], layer)

    def cut_second(mesh: Mesh, z: Tensor, layer: int) -> Refinement:
        return both[1].cut(mesh, z[:, n:], layer)

    z = torch.cat([both[0].z, both[1].z], 1)
    once = overlay(a.mesh, z, cut_first, faces)
    twice = overlay(once.mesh, once.z, cut_second)
    winners = [
        face_winners(twice.mesh, values, scores.error, Leads.of(values, scores.error))[0]
        for values, scores in zip((twice.z[:, :n], twice.z[:, n:]), both, strict=True)
    ]
    cell_areas = twice.mesh.areas_and_centroids()[0] * a.frame.scale**2
    areas = cell_areas.new_zeros(n * n)
    closed = (~open_).nonzero()[:, 0]
    areas.index_add_(0, settled[closed, 0] * n + settled[closed, 1], a.areas[closed])
    areas.index_add_(0, winners[0] * n + winners[1], cell_areas)
    return Disagreement(
        a,
        n,
        areas.view(n, n),
        twice.mesh,
        torch.stack(winners, 1),
        once.face[twice.face],
        unresolved_places(a, ambiguities + once.ambiguities + twice.ambiguities, "disagreement"),
    )
