"""Random ONNX graphs, with onnxruntime as the judge."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import splinecam as sc
from importing.onnx_files import saved
from importing.random_graphs import NEWEST, RandomGraph, reference
from splinecam.errors import CaptureError

POINTS = 3


def assert_same(found: Any, known: Any, seed: int) -> None:
    found, known = np.ravel(found), np.ravel(known)
    assert found.size == known.size, seed
    assert np.abs(found - known).max() <= 1e-4 * (1 + np.abs(known).max()), seed


def loaded(model: Any, folder: Path) -> Any:
    """The module; None for a window larger than its input, of which onnxruntime makes something."""
    try:
        return sc.load_model(saved(model, folder))
    except CaptureError as error:
        if "larger than its input" not in str(error):
            raise
        return None


@pytest.mark.parametrize("opset", range(7, NEWEST + 1))
def test_outputs_are_those_of_onnxruntime(opset: int, tmp_path: Path) -> None:
    compared = 0
    for seed in range(1000 * opset, 1000 * opset + 12):
        graph = RandomGraph(seed, opset)
        model = graph.grow(graph.random.randint(1, 9))
        points = [graph.numbers.normal(size=graph.shape).astype(graph.type) for _ in range(POINTS)]
        known = [reference(model, x) for x in points]
        module = None if known[0] is None else loaded(model, tmp_path)
        if module is None:
            continue
        batch = np.stack([x.reshape(module.input_shape) for x in points])
        with torch.no_grad():
            found = module(torch.from_numpy(batch))
        for row, value in zip(found, known, strict=True):
            assert_same(row, value, seed)
        compared += 1
    assert compared or opset > 24  # which onnxruntime may be too old for


@pytest.mark.parametrize("seed", range(500, 516))
def test_values_at_vertices_are_those_of_onnxruntime(seed: int, tmp_path: Path) -> None:
    graph = RandomGraph(seed, 7 + seed % 16)
    graph.type = np.dtype(np.float32)
    model = graph.grow(5, final=False)
    middle = graph.numbers.normal(size=graph.shape)
    module = loaded(model, tmp_path)
    if module is None or reference(model, middle.astype(np.float32)) is None:
        pytest.skip("onnxruntime does not have an operation of this graph")
    domain = sc.Domain.around(middle.reshape(module.input_shape), side=1.0)
    part = sc.partition(module, domain, progress=False, max_regions=20_000)
    assert part.validate().ok
    inputs = part.domain.embed(part.vertices[:40]).numpy().astype(np.float32)
    for x, value in zip(inputs, part.values, strict=False):
        assert_same(value, reference(model, x.reshape(graph.shape)), seed)
