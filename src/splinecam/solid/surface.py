"""The surface on which an output of a network has a value, in a box of three dimensions."""

from __future__ import annotations

import math
import os
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from splinecam._util.text import optional
from splinecam._util.tolerances import PLANAR
from splinecam.errors import DomainError, SplineCamError
from splinecam.files.polygons import WRITERS, Polygons, write
from splinecam.geometry.domain import Domain
from splinecam.plot.solids import Facets, SolidLook, plot_facets, solid_card
from splinecam.questions.sampling import choose, sample_count, uniform
from splinecam.solid import differentiable as _differentiable
from splinecam.solid.caps import fill
from splinecam.solid.data import SurfaceData
from splinecam.solid.geometry import SurfaceGeometry, on_host
from splinecam.solid.sections import Section, cut
from splinecam.solid.validate import SurfaceReport, validate

if TYPE_CHECKING:
    from splinecam.viewer.viewer import Viewer


class SurfacePoints(NamedTuple):
    """Points of a surface: in the box's coordinates (n, 3), as inputs (n, ...), and their faces."""

    points: Tensor
    inputs: Tensor
    faces: Tensor


class Surface(SurfaceGeometry):
    """The points of a box at which an output equals a level, as V vertices and F flat polygons.

    Each face is the surface in one linear region. Faces share vertices and edges, so that the
    surface is closed, except where it meets a side of the box. ``capped()`` closes it there.
    Coordinates are those of the box, in which lengths are the same as in the input space.

    box: the box; level, output: the value, and the output that has it; a pair of outputs stands for
    their difference. vertices: (V, 3); face_offsets: (F + 1,) and face_vertices: (C,) the corners
    of the faces, counter-clockwise seen from the side where the output is larger; edge_layer: (C,)
    the layer of the edge after each corner, -1 on a side of the box, -2 for an auxiliary edge;
    gradients: (F, 3) and bias: (F,) of the output on each face, ``gradients @ uvw + bias``;
    face_region: (F,) numbers of regions, -1 for a side of the box; unresolved: places that float64
    could not settle; network: the captured model.
    """

    differentiable = _differentiable.differentiable

    def capped(self) -> Surface:
        """The surface of the part of the box where the output is below the level, which is closed.

        The sides of the box are filled with triangles; their ``face_region`` is -1, and their
        ``gradients`` are the normals of the sides.
        """
        if self._is_capped or not self._caps.side.numel():
            return self
        self._require_sides("capped()")
        every = torch.cat([self.vertices, self._corners])
        triangles, side = fill(self._caps, every)
        used = torch.unique(triangles[triangles >= self.vertices.shape[0]])
        place = torch.arange(every.shape[0])
        place[used] = self.vertices.shape[0] + torch.arange(used.shape[0])
        normal, anchor = self._sides[0][side], every[triangles[:, 0]]
        count, steps = triangles.shape[0], torch.arange(1, triangles.shape[0] + 1)
        old = self.data
        data = SurfaceData(
            vertices=torch.cat([self.vertices, every[used]]),
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

    def section(self, plane: Domain) -> Section:
        """The curves in which the surface meets a plane: the level set of the output on it.

        plane: a polygon in the space of the box, such as ``sc.Domain.polygon(corners)``. Curves are
        in its plane coordinates, and end at its border.
        """
        axes, origin = (each.to(torch.float64) for each in on_host(self.box.basis, self.box.origin))
        way = plane.origin.cpu() - origin.reshape(-1)
        inside, place = plane.basis.cpu() @ axes.T, axes @ way
        off = float((way - place @ axes).norm()) / self._extent
        if max(off, float((inside @ inside.T - torch.eye(2).to(inside)).abs().max())) > PLANAR:
            raise DomainError(
                "The plane does not lie in the three dimensions of the box. Give it three corners "
                "there, as in sc.Domain.polygon(surface.inputs(corners))."
            )
        off_plane = self.vertices - place
        height = off_plane @ torch.linalg.cross(inside[0], inside[1])
        return cut(self.structure, off_plane @ inside.T, height, self.normals @ inside.T, plane)

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> SurfacePoints:
        """Random points of the surface, uniform by area, with their inputs and faces.

        n: the number of points. generator: the source of randomness, by default torch's own.
        """
        chance = uniform((sample_count(n), 3), generator, self.vertices.device)
        if n and not self.area > 0:
            raise SplineCamError("There is nothing to sample from: the surface has no area.")
        triangles, face = self._triangles
        which = choose(self._triangle_areas, chance[:, 0])
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
            "edges of several parts": int(self.structure.crowded.shape[0]),
            "components": self.components,
            "euler": self.euler,
            "genus": self.genus,
            "area": self.area,
            "volume": math.nan if self._lost else self.volume,
            "unresolved": len(self.unresolved),
        }
        return {**own, **self.data.report}

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

    def _facets(self) -> Facets:
        faces, first = self.structure, self.structure.first
        place = torch.arange(int(faces.counts.max()) if len(self) else 1)
        rows = torch.minimum(place, faces.counts[:, None] - 1) + self.face_offsets[:-1, None]
        back = torch.where(faces.twin[first] < 0, first, faces.twin[first])
        program = getattr(self.network, "program", None)
        names = [str(k) for k in range(1 + max(self.edge_layer.tolist(), default=0))]
        low, high = self._corners.amin(0), self._corners.amax(0)
        return Facets(
            points=self.vertices.numpy(),
            corners=self.face_vertices[rows].numpy(),
            normals=self.normals.numpy(),
            layer=self.face_layers.numpy(),
            ends=self.edges.numpy(),
            beside=faces.face[torch.stack([first, back], 1)].numpy(),
            edge_layer=self.edge_layers.numpy(),
            limits=torch.stack([low, high], 1).numpy(),
            layers=names if program is None else [layer.name for layer in program.layers],
        )

    def _polygons(self, triangles: bool = False) -> Polygons:
        """The faces for a file, or the triangles in their place."""
        corners, face = self._triangles
        offsets = 3 * torch.arange(len(face) + 1) if triangles else self.face_offsets
        rows = face if triangles else torch.arange(len(self))
        columns = {"region": self.face_region, "layer": self.face_layers}
        columns |= {f"normal_{axis}": self.normals[:, k] for k, axis in enumerate("xyz")}
        return Polygons(
            points=self.vertices.numpy(),
            offsets=offsets.numpy(),
            corners=(corners.reshape(-1) if triangles else self.face_vertices).numpy(),
            point_data={},
            cell_data={name: column[rows].numpy() for name, column in columns.items()},
            triangles=corners.numpy(),
        )

    def export(
        self, path: str | os.PathLike[str], *, triangles: bool = False, progress: bool = True
    ) -> None:
        """Write the surface to a file for other programs, in the format that its suffix names.

        ``.ply`` has polygons with float64 coordinates, their regions, layers and normals; ``.vtp``
        and ``.vtk`` have the same for ParaView and PyVista; ``.obj`` has polygons as text. ``.stl``
        and ``.glb`` have triangles with float32 coordinates. Export ``surface.capped()`` for a
        closed solid.

        path: the file, which appears when it is complete. triangles: write triangles in place of
        polygons, for programs such as trimesh that read no PLY files with polygons of different
        sizes. progress: show a progress bar in interactive use.
        """
        suffix = PurePath(path).suffix.lower()
        if suffix not in WRITERS:
            name = PurePath(path).name
            raise ValueError(f"{name!r} has none of the suffixes {', '.join(WRITERS)}")
        write(self._polygons(triangles), path, suffix, progress)

    def to_trimesh(self) -> Any:
        """The triangles as a ``trimesh.Trimesh``, with the same vertices."""
        trimesh = optional("trimesh", "to_trimesh", "mesh")
        return trimesh.Trimesh(self.vertices.numpy(), self.triangles().numpy(), process=False)

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

        ``color`` is ``"normal"``, ``"layer"`` (the last layer that bounds a face), ``"region"``,
        one colour for all faces, or a number for each face (F,), such as distances to another
        surface; ``cmap`` and ``limits`` are those of layers and numbers, and ``colorbar=True``
        explains them. ``edges`` are thinner for later layers, and drawn by default of up to 30,000
        faces. ``view`` is the eye's elevation and azimuth in degrees, and ``up`` the axis that
        points up, ``"x"``, ``"y"`` or ``"z"``. ``axes=False`` hides the axes of the box. ``ax``
        are axes to draw on, made with ``projection="3d"``; ``alpha`` is the opacity of faces.

        options: the names above.
        """
        return plot_facets(self._facets(), SolidLook(**options))

    def view(self, **options: Any) -> Viewer:
        """Open a viewer in which one turns the surface, points at faces, and cuts it by a plane.

        options: as for ``sc.view``: ``color``, ``cmap``, ``limits``, ``edges``, ``view`` and ``up``
        as in ``plot``, where ``color`` may also be another surface, whose distance is shown.
        """
        from splinecam.viewer.viewer import view

        return view(self, **options)

    def to_html(self, path: str | os.PathLike[str] | BinaryIO, **options: Any) -> None:
        """Write a viewer as one HTML file, which opens offline.

        path: the file. options: as for ``view``, and ``title``.
        """
        from splinecam.viewer.page import to_html

        to_html(self, path, **options)

    def _repr_html_(self) -> str:
        shown = ("faces", "vertices", "open edges", "components", "genus", "area", "unresolved")
        report = self.report()
        rows = {"output": str(self.output), "level": self.level}
        rows |= {name: report[name] for name in shown if report[name] or name != "unresolved"}
        return solid_card("Surface", self._facets(), rows)
