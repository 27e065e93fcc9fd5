"""The compiled kernel: the same cells and values as by tensor operations, which take over."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import splinecam as sc
from checks import assert_exact, follow_lines
from kernel_cases import INTEGER_ARRAYS, NETS, assert_same_mesh, assert_same_refinement, mlp
from splinecam._util.arrays import set_bits
from splinecam._util.tolerances import EPS
from splinecam.arrangement import refine
from splinecam.arrangement import refine as breakpoints
from splinecam.arrangement.crossings import Functions
from splinecam.engine import activations as state
from splinecam.engine import step as engine
from splinecam.engine.batched import run_batch
from splinecam.engine.run import Outcome, run
from splinecam.geometry.subdivision import InterpolatedVertices, Mesh, polygon_mesh
from splinecam.kernels import library
from splinecam.kernels.kernel import (
    Dense,
    Kernel,
    LayerFunctions,
    LineRows,
    SignRange,
    available,
    kernel_for,
)
from splinecam.kernels.walk import Bends
from splinecam.network.capture import capture
from strategies import Net, domains, examples, nets

pytestmark = pytest.mark.skipif(not available(), reason="the kernel was not built")

CPU = torch.device("cpu")


def _outcome(model: nn.Module, domain: sc.Domain, **options: Any) -> Outcome:
    return run(capture(model, domain.input_shape, device=CPU), domain, **options)


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    assert torch.get_num_threads() == request.param
    torch.set_num_threads(before)


@pytest.fixture(params=[None, 0, 1000], ids=["every vertex", "by terms", "by running sums"])
def _method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param is not None:
        follow_lines(monkeypatch, request.param)


@pytest.mark.few(4)
@pytest.mark.usefixtures("_threads", "_method")
@pytest.mark.parametrize("name", NETS)
def test_the_same_cells_and_values(name: str) -> None:
    model, domain = NETS[name](), sc.Domain.box(-3, 3)
    fast, plain = _outcome(model, domain), _outcome(model, domain, compiled=False)
    assert_same_mesh(fast.mesh, plain.mesh)
    assert float((fast.output - plain.output).abs().max()) < 1e-12
    with torch.no_grad():
        again = model(domain.embed(sc.partition(model, domain).vertices))
    assert float((fast.output - again).abs().max()) < 1e-12


@pytest.mark.few(1)
@pytest.mark.parametrize("name", NETS)
def test_the_same_bits_with_any_number_of_threads(name: str) -> None:
    model, domain, found = NETS[name](), sc.Domain.box(-3, 3), []
    before = torch.get_num_threads()
    for threads in (1, 2, 16, 1):
        torch.set_num_threads(threads)
        found.append(_outcome(model, domain))
    torch.set_num_threads(before)
    for other in found[1:]:
        assert torch.equal(found[0].mesh.uv, other.mesh.uv)
        assert torch.equal(found[0].output, other.output)
        assert_same_mesh(found[0].mesh, other.mesh)


def test_the_same_bits_in_any_order_of_calls() -> None:
    models = {name: NETS[name]() for name in NETS}
    domain = sc.Domain.box(-3, 3)

    def bits(names: list[str]) -> dict[str, list[Tensor]]:
        found = {}
        for name in names:
            part = sc.partition(models[name], domain, device="cpu", progress=False)
            arrays = [getattr(part.mesh, array) for array in ("uv", *INTEGER_ARRAYS)]
            found[name] = [*arrays, part.values, part._value_error]
        return found

    once = bits([*models])
    for names in ([*reversed(models)], [*models, *models]):
        for name, arrays in bits(names).items():
            assert all(map(torch.equal, arrays, once[name])), name


@pytest.mark.parametrize("width", [4, 8, 12])
def test_results_take_the_place_of_what_they_are_made_of(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "_LARGE", 0)
    monkeypatch.setattr(state, "_GROWTH", 1000)
    follow_lines(monkeypatch)
    model, domain = mlp(2, *[width] * 4, 2), sc.Domain.box(-3, 3)
    fast, plain = _outcome(model, domain), _outcome(model, domain, compiled=False)
    assert_same_mesh(fast.mesh, plain.mesh)
    assert float((fast.output - plain.output).abs().max()) < 1e-12


def test_the_kernel_is_really_used(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    def note(module: Any, name: str) -> None:
        function = getattr(module, name)

        def noted(*args: Any, **options: Any) -> Any:
            used.append(name)
            return function(*args, **options)

        monkeypatch.setattr(module, name, noted)

    follow_lines(monkeypatch)
    for name in ("dense", "fill", "refine"):
        note(Kernel, name)
    note(refine, "find_edge_crossings")
    _outcome(NETS["relu"](), sc.Domain.box(-3, 3))
    assert sorted(used) == ["dense"] * 4 + ["refine"] * 3  # nothing is left to tensor operations
    used.clear()
    _outcome(NETS["leaky"](), sc.Domain.box(-3, 3))
    assert {"dense", "fill", "refine"} <= set(used)
    assert "find_edge_crossings" not in used


@pytest.mark.parametrize("name", ["relu", "leaky", "one layer of many"])
def test_the_same_refinement(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    follow_lines(monkeypatch)
    pairs: list[tuple[Any, Any]] = []
    compiled = engine.refine_compiled

    def both(kernel: Kernel, mesh: Mesh, layer: LayerFunctions) -> Any:
        fast = compiled(kernel, mesh, layer)
        low, high = layer.z.aminmax(dim=0)
        jump = torch.ones_like(low) if layer.slope_difference is None else layer.slope_difference
        functions = Functions.crossing(
            layer.z, torch.zeros_like(low)[None], layer.error, low, high, jump[None]
        )
        pairs.append((fast, refine.refine(mesh, functions, layer.layer)))
        return fast

    monkeypatch.setattr(engine, "refine_compiled", both)
    _outcome(NETS[name](), sc.Domain.box(-3, 3))
    assert any(fast is not None for fast, _ in pairs)
    for fast, plain in pairs:
        if fast is None:
            continue
        assert_same_refinement(fast, plain)
        for one, other in zip(fast.breakpoints, plain.breakpoints, strict=True):
            assert torch.equal(one.per_vertex(), other.per_vertex())


@examples(60)
@given(nets(), domains())
def test_same_cells_as_the_oracle(net: Net, domain: sc.Domain) -> None:
    assert_exact(net.module(), domain)


@pytest.mark.parametrize("seed", range(6))
def test_same_cells_as_the_oracle_along_lines(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    follow_lines(monkeypatch)
    torch.manual_seed(seed)
    assert_exact(mlp(2, 6, 6, 6, 2), sc.Domain.box(-2, 2))


def test_many_domains_at_once() -> None:
    model = mlp(6, 16, 16, 2)
    chosen = [sc.Domain.around(torch.randn(6), side=3, seed=k) for k in range(5)]
    program = capture(model, (6,), device=CPU)
    plain = list(run_batch(program, chosen, compiled=False))
    for fast, other in zip(run_batch(program, chosen), plain, strict=True):
        assert_same_mesh(fast.mesh, other.mesh)


def test_the_limit_of_regions_is_kept() -> None:
    with pytest.raises(sc.LimitError, match="max_regions=100"):
        _outcome(NETS["relu"](), sc.Domain.box(-3, 3), max_regions=100)


def test_tiles_are_the_same() -> None:
    model, domain = NETS["relu"](), sc.Domain.box(-3, 3)
    whole, tiles = _outcome(model, domain), _outcome(model, domain, memory=600_000)
    assert whole.mesh.num_faces == tiles.mesh.num_faces


# -- without the library ------------------------------------------------------------------------


@pytest.mark.slow
def test_without_the_library_everything_works_and_one_line_says_so() -> None:
    code = """if True:
        import os, sys, torch  # which takes seconds, and is imported once for all three
        for chosen in ("off", "nowhere.so", ""):
            print("next case", file=sys.stdout, flush=True)
            print("next case", file=sys.stderr, flush=True)
            if child := os.fork():
                os.waitpid(child, 0)
                continue
            os.environ["SPLINECAM_KERNEL"] = chosen
            import logging, splinecam as sc
            logging.basicConfig(format="%(levelname)s %(message)s")
            torch.manual_seed(0)
            net = torch.nn.Sequential(torch.nn.Linear(2, 9), torch.nn.ReLU(), torch.nn.Linear(9, 1))
            for _ in range(2):
                print(len(sc.partition(net, sc.Domain.box(-1, 1), device="cpu", progress=False)))
            sys.exit()
    """
    words = [sys.executable, "-c", code]
    result = subprocess.run(words, capture_output=True, text=True, check=True)
    outputs, errors = (text.split("next case\n")[1:] for text in (result.stdout, result.stderr))
    found = {
        chosen: (out.split(), err.count("The compiled kernel is not"))
        for chosen, out, err in zip(("off", "nowhere.so", ""), outputs, errors, strict=True)
    }
    assert all(len(lines) == 2 for lines, _ in found.values())
    counts = {tuple(lines) for lines, _ in found.values()}
    assert len(counts) == 1
    assert {chosen: warnings for chosen, (_, warnings) in found.items()} == {
        "off": 0,
        "nowhere.so": 1,
        "": 0,
    }


def test_a_library_of_another_version_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(library, "VERSION", -1)
    library.library.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert kernel_for(CPU) is None
    assert "not -1" in caplog.text
    monkeypatch.undo()
    library.library.cache_clear()
    assert kernel_for(CPU) is not None
    assert kernel_for(torch.device("meta")) is None


# -- rows ---------------------------------------------------------------------------------------


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def kernel(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    made = Kernel(request.param)
    yield made
    made.close()


def _words(rows: int, units: int) -> Tensor:
    return torch.zeros((2, rows, -(-units // 64)), dtype=torch.int64)


@pytest.mark.parametrize("rows", [1, 41, 5000])
@pytest.mark.parametrize("units", [1, 5, 64, 65, 130])
def test_range_signs_and_zeros_are_seen(kernel: Kernel, rows: int, units: int) -> None:
    z = torch.randn(rows, units, dtype=torch.float64)
    least, words = torch.full((units,), 1e-9).double(), _words(rows, units)
    sign_range = SignRange(least, words[0], words[1])
    kernel.scan(z, 0, rows, sign_range)
    assert torch.equal(
        torch.stack([sign_range.low, sign_range.high]), torch.stack([z.amin(0), z.amax(0)])
    )
    assert not sign_range.zeros()
    assert torch.equal(torch.stack(set_bits(words[0]), 1), (z > 0).nonzero())
    z[rows // 2, units - 1] = -1e-10
    kernel.scan(z, 0, rows, sign_range)
    assert sign_range.zeros()
    assert torch.equal(torch.stack(set_bits(words[1]), 1), (z < -1e-9).nonzero())


@pytest.mark.parametrize("units", [1, 7, 64, 65])
@pytest.mark.parametrize("width", [1, 3, 4, 8, 13, 70])
@pytest.mark.parametrize("rows", [1, 5, 100, 1300])
def test_products_of_positive_parts(kernel: Kernel, units: int, width: int, rows: int) -> None:
    z = torch.randn(rows, units, dtype=torch.float64)
    z[:, ::2] = -z[:, ::2].abs()
    weight, bias = torch.randn(units, width).double(), torch.randn(width).double()
    mesh = polygon_mesh(2 * torch.rand(rows, 2, dtype=torch.float64) - 1)
    size, error = z.abs().amax(0), 1e-15 * torch.rand(units).double()
    table = torch.empty(rows, width).double()
    for taken, shift, rectified in ((z.clamp(min=0), bias, True), (z, None, False)):
        layer = Dense(z, rectified, weight, shift, size, error)
        seen = kernel.dense(mesh, layer, table, signs=True)
        expected = taken @ weight + (0 if shift is None else shift)
        assert torch.allclose(table, expected, atol=1e-13)
        assert torch.equal(torch.cat([seen.low, seen.high]), torch.stack(table.aminmax(dim=0)))
        assert seen.signs is not None
        assert torch.equal(torch.stack(set_bits(seen.signs[0]), 1), (table > 0).nonzero())
        modulus = size @ weight.abs() + (0 if shift is None else shift.abs())
        spread = (error.square() @ weight.square()).sqrt() + EPS * modulus
        assert torch.allclose(seen.modulus[0], modulus)
        assert torch.allclose(seen.error[0], spread, atol=0)
        assert torch.allclose(seen.later_error[0], spread + EPS * modulus, atol=0)
        assert torch.equal(seen.positive_modulus, seen.high.clamp(min=0))
        assert torch.equal(seen.positive_error, seen.later_error * (seen.high >= 0))


@pytest.mark.parametrize("width", [1, 9, 40])
def test_new_rows_lie_between_their_ends_less_the_slope_changes(kernel: Kernel, width: int) -> None:
    rows, count, units, lines = 300, 500, 6, 50
    table = torch.randn(rows + count, width, dtype=torch.float64)
    interpolated = InterpolatedVertices(
        torch.randint(rows, (count,)), torch.randint(rows, (count,)), torch.rand(count).double()
    )
    changes = torch.randint(4, (lines,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), changes.cumsum(0)])
    entries = int(offsets[-1])
    some = breakpoints.Breakpoints(
        offsets,
        torch.rand(entries).double(),
        torch.randint(units, (entries,)),
        torch.rand(entries).double(),
        torch.randint(lines, (count,)),
        torch.zeros(count, dtype=torch.long),
    )
    columns = torch.randn(units, width, dtype=torch.float64)
    expected = table[interpolated.p].lerp(table[interpolated.q], interpolated.t[:, None])
    kernel.fill(table, LineRows(rows, interpolated), SignRange.nothing())
    assert torch.allclose(table[rows:], expected, atol=1e-13)
    for i in range(count):
        for k in range(int(offsets[some.line[i]]), int(offsets[some.line[i] + 1])):
            low, high = sorted((float(interpolated.t[i]), float(some.t[k])))
            expected[i] -= low * (1 - high) * some.slope_change[k] * columns[some.unit[k]]
    kernel.fill(table, LineRows(rows, interpolated, some, columns), SignRange.nothing())
    assert torch.allclose(table[rows:], expected, atol=1e-13)


@pytest.mark.parametrize("way", ["direct", "terms", "sums"])
@pytest.mark.parametrize("kind", ["pruned", "blocks, permuted", "nothing"])
def test_sparse_products_have_the_same_bits(
    kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside outputs that all units have a part in, the same sums are multiplied with zeros."""
    n, m = 70, 150
    wanted = {
        "pruned": torch.rand(m, n) < 0.06,
        "blocks, permuted": torch.block_diag(*[torch.ones(10, 4)] * 15),
        "nothing": torch.zeros(m, n),
    }[kind].double()
    wanted = nn.functional.pad(wanted, (0, n - wanted.shape[1]))[torch.randperm(m)]
    sparse, full = (mlp(2, 12, n, 2 * m) for _ in range(2))
    with torch.no_grad():
        sparse[-1].weight.mul_(torch.cat([wanted[:, torch.randperm(n)], torch.zeros(m, n)]))
        full.load_state_dict(sparse.state_dict())
        full[-1].weight[m:] = torch.randn(m, n)
    dense = Kernel.dense

    def chosen(kernel: Kernel, mesh: Mesh, layer: Dense, *args: Any, **options: Any) -> Any:
        if layer.history is not None:
            assert layer.history.has_breakpoints
            layer = replace(layer, methods=(way, way))
        return dense(kernel, mesh, layer, *args, **options)

    follow_lines(monkeypatch)
    monkeypatch.setattr(Kernel, "dense", chosen)
    one, other = (_outcome(x, sc.Domain.box(-2, 2)).output for x in (sparse, full))
    assert one.shape[0] > 500
    assert torch.equal(one[:, :m], other[:, :m])


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(8))
def test_sparse_networks_have_the_cells_of_the_oracle(seed: int) -> None:
    """Each unit has a part in two units far from each other, and most units are constant."""
    torch.manual_seed(seed)
    model = mlp(2, 6, 64, 64, 2)
    with torch.no_grad():
        for layer in (model[2], model[4]):
            layer.weight.mul_(nn.functional.one_hot(torch.arange(layer.in_features) % 5, 64).T)
            layer.weight.add_(layer.weight.flip(0) * (torch.rand(64, 1) < 0.5))
    assert_exact(model, sc.Domain.box(-2, 2))


