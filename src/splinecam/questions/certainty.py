"""Find where the class is certain although outputs are known only within bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
from splinecam.geometry.convex import ConvexPolygons, joined
from splinecam.questions.partition_data import PartitionData
from splinecam.questions.winners import Scores

_BLOCK = 1 << 22  # numbers in a block
_TIE = 2.0**-1000  # in place of a lead of zero, with which a class is possible


@dataclass(frozen=True)
class Contest:
    """Regions of which m classes may have a part, and how these are divided.

    faces: (R,) the regions; classes: (R, m) their classes, -1 in place of missing ones; bounds:
    (R, m) of the outputs of these classes; whole: the regions as polygons; certain: for each of the
    m classes the polygons on which it is certain; undecided: the polygons that are left. The source
    of a polygon is its row among the regions, and its values are the outputs of the classes.
    """

    faces: Tensor
    classes: Tensor
    bounds: Tensor
    whole: ConvexPolygons
    certain: tuple[ConvexPolygons, ...]
    undecided: ConvexPolygons

    def possible(self, polygons: ConvexPolygons, chosen: Tensor) -> ConvexPolygons:
        """The parts of polygons on which a class may be the model's, by its column (R,)."""
        mine = self.bounds.gather(1, chosen[:, None])

        def leads(some: ConvexPolygons, columns: Tensor) -> Tensor:
            row = some.source[some.owners]
            own = chosen[row][:, None]
            slack = mine[row] + self.bounds[:, columns][row]
            lead = some.values.gather(1, own) - some.values[:, columns] + slack
            return torch.where(own == columns, 1.0, torch.where(lead == 0, _TIE, lead))

        return _limited(polygons, leads, *self.bounds.shape)[0]


