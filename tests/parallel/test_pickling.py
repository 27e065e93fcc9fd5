"""Captured networks, and arrays, as blocks of bytes."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from fixtures.networks import Mixed, UNet, seeded
from splinecam.network.capture import capture
from splinecam.parallel.flat import Packed, join, load, load_file, parts_of, save

pytest.importorskip("cloudpickle")


@pytest.mark.parametrize(("model", "shape"), [(UNet(), (1, 16, 16)), (Mixed(), (2,))])
def test_a_program_that_was_pickled_gives_the_same_bits(
    model: nn.Module, shape: tuple[int, ...], tmp_path: Path
) -> None:
    program = capture(seeded(model), shape)
    save(parts_of(program), tmp_path / "program")
    other = load_file(tmp_path / "program")
    x = torch.randn(3, *shape, dtype=torch.float64)
    assert torch.equal(program(x), other(x))
    assert other.widths == program.widths
    assert [layer.rectifies for layer in other.layers] == [
        layer.rectifies for layer in program.layers
    ]


def test_arrays_are_views_of_the_block_and_tensors_keep_their_strides() -> None:
    weight = torch.arange(12.0).view(3, 4)
    content = {"weight": weight.T, "row": weight[1].expand(5, 4), "empty": weight[:0]}
    block = join(parts_of({**content, "many": np.arange(1000)}))
    found = load(block)
    for name, tensor in content.items():
        assert torch.equal(found[name], tensor)
        assert found[name].stride() == tensor.stride()
    assert np.shares_memory(found["many"], block)


def test_a_captured_network_can_be_pickled() -> None:
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    captured = sc.capture(model, (2,), device="cpu")
    x = torch.rand(4, 2)
    before = captured(x)
    with torch.no_grad():
        model[0].weight.mul_(2)
    other = pickle.loads(pickle.dumps(captured))
    assert torch.equal(other(x), before)  # as it was captured, not as the model is now
    assert repr(other) == repr(captured)
    assert len(sc.partition(other, sc.Domain.box(-1, 1))) > 1


def test_what_cannot_be_pickled_is_left_out_or_named() -> None:
    with pytest.raises(sc.SplineCamError, match=r"cannot be pickled: .*generator"):
        Packed.first_of(lambda: (i for i in range(3)))
    assert Packed.first_of(lambda: (i for i in range(3)), lambda: 3).value == 3
