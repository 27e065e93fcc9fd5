"""Partitions of networks with smooth functions keep what their bounds promise."""

import re
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from high_precision import SMOOTH
from splinecam.network.capture import capture
from splinecam.smooth.grid import SmoothCells
from splinecam.smooth.smoothing import smoothed
from splinecam.smooth.tables import survey, tolerance_of

BOX = sc.Domain.box(-1, 1)
LAYERS = [nn.GELU(), nn.SiLU(), nn.Tanh(), nn.Softplus(), nn.ELU(alpha=2.0), nn.Hardswish()]


def network(layer: nn.Module, *widths: int, seed: int = 0, scale: float = 1.0) -> nn.Module:
    torch.manual_seed(seed)
    steps: list[nn.Module] = []
    for a, b in pairwise(widths):
        linear = nn.Linear(a, b)
        linear.weight.data *= scale
        steps += [linear, layer]
    return nn.Sequential(*steps[:-1]).double()


def excess(part: sc.Partition, model: nn.Module, count: int = 20_000) -> float:
    """The largest share of its bound by which the model is off a map, at random points."""
    x = part.sample(count, generator=torch.Generator().manual_seed(0))
    region = part.locate(x)
    uv, _ = part.domain.project(x.double())
    maps = (part.weight[region] @ uv[..., None])[..., 0] + part.bias[region]
    off = (model(x).detach() - maps).abs()
    return float((off / part.region_bounds[region]).max())


@pytest.mark.few(4)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("widths", [(2, 12, 1), (2, 10, 10, 3), (2, 6, 6, 6, 6, 2)], ids=str)
def test_models_stay_within_tight_bounds(layer, widths):
    if len(widths) > 3 and isinstance(layer, nn.ELU | nn.Hardswish):
        widths = (2, 4, 4, widths[-1])  # bounds of layers with kinks take longer
    model = network(layer, *widths, scale=2.0)
    part = sc.partition(model, BOX, smooth=3e-2, progress=False)
    assert part._bound.max() <= 3e-2
    assert part.smoothing is not None
    assert 0.3 < excess(part, model) <= 1
    assert part.region_bounds.shape == (len(part), widths[-1])


@pytest.mark.slow
def test_twice_the_pieces_give_a_quarter_of_the_error():
    model = network(nn.GELU(), 2, 8, 1, scale=2.0)
    pieces = [
        sc.partition(model, BOX, smooth=error, progress=False).smoothing.layers[0].pieces
        for error in (4e-3, 1e-3)
    ]
    assert 1.6 < pieces[1] / pieces[0] < 2.5


def test_layers_with_and_without_kinks_mix():
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(2, 4), nn.GELU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4),
        nn.Unflatten(1, (1, 4)), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(2, 2),
    ).double()  # fmt: skip
    part = sc.partition(model, BOX, smooth=1e-2, progress=False)
    assert excess(part, model) <= 1
    assert part._bound.max() <= 1e-2


