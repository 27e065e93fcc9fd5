"""Ways to write a model: the captured program computes the same, or the reason against it is true.

Of each theme, the partition of every fifth way is validated, too: what follows a capture does not
depend on how the model is written.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import is_dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from fixtures.ways import WAYS, Way

ACCEPTED = [way for way in WAYS if way.refused is None]
REFUSED = [way for way in WAYS if way.refused is not None]
THEMES = sorted({way.theme for way in ACCEPTED})
PARTITIONED = [
    way for theme in THEMES for way in [way for way in ACCEPTED if way.theme == theme][::5]
]


def domain_of(way: Way) -> sc.Domain:
    """A square of inputs: around the origin, or of images around a random one."""
    if way.shape == (2,):
        return sc.Domain.box(-1, 1)
    generator = torch.Generator().manual_seed(5)
    return sc.Domain.around(torch.randn(way.shape, generator=generator), side=4.0)


def partition(way: Way, model: nn.Module) -> sc.Partition:
    options = {} if way.output is None else {"output": way.output}
    return sc.partition(model, domain_of(way), **options)


def snapshot(model: nn.Module) -> list[Any]:
    """The weights, modes and hooks of a model, to compare with those of later."""
    state: list[Any] = []
    for name, module in model.named_modules(remove_duplicate=False):
        hooks = [[*module._forward_hooks], [*module._forward_pre_hooks], [*module._backward_hooks]]
        state.append((name, type(module), module.training, hooks, sorted(module.__dict__)))
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        bare = tensor.is_meta or nn.parameter.is_lazy(tensor)
        numbers = None if bare else tensor.detach().clone()
        state.append((name, id(tensor), tensor.dtype, tensor.requires_grad, tensor.grad, numbers))
    return state


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def own_outputs(way: Way, model: nn.Module, x: Tensor) -> Tensor:
    """What the model itself gives, in its own type, flat."""
    tensors = [*model.parameters(), *model.buffers()]
    dtype = next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)
    with torch.no_grad():
        found: Any = model(x.to(dtype))
    if callable(way.output):
        found = way.output(found)
    elif way.output is not None:
        found = found[way.output]
    while not isinstance(found, Tensor):
        found = vars(found) if is_dataclass(found) else found
        (found,) = found.values() if isinstance(found, dict) else found
    return found.double().reshape(x.shape[0], -1)


def outputs_of(part: sc.Partition, x: Tensor) -> Tensor:
    """What the affine maps of the regions give, with the final function that was taken off."""
    uv = part.domain.project(x)[0]
    face = part.locate(x)
    assert bool((face >= 0).all())
    out = torch.einsum("fok,fk->fo", part.weight[face], uv) + part.bias[face]
    final = part._network.final
    if final is None:
        return out
    return final(out.view(-1, *part._network.output_shape)).reshape(x.shape[0], -1).double()


quiet = [
    # Of torch's checkpoint.
    pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad"),
    pytest.mark.filterwarnings("ignore:index_reduce.. is in beta"),
]
accepted = pytest.mark.parametrize(
    "way", [pytest.param(way, marks=quiet, id=way.id) for way in ACCEPTED]
)
partitioned = pytest.mark.parametrize(
    "way", [pytest.param(way, marks=quiet, id=way.id) for way in PARTITIONED]
)


@pytest.mark.few(150)
@accepted
def test_accepted_ways_are_captured(way: Way) -> None:
    model = way.model()
    before, state = snapshot(model), torch.get_rng_state()
    program = sc.capture(model, way.shape, output=way.output, device="cpu").program
    assert same(snapshot(model), before)
    assert torch.equal(torch.get_rng_state(), state)
    domain = domain_of(way)
    uv = torch.rand(64, 2, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    low, high = domain.corners.min(0).values, domain.corners.max(0).values
    x = domain.embed(torch.cat([low + uv * (high - low), domain.corners])).reshape(-1, *way.shape)
    found = program(x)
    if way.affine:  # then its value in the middle of two points is the mean of theirs
        middle = program((x[:32] + x[32:64]) / 2)
        torch.testing.assert_close(middle, (found[:32] + found[32:64]) / 2)
    else:
        assert program.layers
    if way.compare:
        final = program.final or torch.nn.Identity()
        own = own_outputs(way, model, x)
        found = final(found).reshape(len(x), -1).double()
        torch.testing.assert_close(found, own, rtol=1e-3, atol=1e-4)


@pytest.mark.few(12)
@partitioned
def test_partitions_of_some_ways_validate(way: Way) -> None:
    model = way.model()
    before = snapshot(model)
    part = partition(way, model)
    part.validate()
    assert same(snapshot(model), before)
    assert (len(part) == 1) == way.affine
    if way.compare:  # also at random points, with the model as it is
        x = part.sample(64, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
        torch.testing.assert_close(
            outputs_of(part, x), own_outputs(way, model, x), rtol=1e-3, atol=1e-4
        )


@pytest.mark.few(80)
@pytest.mark.parametrize("way", REFUSED, ids=lambda way: way.id)
def test_refused_ways_say_why(way: Way) -> None:
    model = way.model()
    before, state = snapshot(model), torch.get_rng_state()
    with pytest.raises(sc.CaptureError) as caught:
        partition(way, model)
    assert re.search(way.refused or "", str(caught.value), re.IGNORECASE), str(caught.value)
    assert same(snapshot(model), before)
    assert torch.equal(torch.get_rng_state(), state)


def test_there_are_many_ways() -> None:
    names = Counter(way.id for way in WAYS)
    assert not [name for name, count in names.items() if count > 1]
    assert len(WAYS) >= 230
    assert len(PARTITIONED) >= 60
    kinds = Counter(way.kind for way in WAYS)
    assert kinds["jumps"] + kinds["mixes"] >= 18
    assert set(kinds) <= {"", "jumps", "mixes"}
    assert all(way.refused is not None for way in WAYS if way.kind)
