"""Partitions of ReLU networks with invented bounds, as if their functions were smooth."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

import splinecam as sc
from splinecam.engine.run import run
from splinecam.network.capture import capture
from splinecam.partitions.partition import Partition, assemble
from splinecam.questions.partition_data import Smoothing, SmoothLayer


def bounded(seed: int = 0, outputs: int = 3, largest: float = 0.05) -> Partition:
    """A partition with bounds that differ from region to region and from output to output."""
    generator = torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU())
    model = model.append(nn.Linear(12, outputs)).double()
    domain = sc.Domain.box(-2, 2)
    with torch.no_grad():  # every class wins somewhere
        x = 4 * torch.rand(1000, 2, generator=generator, dtype=torch.float64) - 2
        model[-1].bias -= model(x).median(0).values
    program = capture(model, domain.input_shape)
    outcome = run(program, domain)
    shape = outcome.mesh.num_faces, outputs
    bounds = largest * torch.rand(shape, generator=generator, dtype=torch.float64)
    layers = tuple(SmoothLayer(layer.name, "relu", 12, 24) for layer in program.layers)
    tolerance = torch.full((outputs,), largest, dtype=torch.float64)
    smoothing = Smoothing(tolerance, bounds, layers)
    return assemble(model, program, domain, replace(outcome, smoothing=smoothing))