def test_convolutions_normalisation_and_skips():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
            self.head = nn.Linear(64, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head((nn.functional.silu(self.norm(self.conv(x))) + x).flatten(1))

    torch.manual_seed(2)
    model = Block().double().eval()
    x = torch.randn(3, 1, 4, 4, dtype=torch.float64)
    part = sc.partition(model, sc.Domain.through(*x), smooth="2%", progress=False)
    extent = part.values.amax(0) - part.values.amin(0)
    assert bool((part._bound <= 0.021 * extent).all())
    assert excess(part, model) <= 1


class Mixed(nn.Module):
    """GELU before ReLU or max-pooling."""

    def __init__(self, pooled: bool) -> None:
        super().__init__()
        self.pooled = pooled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = nn.functional.gelu(x)
        if not self.pooled:
            return torch.relu(z + 0.1)
        return nn.functional.max_pool1d(z, 2, 1, padding=1)[:, 1:]


@pytest.mark.slow
def test_refinement_decides_the_class_with_few_regions():
    model = network(nn.Tanh(), 2, 16, 16, 1, scale=2.0)
    whole = sc.partition(model, BOX, smooth=1e-3, progress=False)
    part = sc.partition(model, BOX, smooth=sc.Smooth(1e-3, refine="boundary"), progress=False)
    assert len(part) < len(whole) / 10
    assert_decided(part, model)


def assert_decided(part: sc.Partition, model: nn.Module) -> None:
    """Raise unless the class is certain, and right, on all of the domain but a thousandth."""
    assert part.class_regions().undecided <= 1e-3 * part.domain.area
    assert excess(part, model) <= 1
    x = part.sample(20_000, generator=torch.Generator().manual_seed(1))
    region = part.locate(x)
    said = (part.weight[region, 0] * x).sum(1) + part.bias[region, 0]
    sure = said.abs() > part.region_bounds[region, 0]
    assert float(sure.double().mean()) > 1 - 2e-3
    assert bool(((model(x)[:, 0] > 0) == (said > 0))[sure].all())


@pytest.mark.few(1)
@pytest.mark.parametrize("layer", [nn.SELU(), nn.Hardswish(), Mixed(False), Mixed(True)], ids=str)
def test_refinement_with_kinks(layer):
    model = network(layer, 2, 6, 6, 1, scale=2.0)
    with torch.no_grad():
        model[-1].bias -= model(2 * torch.rand(1000, 2).double() - 1).median()
    part = sc.partition(model, BOX, smooth=sc.Smooth(1e-3, refine="boundary"), progress=False)
    assert 100 < len(part) < 5000
    assert_decided(part, model)
    assert part.validate(progress=False).ok


def test_a_boundary_along_a_kink_is_left_undecided():
    """Both outputs are zero on a part of the domain, which no refinement decides."""
    model = nn.Sequential(*network(nn.Tanh(), 2, 6, 2, scale=2.0), nn.ReLU())
    with torch.no_grad():
        model[2].bias -= 0.5
        part = sc.partition(model, BOX, smooth=sc.Smooth(1e-2, refine="boundary"), progress=False)
        outputs = model(part.sample(20_000, generator=torch.Generator().manual_seed(0)))
    equal = float((outputs[:, 0] == outputs[:, 1]).double().mean())
    chance = 3 * (equal * (1 - equal) / len(outputs)) ** 0.5  # of the sampled share
    assert 0.1 < equal < part.class_regions().undecided / BOX.area + chance < equal + 0.03
    assert part.validate(progress=False).ok


def test_exact_networks_stay_exact():
    model = network(nn.ReLU(), 2, 8, 1)
    part = sc.partition(model, BOX, smooth=1e-3, progress=False)
    assert part.smoothing is None
    assert len(part) == len(sc.partition(model, BOX, progress=False))


def test_the_domain_may_be_any_polygon():
    model = network(nn.GELU(), 2, 8, 1, scale=3.0)
    triangle = sc.Domain.polygon([[0.0, 0.0], [5.0, 0.1], [0.3, 0.2]])
    part = sc.partition(model, triangle, smooth=1e-2, progress=False)
    assert excess(part, model) <= 1
    assert float(part.areas.sum()) == pytest.approx(triangle.area)


@pytest.mark.parametrize("smooth", [0, -1.0, "a lot", "0%", float("nan"), float("inf"), True])
def test_errors_that_cannot_be_allowed(smooth):
    with pytest.raises(ValueError, match="positive number"):
        tolerance_of(smooth)


def test_options_that_do_not_go_together():
    model = network(nn.GELU(), 2, 4, 1)
    with pytest.raises(ValueError, match="leave it out"):
        sc.partition(model, BOX, smooth=sc.Smooth(1e-2, refine="everywhere"))
    with pytest.raises(TypeError, match="one process: leave out n_jobs="):
        sc.partition(model, BOX, smooth=1e-2, n_jobs=2)
    with pytest.raises(TypeError, match=r"sc\.atlas does not"):
        sc.atlas(model, BOX, "atlas", smooth=1e-2)
    with pytest.raises(TypeError, match="path"):
        sc.along(model, sc.Domain.segment([0.0, 0.0], [1.0, 1.0]), smooth=1e-2)
    for share in (2, 0.0, "1%"):
        with pytest.raises(ValueError, match="share of the domain"):
            sc.partition(model, BOX, smooth=sc.Smooth(1e-2, refine="boundary", undecided=share))
    with pytest.raises(sc.LimitError, match="larger smooth="):
        sc.partition(model, BOX, smooth=1e-6, max_regions=9, progress=False)
    with pytest.raises(sc.UnsupportedOpError, match="smooth="):
        sc.partition(model, BOX)


class Block(nn.Module):
    """Several products between two layers, as in a block of a frozen transformer."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, width), nn.Linear(width, 2)
        self.inner = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = nn.functional.gelu(self.inner[1](self.inner[0](self.first(x))))
        return self.last(nn.functional.gelu(self.inner[3](self.inner[2](h)) + h))


def block() -> nn.Module:
    torch.manual_seed(0)
    return Block().double()


def test_bounds_go_by_what_the_products_of_a_stage_add_up_to(monkeypatch):
    program = capture(block(), (2,), smooth=True)
    names = program.stages[0].live_in[0], program.stages[0].live_out[0]
    model = block()
    joined = model.inner[1].weight @ model.inner[0].weight @ model.first.weight
    found = program.dense_moduli(0)[names[1]][names[0]]
    torch.testing.assert_close(found, joined.detach().abs().T, rtol=1e-14, atol=1e-16)
    grid = SmoothCells.of(BOX, 4, program.device)
    close = survey(program, BOX, grid)
    monkeypatch.setattr("splinecam.network.program._DENSE", 0)
    loose = survey(capture(block(), (2,), smooth=True), BOX, grid)
    assert bool((close.bounds.tables[0] < loose.bounds.tables[0]).all())
    assert bool((1.5 * close.rounding < loose.rounding).all())
    assert torch.equal(close.values, loose.values)


def test_a_network_with_many_products_keeps_its_promise():
    model = block()
    part = sc.partition(model, BOX, smooth=1e-2, progress=False)
    assert part._bound.max() <= 1e-2
    assert 0.2 < excess(part, model) <= 1


def told(model: nn.Module, side: float, smooth: float | str) -> tuple[list[str], Exception | None]:
    """What is said to be done, and the error with which it ends; shares of each sum up to one."""
    program, said = capture(model, (2,), smooth=True), {}
    domain = sc.Domain.around([0.1, 0.2], side=side)

    def note(what: str, share: float) -> None:
        said[what] = share if what not in said else said[what] + share

    def never(_: object) -> Any:
        raise AssertionError("there is nothing to run")

    with torch.no_grad():
        try:
            smoothed(program, domain, tolerance_of(smooth), never, note=note)
        except sc.LimitError as error:
            shares = [share for what, share in said.items() if "cells" in what]
            assert shares == pytest.approx([round(share) for share in shares])
            assert min(shares) > 0.5
            return list(said), error
    return list(said), None


def opposite() -> nn.Module:
    """Two units that are each other's opposites, so that bounds are beyond all derivatives."""
    model = nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.Linear(2, 1)).double()
    model[0].weight.data, model[0].bias.data = torch.ones(2, 2).double(), torch.ones(2).double()
    model[2].weight.data = torch.tensor([[1.0, -1.0]]).double()
    return model


