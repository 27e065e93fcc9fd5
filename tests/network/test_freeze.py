"""Frozen models: as the model at the anchor, affine between non-linearities, and partitioned."""

from __future__ import annotations

import copy
import math
import pickle
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import splinecam as sc
from splinecam.network.capture import capture
from splinecam.network.capture.capturing import captured_by_export, captured_by_walk

POSITIONS, WIDTH = 5, 8


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


class Handwritten(nn.Module):
    """A block of attention as it is often written, with a normalisation by hand."""

    def __init__(self, causal: bool = True) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.ones(POSITIONS, POSITIONS).triu(1).bool())
        self.drop = nn.Dropout(0.1)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        normal = x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        q, k, v = self.qkv(normal).split(c, dim=2)
        q, k, v = (part.view(b, t, 2, c // 2).transpose(1, 2) for part in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(c // 2)
        if self.causal:
            scores = scores.masked_fill(self.mask, float("-inf"))
        weights = self.drop(F.softmax(scores, dim=-1))
        return x + self.out((weights @ v).transpose(1, 2).contiguous().view(b, t, c))


class Multihead(nn.Module):
    """torch's own attention, with and without its weights, and the batch in the second place."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.second = nn.MultiheadAttention(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first(x, x, x)[0]
        y = x.transpose(0, 1)
        y = self.second(y, y[:3], y[:3], need_weights=False)[0]
        return x + y.transpose(0, 1)


class Fused(nn.Module):
    """Fused attention with a causal mask, another mask, and fewer keys than queries."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, v = self.project(x).unflatten(-1, (4, 4)).transpose(1, 2).chunk(2, 1)
        causal = F.scaled_dot_product_attention(q, v, v, is_causal=True, scale=0.3)
        seen = (torch.arange(POSITIONS) < 3).expand(POSITIONS, -1)
        masked = F.scaled_dot_product_attention(q, v, v, attn_mask=seen)
        few = F.scaled_dot_product_attention(q, v[:, :1], v[:, :1], enable_gqa=True)
        return (causal + masked + few).transpose(1, 2).flatten(2)


class Norms(nn.Module):
    """Every normalisation whose statistics come from the input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.plain = nn.LayerNorm(WIDTH), nn.LayerNorm((3, WIDTH), bias=False)
        self.bare = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.rms, self.group = nn.RMSNorm(WIDTH, eps=1e-5), nn.GroupNorm(2, 6)
        self.instance = nn.InstanceNorm1d(6)
        for weight in self.parameters():
            nn.init.uniform_(weight, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x[:, :2]) + self.bare(x[:, 2:4])
        y = self.rms(torch.cat([y, y * 2 + 1, x[:, 4:]], 1))
        y = torch.cat([y, self.plain(y[:, :3] + 1)[:, :1]], 1)
        y = y + self.instance(self.group(y + x.mean((1, 2), keepdim=True)))
        y = y + F.normalize(y, dim=-1) + y / y.norm(dim=1, keepdim=True)
        return y + y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1) + y / y.std(1)[:, None]


class Awkward(nn.Module):
    """In-place operations, a token and a mask for every point, numbers read from the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.qkv, self.norm = nn.Linear(WIDTH, 3 * WIDTH), nn.GroupNorm(1, POSITIONS + 1)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        b = len(x)
        x = torch.cat([self.token.expand(b, -1, -1), x], 1)
        hidden = torch.zeros(b, POSITIONS + 1, dtype=torch.bool, device=x.device)
        hidden[:, -1] = True
        y = torch.zeros_like(x)
        y += self.attention(x, x, x, key_padding_mask=hidden)[0]
        y[:, 0] += 1.0
        q, k, v = (part.reshape(b * 2, -1, WIDTH // 2) for part in self.qkv(y).chunk(3, -1))
        score = torch.exp(torch.bmm(q, k.mT) / 8)
        mixed = torch.bmm(score / score.sum(-1, keepdim=True), v).view(b, -1, WIDTH)
        return self.norm(mixed)[:, 1:]


def encoder(norm_first: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True, norm_first=norm_first)
    return nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)


MODELS = {
    "handwritten": (Handwritten, 2),
    "multihead": (Multihead, 2),
    "fused": (Fused, 3),
    "norms": (Norms, 10),
    "awkward": (Awkward, 3),
    "norm last": (lambda: encoder(False), 7),
    "norm first": (lambda: encoder(True), 7),
}


@cache
def frozen_model(name: str) -> tuple[nn.Module, Tensor, sc.results.Frozen]:
    """A model, an input, and the model frozen there, which must leave the model as it was."""
    model = MODELS[name][0]().eval()
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(POSITIONS, WIDTH)
    frozen = sc.freeze(model, at=x)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    return model, x, frozen


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MODELS)
def test_a_frozen_model_is_the_model_at_the_anchor(name: str):
    model, x, frozen = frozen_model(name)
    assert len(frozen.held) == MODELS[name][1]
    wide = copy.deepcopy(model).double()
    near, other = x.double()[None], torch.randn(3, POSITIONS, WIDTH).double()
    with torch.no_grad():
        assert torch.allclose(frozen(x[None]), model(x[None]), atol=2e-6)
        assert torch.allclose(frozen(near), wide(near), rtol=0, atol=1e-13)
        assert not torch.allclose(frozen(other), wide(other), rtol=0, atol=1e-3)
        batch = frozen(torch.cat([other, near]))  # each point on its own
        assert torch.allclose(batch[3:], frozen(near), rtol=0, atol=1e-13)
        assert torch.allclose(batch[:1], frozen(other[:1]), rtol=0, atol=1e-13)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["handwritten", "multihead", "fused", "norms", "awkward"])
def test_what_has_no_other_non_linearity_becomes_affine(name: str):
    _, _, frozen = frozen_model(name)
    a, b = torch.randn(2, 4, POSITIONS, WIDTH).double()
    with torch.no_grad():
        middle = frozen(0.3 * a + 0.7 * b)
        assert torch.allclose(middle, 0.3 * frozen(a) + 0.7 * frozen(b), rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_frozen_transformer_has_a_partition(norm_first: bool):
    model = nn.Sequential(encoder(norm_first), nn.Flatten(), nn.Linear(POSITIONS * WIDTH, 3)).eval()
    x = torch.randn(POSITIONS, WIDTH)
    frozen = sc.freeze(model, at=x)
    part = sc.partition(frozen, sc.Domain.around(x, side=2.0), progress=False)
    assert part.validate().ok
    assert len(part) > 10
    assert part.layers == ("0.layers.0", "0.layers.1")  # as in the model
    assert part.model is frozen


# -- capture without a second export ---------------------------------------------------------------


class Recurrent(nn.Module):
    """Operations that are written out as others, constants of the batch, and a mask as index."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(4, 4)
        self.rnn = nn.RNN(WIDTH, 4, nonlinearity="relu", batch_first=True)
        self.register_buffer("some", torch.arange(POSITIONS) % 2 == 0)

    def forward(self, x: Tensor) -> Tensor:
        y = self.rnn(self.norm(x))[0]
        size = torch.linalg.vector_norm(self.linear(y), ord=1, dim=-1, keepdim=True)
        return (y.abs() + size + torch.ones_like(y) + torch.zeros(len(x), 1, 4))[:, self.some]


WALKED = {name: model for name, (model, _) in MODELS.items()} | {"recurrent": Recurrent}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["recurrent", *MODELS])
def test_a_frozen_model_is_read_as_it_would_be_exported(name: str):
    model = nn.Sequential(WALKED[name](), nn.ReLU()).eval()
    x, cpu = torch.randn(POSITIONS, WIDTH), torch.device("cpu")
    inner = sc.freeze(model, at=x).inner
    walked = captured_by_walk(inner, x.shape, cpu)
    exported = captured_by_export(inner, x.shape, cpu)
    assert walked is not None
    assert [(a.name, a.after, a.target, a.shape) for a in walked.layers] == [
        (b.name, b.after, b.target, b.shape) for b in exported.layers
    ]
    some = torch.randn(4, POSITIONS, WIDTH).double()
    assert torch.equal(walked(some), exported(some))
    assert torch.allclose(walked(some), inner(some), rtol=0, atol=1e-12)


@pytest.fixture
def no_export(monkeypatch: pytest.MonkeyPatch):
    """What makes ``torch.export``, and tracing by ``torch.fx``, an error."""

    def forbid() -> None:
        def refuse(*args: object, **kwargs: object) -> None:
            raise AssertionError("a frozen model is exported again")

        monkeypatch.setattr(torch.export, "export", refuse)
        monkeypatch.setattr(torch.fx, "symbolic_trace", refuse)

    return forbid


@pytest.mark.slow
def test_a_frozen_model_is_not_exported_again(no_export):
    block = nn.TransformerEncoderLayer(WIDTH, 2, 6, batch_first=True, activation="gelu")
    table = sc.nn.PiecewiseLinear([-1.0, 0, 1], [0.0, 1, 0])
    x = torch.randn(POSITIONS, WIDTH)
    models = [block, encoder(True), Recurrent(), nn.Sequential(nn.LayerNorm(WIDTH), table)]
    frozen = [sc.freeze(model.eval(), at=x) for model in models]
    no_export()
    domain = sc.Domain.around(x, side=0.1)
    assert sc.partition(frozen[0], domain, smooth=1.0, progress=False).validate().ok
    with pytest.raises(sc.UnsupportedOpError, match=r"- gelu .*smooth="):
        sc.partition(frozen[0], domain, progress=False)
    for whole in (*frozen[1:], pickle.loads(pickle.dumps(frozen[1]))):
        assert sc.partition(whole, domain, progress=False).validate().ok
    around = nn.Sequential(frozen[1], nn.Linear(WIDTH, 3), nn.ReLU())
    part = sc.partition(around, domain, progress=False)
    assert part.validate().ok
    assert part.layers == ("0.inner.layers.0", "0.inner.layers.1", "2")


@pytest.mark.slow
def test_a_frozen_model_inside_any_module_is_exported_with_it():
    class Outer(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.net = inner

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.net(x).mean(1))

    _, x, frozen = frozen_model("norm first")
    part = sc.partition(Outer(frozen), sc.Domain.around(x, side=1.0), progress=False)
    assert part.layers[:2] == ("net.inner.layers.0", "net.inner.layers.1")
    assert part.validate().ok


def test_changes_of_a_frozen_model_are_seen():
    _, x, frozen = frozen_model("norm first")
    frozen, some = copy.deepcopy(frozen), torch.randn(3, POSITIONS, WIDTH).double()
    before = capture(frozen, x.shape)(some)
    with torch.no_grad():
        frozen.inner.get_parameter("layers.0.linear1.weight").mul_(1.5)
    after = capture(frozen, x.shape)(some)
    assert not torch.allclose(after, before, rtol=0, atol=1e-3)
    assert torch.allclose(after, frozen(some), rtol=0, atol=1e-12)
    scope = frozen.inner.get_submodule("layers.0.linear1")
    scope.register_forward_hook(lambda module, args, result: 2 * result)
    assert torch.allclose(capture(frozen, x.shape)(some), frozen(some), rtol=0, atol=1e-12)


def test_recurrence_over_the_batch_is_refused(no_export):
    class Over(Recurrent):
        def forward(self, x: Tensor) -> Tensor:
            return self.rnn(self.norm(x))[0]

    model = Over().eval()
    model.rnn.batch_first = False
    frozen = sc.freeze(model, at=torch.randn(POSITIONS, WIDTH))
    no_export()
    with pytest.raises(sc.UnsupportedOpError, match=r"rnn .*mixes the points of the batch"):
        capture(frozen, (POSITIONS, WIDTH))


def test_tables_and_smooth_functions_stay():
    model = nn.Sequential(
        *(nn.LayerNorm(2), nn.Linear(2, 4), sc.nn.PiecewiseLinear([-1.0, 0, 1], [0.0, 1, 0])),
        *(nn.LayerNorm(4), nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 1)),
    )
    x = torch.tensor([1.0, 0.2])
    frozen = sc.freeze(model, at=x)
    assert torch.allclose(frozen(x[None]), model(x[None]), atol=1e-6)
    with pytest.raises(sc.UnsupportedOpError, match="smooth="):
        sc.partition(frozen, sc.Domain.box(-1, 1), progress=False)
    part = sc.partition(frozen, sc.Domain.box(-1, 1), smooth=0.1, progress=False)
    assert part.layers == ("2", "5")
    assert float(part._bound) <= 0.1
    inside = part.sample(200).double()
    values = (part.weight[part.locate(inside)] @ inside[:, :, None])[:, :, 0]
    off = (values + part.bias[part.locate(inside)] - frozen(inside)).abs().max()
    assert float(off) <= float(part._bound)


def test_frozen_models_are_copied_pickled_and_moved():
    x = torch.randn(POSITIONS, WIDTH)
    frozen = sc.freeze(Handwritten().eval(), at=x[None])  # with a batch of one
    assert frozen.at.shape == x.shape
    again = pickle.loads(pickle.dumps(frozen))
    for other in (again, copy.deepcopy(frozen), copy.deepcopy(frozen).train()):
        assert torch.equal(other(x[None]), frozen(x[None]))
        assert repr(other) == repr(frozen)
    moved = copy.deepcopy(frozen).to(torch.float64)
    assert moved(x[None].double()).dtype == torch.float64
    assert frozen(x[None]).dtype == torch.float32
    shape = tuple(copy.deepcopy(frozen).to("meta")(x[None].to("meta")).shape)
    assert shape == (1, POSITIONS, WIDTH)
    with pytest.raises(sc.CaptureError, match=r"shape \(5, 8\), but is given \(4, 8\)"):
        frozen(torch.zeros(2, 4, 8))


def test_the_repr_lists_what_is_held():
    _, _, frozen = frozen_model("handwritten")
    assert repr(frozen).splitlines() == [
        "Frozen(Handwritten at an input of shape (5, 8), 2 values held:",
        "  sqrt: denominator (5, 1)",
        "  softmax: attention pattern (2, 5, 5)",
        ")",
    ]


# -- the gap ---------------------------------------------------------------------------------------


def test_the_gap_of_a_model_with_nothing_to_freeze_is_zero():
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    frozen = sc.freeze(model, at=torch.zeros(2))
    assert "there is nothing to hold" in repr(frozen)
    gap = frozen.gap(sc.Domain.box(-1, 1), points=100)
    assert float(gap.largest.max()) == 0
    assert gap.changed == 0
    assert "measured at 100 points" in repr(gap)


def test_the_gap_is_what_the_models_differ_by():
    model = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2)).double()
    x = torch.tensor([1.0, 0.2, -1.0])
    frozen, domain = sc.freeze(model, at=x), sc.Domain.around(x, side=1.0)
    gap = frozen.gap(domain)
    assert "measured at 4,096 points" in repr(gap)
    at = gap.input[None]
    assert torch.allclose(at, domain.embed(torch.tensor([gap.place]).double()))
    own = (frozen(at) - model(at)).abs().amax().item()
    assert own == pytest.approx(gap.largest.amax().item(), rel=1e-12)
    assert bool((gap.mean < gap.largest).all())
    assert 0 <= gap.changed < 1
    near = frozen.gap(sc.Domain.around(x, side=1e-3))
    assert float(near.largest.max()) < 0.01 * float(gap.largest.max())
    along = frozen.gap(sc.Domain.segment(x, x + 1), points=50)
    assert len(along.place) == 1
    with pytest.raises(sc.DomainError, match=r"frozen at an input of shape \(3,\)"):
        frozen.gap(sc.Domain.box(-1, 1))
    with pytest.raises(ValueError, match="points"):
        frozen.gap(domain, points=0)


# -- gates, and what is refused --------------------------------------------------------------------


class Gated(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(4, 6), nn.Linear(4, 6)
        self.down, self.kind = nn.Linear(6, 2), kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "glu":
            return self.down(F.glu(torch.cat([self.up(x), self.gate(x)], -1)))
        return self.down(self.up(x) * F.relu(self.gate(x)))


@pytest.mark.parametrize("kind", ["glu", "relu"])
def test_gates_are_held_only_if_asked_for(kind: str):
    model, x = Gated(kind), torch.randn(4)
    with pytest.raises(sc.UnsupportedOpError, match="gates=True") as caught:
        sc.freeze(model, at=x)
    assert len(caught.value.ops) == 1
    frozen = sc.freeze(model, at=x, gates=True)
    assert [held.kind for held in frozen.held] == ["gate"]
    assert torch.allclose(frozen(x[None]), model(x[None]), atol=1e-6)
    y = torch.randn(3, 4)  # what is left is affine
    middle = (frozen(y) + frozen(-y)) / 2
    assert torch.allclose(middle, frozen(torch.zeros(3, 4)), atol=1e-5)


def test_functions_of_one_variable_are_not_gates():
    class Swish(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(1.7 * x) + x * (x > 0) + x * x

    assert sc.freeze(Swish(), at=torch.randn(4)).held == ()


def test_training_mode_is_refused():
    with pytest.raises(sc.UnsupportedOpError, match="training mode"):
        sc.freeze(Handwritten(), at=torch.randn(POSITIONS, WIDTH))


def test_attention_over_the_batch_is_refused():
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16).eval()  # the batch is its second dimension
    with pytest.raises(sc.UnsupportedOpError, match="mixes the points of the batch"):
        sc.freeze(layer, at=torch.randn(POSITIONS, WIDTH))


def test_tokens_are_refused():
    model = nn.Sequential(nn.Embedding(7, WIDTH), encoder(True)).eval()
    with pytest.raises(sc.CaptureError, match="comes after it"):
        sc.freeze(model, at=torch.arange(POSITIONS))


@pytest.mark.parametrize("at", [None, "x", torch.tensor(1.0), torch.tensor([math.nan, 0.0])])
def test_the_anchor_must_be_an_input(at: object):
    with pytest.raises((TypeError, ValueError), match="at must be one input"):
        sc.freeze(nn.Linear(2, 2), at=at)
