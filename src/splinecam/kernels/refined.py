"""A refinement in the memory of the library; its tensors are made when they are first used."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam.geometry.subdivision import Breakpoints, InterpolatedVertices, LazyMesh, Mesh
from splinecam.kernels.library import LinesStruct, MeshStruct

_FIELDS = [name for name, _ in MeshStruct._fields_]


class _Block:
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
    block = _Block(lib, made.block)

    def load(mesh: Mesh, name: str) -> dict[str, Tensor]:
        sizes = [made.vertices * width, 2 * made.edges, made.faces + 1, made.corners]
        sizes += [made.edges, made.edges, made.vertices]
        uv, edges, *rest = block.tensors(sizes, frozenset({0}))
        tensors = (uv.view(-1, width), edges.view(-1, 2), *rest)
        return dict(zip(Mesh.__dataclass_fields__, tensors, strict=True))

    source = MeshStruct(*(width if n == "width" else getattr(made, n) for n in _FIELDS))
    return LazyMesh.of((made.vertices, made.edges, made.faces), load, source)


class History:
    """How a refinement came about: new vertices on edges and inside faces, and breakpoints.

    first: the number of the first new vertex; points, crossings: how many there are on edges and
    inside faces; edge_terms, inside_terms: the numbers of breakpoints of the lines of all of these.
    """

    def __init__(self, lib: Any, refined: Any, old: Mesh) -> None:
        self._block, self._refined = _Block(lib, refined.history), refined
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
        """The new vertices on edges and inside faces, as the library takes them.

        column: the address of an array (units, m).
        """
        made = self._refined
        edges = LinesStruct(
            first=self.first,
            count=self.points,
            lines=self._old_edges if self.has_breakpoints else 0,
            breakpoints=self.points,
            line=made.point_edge,
            breakpoint=made.point_index,
            offset=made.point_first,
            breakpoint_t=made.point_t,
            unit=made.point_unit,
            slope_change=made.point_slope_change,
        )
        inside = LinesStruct(
            first=self.first + self.points,
            count=self.crossings,
            lines=made.chords if self.has_breakpoints else 0,
            breakpoints=2 * self.crossings,
            line=made.cross_chord,
            breakpoint=made.cross_slot,
            offset=made.slot_first,
            breakpoint_t=made.slot_t,
            unit=made.slot_unit,
            slope_change=made.slot_slope_change,
        )
        for struct, name in ((edges, "point"), (inside, "cross")):
            struct.p, struct.q = getattr(made, f"{name}_start"), getattr(made, f"{name}_end")
            struct.t, struct.column, struct.units = getattr(made, f"{name}_t"), column, units
        return edges, inside

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

    mesh: its vertices are those of the first mesh, those of the second but for the corners of the
    domain, and the crossings of edges of both; first, second: the two meshes; corners: the number
    of corners of the domain; struct: the refinement as the library takes it.
    """

    def __init__(self, lib: Any, made: Any, first: Mesh, second: Mesh, corners: int) -> None:
        self.mesh = kernel_mesh(lib, made, 2)
        self._blocks = _Block(lib, made.history), _Block(lib, made.fit)
        self.struct, self.first, self.second, self.corners = made, first, second, corners


def mesh_struct(mesh: Mesh) -> Any:
    """A mesh as the library takes it."""
    if isinstance(mesh, LazyMesh) and isinstance(mesh.source, MeshStruct):
        return mesh.source
    arrays = [mesh.uv, mesh.edges, mesh.offsets, mesh.corners]
    arrays += [mesh.edge_layer, mesh.edge_unit, mesh.vertex_layer]
    if not all(array.is_contiguous() for array in arrays):
        raise ValueError("the compiled kernel takes contiguous arrays only")
    sizes = (mesh.num_vertices, mesh.num_edges, mesh.num_faces, mesh.corners.shape[0])
    return MeshStruct(*sizes, mesh.uv.shape[1], *(array.data_ptr() for array in arrays))
