"""The compiled kernel of one run: its threads, its calls of the library, and results there."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from ctypes import addressof, byref, c_int64
from dataclasses import dataclass, fields
from itertools import accumulate
from math import prod
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from splinecam._util.backend import is_cpu
from splinecam._util.tolerances import EPS, SAFETY, UV_ERROR
from splinecam.geometry.subdivision import Breakpoints, InterpolatedVertices, LazyMesh, Mesh
from splinecam.kernels.library import STATUS, library, structs

# The sizes and the arrays of ``sc_mesh``, as ``sc_refined`` and ``sc_overlaid`` name them.
_FIELDS = [name for name, _ in structs.sc_mesh._fields_]
_SIZES, _ARRAYS = attrgetter(*_FIELDS[:4]), attrgetter(*_FIELDS[5:])  # between: the width of uv


class Block:
    """A block of the library's memory, released with the last array that refers to it."""

    def __init__(self, lib: Any, address: int) -> None:
        self._lib, self._address = lib, address

    def __del__(self) -> None:
        self._lib.sc_free(self._address)

    def tensors(self, sizes: list[int], real: frozenset[int]) -> list[Tensor]:
        """The tensors that follow one another in the block; real: which of them are float64."""
        self.__array_interface__ = {
            "data": (self._address, False),
            "shape": (sum(sizes),),
            "typestr": "<i8",
            "version": 3,
        }
        numbers, tensors = np.asarray(self), []
        for end, (k, size) in zip(accumulate(sizes), enumerate(sizes), strict=True):
            part = numbers[end - size : end]
            tensors.append(torch.from_numpy(part.view(np.float64) if k in real else part))
        return tensors


def kernel_mesh(lib: Any, made: Any, width: int) -> LazyMesh:
    """The refined mesh; its source is the mesh as the library takes it."""
    block = Block(lib, made.block)
    vertices, edges, faces, corners = _SIZES(made)

    def load(mesh: Mesh, name: str) -> dict[str, Tensor]:
        sizes = [vertices * width, 2 * edges, faces + 1, corners, edges, edges, vertices]
        uv, ends, *rest = block.tensors(sizes, frozenset({0}))
        tensors = (uv.view(-1, width), ends.view(-1, 2), *rest)
        return dict(zip(Mesh.__dataclass_fields__, tensors, strict=True))

    source = structs.sc_mesh(vertices, edges, faces, corners, width, *_ARRAYS(made))
    return LazyMesh.of((vertices, edges, faces), load, source)


# The fields of ``sc_refined`` that ``sc_lines`` calls ``p`` to ``slope_change``.
_ON_EDGES = attrgetter(
    *("point_start", "point_end", "point_t", "point_edge", "point_index"),
    *("point_first", "point_t", "point_unit", "point_slope_change"),
)
_INSIDE = attrgetter(
    *("cross_start", "cross_end", "cross_t", "cross_chord", "cross_slot"),
    *("slot_first", "slot_t", "slot_unit", "slot_slope_change"),
)


