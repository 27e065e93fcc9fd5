r"""Exact integrals of functions that are affine on each face, of their moduli and their squares.

A face is divided into triangles. On a triangle whose corners have the values p, q and r, an affine
function changes its sign along a line that cuts off one corner:

        p
       / \        Cut off is the share p^2 / ((p - q) (p - r)) of the area A, on which the mean of
      /---\       the function is p / 3. The function integrates to A (p + q + r) / 3 in all.
     /     \
    q ----- r
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import take
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels import kernel_for

__all__ = ["Integrals", "integrals"]


class Integrals(NamedTuple):
    """Integrals of n functions over all faces, in the coordinates of the mesh, (n,) each."""

    signed: Tensor
    modulus: Tensor
    square: Tensor


def integrals(mesh: Mesh, values: Tensor) -> Integrals:
    """Integrate functions with values (V, n) at the vertices, which are affine on each face.

    >>> from splinecam.geometry.subdivision import polygon_mesh
    >>> corners = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [-1.0, 1.0]])
    >>> integrals(polygon_mesh(corners), corners[:, :1]).modulus
    tensor([1.])
    """
    kernel = kernel_for(values.device) if values.dtype == torch.float64 else None
    if kernel is not None:
        return Integrals(*kernel.integrate(mesh, values.contiguous()))
    return _by_tensors(mesh, values)


def _by_tensors(mesh: Mesh, values: Tensor) -> Integrals:
    """The same without the compiled kernel."""
    n = values.shape[1]
    total = Integrals(*values.new_zeros((3, n)))
    block = max(1, backend_of(values.device).numbers // (4 * max(1, n)))
    for _, vertex in mesh.by_size(block):
        k = vertex.shape[1]
        uv = take(mesh.uv, vertex.view(-1)).view(-1, k, 2)
        f = take(values, vertex.view(-1)).view(-1, k, n)
        off = uv - uv[:, :1]
        crosses = off[:, 1:-1, 0] * off[:, 2:, 1] - off[:, 1:-1, 1] * off[:, 2:, 0]
        area = crosses.clamp(min=0) / 2  # of the triangles of a fan, (B, k - 2)
        signed = torch.zeros_like(f[:, 0])
        for i in range(1, k - 1):
            p, q, r = f[:, 0], f[:, i], f[:, i + 1]
            whole = p + q + r
            signed += area[:, i - 1, None] * whole / 3
            square = whole.square() + p * p + q * q + r * r
            total.square.add_(area[:, i - 1] @ square / 12)
        total.signed.add_(signed.sum(0))
        # Only on few faces does a function change its sign.
        face, column = ((f.amin(1) < 0) & (f.amax(1) > 0)).nonzero(as_tuple=True)
        modulus = signed.abs()
        modulus[face, column] = _modulus(area[face], f[face, :, column])
        total.modulus.add_(modulus.sum(0))
    return total


def _modulus(area: Tensor, f: Tensor) -> Tensor:
    """Integrals of moduli over faces with values (N, k) and triangles (N, k - 2), (N,)."""
    p, q, r = f[:, :1].expand_as(area), f[:, 1:-1], f[:, 2:]
    return (area * (p + q + r - 2 * _cut_off(p, q, r)).abs()).sum(1) / 3


def _cut_off(p: Tensor, q: Tensor, r: Tensor) -> Tensor:
    """Three times the integral over the corner that a change of sign cuts off, per area."""
    cut = torch.zeros_like(p)
    for x, y, z in ((p, q, r), (q, r, p), (r, p, q)):
        sign = x.sign()
        alone = (sign != 0) & (sign * y <= 0) & (sign * z <= 0)
        cut = torch.where(alone, x * (x / (x - y)) * (x / (x - z)), cut)
    return cut
