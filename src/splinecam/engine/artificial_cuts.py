"""Divide a single face that is too large by artificial lines, and remove these lines at the end.

Everything is affine on a face before a layer refines it, so that values at vertices on an
artificial line are interpolated. The parts of the face are tiles like any others. When they are
joined at the end of the network, the regions on both sides of an artificial edge are one region,
unless a line of the network happens to run along it: then the edge stays, as an edge of that line.

Along an artificial line the network's lines cross it, one at each vertex. A line of the network can
begin or end to run along it only at other vertices. Between such vertices all edges are alike, and
one of them decides: the network is run on both sides of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam._util.csr import counts_of
from splinecam._util.tolerances import EPS, SAFETY, UV_ERROR
from splinecam.arrangement.dissolve import dissolve_few
from splinecam.arrangement.edge_crossings import Ambiguities
from splinecam.arrangement.functions import Functions
from splinecam.arrangement.refine import refine
from splinecam.arrangement.signs import Signs, SignWriter
from splinecam.engine.activations import LayerInput, State, rows_in_block
from splinecam.engine.cut_lines import CutLines, RegionSample, sample_regions
from splinecam.engine.tiling import ROOT
from splinecam.geometry.subdivision import Mesh
from splinecam.network.nonlinearities import Nonlinearity, SortNonlinearity
from splinecam.network.ops import Bound
from splinecam.network.program import Program

__all__ = [
    "ARTIFICIAL",
    "UNDECIDED",
    "DividedFace",
    "divide_face",
    "divide_faces",
    "sample_face",
    "switching",
    "without_artificial_edges",
]

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
    pieces = _pieces(mesh, lines)
    beside = mesh.halfedge_face().view(-1, 2)[pieces.edge[pieces.longest]]
    faces, place = torch.unique(beside, return_inverse=True)
    uv = mesh.select(faces)[0].means()[place]  # (R, 2 sides, 2)
    found = [switch(some) for some in torch.split(uv, rows)]
    layer, unit = (torch.cat(column) for column in zip(*found, strict=True))
    undecided = mesh.uv[mesh.edges[pieces.edge[pieces.longest[pieces.doubtful & (layer < 0)]]]]
    layer, unit = layer[pieces.run], unit[pieces.run]
    stays = layer >= 0
    edge_layer, edge_unit = mesh.edge_layer.clone(), mesh.edge_unit.clone()
    edge_layer[pieces.edge[stays]], edge_unit[pieces.edge[stays]] = layer[stays], unit[stays]
    mesh = replace(mesh, edge_layer=edge_layer, edge_unit=edge_unit)
    mesh, kept = dissolve_few(mesh, pieces.edge[~stays], ~pieces.touched | fixed)
    touched = (pieces.touched[kept] & ~fixed[kept]).nonzero()[:, 0]
    return replace(mesh, vertex_layer=_layers_of_vertices(mesh, touched)), kept, undecided


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


@dataclass(frozen=True)
class _Pieces:
    """The artificial edges of a mesh, in order along each line.

    edge: (P,); run: (P,) the run of edges that are alike, and longest: (R,) the longest of each,
    as an index into ``edge``. doubtful: (R,) whether a run ends where a line of the network comes
    from one side only, which rounding explains. touched: (V,) the vertices on artificial lines.
    """

    edge: Tensor
    run: Tensor
    longest: Tensor
    doubtful: Tensor
    touched: Tensor


def _pieces(mesh: Mesh, lines: CutLines) -> _Pieces:
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
    return _Pieces(edge, run, by_length[best], doubtful, touched)


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