class History:
    """How a refinement came about: new vertices on edges and inside faces, and breakpoints.

    first: the number of the first new vertex; points, crossings: how many there are on edges and
    inside faces; edge_terms, inside_terms: the numbers of breakpoints of the lines of all of these.
    """

    def __init__(self, lib: Any, refined: Any, old: Mesh) -> None:
        self._block, self._refined = Block(lib, refined.history), refined
        self.first, self._old_edges = old.num_vertices, old.num_edges
        self.points, self.crossings = int(refined.points), int(refined.crossings)
        self.edge_terms, self.inside_terms = int(refined.edge_terms), int(refined.inside_terms)
        self.has_breakpoints = bool(refined.has_breakpoints)

    @property
    def counts(self) -> list[tuple[int, int, int]]:
        """New vertices, breakpoints and terms, on edges and inside faces: ``line_values.Costs``."""
        on_edges = (self.points, self.points, self.edge_terms)
        return [on_edges, (self.crossings, 2 * self.crossings, self.inside_terms)]

    def structs(self, column: int, units: int) -> tuple[Any, Any]:
        """The new vertices on edges and inside faces; column: an address of (units, m) numbers."""
        made, known = self._refined, self.has_breakpoints
        edges, chords = (self._old_edges, made.chords) if known else (0, 0)
        on_edges = self.first, self.points, edges, self.points, *_ON_EDGES(made)
        first, slots = self.first + self.points, 2 * self.crossings
        inside = first, self.crossings, chords, slots, *_INSIDE(made)
        return structs.sc_lines(*on_edges, column, units), structs.sc_lines(*inside, column, units)

    def tensors(
        self,
    ) -> tuple[InterpolatedVertices, InterpolatedVertices, tuple[Breakpoints, Breakpoints] | None]:
        """The new vertices on edges, those inside faces, and the breakpoints, if known."""
        made, points, crossings = self._refined, self.points, self.crossings
        sizes = [self._old_edges + 1, *[points] * 7, *[crossings] * 5]
        sizes += [made.chords + 1, *[2 * crossings] * 3]
        tensors = self._block.tensors(sizes, frozenset({6, 7, 12, 15, 16}))
        first, edge, start, end, unit, index, t, slope_change = tensors[:8]
        begin, stop, chord, slot, at, slots, slot_unit, slot_t, slot_slope_change = tensors[8:]
        on_edges = InterpolatedVertices(start, end, t)
        inside = InterpolatedVertices(begin, stop, at)
        if not self.has_breakpoints:
            return on_edges, inside, None
        on_lines = Breakpoints(first, t, unit, slope_change, edge, index)
        on_chords = Breakpoints(slots, slot_t, slot_unit, slot_slope_change, chord, slot)
        return on_edges, inside, (on_lines, on_chords)


class Overlaid:
    """The common refinement of two meshes.

    mesh: its vertices are those of the first mesh, of the second mesh but for the corners of the
    domain, and the crossings of edges of both; first, second: the two meshes; corners: the number
    of corners of the domain; struct: the refinement as the library takes it.
    """

    def __init__(self, lib: Any, made: Any, first: Mesh, second: Mesh, corners: int) -> None:
        self.mesh = kernel_mesh(lib, made, 2)
        self._blocks = Block(lib, made.history), Block(lib, made.fit)
        self.struct, self.first, self.second, self.corners = made, first, second, corners


_PANEL = 32  # columns of a panel, as in loops.h


