"""Planes and squares of the input space, affine maps of regions, and the shapes of polygons.

A polygon is a tensor (k, 2) of its vertices in order. Its first vertex may be repeated at the end:
the regions that ``wrappers`` finds are open polygons, and the squares are closed ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam._util.arrays import lengths, offsets_of
from splinecam._util.tolerances import DEGENERATE, PLANAR
from splinecam.errors import DomainError
from splinecam.geometry.subdivision import Mesh, polygon_mesh
from splinecam.questions.measures import shapes


def get_proj_mat(domain: Tensor | Sequence[Tensor]) -> Tensor:
    """The matrix (D, 3) of the plane of a polygon: two orthonormal columns, and the origin.

    ``T[:, :2] @ uv + T[:, 2]`` is the input at plane coordinates uv. The first column points along
    the first side of the polygon. The origin is the mean of the given vertices.

    domain: (k, ...) the vertices in input space, closed or open.

    >>> square = torch.tensor([[1.0, 1.0], [3.0, 1.0], [3.0, 3.0], [1.0, 3.0]])
    >>> get_proj_mat(square).abs().tolist()
    [[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]]
    """
    points = _points(domain)
    corners = _opened(points)
    axes = _orthonormal(torch.stack([corners[1] - corners[0], corners[-1] - corners[0]]))
    T = torch.cat([axes, points.mean(0, keepdim=True)]).T
    plane_coordinates(points, T)
    given = domain if isinstance(domain, Tensor) and domain.is_floating_point() else points
    return T.to(given)


def plane_coordinates(domain: Tensor | Sequence[Tensor], T: Tensor) -> Tensor:
    """Plane coordinates (k, 2) of the vertices of a polygon; an error if they are off the plane."""
    points, T = _points(domain), T.detach().cpu().double()
    inverse: Tensor = torch.linalg.pinv(T[:, :2])
    uv = (points - T[:, 2]) @ inverse.T
    off = float((uv @ T[:, :2].T + T[:, 2] - points).abs().max())
    rounding = torch.finfo(torch.float32).eps * len(T) ** 0.5  # of a domain in single precision
    if off > max(PLANAR, rounding) * float(points.abs().max()):
        raise DomainError(
            f"The vertices of the domain are off the plane by up to {off:.3g}: they must lie in "
            "one plane, and T must be get_proj_mat(domain)."
        )
    return uv


def get_square_slice_from_one_anchor(
    anchors: Tensor, pad_dist: float = 1.0, seed: int | None = None
) -> Tensor:
    """The closed square (5, D) around one input (1, D), randomly oriented.

    Half of its diagonal is ``pad_dist``, and its area ``2 * pad_dist**2``. Without a seed, the
    orientation comes from torch's own generator.
    """
    (center,) = _anchors(anchors, 1)
    return _square(center, _random(2, center, seed), pad_dist)


def get_square_slice_from_two_anchors(
    anchors: Tensor, pad_dist: float = 1.0, seed: int | None = None
) -> Tensor:
    """The closed square (5, D) around the middle of two inputs (2, D), with both on a diagonal."""
    a, b = _anchors(anchors, 2)
    return _square((a + b) / 2, torch.cat([(a - b)[None], _random(1, a, seed)]), pad_dist)


def get_square_slice_from_centroid(
    anchors: Tensor, pad_dist: float = 1.0, seed: int | None = None
) -> Tensor:
    """The closed square (5, D) around the mean of three inputs (3, D), in their plane."""
    points = _anchors(anchors, 3)
    return _square(points.mean(0), points[:2] - points.mean(0), pad_dist)


def create_polytope_2d(
    scale: float = 1.0, seed: int | None = None, init_points_n: int = 30
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A random convex polygon (n + 1, 2) around the origin, closed, with vertices on a circle."""
    angle = np.sort(2 * np.pi * np.random.default_rng(seed).random(init_points_n))
    return scale / 2 * np.stack([np.cos(angle), np.sin(angle)], 1)[np.r_[:init_points_n, 0]]


def split_domain_by_edge(domain: Tensor) -> list[Tensor]:
    """The closed triangles (4, D) between each side of a polygon and the mean of its vertices."""
    corners = _opened(domain)
    center = corners.mean(0).expand_as(corners)
    return list(torch.stack([corners, corners.roll(-1, 0), center, corners], 1))


def get_nneigh_points(dataset: Any, target_classes: Sequence[int]) -> Tensor:
    """Three inputs (3, D) near a boundary: one of the first class, and two near it of the second.

    The first one is the sample of its class with the nearest neighbour in the other class.

    dataset: has ``data`` (N, height, width, channels) or (N, height, width), and ``targets`` (N,),
    as in torchvision. Channels come first in the result.
    """
    data, targets = torch.as_tensor(dataset.data), torch.as_tensor(dataset.targets)
    images = data.movedim(-1, 1) if data.dim() == 4 else data
    first, second = (images[targets == k].flatten(1).double() for k in target_classes)
    distance = torch.cdist(first, second)
    nearest = distance.amin(1).argmin()
    return torch.cat([first[nearest, None], second[distance[nearest].argsort()[:2]]])


def _points(domain: Tensor | Sequence[Tensor]) -> Tensor:
    rows = domain if isinstance(domain, Tensor) else [torch.as_tensor(row) for row in domain]
    points = torch.stack(list(rows)).detach().cpu().flatten(1).double()
    if len(points) < 3:
        raise DomainError(f"A polygon needs at least three vertices, got {len(points)}.")
    return points


def _anchors(anchors: Tensor, count: int) -> Tensor:
    if len(anchors) != count:
        raise ValueError(f"anchors has {len(anchors)} rows, and this square needs {count}")
    return anchors.flatten(1)


