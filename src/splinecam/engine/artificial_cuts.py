"""Divide a single face that is too large by artificial lines, and remove these lines at the end.

Everything is affine on a face before a layer refines it, so that values at vertices on an
artificial line are interpolated. The parts of the face are tiles like any others. When they are
joined at the end of the network, the regions on both sides of an artificial edge are one region,
unless a line of the network happens to run along it: then the edge stays, as an edge of that line.

Along an artificial line the network's lines cross it, one at each vertex. A line of the network can
begin or end to run along it only at other vertices. Between such vertices all edges are alike, and
one of them decides: the network is run on both sides of it.

The lines of a layer's units are chords of the face, and the regions that they make are about as
many as their crossings. A sample of crossings therefore shows how many regions there will be, and
where they lie. Where many chords pass through one point, only lines through that point divide the
regions around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, pi, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.arrays import counts_of
from splinecam._util.tolerances import EPS, SAFETY, UV_ERROR
from splinecam.arrangement.crossings import Ambiguities, Functions, Signs, SignWriter
from splinecam.arrangement.dissolve import dissolve_few
from splinecam.arrangement.refine import refine
from splinecam.engine.activations import LayerInput, State, rows_in_block
from splinecam.engine.tiling import ROOT
from splinecam.geometry.subdivision import Mesh
from splinecam.network.nonlinearities import Nonlinearity, SortNonlinearity
from splinecam.network.ops.bounds import Bound
from splinecam.network.program import Program

_DRAWN = 1 << 14  # pairs of chords that are looked at
_SEED = 0
_TILT = 0.1932 * pi  # the lines are turned by this angle, so that they are like no network's lines
_EVENLY = 256  # points of a face of which nothing is known
_MARGIN = 2.0**-10  # how far a line stays away from the ends of a face, relative to its width
_GAP = 2.0**-24  # between which points a line may pass, relative to the width
_NEAR = 2.0**-16  # how close crossings are that count as one point, relative to the width
_MANY = 0.25  # the share of crossings in one point from which on that point is divided
_SNAP = 2.0**-40  # how close such a point is to a corner that it is taken for
MOST_PARTS = 1 << 10  # into which a face is divided
_ASIDE = 0.381966  # a share of a width at which hardly anything is


class CutLines(NamedTuple):
    """The points of a plane at which ``uv @ normal`` is ``level``: (L, 2) unit vectors and (L,)."""

    normal: Tensor
    level: Tensor

    @property
    def tangent(self) -> Tensor:
        """The directions of the lines, (L, 2)."""
        return torch.stack([-self.normal[:, 1], self.normal[:, 0]], 1)

    def values(self, uv: Tensor) -> Tensor:
        """How far points (V, 2) are in front of each line, (V, L)."""
        return uv @ self.normal.T - self.level


class RegionSample(NamedTuple):
    """About how many regions there will be, and points (N, 2) where they lie, with weights (N,).

    outline: (k, 2) the corners of the face. apex: a point (2,) through which many lines pass, if
    any, and angles: (M,) those of the lines.
    """

    outline: Tensor
    regions: float
    points: Tensor
    weight: Tensor
    apex: Tensor | None = None
    angles: Tensor | None = None


def sample_regions(uv: Tensor, functions: Functions | None) -> RegionSample:
    """A sample of the regions of a convex face with corners uv (k, 2), in order around it.

    functions: their values are given at the corners, in the same order; None if it is not known
    how many regions there will be.
    """
    if functions is None:
        random = torch.Generator().manual_seed(_SEED)
        share = torch.rand((_EVENLY, uv.shape[0]), generator=random).to(uv)
        points = (share / share.sum(1, keepdim=True)) @ uv
        return RegionSample(uv, torch.inf, points, torch.ones_like(points[:, 0]))
    start, end = _chords(uv, functions)
    lines = start.shape[0]
    if not lines:
        return RegionSample(uv, 1.0, uv, torch.ones_like(uv[:, 0]))
    random = torch.Generator().manual_seed(_SEED)
    first, second = torch.randint(lines, (2, _DRAWN), generator=random).to(uv.device)
    crossing = _crossings(start, end, first, second)
    crossings = crossing.shape[0] / _DRAWN * lines * (lines - 1) / 2
    share = torch.rand((_DRAWN, 1), generator=random).to(uv)
    along = torch.lerp(start[first], end[first], share)
    weight = uv.new_full((crossing.shape[0] + _DRAWN,), lines / _DRAWN)
    weight[: crossing.shape[0]] = crossings / max(1, crossing.shape[0])
    sample = RegionSample(uv, 1 + lines + crossings, torch.cat([crossing, along]), weight)
    return _with_apex(sample, crossing, crossings, end - start)


def _with_apex(
    sample: RegionSample, crossing: Tensor, crossings: float, chords: Tensor
) -> RegionSample:
    """The sample with the point at which many chords (M, 2) cross, if there is one."""
    if not crossing.shape[0]:
        return sample
    uv = sample.outline
    width = (uv.amax(0) - uv.amin(0)).amax()
    apex = crossing.median(0).values
    together = (crossing - apex).abs().amax(1) <= _NEAR * width
    share = float(together.double().mean())
    if share < _MANY:
        return sample
    off = (uv - apex).norm(dim=1)
    if bool(off.amin() <= _SNAP * width):
        apex = uv[off.argmin()]
    regions = sample.regions - share * crossings  # all of them are one vertex
    angles = torch.atan(chords[:, 1] / chords[:, 0])
    return sample._replace(regions=regions, apex=apex, angles=angles)


def _chords(uv: Tensor, functions: Functions) -> tuple[Tensor, Tensor]:
    """Both ends of the lines along which functions vanish in a face, (m, 2) each."""
    column = functions.wanted.nonzero()[:, 0]
    unit = functions.unit[column]
    value = functions.z[:, unit]
    if functions.other is None:
        value = value - functions.level[column]
    else:
        value = value - functions.z[:, functions.other[column]]
    after = value.roll(-1, 0)
    changes = (value > 0) != (after > 0)
    zero = SAFETY * functions.error[column]
    crosses = (value.amax(0) > zero) & (value.amin(0) < -zero) & (changes.sum(0) == 2)
    crosses = crosses.nonzero()[:, 0]
    value, after, changes = value[:, crosses], after[:, crosses], changes[:, crosses].to(torch.int8)
    sides = changes.argmax(0), uv.shape[0] - 1 - changes.flip(0).argmax(0)
    ends = []
    for side in sides:
        a, b = (x.gather(0, side[None])[0] for x in (value, after))
        ends.append(torch.lerp(uv[side], uv.roll(-1, 0)[side], (a / (a - b))[:, None]))
    return ends[0], ends[1]


def _crossings(start: Tensor, end: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The points (N, 2) at which some pairs of chords cross."""
    d, e, off = (end - start)[first], (end - start)[second], start[second] - start[first]
    turn = _cross(d, e)
    s, t = _cross(off, e) / turn, _cross(off, d) / turn
    inside = (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)  # chords may begin at the same corner
    return (start[first] + s[:, None] * d)[inside]


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]


