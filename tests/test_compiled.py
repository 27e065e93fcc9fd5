"""Compiled loops: the same cells and values as by tensor operations, which take over if need be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from threading import Event
from typing import Any

import pytest
import torch
from hypothesis import given
from torch import nn

import splinecam
import splinecam as sc
from splinecam import bending, compiled, evaluate, kinks, refine, state, swift, threads
from splinecam.capture import capture
from splinecam.engine import Outcome, run
from splinecam.mesh import Mesh
from splinecam.signs import set_bits
from strategies import Net, domains, examples, nets
from test_properties import assert_exact

pytestmark = pytest.mark.loops

WHOLE = ("edges", "offsets", "corners", "edge_op", "edge_unit", "vertex_op")


def _mlp(*widths: int, act: Callable[[], nn.Module] = nn.ReLU, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(widths[:-1]):
        layers += [nn.Linear(a, b, bias=bias), act()]
    return nn.Sequential(*layers, nn.Linear(*widths[-2:])).double().eval()


NETS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: _mlp(2, 24, 24, 24, 3),
    "narrow words": lambda: _mlp(2, 70, 9, 130, 1),
    "many outputs": lambda: _mlp(2, 20, 20, 20),
    "no bias": lambda: _mlp(2, 24, 24, 3, bias=False),
    "leaky": lambda: _mlp(2, 24, 24, 3, act=nn.LeakyReLU),
    "two knots": lambda: _mlp(2, 16, 16, 3, act=nn.Hardtanh),
    "one layer of many": lambda: _mlp(2, 100, 2),
    "one layer of too many": lambda: _mlp(2, 150, 2),
}


def _outcome(model: nn.Module, domain: sc.Domain, **options: Any) -> Outcome:
    return run(capture(model, domain.input_shape, device=torch.device("cpu")), domain, **options)


def _without_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LOADED", "_PAYS"):
        monkeypatch.setattr(compiled, name, 1 << 60)


def _assert_same(one: Mesh, other: Mesh) -> None:
    assert all(torch.equal(getattr(one, name), getattr(other, name)) for name in WHOLE)
    assert float((one.uv - other.uv).abs().max()) < 1e-12


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def _threads(request: pytest.FixtureRequest) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    assert torch.get_num_threads() == request.param
    torch.set_num_threads(before)


@pytest.fixture(params=[False, True], ids=["every vertex", "by kinks"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_MOST", 40)
    monkeypatch.setattr(swift, "_PART", 50)
    if request.param:
        monkeypatch.setattr(kinks, "_FEWEST", 0)
        monkeypatch.setattr(bending, "_POINT", float("inf"))
        monkeypatch.setattr(bending, "_NARROW", 0)


@pytest.mark.usefixtures("_threads", "_way")
@pytest.mark.parametrize("name", NETS)
def test_the_same_cells_and_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, domain = NETS[name](), sc.Domain.box(-3, 3)
    fast = _outcome(model, domain)
    _without_loops(monkeypatch)
    plain = _outcome(model, domain)
    _assert_same(fast.mesh, plain.mesh)
    assert float((fast.output - plain.output).abs().max()) < 1e-12
    with torch.no_grad():
        again = model(domain.embed(sc.partition(model, domain).vertices))
    assert float((fast.output - again).abs().max()) < 1e-12


@pytest.mark.parametrize("width", [4, 8, 12])
def test_results_take_the_place_of_what_they_are_made_of(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in (
        (state, "_LARGE", 0),
        (state, "_GROWTH", 1000),
        (kinks, "_FEWEST", 0),
        (bending, "_POINT", float("inf")),
        (bending, "_NARROW", 0),
    ):
        monkeypatch.setattr(module, name, value)
    model, domain = _mlp(2, *[width] * 4, 2), sc.Domain.box(-3, 3)
    fast = _outcome(model, domain)
    _without_loops(monkeypatch)
    plain = _outcome(model, domain)
    _assert_same(fast.mesh, plain.mesh)
    assert float((fast.output - plain.output).abs().max()) < 1e-12


def test_loops_are_really_used(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    def note(module: Any, name: str) -> None:
        loop = getattr(module, name)

        def noted(*args: Any, **options: Any) -> Any:
            used.append(name)
            return loop(*args, **options)

        monkeypatch.setattr(module, name, noted)

    monkeypatch.setattr(kinks, "_FEWEST", 0)
    monkeypatch.setattr(bending, "_POINT", float("inf"))
    for name in ("product", "fill"):
        note(compiled.Loops, name)
    note(refine, "cut_edges")
    note(evaluate, "Ahead")
    _outcome(NETS["relu"](), sc.Domain.box(-3, 3))
    assert used.count("product") == 2  # and the last stage was found ahead
    assert used.count("Ahead") == 1
    assert "fill" in used
    assert "cut_edges" not in used  # nothing was left to tensor operations


@pytest.mark.parametrize("name", ["relu", "leaky", "one layer of many"])
def test_the_same_refinement(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinks, "_FEWEST", 0)
    pairs: list[tuple[Any, Any]] = []
    swiftly = refine.refine_swiftly

    def both(mesh: Mesh, functions: Any, op: int, most: int | None) -> Any:
        fast = swiftly(mesh, functions, op, most)
        monkeypatch.setattr(refine, "refine_swiftly", lambda *_: None)
        pairs.append((fast, refine.refine(mesh, functions, op)))
        monkeypatch.setattr(refine, "refine_swiftly", both)
        return fast

    monkeypatch.setattr(refine, "refine_swiftly", both)
    _outcome(NETS[name](), sc.Domain.box(-3, 3))
    assert any(fast is not None for fast, _ in pairs)
    for fast, plain in pairs:
        if fast is None:
            continue
        _assert_same(fast.mesh, plain.mesh)
        for births in ("on_edges", "inside"):
            one, other = getattr(fast, births), getattr(plain, births)
            assert torch.equal(one.p, other.p)
            assert torch.equal(one.q, other.q)
            assert torch.allclose(one.t, other.t, atol=1e-12)
        for one, other in zip(fast.kinks, plain.kinks, strict=True):
            assert torch.equal(one.unit, other.unit)
            assert torch.allclose(one.bend, other.bend, rtol=1e-9)
            assert torch.equal(one.per_vertex(), other.per_vertex())


@examples(60)
@given(nets(), domains())
def test_same_cells_as_the_oracle(net: Net, domain: sc.Domain) -> None:
    assert_exact(net.module(), domain)


@pytest.mark.parametrize("seed", range(6))
def test_same_cells_as_the_oracle_by_kinks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinks, "_FEWEST", 0)
    monkeypatch.setattr(bending, "_POINT", float("inf"))
    torch.manual_seed(seed)
    assert_exact(_mlp(2, 6, 6, 6, 2), sc.Domain.box(-2, 2))


def test_many_domains_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _mlp(6, 16, 16, 2)
    chosen = [sc.Domain.around(torch.randn(6), side=3, seed=k) for k in range(5)]
    fast = sc.sweep(model, chosen)
    _without_loops(monkeypatch)
    for part, domain in zip(fast, chosen, strict=True):
        _assert_same(part.mesh, sc.partition(model, domain).mesh)


def test_the_limit_of_regions_is_kept() -> None:
    with pytest.raises(sc.LimitError, match="max_regions=100"):
        _outcome(NETS["relu"](), sc.Domain.box(-3, 3), max_regions=100)


def test_tiles_are_the_same() -> None:
    model, domain = NETS["relu"](), sc.Domain.box(-3, 3)
    whole, tiles = _outcome(model, domain), _outcome(model, domain, memory=300_000)
    assert whole.mesh.num_faces == tiles.mesh.num_faces


# -- what they are made of ----------------------------------------------------------------------


def test_loops_see_range_signs_and_zeros() -> None:
    z = torch.randn(41, 130, dtype=torch.float64)
    least, words = torch.full((130,), 1e-9).double(), torch.empty((2, 41, 3), dtype=torch.int64)
    loops = compiled.loops_for(z.device, 0)
    assert loops is not None
    sight = compiled.Sight(least, words[0], words[1])
    loops.see(z, 0, 41, sight)
    assert torch.equal(torch.stack(sight.range()), torch.stack([z.amin(0), z.amax(0)]))
    assert not sight.zeros()
    assert torch.equal(torch.stack(set_bits(words[0]), 1), (z > 0).nonzero())
    z[3, 129] = -1e-10
    loops.see(z, 0, 41, sight)
    assert sight.zeros()
    assert torch.equal(torch.stack(set_bits(words[1]), 1), (z < -1e-9).nonzero())


@pytest.mark.parametrize("functions", [1, 3])
def test_loops_see_ahead(functions: int) -> None:
    z = torch.randn(41, 130, dtype=torch.float64)
    weight, bias = torch.randn(functions, 130).double(), torch.randn(functions).double()
    least, words = torch.full((130,), 1e-9).double(), torch.empty((2, 41, 3), dtype=torch.int64)
    ahead = compiled.Ahead(weight, bias, torch.zeros(41, functions).double())
    loops = compiled.loops_for(z.device, 0)
    assert loops is not None
    loops.see(z, 0, 40, compiled.Sight(least, words[0], words[1], ahead))
    expected = z.clamp(min=0) @ weight.T + bias
    assert torch.allclose(ahead.values[:40], expected[:40], atol=1e-13)
    assert not ahead.values[40:].any()


@pytest.mark.parametrize("cells", [0, 1, 3, 4, 100, 5000])
def test_the_curve_goes_from_cell_to_neighbouring_cell(cells: int) -> None:
    curve = torch.from_numpy(compiled._curve(cells))
    side = curve.shape[0]
    assert max(1, cells / 4) <= side**2 <= max(1, cells)
    order = curve.flatten().argsort()
    places = torch.stack([order // side, order % side], 1)
    assert torch.equal(curve.flatten()[order], torch.arange(side**2, dtype=torch.int32))
    assert bool((places.diff(dim=0).abs().sum(1) == 1).all())


@pytest.mark.parametrize("units", [1, 64, 65])
def test_products_leave_units_out_that_are_off(units: int) -> None:
    loops = compiled.loops_for(torch.device("cpu"), 0)
    assert loops is not None
    z = torch.randn(100, units, dtype=torch.float64)
    z[:, ::2] = -z[:, ::2].abs()
    weight, bias = torch.randn(12, units).double(), torch.randn(12).double()
    words = torch.empty((2, 100, -(-units // 64)), dtype=torch.int64)
    loops.see(z, 0, 100, compiled.Sight(torch.zeros(units).double(), words[0], words[1]))
    uv = 2 * torch.rand(100, 2, dtype=torch.float64) - 1
    stage = compiled.Rectified(z, words[0], uv, weight.T.contiguous(), bias)
    out = torch.empty(100, 12).double()
    loops.product(stage, out, compiled.Sight.nothing(), None)
    assert torch.allclose(out, z.clamp(min=0) @ weight.T + bias, atol=1e-13)


@pytest.mark.usefixtures("_threads")
def test_threads_share_everything_once() -> None:
    seen: list[tuple[int, int, int]] = []
    threads.share(lambda *part: seen.append(part), 100, 7)
    assert sorted(part[1:] for part in seen) == [(k, min(k + 7, 100)) for k in range(0, 100, 7)]
    assert {part[0] for part in seen} <= set(range(threads.number_of_threads()))
    with threads.without_helpers():
        assert torch.get_num_threads() == 1

    def fails(*part: int) -> None:
        raise RuntimeError("a loop failed")

    with pytest.raises(RuntimeError, match="a loop failed"):
        threads.share(fails, 100, 7)

    last, begun = threads.number_of_threads() - 1, Event()

    def fails_elsewhere(thread: int, *part: int) -> None:
        if thread == last:
            begun.set()
            raise RuntimeError("a helper failed")
        begun.wait()  # however long the helper takes to begin

    with pytest.raises(RuntimeError, match="a helper failed"):
        threads.share(fails_elsewhere, 100, 7)


def test_a_helper_that_comes_too_late_is_not_waited_for() -> None:
    done: list[int] = []
    task = threads._Task(done.append, 7)
    task.end()
    task.begin()
    assert not done
    task = threads._Task(done.append, 8)
    task.begin()
    task.end()
    assert done == [8]


def test_without_numba_everything_works(monkeypatch: pytest.MonkeyPatch) -> None:
    model, domain = NETS["relu"](), sc.Domain.box(-3, 3)
    monkeypatch.setattr(compiled, "_machine_code", lambda: None)
    without = _outcome(model, domain)
    _without_loops(monkeypatch)
    plain = _outcome(model, domain)
    assert torch.equal(without.output, plain.output)
    assert torch.equal(without.mesh.corners, plain.mesh.corners)


def test_they_are_compiled_only_if_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_is_compiled", lambda code: False)
    monkeypatch.setattr(compiled, "_PAYS_COMPILING", 1000)
    assert compiled.loops_for(torch.device("cpu"), 999) is None
    assert compiled.loops_for(torch.device("cpu"), 1000) is not None


def test_a_numba_that_cannot_be_used_is_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "splinecam.loops", None)
    monkeypatch.delattr(splinecam, "loops", raising=False)
    compiled._machine_code.cache_clear()
    assert compiled.loops_for(torch.device("cpu"), 1 << 40) is None
    assert "numba" in caplog.text
    compiled._machine_code.cache_clear()
