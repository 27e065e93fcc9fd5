from __future__ import annotations

import pytest
import torch

from splinecam.signs import Signs, set_bits


@pytest.mark.parametrize("m", [1, 7, 63, 64, 65, 200])
def test_signs_survive_packing(m: int):
    values = torch.randint(-1, 2, (30, m)).double()
    signs = Signs.empty(30, m, values.device)
    signs.store(0, values[:11], torch.full((m,), 0.5))
    signs.store(11, values[11:], torch.full((m,), 0.5))
    vertex, column = (
        x.reshape(-1) for x in torch.meshgrid(torch.arange(30), torch.arange(m), indexing="ij")
    )
    assert torch.equal(signs.at(vertex, column).view(30, m), values.long())
    rows, columns = set_bits(signs.zero())
    assert torch.equal(torch.stack([rows, columns], 1), (values == 0).nonzero())


def test_values_within_the_tolerance_are_zero():
    signs = Signs.empty(1, 3, torch.device("cpu"))
    signs.store(0, torch.tensor([[0.1, -0.1, 0.3]]), torch.tensor([0.1, 0.1, 0.1]))
    at = signs.at(torch.zeros(3, dtype=torch.long), torch.arange(3))
    assert at.tolist() == [0, 0, 1]


def test_functions_that_do_not_count_have_no_sign_and_are_not_zero():
    signs = Signs.empty(1, 3, torch.device("cpu"))
    signs.store(0, torch.tensor([[2.0, -3.0, 0.0]]), torch.zeros(3))
    signs = signs.only(torch.tensor([True, False, False]))
    assert signs.at(torch.zeros(3, dtype=torch.long), torch.arange(3)).tolist() == [1, 0, 0]
    assert not signs.zero().any()
