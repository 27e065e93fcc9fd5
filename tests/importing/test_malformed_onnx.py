"""ONNX files that are well-formed messages, and say something impossible: one clear error each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper

import splinecam as sc
from importing.onnx_files import FLOAT, graph_model, node, reference, saved
from splinecam.errors import SplineCamError

IMAGE = [1, 2, 6, 6]
KERNEL = {"k": np.ones((2, 2, 3, 3), np.float32)}
ONE = np.ones(1, np.float32)


def with_functions(*functions: Any, call: str) -> Any:
    """A model that calls a function of the domain ``f``."""
    call_it = helper.make_node(call, ["x"], ["y"], domain="f")
    model = graph_model([call_it], [1, 4], functions=list(functions))
    model.opset_import.append(helper.make_opsetid("f", 1))
    return model


def function(name: str, *nodes: Any) -> Any:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, ["x"], ["y"], list(nodes), opsets)


def called(name: str, source: str = "x", result: str = "y") -> Any:
    return helper.make_node(name, [source], [result], domain="f")


def branch(*nodes: Any) -> Any:
    return helper.make_graph(
        list(nodes), "branch", [], [helper.make_tensor_value_info("y", FLOAT, None)]
    )


def recursive_branch() -> Any:
    truth = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True)))
    either = helper.make_node(
        "If",
        ["c"],
        ["y"],
        then_branch=branch(called("A")),
        else_branch=branch(node("Relu", "x")),
    )
    return with_functions(function("A", truth, either), call="A")


def deep_functions(depth: int) -> Any:
    chain = [function(f"A{k}", called(f"A{k + 1}")) for k in range(depth)]
    return with_functions(*chain, function(f"A{depth}", node("Relu", "x")), call="A0")


def doubling_functions() -> Any:
    chain = [
        function(f"A{k}", called(f"A{k + 1}", "x", "t"), called(f"A{k + 1}", "t", "y"))
        for k in range(60)
    ]
    return with_functions(*chain, function("A60", node("Relu", "x")), call="A0")


def sparse() -> Any:
    model = graph_model([node("Add", "x w")], [1, 4])
    tensor = model.graph.sparse_initializer.add()
    tensor.values.CopyFrom(numpy_helper.from_array(ONE, "w"))
    tensor.indices.CopyFrom(numpy_helper.from_array(np.array([10**15])))
    tensor.dims.append(10**18)
    return model


def two_initialisers() -> Any:
    model = graph_model([node("Add", "x w")], [1, 4], constants={"w": ONE})
    model.graph.initializer.append(numpy_helper.from_array(2 * ONE, "w"))
    return model


def many_constants() -> Any:
    """Thirty constants of which each is allowed, and which together need gigabytes."""
    nodes = [node("ConstantOfShape", "s", f"k{i}") for i in range(30)]
    nodes += [node("ReduceMax", f"k{i}", f"m{i}", keepdims=0) for i in range(30)]
    total = helper.make_node("Max", ["x", *(f"m{i}" for i in range(30))], ["y"])
    return graph_model([*nodes, total], [1, 4], constants={"s": np.array([2**24])})


def pooled(**attributes: Any) -> Any:
    return graph_model([node("MaxPool", "x", **attributes)], IMAGE)


def convolved(**attributes: Any) -> Any:
    return graph_model([node("Conv", "x k", **attributes)], IMAGE, constants=KERNEL)


def reused(name: str) -> Any:
    nodes = [node("Relu", "x", name), node("Add", f"x {name}")]
    return graph_model(nodes, [1, 4], constants={"w": ONE})


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "a function that calls itself in a branch": (recursive_branch, "A calls itself"),
    "a function that is not called": (
        lambda: with_functions(
            function("A", node("Relu", "x")), function("B", called("B")), call="A"
        ),
        "B calls itself",
    ),
    "functions within functions": (lambda: deep_functions(5000), "100 deep"),
    "functions that double": (doubling_functions, "more than 20000 nodes"),
    "sparse weights": (sparse, "'w' .* is sparse"),
    "two initialisers": (two_initialisers, "initialisers have the same name"),
    "a node that makes an initialiser": (lambda: reused("w"), "'w' is made twice"),
    "a node that makes the input": (lambda: reused("x"), "'x' is made twice"),
    "many constants": (many_constants, "entries together"),
    "thousands of axes": (lambda: graph_model([node("Relu", "x")], [1] * 5000), "5000 axes"),
    "a gigantic input": (lambda: graph_model([node("Relu", "x")], [1, 2**40]), "at most"),
    "a window larger than its input": (lambda: pooled(kernel_shape=[7, 7]), "larger than its"),
    "a kernel larger than its input": (lambda: convolved(dilations=[3, 3]), "larger than its"),
    "a gigantic stride": (lambda: pooled(kernel_shape=[2, 2], strides=[2**62] * 2), "gigantic"),
    "a gigantic padding": (lambda: convolved(pads=[10**12] * 4), "gigantic"),
    "an unknown padding": (lambda: convolved(auto_pad="HUH"), "'HUH' is unknown"),
    "an empty output": (
        lambda: graph_model([node("Slice", "x a a")], [1, 4], constants={"a": np.array([9])}),
        "no numbers in it",
    ),
    "no groups": (lambda: convolved(group=0), "does not fit"),
    "a stride of 0": (lambda: convolved(strides=[0, 0]), "negative"),
    "text for numbers": (lambda: pooled(kernel_shape="two"), "do not fit|cannot be followed"),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused(name: str, tmp_path: Path) -> None:
    make, words = CASES[name]
    with pytest.raises(SplineCamError, match=words):
        sc.load_model(saved(make(), tmp_path))


def test_names_that_are_not_text(tmp_path: Path) -> None:
    content = graph_model([node("Relu", "x")], [1, 4]).SerializeToString()
    path = tmp_path / "net.onnx"
    path.write_bytes(content.replace(b"/Relu", b"/\xff\xfe\xfdu"))
    with pytest.raises(SplineCamError, match=r"UTF-8|decoded"):
        sc.load_model(path)


def test_functions_of_usual_depth_are_written_out(tmp_path: Path) -> None:
    module = sc.load_model(saved(deep_functions(90), tmp_path))
    x = torch.tensor([[-1.0, 2.0, -3.0, 4.0]])
    assert torch.equal(module(x), torch.relu(x))


def test_thousands_of_nodes_with_one_name(tmp_path: Path) -> None:
    count = 3000
    nodes = [
        helper.make_node("Relu", [f"a{k}" if k else "x"], [f"a{k + 1}"], name="same")
        for k in range(count)
    ]
    module = sc.load_model(saved(graph_model(nodes, [1, 4], outputs=[f"a{count}"]), tmp_path))
    assert len(list(module.children())) == count
    assert dict(module.named_children()).keys() >= {"same", "same_2", f"same_{count}"}


def test_aligned_corners_as_in_onnxruntime(tmp_path: Path) -> None:
    """A scale that does not give a whole size: the size of the output counts, not the scale."""
    attributes = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    scales = np.array([1, 1, 1.5, 2], np.float32)
    model = graph_model(
        [node("Resize", "x - s", **attributes)], [1, 1, 5, 7], constants={"s": scales}
    )
    path = saved(model, tmp_path)
    x = np.random.default_rng(0).normal(size=(1, 1, 5, 7)).astype(np.float32)
    found = sc.load_model(path)(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(found, reference(path, x)[0], rtol=1e-5, atol=1e-6)
