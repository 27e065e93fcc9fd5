"""The affine map of each region, and the union of neighbours with equal maps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.arrays import take, take_rows
from splinecam._util.backend import backend_of
from splinecam._util.graphs import components
from splinecam._util.tolerances import EPS, MERGE_PRECISION, SAFETY, SLOPE_PRECISION
from splinecam.geometry.domain import Domain, Frame
from splinecam.geometry.subdivision import Mesh
from splinecam.network.program import Program

_WITNESSES = 32  # corners from which on the rounding error is estimated from them
_ENOUGH = 1 << 18  # corners after which no more are looked at
_NUMBERS = 32  # of outputs at the corners of a face on a GPU, at least: small faces go with others
_FEWEST = 16  # points in a pass, however wide the layers: their weights are read only once

# With so few outputs, or so few points times outputs times units, backward passes are faster: the
# derivative of some layers takes torch a second or two when it is first used forward.
_FEW, _SHORT = 2, 1 << 24

_ROWS = 3  # of a batch for the derivative of a face; the difference at a vertex takes one
_SHARED = 4  # times as many points in a pass if they are compared with the same one


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
    mesh: Mesh, output: Tensor, error: Tensor, program: Program | None, domain: Domain, frame: Frame
) -> AffineMaps:
    """Fit the map of every face: output (V, n) with rounding error (n,).

    program: gives the slopes of thin faces; without it these are less precise, as their errors say.
    """
    fit = fit_maps(mesh, output)
    noise = _noise(fit, output, error)
    weight, slope_error = fit.weight, noise / fit.width
    thin = _thin(mesh, weight, slope_error)
    measured = fit.witnesses >= _WITNESSES
    if program is not None and measured and _many(program, thin):
        corners = torch.unique(_corners(mesh, thin))
        if corners.shape[0] < _ROWS * thin.shape[0]:
            rise = torch.zeros_like(output)
            rise[corners] = _differences(program, domain, frame, mesh.uv[corners])
            finer = fit_maps(mesh, rise, thin)
            weight[thin] = finer.weight[thin]
            slope_error[thin] = _noise(finer, rise, error) / fit.width[thin]
            thin = _thin(mesh, weight, slope_error)
    if program is not None and thin.shape[0]:
        exact = derivative(program, domain, frame, fit.anchor[thin])
        weight[thin] = exact
        slope_error[thin] = noise + SAFETY * EPS * exact.abs().amax((1, 2))
    return AffineMaps(fit.anchor, fit.value, weight, slope_error)


def _many(program: Program, thin: Tensor) -> bool:
    """Whether differences may be faster than derivatives for some faces; a GPU does few at once."""
    few = _points_in_pass(program, thin) if backend_of(thin.device).asynchronous else 0
    return program.subtracts and thin.shape[0] > few


def _corners(mesh: Mesh, faces: Tensor) -> Tensor:
    """The corners of some faces (N,), one face after the other."""
    return mesh.corner_vertices()[take_rows(mesh.offsets, faces)[0]]


def _thin(mesh: Mesh, weight: Tensor, error: Tensor) -> Tensor:
    """The faces (N,) whose slopes (F, n, 2) have too large errors (F,).

    None if the output is constant.
    """
    size = weight.abs().amax((1, 2))
    known = size[size > SAFETY * error]  # more than rounding
    if not known.shape[0]:
        return torch.zeros_like(size, dtype=torch.int64)[:0]
    steepest = float(known.max())
    thin, doubt = error > SLOPE_PRECISION * steepest, error > MERGE_PRECISION * steepest
    if bool((doubt & ~thin).any()):
        thin |= doubt & _look_same(mesh, weight, error, doubt)
    return thin.nonzero()[:, 0]


def _look_same(mesh: Mesh, weight: Tensor, error: Tensor, doubt: Tensor) -> Tensor:
    """Whether each face looks the same as a neighbour by slopes (F, n, 2) with errors (F,): (F,).

    doubt: (F,) faces, of which one at least is beside every edge that is looked at.
    """
    beside = mesh.halfedge_face().view(-1, 2)
    a, b = beside[(beside >= 0).all(1) & doubt[beside].any(1)].unbind(1)
    same = torch.zeros_like(doubt)
    rows = max(1, backend_of(weight.device).numbers // max(1, weight[0].numel()))
    for left, right in zip(torch.split(a, rows), torch.split(b, rows), strict=True):
        jump = (weight[left] - weight[right]).abs().amax((1, 2))
        close = jump <= SAFETY * (error[left] + error[right])
        same[left[close]] = same[right[close]] = True
    return same


@dataclass(frozen=True)
class Fit:
    """Maps through three far-apart vertices of each face.

    anchor: (F, 2) and value: (F, n) means of the corners, of which the last one may count more;
    weight: (F, n, 2); width: (F,) of the triangle; off: how far values at other corners are off the
    plane at most; witnesses: the number of these corners.
    """

    anchor: Tensor
    value: Tensor
    weight: Tensor
    width: Tensor
    off: float
    witnesses: int


def fit_maps(mesh: Mesh, output: Tensor, only: Tensor | None = None) -> Fit:
    """Maps through values (V, n) at three vertices of each face.

    only: faces (N,); those of others are not computed.
    """
    chosen = None if only is None else torch.zeros_like(mesh.offsets[1:], dtype=torch.bool)
    if chosen is not None and only is not None:
        chosen[only] = True
    n, faces = output.shape[1], mesh.num_faces
    anchor, value = mesh.uv.new_empty((faces, 2)), output.new_empty((faces, n))
    weight, width = output.new_empty((faces, n, 2)), output.new_empty(faces)
    found, witnesses = [output.new_zeros(())], 0
    backend, counts = backend_of(output.device), mesh.counts()
    block = backend.numbers // max(1, n)
    at_least = max(4, _NUMBERS // max(1, n)) if backend.asynchronous else 0
    for face, vertex in mesh.by_size(block, at_least=at_least):
        if chosen is not None:
            mine = chosen[face]
            face, vertex = face[mine], vertex[mine]
        k = vertex.shape[1]
        if not face.shape[0]:
            continue
        uv = take(mesh.uv, vertex.view(-1)).view(-1, k, 2)
        f = take(output, vertex.view(-1)).view(-1, k, n)
        anchor[face], value[face] = uv.mean(1), f.mean(1)
        weight[face], width[face], triangle = _through_triangles(uv, f)
        if k > 3 and witnesses < _ENOUGH:
            found.append(_off_plane(uv, f, weight[face], triangle))
            witnesses += int(take(counts, face).sum()) - 3 * face.shape[0]
    return Fit(anchor, value, weight, width, float(torch.stack(found).max()), witnesses)


def _through_triangles(uv: Tensor, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Slopes (B, n, 2) of values (B, k, n) at corners (B, k, 2), through three far-apart ones.

    Also the triangles' widths (B,), and their first corners (B,).
    """
    row = torch.arange(uv.shape[0], device=uv.device)
    a = (uv - uv.mean(1, keepdim=True)).square().sum(2).argmax(1)
    off = uv - uv[row, a][:, None]
    b = off.square().sum(2).argmax(1)
    long = off[row, b]
    length = long.norm(dim=1)
    along = long / length[:, None]
    x = off[:, :, 0] * along[:, None, 0] + off[:, :, 1] * along[:, None, 1]
    y = off[:, :, 1] * along[:, None, 0] - off[:, :, 0] * along[:, None, 1]
    c = y.abs().argmax(1)
    width = y[row, c]
    fa = f[row, a]
    slope_along = (f[row, b] - fa) / length[:, None]
    slope_across = (f[row, c] - fa - slope_along * x[row, c][:, None]) / width[:, None]
    across = torch.stack([-along[:, 1], along[:, 0]], 1)
    weight = slope_along[:, :, None] * along[:, None] + slope_across[:, :, None] * across[:, None]
    return torch.nan_to_num(weight, posinf=0.0, neginf=0.0), width.abs(), a