def choose_lines(sample: RegionSample, parts: int) -> CutLines:
    """Lines that divide a face into about so many parts, with as many regions each.

    There is at least one line. They have two directions, or pass through one point.
    """
    parts = min(parts, MOST_PARTS)
    if sample.apex is not None and sample.angles is not None:
        ends = sample.angles.new_tensor([-pi / 2, pi / 2])
        angle = _levels(ends, sample.angles, torch.ones_like(sample.angles), parts + 1)
        normal = torch.stack([-torch.sin(angle), torch.cos(angle)], 1)
        return CutLines(normal, normal @ sample.apex)
    points, weight = sample.points, sample.weight
    weight = weight / weight.sum()
    centred = points - weight @ points
    _, vectors = torch.linalg.eigh((centred * weight[:, None]).T @ centred)
    long = vectors[:, 1] * torch.where(vectors[0, 1] < 0, -1.0, 1.0)
    cos, sin = torch.cos(long.new_tensor(_TILT)), torch.sin(long.new_tensor(_TILT))
    first = torch.stack([cos * long[0] - sin * long[1], sin * long[0] + cos * long[1]])
    axes = torch.stack([first, torch.stack([-first[1], first[0]])])
    spread = ((centred @ axes.T).square() * weight[:, None]).sum(0).sqrt().tolist()
    across = round(sqrt(parts * spread[0] / spread[1])) if spread[1] > 0 else parts
    across = max(1, min(parts, across))
    normals, levels = [], []
    for axis, count in zip(axes, (across, ceil(parts / across)), strict=True):
        level = _levels(sample.outline @ axis, points @ axis, weight, count)
        normals.append(axis.expand(level.shape[0], 2))
        levels.append(level)
    return CutLines(torch.cat(normals), torch.cat(levels))


