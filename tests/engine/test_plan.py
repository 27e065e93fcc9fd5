"""Where a run computes: the choice, the way from one device to another, and what comes of it.

There need not be a GPU: the second place of these plans is the CPU without the compiled kernel.
"""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam._util import options
from splinecam.engine.batched import run_batch
from splinecam.engine.plan import Place, Plan, crossing_units, first_device, vertices_after
from splinecam.engine.run import Outcome, run
from splinecam.geometry.subdivision import Mesh, polygon_mesh
from splinecam.network.capture import capture
from splinecam.network.program import Program

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
BOX = sc.Domain.box(-2, 2)


def network(*widths: int) -> nn.Sequential:
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1]).double()


def two_places(program: Program, enough: float, memory: int = 1 << 30) -> Plan:
    """From the compiled kernel to tensor operations, each with a program of its own."""
    there = program.to("cpu")
    first = Place.of(program, memory)
    return Plan(first, lambda: Place.of(there, memory, compiled=False), enough)


def same(one: Outcome, two: Outcome) -> None:
    for name, value in vars(one.mesh).items():
        other = getattr(two.mesh, name)
        if value.dtype == torch.float64:
            torch.testing.assert_close(value, other, rtol=0, atol=1e-12)
        else:
            assert torch.equal(value, other), name
    torch.testing.assert_close(one.output, two.output, rtol=0, atol=1e-12)
    assert set(one.layer_errors) == set(two.layer_errors)


@pytest.mark.parametrize("enough", [0, 3_000, 30_000, 100_000, 300_000, 1e9])
@pytest.mark.parametrize("pooled", [False, True])
def test_the_result_does_not_depend_on_where_it_goes_on(enough: float, pooled: bool) -> None:
    model: nn.Module = network(2, 24, 24, 24, 2)
    if pooled:
        model = nn.Sequential(*model[:4], nn.Unflatten(1, (6, 4)), nn.MaxPool1d(4), nn.Flatten())
    program = capture(model, (2,))
    same(run(program, BOX, plan=two_places(program, enough)), run(program, BOX))


def test_a_program_that_has_run_moves_to_another_device() -> None:
    program = capture(nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU()), (2,))
    first = run(program, BOX, compiled=False)
    same(run(program.to("cpu"), BOX, compiled=False), first)


def test_the_log_tells_where_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    program = capture(network(2, 16, 16, 1), (2,))
    told = {}
    for enough in (0, 10_000, 1e9):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="splinecam"):
            run(program, BOX, plan=two_places(program, enough))
        told[enough] = [record.message for record in caplog.records]
    assert told[0] == ["stage 1 of 3: computed on cpu from here on"]
    assert told[10_000] == ["stage 2 of 3: computed on cpu from here on"]
    assert told[1e9] == ["all layers were computed on cpu"]
    with caplog.at_level(logging.INFO, logger="splinecam"):
        caplog.clear()
        run(program, BOX)
    assert not caplog.records  # there was nothing to choose


def test_what_has_no_room_goes_on_at_the_second_place_before_it_is_cut_in_tiles() -> None:
    program = capture(network(2, 24, 24, 1), (2,))
    there = program.to("cpu")
    plan = Plan(Place.of(program, 100_000), lambda: Place.of(there, 1 << 30), 1e9)
    found = run(program, BOX, plan=plan)
    assert found.mesh.num_faces * 1000 > 100_000
    same(found, run(program, BOX))


@pytest.mark.parametrize("memory", [1 << 30, 400_000])
def test_stacks_and_tiles_go_on_there_too(memory: int) -> None:
    program = capture(network(2, 12, 12, 1), (2,))
    domains = [sc.Domain.box(-1 - k / 8, 1) for k in range(6)]
    alone = [run(program, domain) for domain in domains]
    for enough in (0, 20_000, 60_000, 1e9):
        plan = two_places(program, enough, memory)
        for one, two in zip(run_batch(program, domains, plan=plan), alone, strict=True):
            assert one.mesh.num_faces == two.mesh.num_faces
            assert set(one.layer_errors) == set(two.layer_errors)


def test_explicit_devices_and_large_models_begin_where_they_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(options, "cuda_is_there", lambda: True)
    small, large = network(2, 16, 1), nn.Linear(2000, 2000, device="meta")
    assert first_device("auto", small, (2,)) == CPU
    assert first_device("cuda", small, (2,)) == CUDA
    assert first_device("cpu", small, (2,)) == CPU
    assert first_device("auto", large, (2000,)) == CUDA
    assert first_device("auto", small, (3, 224, 224)) == CUDA
    monkeypatch.setattr(options, "cuda_is_there", lambda: False)
    assert first_device("auto", large, (2000,)) == CPU


def test_vertices_are_foretold_within_a_half() -> None:
    program = capture(network(2, 64, 64, 64, 1), (2,))
    meshes: list[Mesh] = [polygon_mesh(BOX.corners)]
    for depth in (1, 2, 3):
        layers = network(2, *[64] * depth, 1)
        layers.load_state_dict({**_weights(program, depth)}, strict=False)
        meshes.append(run(capture(layers, (2,)), BOX).mesh)
    for before, after in pairwise(meshes):
        assert 0.5 < vertices_after(before, 64) / after.num_vertices < 2


def _weights(program: Program, depth: int) -> dict[str, torch.Tensor]:
    steps = [stage.steps[0] for stage in program.stages[:depth]]
    return {
        f"{2 * i}.{name}": value
        for i, step in enumerate(steps)
        for name, value in zip(("weight", "bias"), step.args[1:], strict=True)
    }


def test_only_units_that_change_sign_are_expected_to_cut() -> None:
    program = capture(network(2, 3, 1), (2,))
    low, high = torch.tensor([-1.0, 0.5, -2.0]), torch.tensor([1.0, 1.0, -1.0])
    assert crossing_units(program.layers[0], low, high) == 1
    pool = capture(nn.Sequential(nn.Unflatten(1, (1, 3)), nn.MaxPool1d(3)), (3,)).layers[0]
    assert crossing_units(pool, low, high) == 3


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("widths", [(2, 16, 16, 1), (2, 128, 128, 128, 1)])
def test_cuda_gives_the_same_by_default_as_alone(widths: tuple[int, ...]) -> None:
    model = network(*widths)
    parts = [sc.partition(model, BOX, device=name, progress=False) for name in ("auto", "cpu")]
    assert parts[0].mesh.uv.is_cuda
    assert parts[0]._network.device.type == "cuda"
    assert [len(part) for part in parts] == [len(parts[1])] * 2
    assert parts[0].validate().ok
    (swept,) = sc.sweep(model, [BOX])
    assert swept.mesh.uv.is_cuda
    assert len(swept) == len(parts[1])
