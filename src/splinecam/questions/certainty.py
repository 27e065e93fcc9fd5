"""Where linear conditions are certain although outputs are known only within bounds.

A class is a conjunction of linear conditions: its output leads each other one. The class is certain
where the lead exceeds both bounds, and possible where it is behind none by more than that.
``geometry.convex.divided`` cuts regions along straight lines into the parts on which such a claim
is certain, and the rest. ``certainty_of`` says which class is settled on each whole region.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.arrays import (
    blocks_of,
    following,
    offsets_of,
    owners_of,
    polygons,
    take,
    take_rows,
)
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS
from splinecam.geometry.convex import Claim, ConvexPolygons, divided
from splinecam.geometry.outlines import closed_lines
from splinecam.questions.partition_data import PartitionData, counted
from splinecam.questions.winners import Scores
from splinecam.smooth.boundary_refinement import slacks_of_faces

Pair = tuple[int, int]


@dataclass(frozen=True)
class Contest:
    """R regions of which m classes may have a part, -1 in place of missing ones.

    faces: (R,); classes, bounds: (R, m) the bounds of their outputs; whole: the regions as polygons
    with the outputs of the classes, whose sources are places among the regions.
    """

    faces: Tensor
    classes: Tensor
    bounds: Tensor
    whole: ConvexPolygons

    @cached_property
    def parts(self) -> tuple[list[ConvexPolygons], ConvexPolygons]:
        """The parts on which each class is certain, and those on which none is."""
        return divided(self.whole, [self._claim(k, -1) for k in range(self.classes.shape[1])])

    def possible(self, polygons: ConvexPolygons, chosen: Tensor | int) -> ConvexPolygons:
        """The parts of polygons on which a class may be the model's, by its column, or (R,)."""
        return divided(polygons, [self._claim(chosen, 1)], closed=True)[0][0]

    def between(self, i: int, j: int) -> ConvexPolygons:
        """The part on which two classes are possible, so that none is certain."""
        columns = [(self.classes == k).int() for k in (i, j)]
        both = torch.stack([column.any(1) for column in columns]).all(0)
        found = self.whole.select(both.nonzero()[:, 0])
        for column in columns:
            found = self.possible(found, column.argmax(1))
        return found

    def _claim(self, chosen: Tensor | int, sign: int) -> Claim:
        """That a class leads all others: for certain (sign -1), or possibly (sign 1)."""
        own = torch.as_tensor(chosen, device=self.faces.device).expand(len(self.faces))[:, None]
        number = torch.arange(self.classes.shape[1], device=own.device)
        mine = self.bounds.gather(1, own)

        def leads(some: ConvexPolygons, columns: slice) -> Tensor:
            row = some.source[some.owners]
            slack = take(mine, row) + take(self.bounds[:, columns], row)
            lead = some.values.gather(1, take(own, row)) - some.values[:, columns]
            return torch.where(take(own, row) == number[columns], 1.0, lead + sign * slack)

        return leads


class Certainty(NamedTuple):
    """The class (F,) that is settled on each whole region, else -1, and contests for the others."""

    settled: Tensor
    contests: tuple[Contest, ...]


def certainty_of(part: PartitionData, *, smallest: bool = False, level: float = 0.0) -> Certainty:
    """What is certain of the decisions; with a single output, 1 above the level and 0 else.

    This also holds for exact partitions, whose outputs are known within rounding. The last answer
    is kept.
    """
    return part._remembered("certainty", (smallest, level), lambda: _find(part, smallest, level))


def class_areas(part: PartitionData, found: Certainty, n: int, *, possible: bool) -> Tensor:
    """The area on which each of n classes is certain, or possible, (n,)."""
    whole = (found.settled >= 0).nonzero()[:, 0]
    total = part.areas.new_zeros(n).index_add_(0, found.settled[whole], part.areas[whole])
    for contest in found.contests:
        for k in range(contest.classes.shape[1]):
            cells = contest.possible(contest.whole, k) if possible else contest.parts[0][k]
            size = cells.areas() * part._frame.scale**2
            total.index_add_(0, contest.classes[cells.source, k], size)
    return total