def _levels(ends: Tensor, points: Tensor, weight: Tensor, count: int) -> Tensor:
    """Levels between ``count`` equal shares of weighted points, inside of the interval of ends.

    They pass between points that are apart: not through a point at which many lines meet.
    """
    if count < 2:
        return ends[:0]
    low, high = ends.amin(), ends.amax()
    margin, gap = _MARGIN * (high - low), _GAP * (high - low)
    points, order = torch.sort(points)
    middle = (points[1:] + points[:-1]) / 2
    free = ((points.diff() > gap) & (middle > low + margin) & (middle < high - margin)).nonzero()
    if not free.shape[0]:
        return (low + (high - low) * _ASIDE)[None]
    share = torch.cumsum(weight[order], 0)
    share = (share / share[-1])[free[:, 0]]
    wanted = torch.arange(1, count, device=share.device, dtype=share.dtype) / count
    after = torch.searchsorted(share, wanted).clamp(max=share.shape[0] - 1)
    before = (after - 1).clamp(min=0)
    nearest = torch.where(wanted - share[before] < share[after] - wanted, before, after)
    return middle[free[torch.unique(nearest), 0]]


ARTIFICIAL = torch.iinfo(torch.int32).max  # the layer of artificial edges and vertices

UNDECIDED = "the sides of an artificial line are too close to tell apart"


@dataclass(frozen=True)
class DividedFace:
    """A state of a single face before the layer of stage ``index``, and of the same in parts.

    lines: what divides it; an artificial edge has the number of its line as its unit.
    """

    whole: State
    index: int
    lines: CutLines
    state: State
    layer_input: LayerInput

    def artificial_pieces(self, tile: Mesh) -> int:
        """How many edges of a tile of the parts, refined since, are pieces of artificial edges."""
        roots = ROOT - tile.edge_layer[tile.edge_layer <= ROOT]
        on_rim = self.state.mesh.edge_layer[roots] == ARTIFICIAL
        return int(on_rim.sum() + (tile.edge_layer == ARTIFICIAL).sum())

    def rejoined(
        self, joined: State, program: Program, errors: Mapping[str, Tensor], numbers: int
    ) -> State:
        """The state at the end of the network without artificial edges.

        joined: with them. errors: of the units of each layer. numbers: about how many are computed
        at a time.
        """
        index = torch.arange(joined.mesh.num_vertices, device=joined.mesh.uv.device)

        def switch(uv: Tensor) -> tuple[Tensor, Tensor]:
            both = (program.walk_on(self.index, self._values(side)) for side in uv.unbind(1))
            return switching(both, errors, self.index)

        rows_at_once = rows_in_block(numbers, list(self.whole.rows.values()))
        fixed = index < self.whole.mesh.num_vertices
        mesh, kept, undecided = without_artificial_edges(
            joined.mesh, self.lines, fixed, switch, rows_at_once
        )
        rows = {name: value[kept] for name, value in joined.rows.items()}
        ambiguities = [*joined.ambiguities]
        if undecided.shape[0]:
            name = program.layers[min(self.index, len(program.layers) - 1)].name
            ambiguities.append((name, Ambiguities(undecided.mean(1), UNDECIDED)))
        return State(mesh, rows, joined.bounds, ambiguities=ambiguities)

    def _values(self, uv: Tensor) -> dict[str, Tensor]:
        """The live values before the layer at points of the face, (N, 2)."""
        corner = self.whole.mesh.uv
        far = (corner - corner[0]).norm(dim=1).argmax()
        side = corner[far] - corner[0]
        off = (corner - corner[0]) @ torch.stack([-side[1], side[0]])
        three = torch.stack([torch.zeros_like(far), far, off.abs().argmax()])
        a, b, c = corner[three]
        share = torch.linalg.solve(torch.stack([b - a, c - a], 1), (uv - a).T).T
        weights = torch.cat([1 - share.sum(1, keepdim=True), share], 1)
        return {
            name: (weights @ value[three].flatten(1)).view(-1, *value.shape[1:])
            for name, value in self.whole.rows.items()
        }


def sample_face(state: State, layer: Nonlinearity, layer_input: LayerInput) -> RegionSample:
    """A sample of the regions that a layer will make of the only face of a state."""
    vertex = state.mesh.corner_vertices()
    z = state.rows[layer.source].reshape(state.mesh.num_vertices, -1)[vertex]
    error = state.bounds[layer.source].error.reshape(-1)
    functions = layer.functions(z, error, layer_input.low, layer_input.high)
    return sample_regions(state.mesh.uv[vertex], functions)


