"""CustomOp modules and operators: the same partitions as without, and wrong ones are found out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam._util.tolerances import EPS
from splinecam.network.capture import capture
from splinecam.network.ops import register
from splinecam.network.ops.bounds import Bound, measured_bound
from splinecam.nn import PiecewiseLinear
from splinecam.partitions.partition import Partition

PAGE = Path(__file__).parents[2] / "docs" / "register.md"
BOX = sc.Domain.box(-2, 2)


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(register, "_CLASSES", dict(register._CLASSES))
    monkeypatch.setattr(register, "_OPERATORS", dict(register._OPERATORS))


def fold(x: Tensor, at: Tensor, *, slope: float = 1.0) -> Tensor:
    return at - slope * (x - at).abs()


OPERATOR = torch.library.custom_op("splinecam_test::fold", fold, mutates_args=())
OPERATOR.register_fake(lambda x, at, slope=1.0: torch.empty_like(x))
PACKET = torch.ops.splinecam_test.fold
TARGETS = {
    "string": "splinecam_test::fold",
    "overload in a string": "splinecam_test::fold.default",
    "definition": OPERATOR,
    "packet": PACKET,
    "overload": PACKET.default,
}


class Hidden(nn.Module):
    """``|x - knot|``, in a way that cannot be read from a graph."""

    def __init__(self, knot: float = 0.0) -> None:
        super().__init__()
        self.knot = nn.Parameter(torch.tensor(knot))

    def forward(self, x: Tensor) -> Tensor:
        shifted = x - self.knot
        return shifted * torch.sign(shifted).round()


class Constants(Hidden):
    """The same with a constant that is no buffer."""

    def __init__(self) -> None:
        super().__init__(0.25)
        self.one = torch.ones(6, 6).tril().triu()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) @ self.one


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, call: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Tensor) -> object:
        return self.call(x)


def network(*middle: nn.Module, width: int = 6) -> nn.Sequential:
    torch.manual_seed(1)  # the same layers whatever is between them
    return nn.Sequential(nn.Linear(2, width), *middle, nn.Linear(width, 2))


def partition(model: nn.Module, domain: sc.Domain = BOX) -> Partition:
    part = sc.partition(model, domain, progress=False)
    assert part.validate().ok
    assert not part.unresolved
    return part


def assert_same(part: Partition, other: Partition) -> None:
    """Two partitions with the same regions and the same maps."""
    assert len(part) == len(other)
    there = other.locate(other.domain.embed(part.centroids))
    assert there.unique().numel() == len(part)
    torch.testing.assert_close(part.areas, other.areas[there])
    torch.testing.assert_close(part.weight, other.weight[there])
    torch.testing.assert_close(part.bias, other.bias[there])


# --- what can be registered


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S))
def test_the_page_runs(code: str, capsys: pytest.CaptureFixture[str]):
    exec(compile(code, PAGE.name, "exec"), {})
    assert "Partition(" in capsys.readouterr().out


def test_a_module_with_cuts():
    with pytest.raises(sc.UnsupportedOpError):
        partition(network(Hidden(0.25)))
    sc.register_op(Hidden, cuts=lambda module, x: x - module.knot)
    part = partition(network(Hidden(0.25), nn.ReLU()))
    assert part.layers == ("1", "2")
    plain = network(Function(lambda x: (x - 0.25).abs()), nn.ReLU())
    assert_same(part, partition(plain))


def test_an_affine_module():
    class Rounded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flip(1) - 2 * x.round() + 2 * x.round()

    sc.register_op(Rounded, affine=True)
    part = partition(network(nn.ReLU(), Rounded()))
    assert_same(part, partition(network(nn.ReLU(), Function(lambda x: x.flip(1)))))


def test_several_borders_for_each_unit_and_several_dimensions():
    class Step(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x.long() > 0, torch.where(x > 2, 2, x) - 1, 0 * x)

    sc.register_op(Step, cuts=lambda module, x: torch.stack([x - 1, x - 2], -1))
    shaped = [nn.Unflatten(1, (2, 3)), Step(), nn.Flatten()]
    plain = [nn.Unflatten(1, (2, 3)), Function(lambda x: x.clamp(1, 2) - 1), nn.Flatten()]
    assert_same(partition(network(*shaped)), partition(network(*plain)))


def test_the_model_itself():
    sc.register_op(Hidden, cuts=lambda module, x: x - module.knot)
    part = partition(Hidden(0.5))
    assert len(part) == 4
    assert part.layers == ("Hidden",)


def test_a_module_used_twice_and_its_hooks():
    sc.register_op(Hidden, cuts=lambda module, x: x - module.knot)
    shared, plain = Hidden(0.25), Function(lambda x: (x - 0.25).abs())
    for module in (shared, plain):
        module.register_forward_hook(lambda module, args, result: result - 0.25)
    part = partition(network(shared, shared))
    assert part.layers == ("1", "2")
    assert_same(part, partition(network(plain, plain)))


def test_a_class_that_inherits_forward_is_registered_and_one_with_its_own_is_not():
    class Same(Hidden):
        pass

    class Other(Hidden):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x)

    sc.register_op(Hidden, cuts=lambda module, x: x - module.knot)
    assert partition(network(Same()))._network.layers[0].target == "Same"
    assert partition(network(Other()))._network.layers[0].target == "aten.relu"


def test_a_constant_goes_through_a_registered_module():
    class Offset(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.shift = Hidden(), nn.Parameter(torch.tensor([[-1.0, 2.0]]))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.hidden(self.shift)

    sc.register_op(Hidden, cuts=lambda module, x: x - module.knot)
    part = partition(Offset())
    torch.testing.assert_close(part.bias, torch.tensor([[1.0, 2.0]], dtype=torch.float64))


@pytest.mark.few(2)
@pytest.mark.parametrize("name", TARGETS)
def test_an_operator(name: str):
    class Net(nn.Module):
        def __init__(self, fold: Callable[..., Tensor]) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.first, self.last, self.fold = nn.Linear(2, 6), nn.Linear(6, 2), fold
            self.at = nn.Parameter(torch.tensor([0.1]))

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.fold(self.first(x), self.at, slope=2.0))

    handle = sc.register_op(TARGETS[name], cuts=lambda x, at, slope=1.0: x - at)
    part = partition(Net(PACKET))
    assert part.layers == ("fold",)
    assert_same(part, partition(Net(fold)))
    handle.remove()
    with pytest.raises(sc.UnsupportedOpError, match="fold"):
        sc.partition(Net(PACKET), BOX, progress=False)


def test_an_operator_of_two_activations_is_rejected():
    sc.register_op(PACKET, cuts=lambda x, at: x - at)
    with pytest.raises(sc.UnsupportedOpError, match="takes one activation"):
        capture(network(Function(lambda x: PACKET(x, x.flip(1)))), (2,))


def test_derivatives_where_torch_has_none():
    class Foreign(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.from_numpy(abs(x.detach().cpu().numpy()))

    sc.register_op(Foreign, cuts=lambda module, x: x)
    program = capture(network(Foreign()), (2,))
    plain = capture(network(Function(torch.abs)), (2,))
    x = torch.randn(20, 2, dtype=torch.float64)
    found, expected = (torch.func.jvp(p, (x,), (torch.ones_like(x),))[1] for p in (program, plain))
    torch.testing.assert_close(found, expected)
    report = partition(network(Foreign())).validate()
    assert "slopes not compared" in str(report)


def test_in_tiles():
    sc.register_op(Hidden, cuts=lambda module, x: x - module.knot)
    table = sc.nn.PiecewiseLinear([-1.0, 0.0, 1.0], [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    middle = [Hidden(0.25), table, nn.Flatten(), nn.Linear(24, 12), nn.ReLU()]
    model = network(*middle, width=12)
    part = sc.partition(model, BOX, memory=1_000_000, progress=False)
    assert part.validate().ok
    assert_same(part, partition(model))


def test_measured_errors_are_those_of_the_coefficients():
    layer = nn.Linear(50, 30).double()
    bound = Bound(*torch.rand(2, 1, 50, dtype=torch.float64))
    bound = Bound(bound.magnitude, EPS * bound.error)
    found = measured_bound(layer, bound)
    error = (layer.weight.square() @ bound.error[0].square()).sqrt()
    magnitude = layer.weight.abs() @ bound.magnitude[0] + layer.bias.abs()
    assert (found.error[0] > error).all()
    assert (found.error[0] < 10 * error + EPS * magnitude).all()
    assert (found.magnitude[0] <= magnitude).all()
    assert (found.magnitude[0] > magnitude / 10).all()


def test_a_decorator_and_a_second_registration():
    @sc.register_op(affine=True)
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (2 * x).round() - (2 * x).round() + x.abs()

    with pytest.raises(sc.UnsupportedOpError):
        partition(Twice())
    first = sc.register_op(Twice, cuts=lambda module, x: x)
    second = sc.register_op(Twice, cuts=lambda module, x: x)
    first.remove()  # the second one has replaced it
    assert len(partition(Twice())) == 4
    second.remove()
    second.remove()
    with pytest.raises(sc.UnsupportedOpError):
        partition(Twice())


def test_a_registration_for_a_block():
    module = Hidden(0.25)
    with sc.register_op(Hidden, cuts=lambda module, x: x - module.knot) as handle:
        assert register.rule_of_class(module) is handle
        assert len(partition(module)) == 4
    assert register.rule_of_class(module) is None
    with pytest.raises(sc.UnsupportedOpError), sc.register_op(Hidden, affine=True):
        partition(module)
    assert register.rule_of_class(module) is None


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_the_gpu():
    sc.register_op(Hidden, cuts=lambda module, x: x - module.knot)
    model = network(Hidden(0.25), PiecewiseLinear([-1, 0, 2], [0, 1, 0]))
    part = sc.partition(model, BOX, device="cuda", progress=False)
    assert part.validate().ok
    assert len(part) == len(sc.partition(model, BOX, device="cpu", progress=False))


def test_constants_that_are_no_buffers():
    sc.register_op(Constants, cuts=lambda module, x: x - module.knot)
    program = capture(network(Constants()), (2,))
    plain = capture(network(Function(lambda x: (x - 0.25).abs())), (2,))
    x = torch.randn(5, 2)
    torch.testing.assert_close(program(x), plain(x))
    state = program.layers[0].operation.args[1]
    assert {name: tensor.dtype for name, tensor in state.items()} == {
        "module.knot": torch.float64,
        "module.one": torch.float64,
    }
    assert program.to("meta").layers[0].operation.args[1]["module.one"].is_meta


# --- the model stays as it was


@pytest.mark.parametrize("affine", [False, True])
def test_the_module_is_left_as_it_was(affine: bool):
    module = Hidden(0.25)
    own = module.forward
    vars(module)["forward"] = lambda x: own(x)
    replaced = vars(module)["forward"]
    other = Hidden(0.1)
    sc.register_op(Hidden, **({"affine": True} if affine else {"cuts": lambda m, x: x - m.knot}))
    model = network(module, other)
    if affine:
        with pytest.raises(sc.UnsupportedOpError):
            capture(model, (2,))
    else:
        capture(model, (2,))
    assert vars(module)["forward"] is replaced
    assert "forward" not in vars(other)
    assert module.knot.dtype == torch.float32
    assert module.knot.requires_grad


def test_the_program_keeps_the_parameters_of_its_time():
    sc.register_op(Hidden, cuts=lambda module, x: x - module.knot)
    model = network(Hidden(0.25))
    program, x = capture(model, (2,)), torch.randn(5, 2)
    before = program(x)
    with torch.no_grad():
        model[1].knot.add_(1)
    assert torch.equal(program(x), before)


# --- what is wrong is found


def bent(x: Tensor) -> Tensor:
    return x.clamp(-1, 1)


WRONG: dict[str, tuple[Callable[..., object], Callable[..., Tensor] | None, str]] = {
    "not affine": (torch.abs, None, "registered with affine=True, but is not affine"),
    "smooth": (torch.tanh, None, "registered with affine=True, but is not affine"),
    "smooth between borders": (torch.nn.functional.silu, lambda m, x: x, "not affine between"),
    "a knot is missing": (bent, lambda m, x: x - 1, "not affine between .* missing borders"),
    "a wrong knot": (bent, lambda m, x: torch.cat([x - 1, x + 0.9], 1), "not affine between"),
    "cuts not affine": (bent, lambda m, x: x * x - 1, "its cuts function is not affine"),
    "a jump": (lambda x: x + (x > 0.5), lambda m, x: x - 0.5, "not continuous: it jumps"),
    "a jump, affine": (lambda x: x + (x > 0.5), None, "is not affine"),
    "mixed points": (lambda x: x - x.mean(0), None, "mixes the points of the batch"),
    "mixing cuts": (torch.abs, lambda m, x: x - x.amax(0), "cuts function mixes the points"),
    "random": (lambda x: x + torch.rand_like(x), None, "different values for the same input"),
    "infinite": (lambda x: x / 0, None, "not finite"),
    "float32": (lambda x: (x.float() / 3).to(x.dtype), None, "if it computes in float32"),
    "failing cuts": (torch.abs, lambda m, x: x[9], "cuts function cannot be run on a tensor"),
    "cuts as masks": (torch.abs, lambda m, x: x > 0, "floating-point numbers, not torch.bool"),
    "cuts of another size": (torch.abs, lambda m, x: x.sum(0), "batch in its first dimension"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_registration_is_found(case: str):
    call, cuts, message = WRONG[case]

    class Wrong(Function):
        pass

    if cuts is None:
        sc.register_op(Wrong, affine=True)
    else:
        sc.register_op(Wrong, cuts=cuts)
    sc.register_op(Function, affine=True)  # the subclass inherits forward, and has its own rule
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Sequential(Wrong(call)))
    with pytest.raises(sc.UnsupportedOpError, match=message) as caught:
        capture(model, (2,))
    assert caught.value.ops[0].name == "2.0"
    assert caught.value.ops[0].target == "Wrong"


CALLS: dict[str, tuple[Callable[..., object], str]] = {
    "two arguments": (lambda module, x: module(x, x), "called with 2 arguments"),
    "no tensor": (
        lambda module, x: module([x]),
        "called with 1 arguments: a registered module takes",
    ),
    "batch elsewhere": (
        lambda module, x: module(x.T).T,
        "first dimension of its input is not the bat",
    ),
    "part of the batch": (
        lambda module, x: module(x.reshape(-1, 1)).view(-1, 2),
        "must be the batch",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_calls_that_are_not_supported(case: str):
    call, message = CALLS[case]

    class Caller(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = Hidden()

        def forward(self, x: Tensor) -> object:
            return call(self.module, x)

    sc.register_op(Hidden, cuts=lambda module, x: x - module.knot)
    with pytest.raises(sc.CaptureError, match=message):
        capture(Caller(), (2,))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: (x, x), "must return one tensor"),
        (lambda x: x.sum(), "first dimension must be the batch"),
        (lambda x: x @ torch.ones(6, 6), r"cannot be run on a tensor \(2, 6\) of float64"),
    ],
)
def test_results_that_are_not_supported(call: Callable[[Tensor], object], message: str):
    sc.register_op(Function, affine=True)
    with pytest.raises(sc.CaptureError, match=message):
        capture(network(Function(call)), (2,))


def test_validation_finds_what_lies_outside_the_tried_range():
    sc.register_op(Function, cuts=lambda module, x: x)
    model = Function(lambda x: x.abs() + torch.relu(x - 1e4))
    assert sc.partition(model, BOX, progress=False).validate().ok
    far = sc.partition(model, sc.Domain.box(-2e4, 2e4), progress=False)
    with pytest.raises(sc.ValidationError, match="map against the model"):
        far.validate()


@pytest.mark.parametrize(
    ("target", "options", "error", "message"),
    [
        (Hidden, {}, ValueError, "either affine=True, or cuts="),
        (Hidden, {"affine": True, "cuts": bent}, ValueError, "either affine=True, or cuts="),
        (Hidden, {"cuts": 0.5}, TypeError, "must be a function, not float"),
        (nn.Module, {"affine": True}, TypeError, "a class of your own"),
        (Hidden(), {"affine": True}, TypeError, "register the class Hidden"),
        (torch.relu, {"affine": True}, TypeError, "cannot be registered"),
        ("mylib.fold", {"affine": True}, ValueError, "there is no operator 'mylib.fold'"),
        ("splinecam::nothing", {"affine": True}, ValueError, "there is no operator"),
    ],
)
def test_wrong_arguments(target: object, options: dict, error: type, message: str):
    with pytest.raises(error, match=message):
        sc.register_op(target, **options)
