from __future__ import annotations

import pytest
import torch

from splinecam._util.arrays import (
    entries_of,
    offsets_of,
    owners_of,
    places_in,
    sort_rows,
    take_each,
    take_rows,
)
from splinecam._util.backend import using
from splinecam._util.graphs import cycles


def test_ragged_rows():
    counts = torch.tensor([2, 0, 3])
    assert offsets_of(counts).tolist() == [0, 2, 2, 5]
    assert owners_of(counts).tolist() == [0, 0, 2, 2, 2]
    entries, chosen = take_rows(offsets_of(counts), torch.tensor([2, 0]))
    assert entries.tolist() == [2, 3, 4, 0, 1]
    assert chosen.tolist() == [3, 2]


def test_sort_rows_orders_values_that_differ_in_the_last_bit():
    s = torch.tensor([0.5, 0.5 - 2**-53, 0.25, 0.5 + 2**-52], dtype=torch.float64)
    row = torch.tensor([1, 1, 0, 1])
    assert sort_rows(row, s)[0].tolist() == [2, 1, 0, 3]


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


def test_strategies_for_queued_operations_give_the_same():
    counts, mask = torch.randint(1, 9, (700,)), torch.rand(500) < 0.3
    offsets, s = offsets_of(counts), torch.rand(700, dtype=torch.float64)
    permutation = torch.randperm(700)

    def results() -> list[torch.Tensor]:
        found = [places_in(mask, int(mask.sum())), owners_of(counts, int(counts.sum()))]
        found += [entries_of(offsets[:-1], offsets[1:], offsets), *sort_rows(counts, s, 9)]
        return [
            *found,
            *take_each(torch.stack([counts, counts]), permutation),
            *cycles(permutation),
        ]

    plain = results()
    with using(asynchronous=True):
        assert all(map(torch.equal, results(), plain))