Switch = Callable[[Tensor], tuple[Tensor, Tensor]]
"""The layer and the unit that switch between both points (R, 2, 2) of pairs, (R,); -1 for none."""


def switching(
    walks: Iterable[Iterator[tuple[Nonlinearity, Tensor]]], errors: Mapping[str, Tensor], first: int
) -> tuple[Tensor, Tensor]:
    """The first layer, and the unit, that differ between two walks through a network, (R,) each.

    errors: of the units of each layer. first: the number of the layer with which the walks begin.
    """
    layer = unit = torch.zeros(0, dtype=torch.int64)
    for i, ((kind, left), (_, right)) in enumerate(zip(*walks, strict=True), first):
        apart = kind.apart(left, right, SAFETY * errors[kind.name])
        label = apart.to(torch.int8).argmax(1)
        if isinstance(kind, SortNonlinearity):
            label = kind.pairs[0][label]
        if i == first:
            layer = unit = torch.full_like(label, -1)
        new = (layer < 0) & apart.any(1)
        layer, unit = torch.where(new, i, layer), torch.where(new, label, unit)
    return layer, unit


def without_artificial_edges(
    mesh: Mesh, lines: CutLines, fixed: Tensor, switch: Switch, rows: int
) -> tuple[Mesh, Tensor, Tensor]:
    """A mesh at the end of the network without artificial edges, and its vertices' old numbers.

    The third result are ends (N, 2, 2) of edges of which rounding leaves open whether they belong
    to the network. fixed: (V,) vertices that stay. rows: how many pairs ``switch`` gets at a time.
    """
    edge, run, longest, doubtful, touched = _artificial_edges(mesh, lines)
    beside = mesh.halfedge_face().view(-1, 2)[edge[longest]]
    faces, place = torch.unique(beside, return_inverse=True)
    uv = mesh.select(faces)[0].means()[place]  # (R, 2 sides, 2)
    found = [switch(some) for some in torch.split(uv, rows)]
    layer, unit = (torch.cat(column) for column in zip(*found, strict=True))
    undecided = mesh.uv[mesh.edges[edge[longest[doubtful & (layer < 0)]]]]
    layer, unit = layer[run], unit[run]
    stays = layer >= 0
    edge_layer, edge_unit = mesh.edge_layer.clone(), mesh.edge_unit.clone()
    edge_layer[edge[stays]], edge_unit[edge[stays]] = layer[stays], unit[stays]
    mesh = replace(mesh, edge_layer=edge_layer, edge_unit=edge_unit)
    mesh, kept = dissolve_few(mesh, edge[~stays], ~touched | fixed)
    vertices = (touched[kept] & ~fixed[kept]).nonzero()[:, 0]
    return replace(mesh, vertex_layer=_layers_of_vertices(mesh, vertices)), kept, undecided


def divide_face(
    state: State, index: int, source: str, layer_input: LayerInput, lines: CutLines
) -> DividedFace:
    """Divide the only face of a state by lines, before the layer of stage ``index``.

    source: the name of the layer's units.
    """
    parts = divide_faces(state, lines)
    signs = None
    if layer_input.signs is not None:
        values = parts.rows[source].reshape(parts.mesh.num_vertices, -1)
        signs = _signs(values, SAFETY * parts.bounds[source].error.reshape(-1))
    inputs = LayerInput(layer_input.low, layer_input.high, signs)
    return DividedFace(state, index, lines, parts, inputs)


def divide_faces(state: State, lines: CutLines) -> State:
    """Divide all faces of a state by lines; it has rows at all vertices."""
    z = lines.values(state.mesh.uv)
    error = torch.full_like(lines.level, UV_ERROR)
    zero = torch.zeros_like(error)[None]
    functions = Functions.crossing(z, zero, error, z.amin(0), z.amax(0))
    made = refine(state.mesh, functions, ARTIFICIAL)
    rows = {name: made.carry(value) for name, value in state.rows.items()}
    bounds = {
        name: Bound(magnitude, error + 2 * EPS * magnitude)
        for name, (magnitude, error) in state.bounds.items()
    }
    return replace(state, mesh=made.mesh, rows=rows, bounds=bounds)


