"""Chains of torch's own layers are walked through, with the result of torch.export."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm

import splinecam as sc
from splinecam.network.capture import capture
from splinecam.network.capture.capturing import captured_by_export, captured_by_walk
from splinecam.network.nonlinearities import MaxNonlinearity, PiecewiseScalar
from splinecam.network.program import Program

CPU = torch.device("cpu")
SHARED = nn.ReLU()


def _mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


LAYERS: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.Linear(4, 3), (4,)),
    (nn.Linear(4, 3, bias=False), (5, 4)),
    (nn.Conv1d(2, 3, 3, padding="same", dilation=2), (2, 7)),
    (nn.Conv1d(2, 3, 2, stride=2, padding=1), (2, 7)),
    (nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2, bias=False), (2, 7, 7)),
    (nn.Conv2d(2, 4, (3, 2), padding="valid"), (2, 7, 6)),
    (nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), (2, 7, 7)),
    (nn.Conv2d(2, 4, 3, padding=(1, 2), padding_mode="replicate"), (2, 7, 7)),
    (nn.Conv2d(2, 4, 3, padding="same", padding_mode="circular"), (2, 7, 7)),
    (nn.Conv3d(1, 2, 2), (1, 4, 4, 4)),
    (nn.ConvTranspose1d(2, 3, 3, stride=2), (2, 5)),
    (nn.ConvTranspose2d(2, 4, 3, 2, 1, output_padding=1, groups=2, dilation=2), (2, 5, 5)),
    (nn.ConvTranspose3d(1, 2, 2), (1, 3, 3, 3)),
    (nn.MaxPool1d(2), (1, 6)),
    (nn.MaxPool2d(3, 2, 1, ceil_mode=True), (2, 6, 6)),
    (nn.MaxPool2d((2, 1), dilation=2), (2, 6, 6)),
    (nn.MaxPool3d(2), (1, 4, 4, 4)),
    (nn.AvgPool1d(2), (1, 6)),
    (nn.AvgPool2d(2, padding=1, count_include_pad=False), (1, 6, 6)),
    (nn.AvgPool2d(3, divisor_override=2), (1, 6, 6)),
    (nn.AvgPool3d(2), (1, 4, 4, 4)),
    (nn.AdaptiveAvgPool1d(2), (1, 6)),
    (nn.AdaptiveAvgPool2d((2, None)), (1, 6, 5)),
    (nn.AdaptiveAvgPool3d(1), (1, 4, 4, 4)),
    (nn.AdaptiveMaxPool1d(2), (1, 6)),
    (nn.AdaptiveMaxPool2d((2, 3)), (1, 6, 6)),
    (nn.AdaptiveMaxPool2d((None, 3)), (1, 6, 6)),
    (nn.AdaptiveMaxPool3d(2), (1, 4, 4, 4)),
    (nn.BatchNorm1d(3), (3,)),
    (nn.BatchNorm1d(3, affine=False), (3, 5)),
    (nn.BatchNorm2d(3, momentum=None), (3, 5, 5)),
    (nn.BatchNorm3d(2), (2, 2, 2, 2)),
    (nn.ReLU(), (3,)),
    (nn.ReLU(inplace=True), (2, 3)),
    (nn.ReLU6(), (3,)),
    (nn.LeakyReLU(), (3,)),
    (nn.LeakyReLU(-0.5, inplace=True), (3,)),
    (nn.LeakyReLU(1.0), (3,)),
    (nn.PReLU(), (3, 2)),
    (nn.PReLU(3), (3, 2)),
    (nn.Hardtanh(-2, 0.5), (3,)),
    (nn.RReLU(), (3,)),
    (nn.Hardsigmoid(), (3,)),
    (nn.Softshrink(0.3), (3,)),
    (nn.Threshold(0.5, 0.5), (3,)),
    (nn.Flatten(), (2, 3, 4)),
    (nn.Flatten(2), (2, 3, 4)),
    (nn.Flatten(-3, 2), (2, 3, 4)),
    (nn.Unflatten(1, (2, 3)), (6,)),
    (nn.Unflatten(-1, (2, -1)), (6,)),
    (nn.ZeroPad1d(1), (1, 3)),
    (nn.ZeroPad2d((1, 2, 0, -1)), (1, 3, 3)),
    (nn.ConstantPad2d(1, 0.5), (1, 3, 3)),
    (nn.ConstantPad3d(1, 2), (1, 3, 3, 3)),
    (nn.ReflectionPad1d(1), (1, 3)),
    (nn.ReflectionPad2d(1), (1, 3, 3)),
    (nn.ReplicationPad2d((1, 0, 2, 1)), (1, 3, 3)),
    (nn.CircularPad2d(1), (1, 3, 3)),
    (nn.Upsample(scale_factor=2), (1, 3)),
    (nn.Upsample(scale_factor=(2, 1.5)), (1, 4, 4)),
    (nn.Upsample(size=(4, 5)), (1, 3, 3)),
    (nn.Upsample(scale_factor=2, mode="linear"), (1, 3)),
    (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 3, 3)),
    (nn.Upsample(scale_factor=1.5, mode="bilinear", align_corners=True), (1, 4, 4)),
    (nn.Upsample(size=5, mode="trilinear"), (1, 3, 3, 3)),
    (nn.UpsamplingNearest2d(scale_factor=2), (1, 3, 3)),
    (nn.UpsamplingBilinear2d(size=(4, 4)), (1, 3, 3)),
    (nn.PixelShuffle(2), (4, 3, 3)),
    (nn.PixelUnshuffle(2), (1, 4, 4)),
    (nn.ChannelShuffle(2), (4, 3, 3)),
    (nn.Softmax(1), (3,)),
    (nn.Softmax(-1), (2, 3)),
    (nn.LogSoftmax(1), (3,)),
    (nn.Sigmoid(), (3,)),
    (nn.Tanh(), (3,)),
    (nn.LogSigmoid(), (3,)),
]

NETWORKS: list[tuple[nn.Module, tuple[int, ...]]] = [
    (_mlp(2, 8, 8, 1), (2,)),
    (nn.Sequential(_mlp(2, 4, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 3), nn.Softmax(1))), (2,)),
    (nn.Sequential(nn.Linear(2, 4), SHARED, nn.Linear(4, 4), nn.Sequential(SHARED)), (2,)),
    (nn.Sequential(nn.Linear(2, 4), nn.Dropout(), nn.ReLU(), nn.AlphaDropout(0.2)), (2,)),
    (nn.Sequential(nn.Linear(2, 4), nn.Identity(), nn.ReLU(), nn.ReLU(), nn.Identity()), (2,)),
    (
        nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1),
            nn.BatchNorm2d(3),
            nn.ReLU(inplace=True),
            nn.Dropout2d(),
            nn.MaxPool2d(2),
            nn.Conv2d(3, 2, 1),
            nn.LeakyReLU(0.1, inplace=True),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(8, 3),
            nn.LogSoftmax(dim=1),
        ),
        (1, 6, 6),
    ),
    (
        nn.Sequential(
            nn.Linear(2, 18),
            nn.ReLU6(),
            nn.Unflatten(1, (2, 3, 3)),
            nn.Upsample(scale_factor=2),
            nn.ConvTranspose2d(2, 1, 2, stride=2),
            nn.PReLU(),
            nn.AvgPool2d(3),
            nn.Flatten(1),
            nn.Sigmoid(),
        ),
        (2,),
    ),
    (_mlp(2, 4, 1).double(), (2,)),
    (_mlp(2, 4, 1).bfloat16(), (2,)),
]


class _Named(nn.Sequential):
    """A subclass with a constructor of its own alone."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 3), nn.ReLU())


