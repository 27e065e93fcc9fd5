"""Take needless edges out of a mesh: unite the faces beside them, and straighten what is left."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from splinecam._util.connectivity import cycles, roots
from splinecam._util.csr import counts_of, offsets_of, owners_of, take_rows
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels import GpuKernel

__all__ = ["dissolve"]


def dissolve(
    mesh: Mesh, needless: Tensor, fixed: int, kernel: GpuKernel | None = None
) -> tuple[Mesh, Tensor]:
    """The mesh without some edges (N,); also the old indices of the vertices it still has.

    Vertices from number ``fixed`` on go as well where only two edges are left. kernel: of a GPU.
    """
    made = None if kernel is None else kernel.dissolve(mesh, needless, fixed)
    if made is not None:
        return made
    beside = mesh.halfedge_face().view(-1, 2)
    label = roots(mesh.num_faces, *beside[needless].unbind(1))
    inner = (beside >= 0).all(1)
    gone = inner & (label[beside[:, 0]] == label[beside[:, 1]])
    merged = torch.zeros(mesh.num_faces + 1, dtype=torch.bool, device=label.device)
    merged[torch.where(gone[:, None], beside, -1)] = True
    merged = merged[:-1]
    offsets, half = _united(mesh, merged, gone)
    return _straightened(mesh, offsets, half, gone, fixed)


def _united(mesh: Mesh, merged: Tensor, gone: Tensor) -> tuple[Tensor, Tensor]:
    """Boundaries of all faces: those that stay as they are, then the united ones."""
    rows, counts = take_rows(mesh.offsets, (~merged).nonzero()[:, 0])
    around, _ = take_rows(mesh.offsets, merged.nonzero()[:, 0])
    after = mesh.corners.new_full((2 * mesh.num_edges,), -1)
    after[mesh.corners] = mesh.corners[mesh.next_corner()]
    left = mesh.corners[around]
    left = left[~gone[left >> 1]]
    # Beyond an edge that is gone the boundary goes on where its other side goes on.
    beyond = after[left]
    while bool(gone[beyond >> 1].any()):
        beyond = torch.where(gone[beyond >> 1], after[beyond ^ 1], beyond)
    number = torch.empty_like(after)
    number[left] = torch.arange(left.shape[0], device=left.device)
    offsets, members = cycles(number[beyond])
    sizes = torch.cat([counts, offsets[1:] - offsets[:-1]])
    return offsets_of(sizes), torch.cat([mesh.corners[rows], left[members]])


def _straightened(
    mesh: Mesh, offsets: Tensor, half: Tensor, gone: Tensor, fixed: int
) -> tuple[Mesh, Tensor]:
    """Drop vertices in the middle of straight lines; number what is left anew."""
    degree = counts_of(mesh.edges[~gone].view(-1), mesh.num_vertices)
    passed = degree == 2
    passed[:fixed] = False
    ends = mesh.edges.view(-1)
    owner = owners_of(offsets[1:] - offsets[:-1], half.shape[0])
    while True:
        begins = ~passed[ends[half]]  # corners at which a side begins
        sides = torch.zeros_like(offsets[1:]).scatter_add_(0, owner, begins.long())
        bent = (sides[owner] < 3) & ~begins
        if not bool(bent.any()):
            break
        passed[ends[half[bent]]] = False  # a sliver between two lines that are nearly one
    # A face's first corner may lie inside a side, which then began at its last corners.
    side = torch.cumsum(begins.long(), 0) - 1
    starts = offsets_of(sides)
    side = torch.where(side < starts[owner], starts[owner + 1] - 1, side)
    # The lowest half-edge stands for a side: both faces beside it choose the same edge.
    chosen = half.new_full((int(starts[-1]),), 2 * mesh.num_edges)
    chosen.scatter_reduce_(0, side, half, "amin")
    first = ends[half[begins]]
    following = torch.arange(1, first.shape[0] + 1, device=first.device)
    following[starts[1:] - 1] = starts[:-1]
    last = first[following]
    edges = mesh.edges.clone()
    edges[chosen >> 1, chosen & 1] = first
    edges[chosen >> 1, (chosen & 1) ^ 1] = last

    used = torch.zeros(mesh.num_edges, dtype=torch.bool, device=half.device)
    used[chosen >> 1] = True
    kept_edges = used.nonzero()[:, 0]
    kept = (degree > 0) & ~passed
    kept[:fixed] = True
    new_edge = torch.cumsum(used.long(), 0) - 1
    new_vertex = torch.cumsum(kept.long(), 0) - 1
    vertices = kept.nonzero()[:, 0]
    return (
        replace(
            mesh,
            uv=mesh.uv[vertices],
            edges=new_vertex[edges[kept_edges]],
            offsets=starts,
            corners=2 * new_edge[chosen >> 1] + (chosen & 1),
            edge_layer=mesh.edge_layer[kept_edges],
            edge_unit=mesh.edge_unit[kept_edges],
            vertex_layer=mesh.vertex_layer[vertices],
        ),
        vertices,
    )
