"""Capture: any style of model becomes the same function in float64, or a clear error."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import splinecam as sc
from fixtures.networks import Mixed, ResNet18, UNet, seeded
from splinecam.errors import CaptureError, UnsupportedOpError
from splinecam.network.capture import capture
from splinecam.network.capture.reading.probe import probe
from splinecam.network.nonlinearities import PiecewiseScalar
from splinecam.network.ops.bounds import Bound
from splinecam.network.ops.registry import RULES
from splinecam.network.program import Program


class Fn(nn.Module):
    """A module of one function, with two layers for it to use."""

    def __init__(self, call: Callable[..., object]) -> None:
        super().__init__()
        self.call = call
        generator = torch.Generator().manual_seed(0)
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> object:
        return self.call(self, x)


def points(*shape: int, count: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(count, *shape, dtype=torch.float64, generator=generator)


def layer_names(program: Program) -> list[str]:
    return [stage.layer.name for stage in program.stages if stage.layer is not None]


def assert_captured(model: nn.Module, *shape: int, layers: int | None = None) -> Program:
    """Capture, and compare with the model's own forward in float64, in batches of 5, 2 and 1."""
    program = capture(model, shape)
    x = points(*shape)
    expected = model.double()(x)
    torch.testing.assert_close(program(x), expected, rtol=1e-12, atol=1e-12)
    for part in (slice(1, 3), slice(1)):
        torch.testing.assert_close(program(x[part]), expected[part], rtol=1e-12, atol=1e-12)
    if layers is not None:
        assert len(program.stages) == layers + 1
    check_liveness(program)
    return program


def check_liveness(program: Program) -> None:
    """What a stage reads is alive, every border has the batch in front, and nothing is stale."""
    x = points(*program.input_shape)
    live = {program.input_name: x}
    bound = {program.input_name: Bound(x.abs().amax(0, keepdim=True), torch.zeros_like(x[:1]))}
    for i, stage in enumerate(program.stages):
        assert set(stage.live_in) <= set(live)
        live = program.advance(i, {name: live[name] for name in stage.live_in})
        bound = program.bounds(i, {name: bound[name] for name in stage.live_in})
        assert tuple(live) == stage.live_out == tuple(bound)
        for name, value in live.items():
            assert value.shape[0] == 5
            assert value.dtype == torch.float64
            assert bound[name].magnitude.shape == (1, *value.shape[1:])
            assert bound[name].error.isfinite().all()
        if stage.layer is not None:
            z, argument = live[stage.layer.source], stage.layer.argument
            assert tuple(z.shape[1:]) == stage.layer.shape
            live[stage.layer.result] = stage.layer.apply(live[argument])
            if isinstance(stage.layer, PiecewiseScalar):
                assert stage.layer.pieces(z).shape == (5, z[0].numel())
            low, high = z.amin(0).flatten(), z.amax(0).flatten()
            bound[stage.layer.result] = stage.layer.bound(bound[argument], low, high)
            needed = set(program.stages[i + 1].live_in)
            assert needed <= set(live)
            assert set(live) - needed <= {stage.layer.source, argument}
    assert program.stages[-1].live_out == (program.output_name,)


def rejected(model: nn.Module, *shape: int) -> UnsupportedOpError:
    with pytest.raises(UnsupportedOpError) as caught:
        capture(model, shape)
    return caught.value


# --- styles of models


def skip(m: Fn, x: Tensor) -> Tensor:
    return m.b(F.relu(m.a(x))) + x


def concat(m: Fn, x: Tensor) -> Tensor:
    y = F.relu(m.a(x))
    return torch.cat([y, x, F.relu(m.b(y))], 1)


def shared(m: Fn, x: Tensor) -> Tensor:
    return m.act(m.a(m.act(m.a(x))))


def in_place(m: Fn, x: Tensor) -> Tensor:
    y = m.a(x)
    y.relu_()
    y += x
    y.mul_(2).clamp_(max=1.5)
    return m.b(y)


def in_place_view(m: Fn, x: Tensor) -> Tensor:
    y = m.a(x)
    half = y[:, :2]
    half.relu_()
    return m.b(y) + half.sum(1, keepdim=True)


def in_place_seen_by_dropout(m: Fn, x: Tensor) -> Tensor:
    y = m.a(x)
    z = F.dropout(y, training=False)
    z.relu_()
    return y + m.b(z)


def in_place_and_dropout_last(m: Fn, x: Tensor) -> Tensor:
    y = m.a(x)
    y[:, 0].relu_()
    with torch.enable_grad():
        return F.dropout(m.b(y), training=False)


def slice_assignment(m: Fn, x: Tensor) -> Tensor:
    out = torch.empty(x.shape[0], 4, dtype=x.dtype)
    y = F.relu(m.a(x))
    out[:, :2] = y[:, 2:]
    out[:, 2] = 1.0
    out[:, 3] = x[:, 0] - y[:, 1]
    return m.b(out)


def input_in_place(m: Fn, x: Tensor) -> Tensor:
    x = x.clone()
    x[:, 0] = 0
    return F.relu(m.a(x))


