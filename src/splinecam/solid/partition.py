"""The whole partition of a body of three dimensions, for small networks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows, take
from splinecam._util.graphs import components
from splinecam._util.options import as_float64
from splinecam._util.progress import progress_bar, tell
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.errors import LimitError
from splinecam.geometry.solids import Solid
from splinecam.partitions.captured import Captured
from splinecam.questions.partition_data import counted
from splinecam.questions.validate import Report
from splinecam.solid.complex import AUXILIARY, Complex
from splinecam.solid.fits import affine_maps, means
from splinecam.solid.front import Front
from splinecam.solid.measures import sums
from splinecam.solid.partition_checks import validate


@dataclass(frozen=True, eq=False, repr=False)
class SolidPartition:
    """The R linear regions of a network in a body, as C convex cells with F faces, V vertices.

    Coordinates are those of the body, in which volumes are the same as in the input space.

    box: the body; network: the captured model; complex: cells, faces and vertices; region: (C,) of
    each cell, as regions of a maximum may have several; cell_volumes: (C,); gradients: (R, n_out,
    3) and bias: (R, n_out) the affine maps, ``gradients @ uvw + bias``; widest: (R,) a cell of each
    region; values: (V, n_out) the outputs at the vertices; cells_by_layer: by the name of each
    layer, the regions of the layers up to this one; thin: (R,) regions that rounding alone may have
    made; unresolved: places that float64 could not settle, these among them; rounding: of values.
    """

    box: Solid
    network: Captured
    complex: Complex
    region: Tensor
    cell_volumes: Tensor
    gradients: Tensor
    bias: Tensor
    widest: Tensor
    values: Tensor
    cells_by_layer: dict[str, int]
    thin: Tensor
    unresolved: tuple[Any, ...]
    rounding: float

    def __len__(self) -> int:
        return int(self.bias.shape[0])

    def __repr__(self) -> str:
        size = f"{self.complex.num_faces:,} faces, {len(self.vertices):,} vertices"
        return f"SolidPartition({counted(len(self), 'region')}, {size}, volume {self.volume:.4g})"

    @property
    def vertices(self) -> Tensor:
        """The vertices, (V, 3)."""
        return self.complex.uvw

    @property
    def face_offsets(self) -> Tensor:
        """Where the corners of each face begin in ``face_vertices``, (F + 1,)."""
        return self.complex.arrays.face_offsets

    @cached_property
    def face_vertices(self) -> Tensor:
        """The corners of all faces, counter-clockwise seen from their outer side."""
        return self.complex.corner_vertices()

    @property
    def face_layers(self) -> Tensor:
        """The layer that made each face, -1 on a side of the body, -2 inside of a region, (F,)."""
        return self.complex.arrays.face_layer

    @property
    def face_units(self) -> Tensor:
        """The unit that made each face, or the number of the side of the body, (F,)."""
        return self.complex.arrays.face_unit

    @cached_property
    def face_regions(self) -> Tensor:
        """The regions on the inner and on the outer side of each face, -1 for none, (F, 2)."""
        beside = self.complex.beside()
        inside = take(self.region, beside.clamp(min=0).view(-1)).view(-1, 2)
        return torch.where(beside >= 0, inside, -1)

    @property
    def neighbours(self) -> Tensor:
        """The pairs of regions that share a face, the lower number first, (P, 2)."""
        pairs = self.face_regions
        inner = (pairs >= 0).all(1) & (pairs[:, 0] != pairs[:, 1])
        found: Tensor = torch.unique(pairs[inner].sort(1).values, dim=0)
        return found

    @cached_property
    def volumes(self) -> Tensor:
        """The volume of each region, (R,)."""
        return sums(self.cell_volumes, self.region, len(self))

    @property
    def volume(self) -> float:
        """The volume of all regions."""
        return float(self.cell_volumes.sum())

    @property
    def faces_by_layer(self) -> dict[str, int]:
        """How many faces each layer made, by its name; ``""`` stands for the sides of the body."""
        layers, counts = torch.unique(self.face_layers, return_counts=True)
        names = {-1: "", **dict(enumerate(self.cells_by_layer))}
        pairs = zip(layers.tolist(), counts.tolist(), strict=True)
        return {names[layer]: count for layer, count in pairs if layer != AUXILIARY}

    def inputs(self, points: Any = None) -> Tensor:
        """Points of the body as inputs (N, ...) of the model.

        points: (N, 3), by default the vertices.
        """
        return self.box.to_input(self.vertices if points is None else as_float64(points, "points"))

    def report(self) -> dict[str, Any]:
        """The numbers of regions, cells, faces, edges and vertices, and by layer."""
        return {
            "regions": len(self),
            "cells": self.complex.num_cells,
            "faces": self.complex.num_faces,
            "edges": int(self.complex.arrays.edges.shape[0]),
            "vertices": self.complex.num_vertices,
            "volume": self.volume,
            "smallest region": float(self.volumes.min()),
            "cells by layer": self.cells_by_layer,
            "faces by layer": self.faces_by_layer,
            "unresolved": len(self.unresolved),
        }

    def validate(self, *, samples: int = 2000, seed: int = 0) -> Report:
        """Check the cells by themselves, and the maps of some regions against the model.

        Returns a report of the checks, or raises a ``ValidationError`` with those that failed. The
        cells must be closed, convex, and fill the body; regions must differ in a unit's piece. At
        vertices and random points the outputs must be those of the model, and the slopes, too.

        samples: compare at most so many cells with the model. seed: determines random choices.
        """
        return validate(self, samples=samples, seed=seed)


def solid_partition(
    network: Captured,
    solid: Solid,
    *,
    memory: int | None = None,
    max_regions: int | None = None,
    progress: bool = False,
) -> SolidPartition:
    """Divide a body into the linear regions of a network, without leaving anything out.

    memory, max_regions: limits, which are looked at after each layer.
    """
    program, middle, solid_here = network.program.to("cpu"), solid.middle, solid.centred
    front, by_layer = Front.of(program, solid_here), dict[str, int]()
    with progress_bar(len(program.layers), "layer", progress) as bar:
        for k, layer in enumerate(program.layers):
            front = front.carried()
            front.require_room(memory, "The partition")
            count = int(_regions(front.complex).max()) + 1
            by_layer[layer.name] = count
            if max_regions is not None and count > max_regions:
                raise LimitError(
                    f"The partition exceeds max_regions={max_regions:,}: after layer {k + 1} of "
                    f"{len(program.layers)} it has {count:,} regions. Raise max_regions, choose a "
                    "smaller body, or ask sc.surface for a surface alone."
                )
            tell(bar, f"layer {k + 1} of {len(program.layers)}, {count:,} regions", 0, 1)
    whole, region = front.complex, _regions(front.complex)
    values = as_rows(front.live[program.output_name])
    rounding = float(front.bounds[program.output_name].error.max())
    gradients, bias, _, widest = affine_maps(
        (whole.uvw, values, rounding),
        whole.cell_corners(),
        region,
        lambda uvw: front.slopes(solid_here, uvw),
    )
    volume, area, off = whole.sizes()
    # Vertices may be off by as much, so that nobody knows whether thinner regions are there.
    reach = SAFETY * EPS * float(whole.uvw.abs().max())
    thin = sums(volume, region, len(bias)) <= sums(reach * area + SAFETY * off, region, len(bias))
    uncut = [*front.uncut, means(whole.uvw, *whole.cell_corners(), widest[thin])]
    places = [(place + middle).tolist() for some in uncut for place in some]
    return SolidPartition(
        box=solid,
        network=network,
        complex=replace(whole, uvw=whole.uvw + middle),
        region=region,
        cell_volumes=volume,
        gradients=gradients,
        bias=bias - gradients @ middle,
        widest=widest,
        values=values,
        cells_by_layer=by_layer,
        thin=thin,
        unresolved=tuple(places),
        rounding=rounding,
    )


def _regions(whole: Complex) -> Tensor:
    """The region of each cell, (C,): cells on both sides of an auxiliary face have the same."""
    beside = whole.beside()
    inner = (whole.arrays.face_layer == AUXILIARY) & (beside >= 0).all(1)
    return components(whole.num_cells, *beside[inner].unbind(1))
