"""The benchmarks measure what they say; nothing here depends on how long something takes."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.engine.run import run
from splinecam.network.capture import capture
from splinecam.testing import Abs

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NAMES = (
    "common",
    "floor",
    "networks",
    "sweeps",
    "against",
    "bench",
    "tables",
    "fuzz",
    "smooth_fuzz",
    "refine",
    "refine_fuzz",
    "narrow_smooth",
    "calls",
    "exports",
    "properties",
    "pruned",
    "written_fuzz",
)
CPU = torch.device("cpu")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """As when they run as scripts: they find each other. The zoo is left alone."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("SPLINECAM_SHARED", str(BENCHMARKS / "nowhere"))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
    for name in set(NAMES) & (set(sys.modules) - known):
        del sys.modules[name]


class Branches(nn.Module):
    """A skip connection over a maximum, and an absolute value."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 12), nn.Linear(6, 12)
        self.last = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        pairs = torch.maximum(x[:, :6], x[:, 6:])
        return self.last(Abs()(self.second(torch.relu(pairs)) + x))


@pytest.mark.parametrize("kind", ["perceptron", "branches", "pooled"])
def test_the_floor_evaluates_every_vertex_from_the_layer_that_made_it(
    modules: SimpleNamespace, kind: str
) -> None:
    domain = sc.Domain.box(-1, 1)
    torch.manual_seed(0)
    if kind == "perceptron":
        model: nn.Module = modules.common.perceptron(2, 16, 16, 3)
    elif kind == "branches":
        model = Branches().double()
    else:
        model = modules.networks.pooled(nn.MaxPool2d, 2, 2)
        domain = modules.networks.around_an_image(16, 1.0)
    program = capture(model, domain.input_shape)
    with torch.no_grad():
        outcome = run(program, domain)
    op = outcome.mesh.vertex_layer
    for k in range(-1, len(program.layers)):
        count = int((op == k).sum())
        if count:
            tail = modules.floor._program_tail(program, domain, outcome, k, count)
            values = tail(count)[program.output_name].reshape(count, -1)
            assert torch.allclose(values, outcome.output[op == k], rtol=0, atol=1e-10), k
    kinds = modules.floor.floors(program, model, domain, outcome)
    assert set(kinds) == {"program"} | ({"modules"} if kind == "perceptron" else set())
    rows = [tail.count for tail in kinds["program"].args[0]]
    assert sum(rows) == outcome.mesh.num_vertices


def test_batches_of_the_floor(modules: SimpleNamespace) -> None:
    batches = modules.floor._batches
    assert batches(256, "cpu") == [512, 1024, 4096]
    assert batches(10_000, "cpu") == [64, 128, 512]
    assert batches(1 << 24, "cpu") == [2]
    assert batches(1 << 30, "cpu") == [1]


@pytest.mark.parametrize(
    ("name", "regions"), [("grid", 64), ("twins", 12_042), ("folds", 4**2 * 11)]
)
def test_networks_have_the_regions_they_are_made_for(
    modules: SimpleNamespace, name: str, regions: int
) -> None:
    networks = modules.networks
    unit = sc.Domain.box(0.0, 1.0)
    model, domain = {
        "grid": lambda: (networks.grid(4), unit),
        "twins": lambda: (networks.twins(), networks.WORKLOADS["twins64x3"].domain()),
        "folds": lambda: (networks.folds(4, 1, 5), unit),
    }[name]()
    part = sc.partition(model, domain, device="cpu", progress=False)
    assert len(part) == regions
    assert part.validate().ok


def test_training_changes_a_network(modules: SimpleNamespace) -> None:
    trained = modules.networks.image_network(side=8, steps=3)
    random = modules.common.perceptron(2, *[64] * 4, 3)
    assert not torch.equal(trained[0].weight, random[0].weight)
    assert trained[0].weight.dtype == torch.float64
    assert not trained.training


def test_times_and_turns(modules: SimpleNamespace) -> None:
    times = modules.common.Times((3.0, 1.0, 2.0, 5.0, 4.0))
    assert (times.best, times.median, times.spread) == (1.0, 3.0, 2.0)
    assert modules.common.Times((1.0,)).spread == 0.0
    calls: list[int] = []
    works = [lambda: calls.append(0), lambda: calls.append(1)]
    first, second = modules.common.in_turns(works, 3, CPU, short=0.0)
    assert calls == [0, 1] * 3
    assert len(first.each) == len(second.each) == 3


@pytest.fixture
def process(
    modules: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], None]:
    """What the system tells of this process: a function that sets its peak, in kB."""

    def peak(kilobytes: int) -> None:
        text = f"Name:\tpython\nVmPeak:\t999 kB\nVmHWM:\t  {kilobytes} kB\nVmRSS:\t 7 kB\n"
        (tmp_path / "status").write_text(text)

    monkeypatch.setattr(modules.common, "PROCESS", tmp_path)
    peak(5_000)
    return peak


@pytest.mark.parametrize(("after", "seen"), [(5_300, 300), (5_000, 0), (4_992, 0)])
def test_peak_memory_is_seen(
    modules: SimpleNamespace, process: Callable[[int], None], after: int, seen: int
) -> None:
    def work() -> str:
        assert (modules.common.PROCESS / "clear_refs").read_text() == "5"  # a new peak begins
        process(after)
        return "made"

    assert modules.common.with_peak(work, CPU) == ("made", seen * 1024)


def test_peak_memory_where_the_system_has_no_such_files(
    modules: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    unit = 1 if sys.platform == "darwin" else 1024
    usages = iter([SimpleNamespace(ru_maxrss=4_000), SimpleNamespace(ru_maxrss=4_100)])
    monkeypatch.setattr(resource, "getrusage", lambda who: next(usages))
    monkeypatch.setattr(modules.common, "PROCESS", tmp_path / "nothing")
    assert modules.common.with_peak(lambda: "made", CPU) == ("made", 100 * unit)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="not Linux")
def test_the_real_peak_is_a_whole_number_of_pages(modules: SimpleNamespace) -> None:
    made, peak = modules.common.with_peak(lambda: torch.ones(1 << 16).sum(), CPU)
    assert float(made) == 1 << 16
    assert peak >= 0
    assert peak % 1024 == 0
    assert modules.common._resident() > 1 << 20


def test_tables_line_up(modules: SimpleNamespace) -> None:
    table = modules.common.Table({"what": "<6", "count": ">8,", "time": ">8.2f"})
    assert table.heading() == "what     count    time"
    assert table.line({"what": "a", "count": 1234, "time": 0.5}) == "a        1,234    0.50"
    assert table.line({"what": "a", "time": 0.5}, "new") == "a                 0.50  new"
    with pytest.raises(ValueError, match="width"):
        modules.common.Table({"what": "6"}).heading()


def test_growth_is_the_slope_of_the_logarithms(modules: SimpleNamespace) -> None:
    sizes = [1.0, 2.0, 4.0, 8.0]
    assert modules.bench.exponent(sizes, [3 * x**2.5 for x in sizes]) == pytest.approx(2.5)
    rows = [{"regions": 10 * x, "best": x**2, "floor": x} for x in sizes]
    lines = modules.bench.growth("regions", rows)
    assert [line.split()[5] for line in lines] == ["2.00", "1.00"]
    assert modules.bench.growth("lines", rows) == []


def test_the_benchmark_prints_and_writes_its_figures(
    modules: SimpleNamespace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(modules.bench, "alone", lambda work, *arguments: work(*arguments))
    monkeypatch.setattr(modules.common, "MOST", 1)
    path = tmp_path / "figures.json"
    clock = itertools.count()  # each look at it takes a second
    for module in (modules.common, modules.bench):
        monkeypatch.setattr(module, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(modules.bench, "with_peak", lambda work, device: (work(), 3 << 20))
    names = ["line100_d2", "mlp32x3_side2", "mlp64x3_side2"]
    modules.bench.main(["--only", *names, "--repeat", "1", "--device", "cpu", "--json", str(path)])
    text = capsys.readouterr().out
    assert "expected" not in text
    assert "regions  grows with the power" in text
    rows = json.loads(path.read_text())["rows"]
    assert [row["workload"] for row in rows] == names
    assert [row["regions"] for row in rows] == [1_868, 1_180, 6_668]
    assert [row["runs"] for row in rows] == [1, 1, 1]
    for name in ("capture", "median", "best", "floor", "ratio"):
        assert [row[name] for row in rows] == [1.0, 1.0, 1.0], name
    assert [row["spread"] for row in rows] == [0.0, 0.0, 0.0]
    assert [row["peak"] for row in rows] == [3.0, 3.0, 3.0]
    assert [row["µs each"] for row in rows] == [1e6 / row["regions"] for row in rows]


def test_figures_get_into_the_page(modules: SimpleNamespace, tmp_path: Path) -> None:
    figures = {"spread": 0.001, "peak": 12.3, "floor": 0.5, "median": 1.0, "best": 0.25}
    row = {"workload": "a", "regions": 1_234, "group": "lines", "ratio": 0.5, **figures}
    page, files = tmp_path / "page.md", []
    page.write_text(
        "# A\n<!-- table lines -->\nold\n<!-- end -->\n<!-- table mlp -->\n<!-- end -->\n"
    )
    for device, name in (("cpu", "two cores"), ("cuda", "a card")):
        files.append(tmp_path / f"{device}.json")
        content = {"machines": {device: name}, "rows": [{"device": device, **row}]}
        files[-1].write_text(json.dumps(content))
    modules.tables.main([*map(str, files), "--page", str(page)])
    text = page.read_text()
    assert "two cores: median" in text
    assert "a card: median" in text
    assert "| a | 1,234 | 1.0 | 0.25 | 0.0010 | 12 | 0.50 | 0.50 | 1.0 |" in text
    assert "old" not in text
    assert text.endswith("<!-- table mlp -->\n<!-- end -->\n")
    again = page.read_text()
    modules.tables.main([*map(str, files), "--page", str(page)])
    assert page.read_text() == again


def test_every_group_has_a_place_on_the_page(modules: SimpleNamespace) -> None:
    text = modules.tables.README.read_text()
    for group in (*modules.bench.GROUPS, *modules.bench.OTHERS):
        assert f"| `{group}` |" in text
        assert text.count(f"<!-- table {group} -->") == 1


def test_large_workloads_are_for_gpus(modules: SimpleNamespace) -> None:
    groups = {"only": None, "groups": ["lines", "tiles"]}
    small = modules.bench.chosen(SimpleNamespace(device=CPU, **groups))
    large = modules.bench.chosen(SimpleNamespace(device=torch.device("cuda"), **groups))
    assert set(small) == {"lines", "tiles"}
    assert set(large["lines"]) - set(small["lines"]) == {"line4000_d2"}
    asked = modules.bench.chosen(SimpleNamespace(device=CPU, only=["line4000_d2"], groups=None))
    assert asked == {"lines": ["line4000_d2"]}


def test_a_group_that_is_not_here_is_told(
    modules: SimpleNamespace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules.against.importlib.util, "find_spec", lambda name: None)
    modules.bench.main(["--groups", "zoo", "relucent", "--device", "cpu"])
    text = capsys.readouterr().out
    assert "not here" in text
    assert "relucent: not installed" in text


# -- fuzzing --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fuzzing_finds_nothing_wrong(
    modules: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert modules.fuzz.main(["--count", "3", "--seed", "5"]) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == ["kind", "networks", "regions", "reported", "wrong", "seconds"]
    found = {row.split()[0]: row.split()[1:] for row in rows}
    assert [*found] == [*modules.fuzz.KINDS, "all"]
    assert all(numbers[0] == "3" for kind, numbers in found.items() if kind != "all")
    assert found["all"][0] == str(3 * len(modules.fuzz.KINDS))
    assert all(numbers[3] == "0" for numbers in found.values())


@pytest.mark.slow
def test_fuzzing_draws_the_networks_of_the_seed(modules: SimpleNamespace) -> None:
    regions = [modules.fuzz.fuzz("wide", 8, seed).regions for seed in (1, 1, 2)]
    assert regions[0] == regions[1] != regions[2]


def test_fuzzing_sees_a_wrong_result(
    modules: SimpleNamespace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = modules.fuzz.exact_partition

    def less(model: nn.Module, domain: sc.Domain) -> object:
        exact = whole(model, domain)
        return replace(exact, cells=exact.cells[1:])

    monkeypatch.setattr(modules.fuzz, "exact_partition", less)
    assert modules.fuzz.main(["--only", "wide", "--count", "2"]) == 1
    text = capsys.readouterr().out
    assert text.splitlines()[1].split()[4] == "2"
    assert "is no exact cell" in text or "the areas sum to" in text
    assert "Net(layers=" in text


def test_smooth_fuzzing_sees_bounds_that_are_exceeded(
    modules: SimpleNamespace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules.smooth_fuzz, "POINTS", 1000)
    seeds = ["--count", "1", "--seed", "1015"]
    assert modules.smooth_fuzz.main(seeds) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split()[:2] == ["depth", "networks"]
    assert rows[1].split()[:2] == ["1", "1"]
    monkeypatch.setattr(modules.smooth_fuzz, "largest_share", lambda *case: 1.25)
    assert modules.smooth_fuzz.main(seeds) == 1
    assert "off by 1.25 of the bound" in capsys.readouterr().out


@pytest.mark.slow
def test_refined_partitions_are_compared_with_whole_ones(
    modules: SimpleNamespace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = modules.refine_fuzz.fuzzed(3, 4.0, 100, math.inf)
    assert (counts["networks"], counts["wrong"]) == (1, 0)
    given = SimpleNamespace(steps=2, rounds=1, points=10, most=1e6, device="cpu")
    for name in ("2x8", "spirals64x3_random"):
        row = modules.refine.measured(name, given)
        assert (row["wrong"], row["complete"]) == (0, row["refined"])
    given.most = 0.0
    assert math.isnan(modules.refine.measured("2x8", given)["whole (s)"])
    monkeypatch.setattr(modules.refine_fuzz, "disagreement", lambda *case: "another length")
    counts = modules.refine_fuzz.fuzzed(3, 4.0, 2, math.inf)
    assert counts["wrong"] == counts["questions"] == 2
    assert not modules.refine_fuzz.fuzzed(3, 4.0, 2, 0.0)  # the time is up
    assert "another length" in capsys.readouterr().out


def test_networks_with_hidden_maxima_are_counted(
    modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert modules.written_fuzz.main(["--networks", "2"]) == 0
    monkeypatch.setattr(modules.written_fuzz, "exact_minimum", lambda *given: Fraction(-1000))
    assert modules.written_fuzz.main(["--networks", "1"]) == 1
    assert "the condition is holds, not violated" in capsys.readouterr().out


def test_pruned_networks_are_measured_beside_dense_ones(
    modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = {
        "classifier": (lambda: modules.pruned.classifier(16, 2, 3), 1.0),
        "random": (lambda: modules.pruned.random(16, 3), 1.0),
    }
    monkeypatch.setattr(modules.pruned, "PAIRS", pairs)
    assert modules.pruned.main(["--only", "classifier", "random", "--repeat", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert "95." in lines[2]
    assert "0.0%" in lines[3]


def test_narrow_networks_are_counted(
    modules: SimpleNamespace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules.narrow_smooth, "SMOOTH", {"tanh": (nn.Tanh,)})
    monkeypatch.setattr(modules.narrow_smooth, "LIMIT", 0.0)
    assert modules.narrow_smooth.main(["--networks", "1"]) == 0
    slow, times, heading, row = capsys.readouterr().out.splitlines()
    assert slow.startswith("seed 0: ")
    assert times.endswith(" needed")
    assert heading.split()[:2] == ["networks", "refused"]
    assert row.split()[:2] == ["1", "0"]


def test_the_page_on_exactness_has_every_kind(modules: SimpleNamespace) -> None:
    page = (BENCHMARKS.parent / "docs" / "exactness.md").read_text()
    for kind, (what, _) in modules.fuzz.KINDS.items():
        assert f"| `{kind}` | {what} |" in page


def test_chains_and_modules_are_the_same_networks(modules: SimpleNamespace) -> None:
    (chain, domain), (module, same) = (
        modules.calls.WORKLOADS[n]() for n in ("mlp32x3", "module32x3")
    )
    x = domain.embed(domain.corners)
    assert domain == same
    assert torch.equal(chain(x), module(x))


def test_exports_are_measured_one_by_one(
    modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("shapely", "pyarrow"):
        pytest.importorskip(name)
    clock = itertools.count()  # each look at it takes a second
    for name in ("perf_counter", "process_time"):
        monkeypatch.setattr(modules.exports, name, lambda: float(next(clock)))
    monkeypatch.setattr(modules.exports, "with_peak", lambda work, device: (work(), 3 << 20))
    workload = modules.common.mlp(20, side=2.0)
    partition, maps, *rows = modules.exports.measure("lines20", workload, 2, CPU)
    assert (partition["what"], maps["what"]) == ("partition", "maps")
    assert [row["what"] for row in rows] == [
        *("shapely", "geojson", "ply", "vtp", "vtk", "parquet", "networkx")
    ]
    assert {row["ratio"] for row in rows} == {1.0}
    assert {row["MiB"] for row in rows} == {3.0}
    assert [row["what"] for row in rows if row["MB"] is not None] == [
        *("geojson", "ply", "vtp", "vtk", "parquet")
    ]
    assert rows[-1]["estimate"] == "1 s, 1 MB"
    assert modules.exports.TABLE.line(rows[-1]).startswith("lines20 ")


@pytest.mark.slow
def test_properties_are_measured(modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    script = modules.properties
    assert len(script.slices()) == 8
    lo = torch.tensor([0.0, 0, 0, 0, 0])
    small = sc.Domain.slice((lo - 0.2, lo + 0.2), (0, 1))
    monkeypatch.setattr(script, "slices", lambda: [small, small])
    for name in script.UNSAFE:
        row = script.measure(name, 1, CPU)
        assert row["regions"] > 2
        assert 0 <= row["unsafe, %"] <= 100
        assert row["verdict"] > 0
        assert script.TABLE.line(row).startswith(name)


def test_files_of_others_are_measured(
    modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    # A folder of tests has the name of this script, which therefore is loaded from its path.
    spec = importlib.util.spec_from_file_location("of_files", BENCHMARKS / "importing.py")
    assert spec is not None
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "of_files", script)
    spec.loader.exec_module(script)
    clock = itertools.count()  # each look at it takes a second
    monkeypatch.setattr(script, "process_time", lambda: float(next(clock)))
    monkeypatch.setattr(script, "fresh_process", lambda path: 2.0)
    known = script.cases()
    assert "acasxu_1_1" not in known
    for name in ("mlp32x3", "residual64x3"):
        small = replace(known[name], domain=lambda: modules.common.square(2, 0.1))
        row = script.measure(name, small, 1, CPU)
        assert (row["import"], row["fresh process"], row["ratio"]) == (1000, 2000, 1)
        assert row["regions"] > 1
        assert script.TABLE.line(row).startswith(name)
    row = script.measure("acas_sized", known["acas_sized"], 1, CPU)
    assert "regions" not in row
    assert 0.05 < row["MB"] < 0.06


def test_smooth_networks_are_measured(
    modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A folder of tests has the name of this script, too.
    spec = importlib.util.spec_from_file_location("of_smooth", BENCHMARKS / "smooth.py")
    assert spec is not None
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "of_smooth", script)
    spec.loader.exec_module(script)
    monkeypatch.setattr(
        script, "in_turns", lambda works, *_: [works[0](), SimpleNamespace(best=1)][1:]
    )
    small = {
        "sines": (lambda: script.smooth_perceptron(lambda: script.Sine(3.0), 2, 4, 4, 2), {}),
        "refined": (lambda: script.smooth_perceptron(nn.GELU, 2, 4, 1), {"refine": "boundary"}),
    }
    for name, (model, how) in small.items():
        work = script.SmoothWorkload(model, lambda: sc.Domain.box(-1, 1), 0.05, how)
        row = script.measure(work, name, 1, CPU, points=2000)
        assert 0 < row["error"] <= row["bound"]
        assert 0 < row["bilinear"] < row["nearest"]
        assert ("moduli" in row) == (name == "sines")
        assert row.get("moduli", 1) > row["error"]
        assert script.TABLE.line(row).startswith(name)
