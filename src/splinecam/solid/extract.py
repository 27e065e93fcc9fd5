"""The surface on which an output of a network has a value: the cells that it meets, and its faces.

The body is first divided by a coarse grid, as bounds on small cells are tight. Then the layers of
the network divide what is left, and at last the output itself does. The surface is what separates
negative cells from the others, so that it is closed, and faces are joined again across the grid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import counts_of, following, offsets_of, owners_of, take, take_rows
from splinecam._util.graphs import components, cycles
from splinecam._util.progress import progress_bar, tell
from splinecam._util.tolerances import EPS, PLANAR, SAFETY, UNRESOLVED_REACH
from splinecam.engine.activations import require_no_overflow
from splinecam.geometry.solids import Solid
from splinecam.network.program import Program
from splinecam.solid.complex import AUXILIARY, Complex
from splinecam.solid.data import SurfaceData
from splinecam.solid.dropping import Dropping, extremes
from splinecam.solid.fits import affine_maps
from splinecam.solid.front import Front, Target, places_of
from splinecam.solid.outputs import Output

_HALVINGS = 3  # of the body along each axis
_WARP = 0.05 * (5**0.5 - 2)
_SURFACE = 1 << 40  # the layer of the faces of the surface


def surface_data(
    program: Program,
    solid: Solid,
    *,
    level: float = 0.0,
    output: Output = 0,
    grid: int = _HALVINGS,
    memory: int | None = None,
    progress: bool = False,
) -> SurfaceData:
    """The surface on which an output, or the difference of two, has a value.

    grid: how often the body is halved along each axis, before the network divides it; memory: bytes
    that the cells and their values may take.
    """
    weight = torch.zeros(program.output_shape, dtype=torch.float64).reshape(-1)
    first, *second = [output] if isinstance(output, int) else output
    weight[first] += 1
    weight[second] -= 1
    solid = solid.to(program.device)
    middle, solid = solid.middle, solid.centred
    target = Target(weight, float(level))
    dropping = Dropping.of(program, target)
    front, counts = Front.of(program, solid, target), dropping.counts
    steps = len(program.layers) + grid
    with progress_bar(steps, "layer", progress) as bar:
        for k in range(steps):
            if not front.complex.num_cells:
                break
            front = _halved(front, solid, k, dropping) if k < grid else front.carried(dropping)
            front.require_room(memory, "The surface")
            front = dropping.without_empty(front)
            tell(bar, f"step {k + 1} of {steps}, {front.complex.num_cells:,} cells", 0, 1)
    found = _extracted(front, solid, counts) if front.complex.num_cells else _nothing(counts)
    found = replace(
        found,
        vertices=found.vertices + middle,
        bias=found.bias - found.gradients @ middle,
        unresolved=[(torch.tensor(place) + middle).tolist() for place in found.unresolved],
    )
    arrays: Any = {name: x.cpu() for name, x in vars(found).items() if isinstance(x, Tensor)}
    return replace(found, **arrays)


def _halved(front: Front, solid: Solid, halvings: int, dropping: Dropping) -> Front:
    """The front with all cells of a grid halved along each axis."""
    low, high = solid.corners.amin(0), solid.corners.amax(0)
    steps = (2 * torch.arange(2**halvings, dtype=torch.float64) + 1) / 2 ** (halvings + 1)
    # Borders of linear regions often lie at simple fractions. The grid does not.
    steps += _WARP * steps * (1 - steps)
    places = low + (high - low) * steps[:, None]  # (K, 3)
    z = (front.complex.uvw[:, None] - places).flatten(1)
    tolerance = (SAFETY * EPS) * torch.maximum(low.abs(), high.abs()).repeat(len(steps))
    label = torch.zeros(len(tolerance), dtype=torch.int64)
    return front.divided(z, tolerance, label, AUXILIARY, dropping)


def _nothing(counts: Counter[str], error: float = 0.0, places: Sequence[Any] = ()) -> SurfaceData:
    none, index = torch.zeros((0, 3), dtype=torch.float64), torch.zeros(0, dtype=torch.int64)
    offsets = torch.zeros(1, dtype=torch.int64)
    report = {"flat cells": 0, "uncut cells": 0, **counts, "rounding": error}
    arrays = none, offsets, index, index.int(), none, none[:, 0], index
    return SurfaceData(*arrays, report, list(places))


def _extracted(front: Front, solid: Solid, counts: Counter[str]) -> SurfaceData:
    """The surface between negative cells and others."""
    target, before, known = front.target, front.complex, front.complex.num_vertices
    assert target is not None
    error = target.error(front.bounds[front.program.output_name])
    require_no_overflow({}, torch.tensor([error], dtype=torch.float64))
    tolerance = torch.tensor([SAFETY * error], dtype=torch.float64)
    f = torch.where(front.f.abs() <= tolerance, 0.0, front.f)
    cut = before.cut(f[:, None], tolerance, torch.zeros(1, dtype=torch.int64), _SURFACE)
    whole, made = cut.complex, cut.made
    f = torch.cat([f, f.new_zeros(whole.num_vertices - known)])
    offsets, corners = whole.cell_corners()
    low, high = extremes(take(f, corners), offsets)
    below = -low > high
    flat = (low == 0) & (high == 0)
    beside = whole.beside()
    inner = (beside >= 0).all(1)
    sides = take(below, beside.clamp(min=0).view(-1)).view(-1, 2)
    face = (inner & (sides[:, 0] != sides[:, 1])).nonzero()[:, 0]
    counts["flat cells"], counts["uncut cells"] = int(flat.sum()), made.uncut.shape[0]
    # An output that is zero up to rounding in the whole body hides where it is zero.
    hidden = not counts["dropped"] and 0 < float(front.f.abs().max()) <= float(tolerance)
    places = [*front.uncut, solid.corners.mean(0, keepdim=True)[: int(hidden)]]
    places += [places_of(cut)] if made.uncut.shape[0] else []
    unresolved = torch.cat(places).tolist()
    if not face.shape[0]:
        return _nothing(counts, error, unresolved)
    # The piece below has the network's map, as the one above may be flat.
    cell = made.parent[torch.where(sides[face, 0], beside[face, 0], beside[face, 1])]
    if counts["flat cells"]:
        whole = _relabelled(whole, face)
    polygons = FlatFaces.of(whole, face, ~sides[face, 0]).joined()
    gradients, bias = _maps(front, solid, cell, polygons.group)
    vertices, face_vertices = torch.unique(polygons.start, return_inverse=True)
    report = {**counts, "rounding": error}
    return SurfaceData(
        whole.uvw[vertices],
        polygons.offsets,
        face_vertices,
        polygons.layer.int(),
        gradients,
        bias,
        torch.arange(len(bias)),
        report,
        unresolved,
    )


def _relabelled(whole: Complex, face: Tensor) -> Complex:
    """The complex with the layers of edges that faces of the surface have from other faces there.

    Beside a flat cell the surface has old faces, in which later layers drew edges.
    """
    arrays = whole.arrays
    surface = torch.zeros(whole.num_faces, dtype=torch.bool)
    surface[face] = True
    owner = owners_of(arrays.face_offsets.diff(), arrays.corners.shape[0])
    other = ~surface[owner]
    none = torch.full_like(arrays.edge_layer, AUXILIARY - 1)
    edge, layers = (arrays.corners >> 1)[other], arrays.face_layer[owner[other]]
    found = none.scatter_reduce_(0, edge, layers, "amax")
    layer = torch.where(found < AUXILIARY, arrays.edge_layer, found)
    return replace(whole, arrays=arrays._replace(edge_layer=layer))


@dataclass(frozen=True, eq=False)
class FlatFaces:
    """Polygons with H corners between the vertices of a complex.

    start, edge: (H,) the vertex of each corner, and the edge after it; layer: (H,) of that edge;
    offsets: (F + 1,) of the polygons; group: (P,) the polygon to which each of P pieces belongs;
    whole: the complex.
    """

    whole: Complex
    start: Tensor
    edge: Tensor
    layer: Tensor
    offsets: Tensor
    group: Tensor

    @classmethod
    def of(cls, whole: Complex, face: Tensor, turned: Tensor) -> FlatFaces:
        """Faces (F,) of a complex, some of which are turned over."""
        arrays = whole.arrays
        rows, sizes = take_rows(arrays.face_offsets, face)
        owner, offsets = owners_of(sizes, rows.shape[0]), offsets_of(sizes)
        back = turned[owner]
        place = torch.arange(len(rows))
        place = torch.where(back, offsets[owner] + offsets[owner + 1] - 1 - place, place)
        half = take(arrays.corners, rows)[place] ^ back.long()
        start, edge = take(arrays.edges.view(-1), half), half >> 1
        return cls(whole, start, edge, arrays.edge_layer[edge], offsets, torch.arange(len(face)))

    def joined(self) -> FlatFaces:
        """The polygons joined across auxiliary edges, where they are one polygon."""
        auxiliary = self.layer == AUXILIARY
        if not bool(auxiliary.any()):
            return self
        count = len(self.offsets) - 1
        owner = owners_of(self.offsets.diff(), len(self.start))
        at = auxiliary.nonzero()[:, 0]
        edge, order = torch.sort(self.edge[at], stable=True)
        pair = (edge[1:] == edge[:-1]).nonzero()[:, 0]
        ends = owner[at[order[pair]]], owner[at[order[pair + 1]]]
        # Where three units of a maximum are equal in a line, faces bend in an auxiliary edge.
        flat = self._level(ends)
        pair, ends = pair[flat], (ends[0][flat], ends[1][flat])
        apart = torch.zeros(count, dtype=torch.bool)  # pieces that stay as they are
        while True:
            free = ~(apart[ends[0]] | apart[ends[1]])
            group = components(count, ends[0][free], ends[1][free])
            gone = torch.zeros_like(auxiliary)
            gone[at[order[pair[free]]]] = gone[at[order[pair[free] + 1]]] = True
            gone &= take(counts_of(group, count), group[owner]) > 1
            found = self._outlines(group[owner], ~gone)
            if not isinstance(found, Tensor):
                break
            apart |= found[group]
        kept, offsets = found
        return self._straightened(kept, offsets, group, gone)

    def _level(self, pair: tuple[Tensor, Tensor]) -> Tensor:
        """Whether the smaller one of two polygons lies in the plane of the larger one, (N,)."""
        sizes, uvw = self.offsets.diff(), self.whole.uvw
        owner, after = owners_of(sizes, len(self.start)), following(self.offsets, len(self.start))
        anchor = uvw[self.start[self.offsets[:-1]]]
        points = uvw[self.start] - anchor[owner]
        normal = torch.zeros_like(anchor)
        normal.index_add_(0, owner, torch.linalg.cross(points, points[after]))
        area = normal.norm(dim=1)
        larger = torch.where(area[pair[0]] >= area[pair[1]], pair[0], pair[1])
        rows, counts = take_rows(self.offsets, pair[0] + pair[1] - larger)
        own = larger[owners_of(counts, len(rows))]
        off = ((uvw[self.start[rows]] - anchor[own]) * normal[own]).sum(1).abs()
        reach = UNRESOLVED_REACH * (uvw.amax(0) - uvw.amin(0)).norm() * area[own]
        far = torch.zeros(len(larger), dtype=torch.bool)
        far[owners_of(counts, len(rows))[off > reach]] = True
        return ~far

    def _outlines(self, group: Tensor, kept: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """The corners in order along groups of polygons, or the groups that have no one outline.

        group: (H,) of each corner; kept: which corners are left.
        """
        corner = kept.nonzero()[:, 0]
        owner, count = group[corner], int(group.max()) + 1
        after = following(self.offsets, len(self.start))
        n = self.whole.num_vertices
        key, order = torch.sort(owner * n + self.start[corner])
        wanted = owner * n + self.start[after[corner]]
        place = torch.searchsorted(key, wanted).clamp(max=len(key) - 1)
        bad = torch.zeros(count, dtype=torch.bool)
        bad[owner[key[place] != wanted]] = True
        bad[key[1:][key[1:] == key[:-1]] // n] = True
        bad |= counts_of(owner, count) == 0
        if bool(bad.any()):
            return bad
        offsets, members = cycles(order[place])
        first = owner[members[offsets[:-1]]]
        bad |= counts_of(first, count) != 1
        if bool(bad.any()):
            return bad
        turn = torch.argsort(first)
        rows, sizes = take_rows(offsets, turn)
        return corner[members[rows]], offsets_of(sizes)

    def _straightened(
        self, kept: Tensor, offsets: Tensor, group: Tensor, gone: Tensor
    ) -> FlatFaces:
        """The polygons of some corners, without vertices at which an edge only goes straight on."""
        n, start, layer = self.whole.num_vertices, self.start[kept], self.layer[kept]
        after = following(offsets, len(start))
        before = torch.empty_like(after)
        before[after] = torch.arange(len(after))
        touched = torch.zeros(n, dtype=torch.bool)
        touched[self.whole.arrays.edges[self.edge[gone]].view(-1)] = True
        ends = self.whole.arrays.edges[torch.unique(self.edge[kept])].view(-1)
        two = touched & (counts_of(ends, n) == 2)
        uvw = self.whole.uvw
        one, other = (uvw[start[x]] - uvw[start] for x in (after, before))
        sine = torch.linalg.cross(one, other).norm(dim=1)
        bent = sine > PLANAR * one.norm(dim=1) * other.norm(dim=1)
        bent |= layer != layer[before]
        two[start[bent]] = False
        left = ~two[start]
        sizes = torch.zeros(len(offsets) - 1, dtype=torch.int64)
        sizes.index_add_(0, owners_of(offsets.diff(), len(start)), left.long())
        few = sizes < 3
        left |= few[owners_of(offsets.diff(), len(start))]
        sizes = torch.where(few, offsets.diff(), sizes)
        corner = kept[left]
        return FlatFaces(
            self.whole,
            self.start[corner],
            self.edge[corner],
            self.layer[corner],
            offsets_of(sizes),
            group,
        )


def _maps(front: Front, solid: Solid, cell: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients (F, 3) and offsets (F,) of the target on groups of cells (P,)."""
    target, whole = front.target, front.complex
    assert target is not None
    offsets, corners = whole.cell_corners()
    rows, sizes = take_rows(offsets, cell)
    error = target.error(front.bounds[front.program.output_name])
    points = whole.uvw, front.f[:, None] + target.level, error

    def slopes(centre: Tensor) -> Tensor:
        return target.weight @ front.slopes(solid, centre)[:, None]

    gradient, bias, _ = affine_maps(points, (offsets_of(sizes), corners[rows]), group, slopes)
    return gradient[:, 0], bias[:, 0]
