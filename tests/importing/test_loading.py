"""A network from an ONNX file is the network in the file, wherever a model may be given."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import splinecam as sc
from importing.onnx_files import (
    FLOAT,
    LEARNING,
    dense_file,
    graph_model,
    helper,
    node,
    reference,
    saved,
)
from splinecam.viewer.subjects import session_of


def test_module_is_readable(tmp_path):
    model = sc.load_model(dense_file(tmp_path))
    assert repr(model) == (
        "OnnxModule('net.onnx', opset 13, inputs (2,)\n"
        "  (fc1_MatMul): Linear(in_features=2, out_features=8, bias=True)\n"
        "  (act_Relu): ReLU()\n"
        "  (fc2_Gemm): Linear(in_features=8, out_features=3, bias=True)\n)"
    )
    assert not model.training
    assert [name for name, _ in model.named_parameters()] == [
        f"{layer}.{name}" for layer in ("fc1_MatMul", "fc2_Gemm") for name in ("weight", "bias")
    ]


def test_partition_of_a_path(tmp_path):
    path, domain = dense_file(tmp_path), sc.Domain.box(-1, 1)
    part = sc.partition(path, domain)
    assert part.validate().ok
    layers = list(sc.load_model(str(path)).children())
    same = sc.partition(nn.Sequential(*layers), domain)
    assert torch.equal(part.vertices, same.vertices)
    assert torch.equal(part.weight, same.weight)
    assert part.layers == ("/act/Relu",)
    values = reference(path, part._inputs(part.vertices).numpy())[0]
    np.testing.assert_allclose(part.values.numpy(), values, rtol=1e-5, atol=1e-5)


def test_capture_and_sweep_of_a_path(tmp_path):
    path = dense_file(tmp_path)
    assert sc.capture(path, (2,)).layers == ("/act/Relu",)
    domains = [sc.Domain.box(-1, 1), sc.Domain.box(0, 1)]
    assert [len(part) for part in sc.sweep(path, domains)] == [
        len(sc.partition(path, domain)) for domain in domains
    ]


def test_module_can_be_copied_moved_and_trained(tmp_path):
    model = sc.load_model(dense_file(tmp_path))
    x = torch.rand(5, 2)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x), model(x))
    assert model.double()(x.double()).dtype == torch.float64
    model(x.double()).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_inputs_of_another_shape_are_reshaped(tmp_path):
    model = sc.load_model(dense_file(tmp_path, shape=(1, 1, 1, 2)))
    assert model.input_shape == (1, 1, 2)
    x = torch.rand(5, 2)
    assert torch.equal(model(x), model(x.view(5, 1, 1, 2)))
    assert sc.partition(model, sc.Domain.box(-1, 1)).validate().ok
    with pytest.raises(ValueError, match=r"takes inputs of shape \(1, 1, 2\)"):
        model(torch.rand(5, 3))


def test_several_outputs(tmp_path):
    nodes = [node("Relu", "x", "a"), node("Neg", "x", "b"), helper.make_node("Abs", ["b"], ["c"])]
    path = saved(graph_model(nodes, (1, 2), outputs=("a", "c")), tmp_path)
    found = sc.load_model(path)(torch.tensor([[1.0, -2.0]]))
    assert {name: value.tolist() for name, value in found.items()} == {
        "a": [[1.0, 0.0]],
        "c": [[1.0, 2.0]],
    }
    domain = sc.Domain.box(-1, 1)
    assert sc.partition(path, domain, output="a").layers == ("/a/Relu",)
    assert sc.partition(path, domain, output=1).layers == ("c",)
    with pytest.raises(sc.CaptureError, match="choose one with output='a'"):
        sc.partition(path, domain)


def test_final_softmax_is_left_out(tmp_path):
    nodes = [node("Relu", "x", "a"), node("Softmax", "a", axis=-1)]
    path = saved(graph_model(nodes, ("n", 2)), tmp_path)
    assert "final softmax left out" in repr(sc.capture(path, (2,)))
    assert sc.partition(path, sc.Domain.box(-1, 1)).validate().ok


def test_missing_file():
    with pytest.raises(sc.FileError, match=r"There is no file absent\.onnx"):
        sc.partition("absent.onnx", sc.Domain.box(-1, 1))
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, not the string 'net'"):
        sc.partition("net", sc.Domain.box(-1, 1))


def test_paths_for_models_elsewhere(tmp_path):
    pytest.importorskip("matplotlib")
    path, domain = dense_file(tmp_path), sc.Domain.box(-1, 1)
    sc.partition(path, domain).save(tmp_path / "part.npz")
    part = sc.load(tmp_path / "part.npz", model=path)
    assert part.validate().ok
    with pytest.raises(TypeError, match="the path of a Keras model"):
        part.attach("net.h5")
    (pane,) = session_of([path, domain]).panes
    assert pane is not None


def classifier(zipped: bool, classes: Any, **others: Any) -> Any:
    """What skl2onnx writes of a scaler and a perceptron with three classes."""
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(size=(2, 5)), "v": rng.normal(size=(5, 3))}
    nodes = [
        node("Scaler", "x", "a", domain=LEARNING, offset=[0.5, -0.5], scale=[2.0, 3.0]),
        node("Cast", "a", "b", to=FLOAT),
        node("MatMul", "b w", "c"),
        node("Relu", "c", "d"),
        node("MatMul", "d v", "e"),
        node("Softmax", "e", "p", axis=1),
        node("ArgMax", "p", "k", axis=1),
        node("ArrayFeatureExtractor", "classes k", "l", domain=LEARNING),
        node("Reshape", "l s", "label"),
    ]
    names = {"classlabels_strings": list(map(str, classes))}
    nodes.append(
        node("ZipMap", "p", "y", domain=LEARNING, **names) if zipped else node("Identity", "p")
    )
    given = {name: value.astype(np.float32) for name, value in constants.items()}
    given |= {"classes": np.array(classes), "s": np.array([-1])}
    model = graph_model(nodes, ("n", 2), outputs=("label", "y"), constants=given, **others)
    strings = np.array(classes).dtype.kind == "U"
    model.graph.output[0].type.tensor_type.elem_type = 8 if strings else 7
    if zipped:
        del model.graph.output[1:]
        model.graph.output.append(
            helper.make_value_info(
                "y",
                helper.make_sequence_type_proto(
                    helper.make_map_type_proto(8, helper.make_tensor_type_proto(FLOAT, []))
                ),
            )
        )
    return model


@pytest.mark.few(2)
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("classes", [["no", "maybe", "yes"], [3, 5, 7], [0, 1, 2]])
def test_classifiers_of_scikit_learn(tmp_path: Path, zipped: bool, classes: Any) -> None:
    path = saved(classifier(zipped, classes), tmp_path)
    model = sc.load_model(path)
    assert model.left_out == ("label",)
    assert model.class_names == (None if 0 in classes else tuple(map(str, classes)))
    x = np.random.default_rng(1).normal(size=(20, 2)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    label, wanted = session.run(None, {"x": x})
    found = model(torch.from_numpy(x))["y"]
    if zipped:
        wanted = np.array([[row[str(name)] for name in classes] for row in wanted])
    assert np.abs(found.detach().numpy() - wanted).max() < 1e-6
    part = sc.partition(path, sc.Domain.box(-2, 2), names=model.class_names, progress=False)
    assert part.stripped == "softmax"
    assert part.validate().ok
    assert [classes[k] for k in found.argmax(1).tolist()] == label.tolist()
    same = sc.partition(path, sc.Domain.box(-2, 2), output="y", progress=False)
    assert len(same) == len(part)
    with pytest.raises(sc.CaptureError, match=r"no output 'label': .*'y'"):
        sc.partition(path, sc.Domain.box(-2, 2), output="label", progress=False)


def test_files_without_any_output_that_can_be_read(tmp_path: Path) -> None:
    model = classifier(False, ["a", "b", "c"])
    del model.graph.output[1]
    with pytest.raises(sc.UnsupportedOpError, match="ArgMax"):
        sc.load_model(saved(model, tmp_path))
    nodes = [node("Normalizer", "x", "a", domain=LEARNING, norm="L2"), node("Relu", "a")]
    with pytest.raises(sc.UnsupportedOpError, match="normalise the data before"):
        sc.load_model(saved(graph_model(nodes, ("n", 2)), tmp_path))
    model = classifier(False, ["a", "b", "c"])
    model.graph.node[0].op_type = "Normalizer"
    with pytest.raises(sc.UnsupportedOpError) as caught:
        sc.load_model(saved(model, tmp_path))
    assert [op.target for op in caught.value.ops] == ["Normalizer"]  # nothing of the label
    nodes = [node("Scaler", "x", domain=LEARNING, offset=[1.0, 2.0, 3.0], scale=[1.0])]
    with pytest.raises(sc.UnsupportedOpError, match="one offset and one scale"):
        sc.load_model(saved(graph_model(nodes, ("n", 2)), tmp_path))
    nodes = [node("Scaler", "x", offset=[1.0], scale=[1.0])]  # of no domain
    with pytest.raises(sc.UnsupportedOpError, match="another library"):
        sc.load_model(saved(graph_model(nodes, ("n", 2)), tmp_path))


def test_layers_that_nothing_needs_are_left_out(tmp_path: Path) -> None:
    nodes = [node("Sigmoid", "x", "p"), node("Sub", "one p", "q"), node("Concat", "q p", axis=1)]
    path = saved(graph_model(nodes, ("n", 1), constants={"one": np.float32(1)}), tmp_path)
    kinds = [type(layer).__name__ for layer in sc.load_model(path).children()]
    assert kinds == ["Call", "Softmax"]
