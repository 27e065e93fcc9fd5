"""The kernel of one run: its threads, and the calls of the library."""

from __future__ import annotations

import weakref
from ctypes import byref
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from splinecam.births import Births, Kinks
from splinecam.kernels.library import (
    STATUS,
    LayerStruct,
    MeshStruct,
    RefinedStruct,
    SettingsStruct,
    library,
)
from splinecam.kernels.rows import LineRows, Product, Sight
from splinecam.mesh import Mesh

__all__ = ["Cutting", "Kernel", "Refined", "available", "kernel_for"]


def available() -> bool:
    """Whether the compiled library is there and works on this machine."""
    return library() is not None


def kernel_for(device: torch.device) -> Kernel | None:
    """A kernel with as many threads as torch has, where it can be used."""
    if device.type != "cpu" or not available():
        return None
    return Kernel(torch.get_num_threads())


class Cutting(NamedTuple):
    """Functions to cut by, z (V, n): their signs as words (V, W), error and slope jump, (n,).

    uv_error, safety: the rounding of a coordinate, and how many times errors are tolerances.
    op: the number of the layer; max_faces: None for any number; max_chords: of one face;
    least_bends: new vertices from which slope changes are wanted, None for never.
    """

    z: Tensor
    positive: Tensor
    error: Tensor
    jump: Tensor
    uv_error: float
    safety: float
    op: int
    max_faces: int | None
    max_chords: int
    least_bends: int | None


class Refined(NamedTuple):
    """A refined mesh, its new vertices on edges and inside faces, and the slope changes there."""

    mesh: Mesh
    on_edges: Births
    inside: Births
    kinks: tuple[Kinks, Kinks] | None


class Kernel:
    """The compiled loops with a pool of threads that lives as long as this object."""

    def __init__(self, threads: int) -> None:
        self._lib = library()
        if self._lib is None:
            raise RuntimeError("the compiled kernel is not there")
        self._pool = self._lib.sc_pool_new(threads)
        if not self._pool:
            raise MemoryError("no memory for a pool of threads")
        self._end = weakref.finalize(self, self._lib.sc_pool_free, self._pool)

    def close(self) -> None:
        """End the threads."""
        self._end()

    def see(self, table: Tensor, start: int, end: int, sight: Sight) -> None:
        """Look at the rows from ``start`` to ``end`` of a table (V, n)."""
        seen = byref(sight.struct)
        self._done(self._lib.sc_see(self._pool, _of(table), table.shape[0], start, end, seen))

    def fill(self, table: Tensor, lines: LineRows, sight: Sight) -> None:
        """Fill in the new rows of a table (V, m)."""
        rows, width = table.shape
        given = byref(lines.struct()), byref(sight.struct)
        self._done(self._lib.sc_fill(self._pool, _of(table), rows, width, *given))

    def multiply(
        self, product: Product, table: Tensor, lines: LineRows | None, sight: Sight
    ) -> None:
        """Write a product into the first rows of a table (V, m), and new rows between those.

        Units that are positive in no row of a block are left out of its product.
        """
        new = None if lines is None else byref(lines.struct())
        given = byref(product.struct()), _of(table), table.shape[0], new, byref(sight.struct)
        self._done(self._lib.sc_multiply(self._pool, *given))

    def refine(self, mesh: Mesh, cutting: Cutting) -> Refined | str:
        """The mesh cut along zero sets, or why not: unchanged, delicate, too many."""
        refined: Any = RefinedStruct()
        structs = _mesh_struct(mesh), _layer_struct(cutting), _settings(cutting)
        given = [byref(struct) for struct in structs]
        status = self._lib.sc_refine(self._pool, *given, byref(refined))
        if status:
            return self._outcome(status)
        return _refined(self._lib, refined, mesh)

    def _done(self, status: int) -> None:
        if status:
            self._outcome(status)

    def _outcome(self, status: int) -> str:
        what = STATUS[status]
        if what == "no memory":
            raise MemoryError("the compiled kernel has no memory left")
        if what == "malformed":
            raise ValueError("the compiled kernel was given arrays that do not fit together")
        return what


