"""Models as importers write them: values of parameters and buffers are read in forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.network.capture import capture

BOX = sc.Domain.box(-2, 2)


class Imported(nn.Module):
    """Layers, and numbers of the graph that was imported, as buffers."""

    def __init__(self, call: Callable[[Imported, Tensor], Tensor]) -> None:
        super().__init__()
        self.c, self.d = nn.Linear(2, 4), nn.Linear(4, 4)
        self.act = nn.ReLU()
        numbers = {"shape": [-1, 4], "flag": True, "off": False, "k": 3, "axes": [1]}
        numbers |= {"bounds": [-0.5, 1.5], "mask": [True, False, True, True], "zero": 0}
        for name, value in numbers.items():
            self.register_buffer(name, torch.tensor(value))
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self, x)


def repeated(m: Imported, x: Tensor) -> Tensor:
    h = m.c(x)
    for _ in range(int(m.k)):
        h = m.act(m.d(h))
    return h


def flagged(m: Imported, x: Tensor) -> Tensor:
    h = m.c(x)
    if m.flag:
        h = m.act(h)
    return h


def not_flagged(m: Imported, x: Tensor) -> Tensor:
    h = m.act(m.c(x))
    return h * h if m.off else h


def formatted(m: Imported, x: Tensor) -> Tensor:
    assert f"{m.k}" == "3"
    return flagged(m, x)


def with_batch(m: Imported, x: Tensor) -> Tensor:
    bias = m.d.bias.expand(x.shape[0], -1)[: x.shape[0]]
    return m.act(m.c(x) + bias) if m.flag else x


def written_to(m: Imported, x: Tensor) -> Tensor:
    """A constant that is written to in forward has its new value."""
    w = m.bounds.clone()
    w.view(-1)[0] += 10.0
    return m.act(m.c(x)) if w.sum() > 5 else x


CALLS: dict[str, Callable[[Imported, Tensor], Tensor]] = {
    "if self.flag": flagged,
    "if self.off": not_flagged,
    "torch.Size": lambda m, x: m.act(m.c(x)).reshape(torch.Size(m.shape)),
    "tolist": lambda m, x: m.act(m.c(x)).reshape(m.shape.tolist()),
    "tuple": lambda m, x: m.act(m.c(x)).reshape(tuple(m.shape)),
    "sizes one by one": lambda m, x: m.act(m.c(x)).view(-1, m.k + 1),
    "int": lambda m, x: m.act(m.c(x))[:, : int(m.k)],
    "item": lambda m, x: m.act(m.c(x)).narrow(1, 0, m.k.item()),
    "range": repeated,
    "float of each": lambda m, x: m.act(m.c(x) + torch.tensor([float(v) for v in m.c.bias])),
    "scale": lambda m, x: m.act(m.c(x * m.bounds[1].item())),
    "pad": lambda m, x: nn.functional.pad(m.act(m.c(x)), [int(v) for v in m.k.repeat(2)]),
    "axes": lambda m, x: m.act(m.c(x)).sum(dim=m.axes.tolist()),
    "bounds": lambda m, x: m.c(x).clamp(float(m.bounds[0]), m.bounds[1].item()),
    "weights": lambda m, x: m.act(m.c(x)) if m.c.weight.abs().max() > 1e-3 else x,
    "all": lambda m, x: m.act(m.c(x)) if bool((m.d.weight < 1e3).all()) else x,
    "equal": lambda m, x: m.act(m.c(x)) if torch.equal(m.k, torch.tensor(3)) else x,
    "nonzero": lambda m, x: m.act(m.c(x))[:, m.mask.nonzero().flatten()],
    "numpy": lambda m, x: m.act(m.c(x))[:, m.mask.cpu().numpy().nonzero()[0].tolist()],
    "arithmetic": lambda m, x: m.act(m.c(x))[:, : int(m.k + torch.tensor(1) - 2)],
    "gather": lambda m, x: m.act(m.c(x)).index_select(1, torch.arange(int(m.k))),
    "format": formatted,
    "with the batch": with_batch,
    "written to": written_to,
}


@pytest.mark.few(6)
@pytest.mark.parametrize("name", CALLS)
def test_values_of_parameters_and_buffers_are_constants(name: str) -> None:
    torch.manual_seed(0)
    model = Imported(CALLS[name])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    part = sc.partition(model, BOX, device="cpu", progress=False)
    assert part.validate().ok
    assert len(part) > 2
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model._forward_pre_hooks
    assert not model._forward_hooks
    assert torch.equal(torch.get_rng_state(), state)


def test_layers_have_the_names_of_modules() -> None:
    program = capture(Imported(flagged), (2,))
    assert [layer.name for layer in program.layers] == ["act"]
    model = Imported(lambda m, x: torch.sigmoid(m.d(x.reshape(m.shape.tolist()))) ** 2)
    with pytest.raises(sc.UnsupportedOpError) as caught:
        capture(model, (4,))
    assert [op.target for op in caught.value.ops] == ["aten.sigmoid", "aten.pow"]
    assert all("test_importers.py" in op.location for op in caught.value.ops)


def both(m: Imported, x: Tensor) -> Tensor:
    h = m.c(x)
    if m.flag:
        return h if h.max() > 0.3 else x
    return h


def mixed_with_input(m: Imported, x: Tensor) -> Tensor:
    w = m.bounds.clone()
    w.view(-1)[0] = x[0, 0]
    return m.c(x) if w.sum() > 0 else x


def counts(m: Imported, x: Tensor) -> Tensor:
    return m.c(x) * (m.c(x) > m.bounds[0]).sum().item()


REFUSED: dict[str, Callable[[Imported, Tensor], Tensor]] = {
    "input": lambda m, x: m.c(x) if x.sum() > 0 else x,
    "buffer and input": both,
    "buffer plus input": lambda m, x: m.c(x) if (m.bounds + x).sum() > 0 else x,
    "input written into a copy of a buffer": mixed_with_input,
    "input in place": lambda m, x: m.c(x) if m.bounds.clone().add_(x[0]).sum() > 0 else x,
    "random": lambda m, x: m.c(x) if torch.rand_like(m.bounds).sum() > 1 else x,
}


@pytest.mark.parametrize("name", REFUSED)
def test_control_flow_on_the_input_is_refused(name: str) -> None:
    model = Imported(REFUSED[name])
    state = torch.get_rng_state()
    with pytest.raises(sc.CaptureError, match="control flow depends on the values of its input"):
        capture(model, (2,))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_count_of_activations_is_refused() -> None:
    with pytest.raises(sc.CaptureError):
        capture(Imported(counts), (2,))


def test_other_errors_are_reported_as_before() -> None:
    def wrong(m: Imported, x: Tensor) -> Any:
        return m.d(x)

    with pytest.raises(
        sc.CaptureError, match=r"takes 4 numbers .* but gets 2, in an input of shape \(batch, 2\)"
    ):
        capture(Imported(wrong), (2,))
