r"""Some faces of a mesh divided into triangles, which are bisected further and further.

The longest side of a triangle is divided first. So angles stay above half of the smallest angle
that there was before (Rosenberg and Stenger, 1975), and the triangles on both sides of an edge
agree on where it is divided:

          C                   C                   C
         / \                 /|\                 /|\
        /   \               / | +               + | +
       /     \             /  |/ \             / \|/ \
      A---+---B           A---+---B           A---+---B
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor

from splinecam._util.arrays import following, offsets_of, owners_of, places_of, sort_rows, take
from splinecam._util.backend import backend_of
from splinecam.geometry.subdivision import Mesh

_SLACK = 2.0**-46  # of the terms of a form: rounding where they cancel


@dataclass(frozen=True)
class Extents:
    """Boxes, or triangles that touch all sides of them, around their centres.

    half: (C, 2) half of the widths of the boxes; square: (C,) the squared radius of a circle around
    each box or triangle; corners: (C, 3, 2) of the triangles, relative to the centres of their
    boxes, or none if directions do not matter. Forms (3, C, *shape) are nowhere negative. Their
    coefficients are those of matrices: f(w) = f0 w0^2 + 2 f1 w0 w1 + f2 w1^2.
    """

    half: Tensor
    square: Tensor
    corners: Tensor | None = None

    def __getitem__(self, chosen: Tensor) -> Extents:
        corners = None if self.corners is None else self.corners[chosen]
        return Extents(self.half[chosen], self.square[chosen], corners)

    @property
    def radius(self) -> Tensor:
        """(C,) how far a point may be from the centre of its box."""
        return self.half.square().sum(1).sqrt()

    def from_center(self, form: Tensor) -> Tensor:
        """The largest number of a form between the centre and any point, (C, *shape)."""
        if self.corners is None:
            u, v = (_along(each, form) for each in self.half.unbind(1))
            found = (form[0] * (u * u)).addcmul_(form[2], v * v)
            return found.addcmul_(form[1].abs(), 2 * u * v)
        ends = [_on(form, end) for end in self.corners.unbind(1)]
        return torch.stack(ends).amax(0) + self._slack(form)

    def around(self, form: Tensor) -> Tensor:
        """The squared radius of the smallest circle around each triangle, (C, *shape).

        A form is the square of lengths.
        """
        assert self.corners is not None
        sides = (self.corners.roll(-1, 1) - self.corners).unbind(1)
        return circles(*(_on(form, side) for side in sides)) + self._slack(form)

    def _slack(self, form: Tensor) -> Tensor:
        return (form[0] + form[2]) * _along(_SLACK * self.half.square().sum(1), form)


def on_vectors(form: Tensor, along: Tensor) -> Tensor:
    """A form, or any symmetric matrix, on vectors (..., C, 2)."""
    shape = *along.shape[:-1], *[1] * (form.dim() - 2)
    u, v = (each.view(shape) for each in along.contiguous().unbind(-1))
    return (form[0] * (u * u)).addcmul_(form[1], 2 * u * v).addcmul_(form[2], v * v)


def _on(form: Tensor, along: Tensor) -> Tensor:
    return on_vectors(form, along).clamp_(min=0)


def _along(each: Tensor, form: Tensor) -> Tensor:
    return each.view(-1, *[1] * (form.dim() - 2))


def circles(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The squared radii of the smallest circles around triangles, by their squared sides."""
    largest = torch.maximum(torch.maximum(a, b), c)
    least = torch.minimum(torch.minimum(a, b), c)
    both = a + b + c - largest  # of the other two sides
    other = torch.maximum(both - least, least)
    # If no angle is obtuse, the circle goes through all three corners, and the largest angle has a
    # cosine of at most 1/2; otherwise only through the ends of the longest side.
    acute = both - largest
    cosine = (acute / other) * (acute / torch.where(acute > 0, least, 1.0)) / 4
    return largest / (4 * (1 - torch.where(acute > 0, cosine.clamp(max=0.25), 0.0)))


def squared_radii(corners: Tensor) -> Tensor:
    """The squared radius of a circle around each polygon with corners (N, k, 2), (N,).

    It is the smallest one around a triangle, and that around the box of any other polygon.
    """
    if corners.shape[1] != 3:
        low, high = extremes(corners)
        return (high - low).square().sum(1) / 4
    return circles(*(corners.roll(-1, 1) - corners).square().sum(2).unbind(1))