@dataclass(frozen=True)
class Certainty:
    """What is certain of the decisions of a model.

    settled: (F,) the class that is certain on a whole region, else -1; contests: the other regions,
    by how many classes may have a part of them.
    """

    settled: Tensor
    contests: tuple[Contest, ...]

    def certain_areas(self, areas: Tensor, classes: int) -> Tensor:
        """The local area on which each class is certain, (classes,); areas: (F,) of regions."""
        total = self._settled_areas(areas, classes)
        for contest in self.contests:
            for k, cells in enumerate(contest.certain):
                total.index_add_(0, contest.classes[cells.source, k], cells.areas())
        return total

    def possible_areas(self, areas: Tensor, classes: int) -> Tensor:
        """The local area on which each class is possible, (classes,); areas: (F,) of regions."""
        total = self._settled_areas(areas, classes)
        for contest in self.contests:
            for k in range(contest.classes.shape[1]):
                polygons = contest.possible(contest.whole, torch.full_like(contest.faces, k))
                total.index_add_(0, contest.classes[polygons.source, k], polygons.areas())
        return total

    def _settled_areas(self, areas: Tensor, classes: int) -> Tensor:
        whole = (self.settled >= 0).nonzero()[:, 0]
        return areas.new_zeros(classes).index_add_(0, self.settled[whole], areas[whole])

    def undecided(
        self, pair: tuple[int, int] | None = None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield polygons on which no class is certain: offsets, corners, regions.

        pair: only where both of these classes are possible.
        """
        for contest in self.contests:
            found = contest.undecided if pair is None else _between(contest, *pair)
            yield found.offsets, found.uv, contest.faces[found.source]


def _between(contest: Contest, i: int, j: int) -> ConvexPolygons:
    """The part of the regions on which two classes are possible, so that none is certain."""
    columns = [(contest.classes == k).int() for k in (i, j)]
    both = torch.stack([column.any(1) for column in columns]).all(0)
    found = contest.whole.select(both.nonzero()[:, 0])
    for column in columns:
        found = contest.possible(found, column.argmax(1))
    return found


def certainty_of(part: PartitionData, *, smallest: bool, level: float) -> Certainty:
    """What is certain of the decisions, see ``_find``; the last answer is kept."""

    def compute() -> Certainty:
        with torch.no_grad():
            return _find(part, smallest=smallest, level=level)

    return part._remembered("certainty", (smallest, level), compute)


def _find(part: PartitionData, *, smallest: bool, level: float) -> Certainty:
    """What is certain of the decisions; with a single output, 1 above the level and 0 else.

    smallest: the smallest output decides. Regions whose class is certain as a whole are found from
    the leads at their corners; the others are divided.
    """
    scores = Scores.of(part, smallest=smallest, level=level)
    bounds = part.region_bounds
    if bounds.shape[1] < scores.z.shape[1]:  # the level, which is known, decides too
        bounds = torch.cat([torch.zeros_like(bounds), bounds], 1)
    bounds = bounds + scores.error
    settled, open_ = _settled(part, scores, bounds)
    contests: dict[int, list[tuple[Tensor, Tensor]]] = {}
    mesh = part.mesh
    limit = max(1, backend_of(scores.z.device).numbers // scores.z.shape[1])
    counts = take(mesh.counts(), open_)
    for first, last in blocks_of(counts, limit) if open_.shape[0] else []:
        faces = open_[first:last]
        rivals = _rivals(part, scores.z, faces, bounds[faces])
        number = rivals.sum(1)
        alone = number == 1
        settled[faces[alone]] = rivals[alone].int().argmax(1)
        # Few different sizes are few rounds: others are filled up to the next power of two.
        size = 2 ** torch.ceil(torch.log2(number.double())).long()
        for m in torch.unique(size[~alone]).tolist():
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


def _settled(part: PartitionData, scores: Scores, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """The class of regions (F,) on which one leads clearly, else -1; and the other regions."""
    mesh, z = part.mesh, scores.z
    top = [torch.topk(block, 2, 1) for block in torch.split(z, max(1, _BLOCK // z.shape[1]))]
    lead = torch.cat([each.values[:, 0] - each.values[:, 1] for each in top])
    winner = torch.cat([each.indices[:, 0] for each in top])
    corner, owner = mesh.corner_vertices(), mesh.owners()
    own = take(winner, take(corner, mesh.offsets[:-1]))
    unlike = (take(winner, corner) != take(own, owner)).int()
    mixed = torch.zeros_like(own, dtype=torch.int32).index_add_(0, owner, unlike)
    least = lead.new_full((mesh.num_faces,), torch.inf)
    least.scatter_reduce_(0, owner, take(lead, corner), "amin")
    clear = (mixed == 0) & (least > 2 * bounds.amax(1))
    return torch.where(clear, own, -1), (~clear).nonzero()[:, 0]


def _rivals(part: PartitionData, z: Tensor, faces: Tensor, bounds: Tensor) -> Tensor:
    """Which classes may have a part of each region, (R, n); bounds: (R, n).

    Those are out that are certainly behind one class on the whole region: the class of which the
    least output, less its bound, is the largest.
    """
    entries, counts = take_rows(part.mesh.offsets, faces)
    owner = owners_of(counts, entries.shape[0])
    values = take(z, take(part.face_vertices, entries))
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
    """Divide regions (R,), of which the given classes (R, m) may each have a part."""
    entries, counts = take_rows(part.mesh.offsets, faces)
    vertex, owner = take(part.face_vertices, entries), owners_of(counts, entries.shape[0])
    missing = classes < 0
    own = bounds[faces].gather(1, classes.clamp(min=0)).masked_fill(missing, 0.0)
    values = z[vertex[:, None], classes[owner]]
    # What stands for a missing class is far behind all others.
    behind = values.amin() - 4 * own.amax() - values.abs().amax()
    values = torch.where(missing[owner], behind, values)
    row = torch.arange(len(faces), device=faces.device)
    whole = ConvexPolygons(offsets_of(counts), take(part.mesh.uv, vertex), values, row)
    certain, left = [], whole
    for c in range(classes.shape[1]):
        piece, cutting = _certain_part(whole, own, c)
        certain.append(piece)
        left = _without(left, own, c, piece, cutting)
    return Contest(faces, classes, own, whole, tuple(certain), left)


def _lead(polygons: ConvexPolygons, bounds: Tensor, c: int, k: int) -> Tensor:
    """By how much one class leads another more than their bounds (R, m), at all corners, (N,)."""
    slack = take(bounds[:, c] + bounds[:, k], polygons.source)[polygons.owners]
    return polygons.values[:, c] - polygons.values[:, k] - slack


def _certain_part(whole: ConvexPolygons, bounds: Tensor, c: int) -> tuple[ConvexPolygons, Tensor]:
    """The part of regions on which a class is certain, and the rivals that limit it, (R, m)."""
    slack = bounds + bounds[:, c : c + 1]

    def leads(some: ConvexPolygons, columns: Tensor) -> Tensor:
        lead = some.values[:, c : c + 1] - some.values[:, columns]
        lead = lead - slack[:, columns][some.source[some.owners]]
        return torch.where(columns == c, 1.0, lead)

    return _limited(whole, leads, *bounds.shape)


def _limited(
    polygons: ConvexPolygons,
    leads: Callable[[ConvexPolygons, Tensor], Tensor],
    rows: int,
    columns: int,
) -> tuple[ConvexPolygons, Tensor]:
    """The parts of regions on which all of m functions are positive, and those that cut, (R, m).

    leads: gives some of the functions, by their numbers (k,), at the corners of polygons, (N, k).
    Only those that are positive and negative on a region divide it. rows, columns: R and m.
    """
    number = torch.arange(columns, device=polygons.source.device)
    values = leads(polygons, number)
    index = polygons.owners[:, None].expand_as(values)
    none = values.new_full((len(polygons), columns), torch.inf)
    low = none.scatter_reduce(0, index, values, "amin")
    high = (-none).scatter_reduce(0, index, values, "amax")
    cutting = torch.zeros((rows, columns), dtype=torch.bool, device=number.device)
    kept = (high > 0).all(1).nonzero()[:, 0]
    piece = polygons.select(kept)
    for k in (low[kept] < 0).any(0).nonzero()[:, 0].tolist():
        piece, other = piece.split(leads(piece, number[k : k + 1])[:, 0])
        cutting[other.source, k] = True
    return piece, cutting


def _without(
    left: ConvexPolygons, bounds: Tensor, c: int, certain: ConvexPolygons, cutting: Tensor
) -> ConvexPolygons:
    """What is left of polygons without the part on which a class is certain.

    It is cut off rival by rival, by those that limit it: (R, m).
    """
    some = torch.zeros(len(bounds), dtype=torch.bool, device=bounds.device)
    some[certain.source] = True
    touched = some[left.source]
    rest, piece = [left.select((~touched).nonzero()[:, 0])], left.select(touched.nonzero()[:, 0])
    for k in range(bounds.shape[1]):
        limits = cutting[:, k][piece.source]
        if bool(limits.any()):
            lead = _lead(piece, bounds, c, k)
            piece, other = piece.split(torch.where(limits[piece.owners], lead, 1.0))
            rest.append(other)
    return joined(rest)


@dataclass(frozen=True, eq=False, repr=False)
class Band:
    """The part of a domain on which bounds leave a question open, as P convex polygons.

    Bounds differ from region to region, so that polygons of neighbouring regions need not meet in
    common corners. A band is empty if the partition is exact.

    partition: what was asked; offsets: (P + 1,) the place in ``vertices`` where each polygon
    begins; vertices: (N, 2) its corners, counter-clockwise, in plane coordinates; regions: (P,) the
    region that it lies in; label: (P,) which of several questions it belongs to, such as the number
    of a level, else 0.
    """

    partition: PartitionData
    offsets: Tensor
    vertices: Tensor
    regions: Tensor
    label: Tensor

    def __len__(self) -> int:
        return int(self.regions.shape[0])

    @cached_property
    def areas(self) -> Tensor:
        """The area of each polygon, (P,)."""
        counts = self.offsets.diff()
        owner = owners_of(counts, self.vertices.shape[0])
        p = self.vertices - take(self.vertices, take(self.offsets, owner))
        q = take(p, following(self.offsets, p.shape[0]))
        cross = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
        return cross.new_zeros(len(self)).index_add_(0, owner, cross).clamp(min=0) / 2

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
        entries, counts = take_rows(self.offsets, index)
        rest = take(self.regions, index), take(self.label, index)
        return Band(self.partition, offsets_of(counts), take(self.vertices, entries), *rest)

    def rings(self) -> tuple[Tensor, Tensor]:
        """The polygons as closed rings, each of which ends with its first corner.

        Returns where each begins, (P + 1,), and the points (N + P, 2) in plane coordinates.
        """
        counts = self.offsets.diff()
        offsets = offsets_of(counts + 1)
        ring = owners_of(counts + 1, int(offsets[-1]))
        place = torch.arange(ring.shape[0], device=ring.device) - offsets[ring]
        return offsets, take(self.vertices, self.offsets[ring] + place % counts[ring])

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
        count, regions = len(self), int(torch.unique(self.regions).shape[0])
        return (
            f"Band({count:,} polygon{'s' * (count != 1)} in {regions:,} "
            f"region{'s' * (regions != 1)}, area {self.area:.4g}, "
            f"{100 * self.share:.3g} % of the domain)"
        )


def band_of(
    part: PartitionData,
    parts: Iterable[tuple[Tensor, Tensor, Tensor]],
    labels: Sequence[int] | None = None,
) -> Band:
    """The band of several lists of polygons: their offsets, local corners and regions.

    Polygons that rounding has left without any width are dropped. labels: one for each list, else
    all are 0.
    """
    found = list(parts)
    like = part.mesh.offsets
    counts = torch.cat([like[:0], *(offsets.diff() for offsets, _, _ in found)])
    uv = torch.cat([part.mesh.uv[:0], *(uv for _, uv, _ in found)])
    regions = torch.cat([like[:0], *(regions for _, _, regions in found)])
    vertices = part.frame.to_plane(uv)
    label = torch.zeros_like(regions)
    if labels is not None:
        sizes = torch.tensor([len(each) for _, _, each in found], device=like.device)
        label = torch.tensor(labels, device=like.device)[owners_of(sizes, len(regions))]
    band = Band(part, offsets_of(counts), vertices, regions, label)
    return band.select(band.areas > 0)


def class_band(
    part: PartitionData, *, smallest: bool, level: float, pair: tuple[int, int] | None = None
) -> Band:
    """Where no class is certain, or where each of a pair of classes is possible.

    smallest, level: as for ``certainty_of``.
    """
    if part.smoothing is None:
        return band_of(part, [])
    return band_of(part, certainty_of(part, smallest=smallest, level=level).undecided(pair))


def level_band(part: PartitionData, levels: Sequence[float], output: int) -> Band:
    """Where an output may have one of some levels; the label of a polygon is the level's place."""
    if part.smoothing is None:
        return band_of(part, [])
    z, bounds = part.values[:, output], part.region_bounds[:, output]
    rounding = float(part.value_error[output]) + EPS * float(z.abs().max())
    strips = [_strip(part, z - x, bounds + rounding + EPS * abs(x)) for x in levels]
    return band_of(part, strips, range(len(strips)))


def pairwise_band(part: PartitionData, pairs: Sequence[tuple[int, int]]) -> Band:
    """Where two outputs may be equal, for some pairs; the label i n_out + j stands for a pair."""
    if part.smoothing is None:
        return band_of(part, [])
    n, z, bounds = int(part.values.shape[1]), part.values, part.region_bounds
    bounds = bounds + part.value_error + EPS * z.abs().amax(0)
    strips = [_strip(part, z[:, i] - z[:, j], bounds[:, i] + bounds[:, j]) for i, j in pairs]
    return band_of(part, strips, [i * n + j for i, j in pairs])


def _strip(part: PartitionData, h: Tensor, slack: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where a function, h (V,) at the vertices, is within slack (F,) from zero on each region."""
    mesh = part.mesh
    corner, owner = take(h, part.face_vertices), mesh.owners()
    none = h.new_full((mesh.num_faces,), torch.inf)
    low = none.scatter_reduce(0, owner, corner, "amin")
    high = (-none).scatter_reduce(0, owner, corner, "amax")
    met = ((low <= slack) & (high >= -slack)).nonzero()[:, 0]
    found = ConvexPolygons.of_faces(mesh, met, h[:, None])
    for sign in (1, -1):
        limit = take(slack, found.source)[found.owners]
        found = found.split(sign * found.values[:, 0] - limit)[1]
    return found.offsets, found.uv, found.source
