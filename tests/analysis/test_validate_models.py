"""validate() compares with the real model, in whatever way that is written."""

from __future__ import annotations

import random
import threading
from collections import namedtuple
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

import splinecam as sc
from splinecam.network.capture.models import private_copy, widened
from splinecam.questions.validate import CannotRun, run_real

BOX = sc.Domain.box(-1, 1)


class Model(nn.Module):
    """Two layers, and what is done with them."""

    def __init__(self, call: Callable[[Model, Tensor], Any]) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 6), nn.Linear(6, 3)
        self.register_buffer("mean", torch.tensor([0.1, -0.2]))
        self.scale = torch.tensor([0.3, 0.7])  # neither a parameter nor a buffer
        self.tables = {"shift": [torch.tensor(0.1), (torch.full((2,), 0.3),)]}
        self.call = call

    def forward(self, x: Tensor) -> Any:
        return self.call(self, x)


def body(m: Model, x: Tensor) -> Tensor:
    return m.b(torch.relu(m.a(x)))


@dataclass
class Result:
    logits: Tensor
    loss: None = None


Pair = namedtuple("Pair", ["logits", "loss"])


class Squared(torch.autograd.Function):
    """The identity, with a gradient that is not its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 3 * grad


def autocast(m: Model, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = m.a(x)
    return m.b(torch.relu(h.float()))


def without_gradient(m: Model, x: Tensor) -> Tensor:
    with torch.no_grad():
        h = m.a(x)
    return m.b(torch.relu(h))


def asserts_type(m: Model, x: Tensor) -> Tensor:
    assert x.dtype == torch.float32
    return body(m, x)


def smallest(m: Model, x: Tensor) -> Tensor:
    w = m.a.weight
    return body(m, x / (w.norm() + torch.finfo(x.dtype).eps))


def stores(m: Model, x: Tensor) -> Tensor:
    m.last = torch.relu(m.a(x))
    return m.b(m.last)


def in_place(m: Model, x: Tensor) -> Tensor:
    x += 1
    x[:, 0] *= 2
    return body(m, x)


def mixed(m: Model, x: Tensor) -> Tensor:
    return m.b(torch.relu(m.a(x).half().float() + torch.ones(6, dtype=torch.float16).float()))


CALLS: dict[str, Callable[[Model, Tensor], Any]] = {
    "x.float()": lambda m, x: body(m, x.float()),
    "to(float32)": lambda m, x: body(m, x.to(torch.float32)),
    "to(dtype=)": lambda m, x: body(m, x.to(dtype=torch.float32, device="cpu")),
    "type(FloatTensor)": lambda m, x: body(m, x.type(torch.FloatTensor)),
    "type_as": lambda m, x: body(m, x.type_as(torch.zeros(1))),
    "zeros": lambda m, x: body(m, x @ torch.zeros(2, 2) + x),
    "tensor": lambda m, x: body(m, x * torch.tensor([0.1, 0.3])),
    "eye": lambda m, x: body(m, x @ torch.eye(2)),
    "explicit type": lambda m, x: body(m, x + torch.full((2,), 0.1, dtype=torch.float32)),
    "ones_like": lambda m, x: body(m, x + torch.ones_like(x, dtype=torch.float32)),
    "new_tensor": lambda m, x: body(m, x + x.new_tensor([0.1, 0.2])),
    "linspace": lambda m, x: body(m, x + torch.linspace(0, 0.7, 2)),
    "half and float": lambda m, x: body(m, x.half().float()),
    "mixed": mixed,
    "buffer and attribute": lambda m, x: body(m, (x - m.mean) / m.scale),
    "nested attributes": lambda m, x: body(m, x + m.tables["shift"][0] * m.tables["shift"][1][0]),
    "numpy constant": lambda m, x: body(m, x + torch.from_numpy(np.float32([0.1, 0.2]))),
    "sum with dtype": lambda m, x: body(m, x) + x.sum(1, keepdim=True, dtype=torch.float32),
    "autocast": autocast,
    "bfloat16 inside": lambda m, x: body(m, x.bfloat16().float()),
    "no_grad": without_gradient,
    "detach": lambda m, x: m.b(torch.relu(m.a(x).detach())),
    "asserts its type": asserts_type,
    "smallest number of its type": smallest,
    "stores what it computes": stores,
    "in place": in_place,
    "a dict": lambda m, x: {"logits": body(m, x)},
    "a dataclass": lambda m, x: Result(body(m, x)),
    "a named tuple": lambda m, x: Pair(body(m, x), None),
    "a nested result": lambda m, x: {"out": [body(m, x)], "loss": None, "step": 3},
    "a namespace": lambda m, x: SimpleNamespace(logits=body(m, x)),
    "a list": lambda m, x: [body(m, x)],
}


# Older versions of torch cannot export these.
OLD = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 7)


def skip_if_old(name: str) -> None:
    if OLD and name in ("stores what it computes", "torch.compile inside"):
        pytest.skip("torch.export of this version does not follow it")


def assert_validates(model: nn.Module, domain: sc.Domain = BOX) -> sc.validate.Report:
    part = sc.partition(model.eval(), domain, device="cpu", progress=False)
    report = part.validate()
    assert report.ok
    names = [check.name for check in report.checks]
    assert "map against the model at centroids" in names
    assert "slopes against autograd" in names, names
    return report


@pytest.mark.few(3)
@pytest.mark.parametrize("name", CALLS)
def test_ways_to_write_forward(name: str) -> None:
    skip_if_old(name)
    assert_validates(Model(CALLS[name]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types(dtype: torch.dtype) -> None:
    assert_validates(Model(body).to(dtype))
    assert_validates(Model(lambda m, x: body(m, x.to(dtype))).to(dtype))


def hooked() -> nn.Module:
    model = Model(body)
    model.a.register_forward_hook(lambda module, args, out: out + torch.tensor(0.5))
    model.register_forward_pre_hook(lambda module, args: (args[0] * 0.3,))
    model.register_forward_hook(lambda module, args, out: {"logits": out * 0.7})
    return model


def method_hook() -> nn.Module:
    class Watching(Model):
        def __init__(self) -> None:
            super().__init__(body)
            self.a.register_forward_hook(self.shift)

        def shift(self, module: nn.Module, args: Any, out: Tensor) -> Tensor:
            return out + self.mean.sum()

    return Watching()


def closure() -> nn.Module:
    model = Model(body)
    model.call = lambda m, x: body(model, x)  # not the module that is running, if that is a copy
    return model


def wrapped(wrap: Callable[..., nn.Module]) -> nn.Module:
    return nn.Sequential(wrap(nn.Linear(2, 5)), nn.ReLU(), wrap(nn.Linear(5, 2)))


def old_norm(norm: Callable[..., nn.Module]) -> nn.Module:
    context = pytest.warns(FutureWarning) if norm is weight_norm else nullcontext()
    with context:
        model = wrapped(norm)
    model(torch.zeros(3, 2)).sum().backward()  # the weight is no leaf now
    return model


def symmetric() -> nn.Module:
    class Symmetric(nn.Module):
        def forward(self, w: Tensor) -> Tensor:
            return w.triu() + w.triu(1).T

    layer = nn.Linear(2, 2)
    nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(2, 2))


def hidden_modules() -> nn.Module:
    class Hidden(Model):
        def __init__(self) -> None:
            super().__init__(lambda m, x: m.parts[1](torch.relu(m.parts[0](x))))
            self.parts = [nn.Linear(2, 4), nn.Linear(4, 1)]
            self.lock = threading.Lock()  # cannot be copied

    return Hidden()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "data parallel": lambda: nn.DataParallel(Model(body)),
    "data parallel inside": lambda: nn.Sequential(nn.DataParallel(Model(body)), nn.ReLU()),
    "weight norm": lambda: old_norm(weight_norm),
    "spectral norm": lambda: old_norm(spectral_norm),
    "parametrized weight norm": lambda: wrapped(parametrizations.weight_norm),
    "parametrized spectral norm": lambda: wrapped(parametrizations.spectral_norm),
    "orthogonal": lambda: wrapped(parametrizations.orthogonal),
    "a parametrization": symmetric,
    "hooks": hooked,
    "a bound method as hook": method_hook,
    "a closure over the model": closure,
    "modules in a list, and a lock": hidden_modules,
    "torch.compile": lambda: torch.compile(Model(body), backend="eager"),
    "torch.compile inside": lambda: nn.Sequential(torch.compile(Model(body), backend="eager")),
    "tied weights": lambda: nn.Sequential(layer := nn.Linear(2, 2), nn.ReLU(), layer),
    "an exported program": lambda: torch.export.export(
        Model(body),
        (torch.zeros(2, 2),),
        dynamic_shapes=({0: torch.export.Dim("batch", max=2**31)},),
    ).module(),
}


@pytest.mark.parametrize("name", MODELS)
def test_ways_to_make_a_model(name: str) -> None:
    skip_if_old(name)
    torch.manual_seed(0)
    model = MODELS[name]()
    if name == "an exported program":
        part = sc.partition(model, BOX, device="cpu", progress=False)  # it has no eval
        assert part.validate().ok
        return
    assert_validates(model)


def test_weights_that_were_changed_since_are_noticed_in_lower_types() -> None:
    model = Model(CALLS["half and float"])
    part = sc.partition(model, BOX, device="cpu", progress=False)
    with torch.no_grad():
        model.b.bias += 1e-6
    with pytest.raises(sc.ValidationError, match="map against the model at centroids"):
        part.validate()


# -- what cannot be run in float64


def needs_four_bytes(m: Model, x: Tensor) -> Tensor:
    if x.element_size() != 4:
        raise RuntimeError("this kernel is for float32")
    return body(m, x)


def test_a_model_that_runs_in_its_own_precision_only() -> None:
    torch.manual_seed(1)
    part = sc.partition(Model(needs_four_bytes), BOX, device="cpu", progress=False)
    report = part.validate()
    values = [check for check in report.checks if check.name.startswith("map against the model")]
    assert [check.name for check in values] == [
        "map against the model at centroids in float32",
        "map against the model at random interior points in float32",
        "map against the model at random points of the domain in float32",
    ]
    assert all(0 < check.worst <= check.limit < 1e-4 for check in values)
    reason = "the model runs in float32 only (RuntimeError: this kernel is for float32)"
    assert f"slopes not compared, as {reason}" in str(report)
    with torch.no_grad():
        part.model.b.bias += 1e-3
    with pytest.raises(sc.ValidationError, match="at centroids in float32"):
        part.validate()


def test_a_model_that_cannot_be_run_any_more() -> None:
    model = Model(body)
    part = sc.partition(model, BOX, device="cpu", progress=False)
    model.b = nn.Linear(5, 3)
    with pytest.raises(sc.ValidationError, match="the model cannot be run: RuntimeError: mat1"):
        part.validate()
    model.call = lambda m, x: {"a": body(m, x), "b": x}
    model.b = nn.Linear(6, 3)
    with pytest.raises(sc.ValidationError, match="choose one with output='a'"):
        part.validate()


def test_a_gradient_of_its_own_is_not_compared() -> None:
    part = sc.partition(
        Model(lambda m, x: body(m, Squared.apply(x))), BOX, device="cpu", progress=False
    )
    report = part.validate()
    assert "slopes not compared, as the model defines a gradient of its own" in str(report)


# -- what is left behind


@pytest.mark.skipif(OLD, reason="torch.export of this version does not follow it")
def test_validation_leaves_no_traces() -> None:
    class Busy(Model):
        def __init__(self) -> None:
            super().__init__(body)
            self.register_buffer("count", torch.zeros(()))
            self.log: list[Any] = []
            self.cache: dict[str, Any] = {}
            self.names = SimpleNamespace(last=None)
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            self.log.append(x)
            self.cache["x"] = x
            self.names.last = x
            self.last = x
            return body(self, self.drop(x))

    model = Busy().eval()
    part = sc.partition(model, BOX, device="cpu", progress=False)
    model.names.last = None
    state = torch.get_rng_state(), random.getstate(), torch.get_default_dtype()
    part.validate()
    model.train()
    with pytest.raises(sc.ValidationError):
        part.validate()
    assert model.training
    assert float(model.count) == 0
    assert not model.log
    assert not model.cache
    assert model.names.last is None
    assert not hasattr(model, "last")
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state[0])
    assert (random.getstate(), torch.get_default_dtype()) == state[1:]
    assert torch.is_grad_enabled()


def test_a_private_copy_shares_nothing_that_forward_may_write_to() -> None:
    model = hidden_modules()
    again = private_copy(model, widened)
    assert type(again) is type(model)
    assert again.lock is model.lock
    assert again.parts[0] is not model.parts[0]
    assert again.parts[0].weight.dtype == torch.float64
    assert again.a.weight.dtype == torch.float64
    assert again.tables["shift"][1][0].dtype == torch.float64
    assert isinstance(again.a.weight, nn.Parameter)
    tied = nn.Sequential(layer := nn.Linear(2, 2), nn.ReLU(), layer)
    assert (copy := private_copy(tied, widened))[0] is copy[2]


def test_the_real_model_is_asked_and_not_the_program() -> None:
    """Every number that validate() compares with comes out of the module's own forward."""
    calls = []

    def counted(m: Model, x: Tensor) -> Tensor:
        calls.append(tuple(x.shape))
        return body(m, x)

    model = Model(counted)
    with run_real(model, None, torch.float32, wide=True, device=torch.device("cpu")) as forward:
        x = torch.randn(7, 2, dtype=torch.float64)
        y = forward(x)
    assert calls == [(7, 2)]
    assert y.dtype == torch.float64
    assert torch.allclose(y, model(x.float()).double(), atol=1e-5)
    assert not torch.equal(y.float().double(), y)


