"""The steps of a CUDA source, together with the structure of numbers and arrays that they take."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from splinecam.geometry.interpolation import InterpolatedVertices
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels.nvrtc import Launch
from splinecam.kernels.structures import structures

__all__ = ["Steps", "steps_on_mesh"]


class Steps:
    """The steps of a source; ``struct`` is the structure ``run_t`` that all of them take."""

    def __init__(
        self, launch: Launch, source: str, arrays: dict[str, Tensor], **numbers: float
    ) -> None:
        self._launch, self._source = launch, source
        self.device = next(iter(arrays.values())).device
        self.struct: Any = structures(source)["run_t"](**numbers)
        self._arrays: dict[str, Tensor] = {}
        for name, array in arrays.items():
            self.set(name, array.contiguous())

    def __getitem__(self, name: str) -> Tensor:
        """The array that a field of the structure points to."""
        array = self._arrays[name]
        return array.view(torch.float64) if name in self.struct.real else array

    def set(self, name: str, array: Tensor) -> None:
        """Let a field of the structure point to an array."""
        self._arrays[name] = array
        setattr(self.struct, name, array.data_ptr())

    def swap(self, one: str, other: str) -> None:
        """Exchange the arrays of two fields."""
        first, second = self._arrays[one], self._arrays[other]
        self.set(one, second)
        self.set(other, first)

    def allocate(self, sizes: dict[str, int], *, fill: int | None = None) -> None:
        """Allocate arrays with so many entries of eight bytes in one block."""
        block = torch.empty(sum(sizes.values()), dtype=torch.int64, device=self.device)
        if fill is not None:
            block.fill_(fill)
        for name, array in zip(sizes, torch.split(block, list(sizes.values())), strict=True):
            self.set(name, array)

    def run(self, count: int, *names: str) -> None:
        """Run steps for items 0, ..., count - 1 each."""
        if count:
            for name in names:
                self._launch(self._source, name, self.struct, count)

    def cumsum(self, name: str, rows: int = 1) -> Tensor:
        """Replace the rows of an array by their running sums, and return them."""
        array = self._arrays[name].view(rows, -1)
        return torch.cumsum(array, 1, out=array)

    def totals(self, *last: Tensor) -> list[int]:
        """Whether a step gave up, what else is in ``status``, and further numbers, in one copy."""
        return torch.cat([self._arrays["status"], *last]).tolist()

    def allocate_mesh(self, vertices: int, edges: int, faces: int, corners: int) -> None:
        """Allocate the arrays of the mesh that the steps make."""
        self.allocate(
            {
                "made_uv": vertices * self.struct.width,
                "made_edge": 2 * edges,
                "made_offset": faces + 1,
                "made_corner": corners,
                "made_edge_layer": edges,
                "made_edge_unit": edges,
                "made_vertex_layer": vertices,
            }
        )

    def mesh(self) -> Mesh:
        """The mesh that the steps have made."""
        names = ("offset", "corner", "edge_layer", "edge_unit", "vertex_layer")
        uv, edges = self["made_uv"], self["made_edge"]
        others = (self[f"made_{name}"] for name in names)
        return Mesh(uv.view(-1, self.struct.width), edges.view(-1, 2), *others)

    def interpolated(self, name: str, count: int) -> InterpolatedVertices:
        """The first ``count`` new vertices on edges ("point") or inside faces ("cross")."""
        parts = (self[f"{name}_{part}"][:count] for part in ("start", "end", "t"))
        return InterpolatedVertices(*parts)


def steps_on_mesh(
    launch: Launch, source: str, mesh: Mesh, arrays: dict[str, Tensor], **numbers: float
) -> Steps:
    """The steps of a source that work on a mesh."""
    on_mesh = {
        "uv": mesh.uv,
        "edge": mesh.edges,
        "offset": mesh.offsets,
        "corner": mesh.corners,
        "edge_layer": mesh.edge_layer,
        "edge_unit": mesh.edge_unit,
        "vertex_layer": mesh.vertex_layer,
        "status": torch.zeros(2, dtype=torch.int64, device=mesh.uv.device),
    }
    sizes = {
        "vertices": mesh.num_vertices,
        "edges": mesh.num_edges,
        "faces": mesh.num_faces,
        "corners": mesh.corners.shape[0],
        "width": mesh.uv.shape[1],
    }
    return Steps(launch, source, on_mesh | arrays, **sizes, **numbers)
