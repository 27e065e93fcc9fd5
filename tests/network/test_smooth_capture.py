"""Networks with smooth functions: how they are read, and moduli of their affine stages."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from math import pi

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from splinecam._util.tolerances import EPS
from splinecam.errors import UnsupportedOpError
from splinecam.network.capture import Both, FirstLayers, capture
from splinecam.network.curves.curve import scaled
from splinecam.network.curves.formulas import (
    GELU,
    GELU_TANH,
    HARDSWISH,
    MISH,
    SILU,
    SOFTSIGN,
    TANH,
    power,
)
from splinecam.network.nonlinearities import PiecewiseScalar, SmoothScalar
from splinecam.network.program import Program
from splinecam.parallel.flat import join, load, parts_of


class Fn(nn.Module):
    """A function between two linear layers."""

    def __init__(self, call: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.call, self.first, self.last = call, nn.Linear(2, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.call(self.first(x)))


def mlp(act: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 5), act, nn.Linear(5, 4), act, nn.Linear(4, 3))


def points(*shape: int) -> Tensor:
    return torch.randn(7, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def check_equal(program: Program, model: nn.Module, x: Tensor) -> None:
    torch.testing.assert_close(program(x), model.double()(x), rtol=1e-13, atol=1e-13)


def test_functions_that_are_too_large_only_at_random_points_are_read() -> None:
    """These points say nothing of the domain that will be given."""
    model = nn.Sequential(Fn(torch.exp), Fn(torch.exp)).double()
    model[0].first.weight.data *= 1e4
    x = 1e-4 * points(2)
    assert not model(points(2)).isfinite().any()
    assert model(x).isfinite().all()
    check_equal(capture(model, (2,), smooth=True), model, x)


WRITTEN_OUT = {
    "x * x": (lambda x: x * x, power(2)),
    "silu": (lambda x: x * torch.sigmoid(x), SILU),
    "silu, the other way round": (lambda x: torch.sigmoid(x) * x, SILU),
    "hardswish": (lambda x: x * F.hardsigmoid(x), HARDSWISH),
    "mish": (lambda x: x * torch.tanh(F.softplus(x)), MISH),
    "softsign": (F.softsign, SOFTSIGN),
    "quick gelu": (lambda x: x * torch.sigmoid(1.702 * x), scaled(SILU, 1 / 1.702, 1.702)),
    "gelu": (lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5)), GELU),
    "gelu, the other way round": (lambda x: (torch.erf(x * 0.5**0.5) + 1) * x / 2, None),
    "gelu by tanh": (
        lambda x: 0.5 * x * (1 + torch.tanh((2 / pi) ** 0.5 * (x + 0.044715 * x**3))),
        GELU_TANH,
    ),
    "hardswish by hand": (lambda x: x * F.relu6(x + 3) / 6, None),
    "hardswish with a gate": (lambda x: x * (F.relu6(x + 3) / 6), HARDSWISH),
    "softsign by hand": (lambda x: x / (1 + x.abs()), SOFTSIGN),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_functions_that_are_written_out_are_one_layer(name: str) -> None:
    call, curve = WRITTEN_OUT[name]
    model = Fn(call)
    program = capture(model, (2,), smooth=True)
    assert curve is None or [layer.curve for layer in program.layers] == [curve]
    assert [type(layer) for layer in program.layers] == [SmoothScalar]
    check_equal(program, model, points(2))
    with pytest.raises(UnsupportedOpError, match="smooth=") as caught:
        capture(model, (2,))
    assert len(caught.value.ops) == 1


def test_numbers_in_a_function_that_are_weights() -> None:
    class Beta(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate = nn.Parameter(torch.tensor(1.5))

        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(self.rate * x)

    model = mlp(Beta())
    for _ in range(2):
        program = capture(model, (2,), smooth=True)
        assert program.layers[0].curve.rate == model[1].rate.item()
        check_equal(program, model, points(2))
        model[1].rate.data.mul_(2)


def test_parts_of_a_function_that_are_used_elsewhere_stay() -> None:
    model = Fn(lambda x: (lambda gate: x * gate + gate)(torch.sigmoid(x)))
    program = capture(model, (2,), smooth=True)
    assert sorted(layer.curve.name for layer in program.layers) == ["sigmoid", "silu"]
    check_equal(program, model, points(2))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x * torch.sigmoid(x + 1),
        lambda x: x * (2 + torch.erf(x)),
        lambda x: x * (1 + torch.tanh(x + 0.04 * x**3)),
        lambda x: x * F.relu6(x + 2),
        lambda x: x * torch.tanh(F.softplus(x, beta=2)),
        lambda x: x * x.flip(1),
        lambda x: x / (2 + x.abs()),
        lambda x: x**-2,
        lambda x: x**2.5,
        lambda x: F.softplus(x, threshold=3),
        torch.sqrt,
        lambda x: torch.softmax(x, 1),
    ],
)
def test_other_functions_are_refused_also_with_smooth(call: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(UnsupportedOpError):
        capture(Fn(call), (2,), smooth=True)


def test_a_final_function_is_left_out_and_one_in_the_middle_is_a_layer() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2), nn.Sigmoid())
    program = capture(model, (2,), smooth=True)
    assert program.stripped == "sigmoid"
    assert [layer.curve for layer in program.layers] == [TANH]


def test_each_option_has_its_own_capture() -> None:
    model = mlp(nn.GELU())
    for _ in range(2):
        with pytest.raises(UnsupportedOpError):
            capture(model, (2,))
        assert len(capture(model, (2,), smooth=True).layers) == 2
    model = mlp(nn.ReLU())
    kinds = [capture(model, (2,), smooth=smooth).layers[0] for smooth in (False, True)]
    assert all(isinstance(layer, PiecewiseScalar) for layer in kinds)
    assert [layer.rounding for layer in kinds] == [0, 0]


def test_a_capture_from_the_cache_has_the_present_weights() -> None:
    for model in (mlp(nn.SiLU()), mlp(nn.Softsign())):  # by following layers, and by torch.export
        capture(model, (2,), smooth=True)
        with torch.no_grad():
            model[0].weight.mul_(2)
        check_equal(capture(model, (2,), smooth=True), model, points(2))


def test_parts_and_pairs_of_networks() -> None:
    model = mlp(nn.Mish())
    x = points(2)
    part = capture(FirstLayers(model, 1), (2,), smooth=True)
    torch.testing.assert_close(part(x), model.double()[:2](x))
    pair = Both(mlp(nn.GELU()), mlp(nn.ReLU()))
    both = capture(pair, (2,), smooth=True)
    kinds = {type(layer) for layer in both.layers}
    assert kinds == {SmoothScalar, PiecewiseScalar}
    check_equal(both, pair, x)


def test_a_program_can_be_pickled() -> None:
    program = capture(mlp(nn.GELU()), (2,), smooth=True)
    copy = load(join(parts_of(program)))
    assert torch.equal(copy(points(2)), program(points(2)))
    assert pickle.loads(pickle.dumps(program.layers[0].curve)) == program.layers[0].curve


def test_derivatives_of_a_program() -> None:
    model = mlp(nn.Softplus()).double()
    program, x = capture(model, (2,), smooth=True), points(2)
    found = torch.func.vmap(torch.func.jacrev(lambda x: program(x[None])[0]))(x)
    wanted = torch.func.vmap(torch.func.jacrev(lambda x: model(x[None])[0]))(x)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(
        torch.func.vmap(torch.func.jacfwd(lambda x: program(x[None])[0]))(x), wanted
    )


# -- moduli ----------------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6, bias=False), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(F.gelu(self.a(x) - 3)) - 2 * torch.cat([x[:, :3], -x[:, 3:]], 1)


class Moved(nn.Module):
    """The batch is not in front on the way."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.permute(2, 0, 1) / -3
        return torch.lerp(y, -y.roll(1, 0), 0.25).diff(dim=2).movedim(1, 0)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (lambda: nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3)), (6,)),
    "rows": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3), nn.Flatten()),
        (2, 6),
    ),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.SiLU(), nn.AvgPool2d(2)),
        (2, 4, 4),
    ),
    "grouped": (lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.SiLU()), (4, 5, 5)),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 2, 2), nn.SiLU()), (2, 3, 3)),
    "batch norm": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten()),
        (2, 4, 4),
    ),
    "residual": (Residual, (6,)),
    "moved": (Moved, (2, 4)),
    "upsampled": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 3)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_moduli_are_those_of_the_matrix(name: str) -> None:
    build, shape = NETWORKS[name]
    torch.manual_seed(0)
    model = build().eval()
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        for tensor in (norm.weight, norm.bias, norm.running_mean):
            nn.init.normal_(tensor)
    program = capture(model, shape, smooth=True)
    live = {program.input_name: points(*shape)}
    for i, stage in enumerate(program.stages):
        sizes = {key: torch.rand_like(value) for key, value in live.items()}
        found = program.moduli(i, sizes)
        offset = program.advance(i, {key: torch.zeros_like(x[:1]) for key, x in live.items()})
        for key in stage.live_out:
            exact = offset[key].abs().flatten(1)
            for name, size in sizes.items():
                matrix = columns(program, i, name, key, live)
                exact = exact + size.flatten(1) @ matrix.abs()
            made = found[key].flatten(1)
            assert found[key].shape == (7, *offset[key].shape[1:])
            assert (made >= exact - 1e-12).all()
            if not norms:  # what these subtract and add counts by its parts
                torch.testing.assert_close(made, exact)
            none = program.moduli(i, {name: 0 * size for name, size in sizes.items()})
            matrix_part = exact - offset[key].abs().flatten(1)
            torch.testing.assert_close(made - none[key].flatten(1), matrix_part)
        live = program.advance(i, live)
        if stage.layer is not None:
            live[stage.layer.result] = stage.layer.apply(live[stage.layer.argument])


def columns(program: Program, i: int, name: str, key: str, live: dict[str, Tensor]) -> Tensor:
    """The matrix of a stage from one live value to another, found unit by unit."""
    units = live[name][0].numel()
    batch = {k: x.new_zeros((units + 1, *x.shape[1:])) for k, x in live.items()}
    batch[name].view(units + 1, units).diagonal().fill_(1)
    made = program.advance(i, batch)[key].flatten(1)
    return made[:-1] - made[-1:]


class Sums(nn.Module):
    """Sums of two to twelve terms, of which a step says how many there are at most."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(2, 3, 3, padding=1), nn.BatchNorm1d(3)
        self.register_buffer("mask", torch.tensor([[1.0, 0.0, 1.0, 0.0]]))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.conv(x))
        h = (h - h.mean((1, 2), keepdim=True)) * 0.5
        return torch.einsum("zij,kj->zik", h, self.mask)


def test_steps_know_how_many_terms_they_round() -> None:
    program = capture(Sums().eval(), (2, 4))
    found = [round(2 * each / EPS) - 4 for each in program.roundings(0).values() if each]
    assert found == [7, 4, 12, 2, 1, 2]  # the offset is a term, and products with zero are none