def test_rounding_that_is_too_much_is_told_before_anything_is_run():
    """Smaller cells are not looked at if that helps nothing, or if bounds are close already."""
    said, error = told(opposite(), 1e-12, 1e-17)
    assert said == ["looking at 1,024 cells", "looking at 4,096 cells", "choosing pieces"]
    assert re.search(r"Rounding is too much .* Allow a larger error", str(error))

    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1), nn.Linear(1, 1)).double()
    for step, offset in zip(model[2:], (1e8, -1e8), strict=True):
        nn.init.constant_(step.weight, 1.0)
        nn.init.constant_(step.bias, offset)
    _, error = told(model, 1e-3, "0.001%")  # of a range that grows with the domain
    assert re.search(r"Rounding is too much .* times as large, or allow a larger error", str(error))
    said, error = told(block(), 1e-9, 1e-16)
    assert said == ["looking at 1,024 cells", "choosing pieces"]
    assert "Rounding is too much" in str(error)


def test_outputs_that_need_too_many_pieces_are_told_before_anything_is_run():
    """Cubes of cubes are soon so large that an absolute error means too many digits."""
    cube = SMOOTH["cube"][0]()
    model = nn.Sequential(nn.Linear(2, 1), cube, nn.Linear(1, 2), cube, nn.Linear(2, 1))
    for step in model[::2]:
        nn.init.constant_(step.weight, 4.0)
    said, error = told(model, 0.8, 1e-3)
    assert said[-1] == "choosing pieces"
    assert re.search(r"pieces of a function outputs are still off by .* times", str(error))
    assert "Rounding is too much" in str(told(model, 8.0, 1e-3)[1])


