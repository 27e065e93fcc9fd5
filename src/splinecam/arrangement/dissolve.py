"""Remove needless edges of a mesh: unite the faces beside them, and straighten what is left."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from splinecam._util.connectivity import cycles, roots
from splinecam._util.csr import counts_of, following, offsets_of, owners_of, take_rows
from splinecam.arrangement.chords import FaceBoundaries
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels import GpuKernel

__all__ = ["dissolve"]


def dissolve(
    mesh: Mesh, needless: Tensor, fixed: int | Tensor, gpu: GpuKernel | None = None
) -> tuple[Mesh, Tensor]:
    """The mesh without some edges (N,), and the old indices of the vertices that it still has.

    fixed: vertices that stay, as booleans (V,), or the number of the first ones. Of the others,
    those are removed as well where only two edges are left.
    """
    made = None if gpu is None or isinstance(fixed, Tensor) else gpu.dissolve(mesh, needless, fixed)
    if made is not None:
        return made
    beside = mesh.halfedge_face().view(-1, 2)
    label = roots(mesh.num_faces, *beside[needless].unbind(1))
    removed = (beside >= 0).all(1) & (label[beside[:, 0]] == label[beside[:, 1]])
    merged = torch.zeros(mesh.num_faces + 1, dtype=torch.bool, device=label.device)
    merged[torch.where(removed[:, None], beside, -1)] = True
    faces = _united(mesh, merged[:-1], removed)
    degree = counts_of(mesh.edges[~removed].view(-1), mesh.num_vertices)
    stays = fixed
    if not isinstance(stays, Tensor):
        stays = torch.arange(degree.shape[0], device=degree.device) < stays
    straight = _straight(mesh, faces, (degree == 2) & ~stays)
    kept = ((degree > 0) & ~straight) | stays
    return _rebuilt(mesh, faces, straight, kept)


def _united(mesh: Mesh, merged: Tensor, removed: Tensor) -> FaceBoundaries:
    """Boundaries of all faces: those that stay as they are, then the united ones."""
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
    """Vertices in the middle of straight lines, of given candidates (V,), which are overwritten."""
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
) -> tuple[Mesh, Tensor]:
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
    new_edge, new_vertex = (torch.cumsum(mask.long(), 0) - 1 for mask in (used, kept))
    old_edge, vertices = (mask.nonzero()[:, 0] for mask in (used, kept))
    rebuilt = replace(
        mesh,
        uv=mesh.uv[vertices],
        edges=new_vertex[edges[old_edge]],
        offsets=offsets,
        corners=2 * new_edge[edge] + back,
        edge_layer=mesh.edge_layer[old_edge],
        edge_unit=mesh.edge_unit[old_edge],
        vertex_layer=mesh.vertex_layer[vertices],
    )
    return rebuilt, vertices