def _randomised(model: nn.Module) -> nn.Module:
    """The model in eval mode, with random statistics in its norms."""
    generator = torch.Generator().manual_seed(5)
    for name, buffer in model.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    return model.eval()


def _same(first: Program, second: Program) -> None:
    """Assert that two programs do the same, bit for bit, under the same names."""
    assert first.input_shape == second.input_shape
    assert first.output_shape == second.output_shape
    assert first.stripped == second.stripped
    assert len(first.stages) == len(second.stages)
    for one, other in zip(first.stages, second.stages, strict=True):
        assert [step.run for step in one.steps] == [step.run for step in other.steps]
        assert [step.rule for step in one.steps] == [step.rule for step in other.steps]
        assert len(one.live_in) == len(other.live_in)
        assert len(one.live_out) == len(other.live_out)
    for a, b in zip(first.layers, second.layers, strict=True):
        assert type(a) is type(b)
        assert (a.name, a.after, a.target, a.shape) == (b.name, b.after, b.target, b.shape)
        if isinstance(a, PiecewiseScalar) and isinstance(b, PiecewiseScalar):
            assert torch.equal(a.levels, b.levels)
            assert torch.equal(a.slopes, b.slopes)
            assert a.exact == b.exact
        if isinstance(a, MaxNonlinearity) and isinstance(b, MaxNonlinearity):
            assert torch.equal(a.members, b.members)
    x = torch.randn(5, *first.input_shape, dtype=torch.float64)
    assert torch.equal(first(x), second(x))
    if first.final is not None or second.final is not None:
        assert first.final is not None
        assert second.final is not None
        assert torch.equal(first.final(first(x)), second.final(second(x)))


