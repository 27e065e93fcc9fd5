from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from splinecam._util.backend import using
from splinecam._util.tolerances import EPS
from splinecam.arrangement import zero_sets
from splinecam.arrangement.chords import FaceBoundaries
from splinecam.arrangement.crossings import Functions
from splinecam.arrangement.refine import Refinement, refine
from splinecam.errors import LimitError
from splinecam.geometry.checks import check_mesh
from splinecam.geometry.subdivision import Mesh, polygon_mesh

SQUARE = torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=torch.float64)


def functions_of(mesh: Mesh, lines: Tensor, error: float = 8 * EPS) -> Functions:
    """Lines (m, 3): a u + b v + c."""
    z = mesh.uv @ lines[:, :2].T + lines[:, 2]
    m = lines.shape[0]
    zero = torch.zeros(1, m, dtype=torch.float64)
    return Functions.crossing(z, zero, torch.full((m,), error), z.amin(0), z.amax(0))


def cut(*lines: tuple[float, float, float], mesh: Mesh | None = None) -> Refinement:
    mesh = polygon_mesh(SQUARE) if mesh is None else mesh
    made = refine(mesh, functions_of(mesh, torch.tensor(lines, dtype=torch.float64)), 0)
    assert all(check.ok for check in check_mesh(made.mesh, 4.0))
    return made


def test_one_line_makes_two_faces_and_its_edge_knows_it():
    mesh = cut((1, 0, -0.5)).mesh
    assert (mesh.num_vertices, mesh.num_edges, mesh.num_faces) == (6, 7, 2)
    drawn = (mesh.edge_layer == 0).nonzero()[:, 0]
    assert mesh.edge_unit[drawn].tolist() == [0]
    assert torch.allclose(mesh.uv[mesh.edges[drawn[0]]][:, 0], torch.tensor(0.5).double())
    assert (mesh.vertex_layer == 0).sum() == 2


def test_lines_that_miss_or_only_touch_do_not_cut():
    assert cut((1, 0, 2)).mesh.num_faces == 1
    assert cut((1, 1, 2)).mesh.num_faces == 1  # through a corner
    assert cut((0, 1, 1)).mesh.num_faces == 1  # along a side


def test_diagonals_through_corners():
    mesh = cut((1, -1, 0), (1, 1, 0)).mesh
    assert (mesh.num_vertices, mesh.num_faces) == (5, 4)


def test_concurrent_lines_share_one_vertex():
    angles = [math.pi * (k + 0.3) / 9 for k in range(9)]
    mesh = cut(*[(math.cos(a), math.sin(a), 0) for a in angles]).mesh
    assert mesh.num_faces == 18
    assert mesh.num_vertices == 4 + 18 + 1


def test_equal_lines_are_one_line():
    mesh = cut((1, 0.3, 0.1), (-3, -0.9, -0.3), (0.1, 0.03, 0.01), (0.2, 1, 0)).mesh
    assert mesh.num_faces == 4


def test_a_grid():
    grid = [(1, 0, k / 8) for k in range(-9, 10)] + [(0, 1, k / 8) for k in range(-9, 10)]
    mesh = cut(*grid).mesh
    assert mesh.num_faces == 16 * 16
    assert mesh.num_vertices == 17 * 17


def test_a_second_cut_goes_through_old_vertices():
    first = cut((1, 0, 0), (0, 1, 0)).mesh
    second = cut((1, -1, 0), mesh=first).mesh
    assert (second.num_vertices, second.num_faces) == (9, 6)


@pytest.mark.parametrize("count", [1, 2, 10, 60])
def test_generic_lines_make_as_many_faces_as_they_cross(count: int):
    angle = torch.rand(count, dtype=torch.float64) * 2 * math.pi
    lines = torch.stack([angle.cos(), angle.sin(), torch.rand(count).double() - 0.5], 1)
    made = cut(*lines.tolist())
    i, j = torch.triu_indices(count, count, 1)
    system = torch.stack([lines[i, :2], lines[j, :2]], 1)
    point = torch.linalg.solve(system, -torch.stack([lines[i, 2], lines[j, 2]], 1))
    crossings = int((point.abs() < 1).all(1).sum())
    assert made.mesh.num_faces == 1 + count + crossings
    assert made.inside.t.shape[0] == crossings
    assert not made.ambiguities


