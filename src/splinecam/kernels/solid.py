"""Three-dimensional complexes in the compiled library: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from splinecam.errors import SplineCamError
from splinecam.kernels.kernel import Block, CompiledChain
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
    kept: Tensor  # (V,) which of the old vertices, and of the points behind them, are left
    bounded: int  # pieces of cells of which bounds were found
    dropped: int  # and those that were left out
    # On a GPU, where all vertices are left: groups of new ones, round by round, which follow from
    # those of rounds before and of their group; the first one of each group, and their number.
    rounds: Sequence[Tensor] = ()
    functions: int = 0  # that were cut, the first ones


class Bounded(NamedTuple):
    """What bounds a function on cells: a chain from the ReLUs of a layer to the function.

    uvw: (V, 3) the vertices; z: (V, n) the units of the layer there; margin: how far from zero the
    function is where it does not vanish; last: (n + 1,) of the last layer, what multiplies its
    units, and the offset.
    """

    chain: CompiledChain
    layer: int
    margin: float
    uvw: Tensor
    z: Tensor
    last: Tensor | None

    def struct(self) -> Any:
        """The same as the library takes it."""
        sizes, arrays = (len(self.z), 0, self.layer, self.z.shape[1]), (self.uvw, self.z)
        addresses = (x.data_ptr() for x in arrays)
        last = None if self.last is None else self.last.data_ptr()
        return structs.sc_bodies(*sizes, *addresses, last, None, None, self.margin, None)


def require_library() -> Any:
    """The library, which surfaces and partitions of three dimensions need."""
    lib = library()
    if lib is None:
        raise SplineCamError(
            "Three dimensions need the compiled kernel, which is not there. Install splinecam "
            "again, or unset SPLINECAM_KERNEL."
        )
    return lib


@contextmanager
def _threads() -> Iterator[tuple[Any, Any]]:
    """The library, and a pool with as many threads as torch has."""
    lib = require_library()
    pool = lib.sc_pool_new(torch.get_num_threads())
    try:
        yield lib, pool
    finally:
        lib.sc_pool_free(pool)


def cut_solid(
    solid: SolidArrays,
    z: Tensor,
    tolerance: Tensor,
    label: Tensor,
    layer: int,
    bounded: Bounded | None = None,
) -> CutArrays:
    """Cut all cells along the zero sets of functions that are affine on each.

    z: (V, m) values at the vertices; tolerance: (m,) moduli up to which values count as zero;
    label: (m,) the units of new faces; bounded: leaves out pieces of divided cells on which another
    function does not vanish.
    """
    made = structs.sc_cut()
    z, tolerance, label = z.contiguous(), tolerance.contiguous(), label.contiguous()
    arrays = z.data_ptr(), tolerance.data_ptr(), label.data_ptr()
    zero = structs.sc_zero_sets(z.shape[1], *arrays)
    chain = (None, None) if bounded is None else (bounded.chain.struct, bounded.struct())
    given = byref(solid.struct(z.shape[0])), byref(zero), layer
    with _threads() as (lib, pool):
        further = (x and byref(x) for x in (*chain, made))
        _check(lib.sc_cut_solid(pool, *given, *further))

    def array(name: str, size: int) -> Tensor:
        address, real = getattr(made, name), name in type(made).real
        if not size:
            lib.sc_free(address)
            return solid.sides.new_empty(0, dtype=torch.float64 if real else torch.int64)
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
    return CutArrays(
        result,
        array("parent", made.cells),
        array("point", 3 * made.points).view(-1, 3),
        array("t", made.points),
        array("uncut", made.uncuts),
        array("kept", made.vertices),
        made.bounded,
        made.dropped,
        functions=z.shape[1],
    )


def gathered(rows: Tensor, made: CutArrays) -> Tensor:
    """Rows of the vertices that are left of a cut; rows: (V, ...) of the old ones."""
    rows = rows.contiguous()
    table = rows.new_empty((made.kept.shape[0], *rows.shape[1:]))
    width = rows[0].numel() if rows.shape[0] else 0
    sizes = rows.shape[0], made.t.shape[0], made.kept.shape[0], width
    arrays = (x.data_ptr() for x in (rows, made.points, made.t, made.kept))
    with _threads() as (lib, pool):
        _check(lib.sc_gather_rows(pool, byref(structs.sc_rows(*sizes, *arrays)), table.data_ptr()))
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
