"""Networks along segments: breakpoints against rational arithmetic, and against partitions."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

import splinecam as sc
from splinecam._util.backend import using
from splinecam.engine.along_segments import run_segments
from splinecam.kernels.kernel import Kernel, available
from splinecam.network.capture import capture
from splinecam.testing import Abs, Residual
from splinecam.testing.oracle.cells import exact_pieces
from strategies import ImageNet, Net, dense, examples, image_nets, maxima_nets, mlp, nets

CLOSE = 1e-11  # of positions from 0 to 1 that may count as one


def along(model: nn.Module, *points: object, **options: object) -> sc.results.PathPartition:
    path = sc.Domain.path(torch.stack([torch.as_tensor(x, dtype=torch.float64) for x in points]))
    return sc.along(model, path, device="cpu", progress=False, **options)


def assert_exact(model: nn.Module, a: Tensor, b: Tensor) -> None:
    """The breakpoints, outputs and units are those that rational arithmetic finds."""
    part = along(model, a, b)
    exact = exact_pieces(model, a, b)
    ends = torch.tensor([float(piece.end) for piece in exact], dtype=torch.float64)
    wanted = torch.cat([ends.new_zeros(1), ends])
    off = (part.t[:, None] - wanted).abs()
    assert float(off.amin(0).max()) < CLOSE, "a breakpoint is missing"
    assert float(off.amin(1).max()) < CLOSE, "a breakpoint was invented"
    gaps = wanted.diff()
    if float(gaps.min()) > 4 * CLOSE and not part.unresolved:
        assert part.t.shape == wanted.shape
        # A unit that is zero on a whole piece has another number there than in the oracle.
        assert torch.unique(part.switches.point).tolist() == list(range(1, len(part)))
        for t, value in zip(part.t, part.values, strict=True):
            piece = next(p for p in exact if float(p.end) >= float(t) - CLOSE)
            pairs = zip(piece.slope, piece.intercept, strict=True)
            said = [float(m * Fraction(float(t)) + c) for m, c in pairs]
            size = 1 + float(part.values.abs().max())
            assert torch.allclose(value, value.new_tensor(said), rtol=0, atol=1e-9 * size)
    assert bool((part.t.diff() > 0).all())
    assert part.validate().ok or part.unresolved


POINTS = st.tuples(*[st.integers(-24, 24)] * 4).filter(lambda x: x[:2] != x[2:])


@examples(30)
@given(nets(), POINTS)
def test_breakpoints_are_exact(net: Net, ends: tuple[int, ...]) -> None:
    a, b = torch.tensor(ends, dtype=torch.float64).view(2, 2) / 8
    assert_exact(net.module(), a, b)


@examples(20)
@given(maxima_nets(), POINTS)
def test_maxima_and_sorted_groups_are_exact(net: Net, ends: tuple[int, ...]) -> None:
    a, b = torch.tensor(ends, dtype=torch.float64).view(2, 2) / 8
    assert_exact(net.module(), a, b)


@examples(8)
@given(image_nets(), POINTS)
def test_convolutions_and_max_pooling_are_exact(net: ImageNet, ends: tuple[int, ...]) -> None:
    assume(net.side + net.padding > 3)  # or there is nothing left to pool
    a, b = torch.tensor(ends, dtype=torch.float64).view(2, 2) / 8
    assert_exact(net.module(), a, b)


@pytest.mark.parametrize("seed", range(4))
def test_partitions_have_the_same_breakpoints(seed: int) -> None:
    """A segment inside a partition changes its region where it has a breakpoint."""
    model = mlp(2, 24, 24, 3, seed=seed)
    part = sc.partition(model, sc.Domain.box(-2, 2), device="cpu", progress=False)
    a, b = torch.rand(2, 2, dtype=torch.float64) * 4 - 2
    line = along(model, a, b)
    middle = line.inputs((line.t[1:] + line.t[:-1]) / 2)
    regions = part.locate(middle)
    assert bool((regions[1:] != regions[:-1]).all())
    assert torch.unique(regions).shape == regions.shape  # as regions are convex
    inner = line.inputs(torch.lerp(line.t[:-1], line.t[1:], 0.1))
    assert torch.equal(part.locate(inner), regions)


def test_the_units_that_switch() -> None:
    model = mlp(3, 12, 12, 2)
    a, b = torch.randn(2, 3, dtype=torch.float64) * 3
    part, exact = along(model, a, b), exact_pieces(model, a, b)
    assert len(part) == len(exact) > 8
    layers = ((0, 12), (12, 24))
    for place, (before, after) in enumerate(itertools.pairwise(exact), start=1):
        wanted = [
            (part.layers[k], unit - first)
            for k, (first, last) in enumerate(layers)
            for unit in range(first, last)
            if before.pattern[unit] != after.pattern[unit]
        ]
        assert part.switches.at(place) == wanted


@pytest.mark.few(2)
@pytest.mark.parametrize("digits", [7, 10, 12, 13, 14, 15])
def test_lines_that_nearly_meet_in_a_point(digits: int) -> None:
    """Breakpoints about as close together as rounding: none is lost, none is out of place."""
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(7, 2, dtype=torch.float64, generator=generator)
        near = 10.0**-digits * torch.randn(7, dtype=torch.float64, generator=generator)
        a, b = torch.randn(2, 2, dtype=torch.float64, generator=generator)
        middle = torch.lerp(a, b, 0.375)
        last = torch.randn(3, 7, dtype=torch.float64, generator=generator)
        layers = dense(weight, near - weight @ middle), nn.ReLU(), dense(last), nn.ReLU()
        model = nn.Sequential(*layers).eval()
        assert_exact(model, a, b)
        part = along(model, a, b)
        total = part.integrated_gradients(output=0).sum()
        change = part.values[-1, 0] - part.values[0, 0]
        assert abs(float(total - change)) <= 1e-12 * max(1.0, float(part.total_variation(0)))


def test_a_segment_inside_a_kink() -> None:
    """The first unit is zero all along; only the second one switches."""
    weight = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    model = nn.Sequential(nn.Linear(2, 2, dtype=torch.float64), nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_(weight)
        model[0].bias.zero_()
    part = along(model, [-1.0, 0.0], [3.0, 0.0])
    assert part.t.tolist() == [0.0, 0.25, 1.0]
    assert part.switches.at(1) == [("1", 1)]
    assert part.values[:, 0].tolist() == [0.0, 0.0, 0.0]


def test_units_that_switch_together_are_all_named() -> None:
    part = along(nn.Sequential(nn.Identity(), nn.ReLU()), [-1.0, -2.0, 1.0], [1.0, 2.0, -1.0])
    assert part.t.tolist() == [0.0, 0.5, 1.0]
    assert part.switches.at(1) == [("1", 0), ("1", 1), ("1", 2)]
    assert part.breakpoints.tolist() == [0.5]


def test_no_breakpoint_at_the_ends_of_a_segment() -> None:
    part = along(nn.ReLU(), [0.0, 1.0], [1.0, 0.0])
    assert part.t.tolist() == [0.0, 1.0]
    assert len(part.switches) == 0


def test_a_path_has_corners_without_breakpoints() -> None:
    part = along(nn.ReLU(), [1.0, 1.0], [3.0, 1.0], [3.0, -1.0])
    assert part.t.tolist() == [0.0, 0.5, 0.75, 1.0]
    assert part.breakpoints.tolist() == [0.75]
    assert len(part) == 3


def test_a_unit_that_switches_at_a_corner_of_the_path() -> None:
    part = along(nn.ReLU(), [1.0, 1.0], [0.0, 1.0], [-1.0, 2.0])
    assert part.breakpoints.shape == (1,)
    assert part.switches.at(1) == [("relu", 0)]


MODELS = {
    "leaky": lambda: nn.Sequential(nn.Linear(6, 9), nn.LeakyReLU(0.2), nn.Linear(9, 2)),
    "abs": lambda: nn.Sequential(nn.Linear(6, 9), Abs(), nn.Linear(9, 2)),
    "norm": lambda: nn.Sequential(
        nn.Linear(6, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 4), nn.Hardtanh()
    ),
    "pool": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2),
        nn.Flatten(), nn.Linear(9, 3),
    ),
    "softmax": lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3), nn.Softmax(1)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_pieces_agree_with_the_model(name: str) -> None:
    model = MODELS[name]().double().eval()
    part = along(model, *torch.randn(4, 6, dtype=torch.float64) * 2)
    report = part.validate()
    assert report.ok
    assert len(part) > 5
    assert report.sampled == len(part)


@pytest.mark.parametrize("name", MODELS)
def test_integrated_gradients_are_complete(name: str) -> None:
    model = MODELS[name]().double().eval()
    part = along(model, *torch.randn(3, 6, dtype=torch.float64) * 2)
    for k in range(part.values.shape[1]):
        found = part.integrated_gradients(output=k)
        change = part.values[-1, k] - part.values[0, k]
        size = float(part.total_variation(output=k))
        assert found.shape == (6,)
        assert abs(float(found.sum() - change)) <= 1e-12 * max(1.0, size)


def test_gradients_of_pieces_give_the_slopes() -> None:
    model = mlp(3, 20, 20, 2)
    part = along(model, [-1.0, 2.0, 0.5], [1.0, -1.0, 0.0])
    way = part.path.points[1] - part.path.points[0]
    slope = part.gradients(output=1) @ way / part.path.length
    assert torch.allclose(slope, part.slopes[:, 1], rtol=1e-9, atol=1e-9)
    whole = part.gradients(output=1) * (part.lengths / part.path.length)[:, None] * way
    assert torch.allclose(whole.sum(0), part.integrated_gradients(output=1), atol=1e-12)


def test_small_tables_give_the_same_pieces() -> None:
    """Tables that are too large are cut in two."""
    model = mlp(4, 60, 60, 2)
    ends = torch.randn(2, 4, dtype=torch.float64) * 3
    whole = along(model, *ends)
    with using(segment_numbers=100):
        parts = along(model, *ends)
    assert len(whole) > 40
    assert torch.allclose(whole.t, parts.t, rtol=0, atol=1e-13)
    assert torch.allclose(whole.values, parts.values, rtol=0, atol=1e-12)
    small = along(model, *ends, memory=200_000)
    assert torch.allclose(whole.t, small.t, rtol=0, atol=1e-13)


def test_the_first_change_of_decision() -> None:
    model = mlp(2, 16, 16, 4, seed=3)
    part = along(model, [-3.0, 1.0], [3.0, -2.0])
    found = part.decisions()
    t = torch.linspace(0, 1, 4001, dtype=torch.float64)
    sampled = model(part.inputs(t)).argmax(1)
    place = torch.searchsorted(found.begin, t, right=True) - 1
    assert torch.equal(found.label[place], sampled)
    change = part.first_change()
    assert change is not None
    first = int((sampled != sampled[0]).int().argmax())
    assert t[first - 1] <= change.t <= t[first]
    assert change.distance == pytest.approx(change.t * part.path.length)
    with torch.no_grad():
        top = model(change.input[None])[0].topk(2).values
    assert float(top[0] - top[1]) < 1e-12


def test_outputs_that_are_equal_on_a_piece_are_of_the_first_class() -> None:
    """On a piece all units are off, and both outputs are zero, but for rounding at its ends."""
    generator = torch.Generator().manual_seed(68)
    weights = [torch.randn(2, 2, dtype=torch.float64, generator=generator) for _ in range(3)]
    a, b = torch.randn(2, 2, dtype=torch.float64, generator=generator)
    first, second, last = (dense(weight) for weight in weights)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)
    part = along(model, a, b)
    found, middle = part.decisions(), (part.t[1:] + part.t[:-1]) / 2
    label = found.label[torch.searchsorted(found.begin, middle, right=True) - 1]
    with torch.no_grad():
        outputs = model(part.inputs(middle))
    tied = outputs[:, 0] == outputs[:, 1]
    assert tied.tolist() == [False, True, False]
    assert label.tolist() == outputs.argmax(1).tolist() == [1, 0, 1]
    plane = sc.partition(model, sc.Domain.box(-3, 3), device="cpu", progress=False)
    cells, (region,) = plane.class_regions(), plane.locate(part.inputs(middle[1:2]))
    assert set(cells.cell_class[cells.cell_region == region].tolist()) == {0}
    # A far segment of the same batch does not make more outputs equal.
    ends = torch.stack([b, 1e15 * b])
    parts = sc.along(model, sc.Domain.segments(a, ends), device="cpu", progress=False)
    together = parts.decisions()
    mine = together.segment == 0
    assert torch.equal(together.label[mine], found.label)
    assert torch.allclose(together.begin[mine], found.begin, rtol=0, atol=1e-15)


def test_one_output_has_two_classes() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Identity()).double()
    with torch.no_grad():
        model[0].weight.fill_(2.0)
    part = along(model, [-1.0], [3.0], names=["low", "high"])
    change = part.first_change(level=2.0)
    assert change is not None
    assert (change.t, change.before, change.after) == (0.5, "low", "high")
    assert part.first_change(level=9.0) is None


def test_wrong_segments_are_refused() -> None:
    with pytest.raises(sc.DomainError, match="points 0 and the next one are equal"):
        sc.Domain.segment([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(sc.DomainError, match="differ in shape"):
        sc.Domain.segment([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(sc.DomainError, match="finite"):
        sc.Domain.path([[0.0, 0.0], [float("nan"), 0.0]])
    with pytest.raises(sc.DomainError, match="at least two inputs"):
        sc.Domain.path([[0.0, 0.0]])
    with pytest.raises(TypeError, match=r"sc\.along"):
        sc.partition(nn.ReLU(), sc.Domain.segments([[0.0]], [[1.0]]))
    with pytest.raises(ValueError, match="which of the 2 outputs"):
        along(nn.ReLU(), [0.0, 1.0], [1.0, 0.0]).integrated_gradients()
    with pytest.raises(sc.LimitError, match="max_regions"):
        along(mlp(2, 50, 1), [-5.0, 0.0], [5.0, 0.0], max_regions=3)


def batch(count: int, dim: int, seed: int = 0) -> sc.results.SegmentBatch:
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randn(2, count, dim, dtype=torch.float64, generator=generator)
    return sc.Domain.segments(*ends)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", MODELS)
def test_many_segments_are_as_each_alone(name: str) -> None:
    model = MODELS[name]().double().eval()
    segments = batch(17, 6)
    parts = sc.along(model, segments, device="cpu", progress=False)
    assert (len(parts), parts.unresolved) == (17, 0)
    changes = parts.first_changes()
    for i, part in enumerate(parts):
        alone = sc.along(model, segments[i], device="cpu", progress=False)
        assert torch.allclose(part.t, alone.t, rtol=0, atol=1e-12)
        assert torch.allclose(part.values, alone.values, rtol=0, atol=1e-12)
        assert int(parts.counts[i]) == len(alone)
        varied = parts.total_variation()[i]
        assert torch.allclose(varied, alone.total_variation(), atol=1e-12)
        found = parts.integrated_gradients(output=1)[i]
        assert torch.allclose(found, alone.integrated_gradients(output=1), atol=1e-12)
        change = alone.first_change()
        if change is None:
            assert changes.t[i] == torch.inf
            assert changes.before[i] == changes.after[i]
        else:
            assert float(changes.t[i]) == pytest.approx(change.t, abs=1e-12)
            assert float(changes.distance[i]) == pytest.approx(change.distance, abs=1e-11)
            assert (changes.before[i], changes.after[i]) == (change.before, change.after)


FAR = {
    "relu": lambda: mlp(6, 24, 24, 2),
    **{name: MODELS[name] for name in ("leaky", "norm", "pool")},
    "maxima": lambda: nn.Sequential(
        nn.Linear(6, 24), nn.Unflatten(1, (1, 24)), nn.MaxPool1d(3), nn.Flatten(), nn.Linear(8, 2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", FAR)
def test_a_far_segment_changes_no_other(name: str, compiled: bool) -> None:
    """Rounding errors belong to segments, not to batches: of length 1e-9 to 1e100, anywhere."""
    model, segments = FAR[name]().double().eval(), batch(24, 6)
    a, b = segments.starts, segments.ends.clone()
    far = torch.tensor([1e-9, 1e9, 1e12, 1e20, 1e100], dtype=torch.float64)
    a[:5, 0] += torch.tensor([1e6, 0.0, 0.0, 1e6, 0.0], dtype=torch.float64)
    b[:5] = a[:5] + far[:, None] * (b[:5] - a[:5]).sign()
    program = capture(model, (6,))
    with torch.no_grad():
        together = run_segments(program, a, b, compiled=compiled)
        for i in range(24):
            alone = run_segments(program, a[i : i + 1], b[i : i + 1], compiled=compiled)
            mine = slice(*together.offsets[i : i + 2].tolist())
            assert together.t[mine].shape == alone.t.shape, (i, alone.t.shape)
            size = 1 + float(alone.values.abs().max())
            assert torch.allclose(together.t[mine], alone.t, rtol=0, atol=1e-12)
            assert torch.allclose(together.values[mine], alone.values, rtol=0, atol=1e-12 * size)


def test_integrated_gradients_of_every_batch_are_complete() -> None:
    model, segments = mlp(6, 24, 24, 2), batch(24, 6)
    a, b = segments.starts, segments.ends.clone()
    b[3] = a[3] + 1e12 * b[3]
    parts = sc.along(model, sc.Domain.segments(a, b), device="cpu", progress=False)
    found = parts.integrated_gradients(output=0).sum(1)
    change = parts.values[parts.offsets[1:] - 1] - parts.values[parts.offsets[:-1]]
    size = parts.total_variation(output=0)
    assert bool(((found - change[:, 0]).abs() <= 1e-12 * size).all())


def test_a_lost_piece_is_an_error_of_integrated_gradients() -> None:
    model, segments = mlp(6, 24, 24, 2), batch(3, 6)
    parts = sc.along(model, segments, device="cpu", progress=False)
    kept = torch.ones_like(parts.t, dtype=torch.bool)
    kept[int(parts.offsets[1]) + 4] = False
    offsets = parts.offsets - torch.tensor([0, 0, 1, 1])
    breaks = parts.pieces.breaks
    breaks = replace(breaks, offsets=offsets, t=breaks.t[kept], values=breaks.values[kept])
    damaged = sc.results.SegmentPartitions(segments, replace(parts.pieces, breaks=breaks))
    with pytest.raises(sc.ValidationError, match="segment 1"):
        damaged.integrated_gradients(output=0)
    with pytest.raises(sc.ValidationError, match="segment 0"):
        damaged[1].integrated_gradients(output=0)


def test_a_stream_of_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splinecam.jobs.partitioning._SEGMENTS", 4)
    model, segments = mlp(3, 20, 20, 2), batch(10, 3)
    whole = sc.along(model, segments, device="cpu", progress=False)
    parts = list(sc.along(model, segments, stream=True, device="cpu", progress=False))
    assert [len(part) for part in parts] == [4, 4, 2]
    assert torch.allclose(torch.cat([part.t for part in parts]), whole.t, rtol=0, atol=1e-12)
    with using(segment_numbers=100):
        small = sc.along(model, segments, device="cpu", progress=False)
    assert torch.equal(small.offsets, whole.offsets)
    assert torch.allclose(small.t, whole.t, rtol=0, atol=1e-12)


def test_wrong_batches_are_refused() -> None:
    with pytest.raises(sc.DomainError, match="Segment 1 has no length"):
        sc.Domain.segments([[0.0, 1.0], [2.0, 2.0]], [[1.0, 1.0], [2.0, 2.0]])
    with pytest.raises(sc.DomainError, match="two batches"):
        sc.Domain.segments(torch.zeros(3, 2), torch.ones(2, 2))
    with pytest.raises(TypeError, match=r"sc\.along"):
        sc.sweep(nn.ReLU(), sc.Domain.segment([0.0, 0.0], [1.0, 1.0]))


@pytest.mark.cuda
def test_a_gpu_finds_the_same_pieces() -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    for name, make in MODELS.items():
        model, segments = make().double().eval(), batch(50, 6)
        cpu = sc.along(model, segments, device="cpu", progress=False)
        gpu = sc.along(model, segments, device="cuda", progress=False)
        assert torch.equal(gpu.offsets.cpu(), cpu.offsets), name
        assert torch.allclose(gpu.t.cpu(), cpu.t, rtol=0, atol=1e-11), name
        assert torch.allclose(gpu.values.cpu(), cpu.values, rtol=0, atol=1e-11), name


KERNEL = {
    **MODELS,
    "relu": lambda: mlp(6, 20, 70, 20, 3),
    "residual": lambda: nn.Sequential(
        nn.Linear(6, 9), Residual(nn.Sequential(nn.Linear(9, 9), nn.ReLU())), nn.Linear(9, 2)
    ),
    "conv": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Conv1d(4, 2, 3), nn.LeakyReLU(),
        nn.Flatten(), nn.Linear(4, 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNEL)
def test_the_compiled_kernel_finds_the_same_points(name: str) -> None:
    program = capture(KERNEL[name]().double().eval(), (6,))
    segments = batch(40, 6)
    with torch.no_grad():
        found = [
            run_segments(program, segments.starts, segments.ends, compiled=compiled)
            for compiled in (True, False)
        ]
    assert torch.equal(found[0].offsets, found[1].offsets)
    assert torch.allclose(found[0].t, found[1].t, rtol=0, atol=1e-13)
    assert torch.allclose(found[0].values, found[1].values, rtol=0, atol=1e-12)


@pytest.mark.skipif(not available(), reason="the compiled kernel is not there")
def test_malformed_points_are_an_error_and_not_a_crash() -> None:
    kernel, table = Kernel(1), torch.ones(2, 3, dtype=torch.float64)
    s = torch.tensor([0.0, 0.5], dtype=torch.float64)
    for before in ([0, 1], [-1, 0], [7, 0]):
        with pytest.raises(ValueError, match="do not fit together"):
            kernel.rows_between(table, torch.tensor(before), s, rectified=False)
    made = kernel.rows_between(table, torch.tensor([1, 0]), s, rectified=True)
    assert torch.equal(made, table)