def static_control_flow(m: Fn, x: Tensor) -> Tensor:
    for i in range(3):
        x = m.a(x) if i % 2 else F.relu(m.b(x))
    if x.shape[1] == 4:
        x = x.abs()
    return x


def batch_shaped(m: Fn, x: Tensor) -> Tensor:
    ones = torch.ones(x.shape[0], 2, dtype=x.dtype)
    y = torch.cat([m.a(x)[:, :2], ones], 1)
    y = torch.maximum(y, torch.full_like(y, 0.25))
    return m.b(y) + x.new_zeros(x.size(0), 1) + torch.arange(4)


def conversions(m: Fn, x: Tensor) -> Tensor:
    y = F.relu(m.a(x).to(x.dtype)).type_as(x)
    return m.b(y.to("cpu")).to(m.a.weight.dtype)


def transposed(m: Fn, x: Tensor) -> Tensor:
    y = F.relu(m.a(x).t())
    return (y * torch.arange(4)[:, None]).t().clamp(min=torch.tensor([0.0, 1.0, 2.0, -1.0]))


def merged(m: Fn, x: Tensor) -> Tensor:
    y = F.relu(m.a(x).reshape(-1, 2) + torch.tensor([0.5, -0.5]))
    return m.b((2 * y).reshape(x.shape[0], 4)) + y.reshape(-1, 4)


def squeezed(m: Fn, x: Tensor) -> Tensor:
    return F.relu(m.a(x).unsqueeze(1)).squeeze()


def tuple_output(m: Fn, x: Tensor) -> tuple[Tensor]:
    return (F.relu(m.a(x)),)


def pieces_of_split(m: Fn, x: Tensor) -> Tensor:
    a, b, c = m.a(x).split([1, 2, 1], 1)
    return torch.cat([F.relu(b), a.abs(), c], 1)


def unused(m: Fn, x: Tensor) -> Tensor:
    torch.sigmoid(m.a(x)).sum()
    return F.relu(m.b(x))


def mask_index(m: Fn, x: Tensor) -> Tensor:
    return F.relu(m.a(x)[:, torch.tensor([True, False, True, True])])


def mask_assignment(m: Fn, x: Tensor) -> Tensor:
    y = m.a(x).clone()
    y[:, torch.tensor([True, False, True, True])] = 0
    return F.relu(y)


def number_from_weights(m: Fn, x: Tensor) -> Tensor:
    return F.relu(m.a(x) * m.b.weight[0, 0].item() / x.shape[1])


def grad_blocks(m: Fn, x: Tensor) -> Tensor:
    with torch.enable_grad():
        y = F.relu(m.a(x))
    with torch.no_grad():
        return m.b(y)


def constants_only(m: Fn, x: Tensor) -> Tensor:
    weight = torch.softmax(m.a.weight, 0) * (m.b.weight > 0)
    halves = torch.ones(x.shape[0], 4, dtype=x.dtype).split(2, 1)
    return torch.cat([F.linear(x, weight), halves[1]], 1).relu()


def masked(m: Fn, x: Tensor) -> Tensor:
    y = m.a(x)
    y = y * (y > 0) + torch.where(y < x, y, x)
    return m.b(y).masked_fill(m.b(y) < -1, -1)


def masked_in_place(m: Fn, x: Tensor) -> Tensor:
    y = m.a(x)
    y[y < 0.25] = 0.25
    return m.b(y)


def mask_used_twice(m: Fn, x: Tensor) -> Tensor:
    y = m.a(x)
    mask = y > 0
    return m.b(y * mask + torch.where(mask, y, -0.5 * y))


def mask_that_changes_nothing(m: Fn, x: Tensor) -> Tensor:
    return torch.where(m.a(x) > 0, x, x)


def mask_of_other_shape(m: Fn, x: Tensor) -> Tensor:
    first = m.a(x)[:, :1]
    y = torch.where(first > 0, m.b(x) + first, m.b(x))
    return (y.t() * (y.t() > 0)).t() + (y.view(-1, 2) * (y.view(-1, 2) < 0)).view(-1, 4)


def group_sort(m: Fn, x: Tensor) -> Tensor:
    y = m.a(x).view(x.shape[0], -1, 2).sort(-1)[0].flatten(1)
    return m.b(y).sort(1, descending=True).values


def max_min(m: Fn, x: Tensor) -> Tensor:
    a, b = m.a(x).chunk(2, 1)
    return m.b(torch.cat([torch.max(a, b), torch.min(a, b)], 1))


def maxout(m: Fn, x: Tensor) -> Tensor:
    y = torch.stack([m.a(x), m.b(x), x], -1).amax(-1)
    return y.unfold(1, 2, 2).max(2)[0]


def between_activations(m: Fn, x: Tensor) -> Tensor:
    return m.a(x).clamp(min=m.b(x), max=x)


def pooled(m: Fn, x: Tensor) -> Tensor:
    y = F.max_pool1d(m.a(x)[:, None], 2, 1).relu_()
    y = F.adaptive_max_pool2d(y[:, None], (1, 2))[:, 0, 0]
    y[:, 0] = 0
    return y


