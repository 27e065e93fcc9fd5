"""A walk over the faces of a partition by the compiled kernel: maps there, and derivatives."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import byref
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from splinecam.geometry.subdivision import Mesh
from splinecam.kernels.kernel import Kernel, mesh_struct
from splinecam.kernels.library import structs

KINDS = "area", "output", "modulus", "square"  # of integrals: of 1, of functions, ...


@dataclass(frozen=True)
class Bends:
    """A chain of L + 1 products, and functions of one variable between them, see ``sc_bends``.

    widths: of the input, the L layers and the output; input: (3, widths[0]); factors, offsets: of
    all products after each other, the matrix of the last one turned; knots: (K, U) of all units;
    slopes: (K + 1, U); values: (U,) at zero, if the first slope went on until there.
    """

    widths: tuple[int, ...]
    input: Tensor
    factors: Tensor
    offsets: Tensor
    knots: Tensor
    slopes: Tensor
    values: Tensor

    def order(self, kernel: Kernel, mesh: Mesh) -> Tensor:
        """The order of a walk, (2, F): the faces, and the layer of the line before each."""
        found = mesh.edges.new_empty((2, mesh.num_faces))
        given = byref(mesh_struct(mesh)), len(self.widths) - 2, found.data_ptr()
        kernel._call("sc_order_faces", *given)
        return found

    def maps(self, kernel: Kernel, mesh: Mesh, order: Tensor, tape: Tensor) -> Tensor:
        """The maps on all faces: by u, by v and at the origin of the mesh, (F, 3, n_out).

        tape: written, numbers by which ``derivatives`` by maps need not look what bends.
        """
        made = self.factors.new_empty((mesh.num_faces, 3, self.widths[-1]))
        self._walk(kernel, mesh, {"order": order, "maps": made, "tape": tape})
        return made

    def derivatives(
        self, kernel: Kernel, mesh: Mesh, weights: Mapping[str, Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The derivatives of a weighted sum by the matrices (n, m) and offsets (m,) of products.

        weights: the ``order``, and ``map`` (F, 3, n_out) of maps, perhaps with their ``tape``; or
        ``corner`` (V,) from ``widest_corners``, with ``place`` (V, 2) of the vertices, and
        ``output`` (V, n_out) of the outputs ``values``.
        """
        made = torch.zeros_like(self.factors), torch.zeros_like(self.offsets)
        self._walk(kernel, mesh, {**weights, "factor": made[0], "offset": made[1]})
        sizes = list(pairwise(self.widths))
        parts = torch.split(made[0], [n * m for n, m in sizes])
        matrices = [x.view(n, m) for x, (n, m) in zip(parts, sizes, strict=True)]
        matrices[-1] = parts[-1].view(sizes[-1][::-1]).T
        return matrices, list(torch.split(made[1], list(self.widths[1:])))

    def _walk(self, kernel: Kernel, mesh: Mesh, arrays: dict[str, Tensor]) -> None:
        """Go over all faces, with the arrays of ``sc_weights``."""
        widths = torch.tensor(self.widths, device=self.input.device)
        given = [widths, self.input, self.factors, self.offsets]
        given += [self.knots, self.slopes, self.values]
        made = {name: x.contiguous() for name, x in arrays.items()}
        chain = structs.sc_bends(len(widths) - 2, len(self.knots), *(x.data_ptr() for x in given))
        weights: Any = structs.sc_weights(**{name: x.data_ptr() for name, x in made.items()})
        weights.taped = made["tape"].numel() if "tape" in made else 0
        kernel._call("sc_walk", byref(mesh_struct(mesh)), byref(chain), byref(weights))


def widest_corners(kernel: Kernel, mesh: Mesh) -> tuple[Tensor, Tensor]:
    """The corner (V,) with the largest triangle at each vertex, and the sine of its angle, (V,)."""
    corner = mesh.edges.new_empty(mesh.num_vertices)
    sine = mesh.uv.new_empty(mesh.num_vertices)
    kernel._call("sc_widest_corners", byref(mesh_struct(mesh)), corner.data_ptr(), sine.data_ptr())
    return corner, sine


def face_integrals(
    kernel: Kernel, mesh: Mesh, kind: str, at: Tensor, values: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, ...]:
    """The integrals over each face of functions with values (V, n) at vertices (V, 2), (F, n).

    kind: one of ``KINDS``. weight: (F, n) of the integrals, for the derivatives of a weighted sum
    by the vertices (V, 2) and the values (V, n) instead.
    """
    numbers = {"at": at.contiguous(), "values": values.contiguous()}
    if weight is None:
        made = {"made": at.new_zeros((mesh.num_faces, values.shape[1]))}
    else:
        numbers["weight"] = weight.contiguous()
        made = {"place": torch.zeros_like(at), "output": torch.zeros_like(values)}
    given = {name: x.data_ptr() for name, x in {**numbers, **made}.items()}
    moving: Any = structs.sc_moving(kind=KINDS.index(kind), width=values.shape[1], **given)
    kernel._call("sc_integrate", byref(mesh_struct(mesh)), byref(moving))
    return tuple(made.values())
