"""Every registered operation: equal to the model, right knots, honest bounds, or a clear no."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fixtures.op_cases import (
    AFFINE,
    COMPARISON,
    COMPOSITE,
    MAXIMUM,
    PIECEWISE,
    SCATTER,
    SMOOTH,
    SORT,
    TERMINAL,
    Calls,
    Case,
)
from splinecam.engine.affine_maps import gradients
from splinecam.errors import CaptureError, UnsupportedOpError
from splinecam.network.capture import capture, capturing
from splinecam.network.capture.tracing.export import export_graph
from splinecam.network.nonlinearities import (
    MaxNonlinearity,
    Nonlinearity,
    PiecewiseScalar,
    SmoothScalar,
    SortNonlinearity,
)
from splinecam.network.ops.bounds import Bound
from splinecam.network.ops.registry import (
    RULES,
    AffineRule,
    ComparisonRule,
    CompositeRule,
    MaximumRule,
    PiecewiseRule,
    RejectedRule,
    ScatterRule,
    SmoothRule,
    SortRule,
    TerminalRule,
    op_table,
    op_table_markdown,
    target_name,
)
from splinecam.network.program import Program


def names_of(kind: type) -> list[str]:
    return [name.removeprefix("aten.") for name, rule in RULES.items() if isinstance(rule, kind)]


def points(case: Case, count: int = 9, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return (scale * torch.randn(count, *case.shape, generator=generator)).double()


def output_bound(program: Program, x: Tensor, error: float = 0.0) -> Bound:
    """The bound on the output of a program over some points, as the engine carries it."""
    size = x.abs().amax(0, keepdim=True)
    live = {program.input_name: Bound(size, error * size)}
    values = {program.input_name: x}
    for i, stage in enumerate(program.stages):
        live, values = program.bounds(i, live), program.advance(i, values)
        if stage.layer is not None:
            z = values[stage.layer.source]
            low, high = z.flatten(1).amin(0), z.flatten(1).amax(0)
            values[stage.layer.result] = stage.layer.apply(values[stage.layer.argument])
            live[stage.layer.result] = stage.layer.bound(live[stage.layer.argument], low, high)
    return live[program.output_name]


def captured(case: Case) -> tuple[Program, set[str]]:
    """The program of a case, and the names of the operations that it was exported as."""
    names: set[str] = set()

    def export(model: nn.Module, shape: tuple[int, ...]) -> Any:
        graph, reusable = export_graph(model, shape)
        for node in graph.nodes:
            names.update((target_name(node.target), target_name(node.target, overload=True)))
        return graph, reusable

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capturing, "export_graph", export)
        return capture(Calls(case), case.shape), names


def check_equal(program: Program, case: Case, x: Tensor) -> None:
    expected = Calls(case).double()(x)
    torch.testing.assert_close(program(x), expected, rtol=1e-13, atol=1e-13)
    assert program.output_shape == expected.shape[1:]
    # One point alone gives the same as in a batch.
    torch.testing.assert_close(program(x[:1]), expected[:1], rtol=1e-13, atol=1e-13)
    check_derivatives(program, x)


def check_derivatives(program: Program, x: Tensor) -> None:
    """Derivatives along two directions in one pass are those of back-propagation."""
    ways = torch.stack([x.flip(0), x.cos()])
    backward = gradients(program, x).flatten(2)
    expected = torch.einsum("bnd,kbd->kbn", backward, ways.flatten(2))
    torch.testing.assert_close(program.derivatives(x, ways), expected, rtol=1e-12, atol=1e-12)
    if program.subtracts:
        rise = (program(x[1:]) - program(x[:1])).reshape(len(x) - 1, -1)
        found = program.differences(x[:1], x[1:] - x[:1])
        torch.testing.assert_close(found, rise, rtol=1e-12, atol=1e-12)


def check_bounds(program: Program, case: Case, x: Tensor) -> None:
    exact = program(x)
    bound = output_bound(program, x)
    for part in bound:
        assert part.shape == (1, *program.output_shape)
        assert (part >= 0).all()
    assert (exact.abs() <= bound.magnitude * (1 + 1e-12)).all()
    # The model in float32 shows real rounding errors, 2^29 times those of float64.
    rounded = Calls(case)(x.float()).double()
    assert ((rounded - exact).abs() <= 4 * 2**29 * bound.error).all()
    # Errors of the input come out no larger than predicted.
    noise = 2.0**-20
    generator = torch.Generator().manual_seed(2)
    sign = torch.randint(0, 2, x.shape, generator=generator) * 2.0 - 1
    moved = program(x + noise * x.abs().amax(0, keepdim=True) * sign)
    assert ((moved - exact).abs() <= 8 * output_bound(program, x, noise).error).all()


def test_every_supported_op_has_a_case() -> None:
    assert sorted(names_of(AffineRule)) == sorted(AFFINE)
    assert sorted(names_of(PiecewiseRule)) == sorted(PIECEWISE)
    pairs = [name for name in names_of(PiecewiseRule) if RULES[f"aten.{name}"].pairs]
    assert sorted(names_of(MaximumRule) + pairs) == sorted(MAXIMUM)
    assert sorted(names_of(SortRule)) == sorted(SORT)
    assert sorted(names_of(ScatterRule)) == sorted(SCATTER)
    assert sorted(names_of(CompositeRule)) == sorted(COMPOSITE)
    assert sorted(names_of(ComparisonRule)) == sorted(COMPARISON)
    assert sorted(names_of(SmoothRule)) == sorted(SMOOTH)
    assert sorted(names_of(TerminalRule)) == sorted(TERMINAL)


@pytest.mark.parametrize(
    ("name", "index"), [(name, i) for name, cases in AFFINE.items() for i in range(len(cases))]
)
def test_affine(name: str, index: int) -> None:
    case = AFFINE[name][index]
    x = points(case)
    program, exported = captured(case)
    assert f"aten.{name}" in exported | {target_name(step.run) for step in program.stages[0].steps}
    assert len(program.stages) == 1
    check_equal(program, case, x)
    check_bounds(program, case, x)


@pytest.mark.parametrize(
    ("name", "index"),
    [(name, i) for name, cases in PIECEWISE.items() for i in range(len(cases))],
)
def test_piecewise(name: str, index: int) -> None:
    case, knots = PIECEWISE[name][index]
    program = capture(Calls(case), case.shape)
    cut = program.stages[0].layer
    assert isinstance(cut, PiecewiseScalar)
    assert len(program.stages) == 2
    assert cut.target == f"aten.{name}".removesuffix(".other") or name == "relu6"
    size = cut.levels.shape[1]
    expected = [torch.as_tensor(k, dtype=torch.float64).expand(size) for k in knots]
    assert torch.equal(cut.levels, torch.stack(expected) if expected else cut.levels[:0])
    x = points(case, scale=3.0)
    check_equal(program, case, x)
    check_bounds(program, case, x)
    check_pieces(program)


def check_pieces(program: Program) -> None:
    """Between its levels the function has the slope it says; at each level the slope changes."""
    cut = program.stages[0].layer
    assert isinstance(cut, PiecewiseScalar)
    grid = torch.linspace(-8, 8, 4001, dtype=torch.float64)  # hits no level but by rounding
    grid = grid + 1e-3
    z = grid.view(-1, *[1] * len(cut.shape)).expand(-1, *cut.shape)
    y = cut.apply(z).flatten(1)
    pieces = cut.pieces(z).long()
    assert pieces.shape == y.shape
    same = pieces[1:] == pieces[:-1]
    slope = (y[1:] - y[:-1]) / (grid[1:] - grid[:-1])[:, None]
    predicted = cut.slopes.gather(0, pieces[:-1])
    assert torch.allclose(slope[same], predicted[same], atol=1e-9)
    at = cut.levels.isfinite()
    assert (cut.slopes[1:] != cut.slopes[:-1])[at].all()
    assert (cut.levels[1:] >= cut.levels[:-1]).all()


def units_of(cut: Nonlinearity) -> Tensor:
    """Random numbers for a cut's source, some of them all negative."""
    generator = torch.Generator().manual_seed(3)
    z = torch.randn(4, *cut.shape, generator=generator, dtype=torch.float64)
    return torch.cat([z, z - 10])


