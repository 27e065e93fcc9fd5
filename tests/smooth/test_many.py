"""Sweeps, grids, watched trainings and captured networks with smooth functions."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.training.runs import squares_around

OPTIONS: dict[str, Any] = {"smooth": 0.02, "progress": False, "device": "cpu"}
SQUARES = [sc.Domain.around(torch.tensor(x), side=1.5) for x in ([0.2, 0.0], [-0.5, 0.4])]


def network(layer: type[nn.Module] = nn.GELU) -> nn.Sequential:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(2, 6), layer(), nn.Linear(6, 6), layer(), nn.Linear(6, 2))
    for module in model[::2]:
        module.weight.data *= 2
    model = model.double()
    with torch.no_grad():  # a boundary goes through the first square
        model[-1].bias -= model(SQUARES[0].origin[None])[0]
    return model


MODEL = network()


@pytest.fixture(scope="module")
def alone() -> list[sc.Partition]:
    return [sc.partition(MODEL, square, **OPTIONS) for square in SQUARES]


def tensors(part: sc.Partition) -> dict[str, Tensor]:
    """All arrays of a partition by name."""
    assert part.smoothing is not None
    found = {**vars(part.mesh), "values": part.values, "value_error": part._value_error}
    found |= {"bounds": part.region_bounds, "tolerance": part.smoothing.tolerance}
    found |= {f"error {name}": error for name, error in part._layer_errors.items()}
    for name, table in part.smoothing.tables.items():
        found |= {f"{name} {key}": tensor for key, tensor in vars(table).items()}
    return found


def same(a: sc.Partition, b: sc.Partition) -> bool:
    """Whether two partitions are equal bit for bit."""
    one, other = tensors(a), tensors(b)
    return (
        one.keys() == other.keys()
        and all(torch.equal(tensor, other[name]) for name, tensor in one.items())
        and (a.layers, a.unresolved, a.smoothing.layers)
        == (b.layers, b.unresolved, b.smoothing.layers)
        and a.domain == b.domain
    )


@pytest.mark.slow
def test_a_sweep_gives_what_partition_gives(alone: list[sc.Partition]) -> None:
    captured = sc.capture(MODEL, (2,), smooth=True)
    for way in (MODEL, captured):
        parts = list(sc.sweep(way, iter(SQUARES), stream=True, **OPTIONS))
        assert all(map(same, parts, alone))
    for part in parts:
        x = part.sample(5000, generator=torch.Generator().manual_seed(0))
        region, (uv, _) = part.locate(x), part.domain.project(x)
        maps = (part.weight[region] @ uv[..., None])[..., 0] + part.bias[region]
        assert bool(((MODEL(x) - maps).abs() <= part.region_bounds[region]).all())
        assert part.region_bounds.max() <= 0.02
        assert part.model is MODEL


def test_a_store_keeps_bounds_and_knows_the_accuracy(tmp_path: Path, alone: Any) -> None:
    for some in (SQUARES[:1], SQUARES, SQUARES):
        parts = sc.sweep(MODEL, some, store=tmp_path, **OPTIONS)
        assert all(map(same, parts, alone))
    assert len(list(tmp_path.glob("*.npz"))) == 2, "each domain is computed once"
    assert parts[0].validate().ok
    others: list[dict[str, Any]] = [
        {"smooth": 0.01},
        {"smooth": "2%"},
        {"smooth": sc.Smooth(0.02, refine="boundary")},
    ]
    for other in others:
        with pytest.raises(sc.FileError, match=r"of another accuracy \(smooth=, refine="):
            sc.sweep(MODEL, SQUARES, store=tmp_path, **{**OPTIONS, **other})


def test_refined_partitions_come_back_from_a_store(tmp_path: Path) -> None:
    options = {**OPTIONS, "smooth": sc.Smooth(0.02, refine="boundary", undecided=0.01)}
    (first,) = sc.sweep(MODEL, SQUARES[:1], store=tmp_path, **options)
    (again,) = sc.sweep(MODEL, SQUARES[:1], store=tmp_path, **options)
    assert same(first, sc.partition(MODEL, SQUARES[0], **options))
    assert same(again, first)
    assert again.smoothing.refined
    other = sc.Smooth(0.02, refine="boundary", undecided=0.1)
    with pytest.raises(sc.FileError, match="of another accuracy"):
        sc.sweep(MODEL, SQUARES[:1], store=tmp_path, **{**options, "smooth": other})


def test_a_grid_compares_smooth_networks_with_others(tmp_path: Path) -> None:
    models = {"gelu": MODEL, "relu": network(nn.ReLU)}
    options = {**OPTIONS, "store": tmp_path}
    for _ in range(2):
        grid = sc.grid(models, SQUARES[:1], **options)
    assert grid.statistics[-2:] == ("bound", "undecided_area")
    exact = sc.sweep(models["relu"], SQUARES[:1], progress=False)[0]
    stats = [sc.partition(MODEL, SQUARES[0], **OPTIONS).stats(), exact.stats()]
    for name in ("NR", "ARV", "boundary_length", "total_edge_length"):
        wanted = [each[name] for each in stats]
        assert grid.values(name)[:, 0].tolist() == pytest.approx(wanted, rel=1e-9)
    bound = max(stats[0]["bound"])
    assert grid.values("bound")[:, 0].tolist() == [bound, 0]
    assert grid.values("undecided_area")[:, 0].tolist() == [stats[0]["undecided_area"], 0]
    assert stats[0]["undecided_area"] > 0
    for smooth in (None, 0.01):
        with pytest.raises(sc.FileError, match="of another accuracy"):
            sc.grid(models, SQUARES[:1], **{**options, "smooth": smooth})


def test_a_smooth_network_is_watched(tmp_path: Path) -> None:
    model, options = network(nn.SiLU), {"smooth": 0.05, "device": "cpu"}
    points = {"train": torch.zeros(1, 2)}
    watch = sc.watch(model, SQUARES[0], points=points, store=tmp_path, **options)
    found = watch.step(loss=1.0)
    assert found is not None
    part = found.partition
    assert found.scalars["bound"] == float(part._bound.max()) <= 0.05
    assert found.scalars["undecided_area"] == part.class_regions().undecided
    (near,) = squares_around(SQUARES[0], points, None)[0]["train"]
    assert found.around == {"train": (len(sc.partition(model, near, progress=False, **options)),)}
    with pytest.raises(sc.FileError, match=r"a run of another accuracy \(smooth="):
        sc.watch(model, SQUARES[0], points=points, store=tmp_path, smooth=0.1)


def test_a_captured_network_may_have_smooth_functions() -> None:
    captured = sc.capture(MODEL, (2,), smooth=True)
    x = torch.rand(9, 2, dtype=torch.float64)
    for each in (captured, captured.update(), pickle.loads(pickle.dumps(captured)).update()):
        assert each.layers == ("1", "3")
        assert torch.allclose(each(x), MODEL(x), atol=1e-12)
    with pytest.raises(TypeError, match=r"partition\(captured, domain, smooth=1e-3\)"):
        sc.capture(MODEL, (2,), smooth=1e-3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_errors_name_options_that_there_are(tmp_path: Path) -> None:
    ends = torch.zeros(1, 2), torch.ones(1, 2)
    segment, segments = sc.Domain.segment(ends[0][0], ends[1][0]), sc.Domain.segments(*ends)
    calls: dict[str, list[Any]] = {
        ": smooth=1e-3 replaces it": [
            lambda: sc.sweep(MODEL, SQUARES),
            lambda: sc.grid(MODEL, SQUARES),
            lambda: sc.watch(MODEL, SQUARES[0]).step(),
            lambda: sc.partition(sc.capture(MODEL, (2,), smooth=True), SQUARES[0]),
            lambda: sc.view(MODEL, SQUARES[0]),
        ],
        r"capture\(\.\.\., smooth=True\) takes it": [lambda: sc.capture(MODEL, (2,))],
        "on domains, but not along paths": [
            lambda: sc.along(MODEL, segments),
            lambda: sc.along(MODEL, segment),
        ],
    }
    for message, some in calls.items():
        for call in some:
            with pytest.raises(sc.UnsupportedOpError, match=message):
                call()
    with pytest.raises(TypeError, match="along a path only exact networks"):
        sc.along(MODEL, segments, smooth=0.1)
    with pytest.raises(sc.UnsupportedOpError, match=": smooth=1e-3 replaces it"):
        sc.sweep(MODEL, SQUARES, refine="boundary")
    with pytest.raises(TypeError, match=r"smooth=sc.Smooth\(1e-3, refine="):
        sc.grid(MODEL, SQUARES, refine="boundary")
    with pytest.raises(sc.LimitError, match=r"domains\[0\]: .* A larger smooth= makes fewer"):
        sc.sweep(MODEL, SQUARES, max_regions=5, **OPTIONS)
    kinked = network(nn.SELU)
    how = {**OPTIONS, "smooth": sc.Smooth(0.02, refine="boundary")}
    with pytest.raises(sc.LimitError, match=r"domains\[0\]: Refinement along the boundary"):
        sc.sweep(kinked, SQUARES, max_regions=5, store=tmp_path, **how)
