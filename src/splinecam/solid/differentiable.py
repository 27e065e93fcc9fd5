"""Vertices, areas and the volume of a surface as functions of the parameters, with gradients.

On each face the output is affine, and stays at its level while the face moves. Several faces meet
in a vertex, or faces and sides of the box, which do not move. Each face says how far the vertex
moves along its normal, and together they say where to. All else follows from the vertices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows, counts_of, offsets_of, places_of, take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import PARALLEL
from splinecam.network.capture.models import unwrap
from splinecam.network.program import Program
from splinecam.questions.moving_vertices import Names, Weighted, constants_of, filled, held
from splinecam.solid import measures
from splinecam.solid.geometry import SurfaceGeometry
from splinecam.solid.outputs import chosen_output


@dataclass(frozen=True, eq=False, repr=False)
class DifferentiableSurface:
    """The geometry of a surface with V vertices and F faces, as tensors with gradients.

    surface: the surface, in whose order vertices and faces are.
    """

    surface: SurfaceGeometry
    _parameters: Mapping[str, Tensor]
    _names: Names

    def at(self, parameters: Mapping[str, Tensor]) -> DifferentiableSurface:
        """The same as a function of other tensors with the same values, as ``torch.func`` needs.

        parameters: by the names of ``model.named_parameters()``.
        """
        filled(self.surface.network.program, self._names, parameters)  # names what does not fit
        return replace(self, _parameters=parameters)

    @cached_property
    def vertices(self) -> Tensor:
        """The vertices in the box's coordinates, (V, 3)."""
        surface, names = self.surface, self._names
        used = sorted({name for name, _ in names.values()})
        tensors = [self._parameters[name].to(surface.vertices) for name in used]

        def pulls(given: list[Tensor], weights: tuple[Tensor | None, ...]) -> Iterator[Weighted]:
            assert weights[0] is not None
            program = filled(surface.network.program, names, dict(zip(used, given, strict=True)))
            return _pulls(surface, program, weights[0])

        return held(pulls, (surface.vertices,), tensors)[0]

    @cached_property
    def areas(self) -> Tensor:
        """The areas of the faces, (F,)."""
        areas: Tensor = measures.crosses(self.vertices, self.surface.structure).norm(dim=1)
        return areas

    @cached_property
    def volume(self) -> Tensor:
        """The volume of the part of the box where the output is below the level."""
        return self.surface._volume_at(self.vertices)

    def __repr__(self) -> str:
        return f"DifferentiableSurface({len(self.surface):,} faces)"


def differentiable(surface: SurfaceGeometry) -> DifferentiableSurface:
    """The vertices, the areas of faces and the volume, with gradients for training.

    All tensors have the values of the surface, and gradients with respect to the parameters. Which
    faces there are is held fixed. After a step, compute the surface anew.

    >>> import splinecam as sc
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> surface = sc.surface(model, sc.Domain.cube(-1, 1), progress=False)
    >>> surface.differentiable().volume.backward()
    >>> model[0].weight.grad.shape
    torch.Size([8, 3])
    """
    captured = surface.network
    names = constants_of(captured.program, captured.model, captured.output)
    given = dict(unwrap(captured.model).named_parameters())
    filled(captured.program, names, given, same=True)
    return DifferentiableSurface(surface, given, names)


def _pulls(surface: SurfaceGeometry, program: Program, weight: Tensor) -> Iterator[Weighted]:
    """What has the derivatives of the vertices, weighted by (V, 3), as of ``held``.

    The output rises by some number at a corner of a face if its map there does. So it does at the
    centre, and by its slope along the way from there, which takes one derivative for each face.
    """
    structure, basis = surface.structure, surface.box.basis.to(program.device)
    share = (take(weight, structure.vertex) * _moves(surface)).sum(1)
    inside = surface._centres
    way = share[:, None] * (take(surface.vertices, structure.vertex) - inside[structure.face])
    sums = [
        x.new_zeros(len(surface), *x.shape[1:]).index_add_(0, structure.face, x)
        for x in (share, way)
    ]
    block = backend_of(program.device).traced_activations // (3 * max(program.widths))
    faces = (surface.face_region >= 0).nonzero()[:, 0]
    for rows in torch.split(faces, max(1, block)) if len(faces) else ():
        rise, way = (take(x, rows).to(program.device) for x in sums)
        x = surface.box.to_input(take(inside, rows)).to(program.device)
        slopes = program.derivatives(x, (way @ basis).view(1, *x.shape))[0]
        value, slope = (chosen_output(y, surface.output) for y in (as_rows(program(x)), slopes))
        yield [(value, rise), (slope, torch.ones_like(slope))]


def _moves(surface: SurfaceGeometry) -> Tensor:
    """How far a vertex moves as the output rises by 1 on the face at each corner, (C, 3)."""
    structure, (normals, offsets) = surface.structure, surface._sides
    own = surface.face_region[structure.face] >= 0
    on = (surface.vertices @ normals.T - offsets).abs() <= surface._slack
    vertex, side = on.nonzero().unbind(1)
    row = torch.cat([structure.vertex, vertex])
    normal = torch.cat([surface.normals[structure.face] * own[:, None], normals[side]])
    order = torch.sort(row, stable=True).indices
    counts = counts_of(row, len(surface.vertices))
    place = torch.empty_like(row)
    place[order] = places_of(counts, row[order], offsets_of(counts))
    rows = normal.new_zeros(len(counts), int(counts.max()) if len(counts) else 1, 3)
    rows[row, place] = normal
    found: Tensor = torch.linalg.pinv(rows, rtol=PARALLEL).mT[row, place][: len(own)]
    size: Tensor = surface.gradients.norm(dim=1)[structure.face]
    return found / torch.where(own & (size > 0), -size, torch.inf)[:, None]
