from __future__ import annotations

import math

import pytest
import torch

from splinecam._util.csr import argsort_rows, offsets_of, owners_of, sort_rows, take_rows
from splinecam.analysis.validate import check_mesh
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


def test_ragged_rows():
    counts = torch.tensor([2, 0, 3])
    assert offsets_of(counts).tolist() == [0, 2, 2, 5]
    assert owners_of(counts).tolist() == [0, 0, 2, 2, 2]
    entries, chosen = take_rows(offsets_of(counts), torch.tensor([2, 0]))
    assert entries.tolist() == [2, 3, 4, 0, 1]
    assert chosen.tolist() == [3, 2]


def test_argsort_rows_orders_values_that_differ_in_the_last_bit():
    s = torch.tensor([0.5, 0.5 - 2**-53, 0.25, 0.5 + 2**-52], dtype=torch.float64)
    row = torch.tensor([1, 1, 0, 1])
    assert argsort_rows(row, s).tolist() == [2, 1, 0, 3]


def test_many_rows_with_and_without_entries():
    counts = torch.randint(0, 4, (5000,))
    owners = torch.repeat_interleave(counts)
    assert torch.equal(owners_of(counts), owners)
    assert torch.equal(owners_of(counts, int(counts.sum())), owners)
    rows = torch.randperm(5000)
    entries, chosen = take_rows(offsets_of(counts), rows)
    assert torch.equal(owners[entries], torch.repeat_interleave(rows, chosen))


@pytest.mark.parametrize("rows", [40, 1 << 20, 1 << 32], ids=["short", "few bits", "long"])
@pytest.mark.parametrize("spread", [1.0, 2.0**-30, 2.0**-45], ids=["far", "near", "equal keys"])
def test_rows_are_sorted_exactly_whatever_fits_into_a_key(rows: int, spread: float):
    row = torch.randint(0, 40, (3000,))
    given = 0.5 + spread * (torch.rand(3000, dtype=torch.float64) - 0.5)
    order, at, s = sort_rows(row, given, rows)
    assert torch.equal(at, row[order])
    assert torch.equal(s, given[order])
    assert torch.equal(order.sort().values, torch.arange(3000))
    assert bool(((at[1:] > at[:-1]) | ((at[1:] == at[:-1]) & (s[1:] >= s[:-1]))).all())