@pytest.mark.parametrize(("model", "shape"), LAYERS, ids=lambda value: str(value).split("\n")[0])
def test_a_layer_is_walked_as_it_is_exported(model: nn.Module, shape: tuple[int, ...]) -> None:
    model = _randomised(model)
    program = captured_by_walk(model, shape, CPU)
    assert program is not None
    _same(program, captured_by_export(model, shape, CPU))
    x = torch.randn(3, *shape).to(next(iter(model.parameters()), torch.zeros(())).dtype)
    found = program(x) if program.final is None else program.final(program(x))
    assert torch.allclose(found.float(), model(x).float(), atol=1e-5)


@pytest.mark.parametrize(("model", "shape"), NETWORKS)
def test_a_network_is_walked_as_it_is_exported(model: nn.Module, shape: tuple[int, ...]) -> None:
    model = _randomised(model)
    program = captured_by_walk(model, shape, CPU)
    assert program is not None
    _same(program, captured_by_export(model, shape, CPU))


def test_a_subclass_that_computes_the_same_is_walked() -> None:
    model = _Named()
    program = captured_by_walk(model, (2,), CPU)
    assert program is not None
    _same(program, captured_by_export(model, (2,), CPU))


# -- what is not walked through --------------------------------------------------------------------


class _Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class _Backwards(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        for module in reversed(self):
            x = module(x)
        return x


class _Iterates(nn.Sequential):
    def __iter__(self) -> Any:
        return iter(list(self._modules.values())[::-1])


class _Calls(nn.ReLU):
    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) + 1


class _Conv(nn.Conv2d):
    def _conv_forward(self, x: Tensor, *args: Any) -> Tensor:
        return 2 * super()._conv_forward(x, *args)


def _hooked(model: nn.Module) -> nn.Module:
    model[1].register_forward_hook(lambda module, args, result: 3 * result)  # type: ignore[index]
    return model


def _pre_hooked(model: nn.Module) -> nn.Module:
    model[2].register_forward_pre_hook(lambda module, args: (args[0] - 1,))  # type: ignore[index]
    return model


def _patched(model: nn.Module) -> nn.Module:
    model[1].forward = torch.abs  # type: ignore[index]
    return model


def _shadowed(model: nn.Module) -> nn.Module:
    weight = model[0].weight.detach() + 1  # type: ignore[index]
    del model[0].weight  # type: ignore[index]
    model[0].weight = weight  # type: ignore[index]
    return model


def _pruned(model: nn.Module) -> nn.Module:
    prune.random_unstructured(model[0], "weight", amount=2)  # type: ignore[index]
    return model


def _with(module: nn.Module) -> Callable[[nn.Module], nn.Module]:
    return lambda model: nn.Sequential(nn.Linear(2, 2), module, nn.Linear(2, 1))


class _Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def _parametrised(model: nn.Module) -> nn.Module:
    parametrize.register_parametrization(model[2], "weight", _Twice())  # type: ignore[index]
    return model


UNUSUAL: dict[str, Callable[[nn.Module], nn.Module]] = {
    "hook": _hooked,
    "pre-hook": _pre_hooked,
    "forward of an object": _patched,
    "weight that is no parameter": _shadowed,
    "pruned": _pruned,
    "parametrised": _parametrised,
    "weight norm": lambda model: nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 3))),
    "spectral norm": lambda model: nn.Sequential(spectral_norm(nn.Linear(2, 3)).eval()),
    "subclass": _with(_Doubled(2, 2)),
    "sequential with another order": lambda model: _Backwards(nn.ReLU(), nn.Linear(2, 2)),
    "sequential with another iteration": lambda model: _Iterates(nn.ReLU(), nn.Linear(2, 2)),
    "another call": _with(_Calls()),
    "a module of the user": _with(_Twice()),
    "a part of a forward": lambda model: nn.Sequential(nn.Unflatten(1, (1, 1, 2)), _Conv(1, 1, 1)),
}