def single_windows(m: Fn, x: Tensor) -> Tensor:
    y = F.max_pool1d(m.a(x)[:, None], 1, 2)[:, 0]
    return y[:, :1].max(1)[0] + y[:, 1:].sort(1)[0][:, 0]


def widened(m: Fn, x: Tensor) -> Tensor:
    return torch.maximum(m.a(x), torch.arange(3.0)[:, None, None]).sum(0)


def length(m: Fn, x: Tensor) -> Tensor:
    y = F.relu(m.a(x)).view(len(x), -1)
    return m.b(y).reshape(int(x.shape[0]) * 2, 2).abs().reshape(x.size(0), 4)


def length_of_constants(m: Fn, x: Tensor) -> Tensor:
    y = torch.cat([m.a(x), torch.ones(len(x), 2, dtype=x.dtype)], 1)
    return F.relu(y - 0.5)[torch.arange(len(x)), 1:]


def length_in_place(m: Fn, x: Tensor) -> Tensor:
    y = m.a(x)
    y[:, :2].relu_()
    return m.b(y.view(len(y), 2, 2).flatten(1))


def mapped(m: Fn, x: Tensor) -> Tensor:
    return torch.vmap(lambda row: F.relu(m.a(row)).cumsum(0))(x)


def mapped_over_weights(m: Fn, x: Tensor) -> Tensor:
    return torch.func.vmap(lambda w: F.relu(x @ w), out_dims=1)(m.b.weight)


def mapped_twice(m: Fn, x: Tensor) -> Tensor:
    y = torch.vmap(torch.vmap(lambda v: torch.where(v > 0, v, 0.1 * v)))(m.a(x))
    return torch.vmap(lambda row: (row - m.b.bias).abs().mean())(y)


def mapped_with_windows(m: Fn, x: Tensor) -> Tensor:
    """Here the export takes the size of the batch for a number."""
    return torch.vmap(lambda row: F.max_pool1d(m.a(row)[None], 2)[0])(x)


def loss(m: Fn, x: Tensor) -> Tensor:
    target = m.b.bias.expand_as(x)
    return F.l1_loss(m.a(x), target, reduction="none").sum(1)


def loss_of_points(m: Fn, x: Tensor) -> Tensor:
    return torch.vmap(lambda row: F.l1_loss(m.a(row), m.b.bias))(x)


def distances(m: Fn, x: Tensor) -> Tensor:
    return torch.cdist(F.relu(m.a(x)), m.b.weight, p=1)


def selected(m: Fn, x: Tensor) -> Tensor:
    mask = torch.tensor([True, False, True, True])
    return F.relu(m.a(x).masked_select(mask).view(x.shape[0], -1))


def messages(m: Fn, x: Tensor) -> Tensor:
    """A graph network: each node takes the largest message of its neighbours, and their mean."""
    source, target = torch.tensor([0, 1, 2, 3, 0]), torch.tensor([1, 2, 2, 1, 0])
    y, index = m.a(x), target.expand(x.shape[0], -1)
    most = y.new_zeros(x.shape[0], 3).scatter_reduce_(1, index, y[:, source], "amax")
    mean = y.new_zeros(x.shape[0], 3).scatter_reduce_(1, index, y[:, source], "mean")
    return F.relu(most - mean)


def not_a_number(m: Fn, x: Tensor) -> Tensor:
    return m.b(F.relu(m.a(x).nan_to_num(0.0, 1.0, -1.0)))


def nested(m: Fn, x: Tensor) -> Tensor:
    y = m.a(x)
    y = torch.where(y > 1, 2 * y - 1, torch.where(y > 0, y, 0.0))
    return m.b(torch.sign(y - 1) * F.relu((y - 1).abs() - 0.25))


STYLES = {
    nested: 5,
    length: 2,
    length_of_constants: 1,
    length_in_place: 1,
    mapped: 1,
    mapped_over_weights: 1,
    mapped_twice: 2,
    mapped_with_windows: 1,
    loss: 1,
    loss_of_points: 1,
    distances: 2,
    selected: 1,
    messages: 2,
    not_a_number: 1,
    mask_index: 1,
    mask_assignment: 1,
    number_from_weights: 1,
    grad_blocks: 1,
    constants_only: 1,
    widened: 1,
    masked: 3,
    masked_in_place: 1,
    mask_used_twice: 2,
    mask_that_changes_nothing: 1,
    mask_of_other_shape: 3,
    group_sort: 2,
    max_min: 2,
    maxout: 2,
    between_activations: 2,
    pooled: 3,
    single_windows: 0,
    skip: 1,
    concat: 2,
    shared: 2,
    in_place: 2,
    in_place_view: 1,
    in_place_seen_by_dropout: 1,
    in_place_and_dropout_last: 1,
    slice_assignment: 1,
    input_in_place: 1,
    static_control_flow: 3,
    batch_shaped: 1,
    conversions: 1,
    transposed: 2,
    merged: 1,
    squeezed: 1,
    pieces_of_split: 2,
    unused: 1,
}


