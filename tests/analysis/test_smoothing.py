"""What a partition says about a model whose smooth functions were replaced."""

from __future__ import annotations

import torch
from torch import nn

import splinecam as sc
from splinecam._partition import Partition, assemble
from splinecam.analysis.smoothing import Smoothing, SmoothLayer
from splinecam.engine.run import run
from splinecam.network.capture import capture


def bounded(seed: int = 0, outputs: int = 3, largest: float = 0.05) -> Partition:
    """A partition of a ReLU network with invented bounds, which differ from region to region."""
    generator = torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU())
    model = model.append(nn.Linear(12, outputs)).double()
    domain = sc.Domain.box(-2, 2)
    program = capture(model, domain.input_shape)
    outcome = run(program, domain)
    shape = outcome.mesh.num_faces, outputs
    bounds = largest * torch.rand(shape, generator=generator, dtype=torch.float64)
    layers = tuple(SmoothLayer(layer.name, "relu", 12, 24) for layer in program.layers)
    smoothing = Smoothing(torch.full((outputs,), largest), bounds, layers)
    return assemble(model, program, domain, outcome, smoothing=smoothing)


def test_a_partition_says_what_was_replaced_and_how_near_it_is() -> None:
    part = bounded()
    assert part.smooth is not None
    assert torch.equal(part.region_bounds, part.smooth.region_bounds)
    assert torch.equal(part.bound, part.region_bounds.amax(0))
    assert part.smooth.layers[0].pieces_per_unit == 2
    assert "2 layers replaced: relu, 2 pieces per unit on average" in repr(part.smooth)


def test_an_exact_partition_is_at_no_distance_from_its_model() -> None:
    part = sc.partition(nn.Linear(2, 3), sc.Domain.box(-1, 1), progress=False)
    assert part.smooth is None
    assert part.region_bounds.shape == (1, 3)
    assert not part.region_bounds.any()
    assert not part.bound.any()
