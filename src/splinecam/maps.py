"""Each region's affine map: from the outputs at its vertices, or by derivative where it is thin."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.domain import Domain
from splinecam.engine import Frame
from splinecam.mesh import Mesh
from splinecam.predicates import EPS, SAFETY, SLOPE_PRECISION
from splinecam.program import Program

__all__ = ["AffineMaps", "affine_maps", "derivative"]

_BLOCK = 1 << 22  # numbers in one batch of inputs
_WITNESSES = 32  # corners that must agree before their word is taken for the rounding error


@dataclass(frozen=True)
class AffineMaps:
    """output = value + weight @ (uv - anchor) on each face, in the mesh's coordinates.

    anchor: (F, 2); value: (F, n); weight: (F, n, 2); error: (F,) rounding error of the weights.
    """

    anchor: Tensor
    value: Tensor
    weight: Tensor
    error: Tensor


def affine_maps(
    mesh: Mesh, output: Tensor, error: Tensor, program: Program, domain: Domain, frame: Frame
) -> AffineMaps:
    """Fit the map of every face: output (V, n) with rounding error (n,)."""
    value = mesh.sums(output[mesh.corner_vertices()]) / mesh.counts()[:, None]
    weight, width, start = _through_triangles(mesh, output)
    noise = _noise(mesh, output, error, weight, start)
    slope_error = noise / width
    steepest = float(weight[width > 0].abs().max()) if weight.numel() else 0.0
    thin = (slope_error > SLOPE_PRECISION * steepest).nonzero()[:, 0]
    anchor = mesh.means()
    if thin.shape[0] and noise > 0:
        exact = derivative(program, domain, frame, anchor[thin])
        weight[thin] = exact
        slope_error[thin] = noise + SAFETY * EPS * exact.abs().amax((1, 2))
    return AffineMaps(anchor, value, weight, slope_error)


def _noise(mesh: Mesh, output: Tensor, error: Tensor, weight: Tensor, start: Tensor) -> float:
    """Rounding error of the outputs: as estimated, or as seen where that is less.

    The corners of a face beyond the third show how far values really are off a plane. Estimates of
    deep networks are pessimistic, and believing them would make most of their regions look thin.
    """
    estimated = float(error.max()) if error.numel() else 0.0
    vertex, owner = mesh.corner_vertices(), mesh.owners()
    if vertex.shape[0] - 3 * mesh.num_faces < _WITNESSES:
        return estimated
    seen = 0.0
    step = max(1, _BLOCK // max(1, output.shape[1]))
    for corner in torch.split(torch.arange(vertex.shape[0], device=vertex.device), step):
        face = owner[corner]
        shift = mesh.uv[vertex[corner]] - mesh.uv[start[face]]
        fitted = output[start[face]] + (weight[face] @ shift[:, :, None]).squeeze(2)
        seen = max(seen, float((fitted - output[vertex[corner]]).abs().max()))
    return min(estimated, 2 * seen + EPS * float(output.abs().max()))


def _through_triangles(mesh: Mesh, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Slopes (F, n, 2) through three far-apart vertices of each face.

    Also the triangles' widths and first vertices, (F,) each.
    """
    vertex, owner = mesh.corner_vertices(), mesh.owners()
    uv = mesh.uv[vertex]

    def farthest(score: Tensor) -> Tensor:
        best = score.new_full((mesh.num_faces,), -1).scatter_reduce_(0, owner, score, "amax")
        index = torch.arange(score.shape[0], device=score.device)
        index = torch.where(score == best[owner], index, score.shape[0])
        first = index.new_full((mesh.num_faces,), score.shape[0])
        return vertex[first.scatter_reduce_(0, owner, index, "amin")]

    a = farthest((uv - mesh.means()[owner]).square().sum(1))
    b = farthest((uv - mesh.uv[a][owner]).square().sum(1))
    long = mesh.uv[b] - mesh.uv[a]
    off = uv - mesh.uv[a][owner]
    c = farthest((long[owner, 0] * off[:, 1] - long[owner, 1] * off[:, 0]).abs())
    length = long.norm(dim=1)
    along = long / length[:, None]
    across = torch.stack([-along[:, 1], along[:, 0]], 1)
    third = mesh.uv[c] - mesh.uv[a]
    x, y = (third * along).sum(1), (third * across).sum(1)
    fa = output[a]
    slope_along = (output[b] - fa) / length[:, None]
    slope_across = (output[c] - fa - slope_along * x[:, None]) / y[:, None]
    weight = slope_along[:, :, None] * along[:, None] + slope_across[:, :, None] * across[:, None]
    return torch.nan_to_num(weight, posinf=0.0, neginf=0.0), y.abs(), a


def derivative(program: Program, domain: Domain, frame: Frame, uv: Tensor) -> Tensor:
    """Derivative (N, n, 2) of the network along the frame's two axes at local points (N, 2)."""
    out = []
    step = max(1, _BLOCK // max(1, math.prod(domain.input_shape)))
    axes = domain.basis.to(uv).reshape(2, 1, *domain.input_shape)
    for part in torch.split(uv, step):
        x = domain.embed(frame.to_plane(part))
        columns = [
            torch.func.jvp(program, (x,), (axis.expand_as(x).contiguous(),))[1] for axis in axes
        ]
        out.append(torch.stack([c.reshape(part.shape[0], -1) for c in columns], 2) * frame.scale)
    return torch.cat(out)