@pytest.mark.few(5)
@pytest.mark.parametrize("call", STYLES, ids=lambda call: call.__name__)
def test_styles_of_writing_a_forward(call: Callable[..., Tensor]) -> None:
    assert_captured(Fn(call), 4, layers=STYLES[call])


def test_tuple_of_one_tensor() -> None:
    program = capture(Fn(tuple_output), (4,))
    assert program.output_shape == (4,)


def test_output_that_is_a_layer_and_network_without_layers() -> None:
    assert len(assert_captured(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), 2).stages) == 2
    assert len(assert_captured(nn.Linear(2, 3), 2).stages) == 1
    assert len(assert_captured(nn.ReLU(), 2).stages) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_of_models(dtype: torch.dtype) -> None:
    model = seeded(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten()))
    program = assert_captured(model.to(dtype), 1, 5, 5, layers=1)
    assert program(points(1, 5, 5)).dtype == torch.float64


def test_weight_norm_and_parametrizations() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    assert_captured(nn.Sequential(layer, nn.PReLU(4), nn.Linear(4, 2)), 3, layers=1)


@pytest.mark.slow
def test_resnet18() -> None:
    model = seeded(ResNet18(width=8))
    program = assert_captured(model, 3, 32, 32, layers=17)
    names = layer_names(program)
    assert names[:3] == ["relu", "layer1.0.relu", "layer1.0.relu#2"]
    assert len(set(names)) == 17


def test_unet() -> None:
    program = assert_captured(seeded(UNet()), 1, 8, 8, layers=5)
    assert layer_names(program) == ["relu", "leaky_relu", "relu_1", "relu_2", "relu_3"]


def test_mixed_activations() -> None:
    assert layer_names(assert_captured(seeded(Mixed()), 2)) == ["relu", "abs", "clamp"]


# --- names, patterns, derivatives, devices


def test_names_of_layers() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.Hardtanh()

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(F.relu(self.act(x)) - 0.5)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(Inner(), Inner())
            self.act = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.act(self.layers(self.act(x))))

    assert layer_names(assert_captured(Outer(), 3)) == [
        "act",
        "layers.0.act",
        "layers.0.relu",
        "layers.0.relu_1",
        "layers.1.act",
        "layers.1.relu",
        "layers.1.relu_1",
        "act#2",
        "relu",
    ]


def test_names_of_maxima_and_masks() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool = nn.MaxPool2d(2)
            self.last = nn.AdaptiveMaxPool2d(1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.pool(self.pool(x))
            x = F.max_pool2d(torch.where(x > 0, x, 0.5 * x) + x * (x > 0), 3, 1, 1)
            y = torch.max(x, -x)
            y[:, 0] = 0  # rules out the exporter's own names
            return self.last(y).amax((1, 2, 3))

    assert layer_names(assert_captured(Net(), 2, 8, 8)) == [
        "pool",
        "pool#2",
        "where",
        "mul",
        "max_pool2d",
        "max",
        "last",
        "amax",
    ]


def test_patterns_of_a_program() -> None:
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 3), nn.Hardtanh())
    program = capture(model, (2,))
    x = points(2)
    model = model.double()
    z = model[0](x)
    y = model[2](model[1](z))
    found = program.patterns(x)
    assert list(found) == ["1", "3"]
    assert torch.equal(found["1"], (z > 0).to(torch.int8))
    assert torch.equal(found["3"], (y > -1).to(torch.int8) + (y > 1).to(torch.int8))


def test_derivatives_of_a_program() -> None:
    model = seeded(UNet())
    program = capture(model, (1, 8, 8))
    model = model.double()
    x, v = points(1, 8, 8, count=2), points(1, 8, 8, count=2).flip(0)
    _, expected = torch.func.jvp(lambda x: model(x), (x,), (v,))
    _, tangent = torch.func.jvp(lambda x: program(x), (x,), (v,))
    torch.testing.assert_close(tangent, expected)
    jacobian = torch.func.jacrev(lambda x: program(x[None])[0])(x[0])
    torch.testing.assert_close(jacobian, torch.func.jacrev(lambda x: model(x[None])[0])(x[0]))


def test_to_another_device() -> None:
    program = capture(Fn(batch_shaped), (4,))
    moved = program.to("meta")
    assert moved.device.type == "meta"
    assert program.device.type == "cpu"
    out = moved(torch.empty(7, 4, device="meta"))
    assert out.device.type == "meta"
    assert out.shape == (7, 4)
    assert program(points(4)).device.type == "cpu"


def test_the_program_does_not_follow_later_changes_of_the_model() -> None:
    model = nn.Linear(2, 2).double()
    program = capture(model, (2,))
    before = program(points(2))
    with torch.no_grad():
        model.weight.mul_(2)
    assert torch.equal(program(points(2)), before)


@pytest.mark.slow
def test_compiled_model() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing the compiler warns
        compiled = torch.compile(model)
    program = capture(compiled, (2,))
    assert layer_names(program) == ["1"]


# --- the end of the network


