"""Every operation that can be read computes what onnxruntime computes, also when it is captured.

Of every fourth network, which are some of each kind, the partition is validated, too, and its
vertices are compared: what follows a capture does not depend on the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import splinecam as sc
from importing.onnx_cases import CASES, Case
from importing.onnx_files import DOUBLE, reference, saved
from splinecam.files.onnx_rules import RULES, onnx_table_markdown
from splinecam.network.capture.capturing import captured_by_walk
from splinecam.network.nonlinearities import SmoothScalar

_EPS = float(np.finfo(np.float32).eps)
_MOST_VERTICES = 10_000


def expected(path: Path, case: Case, points: torch.Tensor) -> torch.Tensor:
    """The outputs of onnxruntime at points, all at once or one by one, (N, n)."""
    dtype = np.float64 if case.elem == DOUBLE else np.float32
    points = points.reshape(len(points), -1)
    shape = [1 if size == "n" else size for size in case.shape]
    if case.shape[0] == "n":
        found = reference(path, points.numpy().astype(dtype).reshape(-1, *shape[1:]))[0]
        return torch.from_numpy(found.reshape(len(points), -1))
    if points.shape[1] == np.prod(shape):
        inputs = points.numpy().astype(dtype).reshape(-1, *shape)
        return torch.from_numpy(np.stack([y.ravel() for y in reference(path, *inputs)]))
    rows = points.numpy().astype(dtype).reshape(-1, *shape[1:])  # a fixed batch of equal rows
    found = [y[0].ravel() for y in reference(path, *(np.stack([x] * shape[0]) for x in rows))]
    return torch.from_numpy(np.stack(found))


def assert_close(found: Any, wanted: torch.Tensor, case: Case) -> None:
    """Equal up to the rounding of the type that onnxruntime computes in."""
    eps = 2.0**-52 if case.elem == DOUBLE else _EPS
    found = found.detach().reshape(wanted.shape).double()
    scale = float(wanted.abs().max()) + 1
    assert float((found - wanted.double()).abs().max()) <= 64 * eps * scale


LATEST = list({case.name.removesuffix(f"-{case.opset}"): case for case in CASES}.values())
EACH = [case for case in LATEST if not case.smooth]
PARTITIONED = EACH[::4]
SMOOTH = [case for case in LATEST if case.smooth]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_outputs_are_those_of_onnxruntime(case: Case, tmp_path: Path):
    path = saved(case.model(), tmp_path)
    model = sc.load_model(path)
    dtype = torch.float64 if case.elem == DOUBLE else torch.float32
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(5, *model.input_shape, generator=generator, dtype=dtype)
    wanted = expected(path, case, x)
    assert_close(model(x), wanted, case)
    assert_close(model(x[:1]), wanted[:1], case)
    if case.smooth:
        return
    size = int(np.prod(model.input_shape))
    if model.links:  # it takes milliseconds, where torch.export takes seconds
        assert captured_by_walk(model, (size,), torch.device("cpu")) is not None
    program = sc.capture(model, (size,), device="cpu").program
    found = program(x.double().reshape(len(x), size))
    assert_close(found if program.final is None else program.final(found), wanted, case)


@pytest.mark.few(12)
@pytest.mark.parametrize("case", PARTITIONED, ids=[case.name for case in PARTITIONED])
def test_vertices_have_the_values_of_onnxruntime(case: Case, tmp_path: Path):
    path = saved(case.model(), tmp_path)
    model = sc.load_model(path)
    generator = torch.Generator().manual_seed(2)
    size = int(np.prod(model.input_shape))
    if size == 1:
        pytest.skip("a plane has two dimensions")
    anchors = torch.randn(3, size, generator=generator, dtype=torch.float64)
    part = sc.partition(model, sc.Domain.through(*anchors))
    part.validate()
    most = _MOST_VERTICES if case.shape[0] == "n" else 20
    x = part._inputs(part.vertices[:most])
    program = sc.capture(model, (size,)).program
    values = part.values[:most] if program.final is None else program.final(part.values[:most])
    assert_close(values, expected(path, case, x), case)


@pytest.mark.parametrize("case", SMOOTH, ids=[case.name for case in SMOOTH])
def test_smooth_functions_become_layers(case: Case, tmp_path: Path):
    path = saved(case.model(), tmp_path)
    model = sc.load_model(path)
    program = captured_by_walk(model, model.input_shape, torch.device("cpu"), smooth=True)
    assert program is not None
    assert [type(layer) for layer in program.layers] == [SmoothScalar]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(5, *model.input_shape, generator=generator)
    assert_close(program(x.double()), expected(path, case, x), case)


def test_every_rule_has_a_case():
    used = {node.op_type for case in CASES for node in case.nodes}
    assert set(RULES) <= used
    assert len(PARTITIONED) >= 60


def test_the_page_lists_every_operation():
    page = Path(__file__).parents[2] / "docs" / "howto" / "onnx.md"
    assert onnx_table_markdown() in page.read_text()