# -- what is malformed --------------------------------------------------------------------------


def _functions(mesh: Mesh, units: int) -> LayerFunctions:
    """Lines through a square, as a layer of one network cuts it."""
    normal, offset = torch.randn(2, units).double(), torch.randn(units).double() / 4
    z = mesh.uv @ normal + offset
    words = _words(mesh.num_vertices, units)
    Kernel(1).scan(
        z, 0, mesh.num_vertices, SignRange(torch.zeros(units).double(), words[0], words[1])
    )
    error = torch.full((units,), 1e-16).double()
    return LayerFunctions(z, words[0], error, torch.ones(units).double(), layer=0)


def _square() -> Mesh:
    return polygon_mesh(torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]]).double())


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Numbers to be put at places of arrays."""
    name = st.sampled_from(("edges", "offsets", "corners", "positive", "z", "uv", "error"))
    number = st.sampled_from((-(2**62), -1, 0, 1, 2, 3, 5, 8, 2**31, 2**62))
    return draw(st.lists(st.tuples(name, st.integers(0, 10**6), number), min_size=1, max_size=4))


@examples(300)
@given(damages(), st.integers(0, 5))
def test_malformed_arrays_are_refused(damage: list[tuple[str, int, int]], seed: int) -> None:
    torch.manual_seed(seed)
    kernel, mesh = Kernel(1), _square()
    first = kernel.refine(mesh, _functions(mesh, 6))
    assert not isinstance(first, str)
    mesh = first[0].kept()
    functions = _functions(mesh, 70)
    for name, place, number in damage:
        array = getattr(mesh if name in vars(mesh) else functions, name).view(-1)
        array[place % array.shape[0]] = number
    with suppress(ValueError):  # which says that the arrays do not fit together
        made = kernel.refine(mesh, functions)
        assert isinstance(made, str) or made[0].num_faces >= mesh.num_faces


def test_malformed_walks_are_refused() -> None:
    kernel, mesh = Kernel(1), _square()
    mesh.edge_layer[0], mesh.edge_unit[0] = 0, 2
    numbers = torch.ones(40).double()
    ones = numbers[:9].view(3, 3), numbers[:3].view(1, 3), numbers[:6].view(2, 3), numbers[:3]
    chain = Bends((3, 3, 1), ones[0], numbers[:12], numbers[:4], *ones[1:])
    order = chain.order(kernel, mesh)
    weights = {"order": order, "place": numbers[:8], "corner": torch.arange(4)}
    assert chain.derivatives(kernel, mesh, weights)[0][0].isfinite().all()
    for name, wrong in (("corner", torch.arange(1, 5)), ("order", order + 1), ("order", order - 1)):
        with pytest.raises(ValueError, match="do not fit together"):
            chain.derivatives(kernel, mesh, weights | {name: wrong})
    for unit, layer in ((3, 0), (-1, 0), (0, 1)):
        mesh.edge_layer[0], mesh.edge_unit[0] = layer, unit
        with pytest.raises(ValueError, match="do not fit together"):
            chain.derivatives(kernel, mesh, weights)
    with pytest.raises(ValueError, match="do not fit together"):
        replace(chain, widths=(3, 0, 1)).maps(kernel, mesh, order, numbers)
    with pytest.raises(ValueError, match="do not fit together"):
        chain.order(kernel, mesh)


@examples(200)
@given(st.data())
def test_malformed_lines_are_refused(data: st.DataObject) -> None:
    kernel, table = Kernel(1), torch.randn(20, 5).double()
    number = st.integers(-5, 25)
    p, q = (torch.tensor(data.draw(st.lists(number, min_size=9, max_size=9))) for _ in "pq")
    fits = bool(((p >= 0) & (p < 11) & (q >= 0) & (q < 11)).all())
    lines = LineRows(11, InterpolatedVertices(p, q, torch.rand(9).double()))
    if fits:
        kernel.fill(table, lines, SignRange.nothing())
    else:
        with pytest.raises(ValueError, match="do not fit together"):
            kernel.fill(table, lines, SignRange.nothing())


@pytest.mark.parametrize(("levels", "units"), [(0, 3), (1, 8), (2, 1), (7, 13), (64, 20)])
def test_functions_of_tables(kernel: Kernel, levels: int, units: int) -> None:
    level = torch.randn(levels, units).double().sort(0).values
    level[levels // 2 + 1 :, ::3] = torch.inf  # units with fewer pieces
    start, value, slope = torch.randn(3, levels + 1, units).double()
    z = torch.randn(300, units).double()
    z[:levels] = level  # a piece ends with its level
    z[-1, 0] = torch.nan
    piece = (level < z[:, None]).sum(1)
    wanted = value.gather(0, piece) + (z - start.gather(0, piece)) * slope.gather(0, piece)
    out = torch.empty_like(z)
    kernel.table_values(z, (level, start, value, slope), out)
    known = wanted.isfinite()
    assert out[-1, 0].isnan()
    assert torch.allclose(out[known], wanted[known], rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="do not belong"):
        kernel.table_values(z, (level, start, value, slope[1:]), out)


def test_arrays_must_be_contiguous(kernel: Kernel) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        kernel.scan(torch.randn(4, 4).double().T, 0, 4, SignRange.nothing())
