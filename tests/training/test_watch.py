"""Watching a network while it trains: training is not disturbed, and records are right."""

from __future__ import annotations

import copy
import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.training.store import MemoryStore
from splinecam.training.watching import step_filter

BOX = sc.Domain.box(-1, 1)


def small(seed: int = 0, width: int = 6) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 2))


def noisy() -> nn.Sequential:
    """A network whose training draws random numbers and changes buffers."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(2, 6),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(6, 6),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.Linear(6, 2),
    )
    model[5].eval()  # frozen, as in fine-tuning
    return model


# -- nothing is disturbed ------------------------------------------------------------------------


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Any]:
    """All that training depends on, for comparison bit for bit."""
    found: list[Any] = [*model.state_dict().values(), torch.get_rng_state()]
    for state in optimizer.state_dict()["state"].values():
        found += list(state.values())
    found += [p.grad for p in model.parameters()]
    found += [module.training for module in model.modules()]
    found += [p.requires_grad for p in model.parameters()]
    found += [np.random.get_state()[1], random.getstate()]  # noqa: NPY002
    return found


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    return bool(a == b)


def trained(wrap: Callable[[nn.Module], nn.Module], watched: bool, device: str = "cpu") -> Any:
    """The state after some steps that draw from all kinds of random numbers."""
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    model = wrap(noisy().to(device))
    torch.manual_seed(2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    options: dict[str, Any] = {"points": {"random": 2}, "statistics": ["num_regions"]}
    watch = sc.watch(model, BOX, every=2, device=device, **options) if watched else None
    for _ in range(4):
        x = torch.randn(20, 2, device=device) + np.random.rand() + random.random()  # noqa: NPY002
        loss = model(x).square().mean()
        if watch is not None:  # between forward and backward, with the graph in flight
            watch.step(loss=loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if watch is not None:
        assert watch.run.steps == [0, 2]
        assert watch.model is model
    return everything(model, optimizer)


@pytest.fixture
def _process_group(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("wrap", [lambda m: m, nn.DataParallel], ids=["plain", "DataParallel"])
def test_training_is_the_same_bit_for_bit(wrap: Callable[[nn.Module], nn.Module]):
    alone, beside = trained(wrap, False), trained(wrap, True)
    assert len(alone) == len(beside)
    assert all(map(same, alone, beside))


def test_training_of_a_compiled_model_is_the_same():
    compiles = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiles.append(graph)
        return graph.forward

    def wrap(model: nn.Module) -> nn.Module:
        return torch.compile(model, backend=backend)  # type: ignore[return-value]

    torch._dynamo.reset()  # of what other tests compiled
    alone = trained(wrap, False)
    torch._dynamo.reset()
    shown_once = len(compiles)
    assert all(map(same, alone, trained(wrap, True)))
    assert len(compiles) == 2 * shown_once > 0  # nothing had to be compiled again
    torch._dynamo.reset()


@pytest.mark.usefixtures("_process_group")
def test_distributed_training_is_the_same():
    wrap = nn.parallel.DistributedDataParallel
    assert all(map(same, trained(wrap, False), trained(wrap, True)))


@pytest.mark.cuda
def test_training_on_a_gpu_is_the_same():
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")

    def run(watched: bool) -> list[Any]:
        torch.cuda.manual_seed(3)
        return [*trained(lambda m: m, watched, "cuda"), torch.cuda.get_rng_state()]

    alone, beside = run(False), run(True)
    assert all(map(same, alone, beside))


def test_a_module_whose_eval_does_more_is_left_alone():
    class Merging(nn.Linear):
        """As adapters do, it changes its weights when its mode changes."""

        def train(self, mode: bool = True) -> Merging:
            if mode != self.training:
                with torch.no_grad():
                    self.weight.add_(-1.0 if mode else 1.0)
            return super().train(mode)

    model = nn.Sequential(Merging(2, 5), nn.ReLU(), nn.Linear(5, 1))
    before = copy.deepcopy(model.state_dict())
    versions = [p._version for p in model.parameters()]
    sc.watch(model, BOX).step()
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert versions == [p._version for p in model.parameters()]


def test_modes_and_random_states_are_restored_after_an_error():
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2), nn.ReLU()).train()
    state = torch.get_rng_state()
    with pytest.raises(sc.UnsupportedOpError):
        sc.watch(model, BOX).step()
    assert all(module.training for module in model.modules())
    assert torch.equal(state, torch.get_rng_state())


# -- what is recorded ----------------------------------------------------------------------------


def test_the_behaviour_in_eval_mode_is_recorded():
    model = noisy()
    for _ in range(3):
        model(torch.randn(50, 2))  # running statistics
    with torch.autocast("cpu", dtype=torch.bfloat16):  # as within a step of mixed precision
        snapshot = sc.watch(model, BOX).step()
    assert snapshot is not None
    expected = sc.partition(copy.deepcopy(model).eval(), BOX, progress=False)
    part = snapshot.partition
    assert torch.equal(part.mesh.edges, expected.mesh.edges)
    assert torch.equal(part.vertices, expected.vertices)
    assert torch.equal(part.weight, expected.weight)
    part.attach(copy.deepcopy(model).eval())
    assert part.validate().ok


def test_a_recorded_partition_stays_when_training_goes_on():
    model = small().double()
    watch = sc.watch(model, BOX, every=1)
    first = watch.step()
    assert first is not None
    values = first.partition.values.clone()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2)
    watch.step()
    assert torch.equal(watch.run[0].partition.values, values)
    assert not torch.equal(watch.run[1].partition.values.amax(), values.amax())
    assert "without its model" in repr(first.partition)


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (4, [0, 4, 8]),
        (np.int64(5), [0, 5, 10]),
        ([1, 7], [1, 7]),
        (range(3), [0, 1, 2]),
        (lambda step: step % 5 == 3, [3, 8]),
        ("log", [*range(10), 11]),
    ],
)
def test_chosen_steps(every: Any, expected: list[int]):
    assert [step for step in range(12) if step_filter(every)(step)] == expected


def test_log_steps_get_rare():
    steps = [step for step in range(10_000) if step_filter("log")(step)]
    assert sum(1000 <= step < 10_000 for step in steps) == 20
    gaps = np.diff(steps)
    assert (np.diff(gaps[20:]) >= -1).all()
    assert sc.training.log_steps(7, 100) == list(range(8))
    steps = sc.training.log_steps(1000, 30)
    gaps = np.diff(steps)
    assert (steps[0], steps[-1]) == (0, 1000)
    assert gaps.tolist() == sorted(gaps)
    with pytest.raises(ValueError, match="count"):
        sc.training.log_steps(10, 1)


@pytest.mark.parametrize("every", [0, -3, True, 2.5, "weekly", None])
def test_wrong_choices_of_steps(every: Any):
    with pytest.raises((TypeError, ValueError), match="every"):
        sc.watch(small(), BOX, every=every)


def test_steps_are_counted():
    watch = sc.watch(small(), BOX, every=2, statistics=["num_regions"])
    found = [watch.step(loss=k) for k in range(5)]
    assert [each is not None for each in found] == [True, False, True, False, True]
    assert watch.step(10) is not None
    assert watch.step() is None  # 11
    last = watch.snapshot(loss=0.5)
    assert last is not None
    assert last.step == 12
    assert watch.run.steps == [0, 2, 4, 10, 12]
    assert [each.scalars.get("loss") for each in watch.run] == [0, 2, 4, None, 0.5]
    assert watch.step() is not None  # 12 once more, which takes the other's place
    assert watch.run.steps == [0, 2, 4, 10, 12]
    assert "loss" not in watch.run[-1].scalars
    assert repr(watch) == "Watch(Sequential, next step 13, Run(5 steps, 0 to 12))"
    with pytest.raises(ValueError, match="negative"):
        watch.step(-1)


def test_scalars_are_looked_at_at_chosen_steps_only():
    class Loss:
        calls = 0

        def item(self) -> float:
            self.calls += 1
            return 1.5

    model, loss, seen = noisy(), Loss(), []

    def accuracy() -> Tensor:
        seen.append((model.training, torch.is_grad_enabled()))
        return torch.tensor(0.25)

    watch = sc.watch(model, BOX, every=3)
    for _ in range(6):
        watch.step(loss=loss, accuracy=accuracy)
    assert loss.calls == 2
    assert seen == [(False, False)] * 2
    assert watch.run[0].scalars["loss"] == 1.5
    assert watch.run[0].scalars["accuracy"] == 0.25
    for wrong in (torch.ones(2), "much", None):
        with pytest.raises(TypeError, match="loss must be one number"):
            watch.snapshot(loss=wrong)


def test_statistics_become_scalars():
    watch = sc.watch(small(), BOX, statistics=["NR", "area.median", "boundary_length"])
    snapshot = watch.step(loss=torch.tensor(2.0, requires_grad=True))
    assert snapshot is not None
    stats = snapshot.partition.stats()
    assert dict(snapshot.scalars) == {
        "loss": 2.0,
        "NR": stats["NR"],
        "area.median": stats["area"]["median"],
        "boundary_length": stats["boundary_length"],
    }
    with pytest.raises(ValueError, match="NR is a statistic"):
        watch.snapshot(NR=3)
    default = sc.watch(small(), BOX).step()
    assert default is not None
    assert default.scalars["num_regions"] == len(default.partition)
    assert {"mean_area", "lipschitz_plane", "boundary_length"} <= set(default.scalars)


def test_wrong_models_and_domains():
    with pytest.raises(TypeError, match=r"nn\.Module"):
        sc.watch(lambda x: x, BOX)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Domain"):
        sc.watch(small(), (-1, 1))  # type: ignore[arg-type]


def test_an_error_at_the_first_step_is_raised_and_later_ones_are_warnings():
    model = small(width=12)
    with pytest.raises(sc.LimitError):
        sc.watch(model, BOX, max_regions=3).step()
    weights = copy.deepcopy(model.state_dict())
    nn.init.zeros_(model[0].weight)
    watch = sc.watch(model, BOX, every=1, max_regions=3)
    assert watch.step() is not None
    model.load_state_dict(weights)
    with pytest.warns(RuntimeWarning, match="Step 1 was not recorded: .*max_regions=3"):
        assert watch.step() is None
    nn.init.zeros_(model[0].weight)
    assert watch.step() is not None
    assert watch.run.steps == [0, 2]


def test_other_processes_of_distributed_training_only_count(monkeypatch: pytest.MonkeyPatch):
    watch = sc.watch(small(), BOX, every=1)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    assert watch.step() is None
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    assert watch.step() is not None
    assert watch.run.steps == [1]


def test_partitions_in_memory_have_a_limit():
    part = sc.partition(small(), BOX, progress=False)
    file = BytesIO()
    part.save(file)
    kept = MemoryStore(limit=2 * file.tell())
    for step in range(2):
        kept.keep(step, part, {"loss": 1.0}, {}, None)
    with pytest.warns(UserWarning, match="from step 2 on only scalars"):
        kept.keep(2, part, {"loss": 1.0}, {}, None)
    kept.keep(3, part, {"loss": 1.0}, {}, None)  # said once
    assert [each.source is not None for each in kept.snapshots] == [True, True, False, False]
    assert [each.scalars["loss"] for each in kept.snapshots] == [1.0] * 4
    with pytest.raises(sc.SplineCamError, match="store="):
        _ = kept.snapshots[-1].partition


def test_a_run_is_a_sequence():
    watch = sc.watch(small(), BOX, every=1, statistics=["num_regions"])
    watch.step(loss=1)
    watch.step(accuracy=0.5)
    run = watch.run
    assert isinstance(run[:1], sc.results.Run)
    assert run[-1] is list(run)[1]
    assert len(run[1:]) == 1
    table = run.table()
    assert list(table.index) == [0, 1]
    assert table["loss"][0] == 1
    assert math.isnan(table["loss"][1])
    assert repr(run[0]) == f"Snapshot(step 0: loss 1, num_regions {len(run[0].partition)})"


def test_the_table_of_a_run_without_pandas(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    watch = sc.watch(small(), BOX, statistics=[])
    watch.step(loss=1)
    assert watch.run.table() == {"step": [0], "loss": [1]}


# -- around points -------------------------------------------------------------------------------


def test_regions_are_counted_in_squares_around_points():
    model = noisy().eval()
    x = torch.rand(7, 2) * 2 - 1
    watch = sc.watch(model, BOX, points={"train": x, "random": 5}, radius=0.2)
    snapshot = watch.step()
    assert snapshot is not None
    squares = [sc.Domain.box(p - 0.2, p + 0.2) for p in x.double()]
    expected = [len(sc.partition(model, square, progress=False)) for square in squares]
    assert list(snapshot.around["train"]) == expected
    assert len(snapshot.around["random"]) == 5
    assert watch.run.side == pytest.approx(0.4)
    assert watch.run.table()["around_train"][0] == pytest.approx(np.mean(expected))


def test_random_points_lie_in_the_domain_or_between_the_given_inputs():
    from splinecam.training.runs import squares_around

    triangle = sc.Domain.polygon([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    groups, _ = squares_around(triangle, {"random": 400}, 0.1)
    centres = torch.stack([square.embed(square.center[None])[0] for square in groups["random"]])
    assert bool((centres >= 0).all() and (centres @ torch.tensor([0.5, 1.0]).double() <= 1).all())
    assert centres.mean(0).tolist() == pytest.approx([2 / 3, 1 / 3], abs=0.08)
    images = torch.rand(200, 1, 3, 3) + 5
    plane = sc.Domain.around(images[0], side=1.0)
    groups, side = squares_around(plane, {"train": images, "random": 50}, None)
    assert side == pytest.approx(plane.diameter / 10)
    assert len(groups["train"]) == 100  # evenly spaced
    first, last = groups["train"][0], groups["train"][-1]
    assert torch.equal(first.origin, images[0].double().flatten())
    assert torch.equal(last.origin, images[-1].double().flatten())
    assert not torch.equal(first.basis, last.basis)  # planes of their own
    low, high = images.amin(0).flatten(), images.amax(0).flatten()
    for square in groups["random"]:
        assert bool((low <= square.origin).all() and (square.origin <= high).all())


@pytest.mark.parametrize(
    ("points", "radius", "message"),
    [
        (torch.rand(3, 2), None, "by name"),
        ({}, None, "by name"),
        ({"train": torch.rand(3, 5)}, None, r"points\['train'\] has shape \(3, 5\)"),
        ({"train": torch.rand(0, 2)}, None, "has shape"),
        ({"random": 0}, None, "at least 1"),
        ({"random": 3}, -1.0, "radius"),
        (None, 0.1, "radius belongs to points"),
    ],
)
def test_wrong_points_are_rejected(points: Any, radius: Any, message: str):
    with pytest.raises((TypeError, ValueError), match=message):
        sc.watch(small(), BOX, points=points, radius=radius)


# -- the plot ------------------------------------------------------------------------------------


def recorded(steps: list[int], **scalars: Callable[[int], float]) -> sc.results.Run:
    """A run with regions around three points of two groups, without partitions."""
    return sc.results.Run(
        tuple(
            sc.results.Snapshot(
                step,
                {name: value(step) for name, value in scalars.items()},
                {"train": (step + 1, step + 3, step + 5), "random": (2, 2, 2)},
            )
            for step in steps
        ),
        side=0.5,
    )


def test_the_plot_shows_means_with_bands_and_the_loss():
    run = recorded([0, 10, 20], loss=lambda s: 1 / (s + 1), epoch=lambda s: s / 10)
    figure = run.plot()
    top, bottom = figure.axes
    train, random = top.lines
    assert train.get_xdata().tolist() == [0, 10, 20]
    assert train.get_ydata().tolist() == [3, 13, 23]
    assert random.get_ydata().tolist() == [2, 2, 2]
    band = top.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(23 + 1.96 * 2 / math.sqrt(3))
    assert [t.get_text() for t in top.get_legend().get_texts()] == ["train (3)", "random (3)"]
    assert "side 0.5" in top.get_ylabel()
    assert bottom.lines[0].get_ydata().tolist() == pytest.approx([1, 1 / 11, 1 / 21])
    assert bottom.get_yscale() == "log"
    assert (bottom.get_xlabel(), bottom.get_ylabel(), top.get_xscale()) == (
        "step",
        "loss",
        "linear",
    )
    assert run.plot(x="epoch").axes[0].lines[0].get_xdata().tolist() == [0, 1, 2]


def test_the_plot_of_areas_and_of_all_points():
    run = recorded([0, 10, 20])
    (ax,) = run.plot(measure="area", band="points").axes
    expected = [np.mean([0.25 / (s + k) for k in (1, 3, 5)]) for s in (0, 10, 20)]
    assert ax.lines[0].get_ydata().tolist() == pytest.approx(expected)
    low = ax.collections[0].get_paths()[0].vertices[:, 1].min()
    assert low == pytest.approx(np.percentile([0.25 / (20 + k) for k in (1, 3, 5)], 10))


def test_steps_that_get_rare_are_on_a_logarithmic_axis():
    steps = sc.training.log_steps(1000, 20)
    assert recorded(steps).plot().axes[0].get_xscale() == "symlog"
    assert recorded(steps[1:]).plot().axes[0].get_xscale() == "log"
    uneven = [*range(0, 1000, 100), 901]  # and a last one after all
    assert recorded(uneven).plot().axes[0].get_xscale() == "linear"


def test_the_plot_without_points_shows_the_regions_of_the_domain():
    watch = sc.watch(small(), BOX, every=1)
    watch.step()
    watch.step()
    (ax,) = watch.plot().axes
    assert ax.lines[0].get_ydata().tolist() == [len(each.partition) for each in watch.run]
    assert ax.get_ylabel() == "regions of the domain"


def test_what_the_plot_cannot_show():
    run = recorded([0, 1])
    with pytest.raises(ValueError, match="nothing to draw"):
        run[:0].plot()
    with pytest.raises(ValueError, match="no scalar 'epoch'"):
        run.plot(x="epoch")
    with pytest.raises(ValueError, match="measure"):
        run.plot(measure="volume")
    with pytest.raises(ValueError, match="band"):
        run.plot(band="all")
    import matplotlib.pyplot as plt

    with pytest.raises(ValueError, match="2 axes were given, but 1"):
        run.plot(axes=plt.subplots(2)[1])
    ax = plt.subplots()[1]
    assert run.plot(axes=[ax]) is ax.figure


# -- writers -------------------------------------------------------------------------------------


def watched(writer: Any) -> sc.results.Watch:
    watch = sc.watch(
        small(),
        BOX,
        every=2,
        writer=writer,
        points={"random": 2},
        statistics=["num_regions"],
    )
    for k in range(3):
        watch.step(loss=1 / (k + 1))
    return watch


@pytest.mark.slow
def test_scalars_go_to_tensorboard(tmp_path: Path):
    pytest.importorskip("tensorboard")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # within tensorboard
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(tmp_path) as writer:
            watch = watched(writer)
        events = EventAccumulator(str(tmp_path))
        events.Reload()
    names = {"loss", "num_regions", "around_random"}
    assert set(events.Tags()["scalars"]) == {f"splinecam/{name}" for name in names}
    regions = events.Scalars("splinecam/num_regions")
    assert [(each.step, each.value) for each in regions] == [
        (each.step, each.scalars["num_regions"]) for each in watch.run
    ]
    assert [each.value for each in events.Scalars("splinecam/loss")] == pytest.approx([1, 1 / 3])


class FakeRun:
    """Takes scalars as a run of Weights & Biases does: in the order of steps only."""

    def __init__(self) -> None:
        self.history: list[tuple[int | None, dict[str, Any]]] = []

    def log(
        self, data: dict[str, Any], step: int | None = None, commit: bool | None = None
    ) -> None:
        assert all(isinstance(name, str) for name in data)
        assert not self.history or step > self.history[-1][0]
        self.history.append((step, data))


def test_scalars_go_to_weights_and_biases():
    run = FakeRun()
    watch = watched(run)
    assert [step for step, _ in run.history] == [0, 2]
    for (_, data), each in zip(run.history, watch.run, strict=True):
        assert data.pop("splinecam/around_random") == np.mean(each.around["random"])
        assert data == {f"splinecam/{name}": value for name, value in each.scalars.items()}


def test_writers_must_take_scalars():
    with pytest.raises(TypeError, match=r"add_scalar.*log_metrics.*not list"):
        sc.watch(small(), BOX, writer=[])


# -- local complexity ----------------------------------------------------------------------------


def test_local_complexity_is_recorded_for_each_group_and_layer():
    class Writer:
        def __init__(self) -> None:
            self.seen: dict[str, float] = {}

        def add_scalar(self, name: str, value: float, step: int) -> None:
            self.seen[name] = value

    model, writer = small(), Writer()
    points = {"train": torch.rand(5, 2), "test": torch.rand(3, 2)}
    how: Any = {"points": points, "radius": 0.4, "every": 1, "writer": writer}
    watch = sc.watch(model, BOX, statistics=("num_regions", "local_complexity"), **how)
    before = copy.deepcopy(model.state_dict())
    for step in range(3):
        watch.step(loss=1.0 / (1 + step))
    assert all(before[key].equal(value) for key, value in model.state_dict().items())
    numbers = watch.run[-1].scalars
    for name in ("local_train", "local_test", "local_train.1", "local_test.1"):
        assert numbers[f"{name}_low"] <= numbers[name] <= numbers[f"{name}_high"]
        assert writer.seen[f"splinecam/{name}"] == numbers[name]
    expected = sc.local_complexity(model, points["train"], 0.4, precision=0.05, progress=False)
    assert numbers["local_train"] == pytest.approx(expected.mean().value, abs=0.2)
    figure = watch.plot()
    assert [ax.get_ylabel() for ax in figure.axes] == [
        "switches along a diameter",
        "switches in layer 1",
        "loss",
    ]
    with pytest.raises(ValueError, match="give points="):
        sc.watch(model, BOX, statistics="local_complexity")
    with pytest.raises(ValueError, match='"regions", "area" or "local"'):
        watch.plot(measure="none")  # type: ignore[arg-type]