def extremes(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest of numbers (N, k, n) at the corners of polygons, (N, n) each."""
    each = numbers.unbind(1)  # much faster than along a short dimension
    return reduce(torch.minimum, each), reduce(torch.maximum, each)


_MOST = 8  # corners of a face from which on its mean is taken
_FAT = 0.15  # the height of a triangle, relative to its longest side, that is enough


def apexes(mesh: Mesh) -> Tensor:
    """The corner of each face, from 0 on, that its triangles share; -1 for the mean, (F,).

    A corner takes two triangles fewer, but may make them thin, or even flat where other corners lie
    on one line with it. It is chosen if triangles are not thin, or less so than around the mean.
    """
    found = torch.full_like(mesh.counts(), -1)
    for face, vertex in mesh.by_size(backend_of(mesh.uv.device).numbers >> 4):
        k = vertex.shape[1]
        if k == 3:
            found[face] = 0
        elif k < _MOST:
            uv = take(mesh.uv, vertex.reshape(-1)).view(-1, k, 2)
            found[face] = _best_corner(uv)
    return found


def _best_corner(uv: Tensor) -> Tensor:
    """The best corner of polygons (N, k, 2), (N,); -1 where the mean is better."""
    k = uv.shape[1]
    corner = torch.arange(k, device=uv.device)
    ahead = (corner[:, None] + torch.arange(1, k, device=uv.device)) % k
    from_corners = _fatness(uv[:, :, None], uv[:, ahead[:, :-1]], uv[:, ahead[:, 1:]]).amin(2)
    from_mean = _fatness(uv.mean(1, keepdim=True), uv, uv.roll(-1, 1)).amin(1)
    best = from_corners.max(1)
    return torch.where(best.values >= from_mean.clamp(max=_FAT), best.indices, -1)


def _fatness(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The height of triangles with corners (..., 2) over their longest sides, relative to these."""
    sides = b - a, c - b, a - c
    longest = torch.stack([side.square().sum(-1) for side in sides])
    doubled = sides[0][..., 0] * sides[1][..., 1] - sides[0][..., 1] * sides[1][..., 0]
    return doubled / longest.amax(0)


@dataclass(frozen=True)
class Triangulation:
    """T triangles in place of some faces of a mesh, with V vertices and E edges of their own.

    uv: (V, 2); edges: (E, 2); sides: (T, 3) the half-edges of each triangle, as in ``Mesh``; root:
    (E,) the edge of the mesh that an edge is a part of, -1 inside faces; span: (E, 2) where on its
    root an edge begins and ends, from 0 to 1; faces: (R,) those of the mesh that are replaced, in
    ascending order; vertex_ids: the vertices of the mesh that the first vertices are, edge_ids: the
    edges of the mesh that the first edges are parts of; held: (E,) whether an edge is a part of the
    border of a face that stays.
    """

    uv: Tensor
    edges: Tensor
    sides: Tensor
    root: Tensor
    span: Tensor
    held: Tensor
    faces: Tensor
    vertex_ids: Tensor
    edge_ids: Tensor

    def corners(self, triangles: Tensor | slice = slice(None)) -> Tensor:
        """The vertices of some triangles, counter-clockwise, (N, 3)."""
        sides = self.sides[triangles]
        return take(self.edges.view(-1), sides.reshape(-1)).view(sides.shape)

    def neighbours(self) -> Tensor:
        """The triangles left and right of each edge, -1 if there is none, (E, 2)."""
        beside = self.sides.new_full((2 * len(self.edges),), -1)
        index = torch.arange(self.sides.shape[0], device=beside.device)
        beside[self.sides.reshape(-1)] = index.repeat_interleave(3)
        return beside.view(-1, 2)

    def squared_lengths(self) -> Tensor:
        """The squared length of each edge, (E,)."""
        a, b = self.edges.unbind(1)
        return (take(self.uv, b) - take(self.uv, a)).square().sum(1)

    def longest(self, squares: Tensor) -> Tensor:
        """Which side of each triangle, 0 to 2, is the longest one by squared lengths (E,), (T,).

        Of equally long edges the one with the highest number counts as longer, so that both
        triangles beside an edge compare it with others in the same way.
        """
        edge = self.sides >> 1
        length = take(squares, edge.reshape(-1)).view(edge.shape)
        return torch.where(length == length.amax(1, keepdim=True), edge, -1).argmax(1)


def triangulated(mesh: Mesh, faces: Tensor) -> Triangulation:
    """Divide the chosen faces, a mask (F,), into triangles around their means or from a corner."""
    chosen = faces.nonzero()[:, 0]
    part, vertex_ids, edge_ids = mesh.select(chosen)
    vertices, edges = part.num_vertices, part.num_edges
    apex = apexes(part)
    owner, start = part.owners(), part.corner_vertices()
    central = apex < 0
    first = part.offsets[:-1] + apex.clamp(min=0)
    middle = torch.where(central, vertices + torch.cumsum(central, 0) - 1, start[first])
    # How many corners each one is after that from which the face is divided.
    corner = torch.arange(owner.shape[0], device=owner.device)
    count, around = part.counts()[owner], central[owner]
    after = (corner - first[owner]) % count
    # Corners are joined to the middle by new edges, or by sides of the face.
    joined = (around | ((after > 1) & (after < count - 1))).nonzero()[:, 0]
    spoke = torch.zeros_like(owner)
    spoke[joined] = edges + torch.arange(joined.shape[0], device=owner.device)
    before = part.corners[part.previous_corner()]
    outwards = torch.where(around | (after != 1), 2 * spoke, before)
    inwards = torch.where(around | (after != count - 1), 2 * spoke + 1, part.corners)
    ahead = following(part.offsets, owner.shape[0])
    opposite = (around | ((after > 0) & (after < count - 1))).nonzero()[:, 0]
    sides = torch.stack([part.corners[opposite], inwards[ahead[opposite]], outwards[opposite]], 1)
    spokes = torch.stack([middle[owner[joined]], start[joined]], 1)
    beside = mesh.halfedge_face()[2 * edge_ids[:, None] + torch.arange(2, device=owner.device)]
    held = ((beside >= 0) & ~faces[beside.clamp(min=0)]).any(1)
    number = torch.arange(edges, device=owner.device)
    whole = part.uv.new_tensor([0.0, 1.0])
    return Triangulation(
        uv=torch.cat([part.uv, part.means()[central]]),
        edges=torch.cat([part.edges, spokes]),
        sides=sides,
        root=torch.cat([number, torch.full_like(joined, -1)]),
        span=whole.repeat(edges + joined.shape[0], 1),
        held=torch.cat([held, torch.zeros_like(joined, dtype=torch.bool)]),
        faces=chosen,
        vertex_ids=vertex_ids,
        edge_ids=edge_ids,
    )


def closed(found: Triangulation, marked: Tensor, longest: Tensor) -> Tensor:
    """The edges to divide, a mask (E,), so that each triangle with one of them has its longest.

    marked: (E,) the edges that are to be divided at least; longest: (T,) edge of each triangle.
    """
    marked = marked.clone()
    beside = found.neighbours()
    latest = marked.nonzero()[:, 0]
    while latest.shape[0]:
        triangles = beside[latest].view(-1)
        edge = take(longest, triangles[triangles >= 0])
        latest = torch.unique(edge[~marked[edge]])
        marked[latest] = True
    return marked


def bisected(found: Triangulation, marked: Tensor, place: Tensor) -> tuple[Triangulation, Tensor]:
    """Divide marked edges (E,) in the middle, and with them the triangles beside them.

    place: (T,) the longest side of each triangle, which is marked if any of its sides is. Vertex
    V + k is the middle of the k-th marked edge. Returns also the earlier triangle that each one is
    a part of, (T,); those that stay come first.
    """
    vertices, edges = len(found.uv), len(found.edges)
    split = marked.nonzero()[:, 0]
    rank = torch.cumsum(marked, 0) - 1
    a, b = found.edges[split].unbind(1)
    middle = vertices + torch.arange(split.shape[0], device=split.device)
    first = found.edges.clone()
    first[split, 1] = middle
    span = found.span.clone()
    half = found.span[split].mean(1)
    span[split, 1] = half

    def half_of(side: Tensor, second: int) -> Tensor:
        """The first or the second half of half-edges whose edges are divided."""
        edge, back = side >> 1, side & 1
        return 2 * torch.where(back == second, edge, edges + rank[edge]) + back

    # The sides from A to B, from B to C and from C to A; the one from A to B is the longest.
    touched = marked[found.sides >> 1].any(1)
    old = touched.nonzero()[:, 0]
    turn = (place[old, None] + torch.arange(3, device=old.device)) % 3
    ab, bc, ca = found.sides[old].gather(1, turn).unbind(1)
    two, one = (marked[side >> 1].nonzero()[:, 0] for side in (ca, bc))
    count = old.shape[0]
    number = edges + split.shape[0] + torch.arange(count + len(two) + len(one), device=old.device)
    to_c, to_ca, to_bc = torch.split(2 * number, [count, len(two), len(one)])
    ends = found.edges.view(-1)
    m = vertices + rank[ab >> 1]
    drawn = torch.cat(
        [
            torch.stack([m, ends[ca]], 1),
            torch.stack([m[two], vertices + rank[ca[two] >> 1]], 1),
            torch.stack([m[one], vertices + rank[bc[one] >> 1]], 1),
        ]
    )
    left = torch.stack([half_of(ab, 0), to_c, ca], 1)
    right = torch.stack([half_of(ab, 1), bc, to_c + 1], 1)
    more_left = torch.stack([to_c[two], half_of(ca[two], 0), to_ca + 1], 1)
    more_right = torch.stack([to_bc, half_of(bc[one], 1), to_c[one] + 1], 1)
    left[two] = torch.stack([left[two, 0], to_ca, half_of(ca[two], 1)], 1)
    right[one] = torch.stack([right[one, 0], half_of(bc[one], 0), to_bc + 1], 1)
    kept = (~touched).nonzero()[:, 0]
    inner = torch.full_like(number, -1)
    made = replace(
        found,
        uv=torch.cat([found.uv, (take(found.uv, a) + take(found.uv, b)) / 2]),
        edges=torch.cat([first, torch.stack([middle, b], 1), drawn]),
        sides=torch.cat([found.sides[kept], left, right, more_left, more_right]),
        root=torch.cat([found.root, found.root[split], inner]),
        span=torch.cat(
            [
                span,
                torch.stack([half, found.span[split, 1]], 1),
                found.span.new_tensor([0.0, 1.0]).expand(inner.shape[0], 2),
            ]
        ),
        held=torch.cat([found.held, found.held[split], inner >= 0]),
    )
    return made, torch.cat([kept, old, old, old[two], old[one]])


def stitched(mesh: Mesh, found: Triangulation, layer: int) -> Mesh:
    """The mesh with triangles in place of the faces that they replace.

    Other faces come first, in their order; new vertices on their sides become corners of them.
    layer: of new edges inside faces, whose unit is 0, and of new vertices.
    """
    known, parts = found.vertex_ids.shape[0], found.edge_ids.shape[0]
    device = mesh.uv.device
    more = torch.arange(len(found.uv) - known, device=device)
    vertex = torch.cat([found.vertex_ids, mesh.num_vertices + more])
    more_edges = torch.arange(len(found.edges) - parts, device=device)
    number = torch.cat([found.edge_ids, mesh.num_edges + more_edges])
    ends = vertex[found.edges]
    edges = torch.cat([mesh.edges, ends[parts:]])
    edges[found.edge_ids] = ends[:parts]
    inner = found.root[parts:] < 0
    source = found.edge_ids[found.root[parts:].clamp(min=0)]
    counts, corners = _other_faces(mesh, found, number)
    triangles = 2 * number[found.sides >> 1] + (found.sides & 1)
    return Mesh(
        uv=torch.cat([mesh.uv, found.uv[known:]]),
        edges=edges,
        offsets=offsets_of(torch.cat([counts, counts.new_full((triangles.shape[0],), 3)])),
        corners=torch.cat([corners, triangles.view(-1)]),
        edge_layer=torch.cat([mesh.edge_layer, torch.where(inner, layer, mesh.edge_layer[source])]),
        edge_unit=torch.cat([mesh.edge_unit, torch.where(inner, 0, mesh.edge_unit[source])]),
        vertex_layer=torch.cat([mesh.vertex_layer, torch.full_like(more, layer)]),
    )


def _other_faces(mesh: Mesh, found: Triangulation, number: Tensor) -> tuple[Tensor, Tensor]:
    """The counts of corners and the corners of the faces that stay, with parts of their sides.

    number: (E,) of the triangulation's edges in the mesh that is made.
    """
    stays = torch.ones(mesh.num_faces, dtype=torch.bool, device=mesh.uv.device)
    stays[found.faces] = False
    owner = mesh.owners()
    some = stays[owner].nonzero()[:, 0]
    half, owner = mesh.corners[some], owner[some]
    # The parts of each divided edge in their order, one edge after the other.
    piece = found.held.nonzero()[:, 0]
    order = sort_rows(found.root[piece], found.span[piece, 0], found.edge_ids.shape[0])[0]
    piece = piece[order]
    per_root = torch.bincount(found.root[piece], minlength=found.edge_ids.shape[0])
    place = torch.full((mesh.num_edges,), -1, device=half.device)
    place[found.edge_ids] = torch.arange(per_root.shape[0], device=half.device)
    root = place[half >> 1]
    count = torch.where(root >= 0, per_root[root.clamp(min=0)], 1)
    row = owners_of(count)
    step = places_of(count, row, offsets_of(count))
    edge, back, root = half[row] >> 1, half[row] & 1, root[row]
    step = torch.where(back == 1, count[row] - 1 - step, step)
    parts = (root >= 0).nonzero()[:, 0]
    edge[parts] = number[piece[offsets_of(per_root)[root[parts]] + step[parts]]]
    per_face = torch.zeros_like(mesh.counts()).index_add_(0, owner, count)
    return per_face[stays], 2 * edge + back