def _signs(values: Tensor, tolerance: Tensor) -> Signs:
    """The signs of units at all vertices, (V, n)."""
    writer = SignWriter(values.shape[0], tolerance)
    writer.write(0, values)
    unset = ~(writer.signs.positive | writer.signs.negative) & writer.signs.wanted
    return replace(writer.signs, clear=not bool(unset.any()))


def _artificial_edges(mesh: Mesh, lines: CutLines) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The artificial edges of a mesh, (P,), in order along each line, in runs that are alike.

    Also the run of each edge, (P,); the place of the longest edge of each run, (R,); whether a run
    ends where a line of the network comes from one side only, which rounding explains, (R,); and
    whether each vertex is on an artificial line, (V,).
    """
    artificial = mesh.edge_layer == ARTIFICIAL
    edge = artificial.nonzero()[:, 0]
    line, ends = mesh.edge_unit[edge], mesh.edges[edge]
    position = (mesh.uv[ends] * lines.tangent[line][:, None]).sum(2)
    backwards = position[:, 0] > position[:, 1]
    ends = torch.where(backwards[:, None], ends.flip(1), ends)
    order = position.amin(1).argsort(stable=True)
    order = order[line[order].argsort(stable=True)]
    edge, line, ends = edge[order], line[order], ends[order]
    length = (position[:, 1] - position[:, 0]).abs()[order]

    touched = torch.zeros(mesh.num_vertices, dtype=torch.bool, device=edge.device)
    touched[ends] = True
    behind, before = _degrees(mesh, lines, artificial, touched, ends, line)
    crossed = counts_of(ends.view(-1), mesh.num_vertices) > 2  # by another artificial line
    none = (behind == 0) & (before == 0)
    simple = none | ((behind == 1) & (before == 1) & ~crossed)
    one_sided = ~none & ((behind == 0) | (before == 0))
    starts = torch.ones_like(edge, dtype=torch.bool)
    follows = (line[1:] == line[:-1]) & (ends[1:, 0] == ends[:-1, 1])
    starts[1:] = ~(follows & simple[ends[1:, 0]])
    run = torch.cumsum(starts.long(), 0) - 1
    count = int(run[-1]) + 1
    by_length = length.argsort(stable=True)
    rank = torch.empty_like(by_length)
    rank[by_length] = torch.arange(rank.shape[0], device=rank.device)
    best = run.new_zeros(count).scatter_reduce_(0, run, rank, "amax", include_self=False)
    last = run.new_zeros(count).scatter_(0, run, torch.arange(run.shape[0], device=run.device))
    doubtful = one_sided[ends[starts, 0]] | one_sided[ends[last, 1]]
    return edge, run, by_length[best], doubtful, touched


def _degrees(
    mesh: Mesh, lines: CutLines, artificial: Tensor, touched: Tensor, ends: Tensor, line: Tensor
) -> tuple[Tensor, Tensor]:
    """How many other edges each vertex on an artificial line has behind and in front of it, (V,).

    ends: (P, 2) the vertices of artificial edges, and line: (P,) their lines.
    """
    line_of = line.new_zeros(mesh.num_vertices)
    line_of[ends] = line[:, None].expand_as(ends)
    near = touched[mesh.edges] & ~artificial[:, None]
    edge, end = near.nonzero(as_tuple=True)
    vertex, other = mesh.edges[edge, end], mesh.edges[edge, 1 - end]
    ahead = ((mesh.uv[other] - mesh.uv[vertex]) * lines.normal[line_of[vertex]]).sum(1) > 0
    count = mesh.num_vertices
    return counts_of(vertex[~ahead], count), counts_of(vertex[ahead], count)


def _layers_of_vertices(mesh: Mesh, vertices: Tensor) -> Tensor:
    """The layers that made all vertices, (V,), with those of some vertices (N,) found anew.

    The first line through a point, or the border, has two edges there; the next line makes it a
    vertex: the layer of the third edge, in the order of layers.
    """
    made = mesh.vertex_layer.clone()
    if not vertices.shape[0]:
        return made
    wanted = torch.zeros_like(made, dtype=torch.bool)
    wanted[vertices] = True
    edge, end = wanted[mesh.edges].nonzero(as_tuple=True)
    vertex, layer = mesh.edges[edge, end], mesh.edge_layer[edge]
    order = layer.argsort(stable=True)
    order = order[vertex[order].argsort(stable=True)]
    counts = counts_of(vertex, mesh.num_vertices)[vertices]
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])  # vertices ascend
    third = offsets[:-1] + (counts - 1).clamp(max=2)
    made[vertices] = layer[order[third]]
    return made
