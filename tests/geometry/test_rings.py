from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam._util.arrays import lengths, owners_of
from splinecam._util.graphs import cycles, long_cycles
from splinecam.geometry.outlines import Outlines, outlines
from splinecam.geometry.subdivision import Mesh


def grid_mesh(rows: int, columns: int) -> Mesh:
    """Unit squares, row by row from the origin."""
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    first = (y * (columns + 1) + x).flatten()
    corner = torch.stack([first, first + 1, first + columns + 2, first + columns + 1], 1).flatten()
    following = corner.view(-1, 4).roll(-1, 1).flatten()
    low, high = torch.minimum(corner, following), torch.maximum(corner, following)
    edges, edge = torch.unique(torch.stack([low, high], 1), dim=0, return_inverse=True)
    v, u = torch.meshgrid(torch.arange(rows + 1), torch.arange(columns + 1), indexing="ij")
    none = torch.full((len(edges),), -1)
    return Mesh(
        uv=torch.stack([u.flatten(), v.flatten()], 1).double(),
        edges=edges,
        offsets=4 * torch.arange(rows * columns + 1),
        corners=2 * edge + (corner != low).long(),
        edge_layer=none,
        edge_unit=none,
        vertex_layer=torch.full((len(u.flatten()),), -1),
    )


def of_drawing(*rows: str) -> Outlines:
    """Outlines of a drawing with one letter a square, the lowest row last."""
    letters = [letter for row in reversed(rows) for letter in row]
    return outlines(grid_mesh(len(rows), len(rows[0])), torch.tensor([ord(x) for x in letters]))


def rings(found: Outlines) -> list[tuple[int, float, int]]:
    """Piece, area and number of half-edges of each ring."""
    numbers = found.ring_piece, found.ring_area, found.offsets.diff()
    return list(zip(*(x.tolist() for x in numbers), strict=True))


def random_mesh(seed: int, units: int = 20) -> Mesh:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(2, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 1)
    )
    return sc.partition(model, sc.Domain.box(-2, 2), device="cpu", progress=False).mesh


def assert_consistent(mesh: Mesh, label: Tensor, found: Outlines) -> None:
    """Everything that must hold for any labels of any mesh."""
    face = mesh.halfedge_face()
    beside = torch.where(face >= 0, found.piece[face], -1)
    halves, twins = found.halves, found.halves ^ 1
    ring = owners_of(found.offsets.diff())
    # exactly the half-edges that separate, each once, and on its own piece
    wanted = ((beside >= 0) & (beside != beside.view(-1, 2).flip(1).flatten())).nonzero()[:, 0]
    assert torch.equal(halves.sort().values, wanted)
    assert torch.equal(beside[halves], found.ring_piece[ring])
    outside = face[twins] < 0
    assert bool((outside | (label[face[twins]] != label[face[halves]])).all())
    # each half-edge starts where the one before ends
    start, end = mesh.edges.view(-1)[halves], mesh.edges.view(-1)[twins]
    last = found.offsets[1:] - 1
    following = torch.arange(1, len(halves) + 1)
    following[last] = found.offsets[:-1]
    assert torch.equal(end, start[following])
    # pieces: one label, numbered by lowest face, one outer ring each, which comes first
    assert torch.equal(found.piece_label[found.piece], label)
    first = torch.full((len(found),), mesh.num_faces)
    first.scatter_reduce_(0, found.piece, torch.arange(mesh.num_faces), "amin")
    assert torch.equal(first, first.sort().values)
    assert torch.equal(found.ring_piece, found.ring_piece.sort().values)
    outer = torch.ones(len(found.ring_piece), dtype=torch.bool)
    outer[1:] = found.ring_piece.diff() > 0
    assert torch.equal(found.ring_area > 0, outer)
    assert int(outer.sum()) == len(found)
    # areas
    area = mesh.areas_and_centroids()[0]
    of_faces = area.new_zeros(len(found)).index_add_(0, found.piece, area)
    of_rings = area.new_zeros(len(found)).index_add_(0, found.ring_piece, found.ring_area)
    torch.testing.assert_close(of_rings, of_faces, rtol=1e-12, atol=1e-14)


def test_one_label_has_the_border_as_its_only_ring() -> None:
    mesh = random_mesh(0)
    label = torch.full((mesh.num_faces,), 7)
    found = outlines(mesh, label)
    assert_consistent(mesh, label, found)
    assert found.piece_label.tolist() == [7]
    assert len(found.offsets) == 2
    assert bool((mesh.edge_layer[found.halves >> 1] == -1).all())
    assert len(found.halves) == int((mesh.edge_layer == -1).sum())
    assert float(found.ring_area) == pytest.approx(4.0 * float(mesh.uv[:, 0].max()) ** 2)


