"""Three-dimensional complexes in the compiled library: arrays in, arrays out."""

from __future__ import annotations

from ctypes import byref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from splinecam.errors import SplineCamError
from splinecam.kernels.kernel import Block
from splinecam.kernels.library import STATUS, library, structs


class SolidArrays(NamedTuple):
    """A complex of three dimensions; half-edges and sides are as in ``sc_solid``."""

    edges: Tensor  # (E, 2) end vertices
    edge_layer: Tensor  # (E,) what made the face in which it was drawn
    face_offsets: Tensor  # (F + 1,)
    corners: Tensor  # (H,) half-edges of all faces
    face_layer: Tensor  # (F,) layer that made the face
    face_unit: Tensor  # (F,)
    cell_offsets: Tensor  # (C + 1,)
    sides: Tensor  # (K,) of all cells: 2 f for face f seen from outside, 2 f + 1 if from inside

    def struct(self, vertices: int) -> Any:
        """The complex as the library takes it."""
        faces, cells = self.face_offsets.shape[0] - 1, self.cell_offsets.shape[0] - 1
        sizes = vertices, self.edges.shape[0], faces, self.corners.shape[0], cells
        return structs.sc_solid(*sizes, self.sides.shape[0], *(x.data_ptr() for x in self))


class CutArrays(NamedTuple):
    """A complex after a cut, and its new vertices."""

    solid: SolidArrays
    parent: Tensor  # (C,) the cell of which each is a part
    points: Tensor  # (P, 3) new vertices: the ends of a line, and the function zero there
    t: Tensor  # (P,) the fraction of that line
    uncut: Tensor  # (N,) cells in which rounding leaves open where a function vanishes


def require_library() -> Any:
    """The library, which surfaces and partitions of three dimensions need."""
    lib = library()
    if lib is None:
        raise SplineCamError(
            "Three dimensions need the compiled kernel, which is not there. Install splinecam "
            "again, or unset SPLINECAM_KERNEL."
        )
    return lib


def cut_solid(
    solid: SolidArrays, z: Tensor, tolerance: Tensor, label: Tensor, layer: int
) -> CutArrays:
    """Cut all cells along the zero sets of functions that are affine on each.

    z: (V, m) values at the vertices; tolerance: (m,) moduli up to which values count as zero;
    label: (m,) the units of new faces.
    """
    lib, made = require_library(), structs.sc_cut()
    z, tolerance, label = z.contiguous(), tolerance.contiguous(), label.contiguous()
    arrays = z.data_ptr(), tolerance.data_ptr(), label.data_ptr()
    zero = structs.sc_zero_sets(z.shape[1], *arrays)
    _check(lib.sc_cut_solid(byref(solid.struct(z.shape[0])), byref(zero), layer, byref(made)))

    def array(name: str, size: int) -> Tensor:
        address, real = getattr(made, name), name in type(made).real
        if not size:
            lib.sc_free(address)
            return torch.empty(0, dtype=torch.float64 if real else torch.int64)
        return Block(lib, address).tensors([size], frozenset({0} if real else ()))[0]

    result = SolidArrays(
        array("edge", 2 * made.edges).view(-1, 2),
        array("edge_layer", made.edges),
        array("face_offset", made.faces + 1),
        array("corner", made.corners),
        array("face_layer", made.faces),
        array("face_unit", made.faces),
        array("cell_offset", made.cells + 1),
        array("side", made.sides),
    )
    parent, points = array("parent", made.cells), array("point", 3 * made.points).view(-1, 3)
    return CutArrays(result, parent, points, array("t", made.points), array("uncut", made.uncuts))


def interpolated(rows: Tensor, points: Tensor, t: Tensor) -> Tensor:
    """Rows (V, ...) of old vertices, and behind them those of new ones, (V + P, ...)."""
    count = rows.shape[0]
    table = rows.new_empty((count + t.shape[0], *rows.shape[1:]))
    table[:count] = rows
    width = table[0].numel() if table.shape[0] else 0
    arrays = points.data_ptr(), t.data_ptr(), t.shape[0]
    _check(require_library().sc_interpolate(table.data_ptr(), count, width, *arrays))
    return table


def cell_corners(solid: SolidArrays, vertices: int) -> tuple[Tensor, Tensor]:
    """The vertices of each cell, once each: offsets (C + 1,), and vertices."""
    lib, struct = require_library(), solid.struct(vertices)
    offsets = torch.empty_like(solid.cell_offsets)
    _check(lib.sc_cell_corners(byref(struct), offsets.data_ptr(), None))
    found = offsets.new_empty(int(offsets[-1]))
    _check(lib.sc_cell_corners(byref(struct), offsets.data_ptr(), found.data_ptr()))
    return offsets, found


def _check(status: int) -> None:
    if status:
        raise MemoryError(f"the compiled kernel reports: {STATUS[status]}")
