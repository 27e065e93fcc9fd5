"""Sweeps by processes on this machine."""

from __future__ import annotations

import math
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
import torch

import splinecam as sc
from parallel_cases import domains, kill_once, network, same_partitions

joblib = pytest.importorskip("joblib")

pytestmark = pytest.mark.slow


def test_the_same_partitions_come_from_workers() -> None:
    model, places = network(), domains()
    there = sc.sweep(model, places, n_jobs=2)
    same_partitions(there, sc.sweep(model, places))
    assert there[0].model is model
    assert there[0].validate().ok


def test_smooth_networks_are_sent_with_their_bounds() -> None:
    model = torch.nn.Sequential(network()[0], torch.nn.GELU(), torch.nn.Linear(16, 2))
    places, options = domains(2), {"smooth": sc.Smooth(0.1, refine="boundary")}
    here = sc.sweep(model, places, **options)
    there = sc.sweep(model, places, n_jobs=2, **options)
    same_partitions(there, here)
    for a, b in zip(there, here, strict=True):
        assert torch.equal(a.region_bounds, b.region_bounds)
        assert torch.equal(a.values, b.values)
        assert a.layers == b.layers
    counts = sc.sweep(model, places, n_jobs=2, reduce=len, **options)
    assert counts == [len(part) for part in here]


def test_the_same_chunks_give_the_same_bits() -> None:
    model, places = network(), domains()
    once, again = (sc.sweep(model, places, n_jobs=2, chunk=5) for _ in range(2))
    for a, b in zip(once, again, strict=True):
        assert torch.equal(a.vertices, b.vertices)
        assert torch.equal(a.values, b.values)


def test_a_function_is_applied_in_the_workers() -> None:
    model, places = network(), domains()
    found = sc.sweep(model, places, reduce=lambda part: (len(part), os.getpid()), n_jobs=2)
    assert [count for count, _ in found] == sc.sweep(model, places, reduce=len)
    assert os.getpid() not in {process for _, process in found}


def test_the_configuration_of_joblib_holds() -> None:
    model, places = network(), domains(6)
    with joblib.parallel_config(backend="loky", n_jobs=2, inner_max_num_threads=1):
        found = sc.sweep(model, places, reduce=lambda part: (os.getpid(), torch.get_num_threads()))
        here = sc.sweep(model, places, reduce=lambda part: os.getpid(), n_jobs=1)
    assert os.getpid() not in {process for process, _ in found}
    assert {threads for _, threads in found} == {1}
    assert {*here} == {os.getpid()}
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert {*sc.sweep(model, places, reduce=lambda part: os.getpid())} == {os.getpid()}


def test_workers_are_not_ended_for_the_memory_that_they_keep() -> None:
    def most(part: sc.Partition) -> float:
        return float(sys.modules["joblib.externals.loky.process_executor"]._MAX_MEMORY_LEAK_SIZE)

    assert set(sc.sweep(network(), domains(4), reduce=most, n_jobs=2)) == {math.inf}


def test_a_stream_in_any_order_has_every_domain_once() -> None:
    model, places = network(), domains()
    stream = sc.sweep(model, iter(places), n_jobs=2, stream=True, order=False, reduce=len, chunk=2)
    found = list(stream)
    assert sorted(number for number, _ in found) == list(range(len(places)))
    assert [dict(found)[i] for i in range(len(places))] == sc.sweep(model, places, reduce=len)


def test_a_lost_worker_is_replaced_and_an_interrupt_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLIB_TEMP_FOLDER", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model, places = network(), domains()
    mark = tmp_path / "killed"
    found = sc.sweep(model, places, reduce=kill_once(mark, places), n_jobs=2, chunk=3)
    assert mark.exists()
    assert found == sc.sweep(model, places, reduce=len)

    parent = os.getpid()

    def interrupt(part: sc.Partition) -> None:
        if part.domain.origin.tolist() == places[5].origin.tolist():
            os.kill(parent, signal.SIGINT)

    # Programs in the background of a shell ignore interrupts, and so may the tests.
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            sc.sweep(model, places, reduce=interrupt, n_jobs=2, chunk=1)
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert not list(tmp_path.glob("splinecam-*"))