def test_a_checkerboard_falls_into_its_squares() -> None:
    mesh = grid_mesh(5, 6)
    label = (torch.arange(5)[:, None] + torch.arange(6)).flatten() % 2
    found = outlines(mesh, label)
    assert_consistent(mesh, label, found)
    assert torch.equal(found.piece, torch.arange(30))
    assert rings(found) == [(i, 1.0, 4) for i in range(30)]


def test_an_annulus_has_a_hole() -> None:
    found = of_drawing("aaa", "aba", "aaa")
    assert rings(found) == [(0, 9.0, 12), (0, -1.0, 4), (1, 1.0, 4)]
    assert found.piece_label.tolist() == [ord("a"), ord("b")]


def test_nested_rings_and_several_holes() -> None:
    found = of_drawing("aaaaaaa", "abbbaca", "abdbaaa", "abbbaaa", "aaaaaaa")
    assert len(found) == 4
    assert sorted(area for _, area, _ in rings(found)) == [-9.0, -1.0, -1.0, 1.0, 1.0, 9.0, 35.0]
    assert [area > 0 for _, area, _ in rings(found)[:3]] == [True, False, False]


def test_squares_that_touch_in_a_vertex_are_two_pieces() -> None:
    found = of_drawing("ba", "ab")
    assert rings(found) == [(i, 1.0, 4) for i in range(4)]


def test_a_piece_that_touches_itself_in_a_vertex_has_one_ring_through_it() -> None:
    found = of_drawing("aaa", "aba", "aab")  # the hole meets the outside in a vertex
    assert rings(found) == [(0, 7.0, 16), (1, 1.0, 4), (2, 1.0, 4)]


def test_holes_that_touch_in_a_vertex_have_one_ring() -> None:
    found = of_drawing("aaaa", "abaa", "aaba", "aaaa")
    assert rings(found) == [(0, 16.0, 16), (0, -2.0, 8), (1, 1.0, 4), (2, 1.0, 4)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("labels", [2, 3, 50])
def test_random_labels_on_random_partitions(seed: int, labels: int) -> None:
    mesh = random_mesh(seed)
    label = torch.randint(labels, (mesh.num_faces,), generator=torch.Generator().manual_seed(seed))
    assert_consistent(mesh, label, outlines(mesh, label))


@pytest.mark.parametrize("seed", range(3))
def test_random_labels_on_a_grid_touch_in_many_vertices(seed: int) -> None:
    mesh = grid_mesh(17, 23)
    label = torch.randint(2, (mesh.num_faces,), generator=torch.Generator().manual_seed(seed))
    found = outlines(mesh, label)
    assert_consistent(mesh, label, found)
    p, q = (mesh.uv[mesh.edges.view(-1)[h]] for h in (found.halves, found.halves ^ 1))
    assert float(lengths(q - p).sum()) == len(found.halves)


def test_a_meander_has_a_long_ring() -> None:
    n = 60
    mesh = grid_mesh(n, n)
    label = torch.zeros(n, n, dtype=torch.int64)
    for i in range(0, n, 4):  # every fourth row, joined at alternate ends
        label[i] = 1
        label[i : i + 4, -1 if i % 8 else 0] = 1
    found = outlines(mesh, label.flatten())
    assert_consistent(mesh, label.flatten(), found)
    assert int(found.offsets.diff().max()) > 1000


def test_labels_may_be_of_any_type() -> None:
    found = outlines(grid_mesh(1, 3), torch.tensor([True, True, False]))
    assert found.piece_label.tolist() == [True, False]
    assert rings(found) == [(0, 2.0, 6), (1, 1.0, 4)]


@pytest.mark.parametrize("n", [1, 2, 17, 1000])
def test_long_cycles_are_the_cycles(n: int) -> None:
    for seed in range(5):
        following = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        for found, wanted in zip(long_cycles(following), cycles(following), strict=True):
            assert torch.equal(found, wanted)


def test_long_cycles_of_nothing() -> None:
    offsets, members = long_cycles(torch.zeros(0, dtype=torch.int64))
    assert offsets.tolist() == [0]
    assert members.tolist() == []


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_gives_the_same_outlines() -> None:
    mesh = random_mesh(1)
    label = torch.randint(3, (mesh.num_faces,), generator=torch.Generator().manual_seed(1))
    here, there = outlines(mesh, label), outlines(mesh.to(torch.device("cuda")), label.cuda())
    for name in ("piece", "piece_label", "offsets", "halves", "ring_piece"):
        assert torch.equal(getattr(there, name).cpu(), getattr(here, name))
    torch.testing.assert_close(there.ring_area.cpu(), here.ring_area)