def _off_plane(uv: Tensor, f: Tensor, weight: Tensor, first: Tensor) -> Tensor:
    """How far values (B, k, n) are off the planes through their first corners at most, ()."""
    row = torch.arange(uv.shape[0], device=uv.device)
    shift = uv - uv[row, first][:, None]
    rise = f - f[row, first][:, None]
    for axis in (0, 1):
        rise -= shift[:, :, axis, None] * weight[:, None, :, axis]
    return rise.abs().amax()


def _noise(fit: Fit, output: Tensor, error: Tensor) -> float:
    """The rounding error of the outputs: the bound, or what is measured where that is less.

    The corners of a face beyond the third show how far values are off a plane. The bounds of deep
    networks are pessimistic, and would make most of their regions look thin.
    """
    estimated = float(error.max()) if error.numel() else 0.0
    if fit.witnesses < _WITNESSES:
        return estimated
    return min(estimated, 2 * fit.off + EPS * float(output.abs().max()))


def _differences(program: Program, domain: Domain, frame: Frame, uv: Tensor) -> Tensor:
    """By how much the output at local points (N, 2) differs from that at the frame's middle."""
    middle = domain.embed(frame.to_plane(uv.new_zeros((1, 2))))
    basis = frame.scale * domain.basis.to(uv)
    shifts = (part @ basis for part in torch.split(uv, _SHARED * _points_in_pass(program, uv)))
    found = [program.differences(middle, shift.view(-1, *middle.shape[1:])) for shift in shifts]
    return torch.cat(found)


