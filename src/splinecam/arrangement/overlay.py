"""Cut the mesh of a partition further, by its outputs.

The borders between the largest outputs are then edges of a mesh like any other, with shared
vertices and proper faces on both sides, however degenerate the outputs are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam._util.csr import take
from splinecam.arrangement.edge_crossings import Ambiguities
from splinecam.arrangement.refinement import Refinement
from splinecam.geometry.subdivision import Mesh

__all__ = ["Overlay", "overlay", "parents_of"]

_LAYER = 0  # provenance of the new edges; the old ones have -1, and their own number as unit


@dataclass(frozen=True)
class Overlay:
    """A mesh cut further, with the values z: (V, n) that it was cut by at its vertices.

    source: (E,) the edge of the original mesh of which each edge is a piece, -1 for new ones;
    face: (F,) the face of the original mesh in which each one lies.
    """

    mesh: Mesh
    z: Tensor
    source: Tensor
    face: Tensor
    ambiguities: list[Ambiguities]


def overlay(
    mesh: Mesh,
    z: Tensor,
    cut: Callable[[Mesh, Tensor, int], Refinement],
    faces: Tensor | None = None,
) -> Overlay:
    """Cut a mesh, or only some of its faces (N,), to which the result is then limited.

    ``cut`` is given the mesh, the values z: (V, n) and the provenance.
    """
    part, number = mesh, torch.arange(mesh.num_edges, device=mesh.edges.device)
    if faces is not None:
        part, vertices, number = mesh.select(faces)
        z = take(z, vertices)
    # Pieces of an edge inherit its provenance, so the number of the edge travels with them.
    marked = replace(part, edge_layer=torch.full_like(number, -1), edge_unit=number)
    made = cut(marked, z, _LAYER)
    source = made.mesh.edge_unit.masked_fill(made.mesh.edge_layer == _LAYER, -1)
    face = parents_of(mesh, made.mesh, source)
    return Overlay(made.mesh, made.carry(z), source, face, made.ambiguities)


def parents_of(old: Mesh, new: Mesh, source: Tensor) -> Tensor:
    """The face of an old mesh in which each face of a refined one lies, (F,).

    source: (E,) the old edge of which each edge is a piece, -1 for new ones.
    """
    beside, before = new.halfedge_face().view(-1, 2), old.halfedge_face().view(-1, 2)
    parent = source.new_full((new.num_faces,), -1)
    for side in (0, 1):
        # A piece runs in the direction of its edge, so the same side of both is the same face.
        known = ((source >= 0) & (beside[:, side] >= 0)).nonzero()[:, 0]
        parent[beside[known, side]] = before[source[known], side]
    a, b = beside[source < 0].unbind(1)
    while bool((parent < 0).any()):  # faces without a piece of an old edge learn it from others
        parent.scatter_reduce_(0, a, parent[b], "amax").scatter_reduce_(0, b, parent[a], "amax")
    return parent