@torch.no_grad()
def _find(part: PartitionData, smallest: bool, level: float) -> Certainty:
    """See ``certainty_of``."""
    scores = Scores.of(part, smallest=smallest, level=level)
    bounds = part.region_bounds
    if bounds.shape[1] < scores.z.shape[1]:  # the level, which is known, decides too
        bounds = torch.cat([torch.zeros_like(bounds), bounds], 1)
    bounds, mesh = bounds + scores.error, part.mesh
    certain = slacks_of_faces(mesh, scores.z, bounds, 0.0) > 0
    first = take(scores.z, take(part._face_vertices, mesh.offsets[:-1]))
    settled, open_ = torch.where(certain, first.argmax(1), -1), (~certain).nonzero()[:, 0]
    contests: dict[int, list[tuple[Tensor, Tensor]]] = {}
    limit = max(1, backend_of(scores.z.device).numbers // scores.z.shape[1])
    counts = take(mesh.counts(), open_)
    for start, end in blocks_of(counts, limit) if open_.shape[0] else []:
        faces = open_[start:end]
        rivals = _rivals(part, scores.z, faces, bounds[faces])
        # Few different sizes are few rounds: others are filled up to the next power of two.
        size = 2 ** torch.ceil(torch.log2(rivals.sum(1).double())).long()
        for m in torch.unique(size).tolist():
            some = (size == m).nonzero()[:, 0]
            order = rivals[some].int().argsort(dim=1, descending=True, stable=True)[:, :m]
            classes = torch.where(rivals[some].gather(1, order), order, -1)
            classes = torch.nn.functional.pad(classes, (0, m - classes.shape[1]), value=-1)
            contests.setdefault(m, []).append((faces[some], classes))
    found = []
    for m in sorted(contests):
        faces, classes = (torch.cat(each) for each in zip(*contests[m], strict=True))
        found.append(_contest(part, scores.z, bounds, faces, classes))
    return Certainty(settled, tuple(found))


def _rivals(part: PartitionData, z: Tensor, faces: Tensor, bounds: Tensor) -> Tensor:
    """Which classes may have a part of each region, as none is certain to lead them, (R, n)."""
    entries, counts = take_rows(part.mesh.offsets, faces)
    owner = owners_of(counts, entries.shape[0])
    values = take(z, take(part._face_vertices, entries))
    low = values - take(bounds, owner)
    least = torch.full_like(bounds, torch.inf)
    least.scatter_reduce_(0, owner[:, None].expand_as(low), low, "amin")
    best = least.argmax(1)[owner]
    behind = values + take(bounds, owner) < low.gather(1, best[:, None])
    ahead = torch.zeros(bounds.shape, dtype=torch.int32, device=z.device)
    return ahead.index_add_(0, owner, (~behind).int()) > 0


def _contest(
    part: PartitionData, z: Tensor, bounds: Tensor, faces: Tensor, classes: Tensor
) -> Contest:
    """The contest for regions (R,), of which the given classes (R, m) may each have a part."""
    entries, counts = take_rows(part.mesh.offsets, faces)
    vertex, owner = take(part._face_vertices, entries), owners_of(counts, entries.shape[0])
    missing = classes < 0
    own = bounds[faces].gather(1, classes.clamp(min=0)).masked_fill(missing, 0.0)
    values = z[vertex[:, None], classes[owner]]
    # What stands for a missing class is far behind all others.
    behind = values.amin() - 4 * own.amax() - values.abs().amax()
    values = torch.where(missing[owner], behind, values)
    row = torch.arange(len(faces), device=faces.device)
    whole = ConvexPolygons(offsets_of(counts), take(part.mesh.uv, vertex), values, row)
    return Contest(faces, classes, own, whole)


@dataclass(frozen=True, eq=False, repr=False)
class Band:
    """The part of a domain on which bounds leave a question open, as P convex polygons.

    Bounds differ from region to region, so that neighbouring polygons need not have corners in
    common. A band is empty if the partition is exact.

    partition: what was asked; vertices: (N, 2) the corners of all polygons, counter-clockwise, in
    plane coordinates; offsets: (P + 1,) where each polygon begins there; regions: (P,) the region
    in which it lies; label: (P,) its question, such as the number of a level, else 0.
    """

    partition: PartitionData
    offsets: Tensor
    vertices: Tensor
    regions: Tensor
    label: Tensor

    def __len__(self) -> int:
        return int(self.regions.shape[0])

    @cached_property
    def _polygons(self) -> ConvexPolygons:
        return ConvexPolygons(self.offsets, self.vertices, self.vertices[:, :0], self.regions)

    @cached_property
    def areas(self) -> Tensor:
        """The area of each polygon, (P,)."""
        return self._polygons.areas()

    @cached_property
    def area(self) -> float:
        """The area of all polygons together."""
        return float(self.areas.sum())

    @property
    def share(self) -> float:
        """The same as a share of the domain, between 0 and 1."""
        return self.area / self.partition.domain.area

    def select(self, chosen: Tensor) -> Band:
        """Some of the polygons.

        chosen: their numbers, or a mask (P,).
        """
        index = torch.arange(len(self), device=self.regions.device)[chosen]
        found, label = self._polygons.select(index), take(self.label, index)
        return Band(self.partition, found.offsets, found.uv, found.source, label)

    def rings(self) -> tuple[Tensor, Tensor]:
        """The polygons as closed rings, each of which ends with its first corner.

        Returns where each begins, (P + 1,), and the points (N + P, 2) in plane coordinates.
        """
        offsets, places = closed_lines(self.offsets)
        return offsets, take(self.vertices, places)

    @property
    def ends(self) -> Tensor:
        """Both ends of all sides of the polygons, (N, 2, 2) in plane coordinates."""
        ahead = take(self.vertices, following(self.offsets, len(self.vertices)))
        return torch.stack([self.vertices, ahead], 1)

    def to_shapely(self) -> NDArray[Any]:
        """The polygons as an array of shapely's Polygons in plane coordinates, (P,)."""
        return polygons(self.offsets, self.vertices)

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """Hatch the band.

        ax: where to draw. style: see ``splinecam.plot.plot_band``.
        """
        from splinecam.plot import plot_band

        return plot_band(self, ax=ax, **style)

    def __repr__(self) -> str:
        if not len(self):
            return "Band(empty)"
        regions = counted(torch.unique(self.regions).shape[0], "region")
        size = f"area {self.area:.4g}, {100 * self.share:.3g} % of the domain"
        return f"Band({counted(len(self), 'polygon')} in {regions}, {size})"


def band_of(
    part: PartitionData, parts: Iterable[ConvexPolygons], labels: Sequence[int] | None = None
) -> Band:
    """The band of several lists of polygons with some width; labels: of each list, else 0."""
    found, like = list(parts), part.mesh.offsets
    counts = torch.cat([like[:0], *(each.counts for each in found)])
    uv = torch.cat([part.mesh.uv[:0], *(each.uv for each in found)])
    regions = torch.cat([like[:0], *(each.source for each in found)])
    label = torch.zeros_like(regions)
    if labels is not None:
        sizes = torch.tensor([len(each) for each in found], device=like.device)
        label = torch.tensor(labels, device=like.device)[owners_of(sizes, len(regions))]
    band = Band(part, offsets_of(counts), part._frame.to_plane(uv), regions, label)
    return band.select(band.areas > 0)


def class_band(
    part: PartitionData, *, smallest: bool = False, level: float = 0.0, pair: Pair | None = None
) -> Band:
    """Where no class is certain, or where both classes of a pair are possible."""
    if part.smoothing is None:
        return band_of(part, [])
    found = []
    for contest in certainty_of(part, smallest=smallest, level=level).contests:
        cells = contest.parts[1] if pair is None else contest.between(*pair)
        found.append(replace(cells, source=contest.faces[cells.source]))
    return band_of(part, found)


def level_band(part: PartitionData, levels: Sequence[float], output: int) -> Band:
    """Where an output may have one of some levels; the label of a polygon is the level's place."""
    if part.smoothing is None:
        return band_of(part, [])
    z, bounds = part._outputs[:, output], part.region_bounds[:, output]
    rounding = float(part._value_error[output]) + EPS * float(z.abs().max())
    strips = [_open_sign(part, z - x, bounds + rounding + EPS * abs(x)) for x in levels]
    return band_of(part, strips, range(len(strips)))


def pairwise_band(part: PartitionData, pairs: Sequence[Pair]) -> Band:
    """Where two outputs may be equal, for some pairs; the label i n_out + j stands for a pair."""
    if part.smoothing is None:
        return band_of(part, [])
    n, z, bounds = part._n_out, part._outputs, part.region_bounds
    bounds = bounds + part._value_error + EPS * z.abs().amax(0)
    strips = [_open_sign(part, z[:, i] - z[:, j], bounds[:, i] + bounds[:, j]) for i, j in pairs]
    return band_of(part, strips, [i * n + j for i, j in pairs])


def _open_sign(part: PartitionData, h: Tensor, slack: Tensor) -> ConvexPolygons:
    """Where a function, h (V,) at vertices, is within a slack (F,) of zero."""
    low, high = (side[:, 0] for side in part.mesh.ranges(h[:, None]))
    met = ((low <= slack) & (high >= -slack)).nonzero()[:, 0]

    def beyond(sign: int) -> Claim:
        return lambda some, _: sign * some.values - take(slack, some.source)[some.owners, None]

    found = ConvexPolygons.of_faces(part.mesh, met, h[:, None])
    return divided(found, [beyond(1), beyond(-1)])[1]
