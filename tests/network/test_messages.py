"""Models that cannot be partitioned: each error names the true reason, the place and the remedy."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import splinecam as sc
from splinecam.cli import main
from splinecam.errors import CaptureError, UnsupportedOpError
from splinecam.network.capture import capture

Forward = Callable[[Any, Tensor], Any]


class Net(nn.Module):
    """A layer, and a forward method that is given."""

    def __init__(self, call: Forward, features: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(2, features)
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.call(self, x)
        return result


def mlp(*before: nn.Module) -> nn.Sequential:
    return nn.Sequential(*before, nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)).eval()


def message(model: nn.Module, *shape: int) -> str:
    """What capture says of a model that it refuses."""
    with pytest.raises(CaptureError) as caught:
        capture(model, shape or (2,))
    return str(caught.value)


# -- weights that are not finite ------------------------------------------------------------------


def test_nan_in_a_weight_is_named() -> None:
    model = mlp()
    with torch.no_grad():
        model[0].weight[3, 1] = torch.nan
        model[2].weight[0, 2:5] = torch.inf
    text = message(model)
    assert "weights that are not finite" in text
    assert "1 of 16 entries of 0.weight: nan at [3, 1]" in text
    assert "3 of 8 entries of 2.weight, the first is inf at [0, 2]" in text
    assert "0.bias" not in text


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_buffers_and_scalars_are_named(value: float) -> None:
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.PReLU()).eval()
    model[1].running_mean[5] = value
    assert f"1 of 8 entries of 1.running_mean: {value} at [5]" in message(model)
    model = Net(lambda m, x: m.layer(x).relu() * m.gain)
    model.gain = nn.Parameter(torch.tensor(value))
    assert f"gain is {value}" in message(model)


def test_a_nan_slope_is_not_blamed_on_the_batch() -> None:
    model = nn.Sequential(nn.Linear(2, 8), nn.PReLU(8))
    with torch.no_grad():
        model[1].weight[2] = torch.nan
    assert "1 of 8 entries of 1.weight: nan at [2]" in message(model)


def test_many_tensors_are_counted() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    text = message(model)
    assert "4 of 4 entries of 0.weight, the first is nan at [0, 0]" in text
    assert "and 3 more tensors" in text


def test_what_is_not_used_may_be_anything() -> None:
    model = mlp()
    model.register_buffer("best_loss", torch.tensor(torch.inf))
    model.register_parameter("unused", nn.Parameter(torch.full((3,), torch.nan)))
    assert len(capture(model, (2,)).layers) == 1


# -- inputs ---------------------------------------------------------------------------------------


def test_the_width_of_a_layer() -> None:
    text = message(nn.Sequential(nn.Linear(3, 8), nn.ReLU()))
    assert "layer '0' (Linear) takes 3 numbers in the last dimension, but gets 2" in text
    assert "where (2,) is the domain's input shape" in text
    assert "use Domain.slice, which shows two of them, or Domain.through or around" in text
    assert "the model (Linear) takes 3 numbers" in message(nn.Linear(3, 8))
    text = message(nn.Sequential(nn.Linear(784, 8)), 1, 28, 28)
    assert "takes 784 numbers in the last dimension, but gets 28" in text
    assert "Put nn.Flatten() before it, or give the domain points of shape (784,)" in text
    text = message(nn.Sequential(nn.BatchNorm1d(3)).eval())
    assert "layer '0' (BatchNorm1d) takes 3 channels, but gets 2" in text


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


@pytest.mark.parametrize(
    "model", [nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)), Functional()]
)
def test_a_batch_is_not_one_input(model: nn.Module) -> None:
    text = message(model, 10, 5)
    assert "looks like a batch: 10 inputs of shape (5,)" in text
    assert "give one of them, x[0]" in text
    # One input may well have two dimensions.
    assert capture(model, (1, 5))(torch.zeros(2, 1, 5)).shape == (2, 1, 3)
    whole = nn.Sequential(model, nn.Flatten())
    assert capture(whole, (10, 5))(torch.zeros(2, 10, 5)).shape == (2, 30)


def test_a_batch_that_is_flattened() -> None:
    text = message(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), 10, 1, 8, 8)
    assert "looks like a batch: 10 inputs of shape (1, 8, 8)" in text


def test_the_width_of_a_layer_inside() -> None:
    text = message(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Sequential(nn.Linear(9, 1))))
    assert "layer '2.0' (Linear) takes 9 numbers in the last dimension, but gets 8" in text
    assert "its layers do not fit together" in text
    assert "Domain.through" not in text


def test_the_shape_of_images() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(288, 2))
    text = message(model, 1, 8, 8)
    assert "layer '0' (Conv2d) takes 3 channels, but gets 1" in text
    assert "batch dimension" not in text
    text = message(model, 1, 3, 8, 8)
    assert "(batch, 3, height, width), but gets (batch, 1, 3, 8, 8)" in text
    assert "Samples of a domain carry no batch dimension" in text
    text = message(model, 7, 3, 8, 8)
    assert "looks like a batch: 7 inputs of shape (3, 8, 8)" in text
    assert "give one of them, x[0]" in text
    assert "layer '2' (Linear) takes 288 numbers" in message(model, 3, 9, 9)
    assert "takes whole numbers" in message(nn.Sequential(nn.Embedding(5, 3)))


class Two(nn.Module):
    def forward(self, x: Tensor, t: Tensor, *, scale: Tensor) -> Tensor:
        return scale * x + t


def test_models_with_several_inputs() -> None:
    text = message(Two())
    line = Two.forward.__code__.co_firstlineno
    assert f"Two.forward(x, t, scale) at test_messages.py:{line} takes 3 arguments" in text
    assert "inspect.py" not in text
    # The code in the message does what it says.
    names: dict[str, Any] = {"nn": nn}
    code = text.partition(":\n\n")[2]
    exec("if True:\n" + code, names)
    wrapped = names["OneInput"](Two(), torch.ones(2), torch.full((2,), 3.0))
    assert sc.partition(wrapped, sc.Domain.box(-1, 1), progress=False).validate().ok
    text = message(nn.Bilinear(2, 2, 3))
    assert "Bilinear.forward(input1, input2) takes 2 arguments" in text


def test_models_that_fail_themselves() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.two = Two()

        def forward(self, x: Tensor) -> Tensor:
            return self.two(x)

    text = message(Outer())
    assert "TypeError: Two.forward() missing" in text
    assert "(at test_messages.py:" in text
    assert "cannot be called with one input" not in text
    text = message(Net(lambda m, x: m.layer(x["points"])))
    assert "Its forward is given one tensor" in text

    class Empty(nn.Module):
        pass

    assert "Empty has no forward method" in message(Empty())


# -- modes ----------------------------------------------------------------------------------------


def reasons(model: nn.Module, *shape: int) -> list[str]:
    with pytest.raises(UnsupportedOpError) as caught:
        capture(model, shape or (2,))
    assert all(str(op) in str(caught.value) for op in caught.value.ops)
    assert "register_op" not in str(caught.value)
    return [f"{op.name}: {op.reason}" for op in caught.value.ops]


def test_training_mode() -> None:
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1))
    norm, dropout = reasons(model)
    assert norm == (
        "1: BatchNorm1d is in training mode, where it uses the statistics of the batch: "
        "call model.eval() first"
    )
    assert dropout == "3: Dropout is in training mode, where it is random: call model.eval() first"
    assert reasons(nn.Sequential(nn.Linear(2, 8), nn.RReLU())) == [
        "1: RReLU is in training mode, where it is random: call model.eval() first"
    ]
    model.eval()
    model[3].train()
    assert [reason[:2] for reason in reasons(model)] == ["3:"], "only what is in training mode"


def test_dropout_that_ignores_eval() -> None:
    for call in (
        lambda m, x: F.dropout(m.layer(x)),
        lambda m, x: F.alpha_dropout(m.layer(x), training=True),
    ):
        (reason,) = reasons(Net(call).eval())
        assert "it is random although the model is in eval mode" in reason
        assert "pass training=self.training to it" in reason
    (reason,) = reasons(Net(lambda m, x: F.dropout(m.layer(x), training=m.training)).train())
    assert "call model.eval() first" in reason
    inner = nn.Sequential(Net(lambda m, x: F.dropout(m.layer(x)))).eval()
    assert reasons(inner)[0].startswith("0.dropout: it is random although")


def test_batch_statistics_in_eval_mode() -> None:
    (reason,) = reasons(nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False)).eval())
    assert "track_running_stats=False" in reason
    call = lambda m, x: F.batch_norm(m.layer(x), None, None, training=True)  # noqa: E731
    (reason,) = reasons(Net(call).eval())
    assert "although the model is in eval mode" in reason


def test_advice_to_call_eval_is_given_only_where_it_helps() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(), nn.GELU())
    text = message(model.train())
    assert "call model.eval()" in text
    assert "With smooth=, functions of one variable are replaced" in text


# -- discontinuous operations ---------------------------------------------------------------------


class Unpool(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.unpool(*self.pool(x)).flatten(1)


def test_max_unpool() -> None:
    text = message(Unpool(), 1, 4, 4)
    assert "max_unpool moves values to the places of its maxima, which are discontinuous" in text
    text = message(Net(lambda m, x: _unpooled_1d(m.layer(x))))
    assert "max_unpool moves values to the places of its maxima" in text
    place = torch.tensor([0, 3, 10, 14]).view(1, 1, 2, 2)
    text = message(
        Net(lambda m, x: F.max_unpool2d(m.layer(x).view(-1, 1, 2, 2), *_fixed(x, place)))
    )
    assert "with constant indices it is affine: write it with scatter" in text


def _unpooled_1d(x: Tensor) -> Tensor:
    values, places = F.max_pool1d(x[:, None], 2, return_indices=True)
    return F.max_unpool1d(values, places, 2)[:, 0]


def _fixed(x: Tensor, place: Tensor) -> tuple[Tensor, int]:
    return place.expand(x.shape[0], -1, -1, -1), 2


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad


def test_straight_through_functions() -> None:
    for call in (
        lambda m, x: StraightThrough.apply(m.layer(x)),
        lambda m, x: m.layer(x) + (m.layer(x).floor() - m.layer(x)).detach(),
    ):
        text = message(Net(call))
        assert "it is discontinuous, also with a straight-through gradient" in text
        assert "at test_messages.py:" in text
    # Of constants they are constants.
    model = Net(lambda m, x: F.linear(x, StraightThrough.apply(m.layer.weight)).relu())
    assert sc.partition(model, sc.Domain.box(-1, 1), progress=False).validate().ok


# -- modules of other kinds -----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_script_modules_inside() -> None:
    scripted = torch.jit.script(mlp())
    assert "the model is a ScriptModule" in message(scripted)
    text = message(nn.Sequential(nn.Linear(2, 2), nn.Sequential(scripted)))
    assert "ScriptModules, which torch.export cannot follow: '1.0'." in text
    assert "nn.Module that each was made from" in text


def test_lazy_modules() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyBatchNorm1d(), nn.Linear(8, 1))
    text = message(model.eval())
    assert "no shape yet: '0' (LazyLinear), '2' (LazyBatchNorm1d)" in text
    assert "Run it on one batch first: model(x)" in text
    model(torch.zeros(4, 2))
    assert len(capture(model, (2,)).layers) == 1


def test_weights_without_values() -> None:
    with torch.device("meta"):
        model = mlp()
    text = message(model)
    assert "no values, as they are on the meta device: 0.weight, 0.bias, 2.weight, 2.bias" in text


def _slope(m: Net, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_(True)
    return torch.autograd.grad(m.layer(x).relu().sum(), x)[0]


def test_derivatives_of_the_model() -> None:
    text = message(Net(_slope))
    assert "computes a derivative by autograd (at test_messages.py:" in text
    assert "is discontinuous" in text


FLOAT = "Rounding is discontinuous: partition the float model"


def prepared(train: bool) -> nn.Module:
    """A model that is prepared for quantisation, after training or during it."""
    kit: Any = torch.ao.quantization
    model = nn.Sequential(kit.QuantStub(), nn.Linear(2, 4), nn.ReLU(), kit.DeQuantStub())
    model.train(train)
    model.qconfig = (kit.get_default_qat_qconfig if train else kit.get_default_qconfig)("qnnpack")
    model = (kit.prepare_qat if train else kit.prepare)(model)
    model(torch.randn(16, 2))
    return model.eval()


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("train", [True, False])
def test_fake_quantised_modules(train: bool) -> None:
    text = message(prepared(train))
    assert "the model is quantised, or prepared for it: '0.activation_post_process' (" in text
    assert "weight_fake_quant" not in text
    assert FLOAT in text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(
    "qnnpack" not in torch.backends.quantized.supported_engines, reason="no quantised kernels"
)
def test_quantised_modules() -> None:
    engine = torch.backends.quantized.engine
    torch.backends.quantized.engine = "qnnpack"
    try:
        static = torch.ao.quantization.convert(prepared(train=False))
        dynamic = torch.ao.quantization.quantize_dynamic(mlp(), {nn.Linear})
    finally:
        torch.backends.quantized.engine = engine
    assert "'0' (Quantize), '1' (QuantizedLinear)" in message(static)
    text = message(dynamic)
    assert "'0' (DynamicQuantizedLinear), '2' (DynamicQuantizedLinear)" in text
    assert FLOAT in text


def test_fake_quantised_functions() -> None:
    def quantised(x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)

    text = message(Net(lambda m, x: quantised(m.layer(x))))
    assert "partition the float model" in text
    assert "at test_messages.py:" in text
    # Weights are constants, rounded or not.
    model = Net(lambda m, x: F.linear(x, quantised(m.layer.weight)).relu())
    assert len(capture(model, (2,)).layers) == 1


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [1, 1000])
def test_too_little_memory(memory: int) -> None:
    box = sc.Domain.box(-1, 1)
    text = rf"memory={memory:,} bytes .* Less than 1,000,000 bytes is hardly ever enough: raise"
    with pytest.raises(sc.LimitError, match=text):
        sc.partition(mlp(), box, memory=memory, progress=False)
    with pytest.raises(sc.LimitError, match=text):
        sc.sweep(mlp(), [box], memory=memory, progress=False)


def test_memory_for_few_regions_at_a_time_is_enough() -> None:
    torch.manual_seed(0)
    large = nn.Sequential(nn.Linear(2, 300), nn.ReLU(), nn.Linear(300, 1))
    box = sc.Domain.box(-1, 1)
    parts = [sc.partition(large, box, memory=memory, progress=False) for memory in (3e6, None)]
    assert len(parts[0]) == len(parts[1]) > 10_000
    with pytest.raises(
        sc.LimitError, match=r"regions alone exceed memory=1,000,000 .* sc\.atlas keep"
    ):
        sc.partition(large, box, memory=1e6, progress=False)


# -- files in place of models ---------------------------------------------------------------------


class Pickled(nn.Linear):
    pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("models")
    torch.save(mlp().state_dict(), here / "weights.pt")
    torch.save({"state_dict": mlp().state_dict(), "epoch": 3}, here / "checkpoint.ckpt")
    torch.save(Pickled(2, 2), here / "module.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(mlp()).save(here / "script.pt")
        batch = torch.export.Dim("batch")
        program = torch.export.export(mlp(), (torch.zeros(3, 2),), dynamic_shapes=({0: batch},))
        torch.export.save(program, here / "net.pt2")
    np.savez(here / "weights.npz", a=np.zeros(3))
    sc.partition(mlp(), sc.Domain.box(-1, 1), progress=False).save(here / "saved.npz")
    (here / "net.onnx").write_bytes(b"\x08\x07\x12\x07pytorch")
    (here / "net.h5").write_bytes(b"\x89HDF\r\n\x1a\n and more")
    (here / "strange").write_bytes(b"\x89HDF\r\n\x1a\n and more")
    with zipfile.ZipFile(here / "net.keras", "w") as archive:
        archive.writestr("model.weights.h5", b"")
    (here / "net.tflite").write_bytes(b"")
    (here / "net.safetensors").write_bytes(b"")
    for name, file in {"savedmodel": "saved_model.pb", "bert": "config.json"}.items():
        (here / name).mkdir()
        (here / name / file).write_bytes(b"")
    return here


FILES = {
    "net.h5": ("a Keras model", "to an ONNX file"),
    "strange": ("a Keras model", "to an ONNX file"),
    "net.keras": ("a Keras model", "to an ONNX file"),
    "net.tflite": ("a TensorFlow model", "to an ONNX file"),
    "savedmodel": ("a TensorFlow model", "to an ONNX file"),
    "bert": ("a folder of Hugging Face", "AutoModel.from_pretrained("),
    "script.pt": ("a TorchScript program", "torch.jit.load("),
    "weights.pt": ("a file of tensors, such as a state dict", "model.load_state_dict(torch.load("),
    "checkpoint.ckpt": ("a file of tensors", "weights_only=True"),
    "module.pt": ("a pickled checkpoint", "weights_only=False"),
    "net.safetensors": ("a file of weights", "safetensors.torch.load_file("),
    "weights.npz": ("a file of weights", "torch.from_numpy(v) for k, v in np.load("),
    "saved.npz": ("a saved partition", "sc.load("),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_in_place_of_a_model(folder: Path, name: str) -> None:
    what, remedy = FILES[name]
    box = sc.Domain.box(-1, 1)
    for given in (folder / name, str(folder / name)):
        with pytest.raises(TypeError) as caught:
            sc.partition(given, box)
        text = str(caught.value)
        assert text.startswith(f"model must be an nn.Module, not the path of {what}")
        assert remedy in text
        assert repr(str(folder / name)) in text
        assert "{" not in text.replace("{k:", "")
    with pytest.raises(TypeError, match="not the path of"):
        sc.sweep(str(folder / name), [box])


def test_models_of_keras_are_modules_on_pytorch(folder: Path) -> None:
    with pytest.raises(TypeError, match=r"KERAS_BACKEND=torch.*\n.*load_model\('.*net.keras'\)"):
        sc.partition(folder / "net.keras", sc.Domain.box(-1, 1))


def test_the_advice_for_files_works(folder: Path) -> None:
    box = sc.Domain.box(-1, 1)
    for name in ("weights.pt", "script.pt"):
        with pytest.raises(TypeError) as caught:
            sc.partition(folder / name, box)
        code = str(caught.value).partition("\n")[2].strip()
        names: dict[str, Any] = {"torch": torch, "model": mlp()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(code, names)
        assert sc.partition(names["model"], box, progress=False).validate().ok


def test_the_path_of_an_exported_program(folder: Path) -> None:
    assert sc.partition(folder / "net.pt2", sc.Domain.box(-1, 1)).validate().ok


def test_an_onnx_file_without_a_graph(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(folder / "net.onnx")
    with pytest.raises(sc.FileError, match="there is no graph in it"):
        sc.partition(path, sc.Domain.box(-1, 1))
    assert main(["partition", path, "--box", "-1", "1", "--out", str(tmp_path / "out")]) == 1
    assert "there is no graph in it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("absent.h5", "a Keras model ('absent.h5'; there is no such file)"),
        ("resnet18", "the string 'resnet18'. Load or make the model first"),
        (mlp().state_dict(), "a dict of tensors (a state dict)"),
        (Pickled, "the class Pickled: make a module of it, Pickled(...)"),
        (len, "builtin_function_or_method; wrap functions in a module"),
        (np.zeros(3), "ndarray (numpy)"),
    ],
)
def test_other_things_in_place_of_a_model(given: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        sc.partition(given, sc.Domain.box(-1, 1))
    assert text in str(caught.value)


def test_programs_in_place_of_their_modules() -> None:
    program = torch.export.export(mlp(), (torch.zeros(3, 2),))
    with pytest.raises(TypeError, match=r"ExportedProgram: give its module, program.module\(\)"):
        sc.partition(program, sc.Domain.box(-1, 1))


@pytest.mark.parametrize("name", FILES)
def test_a_file_in_place_of_a_model_on_the_command_line(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(folder / name)
    code = main(["partition", path, "--box", "-1", "1", "--out", str(tmp_path / "out")])
    text = capsys.readouterr().err
    assert code == 1
    assert f"{path} is {FILES[name][0]}" in text
    assert "which is not opened as a model." in text
    if name == "bert":
        assert FILES[name][1] in text
        assert "splinecam partition net.py:build ..." in text
    elif name in ("net.h5", "strange", "net.keras", "net.tflite", "savedmodel"):
        assert FILES[name][1] in text
        assert "splinecam partition net.onnx ..." in text
    elif name == "saved.npz":
        assert f"splinecam plot {path}" in text
    else:
        assert "splinecam partition package.module:factory --weights" in text
        assert "torch.export.save(program" in text
