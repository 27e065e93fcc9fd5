"""The steps of the GPU's kernel, compiled as plain C and run one item after the other."""

from __future__ import annotations

import ctypes
import logging
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from kernel_cases import NETS, assert_same_mesh, assert_same_refinement, mlp
from splinecam._util.backend import using
from splinecam.arrangement import dissolve as dissolving
from splinecam.arrangement import envelope, maxima, refine
from splinecam.arrangement import refine as breakpoints
from splinecam.engine.batched import run_batch
from splinecam.engine.plan import Place, Plan
from splinecam.engine.run import Outcome, run
from splinecam.kernels import gpu, solid_gpu
from splinecam.kernels.gpu import GpuKernel, gpu_kernel_for
from splinecam.kernels.library import source_of, structures
from splinecam.kernels.solid import cell_corners, cut_solid
from splinecam.network.capture import capture
from splinecam.questions import winners
from splinecam.solid.dropping import Dropping, _open_cells
from splinecam.solid.front import Front, Target

CPU = torch.device("cpu")
COMPILER = shutil.which("cc") or shutil.which("gcc") or ""
SOURCES = ("refine.cu", "envelope.cu", "dissolve.cu", "solid.cu")
BOX = sc.Domain.box(-3, 3)

pytestmark = pytest.mark.few(2)
needs_compiler = pytest.mark.skipif(not COMPILER, reason="needs a C compiler")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> GpuKernel:
    """The kernel with steps that loop over all items."""
    folder = tmp_path_factory.mktemp("kernel")
    flags = ("-x", "c", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    libraries = {}
    for name in SOURCES:
        made = str(folder / f"{name}.so")
        subprocess.run([COMPILER, *flags, str(source_of(name)), "-o", made, "-lm"], check=True)
        libraries[name] = ctypes.CDLL(made)

    def launch(source: str, step: str, given: Any, count: int) -> None:
        getattr(libraries[source], f"all_{step}")(ctypes.byref(given), ctypes.c_int64(count))

    return GpuKernel(launch)


def plan_of(kernel: GpuKernel, model: nn.Module, shape: tuple[int, ...] = (2,)) -> Plan:
    return Plan(Place(capture(model, shape), 1 << 30, None, kernel))


def both(kernel: GpuKernel, model: nn.Module, domain: sc.Domain) -> tuple[Outcome, Outcome]:
    plan = plan_of(kernel, model, domain.input_shape)
    program = plan.first.program
    return run(program, domain, plan=plan), run(program, domain, compiled=False)


@needs_compiler
@pytest.mark.parametrize("name", NETS)
def test_the_same_cells_and_values(name: str, kernel: GpuKernel) -> None:
    fast, plain = both(kernel, NETS[name](), BOX)
    assert_same_mesh(fast.mesh, plain.mesh)
    assert float((fast.output - plain.output).abs().max()) < 1e-12


@needs_compiler
@pytest.mark.parametrize("name", ["relu", "narrow words", "leaky", "one layer of many"])
def test_the_same_refinement(name: str, kernel: GpuKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakpoints, "FEWEST", 0)
    pairs: list[tuple[Any, Any]] = []
    compiled = refine._refine_on_gpu

    def noted(kernel: Any, mesh: Any, functions: Any, layer: int, most: int | None) -> Any:
        fast = compiled(kernel, mesh, functions, layer, most)
        pairs.append((fast, refine.refine(mesh, functions, layer)))
        return fast

    monkeypatch.setattr(refine, "_refine_on_gpu", noted)
    both(kernel, NETS[name](), BOX)
    assert pairs
    for fast, plain in pairs:
        assert fast is not None  # nothing was left to tensor operations
        assert_same_refinement(fast, plain)
        for one, other in zip(fast.breakpoints, plain.breakpoints, strict=True):
            assert torch.equal(one.offsets, other.offsets)
            assert torch.equal(one.line, other.line)
            assert torch.equal(one.place, other.place)


def zero_line() -> nn.Module:
    """Two layers whose second one vanishes at vertices and along edges of the first."""
    model = mlp(2, 2, 2, 1)
    with torch.no_grad():
        for layer in (model[0], model[2]):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
    return model


def dead_unit() -> nn.Module:
    """A unit that is zero everywhere besides others that are not."""
    model = mlp(2, 6, 6, 1)
    with torch.no_grad():
        model[2].weight[3] = 0
        model[2].bias[3] = 0
    return model


@needs_compiler
@pytest.mark.parametrize("make", [zero_line, dead_unit, NETS["no bias"]])
def test_what_is_close_is_left_to_tensor_operations(make: Any, kernel: GpuKernel) -> None:
    fast, plain = both(kernel, make(), BOX)
    assert_same_mesh(fast.mesh, plain.mesh)
    assert [name for name, _ in fast.ambiguities] == [name for name, _ in plain.ambiguities]


@needs_compiler
def test_a_dead_unit_is_no_reason_for_care(
    kernel: GpuKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refine, "find_edge_crossings", None)  # so that tensor operations would fail
    plan = plan_of(kernel, dead_unit())
    assert run(plan.first.program, BOX, plan=plan).mesh.num_faces > 6


@needs_compiler
@pytest.mark.parametrize("outputs", [1, 2])
def test_two_classes_are_divided_by_one_chord(
    outputs: int, kernel: GpuKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(2)
    model = mlp(2, 16, 16, outputs)
    with torch.no_grad():
        model[-1].bias -= model(BOX.center)  # a boundary goes through the middle

    def found() -> tuple[torch.Tensor, torch.Tensor]:
        part = sc.partition(model, BOX, device="cpu", progress=False)
        boundary = part.decision_boundary()
        return boundary.ends, part.class_regions().areas

    compiled = found()
    monkeypatch.setattr(winners, "kernel_for", lambda device: None)
    monkeypatch.setattr(winners, "refine_maxima", lambda *given: pytest.fail("a chord is enough"))
    for own in (None, kernel):
        monkeypatch.setattr(winners, "gpu_kernel_for", lambda device, own=own: own)
        ends, areas = found()
        assert len(ends) > 9
        assert float((ends - compiled[0]).abs().max()) < 1e-12
        assert float((areas - compiled[1]).abs().max()) < 1e-12


@needs_compiler
def test_many_domains_at_once(kernel: GpuKernel) -> None:
    domains = [sc.Domain.around(torch.randn(6), side=3, seed=k) for k in range(5)]
    plan = plan_of(kernel, mlp(6, 16, 16, 2), (6,))
    program = plan.first.program
    plain = run_batch(program, domains, compiled=False)
    for fast, other in zip(run_batch(program, domains, plan=plan), plain, strict=True):
        assert_same_mesh(fast.mesh, other.mesh)


@needs_compiler
def test_the_limit_of_regions_is_kept(kernel: GpuKernel) -> None:
    plan = plan_of(kernel, NETS["relu"]())
    with pytest.raises(sc.LimitError, match="max_regions=100"):
        run(plan.first.program, BOX, plan=plan, max_regions=100)


@needs_compiler
@pytest.mark.parametrize("source", SOURCES)
def test_the_structure_is_as_long_as_in_the_source(source: str, tmp_path: Path) -> None:
    asked, made = tmp_path / "asked.c", str(tmp_path / "asked")
    text = source_of(source).read_text() + "\nint main(void) { return sizeof(run_t) / 8; }\n"
    asked.write_text(text)
    where = f"-I{source_of(source).parent}"
    subprocess.run([COMPILER, where, str(asked), "-o", made, "-lm"], check=True)
    found = subprocess.run([made], check=False).returncode
    struct = structures(source)["run_t"]
    assert found == len(struct._fields_) == ctypes.sizeof(struct) / 8


POOLS: dict[str, Any] = {
    "pool": lambda: nn.Sequential(*mlp(2, 24, 24), nn.Unflatten(1, (6, 4)), nn.MaxPool1d(4)),
    "pool of relus": lambda: nn.Sequential(
        *mlp(2, 24, 24), nn.ReLU(), nn.Unflatten(1, (6, 4)), nn.MaxPool1d(4), nn.Flatten()
    ),
    "one maximum of many": lambda: nn.Sequential(
        *mlp(2, 20, 60), nn.Unflatten(1, (1, 60)), nn.MaxPool1d(60), nn.Flatten()
    ),
}


@needs_compiler
@pytest.mark.parametrize("name", POOLS)
def test_the_same_winners(name: str, kernel: GpuKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    classify, seen = envelope.EnvelopeClassifier.classify, []

    def noted(classifier: Any, mesh: Any, candidates: Any) -> Any:
        found = classify(classifier, mesh, candidates)
        if classifier.gpu is not None:
            plain = replace(classifier, gpu=None)
            seen.append((found, classify(plain, mesh, candidates)))
            fast = classifier.dominated(mesh, candidates)
            assert torch.equal(fast, plain.dominated(mesh, candidates))
        return found

    monkeypatch.setattr(envelope.EnvelopeClassifier, "classify", noted)
    fast, plain = both(kernel, POOLS[name]().double(), BOX)
    assert_same_mesh(fast.mesh, plain.mesh)
    assert seen
    for one, other in seen:
        assert torch.equal(one.kind, other.kind)
        assert torch.equal(one.pair, other.pair)
        assert torch.allclose(one.side, other.side, atol=1e-12)


def voronoi(sites: torch.Tensor) -> nn.Module:
    """The largest of 2 p.x - |p|² for sites p (N, 2)."""
    first = nn.Linear(2, sites.shape[0], dtype=torch.float64)
    with torch.no_grad():
        first.weight.copy_(2 * sites)
        first.bias.copy_(-(sites**2).sum(1))
    return nn.Sequential(
        first, nn.Unflatten(1, (1, -1)), nn.MaxPool1d(sites.shape[0]), nn.Flatten()
    )


def random_sites(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    return 4 * torch.rand(count, 2, generator=generator, dtype=torch.float64) - 2


def grid_sites(side: int) -> torch.Tensor:
    axis = torch.linspace(-2, 2, side, dtype=torch.float64)
    return torch.cartesian_prod(axis, axis)


MAXIMA: dict[str, Any] = POOLS | {
    "Voronoi": lambda: voronoi(random_sites(40)),
    "several maxima": lambda: nn.Sequential(
        *mlp(2, 12, 60), nn.Unflatten(1, (3, 20)), nn.MaxPool1d(20), nn.Flatten()
    ),
}


def compared(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, plain: Any, check: Any
) -> list[str]:
    """Check what a function makes with the kernel against what it makes of ``plain`` arguments."""
    seen, made = [], getattr(module, name)

    def noted(*given: Any) -> Any:
        result = made(*given)
        if getattr(given[-1], "gpu", given[-1]) is not None:
            check(result, made(*plain(*given)))
            seen.append(name)
        return result

    monkeypatch.setattr(maxima, name, noted)
    return seen


def check_interpolated(one: Any, other: Any) -> None:
    assert torch.equal(one.p, other.p)
    assert torch.equal(one.q, other.q)
    assert torch.allclose(one.t, other.t, atol=1e-12)


def check_drawn(one: Any, other: Any) -> None:
    assert_same_mesh(one.mesh, other.mesh)
    check_interpolated(one.on_edges, other.on_edges)
    check_interpolated(one.inside, other.inside)


def check_halves(one: Any, other: Any) -> None:
    assert_same_mesh(one.mesh, other.mesh)
    check_interpolated(one.interpolated, other.interpolated)
    assert torch.allclose(one.position_error, other.position_error)
    for field in ("face", "new_face", "ends", "which"):
        assert torch.equal(getattr(one, field), getattr(other, field))


def check_dissolved(one: Any, other: Any) -> None:
    assert_same_mesh(one[0], other[0])
    assert torch.equal(one[1], other[1])


@needs_compiler
@pytest.mark.parametrize("name", MAXIMA)
def test_the_same_chosen_chords(
    name: str, kernel: GpuKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(mesh: Any, wanted: Any) -> tuple[Any, Any]:
        return mesh, replace(wanted, gpu=None)

    drawn = compared(monkeypatch, maxima, "insert_selected", plain, check_drawn)
    halved = compared(monkeypatch, maxima, "halve", plain, check_halves)
    fast, other = both(kernel, MAXIMA[name]().double(), BOX)
    assert_same_mesh(fast.mesh, other.mesh)
    assert drawn
    assert halved


@needs_compiler
@pytest.mark.parametrize("name", MAXIMA)
def test_the_same_borders_along_lines(
    name: str, kernel: GpuKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, seen = maxima._MaximaRefinement._along, []

    def noted(work: Any, *given: Any) -> Any:
        along = found(work, *given)
        if work.classifier.gpu is not None:
            plain = replace(work, classifier=replace(work.classifier, gpu=None))
            assert torch.equal(along, found(plain, *given))
            seen.append(along)
        return along

    monkeypatch.setattr(maxima._MaximaRefinement, "_along", noted)
    both(kernel, MAXIMA[name]().double(), BOX)
    assert bool(torch.cat(seen).any())


@needs_compiler
@pytest.mark.parametrize("name", MAXIMA)
def test_chosen_chords_need_no_tensor_operations(
    name: str, kernel: GpuKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maxima, "_find", None)
    monkeypatch.setattr(dissolving, "roots", None)
    plan = plan_of(kernel, MAXIMA[name]().double())
    assert run(plan.first.program, BOX, plan=plan).mesh.num_faces > 6


@needs_compiler
@pytest.mark.parametrize("name", MAXIMA)
def test_the_same_edges_are_dissolved(
    name: str, kernel: GpuKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(*given: Any) -> tuple[Any, ...]:
        return (*given[:-1], None)

    seen = compared(monkeypatch, dissolving, "dissolve", plain, check_dissolved)
    both(kernel, MAXIMA[name]().double(), BOX)
    assert seen


@needs_compiler
def test_any_edges_are_dissolved(kernel: GpuKernel) -> None:
    whole = run(capture(mlp(2, 12, 12, 1), (2,)), BOX).mesh
    inner = (whole.edge_layer >= 0).nonzero()[:, 0]
    generator = torch.Generator().manual_seed(0)
    for share in (0.0, 0.05, 0.3, 0.7, 1.0):
        chance = torch.rand(inner.shape[0], generator=generator)
        needless = inner[chance < share]
        made = kernel.dissolve(whole, needless, 4)
        assert made is not None
        check_dissolved(made, dissolving.dissolve(whole, needless, 4))


@needs_compiler
def test_maxima_in_many_domains_at_once(kernel: GpuKernel) -> None:
    model = nn.Sequential(*mlp(6, 16, 24), nn.Unflatten(1, (4, 6)), nn.MaxPool1d(6)).double()
    domains = [sc.Domain.around(torch.randn(6), side=3, seed=k) for k in range(5)]
    plan = plan_of(kernel, model, (6,))
    program = plan.first.program
    plain = run_batch(program, domains, compiled=False)
    for fast, other in zip(run_batch(program, domains, plan=plan), plain, strict=True):
        assert_same_mesh(fast.mesh, other.mesh)


@needs_compiler
def test_the_limit_of_regions_is_kept_by_maxima(kernel: GpuKernel) -> None:
    plan = plan_of(kernel, MAXIMA["Voronoi"]())
    with pytest.raises(sc.LimitError, match="max_regions=30"):
        run(plan.first.program, BOX, plan=plan, max_regions=30)


@needs_compiler
@pytest.mark.parametrize("shift", [0.0, 1e-15, 1e-12, 1e-9])
def test_maxima_that_are_nearly_degenerate(shift: float, kernel: GpuKernel) -> None:
    sites = grid_sites(6) + shift * random_sites(36)
    fast, plain = both(kernel, voronoi(sites), BOX)
    areas, others = (end.mesh.areas_and_centroids()[0].sort().values for end in (fast, plain))
    assert torch.allclose(areas, others, atol=1e-12)
    assert fast.mesh.num_edges == plain.mesh.num_edges
    assert [name for name, _ in fast.ambiguities] == [name for name, _ in plain.ambiguities]


def test_without_a_compiler_tensor_operations_do_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(device: torch.device) -> None:
        raise OSError("there is no NVRTC")

    monkeypatch.setattr(gpu, "launcher", fails)
    gpu_kernel_for.cache_clear()
    assert gpu_kernel_for(CPU) is None
    with caplog.at_level(logging.INFO, logger="splinecam"):
        assert gpu_kernel_for(torch.device("cuda")) is None
    gpu_kernel_for.cache_clear()
    assert "there is no NVRTC" in caplog.text


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NETS)
def test_cuda_steps_give_the_same_cells(name: str) -> None:
    program = capture(NETS[name](), (2,), device="cuda")
    assert gpu_kernel_for(program.device) is not None
    fast, plain = run(program, BOX), run(program, BOX, compiled=False)
    assert_same_mesh(fast.mesh, plain.mesh)
    assert float((fast.output - plain.output).abs().max()) < 1e-12


def degenerate() -> nn.Module:
    """A network of three inputs without biases, with duplicate and dead units."""
    model = mlp(3, 12, 12, 1)
    with torch.no_grad():
        model[0].bias.zero_()
        model[0].weight.copy_(model[0].weight.sign())
        model[2].weight[5] = 0
        model[2].bias[5] = 0
    return model


SOLIDS: dict[str, Any] = {
    "relu": lambda: mlp(3, 16, 16, 1),
    "one layer of many": lambda: mlp(3, 70, 1),
    "degenerate": degenerate,
    "pool": lambda: nn.Sequential(
        *mlp(3, 12, 12), nn.Unflatten(1, (4, 3)), nn.MaxPool1d(3), nn.Flatten()
    ),
}


@needs_compiler
@pytest.mark.parametrize("name", SOLIDS)
def test_the_same_cells_of_a_solid(
    name: str, kernel: GpuKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, box = SOLIDS[name](), sc.Domain.cube(-1, 1)
    plain = sc.partition(model, box)
    cut, sizes = solid_gpu.cut_solid, []

    def compared(gpu: GpuKernel, *given: Any) -> Any:
        fast = cut(gpu, *given, few=4)
        solid, *functions, layer = given
        z, *others = (x[..., : fast.functions] for x in functions)
        other = cut_solid(solid, z, *others, layer)
        assert all(map(torch.equal, fast.solid, other.solid))  # bit by bit
        for one, two in zip(fast[1:5], other[1:5], strict=True):
            assert torch.equal(one, two)
        corners = solid_gpu.cell_corners(gpu, fast.solid)
        assert all(map(torch.equal, corners, cell_corners(fast.solid, 1 << 20)))
        sizes.append(fast.functions)
        return fast

    monkeypatch.setattr(solid_gpu, "gpu_kernel_for", lambda device: kernel)
    monkeypatch.setattr(solid_gpu, "cut_solid", compared)
    monkeypatch.setitem(solid_gpu._NEEDED, "cell", 16)  # so that memory is short at first
    fast = sc.partition(model, box)
    assert len(sizes) > len(capture(model, (3,)).layers)  # not all functions of a layer at once
    assert len(fast) == len(plain)
    assert torch.allclose(fast.volumes.sort().values, plain.volumes.sort().values, atol=1e-12)


@needs_compiler
def test_the_same_surface(kernel: GpuKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    model, box = mlp(3, 16, 16, 1), sc.Domain.cube(-1, 1)
    with torch.no_grad():
        level = float(model(torch.full((1, 3), 0.3).double()))
    plain = sc.surface(model, box, level=level)
    monkeypatch.setattr(solid_gpu, "gpu_kernel_for", lambda device: kernel)
    monkeypatch.setattr("splinecam.solid.dropping.kernel_for", lambda device: None)
    fast = sc.surface(model, box, level=level)
    fast.validate(segments=100)
    assert len(fast) == len(plain)
    assert fast.area == pytest.approx(plain.area, rel=1e-12)
    assert fast.report()["dropped"] > 0


@needs_compiler
@pytest.mark.parametrize(
    "box", [sc.Domain.cube(-1, 1), sc.Domain.box3((1e6, -1, 0), (1e6 + 1, 1, 1e-6))]
)
def test_the_same_cells_are_left_out(box: sc.Domain, kernel: GpuKernel) -> None:
    model = mlp(3, 16, 33, 16, 2)
    program, target = capture(model, (3,)), Target(torch.tensor([1.0, -1.0]).double(), 0.02)
    dropping = Dropping.of(program, target)
    assert dropping.chain is not None
    front = Front.of(program, box.centred, target)
    while front.layer is not None:
        every = torch.ones(front.complex.num_cells, dtype=torch.bool)
        plain = dropping._reached(front, every, *front.complex.cell_corners(), 0.0)
        with using(numbers=1 << 14):  # several blocks
            fast = _open_cells(kernel, dropping.chain, front, 0.0, None)
            some = torch.arange(0, len(fast), 3)
            assert torch.equal(_open_cells(kernel, dropping.chain, front, 0.0, some), fast[some])
        # Sums in another order round otherwise.
        assert int((plain ^ fast).sum()) <= 1 + len(plain) // 100
        assert len(plain) < 100 or not bool(plain.all())
        front = front.carried()