def test_interpolation_gives_the_new_vertices():
    made = cut((1, 0.2, 0.1), (0.3, -1, 0.2), (1, 1, -0.3))
    uv = torch.cat([SQUARE, made.on_edges.interpolate(SQUARE)])
    uv = torch.cat([uv, made.inside.interpolate(uv)])
    assert torch.allclose(uv, made.mesh.uv, atol=4 * EPS, rtol=0)


def test_too_many_faces_are_refused_before_they_are_made():
    mesh = polygon_mesh(SQUARE)
    lines = torch.randn(50, 3, dtype=torch.float64) * torch.tensor([1, 1, 0.1])
    with pytest.raises(LimitError):
        refine(mesh, functions_of(mesh, lines), 0, max_faces=100)


def test_what_is_too_close_to_a_vertex_to_tell_is_reported():
    mesh = polygon_mesh(SQUARE)
    lines = torch.tensor([[1, 1, 2 - 4 * 8 * EPS], [1, 0, 0]], dtype=torch.float64)
    made = refine(mesh, functions_of(mesh, lines), 0)
    assert [ambiguity.uv.tolist() for ambiguity in made.ambiguities] == [[[-1.0, -1.0]]]


def all_faces(boundaries: FaceBoundaries, *args: object, **options: object) -> Tensor:
    """In place of ``insert_at_once``: leave every face to ``insert_incrementally``."""
    return torch.arange(boundaries.count)


@pytest.mark.parametrize("count", [2, 9, 40])
def test_both_ways_to_insert_chords_make_the_same_faces(
    count: int, monkeypatch: pytest.MonkeyPatch
):
    first = torch.randn(count, 3, dtype=torch.float64) * torch.tensor([1, 1, 0.3])
    second = torch.randn(3, 3, dtype=torch.float64) * torch.tensor([1, 1, 0.3])
    meshes = []
    for careful in (False, True):
        if careful:
            monkeypatch.setattr("splinecam.arrangement.refine.insert_at_once", all_faces)
        mesh = cut(*first.tolist()).mesh
        meshes.append(cut(*second.tolist(), mesh=mesh).mesh)
    fast, slow = meshes
    assert (fast.num_vertices, fast.num_edges, fast.num_faces) == (
        slow.num_vertices,
        slow.num_edges,
        slow.num_faces,
    )
    areas = [torch.sort(mesh.areas_and_centroids()[0]).values for mesh in meshes]
    assert torch.allclose(*areas, atol=1e-14)
    assert torch.equal(fast.counts().sort().values, slow.counts().sort().values)


@pytest.mark.parametrize("count", [5, 60])
def test_blocks_of_any_size_give_the_same_mesh(count: int):
    first, second = (
        torch.randn(count, 3, dtype=torch.float64) * torch.tensor([1, 1, 0.3]) for _ in range(2)
    )
    meshes = []
    for limits in ({}, {"sign_words": 1, "chord_pairs": 1}, {"sign_words": 7, "chord_pairs": 7}):
        with using(**limits):
            mesh = cut(*first.tolist()).mesh
            meshes.append(cut(*second.tolist(), mesh=mesh).mesh)
    for other in meshes[1:]:
        assert all(
            torch.equal(a, b)
            for a, b in zip(vars(meshes[0]).values(), vars(other).values(), strict=True)
        )


def test_many_chords_around_a_face_in_the_middle():
    angle = 2 * math.pi * torch.arange(100, dtype=torch.float64) / 100
    lines = torch.stack([angle.cos(), angle.sin(), torch.full_like(angle, -0.7)], 1)
    mesh = cut(*lines.tolist()).mesh
    assert int(mesh.counts().max()) == 100
    assert mesh.num_vertices - mesh.num_edges + mesh.num_faces == 1


def test_zero_sets_are_the_same_in_blocks_of_functions(monkeypatch: pytest.MonkeyPatch):
    mesh = cut((1, 0.2, 0.1), (0.3, -1, 0.2), (1, 1, -0.3)).mesh
    lines = torch.randn(150, 3, dtype=torch.float64) * torch.tensor([1, 1, 0.3])
    whole = zero_sets.zero_sets(mesh, functions_of(mesh, lines))
    monkeypatch.setattr(zero_sets, "_BITS", 1)
    in_blocks = zero_sets.zero_sets(mesh, functions_of(mesh, lines))
    assert torch.equal(whole.column, in_blocks.column)
    assert torch.equal(whole.faces, in_blocks.faces)
    ends, others = (found.uv[found.ends] for found in (whole, in_blocks))
    assert torch.equal(ends, others)