def _random(count: int, like: Tensor, seed: int | None) -> Tensor:
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return torch.randn(count, like.shape[0], dtype=torch.float64, generator=generator).to(like)


def _orthonormal(vectors: Tensor) -> Tensor:
    """The first of two vectors (2, D), and the part of the second across it, of length one."""
    basis, triangle = torch.linalg.qr(vectors.double().T)
    sizes = triangle.diagonal()
    if bool((sizes.abs() <= DEGENERATE * triangle.abs().max()).any()):
        raise DomainError("Two directions are parallel, and make no plane.")
    axes: Tensor = basis * sizes.sign()
    return axes.T


def _square(center: Tensor, directions: Tensor, pad_dist: float) -> Tensor:
    axes = pad_dist * _orthonormal(directions)
    return (center.double() + torch.cat([axes, -axes, axes[:1]])).to(center)


def _opened(polygon: Tensor) -> Tensor:
    return polygon[:-1] if polygon[0].equal(polygon[-1]) else polygon


class Maps(Tensor):
    """Affine maps (F, n, 3) of regions; parents: the region in which each of the next ones lies."""

    parents: Tensor | None = None


def get_Abw(q: Tensor, Wb: Tensor, incoming_Abw: Tensor) -> Tensor:
    """The affine maps (F, n, 3) of regions after a layer, from plane coordinates to its units.

    q: (F, n) the slopes of the layer's units, from ``get_activation_pattern``. Wb: (n, m + 1) its
    weights and biases. incoming_Abw: the maps before the layer, (F, m, 3) as ``Abw[out_idx]``, or
    (m, 3) for all regions; or the result of ``get_Abw`` for the layer before, if
    ``to_next_layer_partition`` was given it since and told it how its regions were divided.
    """
    before = incoming_Abw if incoming_Abw.dim() == 3 else incoming_Abw[None]
    made = Wb[:, :-1] @ before.as_subclass(Tensor).to(Wb)
    made[..., -1] += Wb[:, -1]
    if len(made) not in (1, len(q)):
        parents = getattr(incoming_Abw, "parents", None)
        if parents is None or len(parents) != len(q):
            raise ValueError(
                f"{len(made):,} incoming maps for {len(q):,} regions: give incoming_Abw="
                "Abw[out_idx], where out_idx is the second result of to_next_layer_partition"
            )
        made = made[parents]
    return (q.to(made)[:, :, None] * made).as_subclass(Maps)


def mesh_of(polygons: Tensor | Sequence[Tensor]) -> Mesh:
    """One polygon (k, 2), or several, as the faces of a mesh; a closing vertex counts once.

    >>> triangle = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> areas_of(mesh_of([triangle, torch.cat([triangle, triangle[:1]])])).tolist()
    [0.5, 0.5]
    """
    each = [polygons] if isinstance(polygons, Tensor) else list(polygons)
    vertices = torch.cat(each).double()
    counts = torch.tensor([len(polygon) for polygon in each], device=vertices.device)
    offsets = offsets_of(counts)
    first, last = offsets[:-1], offsets[1:] - 1
    closed = (vertices[first] == vertices[last]).all(1) & (counts > 1)
    kept = torch.ones(len(vertices), dtype=torch.bool, device=vertices.device)
    kept[last[closed]] = False
    return polygon_mesh(vertices[kept], counts - closed.long())


def areas_of(mesh: Mesh) -> Tensor:
    """The area of each polygon, (F,), whichever way it runs."""
    return mesh.areas_and_centroids()[0].abs()


def get_region_means(
    regions: Tensor | Sequence[Tensor],
    dims: int = 2,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device | None = None,
) -> Tensor:
    """The mean of the vertices of each region, (F, 2), a point inside the region."""
    return mesh_of(regions).means().to(device, dtype)


def region_area_2d(poly: Tensor) -> Tensor:
    """The area of a polygon.

    >>> square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> float(region_area_2d(square)), float(region_area_2d(torch.cat([square, square[:1]])))
    (1.0, 1.0)
    """
    return areas_of(mesh_of(poly))[0]


def region_eccentricity_2d(poly: Tensor, eps: float = 0.0) -> Tensor:
    """The largest distance between two vertices of a polygon, over the smallest one plus eps."""
    shape = shapes(mesh_of(poly))
    return (shape.diameter / (shape.nearest + eps))[0]


def centrality(polys: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the distances of all vertices from their mean.

    A vertex counts once for each of its polygons.
    """
    vertices = mesh_of(polys).uv
    distance = lengths(vertices - vertices.mean(0))
    return distance.mean(), _std(distance)


def get_region_statistics(polys: Sequence[Tensor]) -> tuple[list[str], Tensor]:
    """The names of nine statistics of polygons, and their values, (9,).

    ``vol`` is the area, ``ecc`` the eccentricity, ``centr`` the centrality; ``_m`` is a mean and
    ``_std`` a standard deviation. ``nverts`` counts the vertices of all polygons.

    >>> square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> names, values = get_region_statistics([square, square + 1])
    >>> dict(zip(names, values.tolist()))["avg_verts"]
    4.0
    """
    mesh = mesh_of(polys)
    area, eccentricity = areas_of(mesh), shapes(mesh).eccentricity
    total, count = mesh.counts().sum().double(), mesh.num_faces
    middle, spread = centrality(polys)
    values = {
        "vol_m": area.mean(),
        "vol_std": _std(area),
        "nverts": total,
        "nregions": total.new_tensor(count),
        "ecc_m": eccentricity.mean(),
        "ecc_std": _std(eccentricity),
        "centr_m": middle,
        "centr_std": spread,
        "avg_verts": total / count,
    }
    return list(values), torch.stack(list(values.values()))


def _std(values: Tensor) -> Tensor:
    return values.std(correction=min(1, len(values) - 1))