def test_final_softmax_is_stripped() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4), nn.LogSoftmax(dim=1))
    program = capture(model, (2,))
    assert program.stripped == "log_softmax"
    x = points(2)
    torch.testing.assert_close(program(x), model[:-1].double()(x))
    assert capture(model[:-1], (2,)).stripped is None


def test_softmax_that_is_used_twice_or_over_the_batch_is_rejected() -> None:
    twice = rejected(Fn(lambda m, x: (lambda p: p + p.flip(1))(F.softmax(m.a(x), 1))), 4)
    assert [op.target for op in twice.ops] == ["aten.softmax"]
    batch = rejected(Fn(lambda m, x: F.softmax(m.a(x), 0)), 4)
    assert [op.target for op in batch.ops] == ["aten.softmax"]


# --- what is rejected


def jump(m: Fn, x: Tensor) -> Tensor:
    return m.b(x * (x > 0.5))


def product(m: Fn, x: Tensor) -> Tensor:
    return m.a(x) * m.b(x)


def quotient(m: Fn, x: Tensor) -> Tensor:
    return 1 / (m.a(x) + 5)


def gelu(m: Fn, x: Tensor) -> Tensor:
    return m.b(F.gelu(m.a(x)))


def soft(m: Fn, x: Tensor) -> Tensor:
    return m.b(torch.softmax(m.a(x), 1))


def noisy(m: Fn, x: Tensor) -> Tensor:
    return m.a(x) + torch.randn(4)


def dropped(m: Fn, x: Tensor) -> Tensor:
    return F.dropout(m.a(x), 0.5, training=True)


def thresholded(m: Fn, x: Tensor) -> Tensor:
    return F.threshold(m.a(x), 0.5, 0.0)


def data_index(m: Fn, x: Tensor) -> Tensor:
    return m.a(x).gather(1, m.b(x).argmax(1, keepdim=True))


def rounded(m: Fn, x: Tensor) -> Tensor:
    return m.b(m.a(x).to(torch.int64).to(x.dtype))


def batch_mean(m: Fn, x: Tensor) -> Tensor:
    return m.a(x) - x.mean(0)


def batch_flip(m: Fn, x: Tensor) -> Tensor:
    return m.a(x) + x.flip(0)


def batch_sum(m: Fn, x: Tensor) -> Tensor:
    return m.a(x).sum()


def batch_first(m: Fn, x: Tensor) -> Tensor:
    return m.a(x) + x[0]


def batch_cumulative(m: Fn, x: Tensor) -> Tensor:
    return m.a(x.cumsum(0))


def batch_product(m: Fn, x: Tensor) -> Tensor:
    return torch.ones(x.shape[0], x.shape[0]) @ m.a(x)


def batch_index(m: Fn, x: Tensor) -> Tensor:
    return m.a(x)[torch.arange(x.shape[0]).flip(0)]


def batch_scaled(m: Fn, x: Tensor) -> Tensor:
    return m.a(x) * x.shape[0]


def batch_tiled(m: Fn, x: Tensor) -> Tensor:
    return m.a(x).repeat(2, 1).relu().view(2, -1, 4).sum(0)


def mask_jumps(m: Fn, x: Tensor) -> Tensor:
    return torch.where(x > 0, x, m.a(x))


def mask_of_numbers(m: Fn, x: Tensor) -> Tensor:
    return torch.where(m.a(x) > 0, 1.0, 0.0)


def mask_off_by_little(m: Fn, x: Tensor) -> Tensor:
    return torch.where(x > 1e-10, x, 0.0)


def mask_right_near_zero(m: Fn, x: Tensor) -> Tensor:
    """No point of moderate size shows that the sides do not agree where x is zero."""
    return torch.where(x > 0, x + F.relu(x.flip(1) - 100), 0.0)


def mask_out(m: Fn, x: Tensor) -> Tensor:
    return m.a(x) > 0


def mask_as_output(m: Fn, x: Tensor) -> Tensor:
    return (m.a(x) > 0).to(x.dtype)


def mask_summed(m: Fn, x: Tensor) -> Tensor:
    return x + (m.a(x) > 0).sum(1, keepdim=True)


def mask_inverted(m: Fn, x: Tensor) -> Tensor:
    return x * (1 - (x < 0).float())


def mask_of_equals(m: Fn, x: Tensor) -> Tensor:
    return x * (x == 0)


def places(m: Fn, x: Tensor) -> Tensor:
    return m.a(x).max(1)[1] * 0.5


def pool_places(m: Fn, x: Tensor) -> Tensor:
    return F.max_pool1d(m.a(x), 2, return_indices=True)[1].to(x.dtype)


def order(m: Fn, x: Tensor) -> Tensor:
    return m.a(x).argsort(1) + x


def second_largest(m: Fn, x: Tensor) -> Tensor:
    return m.a(x).topk(2, 1)[0]


def middle(m: Fn, x: Tensor) -> Tensor:
    return m.a(x).median(1)[0]


def batch_largest(m: Fn, x: Tensor) -> Tensor:
    return m.a(x) - x.max()


