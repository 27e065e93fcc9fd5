from __future__ import annotations

import pytest
import torch

from splinecam._util.arrays import rows_with_bits, set_bits


@pytest.mark.parametrize("words", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("density", [0.0, 0.01, 0.5, 1.0])
def test_every_bit_is_found_in_order(words: int, density: float):
    bits = torch.rand(50, 64 * words) < density
    powers = 1 << torch.arange(64)  # the last one is negative
    packed = (bits.view(50, words, 64) * powers).sum(2)
    row, column = set_bits(packed)
    assert torch.equal(torch.stack([row, column], 1), bits.nonzero())
    assert torch.equal(rows_with_bits(packed), bits.any(1).nonzero()[:, 0])
