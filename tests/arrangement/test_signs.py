from __future__ import annotations

import pytest
import torch

from splinecam._util.arrays import set_bits
from splinecam.arrangement.crossings import SignWriter


@pytest.mark.parametrize("m", [1, 7, 63, 64, 65, 200])
def test_signs_survive_packing(m: int):
    values = torch.randint(-1, 2, (30, m)).double()
    writer = SignWriter(30, torch.full((m,), 0.5).double())
    writer.write(0, values[:11])
    writer.write(11, values[11:])
    signs = writer.signs.only(torch.ones(m, dtype=torch.bool))
    vertex, column = (
        x.reshape(-1) for x in torch.meshgrid(torch.arange(30), torch.arange(m), indexing="ij")
    )
    assert torch.equal(signs.at(vertex, column).view(30, m), values.long())
    rows, columns = set_bits(signs.zero)
    assert torch.equal(torch.stack([rows, columns], 1), (values == 0).nonzero())


@pytest.mark.parametrize("m", [1, 63, 64, 65, 200])
def test_signs_without_zeros_survive_packing(m: int):
    values = torch.randn(50, m, dtype=torch.float64)
    writer = SignWriter(50, torch.zeros(m, dtype=torch.float64))
    for start in range(0, 50, 20):
        writer.write(start, values[start : start + 20])
    signs = writer.signs.only(torch.ones(m, dtype=torch.bool))
    vertex, column = (values > 0).nonzero().unbind(1)
    assert torch.equal(torch.stack(set_bits(signs.positive)), torch.stack([vertex, column]))
    assert torch.equal(
        torch.stack(set_bits(signs.negative)), torch.stack((values < 0).nonzero().unbind(1))
    )


def test_values_within_the_tolerance_are_zero():
    writer = SignWriter(1, torch.tensor([0.1, 0.1, 0.1]))
    writer.write(0, torch.tensor([[0.1, -0.1, 0.3]]))
    at = writer.signs.at(torch.zeros(3, dtype=torch.long), torch.arange(3))
    assert at.tolist() == [0, 0, 1]


def test_functions_that_do_not_count_have_no_sign_and_are_not_zero():
    writer = SignWriter(1, torch.zeros(3))
    writer.write(0, torch.tensor([[2.0, -3.0, 0.0]]))
    signs = writer.signs.only(torch.tensor([True, False, False]))
    assert signs.at(torch.zeros(3, dtype=torch.long), torch.arange(3)).tolist() == [1, 0, 0]
    assert not signs.zero.any()