def batch_amax(m: Fn, x: Tensor) -> Tensor:
    return m.a(x) - x.amax(0)


def batch_sorted(m: Fn, x: Tensor) -> Tensor:
    return m.a(x).sort(0)[0]


def batch_prefix(m: Fn, x: Tensor) -> Tensor:
    return m.a(x).cummax(0)[0]


def both_ends(m: Fn, x: Tensor) -> Tensor:
    return torch.aminmax(m.a(x), dim=1)[0]


def batch_length(m: Fn, x: Tensor) -> Tensor:
    return m.a(x) * len(x)


def batch_loss(m: Fn, x: Tensor) -> Tensor:
    return x - F.l1_loss(m.a(x), x)


def batch_distance(m: Fn, x: Tensor) -> Tensor:
    return torch.cdist(m.a(x), m.b(x), p=1)


def batch_scattered(m: Fn, x: Tensor) -> Tensor:
    index = torch.zeros(x.shape[0], 4, dtype=torch.int64)
    return x.scatter_reduce(0, index, m.a(x), "amax")


def first_scattered(m: Fn, x: Tensor) -> Tensor:
    return x.scatter_reduce(1, torch.zeros(1, 4, dtype=torch.int64), m.a(x), "amax")


def scattered_product(m: Fn, x: Tensor) -> Tensor:
    index = torch.zeros(x.shape[0], 4, dtype=torch.int64)
    return x.scatter_reduce(1, index, m.a(x), "prod")


def selected_by_data(m: Fn, x: Tensor) -> Tensor:
    return x.masked_select(m.a(x) > 0)


def euclidean(m: Fn, x: Tensor) -> Tensor:
    return torch.cdist(m.a(x), m.b.weight)


def euclidean_pairs(m: Fn, x: Tensor) -> Tensor:
    return F.pairwise_distance(m.a(x), m.b.bias)


def count_of_differences(m: Fn, x: Tensor) -> Tensor:
    return torch.cdist(m.a(x), m.b.weight, p=0)


def hardswish(m: Fn, x: Tensor) -> Tensor:
    return m.b(F.hardswish(m.a(x)))


def gated(m: Fn, x: Tensor) -> Tensor:
    y = m.a(x)
    return y * F.hardsigmoid(y)


def squared_relu(m: Fn, x: Tensor) -> Tensor:
    return F.relu(m.a(x)) ** 2


def square(m: Fn, x: Tensor) -> Tensor:
    return F.relu(m.a(x)).square()


def huber(m: Fn, x: Tensor) -> Tensor:
    return F.huber_loss(m.a(x), m.b.bias.expand_as(x), reduction="none")


def own_statistics(m: Fn, x: Tensor) -> Tensor:
    return F.instance_norm(m.a(x)[:, None])


def floored(m: Fn, x: Tensor) -> Tensor:
    return m.a(x).floor()


def batch_softmax(m: Fn, x: Tensor) -> Tensor:
    return torch.softmax(m.a(x), 0)


REASONS = {
    floored: ("aten.floor", "discontinuous"),
    batch_softmax: ("aten.softmax", "not over the batch"),
    batch_length: ("aten.mul", "mixes the points of the batch"),
    batch_loss: ("aten.l1_loss", "mixes the points of the batch"),
    batch_distance: ("aten.cdist", "mixes the points of the batch"),
    batch_scattered: ("aten.scatter_reduce", "mixes the points of the batch"),
    first_scattered: ("aten.scatter_reduce", "mixes the points of the batch"),
    scattered_product: ("aten.scatter_reduce", "multiplies activations"),
    selected_by_data: ("aten.gt", "mask"),
    euclidean: ("aten.cdist", "only norms of order 1 and infinity"),
    euclidean_pairs: ("aten.pairwise_distance", "only norms of order 1 and infinity"),
    count_of_differences: ("aten.cdist", "discontinuous"),
    hardswish: ("aten.hardswish", "piecewise quadratic"),
    gated: ("aten.mul", "piecewise quadratic"),
    squared_relu: ("aten.pow", "piecewise quadratic"),
    square: ("aten.square", "piecewise quadratic"),
    huber: ("aten.huber_loss", "piecewise quadratic"),
    own_statistics: ("aten.instance_norm", "statistic of the activations"),
    mask_jumps: ("aten.where", "jumps where its mask changes"),
    mask_of_numbers: ("aten.where", "jumps where its mask changes"),
    mask_off_by_little: ("aten.where", "jumps where its mask changes"),
    mask_right_near_zero: ("aten.where", "jumps where its mask changes"),
    mask_out: ("aten.gt", "mask"),
    mask_as_output: ("aten.gt", "mask"),
    mask_summed: ("aten.gt", "mask"),
    mask_inverted: ("aten.lt", "mask"),
    mask_of_equals: ("aten.eq", "mask"),
    places: ("aten.max", "indices are discontinuous"),
    pool_places: ("aten.max_pool1d_with_indices", "indices are discontinuous"),
    order: ("aten.argsort", "discontinuous"),
    second_largest: ("aten.topk", "sort"),
    middle: ("aten.median", "sort"),
    both_ends: ("aten.aminmax", "amin and amax"),
    batch_largest: ("aten.max", "mixes the points of the batch"),
    batch_amax: ("aten.amax", "mixes the points of the batch"),
    batch_sorted: ("aten.sort", "mixes the points of the batch"),
    batch_prefix: ("aten.cummax", "mixes the points of the batch"),
    batch_scaled: ("aten.mul", "mixes the points of the batch"),
    batch_tiled: ("aten.repeat", "mixes the points of the batch"),
    jump: ("aten.mul", "jumps where its mask changes"),
    product: ("aten.mul", "multiplies activations"),
    quotient: ("aten.reciprocal", "not piecewise linear"),
    gelu: ("aten.gelu", "not piecewise linear"),
    soft: ("aten.softmax", "not piecewise linear"),
    noisy: ("aten.randn", "random"),
    dropped: ("aten.dropout", "model.eval"),
    thresholded: ("aten.threshold", "discontinuous"),
    data_index: ("aten.argmax", "discontinuous"),
    rounded: ("aten.to", "discontinuous"),
    batch_mean: ("aten.mean", "mixes the points of the batch"),
    batch_flip: ("aten.flip", "mixes the points of the batch"),
    batch_sum: ("aten.sum", "mixes the points of the batch"),
    batch_first: ("aten.select", "mixes the points of the batch"),
    batch_cumulative: ("aten.cumsum", "mixes the points of the batch"),
    batch_product: ("aten.matmul", "mixes the points of the batch"),
    batch_index: ("aten.index", "mixes the points of the batch"),
}