def separable() -> nn.Module:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 6, 3, padding=1, groups=3)
    return nn.Sequential(conv, nn.ReLU6(), nn.Flatten(), nn.Linear(96, 2)).eval()


def test_convolutions_of_single_channels_are_compared_with_those_of_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, plain = separable(), separable().double()
    x = torch.randn(5, 3, 4, 4, dtype=torch.float64)
    at = x.clone().requires_grad_()
    expected = plain(at)
    (steep,) = torch.autograd.grad(expected.sum(), at)
    options: Any = {"wide": True, "device": torch.device("cpu")}
    with run_real(model, None, torch.float32, **options) as forward:
        found = forward(at)
        (slope,) = torch.autograd.grad(found.sum(), at)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert torch.allclose(slope, steep, rtol=1e-12, atol=1e-12)

    def wrong(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *args: run(*args) + 1e-6

    monkeypatch.setattr("splinecam.questions.validate.convolution", wrong)
    with (
        run_real(model, None, torch.float32, **options) as forward,
        pytest.raises(CannotRun, match="do not agree"),
    ):
        forward(x)


def test_validation_in_several_threads_while_others_partition() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = Model(CALLS["half and float"])
    part = sc.partition(model, BOX, device="cpu", progress=False)

    def work(k: int) -> bool:
        if k % 2:
            return len(sc.partition(model, BOX, device="cpu", progress=False)) == len(part)
        return part.validate().ok

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))
    assert all(isinstance(p, nn.Parameter) for p in model.parameters())