@pytest.mark.parametrize(
    ("name", "index"), [(name, i) for name, cases in MAXIMUM.items() for i in range(len(cases))]
)
def test_maximum(name: str, index: int) -> None:
    case, groups, size = MAXIMUM[name][index]
    program = capture(Calls(case), case.shape)
    for cut in program.layers:
        assert isinstance(cut, MaxNonlinearity)
        check_target(cut, name)
        assert cut.members.shape == (groups, size)
        assert cut.members.is_contiguous()
        z = units_of(cut)
        group = z.flatten(1)[:, cut.members]
        best = group.amin(2) if cut.smallest else group.amax(2)
        assert torch.equal(cut.apply(z).reshape(8, -1), best)
        assert torch.equal(z.flatten(1).gather(1, cut.pieces(z).long()), best)
    x = points(case, scale=3.0)
    check_equal(program, case, x)
    check_bounds(program, case, x)


@pytest.mark.parametrize(
    ("name", "index"), [(name, i) for name, cases in SORT.items() for i in range(len(cases))]
)
def test_sort(name: str, index: int) -> None:
    case, groups, size = SORT[name][index]
    program = capture(Calls(case), case.shape)
    (cut,) = program.layers
    assert isinstance(cut, SortNonlinearity)
    check_target(cut, name)
    assert cut.members.shape == (groups, size)
    z = units_of(cut)
    group, made = (part.flatten(1)[:, cut.members] for part in (z, cut.apply(z)))
    order = group.sort(2).values
    assert torch.equal(made, order) or torch.equal(made, order.flip(2))
    x = points(case, scale=3.0)
    check_equal(program, case, x)
    check_bounds(program, case, x)


