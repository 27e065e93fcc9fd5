"""Open sizes, fixed batches, types of weights; and what is said of files that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import splinecam as sc
from importing.onnx_files import FLOAT, graph_model, helper, node, onnx, reference, saved
from splinecam.cli import main
from splinecam.files.onnx_rules import FOLDS, REJECTED, RULES


def weights(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


# -- one error ------------------------------------------------------------------------------------


def test_one_error_lists_all_nodes(tmp_path: Path):
    nodes = [
        node("Relu", "x", "a"),
        node("Tan", "a", "b"),
        node("Mul", "x a", "c"),
        helper.make_node("Gelu", ["b"], ["d"], domain="com.microsoft"),
        node("Add", "c d", "e"),
        node("Log", "e", "f"),
        node("MadeUp", "f", "g"),
        node("Relu", "g"),
    ]
    path = saved(graph_model(nodes, ("n", 2)), tmp_path)
    with pytest.raises(sc.UnsupportedOpError) as caught:
        sc.load_model(path)
    assert [(op.name, op.target) for op in caught.value.ops] == [
        ("/b/Tan", "Tan"),
        ("/c/Mul", "Mul"),
        ("d", "Gelu"),
        ("/f/Log", "Log"),
        ("/g/MadeUp", "MadeUp"),
    ]
    reasons = [op.reason for op in caught.value.ops]
    assert reasons[0] == reasons[3] == "it is not piecewise linear"
    assert reasons[1].startswith("it multiplies activations with each other")
    assert "of another library" in reasons[2]
    assert "not one of the operations that can be read" in reasons[4]
    assert "has to be replaced before the network is written" in str(caught.value)


REFUSED = {
    "softmax": [node("Softmax", "x", "s"), node("Relu", "s")],
    "divisor": [node("Relu", "x", "s"), node("Div", "c s")],
    "power": [node("Pow", "x half")],
    "product": [node("MatMul", "x w", "s"), node("Mul", "x s")],
    "argmax": [node("ArgMax", "x")],
    "indices": [node("MaxPool", "x3", "p i", kernel_shape=[2]), node("Cast", "i", to=FLOAT)],
    "whole numbers": [node("Cast", "x", "i", to=7), node("Cast", "i", to=FLOAT)],
    "jump": [node("ThresholdedRelu", "x", alpha=0.5)],
    "shrink": [node("Shrink", "x", lambd=0.5)],
    "shape": [node("ReduceSum", "x", "s"), node("Cast", "s", "t", to=7), node("Expand", "x t")],
    "cubic": [node("Resize", "x - two4", mode="cubic")],
    "norm": [node("LayerNormalization", "x c")],
    "training": [node("BatchNormalization", "x c c c c", training_mode=1)],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_piecewise_linear_is_refused(name: str, tmp_path: Path):
    constants = {"w": weights(2, 2), "c": weights(2), "half": np.float32(0.5), "two4": weights(2)}
    first = [node("Unsqueeze", "x ax", "x3")] if name == "indices" else []
    constants |= {"ax": np.array([1])} if first else {}
    path = saved(graph_model(first + REFUSED[name], (1, 2), constants=constants), tmp_path)
    with pytest.raises(sc.UnsupportedOpError) as caught:
        sc.load_model(path)
    assert len(caught.value.ops) == 1
    assert len(caught.value.ops[0].reason) > 10


SMOOTH = {
    "sigmoid": [node("Sigmoid", "x", "s"), node("MatMul", "s w")],
    "gelu": [node("Erf", "x", "s"), node("MatMul", "s w")],
    "square": [node("Pow", "x two", "s"), node("MatMul", "s w")],
    "gate": [node("Sigmoid", "x", "s"), node("Mul", "x s", "t"), node("MatMul", "t w")],
}


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_functions_are_refused_when_they_are_captured(name: str, tmp_path: Path):
    constants = {"w": weights(2, 2), "two": np.float32(2)}
    model = sc.load_model(saved(graph_model(SMOOTH[name], (1, 2), constants=constants), tmp_path))
    with pytest.raises(sc.UnsupportedOpError, match="smooth=1e-3") as caught:
        sc.partition(model, sc.Domain.box(-1, 1))
    first = SMOOTH[name][-2]
    assert [(op.name, op.target) for op in caught.value.ops] == [(first.name, first.op_type)]


def test_control_flow_is_refused(tmp_path: Path):
    value = helper.make_tensor_value_info("b", FLOAT, None)
    branch = helper.make_graph([helper.make_node("Relu", ["x"], ["b"])], "branch", [], [value])
    flow = helper.make_node("If", ["c"], ["y"], name="/If", then_branch=branch, else_branch=branch)
    path = saved(graph_model([flow], (1, 2), constants={"c": np.array(True)}), tmp_path)
    with pytest.raises(sc.UnsupportedOpError, match=r"/If \(If\): control flow"):
        sc.load_model(path)


def test_masks_that_jump_are_refused_by_their_names(tmp_path: Path):
    nodes = [node("Greater", "x zero", "g"), node("Where", "g x one")]
    constants = {"zero": np.float32(0), "one": np.float32(1)}
    path = saved(graph_model(nodes, (1, 2), constants=constants), tmp_path)
    with pytest.raises(sc.UnsupportedOpError, match=r"/y/Where \(Where\): it jumps"):
        sc.partition(path, sc.Domain.box(-1, 1))


def test_nodes_that_no_output_needs_are_ignored(tmp_path: Path):
    nodes = [node("Erf", "x", "e"), node("Relu", "x")]
    model = sc.load_model(saved(graph_model(nodes, (1, 2)), tmp_path))
    assert len(list(model.children())) == 1


def test_outputs_that_are_constant(tmp_path: Path):
    nodes = [node("Shape", "x", "s"), node("Cast", "s", to=FLOAT)]
    with pytest.raises(sc.CaptureError, match="does not depend on its input"):
        sc.load_model(saved(graph_model(nodes, (1, 2)), tmp_path))


def test_no_operation_has_both_a_rule_and_a_reason():
    assert not set(RULES) & set(REJECTED)
    schemas = {schema.name for schema in onnx.defs.get_all_schemas()}
    assert {*RULES, *FOLDS, *REJECTED} <= schemas


# -- shapes and types -----------------------------------------------------------------------------


def test_open_sizes(tmp_path: Path):
    nodes = [node("Conv", "x w", "c"), node("GlobalAveragePool", "c", "g"), node("Flatten", "g")]
    model = graph_model(nodes, ("n", 2, "h", "w"), constants={"w": weights(3, 2, 3, 3)})
    path = saved(model, tmp_path)
    with pytest.raises(sc.CaptureError, match=r"shape \(n, 2, h, w\): say the shape") as caught:
        sc.load_model(path)
    assert "input_shape=(3, 32, 32)" in str(caught.value)
    assert sc.load_model(path, input_shape=(2, 5, 6)).input_shape == (2, 5, 6)
    with pytest.raises(sc.CaptureError, match="takes inputs of shape"):
        sc.load_model(path, input_shape=(3, 5, 6))


def test_a_fixed_batch_of_images(tmp_path: Path):
    nodes = [node("Conv", "x w", "c"), node("Reshape", "c s")]
    constants = {"w": weights(3, 2, 3, 3), "s": np.array([8, -1])}
    model = graph_model(nodes, (8, 2, 4, 4), constants=constants)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, [8, 12]))
    path = saved(model, tmp_path)
    network = sc.load_model(path)
    assert network.input_shape == (2, 4, 4)
    x = torch.randn(8, 2, 4, 4)
    np.testing.assert_allclose(network(x).detach(), reference(path, x.numpy())[0], atol=1e-5)


@pytest.mark.parametrize("factor", [1e-6, 1.0])
@pytest.mark.parametrize("offset", [0.0, -50.0])
def test_rows_that_mix_are_no_batch(factor: float, offset: float, tmp_path: Path):
    # Weakly, or only at inputs at which a unit that sees all rows is active.
    nodes = [
        node("ReduceMean", "x", "m", axes=[0], keepdims=1),
        node("Add", "m o", "a"),
        node("Relu", "a", "r"),
        node("Mul", "r f", "s"),
        node("Add", "x s"),
    ]
    constants = {"o": np.float32(offset), "f": np.float32(factor)}
    path = saved(graph_model(nodes, (3, 4), constants=constants, opset=13), tmp_path)
    assert sc.load_model(path).input_shape == (3, 4)


@pytest.mark.parametrize("code", [10, 11, 16])
@pytest.mark.parametrize("raw", [True, False])
def test_types_of_weights(code: int, raw: bool, tmp_path: Path):
    numbers = np.array([[0.5, -1.25], [3.0, 0.0078125]])  # exact in all types
    model = graph_model([node("Cast", "w", "v", to=FLOAT), node("MatMul", "x v")], (1, 2))
    if raw:
        tensor = helper.make_tensor("w", code, [2, 2], numbers.flatten())
    else:
        tensor = onnx.TensorProto(name="w", data_type=code, dims=[2, 2])
        if code == 11:
            tensor.double_data.extend(numbers.flatten())
        else:
            half = numbers.astype(np.float16).view(np.uint16)
            bits = numbers.astype(np.float32).view(np.uint32) >> 16
            tensor.int32_data.extend((half if code == 10 else bits).flatten().tolist())
    model.graph.initializer.append(tensor)
    (weight,) = sc.load_model(saved(model, tmp_path)).parameters()
    assert weight.T.tolist() == numbers.tolist()
    assert weight.dtype == (torch.float64 if code == 11 else torch.float32)


def test_names_of_submodules_are_plain(tmp_path: Path):
    names = ["/a.b/Relu", "", "7", "forward", "/a.b/Relu"]
    values = ["x", *(f"v{i}" for i in range(len(names) - 1)), "y"]
    nodes = [
        helper.make_node("Relu", [values[i]], [values[i + 1]], name=name)
        for i, name in enumerate(names)
    ]
    path = saved(graph_model(nodes, (1, 2)), tmp_path)
    found = [name for name, _ in sc.load_model(path).named_children()]
    assert found == ["a_b_Relu", "v1", "Relu_7", "forward_2", "a_b_Relu_2"]
    layers = sc.partition(path, sc.Domain.box(-1, 1)).layers
    assert layers == ("/a.b/Relu", "v1", "7", "forward", "/a.b/Relu#2")


def test_random_numbers_are_left_alone(tmp_path: Path):
    nodes = [node("Conv", "x w", "c"), node("Flatten", "c")]
    path = saved(graph_model(nodes, (1, 2, 4, 4), constants={"w": weights(3, 2, 3, 3)}), tmp_path)
    before = torch.random.get_rng_state()
    sc.load_model(path)
    assert torch.equal(before, torch.random.get_rng_state())


# -- the command line -----------------------------------------------------------------------------


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    nodes = [node("Gemm", "x w", "g"), node("Relu", "g")]
    path = saved(graph_model(nodes, (1, 1, 2), constants={"w": weights(2, 3)}), tmp_path)
    assert main(["check", str(path)]) == 1
    assert "/g/Gemm  Gemm" in capsys.readouterr().out
    path = saved(graph_model(nodes, ("n", 2), constants={"w": weights(2, 3)}), tmp_path)
    assert main(["check", str(path)]) == 0
    assert "/y/Relu" in capsys.readouterr().out
    options = ["--box", "-1", "1", "--out", str(tmp_path / "out"), "--no-plot", "--quiet"]
    assert main(["partition", str(path), *options]) == 0
    assert (tmp_path / "out" / "partition.npz").exists()


def test_command_line_takes_the_shape_from_the_file(tmp_path: Path):
    nodes = [node("Flatten", "x", "f"), node("Gemm", "f w", "g"), node("Relu", "g")]
    path = saved(graph_model(nodes, (1, 1, 5), constants={"w": weights(5, 3)}), tmp_path)
    options = ["--slice", "0", "3", "--box", "-1", "1", "--no-plot", "--quiet"]
    assert main(["partition", str(path), *options, "--out", str(tmp_path / "out")]) == 0
    assert sc.load(tmp_path / "out" / "partition.npz").domain.input_shape == (1, 5)
