"""Remove needless edges of a mesh: unite the faces beside them, and straighten what is left."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from splinecam._util.arrays import counts_of, following, offsets_of, owners_of, take, take_rows
from splinecam._util.graphs import cycles, roots
from splinecam.arrangement.chords import FaceBoundaries
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels.gpu import GpuKernel


def dissolve(
    mesh: Mesh, needless: Tensor, fixed: int, gpu: GpuKernel | None = None
) -> tuple[Mesh, Tensor]:
    """The mesh without some edges (N,), and the old indices of the vertices that it still has."""
    made = None if gpu is None else gpu.dissolve(mesh, needless, fixed)
    if made is not None:
        return made
    # Other vertices are removed as well where only two edges are left.
    stays = torch.arange(mesh.num_vertices, device=needless.device) < fixed
    mesh, vertices, _ = _dissolved(mesh, needless, stays)
    return mesh, vertices


def dissolve_few(mesh: Mesh, needless: Tensor, fixed: Tensor) -> tuple[Mesh, Tensor]:
    """The same in the time of the faces around the edges; fixed: (V,) vertices that stay anyway."""
    near = torch.zeros(mesh.num_vertices, dtype=torch.bool, device=needless.device)
    near[mesh.edges[needless]] = True
    around = torch.zeros(mesh.num_faces, dtype=torch.bool, device=needless.device)
    corner = near[mesh.corner_vertices()].nonzero()[:, 0]
    around[torch.bucketize(corner, mesh.offsets[1:], right=True)] = True
    part, vertex_ids, edge_ids = mesh.select(around.nonzero()[:, 0])
    number = mesh.corners.new_empty(mesh.num_edges)
    number[edge_ids] = torch.arange(edge_ids.shape[0], device=number.device)
    part, vertices, edges = _dissolved(part, number[needless], (fixed | ~near)[vertex_ids])
    kept = _without(mesh.num_vertices, vertex_ids, vertices)
    used = _without(mesh.num_edges, edge_ids, edges)
    ends, edges = mesh.edges.clone(), edge_ids[edges]
    ends[edges] = vertex_ids[vertices][part.edges]
    rows, counts = take_rows(mesh.offsets, (~around).nonzero()[:, 0])
    half = torch.cat([mesh.corners[rows], 2 * edges[part.corners >> 1] + (part.corners & 1)])
    boundaries = FaceBoundaries(offsets_of(torch.cat([counts, part.counts()])), half)
    return _renumbered(mesh, ends, boundaries, used, kept)


def _without(count: int, ids: Tensor, kept: Tensor) -> Tensor:
    """Which of so many things are left, (count,): all but ``ids``, and ``ids[kept]``."""
    left = torch.ones(count, dtype=torch.bool, device=ids.device)
    left[ids] = False
    left[ids[kept]] = True
    return left


def _dissolved(mesh: Mesh, needless: Tensor, stays: Tensor) -> tuple[Mesh, Tensor, Tensor]:
    """The mesh without edges (N,), and the old indices of its vertices and edges."""
    beside = mesh.halfedge_face().view(-1, 2)
    label = roots(mesh.num_faces, *beside[needless].unbind(1))
    removed = (beside >= 0).all(1) & (label[beside[:, 0]] == label[beside[:, 1]])
    merged = torch.zeros(mesh.num_faces + 1, dtype=torch.bool, device=label.device)
    merged[torch.where(removed[:, None], beside, -1)] = True
    faces = _united(mesh, merged[:-1], removed)
    degree = counts_of(mesh.edges[~removed].view(-1), mesh.num_vertices)
    straight = _straight(mesh, faces, (degree == 2) & ~stays)
    kept = ((degree > 0) & ~straight) | stays
    return _rebuilt(mesh, faces, straight, kept)


def _united(mesh: Mesh, merged: Tensor, removed: Tensor) -> FaceBoundaries:
    """Boundaries of all faces: first the unchanged ones, then the united ones."""
    rows, counts = take_rows(mesh.offsets, (~merged).nonzero()[:, 0])
    around, _ = take_rows(mesh.offsets, merged.nonzero()[:, 0])
    after = mesh.corners.new_full((2 * mesh.num_edges,), -1)
    after[mesh.corners] = mesh.corners[mesh.next_corner()]
    left = mesh.corners[around]
    left = left[~removed[left >> 1]]
    # At a removed edge the boundary goes on where the other side of that edge goes on.
    beyond = after[left]
    while bool(removed[beyond >> 1].any()):
        beyond = torch.where(removed[beyond >> 1], after[beyond ^ 1], beyond)
    number = torch.empty_like(after)
    number[left] = torch.arange(left.shape[0], device=left.device)
    offsets, members = cycles(number[beyond])
    sizes = torch.cat([counts, offsets[1:] - offsets[:-1]])
    return FaceBoundaries(offsets_of(sizes), torch.cat([mesh.corners[rows], left[members]]))


def _straight(mesh: Mesh, faces: FaceBoundaries, straight: Tensor) -> Tensor:
    """The vertices in the middle of straight lines, among candidates (V,), which it overwrites."""
    start = mesh.edges.view(-1)[faces.half]
    owner = owners_of(faces.sizes(), start.shape[0])
    while True:
        begins = ~straight[start]  # corners at which a side begins
        sides = counts_of(owner[begins], faces.count)
        needed = (sides[owner] < 3) & ~begins
        if not bool(needed.any()):
            return straight
        straight[start[needed]] = False  # a sliver between two lines that are nearly one


def _rebuilt(
    mesh: Mesh, faces: FaceBoundaries, straight: Tensor, kept: Tensor
) -> tuple[Mesh, Tensor, Tensor]:
    """The mesh of faces without straight vertices, (V,); kept: (V,) its vertices."""
    start = mesh.edges.view(-1)[faces.half]
    owner = owners_of(faces.sizes(), start.shape[0])
    begins = ~straight[start]
    offsets = offsets_of(counts_of(owner[begins], faces.count))
    # A face's first corner may lie inside a side, which then began at its last corners.
    side = torch.cumsum(begins.long(), 0) - 1
    side = torch.where(side < offsets[owner], offsets[owner + 1] - 1, side)
    # The lowest half-edge stands for a side: both faces beside it choose the same edge.
    half = faces.half.new_full((int(offsets[-1]),), 2 * mesh.num_edges)
    half.scatter_reduce_(0, side, faces.half, "amin")
    first = start[begins]
    edge, back = half >> 1, half & 1
    edges = mesh.edges.clone()
    edges[edge, back] = first
    edges[edge, back ^ 1] = first[following(offsets, first.shape[0])]
    used = torch.zeros(mesh.num_edges, dtype=torch.bool, device=half.device)
    used[edge] = True
    rebuilt, vertices = _renumbered(mesh, edges, FaceBoundaries(offsets, half), used, kept)
    return rebuilt, vertices, used.nonzero()[:, 0]


def _renumbered(
    mesh: Mesh, edges: Tensor, faces: FaceBoundaries, used: Tensor, kept: Tensor
) -> tuple[Mesh, Tensor]:
    """A mesh with other ends of edges and other faces, and the old indices of its vertices."""
    new_edge, new_vertex = (torch.cumsum(mask.long(), 0) - 1 for mask in (used, kept))
    old_edge, vertices = (mask.nonzero()[:, 0] for mask in (used, kept))
    renumbered = replace(
        mesh,
        uv=mesh.uv[vertices],
        edges=take(new_vertex, take(edges, old_edge).view(-1)).view(-1, 2),
        offsets=faces.offsets,
        corners=2 * take(new_edge, faces.half >> 1) + (faces.half & 1),
        edge_layer=take(mesh.edge_layer, old_edge),
        edge_unit=take(mesh.edge_unit, old_edge),
        vertex_layer=take(mesh.vertex_layer, vertices),
    )
    return renumbered, vertices