@pytest.mark.few(25)
@pytest.mark.parametrize("call", REASONS, ids=lambda call: call.__name__)
def test_rejections(call: Callable[..., Tensor]) -> None:
    error = rejected(Fn(call), 4)
    target, reason = REASONS[call]
    assert [op.target for op in error.ops] == [target]
    assert reason in error.ops[0].reason
    assert error.ops[0].location.startswith("test_capture.py:")


def test_all_offending_ops_are_listed_with_name_and_place() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.body = nn.Sequential(nn.GELU(), nn.Linear(4, 4), nn.LayerNorm(4))

        def forward(self, x: Tensor) -> Tensor:
            x = self.body(self.fc(x))
            return torch.tanh(x).cumsum(1)

    error = rejected(Net(), 4)
    assert [(op.name, op.target) for op in error.ops] == [
        ("body.0", "aten.gelu"),
        ("body.2", "aten.layer_norm"),
        ("tanh", "aten.tanh"),
    ]
    for op in error.ops:
        assert op.location.startswith("test_capture.py:")
        assert str(op) in str(error)
    assert "3 ops are not supported" in str(error)


def test_attention_is_rejected() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.attn(x, x, x, need_weights=True)[0]

    for model in (Attention(), Attention().eval()):
        error = rejected(model, 3, 8)
        assert {op.name for op in error.ops} == {"attn"}


def test_training_mode() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Dropout())
    error = rejected(model.train(), 2)
    assert [op.target for op in error.ops] == ["aten.batch_norm", "aten.dropout"]
    assert all("model.eval()" in op.reason for op in error.ops)
    # A model without such layers may be in training mode.
    assert_captured(nn.Sequential(nn.Linear(2, 3), nn.ReLU()).train(), 2)


def test_inputs_and_outputs() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x + y

    with pytest.raises(CaptureError, match="one input"):
        capture(Two(), (2,))
    with pytest.raises(CaptureError, match="returns a tuple of 2 values"):
        capture(Fn(lambda m, x: (m.a(x), m.b(x))), (4,))
    with pytest.raises(CaptureError, match="must return a tensor"):
        capture(Fn(lambda m, x: 3), (4,))
    with pytest.raises(CaptureError, match="does not depend on its input"):
        capture(Fn(lambda m, x: torch.zeros(x.shape[0], 3)), (4,))
    with pytest.raises(CaptureError, match="first dimension"):
        capture(Fn(lambda m, x: m.a(x).t()), (4,))
    with pytest.raises(CaptureError, match=r"\(batch, 3\)"):
        capture(nn.Linear(2, 3), (3,))


def test_control_flow_on_data() -> None:
    with pytest.raises(CaptureError, match="control flow"):
        capture(Fn(lambda m, x: m.a(x) if x.sum() > 0 else m.b(x)), (4,))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: m.a(x).view(2, 4),
        lambda m, x: torch.stack([m.a(x[i]) for i in range(len(x))]),
        lambda m, x: m.a(x) / float(len(x)),
        lambda m, x: m.a(x) + torch.tensor([len(x)]),
        lambda m, x: F.pad(m.a(x), (0, len(x) + 1)),
        lambda m, x: m.a(x) if len(x) % 4 == 1 else m.b(x),
    ],
)
def test_fixed_batch(call: Callable[..., Tensor]) -> None:
    with pytest.raises(CaptureError, match="the model fixes the size of its batch or mixes"):
        capture(Fn(call), (4,))


