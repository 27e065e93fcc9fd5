"""Dissolving edges: faces are united, straight vertices go, everything else stays."""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam.arrangement.crossings import Functions
from splinecam.arrangement.dissolve import dissolve
from splinecam.arrangement.refine import refine
from splinecam.geometry.checks import check_mesh
from splinecam.geometry.subdivision import Mesh, polygon_mesh

SQUARE = [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]
LINES = torch.tensor(
    [[1.0, 0.0, -0.25], [0.0, 1.0, 0.125], [1.0, 1.0, 0.375], [1.0, -2.0, 0.5]],
    dtype=torch.float64,
)


def cut_square(lines: Tensor) -> Mesh:
    """The square cut by the zeros of a u + b v + c; an edge's unit is its line."""
    uv = torch.tensor(SQUARE, dtype=torch.float64)
    z = uv @ lines[:, :2].T + lines[:, 2]
    error = torch.full((lines.shape[0],), 2.0**-50, dtype=torch.float64)
    levels = torch.zeros((1, lines.shape[0]), dtype=torch.float64)
    functions = Functions.crossing(z, levels, error, z.amin(0), z.amax(0))
    return refine(polygon_mesh(uv), functions, 0).mesh


def assert_sound(mesh: Mesh) -> None:
    assert all(check.ok for check in check_mesh(mesh, 4.0))


def test_without_one_line_the_others_are_left() -> None:
    for gone in range(LINES.shape[0]):
        whole = cut_square(LINES)
        mesh, kept = dissolve(whole, (whole.edge_unit == gone).nonzero()[:, 0], fixed=4)
        others = cut_square(LINES[[i for i in range(LINES.shape[0]) if i != gone]])
        assert_sound(mesh)
        assert (mesh.num_vertices, mesh.num_edges, mesh.num_faces) == (
            others.num_vertices,
            others.num_edges,
            others.num_faces,
        )
        assert torch.equal(mesh.uv, whole.uv[kept])
        areas = [torch.sort(part.areas_and_centroids()[0]).values for part in (mesh, others)]
        assert torch.allclose(*areas, atol=1e-14)


def test_without_all_lines_the_square_is_left() -> None:
    whole = cut_square(LINES)
    mesh, kept = dissolve(whole, (whole.edge_layer >= 0).nonzero()[:, 0], fixed=4)
    assert_sound(mesh)
    assert (mesh.num_vertices, mesh.num_edges, mesh.num_faces) == (4, 4, 1)
    assert kept.tolist() == [0, 1, 2, 3]
    assert bool((mesh.edge_layer < 0).all())


def test_fixed_vertices_stay_in_straight_sides() -> None:
    whole = cut_square(LINES)
    needless = (whole.edge_unit == 0).nonzero()[:, 0]
    mesh, kept = dissolve(whole, needless, fixed=whole.num_vertices)
    assert_sound(mesh)
    assert kept.shape[0] == whole.num_vertices


def test_an_edge_with_the_same_face_on_both_sides_goes_too() -> None:
    whole = cut_square(LINES[:2])  # a cross: three of its arms taken out leave the fourth dangling
    needless = (whole.edge_layer >= 0).nonzero()[:, 0]
    mesh, _ = dissolve(whole, needless[:3], fixed=4)
    assert_sound(mesh)
    assert mesh.num_faces == 1
    assert mesh.num_edges == 4
