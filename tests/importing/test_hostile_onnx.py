"""Damaged and hostile files: one clear error, nothing executed, nothing read that is not theirs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import splinecam as sc
from importing.onnx_files import (
    FLOAT,
    INT64,
    dense_file,
    graph_model,
    helper,
    node,
    onnx,
    reference,
    saved,
)
from splinecam.files import onnx_file


def load(content: bytes, folder: Path) -> Any:
    path = folder / "net.onnx"
    path.write_bytes(content)
    return sc.load_model(path)


@pytest.mark.parametrize("large", [onnx_file._LARGE, 8])
def test_every_truncation(large: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onnx_file, "_LARGE", large)
    whole = dense_file(tmp_path).read_bytes()
    for size in range(len(whole)):
        with pytest.raises(sc.SplineCamError, match=r"net\.onnx"):
            load(whole[:size], tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return dense_file(tmp_path_factory.mktemp("whole")).read_bytes()


@given(data=st.data())
def test_changed_bytes(data: st.DataObject, whole: bytes, tmp_path_factory: pytest.TempPathFactory):
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    found = []
    for large in (onnx_file._LARGE, 8):  # with all weights in the message, and in the file
        model = None
        with suppress(sc.SplineCamError), mock.patch.object(onnx_file, "_LARGE", large):
            model = load(bytes(content), tmp_path_factory.mktemp("changed"))
        assert model is None or len(list(model.children())) >= 1
        weights = () if model is None else model.state_dict().values()
        found.append([x.nan_to_num().tolist() for x in weights])
    assert found[0] == found[1]


def test_weights_that_stay_in_the_file(tmp_path: Path):
    wide = {"w": np.random.default_rng(0).normal(size=(4, 2**13)).astype(np.float32)}
    chain = [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("ReduceMax", "r", keepdims=0)]
    path = saved(graph_model(chain, [1, 4], constants=wide), tmp_path)
    message = onnx_file.read_message(path)
    assert message.large["w"].size == wide["w"].nbytes
    assert not message.model.graph.initializer[0].raw_data
    x = np.ones((1, 4), np.float32)
    made = sc.load_model(path)(torch.tensor(x))
    assert made.item() == pytest.approx(float(reference(path, x)[0]), rel=1e-5)


def test_parts_that_are_there_twice(tmp_path: Path):
    ones, few = np.ones(4, np.float32), np.ones(1, np.float32)
    model = graph_model([node("Add", "x w")], [1, 4], constants={"w": ones})
    graph = model.graph.SerializeToString()
    second = b"\x3a" + onnx_file._as_varint(len(graph)) + graph
    with pytest.raises(sc.SplineCamError, match="cannot be decoded, as there is a second graph"):
        load(model.SerializeToString() + second, tmp_path)
    tensor = model.graph.initializer[0]
    given = tensor.SerializeToString() + b"\x4a\x04" + few.tobytes()
    tensor.Clear()
    rest = model.graph.SerializeToString().replace(b"\x2a\x00", b"")
    rest += b"\x2a" + onnx_file._as_varint(len(given)) + given
    model.ClearField("graph")
    whole = model.SerializeToString() + b"\x3a" + onnx_file._as_varint(len(rest)) + rest
    with (
        mock.patch.object(onnx_file, "_LARGE", 8),
        pytest.raises(sc.SplineCamError, match="cannot be decoded"),
    ):
        load(whole, tmp_path)


def test_files_of_many_tiny_fields_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onnx_file, "_MOST_FIELDS", 1000)
    inner = b"\x98\x06\x01" * 2**15  # of a graph, which has no field 99
    with pytest.raises(sc.SplineCamError, match="more than 1,000 fields"):
        load(b"\x3a" + onnx_file._as_varint(len(inner)) + inner, tmp_path)


@given(content=st.binary(max_size=200))
def test_any_bytes(content: bytes, tmp_path_factory: pytest.TempPathFactory):
    with pytest.raises(sc.SplineCamError):
        load(content, tmp_path_factory.mktemp("any"))


# -- gigantic values ------------------------------------------------------------------------------

_HUGE = 2**40
_SHAPE = np.array([1, _HUGE], np.int64)
GIGANTIC = {
    "ConstantOfShape": ([node("ConstantOfShape", "s", "c"), node("Add", "x c")], {"s": _SHAPE}),
    "Expand": ([node("Expand", "x s")], {"s": np.array([_HUGE, 4])}),
    "Tile": ([node("Tile", "x s")], {"s": np.array([_HUGE, 1])}),
    "Pad": ([node("Pad", "x p")], {"p": np.array([0, _HUGE, 0, 0])}),
    "Resize": ([node("Resize", "x - s")], {"s": np.array([1, 1e12], np.float32)}),
    "Range": (
        [node("Range", "a b a", "r"), node("Gather", "x r", axis=1)],
        {"a": np.int64(1), "b": np.int64(_HUGE)},
    ),
    "Add": (
        [node("Add", "a b", "c"), node("Add", "x c")],
        {"a": np.ones((2**17, 1), np.float32), "b": np.ones((1, 2**17), np.float32)},
    ),
    "MatMul": (
        [node("MatMul", "a b", "c"), node("Add", "x c")],
        {"a": np.ones((2**17, 1), np.float32), "b": np.ones((1, 2**17), np.float32)},
    ),
    "Concat": (
        [node("Expand", "c s", "d"), node("Concat", "x d")],
        {"c": np.float32(1), "s": _SHAPE},
    ),
}


@pytest.mark.parametrize("name", GIGANTIC)
def test_gigantic_values(name: str, tmp_path: Path):
    nodes, constants = GIGANTIC[name]
    path = saved(graph_model(nodes, (1, 4), constants=constants), tmp_path)
    with pytest.raises(sc.FileError, match="may have at most 67108864 entries"):
        sc.load_model(path)  # before anything is allocated: the machine has no room for it


def test_gigantic_initialisers(tmp_path: Path):
    model = graph_model(
        [node("MatMul", "x w")], (1, 4), constants={"w": np.ones((4, 3), np.float32)}
    )
    model.graph.initializer[0].dims[:] = [4, _HUGE]
    with pytest.raises(sc.FileError, match=r"shape \(4, 1099511627776\) has 48 bytes"):
        sc.load_model(saved(model, tmp_path))
    model.graph.initializer[0].dims[:] = [4, -3]
    with pytest.raises(sc.FileError, match=r"has the shape \(4, -3\)"):
        sc.load_model(saved(model, tmp_path))


def test_gigantic_inputs(tmp_path: Path):
    with pytest.raises(sc.FileError, match="would have the shape"):
        sc.load_model(saved(graph_model([node("Relu", "x")], (1, _HUGE)), tmp_path))


# -- external data --------------------------------------------------------------------------------


def external(folder: Path, location: str, **others: str) -> Path:
    """A network whose weights lie in another file."""
    model = graph_model(
        [node("MatMul", "x w")], (1, 4), constants={"w": np.ones((4, 3), np.float32)}
    )
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **others}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return saved(model, folder)


def test_external_data(tmp_path: Path):
    (tmp_path / "data").mkdir()
    numbers = np.arange(15, dtype=np.float32)
    (tmp_path / "data" / "w.bin").write_bytes(numbers.tobytes())
    model = sc.load_model(external(tmp_path, "data/w.bin", offset="12", length="48"))
    assert next(model.parameters()).T.flatten().tolist() == list(range(3, 15))


def test_external_data_as_onnx_writes_them(tmp_path: Path):
    model = onnx.load(dense_file(tmp_path))
    options = {"save_as_external_data": True, "size_threshold": 0, "location": "w.bin"}
    onnx.save_model(model, tmp_path / "out.onnx", **options)
    assert (tmp_path / "w.bin").stat().st_size > 0
    here, there = (sc.load_model(tmp_path / name) for name in ("net.onnx", "out.onnx"))
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        assert one.equal(other)


@pytest.mark.parametrize("location", ["/etc/hostname", "../secret.bin", "a/../../secret.bin", ""])
def test_external_data_outside_of_the_folder(location: str, tmp_path: Path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 48)
    with pytest.raises(sc.FileError, match="outside of its folder, where nothing is read"):
        sc.load_model(external(folder, location))


def test_external_data_behind_a_link(tmp_path: Path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 48)
    (folder / "w.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(sc.FileError, match="outside of its folder"):
        sc.load_model(external(folder, "w.bin"))


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ({"offset": "1"}, "needs 48 bytes from byte 1"),
        ({"offset": "-1"}, "needs 48 bytes"),
        ({"offset": "no"}, "cannot be found"),
        ({"length": "12"}, "needs 48 bytes"),
        ({"length": str(2**60)}, "needs 48 bytes"),
    ],
)
def test_external_data_that_do_not_fit(others: dict[str, str], text: str, tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(b"\0" * 48)
    with pytest.raises(sc.FileError, match=text):
        sc.load_model(external(tmp_path, "w.bin", **others))


def test_missing_external_data(tmp_path: Path):
    with pytest.raises(sc.FileError, match=r"'w\.bin', which is missing"):
        sc.load_model(external(tmp_path, "w.bin"))


# -- graphs ---------------------------------------------------------------------------------------


def function(name: str, calls: list[str]) -> Any:
    """A function that calls others one after the other."""
    names = ["x", *(f"v{i}" for i in range(len(calls) - 1)), "y"]
    nodes = [
        helper.make_node(kind, [names[i]], [names[i + 1]], domain="own" if kind[0] == "f" else "")
        for i, kind in enumerate(calls)
    ]
    return helper.make_function("own", name, ["x"], ["y"], nodes, [helper.make_opsetid("", 17)])


def with_functions(functions: list[Any]) -> Any:
    model = graph_model([helper.make_node("f0", ["x"], ["y"], domain="own")], (1, 2))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.extend(functions)
    return model


def test_functions_are_written_out(tmp_path: Path):
    model = with_functions([function("f0", ["Neg", "f1"]), function("f1", ["Relu"])])
    names = [type(layer).__name__ for layer in sc.load_model(saved(model, tmp_path)).children()]
    assert names == ["Call", "ReLU"]


def test_weights_beside_functions_stay_in_the_file(tmp_path: Path):
    model = with_functions([function("f0", ["Relu", "Relu"])])
    wide = np.random.default_rng(0).normal(size=(4, 2**13)).astype(np.float32)
    model.graph.node.insert(0, node("MatMul", "x w", "v"))
    model.graph.node[1].input[0] = "v"
    model.graph.initializer.append(onnx.numpy_helper.from_array(wide, "w"))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
    path = saved(model, tmp_path)
    assert onnx_file.read_message(path).large.keys() == {"w"}
    x = np.ones((1, 4), np.float32)
    made = sc.load_model(path)(torch.tensor(x)).detach().numpy()
    assert np.allclose(made, reference(path, x)[0], atol=1e-5)


def test_functions_that_never_end(tmp_path: Path):
    circle = [function("f0", ["f1"]), function("f1", ["f0"])]
    with pytest.raises(sc.FileError, match="calls itself"):
        sc.load_model(saved(with_functions(circle), tmp_path))
    many = [function(f"f{i}", [f"f{i + 1}"] * 2) for i in range(40)]
    with pytest.raises(sc.FileError, match="stand for more than"):
        sc.load_model(saved(with_functions([*many, function("f40", ["Relu"])]), tmp_path))


def test_values_out_of_order(tmp_path: Path):
    nodes = [node("Relu", "b", "y"), node("Relu", "x", "b")]
    with pytest.raises(sc.FileError, match="'b' is used before it is made"):
        sc.load_model(saved(graph_model(nodes, (1, 2)), tmp_path))


def test_values_made_twice(tmp_path: Path):
    nodes = [node("Relu", "x", "y"), node("Neg", "y", "y")]
    with pytest.raises(sc.FileError, match="made twice"):
        sc.load_model(saved(graph_model(nodes, (1, 2)), tmp_path))


@pytest.mark.parametrize(("version", "text"), [(6, "opsets 7 to"), (999, "pip install --upgrade")])
def test_unknown_opsets(version: int, text: str, tmp_path: Path):
    with pytest.raises(sc.CaptureError, match=text):
        sc.load_model(saved(graph_model([node("Relu", "x")], (1, 2), opset=version), tmp_path))


def test_several_inputs(tmp_path: Path):
    model = graph_model([node("Add", "x z")], (1, 2))
    model.graph.input.append(helper.make_tensor_value_info("z", FLOAT, [1, 2]))
    with pytest.raises(sc.CaptureError, match=r"has 2 inputs \('x', 'z'\)"):
        sc.load_model(saved(model, tmp_path))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 2), np.float32), "z"))
    assert sc.load_model(saved(model, tmp_path)).input_shape == (2,)


def test_inputs_that_are_no_real_numbers(tmp_path: Path):
    model = graph_model([node("Relu", "x")], (1, 2), elem=INT64)
    with pytest.raises(sc.CaptureError, match="not a tensor of floating-point numbers"):
        sc.load_model(saved(model, tmp_path))