@pytest.mark.parametrize("steep", [4.0, 6.0])
def test_units_have_many_pieces_only_where_they_have_influence(steep):
    """The first unit gives up to 3e5; where it is above 30, the output is zero all the same."""
    exp = SMOOTH["exp"][0]()
    steps = nn.Linear(2, 1), exp, nn.Linear(1, 1), exp, nn.Linear(1, 1)
    model = nn.Sequential(*steps).double().requires_grad_(False)
    model[0].weight[:] = torch.tensor([steep, steep / 3])
    for step, weight, bias in ((model[2], -0.3, 0.2), (model[4], 1.0, 0.0)):
        nn.init.constant_(step.weight, weight)
        nn.init.constant_(step.bias, bias)
    part = sc.partition(model, sc.Domain.box(-1.5, 1.5), smooth=1e-3, progress=False)
    assert part._bound.max() <= 1e-3
    assert excess(part, model) <= 1
    assert all(layer.pieces < 100 for layer in part.smoothing.layers)
    assert part.validate().ok


def test_large_networks_are_looked_at_on_few_cells_first(monkeypatch):
    monkeypatch.setattr("splinecam.smooth.smoothing._PRODUCTS", 1)
    said, _ = told(opposite(), 1e-12, 1e-17)
    assert said == ["looking at 4 cells", "looking at 16 cells", "choosing pieces"]


def test_rounding_of_many_products_leaves_room_on_small_domains():
    """Rounding goes by the numbers of a stage and by what it makes of them, not by all moduli."""
    torch.manual_seed(0)
    turns = [nn.utils.parametrizations.orthogonal(nn.Linear(24, 24)) for _ in range(8)]
    model = nn.Sequential(nn.Linear(2, 24), *turns, nn.GELU(), nn.Linear(24, 2)).double()
    for turn in turns:
        nn.utils.parametrize.remove_parametrizations(turn, "weight")
    square = sc.Domain.around([0.1, 0.2], side=1e-7)
    part = sc.partition(model, square, smooth="1%", progress=False)
    extent = part.values.amax(0) - part.values.amin(0)
    assert bool((part._bound <= 0.0101 * extent).all())
    assert excess(part, model) <= 1


def test_the_log_says_from_the_beginning_what_is_done(caplog):
    with caplog.at_level("INFO", "splinecam"):
        sc.partition(network(nn.GELU(), 2, 4, 1), BOX, smooth=0.1, progress=False)
    assert caplog.messages[0] == "looking at 1,024 cells"


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [23, 24, 79])
def test_tables_before_units_that_are_off_everywhere_are_fine_enough(seed):
    """These have no influence on the outputs, but coarse tables would switch the units on."""
    torch.manual_seed(seed)
    steps = nn.Linear(2, 1), nn.SiLU(), nn.Linear(1, 2), nn.SiLU(), nn.ReLU(), nn.Linear(2, 1)
    model = nn.Sequential(*steps, nn.SiLU(), nn.Linear(1, 1)).double()
    model[0].weight.data *= 2
    part = sc.partition(model, sc.Domain.box(-1, 1), smooth=1e-4, progress=False)
    part.validate(progress=False)
    assert len(part) < 100
    assert part._bound.amax() <= 1e-4


@pytest.mark.parametrize("seed", [101, 206])
def test_a_table_of_few_pieces_gets_more_until_bounds_fit(seed):
    """The scale of errors may fall by far before a table of one piece gets another one."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 1), nn.GELU(), nn.ReLU(), nn.Linear(1, 1))
    part = sc.partition(model, sc.Domain.box(-1, 1), smooth=0.1, progress=False)
    assert len(part) < 10
    assert float(part.region_bounds.max()) <= 0.1
    part.validate()
