"""The result of a refinement: the refined mesh, and how its new vertices lie between older ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from splinecam.arrangement.edge_crossings import Ambiguities
from splinecam.geometry.interpolation import Breakpoints, InterpolatedVertices
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels import History

__all__ = ["NewVertices", "Refinement", "unrefined"]


@dataclass(frozen=True)
class NewVertices:
    """The vertices that a refinement adds: first those on edges, then those inside faces.

    breakpoints: of the divided edges and of the chords, if they are known.
    """

    on_edges: InterpolatedVertices
    inside: InterpolatedVertices
    breakpoints: tuple[Breakpoints, Breakpoints] | None = None


@dataclass(frozen=True)
class Refinement:
    """A refined mesh, whichever cutter made it.

    added: its new vertices; those of the compiled kernel stay in its memory until they are asked
    for. early: vertices made before those, level by level. kept: (V,) which of all these vertices
    the mesh still has; by default all.
    """

    mesh: Mesh
    added: NewVertices | History
    ambiguities: list[Ambiguities]
    early: tuple[InterpolatedVertices, ...] = ()
    kept: Tensor | None = None

    @property
    def history(self) -> History | None:
        """The new vertices in the memory of the compiled kernel, if that made them."""
        return self.added if isinstance(self.added, History) else None

    @cached_property
    def new(self) -> NewVertices:
        added = self.added
        return NewVertices(*added.tensors()) if isinstance(added, History) else added

    @property
    def on_edges(self) -> InterpolatedVertices:
        return self.new.on_edges

    @property
    def inside(self) -> InterpolatedVertices:
        return self.new.inside

    @property
    def breakpoints(self) -> tuple[Breakpoints, Breakpoints] | None:
        return self.new.breakpoints

    def carry(self, values: Tensor) -> Tensor:
        """Values at all vertices of the refined mesh, from those at the older ones."""
        for interpolated in (*self.early, self.on_edges, self.inside):
            if interpolated.count:
                values = torch.cat([values, interpolated.interpolate(values)])
        return values if self.kept is None else values[self.kept]


def unrefined(mesh: Mesh, ambiguities: list[Ambiguities]) -> Refinement:
    """The refinement that leaves a mesh as it is."""
    none = mesh.edges[:0, 0]
    no_vertices = InterpolatedVertices(none, none, mesh.uv[:0, 0])
    return Refinement(mesh, NewVertices(no_vertices, no_vertices), ambiguities)
