"""Where the class of a model is certain that is only known to lie near the maps of the regions.

If the outputs of a region are known within bounds, class c is certain where its output leads every
other one by more than both bounds, and it is possible where it is behind none by more than that.
Both are half-planes for every other class, so that regions are divided along straight lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import blocks_of, offsets_of, owners_of, take, take_rows
from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.winners import Scores
from splinecam.geometry.clipping import ConvexPolygons, joined

__all__ = ["Certainty", "Contest", "certainty_of"]

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
            for k, polygons in enumerate(contest.certain):
                total.index_add_(0, contest.classes[polygons.source, k], polygons.areas())
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
