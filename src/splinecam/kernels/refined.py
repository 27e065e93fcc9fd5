"""A refinement in the memory of the library; its tensors are made when they are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam.geometry.interpolation import Breakpoints, InterpolatedVertices
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels.library import LinesStruct, MeshStruct

__all__ = ["History", "KernelMesh", "mesh_struct"]


class _Block:
    """Memory of the library, released with the last array that looks into it."""

    def __init__(self, lib: Any, address: int) -> None:
        self._lib, self._address = lib, address

    def __del__(self) -> None:
        self._lib.sc_free(self._address)

    def arrays(self, sizes: list[int], real: frozenset[int]) -> list[np.ndarray[Any, Any]]:
        """Arrays that stand one after the other; real: which of them hold fractions."""
        self.__array_interface__ = {
            "data": (self._address, False),
            "shape": (sum(sizes),),
            "typestr": "<i8",
            "version": 3,
        }
        whole, start, made = np.asarray(self), 0, []
        for number, size in enumerate(sizes):
            part = whole[start : start + size]
            made.append(part.view(np.float64) if number in real else part)
            start += size
        return made


class KernelMesh(Mesh):
    """The refined mesh."""

    def __init__(self, lib: Any, refined: Any, width: int) -> None:
        block = _Block(lib, refined.block)
        vars(self).update(_block=block, _refined=refined, _width=width)

    @property
    def num_vertices(self) -> int:
        return int(self._refined.vertices)

    @property
    def num_edges(self) -> int:
        return int(self._refined.edges)

    @property
    def num_faces(self) -> int:
        return int(self._refined.faces)

    @property
    def struct(self) -> Any:
        """The mesh as the library takes it."""
        made = self._refined
        return MeshStruct(
            made.vertices,
            made.edges,
            made.faces,
            made.corners,
            self._width,
            made.uv,
            made.edge,
            made.offset,
            made.corner,
            made.edge_layer,
            made.edge_unit,
            made.vertex_layer,
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.__dataclass_fields__:
            raise AttributeError(name)
        vars(self).update(self._tensors())  # all of them, on the first occasion
        return vars(self)[name]

    def _tensors(self) -> dict[str, Tensor]:
        made, width = self._refined, self._width
        sizes = [made.vertices * width, 2 * made.edges, made.faces + 1, made.corners]
        sizes += [made.edges, made.edges, made.vertices]
        uv, edges, *rest = self._block.arrays(sizes, frozenset({0}))
        parts = [uv.reshape(-1, width), edges.reshape(-1, 2), *rest]
        return dict(zip(self.__dataclass_fields__, map(torch.from_numpy, parts), strict=True))

    def kept(self) -> Mesh:
        return Mesh(**self._tensors())


class History:
    """How a refinement came about: new vertices on edges and inside faces, and slope changes.

    first: the number of the first new vertex; points, crossings: how many there are on edges and
    inside faces; edge_terms, inside_terms: slope changes of the lines of all of these.
    """

    def __init__(self, lib: Any, refined: Any, old: Mesh) -> None:
        self._block, self._refined = _Block(lib, refined.history), refined
        self.first, self._old_edges = old.num_vertices, old.num_edges
        self.points, self.crossings = int(refined.points), int(refined.crossings)
        self.edge_terms, self.inside_terms = int(refined.edge_terms), int(refined.inside_terms)
        self.bends = bool(refined.bends)

    @property
    def counts(self) -> list[tuple[int, int, int]]:
        """Of the new vertices on edges and of those inside faces: see ``bending.Costs``."""
        on_edges = (self.points, self.points, self.edge_terms)
        return [on_edges, (self.crossings, 2 * self.crossings, self.inside_terms)]

    def structs(self, column: int, units: int) -> tuple[Any, Any]:
        """The new vertices as the library takes them.

        column: the address of an array (units, m).
        """
        made, points, crossings = self._refined, self.points, self.crossings
        edges = LinesStruct(
            self.first,
            points,
            self._old_edges if self.bends else 0,
            points,
            made.point_start,
            made.point_end,
            made.point_t,
            made.point_edge,
            made.point_index,
            made.point_first,
            made.point_t,
            made.point_unit,
            made.point_bend,
            column,
            units,
        )
        inside = LinesStruct(
            self.first + points,
            crossings,
            made.chords if self.bends else 0,
            2 * crossings,
            made.cross_start,
            made.cross_end,
            made.cross_t,
            made.cross_chord,
            made.cross_slot,
            made.slot_first,
            made.slot_t,
            made.slot_unit,
            made.slot_bend,
            column,
            units,
        )
        return edges, inside

    def tensors(
        self,
    ) -> tuple[InterpolatedVertices, InterpolatedVertices, tuple[Breakpoints, Breakpoints] | None]:
        """The new vertices on edges, those inside faces, and the slope changes, if known."""
        made, points, crossings = self._refined, self.points, self.crossings
        sizes = [self._old_edges + 1, *[points] * 7, *[crossings] * 5]
        sizes += [made.chords + 1, *[2 * crossings] * 3]
        arrays = self._block.arrays(sizes, frozenset({6, 7, 12, 15, 16}))
        (first, edge, start, end, unit, index, t, bend, *more) = map(torch.from_numpy, arrays)
        begin, stop, chord, slot, at, slots, slot_unit, slot_t, slot_bend = more
        on_edges, inside = (
            InterpolatedVertices(start, end, t),
            InterpolatedVertices(begin, stop, at),
        )
        if not self.bends:
            return on_edges, inside, None
        on_lines = Breakpoints(slots, slot_t, slot_unit, slot_bend, chord, slot)
        return on_edges, inside, (Breakpoints(first, t, unit, bend, edge, index), on_lines)


def mesh_struct(mesh: Mesh) -> Any:
    """A mesh as the library takes it."""
    if isinstance(mesh, KernelMesh):
        return mesh.struct
    arrays = [mesh.uv, mesh.edges, mesh.offsets, mesh.corners]
    arrays += [mesh.edge_layer, mesh.edge_unit, mesh.vertex_layer]
    if not all(array.is_contiguous() for array in arrays):
        raise ValueError("the compiled kernel takes contiguous arrays only")
    sizes = (mesh.num_vertices, mesh.num_edges, mesh.num_faces, mesh.corners.shape[0])
    return MeshStruct(*sizes, mesh.uv.shape[1], *(array.data_ptr() for array in arrays))