def _of(tensor: Tensor) -> int:
    if not tensor.is_contiguous():
        raise ValueError("the compiled kernel takes contiguous arrays only")
    return tensor.data_ptr()


def _mesh_struct(mesh: Mesh) -> Any:
    return MeshStruct(
        mesh.uv.shape[0],
        mesh.edges.shape[0],
        mesh.offsets.shape[0] - 1,
        mesh.corners.shape[0],
        mesh.uv.shape[1],
        _of(mesh.uv),
        _of(mesh.edges),
        _of(mesh.offsets),
        _of(mesh.corners),
        _of(mesh.edge_op),
        _of(mesh.edge_unit),
        _of(mesh.vertex_op),
    )


def _layer_struct(cutting: Cutting) -> Any:
    arrays = cutting.z, cutting.positive, cutting.error, cutting.jump
    return LayerStruct(cutting.z.shape[1], *map(_of, arrays))


def _settings(cutting: Cutting) -> Any:
    limits = cutting.max_faces, cutting.max_chords, cutting.least_bends
    least = [-1 if limit is None else limit for limit in limits]
    return SettingsStruct(cutting.uv_error, cutting.safety, cutting.op, *least)


class _Block:
    """Memory of the library, released with the last array that looks into it."""

    def __init__(self, lib: Any, address: int, entries: int) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (entries,),
            "typestr": "<i8",
            "version": 3,
        }
        weakref.finalize(self, lib.sc_free, address)


_MESH = ("uv", "edge", "offset", "corner", "edge_op", "edge_unit", "vertex_op")
_POINTS = ("point_edge", "point_start", "point_end", "point_unit", "point_index", "point_t")
_CROSSINGS = ("cross_start", "cross_end", "cross_chord", "cross_slot", "cross_t")
_REAL = frozenset({"uv", "point_t", "point_bend", "cross_t", "slot_t", "slot_bend"})


def _refined(lib: Any, made: Any, old: Mesh) -> Refined:
    """The arrays of both blocks as tensors, without a copy."""
    width, slots = old.uv.shape[1], 2 * made.crossings
    sizes = (made.vertices * width, 2 * made.edges, made.faces + 1, made.corners)
    mesh = _tensors(
        lib, made.block, dict(zip(_MESH, (*sizes, *[made.edges] * 2, made.vertices), strict=True))
    )
    then = _tensors(
        lib,
        made.history,
        {"point_first": old.num_edges + 1}
        | dict.fromkeys((*_POINTS, "point_bend"), made.points)
        | dict.fromkeys(_CROSSINGS, made.crossings)
        | {"slot_first": made.chords + 1}
        | dict.fromkeys(("slot_unit", "slot_t", "slot_bend"), slots),
    )
    uv, edges, *rest = mesh.values()
    kinks = None
    if made.bends:
        points = ("point_first", "point_t", "point_unit", "point_bend", "point_edge", "point_index")
        inner = ("slot_first", "slot_t", "slot_unit", "slot_bend", "cross_chord", "cross_slot")
        kinks = (Kinks(*(then[k] for k in points)), Kinks(*(then[k] for k in inner)))
    return Refined(
        Mesh(uv.view(-1, width), edges.view(-1, 2), *rest),
        Births(then["point_start"], then["point_end"], then["point_t"]),
        Births(then["cross_start"], then["cross_end"], then["cross_t"]),
        kinks,
    )


def _tensors(lib: Any, address: int, sizes: dict[str, int]) -> dict[str, Tensor]:
    """Arrays that stand one after the other in a block, by name."""
    whole = torch.from_numpy(np.asarray(_Block(lib, address, sum(sizes.values()))))
    real, made, start = whole.view(torch.float64), {}, 0
    for name, size in sizes.items():
        made[name] = (real if name in _REAL else whole).narrow(0, start, size)
        start += size
    return made
