from __future__ import annotations

import math

import torch

from splinecam.geometry.checks import check_mesh
from splinecam.geometry.subdivision import polygon_mesh


def regular(k: int) -> torch.Tensor:
    angle = 2 * math.pi * torch.arange(k, dtype=torch.float64) / k
    return torch.stack([angle.cos(), angle.sin()], 1)


def test_a_polygon_is_one_valid_face():
    mesh = polygon_mesh(regular(7))
    area = 7 / 2 * math.sin(2 * math.pi / 7)
    assert all(check.ok for check in check_mesh(mesh, area))
    assert (mesh.num_vertices, mesh.num_edges, mesh.num_faces) == (7, 7, 1)
    assert mesh.halfedge_face().view(-1, 2).tolist() == [[0, -1]] * 7


def test_area_and_centroid_do_not_lose_digits_far_from_the_origin():
    small = regular(4) * 2.0**-20 + torch.tensor([1024.0, -512.0], dtype=torch.float64)
    areas, centroids = polygon_mesh(small).areas_and_centroids()
    assert abs(float(areas[0]) / (2 * 2.0**-40) - 1) < 1e-6
    assert torch.allclose(centroids[0], torch.tensor([1024.0, -512.0], dtype=torch.float64))


def test_next_and_previous_corner_are_inverse():
    mesh = polygon_mesh(regular(5))
    assert torch.equal(mesh.next_corner()[mesh.previous_corner()], torch.arange(5))


def test_selecting_all_faces_keeps_the_mesh():
    mesh = polygon_mesh(regular(6))
    same, vertices, edges = mesh.select(torch.tensor([0]))
    assert torch.equal(vertices, torch.arange(6))
    assert torch.equal(edges, torch.arange(6))
    assert torch.equal(same.corners, mesh.corners)
