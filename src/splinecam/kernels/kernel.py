"""The kernel of one run: its threads, and the calls of the library."""

from __future__ import annotations

import weakref
from ctypes import byref, pointer
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from splinecam.geometry.subdivision import Mesh
from splinecam.kernels.library import (
    STATUS,
    DenseStruct,
    LayerStruct,
    RefinedStruct,
    SettingsStruct,
    SightStruct,
    library,
)
from splinecam.kernels.refined import History, KernelMesh, mesh_struct
from splinecam.kernels.rows import LineRows, SignRange

__all__ = [
    "WAYS",
    "Cutting",
    "Dense",
    "DenseResult",
    "Kernel",
    "Refined",
    "available",
    "kernel_for",
]

# How the values at new vertices are found, in the library's numbers: see kernel.h.
WAYS = {"direct": 0, "terms": 1, "sums": 2}


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

    jump: None for 1. uv_error, safety: the rounding of a coordinate, and how many times errors are
    tolerances. op: the number of the layer; max_faces: None for any number; max_chords: of one
    face; least_bends: new vertices from which slope changes are wanted, None for never.
    """

    z: Tensor
    positive: Tensor
    error: Tensor
    jump: Tensor | None
    uv_error: float
    safety: float
    op: int
    max_faces: int | None
    max_chords: int
    least_bends: int | None


class Refined(NamedTuple):
    """A refined mesh, and how it came about."""

    mesh: Mesh
    history: History


@dataclass(frozen=True)
class Dense:
    """A dense layer at all vertices of a mesh: columns (n, m), bias (m,), applied to z (V', n).

    z: at the first vertices; rectified: whether its positive part is taken; magnitude, error: (n,)
    bounds on what is multiplied; history: how the other vertices came about; ways: how their values
    are found, on edges and inside faces; eps, safety: of rounding, and of tolerances.
    """

    z: Tensor
    rectified: bool
    columns: Tensor
    bias: Tensor | None
    magnitude: Tensor
    error: Tensor
    history: History | None
    ways: tuple[str, str]
    eps: float
    safety: float


class DenseResult(NamedTuple):
    """Of the m units of a layer, (1, m) each; signs: (2, V, W) words, of both signs.

    modulus, error: bounds; later_error: after the next refinement; positive_modulus,
    positive_error: those of the positive parts then; least: up to where a value counts as zero;
    low, high: the range. clear: whether nothing counts as zero.
    """

    modulus: Tensor
    error: Tensor
    later_error: Tensor
    positive_modulus: Tensor
    positive_error: Tensor
    least: Tensor
    low: Tensor
    high: Tensor
    signs: Tensor | None
    clear: bool


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

    def see(self, table: Tensor, start: int, end: int, sign_range: SignRange) -> None:
        """Look at the rows from ``start`` to ``end`` of a table (V, n)."""
        seen = byref(sign_range.struct)
        self._done(self._lib.sc_see(self._pool, _of(table), table.shape[0], start, end, seen))

    def fill(
        self, table: Tensor, lines: LineRows, sign_range: SignRange, way: str = "terms"
    ) -> None:
        """Fill in the new rows of a table (V, m)."""
        rows, width = table.shape
        given = byref(lines.struct()), WAYS[way], byref(sign_range.struct)
        self._done(self._lib.sc_fill(self._pool, _of(table), rows, width, *given))

    def dense(self, mesh: Mesh, layer: Dense, table: Tensor, *, look: bool) -> DenseResult:
        """Write the values of a layer at all vertices of a mesh into a table (V, m).

        look: find signs and range, too.
        """
        (rows, width), units = table.shape, layer.columns.shape[0]
        words = -(-width // 64)
        numbers = torch.empty((8, 1, width), dtype=torch.float64)
        signs = torch.empty((2, rows, words), dtype=torch.int64) if look else None
        at, columns, place = numbers.data_ptr(), _of(layer.columns), mesh_struct(mesh)
        sign_range = SightStruct()
        if signs is not None:
            ranges = (at + 8 * width * k for k in (5, 6, 7))
            both = signs.data_ptr(), signs.data_ptr() + 8 * rows * words
            sign_range = SightStruct(width, *ranges, *both)
        lines: tuple[Any, Any] = (None, None)
        if layer.history is not None:
            structs = layer.history.structs(columns, units)
            lines = (pointer(structs[0]), pointer(structs[1]))
        dense = DenseStruct(
            rows,
            layer.z.shape[0],
            units,
            width,
            layer.rectified,
            _of(layer.z),
            place.uv,
            place.width,
            columns,
            None if layer.bias is None else _of(layer.bias),
            _of(layer.magnitude),
            _of(layer.error),
            layer.eps,
            layer.safety,
            *lines,
            *(WAYS[way] for way in layer.ways),
            at,
        )
        given = byref(dense), _of(table), byref(sign_range)
        self._done(self._lib.sc_dense_layer(self._pool, *given))
        modulus, error, later, positive, later_positive, least, low, high = numbers.unbind()
        bounds = modulus, error, later, positive, later_positive
        return DenseResult(*bounds, least, low, high, signs, not sign_range.zeros)

    def refine(self, mesh: Mesh, cutting: Cutting) -> Refined | str:
        """The mesh cut along zero sets, or why not: unchanged, delicate, too many."""
        refined: Any = RefinedStruct()
        structs = mesh_struct(mesh), _layer_struct(cutting), _settings(cutting)
        given = [byref(struct) for struct in structs]
        status = self._lib.sc_refine(self._pool, *given, byref(refined))
        if status:
            return self._outcome(status)
        made = KernelMesh(self._lib, refined, structs[0].width)
        return Refined(made, History(self._lib, refined, mesh))

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


def _layer_struct(cutting: Cutting) -> Any:
    arrays = _of(cutting.z), _of(cutting.positive), _of(cutting.error)
    jump = None if cutting.jump is None else _of(cutting.jump)
    return LayerStruct(cutting.z.shape[1], *arrays, jump)


def _settings(cutting: Cutting) -> Any:
    limits = cutting.max_faces, cutting.max_chords, cutting.least_bends
    least = [-1 if limit is None else limit for limit in limits]
    return SettingsStruct(cutting.uv_error, cutting.safety, cutting.op, *least)
