"""The surface on which an output of a network has a value, in a box of three dimensions."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from splinecam._util.arrays import as_rows
from splinecam._util.bvh import BoxTree
from splinecam._util.options import as_float64
from splinecam._util.text import optional
from splinecam._util.tolerances import PLANAR
from splinecam.errors import DomainError, SplineCamError
from splinecam.files.polygons import WRITERS, Polygons, write
from splinecam.geometry.domain import Domain
from splinecam.network.capture.models import dtype_of
from splinecam.partitions.captured import Captured
from splinecam.plot.solids import Facets, SolidLook, plot_facets, solid_card
from splinecam.questions.sampling import choose, sample_count, uniform
from splinecam.solid import measures
from splinecam.solid.caps import caps_of, fill
from splinecam.solid.data import SurfaceData
from splinecam.solid.outputs import Output, chosen_output
from splinecam.solid.sections import Section, cut
from splinecam.solid.structure import Structure, triangles_of
from splinecam.solid.validate import SurfaceReport, validate


class SurfacePoints(NamedTuple):
    """Points of a surface: in the box's coordinates (n, 3), as inputs (n, ...), and their faces."""

    points: Tensor
    inputs: Tensor
    faces: Tensor


class Surface:
    """The points of a box at which an output equals a level, as V vertices and F flat polygons.

    Each face is the surface in one linear region. Faces share vertices and edges, so that the
    surface is closed, except where it meets a side of the box. ``capped()`` closes it there.
    Coordinates are those of the box; lengths, areas and volumes are those of the input space.

    box: the box; level, output: the value, and the output that has it; a pair of outputs stands for
    their difference. vertices: (V, 3); face_offsets: (F + 1,) and face_vertices: (C,) the corners
    of the faces, counter-clockwise seen from the side where the output is larger; edge_layer: (C,)
    the layer of the edge after each corner, -1 on a side of the box, -2 for an auxiliary edge;
    gradients: (F, 3) and bias: (F,) of the output on each face, ``gradients @ uvw + bias``;
    face_region: (F,) numbers of regions, -1 for a side of the box; unresolved: places that float64
    could not settle; network: the captured model.
    """

    def __init__(
        self,
        data: SurfaceData,
        box: Any,
        network: Captured,
        *,
        level: float = 0.0,
        output: Output = 0,
    ) -> None:
        self.box, self.network, self.level, self.output = box, network, float(level), output
        self.vertices, self.face_offsets, self.face_vertices = _on_host(
            data.vertices, data.face_offsets, data.face_vertices
        )
        self.gradients, self.bias = _on_host(data.gradients, data.bias)
        self.edge_layer, self.face_region = _on_host(data.edge_layer, data.face_region)
        self.unresolved, self._data = tuple(data.unresolved), data
        self.structure = Structure(self.face_offsets, self.face_vertices)

    def __len__(self) -> int:
        return int(self.face_offsets.shape[0]) - 1

    def __repr__(self) -> str:
        parts = self.components
        state = "closed" if self.closed else f"{len(self.open_edges):,} open edges"
        return (
            f"Surface({len(self):,} faces, {self.vertices.shape[0]:,} vertices, "
            f"{parts:,} component{'s' * (parts != 1)}, {state}, level {self.level:g})"
        )

    # -- coordinates ----------------------------------------------------------------------------

    @cached_property
    def _metric(self) -> Tensor:
        """The matrix (3, 3) that takes uvw to coordinates with the lengths of the input space."""
        basis = self.box.basis.cpu().to(torch.float64)
        gram, eye = basis @ basis.T, torch.eye(3, dtype=torch.float64)
        return eye if float((gram - eye).abs().max()) <= PLANAR else torch.linalg.cholesky(gram)

    @cached_property
    def points(self) -> Tensor:
        """The vertices in coordinates with the lengths of the input space, (V, 3).

        They are the vertices themselves if the box's axes are orthonormal, as by default.
        """
        return self._to_points(self.vertices)

    def _to_points(self, uvw: Tensor) -> Tensor:
        return uvw if torch.equal(self._metric, torch.eye(3).to(uvw)) else uvw @ self._metric

    def _to_box(self, points: Tensor) -> Tensor:
        same = torch.equal(self._metric, torch.eye(3).to(points))
        return points if same else torch.linalg.solve(self._metric, points, left=False)

    @cached_property
    def _sides(self) -> tuple[Tensor, Tensor]:
        """Normals (P, 3), outwards and of length 1, and offsets (P,) of the box's sides."""
        normals, offsets = (each.cpu().to(torch.float64) for each in self.box.planes)
        normals = torch.linalg.solve(self._metric, normals.T).T
        size = normals.norm(dim=1, keepdim=True)
        normals, offsets = normals / size, offsets / size[:, 0]
        outward = (self._corners.mean(0) @ normals.T < offsets).to(normals) * 2 - 1
        return normals * outward[:, None], offsets * outward

    @cached_property
    def _corners(self) -> Tensor:
        return self._to_points(self.box.corners.cpu().to(torch.float64))

    def inputs(self, points: Any = None) -> Tensor:
        """Points (N, 3) of the box as inputs (N, ...) of the model, by default the vertices.

        They have the floating-point type of the model.
        """
        uvw = self.vertices if points is None else as_float64(points, "points")
        x: Tensor = self.box.to_input(uvw)
        model = getattr(self.network, "model", None)
        return x if model is None else x.to(dtype_of(model))

    def values(self, points: Any) -> Tensor:
        """The output at points (N, 3) of the box, computed by the network in float64, (N,)."""
        x = self.box.to_input(as_float64(points, "points"))
        with torch.inference_mode(False), torch.no_grad():
            y = as_rows(self.network(x)).cpu()
        return chosen_output(y, self.output)

    # -- structure ------------------------------------------------------------------------------

    @property
    def components(self) -> int:
        """The number of connected components."""
        return self.structure.components

    @property
    def euler(self) -> int:
        """Vertices minus edges plus faces; where parts touch, each part counts for itself."""
        return self.structure.euler

    @property
    def genus(self) -> int:
        """The number of handles; openings at the sides of the box count as closed by discs."""
        return self.structure.genus

    @property
    def closed(self) -> bool:
        """Whether each edge has a face on both sides."""
        return not self.structure.border.numel()

    @property
    def edges(self) -> Tensor:
        """The ends of the edges, (E, 2)."""
        first = self.structure.first
        return torch.stack([self.face_vertices[first], self.structure.end[first]], 1)

    @property
    def edge_layers(self) -> Tensor:
        """The layer of each edge, -1 on a side of the box, -2 for an auxiliary edge, (E,)."""
        return self.edge_layer[self.structure.first]

    @property
    def open_edges(self) -> Tensor:
        """The ends of the edges with one face only, which lie on sides of the box, (B, 2)."""
        border = self.structure.border
        return torch.stack([self.face_vertices[border], self.structure.end[border]], 1)

    def triangles(self) -> Tensor:
        """Triangles between the vertices that fill the faces, in their orientation, (T, 3)."""
        return self._triangles[0]

    @cached_property
    def _triangles(self) -> tuple[Tensor, Tensor]:
        return triangles_of(self.structure, self.points)

    # -- measures -------------------------------------------------------------------------------

    @cached_property
    def normals(self) -> Tensor:
        """The unit normals of the faces, towards larger outputs, (F, 3)."""
        slope = torch.linalg.solve(self._metric, self.gradients.T).T
        size = slope.norm(dim=1, keepdim=True)
        return slope / torch.where(size > 0, size, 1)

    @cached_property
    def areas(self) -> Tensor:
        """The areas of the faces, (F,)."""
        return measures.crosses(self.points, self.structure).norm(dim=1)

    @property
    def area(self) -> float:
        """The area of the surface."""
        return float(self.areas.sum())

    @property
    def centroid(self) -> Tensor:
        """The mean of all points of the surface, (3,), in the box's coordinates."""
        middle = self.vertices[self.triangles()].mean(1)
        corners = self.points[self.triangles()]
        sides = corners[:, 1:] - corners[:, :1]
        weight = torch.linalg.cross(sides[:, 0], sides[:, 1]).norm(dim=1)
        return weight @ middle / weight.sum()

    @cached_property
    def curvature(self) -> Tensor:
        """The angle between the faces at each edge, in radians, (E,); NaN at open edges.

        It is above 0 where the part of the box with smaller outputs is convex.
        """
        return measures.turns(self.points, self.structure, self.normals)

    @cached_property
    def component_areas(self) -> Tensor:
        """The area of each component, (K,)."""
        return measures.sums(self.areas, self.structure.component, self.components)

    @cached_property
    def component_volumes(self) -> Tensor:
        """The volume that each component encloses, (K,), NaN where it is open.

        It is below 0 where the smaller outputs are outside.
        """
        flux = measures.fluxes(self.points, self.structure, self._corners.mean(0))
        found = measures.sums(flux, self.structure.component, self.components)
        opened = self.structure.component[self.structure.face[self.structure.border]]
        found[opened] = torch.nan
        return found

    @cached_property
    def volume(self) -> float:
        """The volume of the part of the box where the output is below the level."""
        middle = self._corners.mean(0)
        total = float(measures.fluxes(self.points, self.structure, middle).sum())
        if self._is_capped:
            return total
        self._require_sides("The volume")
        heights = self._sides[1] - self._sides[0] @ middle
        return total + float(heights @ self._caps.areas) / 3

    @property
    def _is_capped(self) -> bool:
        return bool((self.face_region < 0).any())

    @cached_property
    def _caps(self) -> measures.Caps:
        def below(points: Tensor) -> Tensor:
            return self.values(self._to_box(points)) < self.level

        return caps_of(self.structure, self.points, self._corners, self._sides, below)

    def _require_sides(self, what: str) -> None:
        """Raise an error if the surface has a border inside of the box."""
        ends = torch.stack([self._caps.end, self._caps.start], 1)
        size = torch.tensor([self.vertices.shape[0] + self._corners.shape[0], 1])
        lost = int((~torch.isin(self.open_edges @ size, ends @ size)).sum())
        if lost:
            raise SplineCamError(
                f"{what} needs a surface that ends on the sides of the box only, and {lost:,} open "
                "edges lie inside. See surface.unresolved."
            )

    # -- questions ------------------------------------------------------------------------------

    def capped(self) -> Surface:
        """The surface of the part of the box where the output is below the level, which is closed.

        The sides of the box are filled with triangles; their ``face_region`` is -1, and their
        ``gradients`` are the normals of the sides.
        """
        if self._is_capped:
            return self
        self._require_sides("capped()")
        every = torch.cat([self.points, self._corners])
        triangles, side = fill(self._caps, every)
        used = torch.unique(triangles[triangles >= self.vertices.shape[0]])
        place = torch.arange(every.shape[0])
        place[used] = self.vertices.shape[0] + torch.arange(used.shape[0])
        corners = torch.cat([self.vertices, self.box.corners.cpu().to(self.vertices)])
        normal = (self._sides[0] @ self._metric.T)[side]
        anchor = corners[triangles[:, 0]]
        count, steps = triangles.shape[0], torch.arange(1, triangles.shape[0] + 1)
        old = self._data
        data = SurfaceData(
            vertices=torch.cat([self.vertices, corners[used]]),
            face_offsets=torch.cat([self.face_offsets, self.face_offsets[-1] + 3 * steps]),
            face_vertices=torch.cat([self.face_vertices, place[triangles].view(-1)]),
            edge_layer=torch.cat([self.edge_layer, self.edge_layer.new_full((3 * count,), -2)]),
            gradients=torch.cat([self.gradients, normal]),
            bias=torch.cat([self.bias, self.level - (normal * anchor).sum(1)]),
            face_region=torch.cat([self.face_region, self.face_region.new_full((count,), -1)]),
            report=old.report,
            unresolved=old.unresolved,
        )
        return Surface(data, self.box, self.network, level=self.level, output=self.output)

    def distance(self, points: Any) -> Tensor:
        """The distance of points (N, 3) of the box from the surface, in the input space, (N,).

        Points of another surface show how far two surfaces are apart: ``other.sample(n).points``.
        """
        at = self._to_points(as_float64(points, "points"))
        if not len(self):
            return torch.full_like(at[:, 0], torch.inf)
        return measures.distances(at, self.points[self.triangles()], self._tree)[0]

    @cached_property
    def _tree(self) -> BoxTree:
        corners = self.points[self.triangles()]
        return BoxTree(corners.amin(1), corners.amax(1))

    def section(self, plane: Domain) -> Section:
        """The curves in which the surface meets a plane: the level set of the output on it.

        plane: a polygon in the space of the box, such as ``sc.Domain.polygon(corners)``. Curves are
        in its plane coordinates, and end at its border.
        """
        basis = self.box.basis.cpu().to(torch.float64)
        axes = torch.linalg.solve(self._metric, basis)  # orthonormal directions of the box
        origin = plane.origin.cpu() - self.box.origin.cpu().to(torch.float64).reshape(-1)
        inside, place = plane.basis.cpu() @ axes.T, axes @ origin
        size = float((self._corners - self._corners[0]).norm(dim=1).max())
        off = float((origin - place @ axes).norm()) / size
        if max(off, float((inside @ inside.T - torch.eye(2).to(inside)).abs().max())) > PLANAR:
            raise DomainError(
                "The plane does not lie in the three dimensions of the box. Give it three corners "
                "there, as in sc.Domain.polygon(surface.inputs(corners))."
            )
        off_plane = self.points - place
        height = off_plane @ torch.linalg.cross(inside[0], inside[1])
        return cut(self.structure, off_plane @ inside.T, height, self.normals @ inside.T, plane)

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> SurfacePoints:
        """Random points of the surface, uniform by area, with their inputs and faces.

        n: the number of points. generator: the source of randomness, by default torch's own.
        """
        chance = uniform((sample_count(n), 3), generator, self.points.device)
        if n and not self.area > 0:
            raise SplineCamError("There is nothing to sample from: the surface has no area.")
        triangles, face = self._triangles
        corners = self.points[triangles]
        sides = corners[:, 1:] - corners[:, :1]
        which = choose(torch.linalg.cross(sides[:, 0], sides[:, 1]).norm(dim=1), chance[:, 0])
        root = chance[:, 1].sqrt()
        share = torch.stack([1 - root, root * (1 - chance[:, 2]), root * chance[:, 2]], 1)
        found = (share[..., None] * self.vertices[triangles[which]]).sum(1)
        return SurfacePoints(found, self.inputs(found), face[which])

    def report(self) -> dict[str, Any]:
        """The sizes of the surface, and the numbers of the proof that no face is missing."""
        own = {
            "faces": len(self),
            "vertices": int(self.vertices.shape[0]),
            "edges": int(self.structure.first.shape[0]),
            "open edges": int(self.structure.border.shape[0]),
            "components": self.components,
            "euler": self.euler,
            "genus": self.genus,
            "area": self.area,
            "volume": self.volume,
            "unresolved": len(self.unresolved),
        }
        return {**own, **self._data.report}

    def validate(
        self, model: Any = None, *, samples: int = 2000, segments: int = 1000, seed: int = 0
    ) -> SurfaceReport:
        """Check the surface by itself, and against the model.

        Returns a report of the checks, or raises a ``ValidationError`` with those that failed. The
        surface must be closed inside of the box, and its faces oriented. The output must have the
        level at the vertices and centres, and the gradients be those of the model. Each face must
        lie in a region of its own. Along random segments, the surface must be met exactly where
        the output crosses the level.

        model: the model or captured network, by default the one that the surface was computed of.
        samples: compare at most so many faces and vertices with the model. segments: how many
        segments. seed: determines the random choices.
        """
        return validate(self, model, samples=samples, segments=segments, seed=seed)

    # -- other programs -------------------------------------------------------------------------

    @property
    def face_layers(self) -> Tensor:
        """The last layer that bounds each face, -1 where only sides of the box do, (F,)."""
        none = torch.full((len(self),), -1)
        return none.scatter_reduce_(0, self.structure.face, self.edge_layer.long(), "amax")

    def _facets(self) -> Facets:
        faces, first = self.structure, self.structure.first
        place = torch.arange(int(faces.counts.max()) if len(self) else 1)
        rows = torch.minimum(place, faces.counts[:, None] - 1) + self.face_offsets[:-1, None]
        back = torch.where(faces.twin[first] < 0, first, faces.twin[first])
        program = getattr(self.network, "program", None)
        names = [str(k) for k in range(1 + max(self.edge_layer.tolist(), default=0))]
        low, high = self._corners.amin(0), self._corners.amax(0)
        return Facets(
            points=self.points.numpy(),
            corners=self.face_vertices[rows].numpy(),
            normals=self.normals.numpy(),
            layer=self.face_layers.numpy(),
            ends=self.edges.numpy(),
            beside=faces.face[torch.stack([first, back], 1)].numpy(),
            edge_layer=self.edge_layers.numpy(),
            limits=torch.stack([low, high], 1).numpy(),
            layers=names if program is None else [layer.name for layer in program.layers],
        )

    def _polygons(self) -> Polygons:
        normals = self.normals.numpy()
        return Polygons(
            points=self.points.numpy(),
            offsets=self.face_offsets.numpy(),
            corners=self.face_vertices.numpy(),
            point_data={},
            cell_data={
                "region": self.face_region.numpy(),
                "layer": self.face_layers.numpy(),
                **{f"normal_{axis}": normals[:, k].copy() for k, axis in enumerate("xyz")},
            },
            triangles=self.triangles().numpy(),
        )

    def export(self, path: str | os.PathLike[str], *, progress: bool = True) -> None:
        """Write the surface to a file for other programs, in the format that its suffix names.

        ``.ply`` has polygons with float64 coordinates, their regions, layers and normals; ``.vtp``
        and ``.vtk`` have the same for ParaView and PyVista; ``.obj`` has polygons as text. ``.stl``
        and ``.glb`` have triangles with float32 coordinates. Export ``surface.capped()`` for a
        closed solid.

        path: the file, which appears when it is complete. progress: show a progress bar in
        interactive use.
        """
        suffix = PurePath(path).suffix.lower()
        if suffix not in WRITERS:
            name = PurePath(path).name
            raise ValueError(f"{name!r} has none of the suffixes {', '.join(WRITERS)}")
        write(self._polygons(), path, suffix, progress)

    def to_trimesh(self) -> Any:
        """The triangles as a ``trimesh.Trimesh``, with the same vertices."""
        trimesh = optional("trimesh", "to_trimesh", "mesh")
        return trimesh.Trimesh(self.points.numpy(), self.triangles().numpy(), process=False)

    def to_pyvista(self) -> Any:
        """The polygons as a ``pyvista.PolyData``, with the numbers of each face."""
        pyvista = optional("pyvista", "to_pyvista", "mesh")
        found = self._polygons()
        made = pyvista.PolyData(found.points, found.sized_corners())
        for name, column in found.cell_data.items():
            made.cell_data[name] = column
        return made

    def plot(self, **options: Any) -> Any:
        """Draw the surface in space, as each pixel sees it, and return the axes.

        color: ``"normal"``, ``"layer"`` (the last layer that bounds a face), ``"region"``, one
        colour for all faces, or a number for each face (F,), such as distances to another surface.
        cmap, limits: the colour map of layers and numbers. edges: draw edges, thinner for later
        layers, by default of up to 30,000 faces. view: the eye's elevation and azimuth in degrees.
        up: the axis that points up, ``"x"``, ``"y"`` or ``"z"``. axes: draw the axes of the box.
        ax: axes to draw on, made with ``projection="3d"``. alpha: the opacity of faces. colorbar:
        explain the colours of layers and numbers.
        """
        return plot_facets(self._facets(), SolidLook(**options))

    def _repr_html_(self) -> str:
        shown = ("faces", "vertices", "open edges", "components", "genus", "area", "unresolved")
        report = self.report()
        rows = {"output": str(self.output), "level": self.level}
        rows |= {name: report[name] for name in shown if report[name] or name != "unresolved"}
        return solid_card("Surface", self._facets(), rows)


def _on_host(*arrays: Any) -> tuple[Tensor, ...]:
    """Arrays or tensors of any device as tensors in memory."""
    return tuple(torch.as_tensor(each).detach().cpu() for each in arrays)
