"""Unite neighbouring regions on which the network is the same affine map."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from splinecam._util.connectivity import components
from splinecam._util.tolerances import SAFETY
from splinecam.engine.affine_maps import AffineMaps
from splinecam.geometry.subdivision import Mesh

__all__ = ["Merged", "merge"]


@dataclass(frozen=True)
class Merged:
    """Pieces of the domain with one affine map each; they need not be convex.

    labels: (F,) the piece of each region; edges: (N,) indices of the edges that still separate two
    pieces, or a piece from the outside; areas: (P,) of the pieces.

    To draw them: ``part.plot(color="merged")``.
    """

    labels: Tensor
    edges: Tensor
    areas: Tensor

    def __len__(self) -> int:
        return int(self.areas.shape[0])

    def __repr__(self) -> str:
        return f"Merged({len(self):,} pieces of {self.labels.shape[0]:,} regions)"


def merge(mesh: Mesh, maps: AffineMaps, areas: Tensor) -> Merged:
    """Join faces, of given areas (F,), across edges where slopes differ by rounding only."""
    faces = mesh.halfedge_face().view(-1, 2)
    inner = (faces >= 0).all(1)
    a, b = faces[inner].unbind(1)
    jump = (maps.weight[a] - maps.weight[b]).abs().amax((1, 2))
    same = jump <= SAFETY * (maps.error[a] + maps.error[b])
    labels = components(mesh.num_faces, a[same], b[same])
    separating = ~inner
    separating[inner.nonzero()[:, 0]] = labels[a] != labels[b]
    total = areas.new_zeros(int(labels.max()) + 1).index_add_(0, labels, areas)
    return Merged(labels, separating.nonzero()[:, 0], total)