class CompiledChain:
    """Products with matrices (m, n) in float32 and ReLUs between them, as the library takes them.

    offset, norm, rounded: of all units after each other, see ``sc_chain``; functions: (m, n) of the
    last layer, or None; single: the rounding of a number.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        details: Sequence[Tensor],
        functions: Tensor | None,
        single: float,
    ) -> None:
        self.widths = [weights[0].shape[1], *(len(weight) for weight in weights)]
        self.functions = functions
        width = torch.tensor(self.widths, device=weights[0].device)
        column = torch.cat([_panels(weight) for weight in weights])
        row = torch.cat([weights[0].new_zeros(0), *(_panels(w.T) for w in weights[1:-1])])
        self._kept = [width, column, row, *details, weights[-1].contiguous()]
        sizes = len(weights), _address(width), len(column), len(row)
        addresses = [_address(each) for each in self._kept[1:]]
        last = None if functions is None else _address(functions)
        self.struct = structs.sc_chain(*sizes, *addresses, last, single)


class ReducedChains:
    """What the library keeps of a chain on some squares, for their quarters.

    address: (B,) where, 0 for nothing.
    """

    def __init__(self, lib: Any, address: Tensor) -> None:
        self._lib, self.address = lib, address

    def __del__(self) -> None:
        self._lib.sc_free_nets(_address(self.address), len(self.address))


def _panels(weight: Tensor) -> Tensor:
    """The rows of a matrix (m, n) in panels of (n, 32), one after the other."""
    count, n = -(-len(weight) // _PANEL), weight.shape[1]
    padded = weight.new_zeros((count * _PANEL, n))
    padded[: len(weight)] = weight
    return padded.view(count, _PANEL, n).transpose(1, 2).reshape(-1)


def mesh_struct(mesh: Mesh) -> Any:
    """A mesh as the library takes it."""
    if isinstance(mesh, LazyMesh) and isinstance(mesh.source, structs.sc_mesh):
        return mesh.source
    arrays = (_address(getattr(mesh, field.name)) for field in fields(Mesh))
    sizes = (mesh.num_vertices, mesh.num_edges, mesh.num_faces, mesh.corners.shape[0])
    return structs.sc_mesh(*sizes, mesh.uv.shape[1], *arrays)


# Chords of one face up to which a kernel compares all pairs of them.
MAX_CHORDS = 1 << 12


class LayerFunctions(NamedTuple):
    """Functions at the vertices of a mesh, to cut the faces along their zero sets."""

    z: Tensor  # (V, n)
    positive: Tensor  # (V, W) words of their signs
    error: Tensor  # (n,)
    slope_difference: Tensor | None  # (n,) of the results on both sides of zero, None for 1
    layer: int  # the provenance of what is cut
    max_faces: int | None = None
    breakpoints_from: int | None = 0  # new vertices from which breakpoints are found; None: never
    negative: Tensor | None = None  # (V, W), for GPUs only
    wanted: Tensor | None = None  # (n,) whether a function may change sign, for GPUs only
    place: Tensor | None = None  # (V,) rows of z and of the signs, if not all vertices have one
    settled: Tensor | None = None  # (F,) not to be cut; written: see ``sc_layer``


class SelectedChords(NamedTuple):
    """Chords (N,) to insert, where two of n units are equal in a face."""

    key: Tensor  # (N,) ascending, (face * n + one unit) * n + another unit
    unit: Tensor  # (N,) the unit of the new edges
    table: Tensor  # (V, n) values of all units
    error: Tensor  # (n,)
    first_new: int  # vertices from here on lie between two others
    parents: Tensor  # (W, 2) those two
    position_error: Tensor  # (W,) as a fraction of their distance
    layer: int
    max_faces: int | None


class Candidates(NamedTuple):
    """Groups of units that may be the maximum in faces of a mesh."""

    mesh: Mesh
    table: Tensor  # (V, n) values of all units
    tolerance: Tensor  # (n,) of comparisons
    face: Tensor  # (N,)
    units: Tensor  # (N, R)


class SignRange:
    """Accumulates the range and the signs of the rows that the compiled loops pass.

    tolerance: (n,) moduli up to which values count as zero; positive, negative: (V, W) words that
    the loops write.
    """

    def __init__(self, tolerance: Tensor, positive: Tensor, negative: Tensor) -> None:
        self.low = torch.full_like(tolerance, torch.inf)
        self.high = torch.full_like(tolerance, -torch.inf)
        self._held = (tolerance, positive, negative)
        arrays = (tolerance, self.low, self.high, positive, negative)
        addresses = (array.data_ptr() for array in arrays)
        self.struct: Any = structs.sc_sign_range(tolerance.shape[0], *addresses)

    @classmethod
    def nothing(cls) -> SignRange:
        """An accumulator of no units."""
        empty = torch.empty(0, dtype=torch.float64)
        return cls(empty, *torch.empty((2, 0, 0), dtype=torch.int64))

    def zeros(self) -> bool:
        """Whether any value counted as zero."""
        return bool(self.struct.zeros)


@dataclass(frozen=True)
class LineRows:
    """New rows: points of lines between older rows, less their slope changes."""

    first: int  # the number of the first new row
    interpolated: InterpolatedVertices
    breakpoints: Breakpoints | None = None  # None: nothing is subtracted
    columns: Tensor | None = None  # (n, m) the row with which each unit is multiplied

    def struct(self) -> Any:
        """The structure of the library."""
        interpolated, breakpoints, columns = self.interpolated, self.breakpoints, self.columns
        arrays = {"p": interpolated.p, "q": interpolated.q, "t": interpolated.t}
        sizes = {"first": self.first, "count": interpolated.count}
        if breakpoints is not None and columns is not None:
            sizes["lines"] = breakpoints.offsets.shape[0] - 1
            sizes |= {"breakpoints": breakpoints.count, "units": columns.shape[0]}
            arrays |= {"line": breakpoints.line, "offset": breakpoints.offsets}
            arrays |= {"breakpoint": breakpoints.place, "breakpoint_t": breakpoints.t}
            arrays |= {"unit": breakpoints.unit, "slope_change": breakpoints.slope_change}
            arrays["column"] = columns
        return structs.sc_lines(**sizes, **_addresses(arrays))


# How the values at new vertices are computed: see sc_method in kernel.h.
_METHODS = {"direct": 0, "terms": 1, "sums": 2}


def available() -> bool:
    """Whether the compiled library is there and works on this machine."""
    return library() is not None


def kernel_for(device: torch.device) -> Kernel | None:
    """A kernel with as many threads as torch has, or None where it cannot be used."""
    if not is_cpu(device) or not available():
        return None
    return Kernel(torch.get_num_threads())


@dataclass(frozen=True)
class Dense:
    """A dense layer at all vertices of a mesh: ``z @ columns + bias``."""

    z: Tensor  # (V', n) the factor at the first vertices
    rectified: bool  # whether its positive part is taken
    columns: Tensor  # (n, m)
    bias: Tensor | None  # (m,)
    magnitude: Tensor  # (n,) bound on the factor
    error: Tensor  # (n,)
    history: History | None = None  # how the other vertices came about
    methods: tuple[str, str] = ("direct", "direct")  # on edges and inside faces: see _METHODS
    place: Tensor | None = None  # (V',) rows of z, if not all vertices have one
    wanted: Tensor | None = None  # (V,) rows of the result, -1 for vertices that are left out


class DenseResult(NamedTuple):
    """Bounds, signs and range of the m units of a layer, (1, m) each."""

    modulus: Tensor  # bound on the values
    error: Tensor  # bound on their errors
    later_error: Tensor  # the error after the next refinement
    positive_modulus: Tensor  # bounds on the positive parts then
    positive_error: Tensor
    tolerance: Tensor  # moduli up to which values count as zero
    low: Tensor  # the range
    high: Tensor
    signs: Tensor | None  # (2, V, W) words of positive and negative signs, None if unwanted
    clear: bool  # whether no value counts as zero


class PointsAlong(NamedTuple):
    """Old and new points along segments, in order, (P,) each."""

    segment: Tensor
    t: Tensor  # the position on the segment
    before: Tensor  # the old point at or before each point
    s: Tensor  # the fraction of the way from there to the next old point


class Kernel:
    """The compiled loops, with a pool of threads that lives as long as this object."""

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

    def scan(self, table: Tensor, start: int, end: int, sign_range: SignRange) -> None:
        """Find the signs and the range of the rows from ``start`` to ``end`` of a table (V, n)."""
        size = table.shape[0], start, end
        self._call("sc_scan", _address(table), *size, byref(sign_range.struct))

    def fill(
        self, table: Tensor, lines: LineRows, sign_range: SignRange, method: str = "terms"
    ) -> None:
        """Compute the new rows of a table (V, m), and find their signs and range."""
        rows = byref(lines.struct()), _METHODS[method]
        self._call("sc_fill", _address(table), *table.shape, *rows, byref(sign_range.struct))

    def dense(self, mesh: Mesh, layer: Dense, table: Tensor, *, signs: bool) -> DenseResult:
        """Write the values of a layer at all vertices into a table (V, m), perhaps with signs."""
        place = mesh_struct(mesh)
        where = {"uv": place.uv, "uv_width": place.width}
        lines: Any = ()
        if layer.history is not None:
            lines = layer.history.structs(_address(layer.columns), layer.columns.shape[0])
        where |= dict(zip(("edges", "inside"), map(addressof, lines), strict=False))
        where |= {"known": layer.z.shape[0]}
        for name in ("place", "wanted"):
            rows = getattr(layer, name)
            where |= {} if rows is None else {name: _address(rows)}
        if layer.place is not None:
            where["known"] = layer.place.shape[0]
        return self._dense(layer, table, signs, where)

    def dense_along(
        self, points: PointsAlong, layer: Dense, table: Tensor, *, signs: bool
    ) -> DenseResult:
        """Write the values of a layer at points along segments into a table (P, m)."""
        where = {"before": _address(points.before), "s": _address(points.s)}
        where["known"] = layer.z.shape[0]
        return self._dense(layer, table, signs, where)

    def _dense(
        self, layer: Dense, table: Tensor, signs: bool, where: dict[str, Any]
    ) -> DenseResult:
        """Write the values of a layer; where: the places of the rows, in the library's words."""
        (rows, width), wanted = table.shape, layer.wanted
        words = -(-width // 64)
        numbers = table.new_empty((8, 1, width), dtype=torch.float64)
        found = table.new_empty((2, rows, words), dtype=torch.int64) if signs else None
        bounds = numbers.data_ptr()
        sign_range: Any = structs.sc_sign_range()
        if found is not None:
            ranges = (bounds + 8 * width * k for k in (5, 6, 7))
            both = found.data_ptr(), found.data_ptr() + 8 * rows * words
            sign_range = structs.sc_sign_range(width, *ranges, *both)
        arrays = {"z": layer.z, "column": layer.columns, "magnitude": layer.magnitude}
        arrays |= {"error": layer.error, **({} if layer.bias is None else {"bias": layer.bias})}
        dense = structs.sc_dense(
            rows=rows if wanted is None else wanted.shape[0],
            units=layer.columns.shape[0],
            width=width,
            rectified=layer.rectified,
            eps=EPS,
            safety=SAFETY,
            edge_method=_METHODS[layer.methods[0]],
            inside_method=_METHODS[layer.methods[1]],
            bounds=bounds,
            **_addresses(arrays),
            **where,
        )
        self._call("sc_dense_layer", byref(dense), _address(table), byref(sign_range))
        return DenseResult._make([*numbers.unbind(), found, not sign_range.zeros])

    def refine(self, mesh: Mesh, functions: LayerFunctions) -> tuple[Mesh, History] | str:
        """Cut a mesh along zero sets.

        Returns the refinement, or why there is none: "unchanged", "degenerate" or "too many faces".
        """
        refined: Any = structs.sc_refined()
        arrays = *functions[:4], functions.place, functions.settled
        addresses = [None if array is None else _address(array) for array in arrays]
        limits = functions.max_faces, MAX_CHORDS, functions.breakpoints_from
        known = (-1 if limit is None else limit for limit in limits)
        given = [
            mesh_struct(mesh),
            structs.sc_layer(functions.z.shape[1], *addresses),
            structs.sc_settings(UV_ERROR, SAFETY, functions.layer, *known),
        ]
        reason = self._call("sc_refine", *map(byref, given), byref(refined))
        if reason != "done":
            return reason
        made = kernel_mesh(self._lib, refined, given[0].width)
        return made, History(self._lib, refined, mesh)

    def overlay(
        self,
        first: Mesh,
        second: Mesh,
        corners: int,
        slack: float,
        *,
        layers: int = 0,
        max_faces: int | None = None,
    ) -> Overlaid | str:
        """The common refinement of two meshes of one polygon, whose corners are numbered first.

        corners: how many there are; slack: distances up to which features count as touching;
        layers: is added to the layers of the second mesh. Returns the refinement, or why there is
        none: "degenerate" or "too many faces".
        """
        made: Any = structs.sc_overlaid()
        meshes = mesh_struct(first), mesh_struct(second)
        given = layers, corners, slack, -1 if max_faces is None else max_faces
        reason = self._call("sc_overlay", *map(byref, meshes), *given, byref(made))
        return Overlaid(self._lib, made, first, second, corners) if reason == "done" else reason

    def overlay_values(
        self, overlaid: Overlaid, first: Tensor, second: Tensor, out: Tensor
    ) -> None:
        """Write two functions, affine on the faces of their meshes, side by side (V, 2 n)."""
        meshes = mesh_struct(overlaid.first), mesh_struct(overlaid.second)
        sizes = [(mesh.num_vertices, first.shape[1]) for mesh in (overlaid.first, overlaid.second)]
        if [tuple(first.shape), tuple(second.shape)] != sizes:
            raise ValueError("the values do not belong to the vertices of the two meshes")
        if tuple(out.shape) != (overlaid.mesh.num_vertices, 2 * first.shape[1]):
            raise ValueError("there must be room for both functions at every vertex")
        pair = structs.sc_affine_pair(first.shape[1], _address(first), _address(second))
        given = overlaid.corners, byref(overlaid.struct), byref(pair), _address(out)
        self._call("sc_overlay_values", *map(byref, meshes), *given)

    def points_along(
        self, z: Tensor, positive: Tensor, error: Tensor, segment: Tensor, t: Tensor
    ) -> PointsAlong | None:
        """Where functions z (P, n) change sign between neighbouring points of segments.

        positive: (P, W) words of where they are positive, as they vanish nowhere; error: (n,) of
        the functions; segment, t: (P,) segment and position of a point. The result is None where
        new points are too close together.
        """
        rows, units = z.shape
        counts = z.new_empty(rows, dtype=torch.int64)
        given = {"rows": rows, "units": units, "uv_error": UV_ERROR, "safety": SAFETY}
        arrays = {"z": z, "positive": positive, "error": error, "segment": segment, "t": t}
        given |= _addresses(arrays | {"count": counts})
        if self._call("sc_count_along", byref(structs.sc_crossings(**given))) != "done":
            return None
        offsets = torch.cumsum(counts, 0)
        total = rows + (int(offsets[-1]) if rows else 0)
        offsets -= counts
        whole, real = counts.new_empty((2, total)), z.new_empty((2, total))
        arrays = {"offset": offsets, "new_segment": whole[0], "before": whole[1]}
        given |= _addresses(arrays | {"new_t": real[0], "s": real[1]})
        if self._call("sc_find_along", byref(structs.sc_crossings(**given))) != "done":
            return None
        return PointsAlong(whole[0], real[0], whole[1], real[1])

    def rows_between(self, table: Tensor, before: Tensor, s: Tensor, *, rectified: bool) -> Tensor:
        """Rows (P, ...), a fraction s (P,) of the way from row ``before``, perhaps rectified."""
        out = table.new_empty((before.shape[0], *table.shape[1:]))
        width = prod(table.shape[1:])
        size = table.shape[0], width, _address(before), _address(s), before.shape[0]
        self._call("sc_rows_between", _address(table), *size, int(rectified), _address(out))
        return out

    def table_values(self, z: Tensor, pieces: Sequence[Tensor], out: Tensor) -> None:
        """Write functions of one variable each, of n units, at z (B, *shape).

        pieces: levels (K, n), and of every piece where it begins, its value there and its slope,
        (K + 1, n) each. Units with fewer levels have infinite ones at the end.
        """
        count, units = pieces[0].shape
        shapes = {tuple(each.shape) for each in pieces[1:]}
        if shapes != {(count + 1, units)} or prod(z.shape[1:]) != units or out.shape != z.shape:
            raise ValueError("the tables do not belong to the units")
        tables = structs.sc_tables(units, count, *map(_address, pieces))
        self._call("sc_table_values", byref(tables), _address(z), z.shape[0], _address(out))

    def bound_boxes(self, chain: CompiledChain, inputs: Tensor) -> tuple[Tensor, ...]:
        """Outputs (B, 3, n), their rounding (B, n), the radius of functions (B, m), knots (B,).

        inputs: (B, 3, d) at the centre of each box, and from there to the right and upwards; see
        ``sc_boxes``.
        """
        count, outputs = len(inputs), chain.widths[-1]
        functions = outputs if chain.functions is None else len(chain.functions)
        shapes = (3, outputs), (outputs,), (functions,), ()
        made = [inputs.new_empty((count, *shape)) for shape in shapes]
        boxes = structs.sc_boxes(count, functions, _address(inputs), *map(_address, made))
        self._call("sc_bound_boxes", byref(chain.struct), byref(boxes))
        return tuple(made)

    def reduce_squares(
        self, chain: CompiledChain, inputs: Tensor, parent: Tensor, place: Tensor, most: int
    ) -> tuple[list[Tensor], ReducedChains]:
        """The same as ``bound_boxes`` for squares, and what is kept for their quarters.

        parent: (B,) what was kept of larger squares, or 0; place: (B, 2) of the centres in these;
        most: the units that may pass zero, about. Where more do, the last result is -1.
        """
        count, outputs = len(inputs), chain.widths[-1]
        functions = outputs if chain.functions is None else len(chain.functions)
        shapes = (3, outputs), (outputs,), (functions,), ()
        made = [inputs.new_empty((count, *shape)) for shape in shapes]
        kept = ReducedChains(self._lib, parent.new_zeros(count))
        arrays = map(_address, [inputs, parent, place, *made, kept.address])
        given = structs.sc_reductions(count, functions, most, *arrays)
        self._call("sc_reduce_squares", byref(chain.struct), byref(given))
        return made, kept

    def bound_bodies(
        self, chain: CompiledChain, numbers: tuple[float, ...], arrays: Sequence[Tensor]
    ) -> None:
        """Leave those bodies open on which the function of a chain may vanish; see ``sc_bodies``.

        numbers: the layer and the margin; arrays: from uvw on.
        """
        layer, margin = numbers
        *given, open_ = map(_address, arrays)
        sizes = len(arrays[0]), len(arrays[-1]), layer, arrays[1].shape[1]
        uvw, z, *places = given
        bodies = structs.sc_bodies(*sizes, uvw, z, None, *places, margin, open_)
        self._call("sc_bound_bodies", byref(chain.struct), byref(bodies))

    def open_faces(
        self,
        mesh: Mesh,
        numbers: dict[str, float],
        arrays: dict[str, Tensor],
        settled: Tensor | None = None,
    ) -> Tensor:
        """Whether a question is open on each face, (F,); see ``sc_squares`` for what is given.

        settled: (F,) faces on which it is known not to be.
        """
        open_ = torch.ones(mesh.num_faces, dtype=torch.bool) if settled is None else ~settled
        squares = structs.sc_squares(**numbers, **_addresses(arrays))
        self._call("sc_open_faces", byref(mesh_struct(mesh)), byref(squares), _address(open_))
        return open_

    def settled_values(
        self,
        numbers: dict[str, float],
        arrays: dict[str, Tensor],
        points: tuple[Tensor, Tensor, Tensor],
        out: Tensor,
    ) -> None:
        """Write outputs (V, n) at some points, as squares settle them; see ``sc_settled_points``.

        points: row, uv and rows.
        """
        squares = structs.sc_squares(**numbers, **_addresses(arrays))
        sizes = points[0].shape[0], out.shape[1]
        given = structs.sc_settled_points(*sizes, *map(_address, points), _address(out))
        self._call("sc_settled_values", byref(squares), byref(given))

    def open_corners(self, mesh: Mesh, settled: Tensor) -> tuple[Tensor, int]:
        """Numbers of the corners of faces that are not settled, (V,), -1 elsewhere; their count."""
        row, count = mesh.edges.new_empty(mesh.num_vertices), c_int64()
        addresses = _address(settled), _address(row), byref(count)
        self._call("sc_open_corners", byref(mesh_struct(mesh)), *addresses)
        return row, count.value

    def _call(self, name: str, *arguments: Any) -> str:
        status = STATUS[getattr(self._lib, name)(self._pool, *arguments)]
        if status == "no memory":
            raise MemoryError("the compiled kernel has no memory left")
        if status == "malformed":
            raise ValueError("the compiled kernel was given arrays that do not fit together")
        return status


def _address(tensor: Tensor) -> int:
    if not tensor.is_contiguous():
        raise ValueError("the compiled kernel takes contiguous arrays only")
    return tensor.data_ptr()


def _addresses(tensors: dict[str, Tensor]) -> dict[str, int]:
    return {name: _address(tensor) for name, tensor in tensors.items()}
