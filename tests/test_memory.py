"""Memory that one run lends to the next."""

from __future__ import annotations

import weakref
from dataclasses import replace
from threading import Barrier, Thread

import numpy as np
import pytest
import torch

import splinecam as sc
from splinecam import memory, state
from splinecam.capture import capture
from splinecam.engine import run
from splinecam.mesh import polygon_mesh


@pytest.fixture(autouse=True)
def _nothing_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_spare", [])


def test_what_was_lent_is_lent_again() -> None:
    with memory.borrowed():
        first = memory.lend(1000)
        second = memory.lend(500)
        assert first is not second
    with memory.borrowed():
        assert memory.lend(800) is first
        assert memory.lend(800) is not first
        assert memory.lend(400) is second


def test_what_grows_gets_the_most() -> None:
    with memory.borrowed():
        rooms = [memory.lend(numbers) for numbers in (500, 1000, 700)]
    with memory.borrowed():
        assert memory.lend(400, grows=True) is rooms[1]
        assert memory.lend(400) is rooms[0]


def test_what_is_snug_has_little_to_spare() -> None:
    with memory.borrowed():
        large, small = memory.lend(2000), memory.lend(1100)
    with memory.borrowed():
        assert memory.lend(1000, snug=True) is small
        assert len(memory.lend(1000, snug=True)) == 1000
        assert memory.lend(1000) is large


def test_what_is_handed_over_is_not_lent_again() -> None:
    with memory.borrowed():
        first, second = memory.lend(1000), memory.lend(1000)
        memory.hand_over(first[10:].ctypes.data)
    assert len(memory._spare) == 1
    assert memory._spare[0] is second


def test_threads_never_have_the_same_room() -> None:
    with memory.borrowed():
        rooms = [memory.lend(100) for _ in range(8)]
    together, taken = Barrier(8), []

    def take() -> None:
        with memory.borrowed():
            together.wait()
            taken.append(memory.lend(100))
            together.wait()

    workers = [Thread(target=take) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert {id(room) for room in taken} == {id(room) for room in rooms}


def test_outside_of_a_run_nothing_is_kept() -> None:
    room = memory.lend(10)
    assert room.shape == (10,)
    assert not memory._spare


def test_only_so_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KEPT", 8 * 1000)
    with memory.borrowed():
        first = memory.lend(600)
        large = weakref.ref(memory.lend(700))
        assert large() is None  # not held back until the run ends
    assert len(memory._spare) == 1
    assert memory._spare[0] is first
    with memory.borrowed():
        memory.lend(900)
    assert [room.shape[0] for room in memory._spare] == [900]


def test_what_an_error_leaves_behind_is_not_used_again() -> None:
    def fails() -> None:
        with memory.borrowed():
            memory.lend(10)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
    assert not memory._spare


@pytest.mark.parametrize("loops", [False, pytest.param(True, marks=pytest.mark.loops)])
def test_a_result_stays_as_it_is_when_the_next_run_begins(
    loops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "_LARGE", 0)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(2, 20), torch.nn.ReLU(), torch.nn.Linear(20, 2)]
    model, domain = torch.nn.Sequential(*layers).double(), sc.Domain.box(-1, 1)
    program = capture(model, (2,), device=torch.device("cpu"))
    outcome = run(program, domain)
    before = outcome.output.clone(), {k: v.clone() for k, v in vars(outcome.mesh).items()}
    assert memory._spare
    for room in memory._spare:
        room.fill(np.nan)
    again = run(program, domain)
    for made in (outcome, again):
        assert torch.equal(made.output, before[0])
        assert all(torch.equal(getattr(made.mesh, k), v) for k, v in before[1].items())


def test_a_mesh_is_handed_over_or_copied() -> None:
    with torch.inference_mode():
        snug = polygon_mesh(torch.rand(3, 2).double())
        behind = torch.rand(100, 2).double()
        loose = replace(snug, uv=behind[:3])
    kept, copied = snug.kept(), loose.kept()
    assert kept.uv.data_ptr() == snug.uv.data_ptr()
    assert copied.uv.data_ptr() != behind.data_ptr()
    for one, other in ((kept, snug), (copied, loose)):
        assert not any(value.is_inference() for value in vars(one).values())
        assert all(torch.equal(value, getattr(other, k)) for k, value in vars(one).items())
