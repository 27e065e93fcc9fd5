"""Models that cannot be partitioned: each error names the true reason, the place and the remedy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import splinecam as sc
from splinecam.capture import capture
from splinecam.errors import CaptureError, UnsupportedOpError

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
    assert len(capture(model, (2,)).cuts) == 1


# -- inputs ---------------------------------------------------------------------------------------


def test_the_width_of_a_layer() -> None:
    text = message(nn.Sequential(nn.Linear(3, 8), nn.ReLU()))
    assert "layer '0' (Linear) takes 3 numbers in the last dimension, but gets 2" in text
    assert "where (2,) is the domain's input shape" in text
    assert "Domain.through or around" in text
    text = message(nn.Sequential(nn.Linear(784, 8)), 1, 28, 28)
    assert "takes 784 numbers in the last dimension, but gets 28" in text
    assert "Put nn.Flatten() before it, or give the domain points of shape (784,)" in text
    text = message(nn.Sequential(nn.BatchNorm1d(3)).eval())
    assert "layer '0' (BatchNorm1d) takes 3 channels, but gets 2" in text


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


def test_advice_is_for_those_whom_it_helps() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(), nn.GELU())
    text = message(model.train())
    assert "call model.eval()" in text
    assert "Replace it, a smooth function" in text


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
        lambda m, x: m.layer(x) + (m.layer(x).sign() - m.layer(x)).detach(),
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
    assert "TorchScript modules, which torch.export cannot follow: '1.0'." in text
    assert "nn.Module that each was made from" in text


def test_lazy_modules() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyBatchNorm1d(), nn.Linear(8, 1))
    text = message(model.eval())
    assert "no shape yet: '0' (LazyLinear), '2' (LazyBatchNorm1d)" in text
    assert "Run it on one batch first: model(x)" in text
    model(torch.zeros(4, 2))
    assert len(capture(model, (2,)).cuts) == 1


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
    assert len(capture(model, (2,)).cuts) == 1