@pytest.mark.filterwarnings("ignore:index_reduce")  # in beta, says torch
@pytest.mark.parametrize(
    ("name", "index"), [(name, i) for name, cases in SCATTER.items() for i in range(len(cases))]
)
def test_scatter(name: str, index: int) -> None:
    case, groups = SCATTER[name][index]
    program = capture(Calls(case), case.shape)
    assert len(program.layers) == (groups is not None)
    for cut in program.layers:
        assert isinstance(cut, MaxNonlinearity)
        check_target(cut, name)
        assert cut.members.shape == groups
        z = units_of(cut)
        group = z.flatten(1)[:, cut.members]
        assert torch.equal(
            cut.apply(z).reshape(8, -1), group.amin(2) if cut.smallest else group.amax(2)
        )
    x = points(case, scale=3.0)
    check_equal(program, case, x)
    check_bounds(program, case, x)


@pytest.mark.parametrize(
    ("name", "index"),
    [(name, i) for name, cases in COMPOSITE.items() for i in range(len(cases))],
)
def test_composite(name: str, index: int) -> None:
    case, cuts = COMPOSITE[name][index]
    program, full = captured(case)
    assert any(target == f"aten.{name}" or target.startswith(f"aten.{name}.") for target in full)
    assert len(program.layers) == cuts
    op = name.partition(".")[0]
    assert all(cut.name == op or cut.name.startswith(f"{op}_") for cut in program.layers)
    x = points(case, scale=3.0)
    check_equal(program, case, x)
    check_bounds(program, case, x)


def check_target(cut: Nonlinearity, name: str) -> None:
    name = name.removesuffix(".other").removesuffix(".dim")
    assert cut.target in (f"aten.{name}", "aten.clamp" if name == "clip" else "")
    assert cut.name.removesuffix("_1") == cut.target.removeprefix("aten.").removesuffix(
        "_with_indices"
    )


