"""A computation that is divided after its first layers gives the same regions when it is joined."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from splinecam import Domain
from splinecam.engine.activations import join_states
from splinecam.engine.division import Coarse, begin, shares
from splinecam.engine.plan import Plan
from splinecam.engine.run import Outcome, outcome_of, run
from splinecam.engine.step import Computation
from splinecam.network.capture import capture
from splinecam.partitions.partition import assemble


def _network(pooled: bool) -> nn.Module:
    torch.manual_seed(3)
    first = [nn.MaxPool1d(2), nn.Linear(12, 24)] if pooled else [nn.ReLU(), nn.Linear(24, 24)]
    return nn.Sequential(nn.Linear(2, 24), *first, nn.LeakyReLU(), nn.Linear(24, 2))


@pytest.mark.parametrize("pooled", [False, True])
def test_tiles_that_are_joined_are_the_same_partition(pooled: bool) -> None:
    network, domain = _network(pooled), Domain.box(-1, 1)
    program = capture(network, (2,))
    plan = Plan.of(program)
    whole = assemble(network, program, domain, run(program, domain))
    with torch.inference_mode():
        made = begin(plan, domain, enough=20)
        assert isinstance(made, Coarse)
        coarse = Coarse.from_arrays(made.arrays(), program)
        tiles = [coarse.tile(some) for some in shares(range(coarse.mesh.num_faces), 5)]
        assert len(tiles) == 8
        work = Computation(plan)
        ends = [coarse.finish(work, tile) for tile in tiles]
        joined = join_states(coarse.mesh, tiles, ends)
        outcome = outcome_of(work, joined).kept()
    part = assemble(network, program, domain, outcome)
    assert part.validate().ok
    rows = [torch.cat([each.centroids, each.areas[:, None]], 1) for each in (part, whole)]
    places = [each[torch.argsort(each[:, 0] + 0.1 * each[:, 1])] for each in rows]
    assert torch.allclose(*places, atol=1e-12, rtol=0)


def test_a_computation_that_has_too_few_faces_comes_to_its_end() -> None:
    program = capture(_network(False), (2,))
    with torch.inference_mode():
        assert isinstance(begin(Plan.of(program), Domain.box(-1, 1)), Outcome)