@pytest.mark.parametrize("size", [(4, 3), (4, 3, 2), (4, 3, 2, 2)])
def test_instance_norm_with_running_statistics(size: tuple[int, ...]) -> None:
    kind = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[len(size) - 2]
    norm = kind(4, affine=True, track_running_stats=True)
    norm(points(*size).float() * 3 + 1)
    assert_captured(nn.Sequential(norm.eval(), nn.ReLU()), *size, layers=1)
    error = rejected(norm.train(), *size)
    assert "call model.eval() first" in error.ops[0].reason


def test_a_loss_against_a_constant_is_a_partition() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("target", torch.tensor([0.5, -0.25, 1.0]))
            self.body = seeded(nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3)))

        def forward(self, x: Tensor) -> Tensor:
            y = self.body(x)
            return F.l1_loss(y, self.target.expand_as(y), reduction="none").mean(1)

    part = sc.partition(Loss(), sc.Domain.box(-2, 2))
    part.validate()
    assert part.layers == ("body.1", "l1_loss")


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(CaptureError, match="not finite"):
        capture(Fn(lambda m, x: m.a(x) / torch.zeros(4)), (4,))


# --- the caller's model


class Stateful(nn.Module):
    """A module that writes to itself in forward, with hooks and a mixture of modes."""

    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.last = last
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.calls = 0
        self.log: list[object] = []
        self.fc.weight.requires_grad_(False)
        self.norm.eval()
        self.fc.register_forward_hook(lambda module, args, out: out + 1)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.log.append("called")
        self.count.add_(1)
        return self.last(self.norm(self.fc(x)))


def snapshot(model: nn.Module) -> list[object]:
    found: list[object] = []
    for name, module in model.named_modules():
        found.append((name, module.training, dict(module.__dict__)))
        found.append((list(module._forward_hooks), list(module._forward_pre_hooks)))
        found.append({key: id(value) for key, value in module.__dict__.items()})
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        found.append((name, id(tensor), tensor.dtype, tensor.device, tensor.requires_grad))
        found.append((tensor.data_ptr(), tensor._version, tensor.tolist(), tensor.grad))
    return found


@pytest.mark.few(2)
@pytest.mark.parametrize("last", [nn.ReLU(inplace=True), nn.GELU(), nn.Linear(4, 4)])
def test_the_model_is_left_as_it_was(last: nn.Module) -> None:
    model = Stateful(nn.Sequential(last, nn.Linear(3, 3), nn.ReLU()))
    before, log = snapshot(model), list(model.log)
    state = torch.get_rng_state()
    grad = torch.is_grad_enabled()
    if isinstance(last, nn.ReLU):
        assert len(capture(model, (3,)).stages) == 3
    else:
        with pytest.raises(CaptureError):
            capture(model, (3,))
    assert str(snapshot(model)) == str(before)
    assert model.calls == 0
    assert model.log == log
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled() == grad
    assert torch.get_default_dtype() == torch.float32


# --- rules that are wrong


def leaky(m: Fn, x: Tensor) -> Tensor:
    return F.leaky_relu(m.a(x))


@pytest.mark.parametrize("call", [pooled, group_sort, max_min, leaky])
def test_the_probe_finds_layers_that_are_not_as_they_claim(
    call: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(program: Program, *args: object) -> None:
        for stage in program.stages:
            layer: object = stage.layer
            if isinstance(layer, PiecewiseScalar):
                layer.slopes.add_(torch.arange(2.0)[:, None])
            elif layer is not None:
                layer.members.copy_(layer.members.roll(1))
        probe(program, *args)

    monkeypatch.setattr("splinecam.network.capture.reading.reader.probe", wrong)
    with pytest.raises(UnsupportedOpError, match="its rule does not describe"):
        capture(Fn(call), (4,))


def test_the_probe_finds_layers_that_mix_points(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = replace(RULES["aten.relu"], run=lambda x: x.relu() + 0 * x.flip(0) + x.mean(0))
    monkeypatch.setitem(RULES, "aten.relu", rule)
    with pytest.raises(UnsupportedOpError, match="mixes the points"):
        capture(Fn(skip), (4,))


def test_no_warnings() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        capture(Fn(slice_assignment), (4,))
    assert [str(warning.message) for warning in caught] == []


def test_messages_say_what_to_write() -> None:
    class Loop(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([torch.relu(row) for row in x])

    class Numpy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.from_numpy(x.numpy() * 2)

    with pytest.raises(CaptureError, match=r"written as torch\.vmap\(f\)\(x\)"):
        capture(Loop(), (2,))
    with pytest.raises(CaptureError, match="register_op can describe it"):
        capture(Numpy(), (2,))


@pytest.mark.parametrize("act", [nn.Hardtanh(), nn.ReLU6(), nn.Hardsigmoid(), nn.Softshrink()])
def test_values_far_below_the_knots(act: nn.Module):
    linear = nn.Linear(2, 3).double()
    with torch.no_grad():
        linear.weight.mul_(1e-13)
        linear.bias.zero_()
    assert len(capture(nn.Sequential(linear, act), (2,)).layers) == 1
