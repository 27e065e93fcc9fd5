"""The whole partition of a body of three dimensions, for small networks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows
from splinecam._util.graphs import components
from splinecam.geometry.solids import Solid
from splinecam.network.program import Program
from splinecam.solid.complex import AUXILIARY, Complex
from splinecam.solid.fits import affine_fits
from splinecam.solid.front import Front


@dataclass(frozen=True, eq=False)
class SolidPartition:
    """The R linear regions of a body, as C convex cells.

    complex: the cells, with faces and vertices; region: (C,) of each cell; regions of a maximum may
    have several; volumes: (C,); gradients: (C, n_out, 3) and bias: (C, n_out) the affine maps of
    coordinates to outputs; uncut: places that float64 could not settle.
    """

    complex: Complex
    region: Tensor
    volumes: Tensor
    gradients: Tensor
    bias: Tensor
    uncut: list[Tensor]

    def __len__(self) -> int:
        return int(self.region.max()) + 1

    @property
    def layer_faces(self) -> dict[int, int]:
        """How many faces each layer made; -1 stands for the sides of the body."""
        layers, counts = torch.unique(self.complex.arrays.face_layer, return_counts=True)
        return dict(zip(layers.tolist(), counts.tolist(), strict=True))


def solid_partition(program: Program, solid: Solid) -> SolidPartition:
    """Divide a body into the linear regions of a network, without leaving anything out."""
    front = Front.of(program, solid)
    while front.layer is not None:
        front = front.carried()
    whole = front.complex
    beside = whole.beside()
    inner = (whole.arrays.face_layer == AUXILIARY) & (beside >= 0).all(1)
    region = components(whole.num_cells, *beside[inner].unbind(1))
    outputs = as_rows(front.live[program.output_name])
    offsets, corners = whole.cell_corners()
    fits = affine_fits(whole.uvw, outputs, offsets, corners)
    return SolidPartition(whole, region, whole.volumes(), *fits[:2], front.uncut)