def _points_in_pass(program: Program, like: Tensor) -> int:
    units = (program.input_shape, *(layer.shape for layer in program.layers))
    rows = backend_of(like.device).traced_activations // max(map(math.prod, units))
    return max(_FEWEST, rows)


def derivative(program: Program, domain: Domain, frame: Frame, uv: Tensor) -> Tensor:
    """Derivative (N, n, 2) of the network along the frame's two axes at local points (N, 2)."""
    units = domain.dim + sum(math.prod(layer.shape) for layer in program.layers)
    outputs = math.prod(program.output_shape)
    backward = outputs <= _FEW or uv.shape[0] * outputs * units <= _SHORT
    basis = domain.basis.to(uv)
    axes = basis.view(2, 1, *domain.input_shape)
    out = []
    for part in torch.split(uv, _points_in_pass(program, uv)):
        x = domain.embed(frame.to_plane(part))
        if backward:
            out.append(gradients(program, x).flatten(2) @ basis.T)
        else:
            out.append(program.derivatives(x, axes.expand(2, *x.shape)).permute(1, 2, 0))
    return torch.cat(out) * frame.scale


def directional_derivative(program: Program, x: Tensor, way: Tensor) -> Tensor:
    """Derivative (N, n) of the network at inputs x (N, ...) along directions (N, D)."""
    rows = _points_in_pass(program, x)
    outputs, out = math.prod(program.output_shape), []
    for at, along in zip(torch.split(x, rows), torch.split(way, rows), strict=True):
        if outputs <= _FEW:
            out.append((gradients(program, at).flatten(2) @ along[:, :, None])[:, :, 0])
        else:
            out.append(program.derivatives(at, along.reshape(1, *at.shape))[0])
    return torch.cat(out)


def gradients(program: Program, x: Tensor) -> Tensor:
    """Derivative of the flat output by the inputs x (N, ...), (N, n, ...)."""
    with torch.inference_mode(False), torch.enable_grad():
        x = x.clone().requires_grad_()
        y = program(x).reshape(x.shape[0], -1)
        # Points do not mix, so one backward pass gives one output's gradients at all of them.
        rows = [
            torch.autograd.grad(y[:, k].sum(), x, retain_graph=True, materialize_grads=True)[0]
            for k in range(y.shape[1])
        ]
    return torch.stack(rows, 1)


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
