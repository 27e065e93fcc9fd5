"""What partitions of real networks with smooth functions say about them."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import splinecam as sc

BOX = sc.Domain.box(-1, 1)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Linear(2, 8), nn.GELU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)
    made = nn.Sequential(*layers)
    with torch.no_grad():
        for layer in made[::2]:
            layer.weight *= 2
        made[-1].bias -= made(2 * torch.rand(1000, 2) - 1).median(0).values
    return made


@pytest.fixture(scope="module", params=[None, "boundary"])
def part(model: nn.Module, request: pytest.FixtureRequest) -> sc.Partition:
    return sc.partition(model, BOX, smooth=sc.Smooth(0.05, refine=request.param), progress=False)


def test_the_model_has_the_certain_class(part: sc.Partition, model: nn.Module) -> None:
    found = part.class_regions()
    assert abs(float(found.areas_at_least.sum()) + found.undecided - BOX.area) < 1e-12
    assert 0 < found.undecided < 0.2 * BOX.area
    x = 2 * torch.rand(20_000, 2, dtype=torch.float64) - 1
    real = copy.deepcopy(model).double()
    share = torch.bincount(real(x).argmax(1), minlength=3) / len(x)
    noise = 4 * 0.5 / len(x) ** 0.5
    assert (share * BOX.area >= found.areas_at_least - noise * BOX.area).all()
    assert (share * BOX.area <= found.areas_at_most + noise * BOX.area).all()
    # The model's own boundary lies in the band: its class changes nowhere else.
    band = part.decision_boundary().band
    inside = torch.zeros(len(part), dtype=torch.bool)
    inside[band.regions] = True
    whole = (~inside[part.locate(x)]).nonzero()[:, 0]
    settled = part.table()["class"].to_numpy()[part.locate(x[whole])]
    assert (real(x[whole]).argmax(1).numpy() == settled).all()


def test_an_output_at_the_level_may_have_either_class() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 1)).double()
    model[2].weight.data[:], model[2].bias.data[:] = 0, 0
    found = sc.partition(model, BOX, smooth=0.1, progress=False).class_regions()
    assert (found.areas_at_least <= found.areas).all()
    assert (found.areas <= found.areas_at_most).all()
    assert found.undecided == found.areas_at_most.min() == BOX.area


def test_maps_are_valid_within_their_bounds(part: sc.Partition) -> None:
    report = part.validate()
    assert report.ok
    assert any("beyond its bound" in check.name for check in report.checks)
    assert part.smoothing is not None
    tables = any("replaced network" in check.name for check in report.checks)
    assert tables != part.smoothing.refined


def test_a_file_gives_back_tables_bounds_and_model(
    part: sc.Partition, model: nn.Module, tmp_path: Path
) -> None:
    part.save(tmp_path / "part.npz")
    again = sc.load(tmp_path / "part.npz")
    assert torch.equal(again.region_bounds, part.region_bounds)
    assert again.class_regions().undecided == part.class_regions().undecided
    with pytest.raises(sc.SplineCamError, match="needs the network"):
        again.patterns()
    again.attach(model)
    some = torch.arange(0, len(part), 50)
    for name, pieces in part.patterns(some).items():
        assert torch.equal(again.patterns(some)[name], pieces)
    assert again.validate().ok


def test_another_model_is_not_attached(model: nn.Module, tmp_path: Path) -> None:
    part = sc.partition(model, BOX, smooth=0.5, progress=False)
    part.save(tmp_path / "part.npz")
    with pytest.raises(sc.SplineCamError, match="is not the one"):
        sc.load(tmp_path / "part.npz", model=nn.Sequential(*model[:3], nn.ReLU(), model[4]))
    with pytest.raises(sc.SplineCamError, match="is not the one"):
        sc.load(tmp_path / "part.npz", model=nn.Sequential(*model[:4], nn.Linear(8, 3)))


def test_a_check_is_certain_of_the_model_itself(part: sc.Partition, model: nn.Module) -> None:
    top = float(part.values[:, 0].max())

    def above(limit: float) -> sc.results.PropertyCheck:
        return part.check([([[-1.0, 0.0, 0.0]], [-limit])])

    assert above(top + 0.2).status == "holds"
    violated = above(top / 2)
    assert violated.status == "violated"
    assert violated.witness is not None
    assert float(model(violated.witness.input[None])[0, 0].detach()) > top / 2
    assert above(top + 1e-6).status == "unresolved"


@pytest.mark.slow
def test_bounds_of_two_networks_add_up_in_their_difference(model: nn.Module) -> None:
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight += 0.05 * torch.randn(8, 2, generator=torch.Generator().manual_seed(1))
        other[2] = nn.Linear(8, 8)
        other[3] = nn.ReLU()
    diff = sc.difference(model, other, BOX, smooth=0.05, progress=False)
    x = 2 * torch.rand(5_000, 2, dtype=torch.float64) - 1
    a, b = (copy.deepcopy(each).double()(x).detach() for each in (model, other))
    for part, real in ((diff.a, a), (diff.b, b), (diff.delta, a - b)):
        region = part.locate(x)
        maps = (part.weight[region] @ x[:, :, None])[:, :, 0] + part.bias[region]
        assert ((real - maps).abs() <= part.region_bounds[region]).all()
        assert part.validate().ok
    assert (diff.bound <= 0.1).all()
    largest = diff.largest(output=0)
    assert float((a - b)[:, 0].abs().max()) <= largest.value + largest.error
    apart = float((a.argmax(1) != b.argmax(1)).double().mean()) * BOX.area
    noise = 4 * 0.5 / len(x) ** 0.5 * BOX.area
    assert abs(apart - diff.disagreement.area) <= diff.undecided + noise
    assert diff.stats()["undecided_area"] == diff.undecided
    assert "of the models" in repr(diff)


def test_equal_smooth_networks_have_no_difference(model: nn.Module) -> None:
    diff = sc.difference(model, copy.deepcopy(model), BOX, smooth=0.2, progress=False)
    assert diff.largest().value == diff.largest().error == 0
    assert diff.disagreement.area == 0
    assert diff.a._bound.max() > 0
