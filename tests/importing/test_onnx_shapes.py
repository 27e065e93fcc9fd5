"""Shapes of results by formulas, compared with what torch computes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from importing.onnx_files import graph_model, node, saved
from splinecam.network.layer_graph import Call, Input, Weight, blank_result

IMAGE = (2, 4, 9, 7)
LAYERS = [
    (nn.ReLU(), (2, 3)),
    (nn.PReLU(4), IMAGE),
    (nn.PReLU(), (2, 3)),
    (nn.Softmax(-1), (2, 3)),
    (nn.BatchNorm1d(5), (2, 5)),
    (nn.BatchNorm2d(4), IMAGE),
    (nn.Linear(7, 3), IMAGE),
    (nn.Linear(3, 5), (2, 3)),
    (nn.Flatten(), IMAGE),
    (nn.Conv1d(4, 6, 3, padding=1, stride=2), (2, 4, 9)),
    (nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 3)), IMAGE),
    (nn.Conv2d(4, 8, 9, groups=2, padding=1), IMAGE),
    (nn.Conv3d(2, 3, 2), (2, 2, 4, 5, 6)),
    (nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1), (2, 4, 5)),
    (nn.ConvTranspose2d(4, 6, (3, 2), stride=2, padding=(1, 0), dilation=(1, 2)), IMAGE),
    (nn.MaxPool1d(3, 2, 1), (2, 4, 9)),
    (nn.MaxPool2d((3, 2), (2, 1), (1, 0), (2, 1)), IMAGE),
    (nn.MaxPool2d(2, ceil_mode=True), IMAGE),
    (nn.AvgPool1d(3, 2, 1), (2, 4, 9)),
    (nn.AvgPool2d((3, 2), (2, 1), (1, 0)), IMAGE),
    (nn.AvgPool3d(2), (2, 2, 4, 5, 6)),
    (nn.AdaptiveAvgPool2d(1), IMAGE),
    (nn.AdaptiveMaxPool1d(1), (2, 4, 9)),
    (nn.ConstantPad2d((1, 2, 3, 0), 0.0), IMAGE),
    (nn.ConstantPad1d((1, -2), 0.0), (2, 4, 9)),
    (nn.GELU(), (2, 3)),  # one that has no formula
]
CALLS = [
    (Call("add.Tensor", Input(), Weight("c"), c=torch.zeros(4, 1, 7)), [(2, 4, 9, 1)]),
    (Call("mul.Tensor", Input(0), Input(1)), [(2, 3, 1), (2, 1, 5)]),
    (Call("div.Tensor", Input(), 2.0), [(2, 3)]),
    (Call("clamp", Input(), 0.0, 1.0), [(2, 3)]),
    (Call("maximum", Input(0), Input(1)), [(2, 3), (2, 3)]),
    (Call("gt.Tensor", Input(), Weight("c"), c=torch.zeros(())), [(2, 3)]),
    (Call("to.dtype", Input(), torch.float64), [(2, 3)]),
    (Call("reshape", Input(), [-1, 6, 6, 7]), [IMAGE]),
    (Call("permute", Input(), [0, 2, 3, 1]), [IMAGE]),
    (Call("transpose.int", Input(), 1, 3), [IMAGE]),
    (Call("transpose.int", Input(), 2, -1), [IMAGE]),
    (Call("index_select", Input(), 2, Weight("i"), i=torch.tensor([0, 0, 5])), [IMAGE]),
    (Call("slice.Tensor", Input(), 2, 1, 8, 3), [IMAGE]),
    (Call("slice.Tensor", Input(), 3, -5, 100, 2), [IMAGE]),
    (Call("cat", [Input(0), Input(1), Weight("c")], 1, c=torch.zeros(2, 2)), [(2, 3), (2, 4)]),
    (Call("cat", [Input(0), Input(1)], -1), [(2, 3, 2), (2, 3, 5)]),
    (Call("constant_pad_nd", Input(), [1, 2, 0, 3], 0.0), [IMAGE]),
    (Call("amax", Input(), [1, -1], False), [IMAGE]),
    (Call("mean.dim", Input(), [2], False), [IMAGE]),
    (Call("matmul", Input(0), Input(1)), [(2, 3, 4), (2, 4, 5)]),
]


@pytest.mark.parametrize(
    ("layer", "shapes"),
    [(layer, [shape]) for layer, shape in LAYERS] + CALLS,
    ids=lambda item: repr(item)[:60] if isinstance(item, nn.Module) else "",
)
def test_formulas_agree_with_torch(layer: nn.Module, shapes: list[tuple[int, ...]]) -> None:
    layer.eval()
    inputs = [torch.zeros(shape) for shape in shapes]
    empty = [tensor.to("meta") for tensor in inputs]
    with torch.no_grad():
        known = layer(*inputs)
    found = blank_result(layer, empty)
    assert (found.shape, found.dtype) == (known.shape, known.dtype)
    assert found.device.type == "meta"


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(4, 6, 12), IMAGE),
        (nn.Conv2d(3, 6, 2), IMAGE),
        (nn.ConvTranspose2d(4, 6, 2, padding=9), IMAGE),
        (nn.MaxPool2d(12), IMAGE),
        (nn.MaxPool2d(2, padding=2), IMAGE),
        (nn.AvgPool2d(12), IMAGE),
        (nn.Linear(3, 5), (2, 4)),
        (nn.BatchNorm2d(3), IMAGE),
        (Call("reshape", Input(), [-1, 5]), IMAGE),
        (Call("cat", [Input(0), Weight("c")], 1, c=torch.zeros(3, 2)), (2, 3)),
    ],
    ids=lambda item: repr(item)[:60] if isinstance(item, nn.Module) else "",
)
def test_what_does_not_fit_is_an_error_as_in_torch(layer: nn.Module, shape: Any) -> None:
    layer.eval()
    with pytest.raises(RuntimeError):
        layer(torch.zeros(shape))
    with pytest.raises(RuntimeError):
        blank_result(layer, [torch.zeros(shape).to("meta")])


@pytest.mark.slow
def test_reading_a_usual_network_does_not_import_the_compiler(tmp_path: Path) -> None:
    kernel = np.ones((4, 3, 3, 3), np.float32)
    ones = np.ones(4, np.float32)
    nodes = [
        node("Conv", "x k", "a", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "a s s s s", "b"),
        node("Relu", "b", "c"),
        node("MaxPool", "c", "d", kernel_shape=[2, 2], strides=[2, 2]),
        node("Add", "d d", "e"),
        node("GlobalAveragePool", "e", "f"),
        node("Flatten", "f", "g"),
        node("Gemm", "g w", "y"),
    ]
    constants = {"k": kernel, "s": ones, "w": np.ones((4, 2), np.float32)}
    path = saved(graph_model(nodes, ["batch", 3, 8, 8], constants=constants), tmp_path)
    code = (
        "import sys, splinecam; splinecam.load_model(sys.argv[1]); "
        "assert not {'torch._dynamo', 'sympy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
