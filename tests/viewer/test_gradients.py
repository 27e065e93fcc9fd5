"""Derivatives in input space, as they are sent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.viewer.panes import Pane
from splinecam.viewer.scene import quantized_gradients, winning_outputs
from splinecam.viewer.session import Session
from viewer_messages import unpack


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 4)]
    domain = sc.Domain.around(torch.rand(3, 4), side=5.0)
    return sc.partition(nn.Sequential(*layers).double(), domain, progress=False)


def test_gradients_are_rows_of_the_jacobian(part: sc.Partition) -> None:
    session, jacobian = Session([Pane("", [part])]), part.jacobian(range(len(part))).flatten(2)
    winner = winning_outputs(part, torch.arange(len(part)))
    middle = part._inputs(part._frame.to_plane(part.mesh.means()))
    assert torch.equal(winner, part.model(middle).argmax(1))
    for region in range(0, len(part), 5):
        for output in (None, 2):
            request = {"ask": "gradient", "mesh": "0/0", "region": region, "output": output}
            found = unpack(session.answer(request))
            chosen = int(winner[region]) if output is None else output
            assert found.message["output"] == chosen
            assert np.allclose(found.arrays["gradient"], jacobian[region, chosen], atol=1e-6)


def test_gradients_in_bytes(part: sc.Partition) -> None:
    found = quantized_gradients(part)
    jacobian = part.jacobian(range(len(part))).flatten(2).numpy()
    exact = jacobian[np.arange(len(part)), winning_outputs(part, torch.arange(len(part))).numpy()]
    scale = found["gradientScale"][:, None]
    assert found["gradients"].dtype == np.int8
    every = torch.arange(len(part))
    assert found["gradientOutput"].tolist() == winning_outputs(part, every).tolist()
    assert (np.abs(found["gradients"] * scale - exact) <= 0.51 * scale).all()


def test_a_partition_of_two_inputs_needs_no_network() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    exact = part.jacobian(3)[0, 1]
    _ = part._maps
    part._model = part._program = None
    request = {"ask": "gradient", "mesh": "0/0", "region": 3, "output": 1}
    found = unpack(Session([Pane("", [part])]).answer(request))
    assert np.allclose(found.arrays["gradient"], exact, atol=1e-6)


def test_regions_that_are_not_there(part: sc.Partition) -> None:
    session = Session([Pane("", [part])])
    for region in (-1, len(part), 0.5, "0", None):
        request = {"ask": "gradient", "mesh": "0/0", "region": region, "output": None}
        assert "region" in unpack(session.answer(request)).message["message"]