@pytest.mark.parametrize("change", UNUSUAL.values(), ids=UNUSUAL)
def test_what_may_compute_something_else_is_exported(
    change: Callable[[nn.Module], nn.Module],
) -> None:
    model = change(_mlp(2, 4, 3)).eval()
    assert captured_by_walk(model, (2,), CPU) is None
    x = torch.randn(6, 2)
    expected = model(x).double()
    assert torch.allclose(capture(model, (2,))(x), expected, atol=1e-5)


def test_modes_of_torch_lead_to_export() -> None:
    model = _mlp(2, 4, 1)

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    with Mode():
        assert captured_by_walk(model, (2,), CPU) is None
    with torch.autocast("cpu"):
        assert captured_by_walk(model, (2,), CPU) is None
    with torch.device("cpu"):  # says where tensors are made, no more
        assert captured_by_walk(model, (2,), CPU) is not None


def test_global_hooks_lead_to_export() -> None:
    model = _mlp(2, 4, 1)
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, result: None)
    try:
        assert captured_by_walk(model, (2,), CPU) is None
    finally:
        handle.remove()
    assert captured_by_walk(model, (2,), CPU) is not None


def test_a_method_of_torch_that_was_replaced_leads_to_export(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = _mlp(2, 4, 1)
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x.abs())
    assert captured_by_walk(model, (2,), CPU) is None
    x = torch.randn(6, 2)
    assert torch.allclose(capture(model, (2,))(x), model(x).double(), atol=1e-5)


def test_a_class_that_was_registered_leads_to_export() -> None:
    model = _mlp(2, 4, 1)
    with sc.register_op(nn.Linear, affine=True):
        assert captured_by_walk(model, (2,), CPU) is None


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Dropout()).train(), (2,)),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).train(), (2,)),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)).eval(), (2,)),
        (nn.Sequential(nn.Linear(2, 2), nn.Sigmoid(), nn.Linear(2, 2)), (2,)),
        (nn.Sequential(nn.Linear(2, 2), nn.GELU()), (2,)),
        (nn.Sequential(nn.Linear(3, 2), nn.ReLU()), (2,)),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 2)), (2,)),
        (nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU()), (1, 3, 3)),
        (nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU()), (3, 3)),
        (nn.Sequential(nn.MaxPool2d(4), nn.ReLU()), (1, 3, 3)),
        (nn.Sequential(nn.Flatten(0), nn.ReLU()), (2,)),
        (nn.Sequential(nn.Linear(2, 2), nn.Threshold(1.0, 2.0)), (2,)),
        (nn.Sequential(nn.Linear(2, 2), nn.Softmax(0)), (2,)),
        (nn.Sequential(nn.LazyLinear(2), nn.ReLU()), (2,)),
        (nn.Sequential(nn.Linear(2, 2, device="meta"), nn.ReLU()), (2,)),
    ],
)
def test_what_is_refused_is_refused_in_the_same_words(
    model: nn.Module, shape: tuple[int, ...]
) -> None:
    with pytest.raises(sc.SplineCamError) as expected:
        captured_by_export(copy.deepcopy(model), shape, CPU)
    with pytest.raises(sc.SplineCamError) as found:
        capture(model, shape)
    assert str(found.value) == str(expected.value)
    assert type(found.value) is type(expected.value)


def test_weights_that_are_not_finite_are_named() -> None:
    model = _mlp(2, 4, 1)
    with torch.no_grad():
        model[0].weight[1, 1] = torch.nan
    with pytest.raises(sc.CaptureError, match=r"0\.weight"):
        capture(model, (2,))


def test_changed_weights_are_seen() -> None:
    model = _mlp(2, 4, 1)
    x = torch.randn(6, 2)
    for _ in range(3):
        with torch.no_grad():
            model[0].weight.data.mul_(2)
            model[2].bias.add_(1)
        assert torch.allclose(capture(model, (2,))(x), model(x).double(), atol=1e-5)