@pytest.mark.parametrize(
    ("name", "index"),
    [(name, i) for name, cases in COMPARISON.items() for i in range(len(cases))],
)
def test_comparison(name: str, index: int) -> None:
    case = COMPARISON[name][index]
    program, exported = captured(case)
    assert f"aten.{name}" in exported
    (cut,) = program.layers
    assert isinstance(cut, PiecewiseScalar)
    assert torch.equal(cut.levels, torch.zeros(1, 6, dtype=torch.float64))
    assert torch.equal(cut.slopes[0], torch.zeros(6, dtype=torch.float64))
    x = points(case, scale=3.0)
    check_equal(program, case, x)
    check_bounds(program, case, x)


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(12))
def test_pools_of_every_kind(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    dims = pick(1, 3)
    kernel = [pick(1, 3) for _ in range(dims)]
    options = {
        "stride": [pick(1, 4) for _ in range(dims)],
        "padding": [pick(0, size // 2) for size in kernel],
        "dilation": [pick(1, 2) for _ in range(dims)],
        "ceil_mode": bool(pick(0, 1)),
    }
    pool = getattr(F, f"max_pool{dims}d")
    shape = (2, *(pick(6, 8) for _ in range(dims)))
    case = Case(lambda x, k: pool(x, kernel, **options), shape)
    program = capture(Calls(case), shape)
    x = torch.cat([points(case), points(case) - 10])
    assert torch.equal(program(x), pool(x, kernel, **options))
    for cut in program.layers:
        z = units_of(cut)
        best = z.flatten(1)[:, cut.members].amax(2)
        assert torch.equal(pool(z, kernel, **options).flatten(1), best)


@pytest.mark.parametrize(
    ("name", "index"), [(name, i) for name, cases in SMOOTH.items() for i in range(len(cases))]
)
def test_smooth(name: str, index: int) -> None:
    case, curve = SMOOTH[name][index]
    program = capture(Calls(case), case.shape, smooth=True)
    (layer,) = program.layers
    assert isinstance(layer, SmoothScalar)
    assert layer.curve == curve
    x = points(case, scale=3.0)
    check_equal(program, case, x)
    check_bounds(program, case, x)
    with pytest.raises(TypeError, match="smooth"):
        layer.pieces(x)
    with pytest.raises(UnsupportedOpError, match="smooth=1e-3 replaces it"):
        capture(Calls(case), case.shape)


@pytest.mark.parametrize("name", TERMINAL)
def test_terminal(name: str) -> None:
    case, label = TERMINAL[name]
    program = capture(Calls(case), case.shape)
    assert program.stripped == label
    x = points(case)
    assert torch.equal(program(x), x.view(-1, 6))
    torch.testing.assert_close(program.final(program(x)), Calls(case)(x), rtol=1e-13, atol=1e-13)
    middle = Case(lambda x, k: (lambda y: y + y.flip(-1))(case.call(x, k)), case.shape)
    with pytest.raises(UnsupportedOpError, match="not piecewise linear"):
        capture(Calls(middle), case.shape)
    if "softmax" not in name:
        program = capture(Calls(middle), case.shape, smooth=True)
        assert program.stripped is None
        assert [type(layer) for layer in program.layers] == [SmoothScalar]
        torch.testing.assert_close(program(x), Calls(middle)(x), rtol=1e-13, atol=1e-13)


def simple_call(name: str) -> Case | None:
    """A call of an operation whose only required arguments are one or two tensors."""
    packet = getattr(torch.ops.aten, name.partition(".")[0], None)
    overloads = [name.partition(".")[2]] if "." in name else packet.overloads() if packet else []
    for overload in overloads:
        op = getattr(packet, overload)
        required = [a for a in op._schema.arguments if not a.has_default_value()]
        tensors = [a for a in required if str(a.type) == "Tensor"]
        if tensors and len(tensors) == len(required) and not op._schema.is_mutable:
            return Case(partial(call_with, op, len(required)), (3, 4))
    return None


def call_with(op: Callable[..., Any], count: int, x: Tensor, constants: object) -> Any:
    return op(*[x] * count)


@pytest.mark.parametrize("name", names_of(RejectedRule))
def test_rejected(name: str) -> None:
    case = simple_call(name)
    rule = RULES[f"aten.{name}"]
    assert isinstance(rule, RejectedRule)
    assert rule.reason
    if case is not None:
        with pytest.raises(CaptureError) as caught:
            capture(Calls(case), case.shape)
        if isinstance(caught.value, UnsupportedOpError):
            assert rule.reason in {op.reason for op in caught.value.ops}
            assert any(op.location.startswith("op_cases.py:") for op in caught.value.ops)


def test_table() -> None:
    rows = op_table()
    assert len(rows) == len(RULES)
    assert len({row.op for row in rows}) == len(rows)
    text = op_table_markdown()
    assert all(f"\n| `{row.op}` | {row.notes} |\n" in text for row in rows)


def test_the_documented_table_is_the_registry() -> None:
    page = Path(__file__).parents[2] / "docs" / "ops.md"
    assert page.read_text() == op_table_markdown(), "run `make docs`"


def test_the_bound_of_a_relu_is_that_of_any_knot(monkeypatch: pytest.MonkeyPatch) -> None:
    (layer,) = capture(nn.Sequential(nn.Linear(2, 40), nn.ReLU(), nn.Linear(40, 1)), (2,)).layers
    low, width = torch.randn(40).double(), torch.rand(40).double()
    before = Bound(torch.rand(1, 40).double() + 4, torch.rand(1, 40).double())
    quick = layer.bound(before, low, low + width)
    monkeypatch.setattr(type(layer), "rectifies", False)
    assert all(map(torch.equal, quick, layer.bound(before, low, low + width)))
