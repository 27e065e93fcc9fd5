"""What bounds of smooth networks promise holds in high precision, also in awkward cases."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from high_precision import SMOOTH, Call, Residual, Snake, largest_share, maps_at
from splinecam.geometry.domain import Frame
from splinecam.network.capture import capture
from splinecam.network.curves.formulas import EXP
from splinecam.smooth import region_bounds, smoothing
from splinecam.smooth.following import follow
from splinecam.smooth.grid import CellBounds, SmoothCells
from splinecam.smooth.layer_bounds import Boxes, Followed, through_layer
from splinecam.smooth.refinement import Extents, squared_radii
from splinecam.smooth.region_bounds import Inside
from splinecam.smooth.tables import piecewise_linear, tables_of
from splinecam.testing import assert_same_cells, exact_partition


def points(part: sc.Partition, count: int = 4000) -> tuple[Tensor, Tensor]:
    """Random points and the middles of regions, with their regions."""
    generator = torch.Generator().manual_seed(0)
    middle = part.domain.embed(part.centroids)
    x = torch.cat([part.sample(count, generator=generator).double(), middle[:count]])
    region = part.locate(x)
    return x[region >= 0], region[region >= 0]


def check(model: nn.Module, domain: sc.Domain, smooth: float | str, exact: int = 12):
    """The model is within the bounds: in float64, and in high precision where it is closest."""
    part = sc.partition(model, domain, smooth=smooth, progress=False)
    part.validate(progress=False)
    x, region = points(part)
    with torch.no_grad():
        off = (model.double()(x).flatten(1) - maps_at(part, x, region)).abs()
    share = (off / part.region_bounds[region]).amax(1)
    assert 0.1 < share.max() < 1 + 1e-9
    chosen = share.argsort(descending=True)[:exact].tolist()
    assert not chosen or largest_share(part, model, x, region, chosen) <= 1
    return part


@pytest.fixture
def registered():
    with sc.register_op(Snake, curvature=2.0):
        yield


@pytest.mark.few(5)
@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("name", SMOOTH)
def test_every_function_in_two_layers(name):
    torch.manual_seed(3)
    first, second = (SMOOTH[name][0]() for _ in range(2))
    model = nn.Sequential(nn.Linear(2, 4), first, nn.Linear(4, 3), second, nn.Linear(3, 2))
    model[0].weight.data *= 2
    check(model, sc.Domain.box(-1.5, 1), "10%")


@pytest.mark.slow
def test_kinks_of_all_kinds_in_one_network():
    torch.manual_seed(1)
    slopes = nn.PReLU(4)
    slopes.weight.data = torch.tensor([-0.5, 0.0, 1.0, 2.0])
    model = nn.Sequential(
        nn.Linear(2, 4), nn.ELU(0.3), Residual(nn.Linear(4, 4), slopes), nn.Linear(4, 4),
        Call("abs", torch.abs), nn.BatchNorm1d(4), nn.Hardtanh(), nn.Unflatten(1, (1, 2, 2)),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1, 2), nn.Tanh(), nn.Linear(2, 1),
    ).eval()  # fmt: skip
    model[2].steps[0].weight.data[0], model[2].steps[0].bias.data[0] = 0, 0  # always at its kink
    model[3].weight.data[1], model[3].bias.data[1] = model[3].weight.data[0], model[3].bias.data[0]
    check(model, sc.Domain.box(-2, 2), "10%")


def test_a_wide_domain_and_a_thin_one():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.SiLU(), nn.Linear(3, 3), nn.Sigmoid())
    model = nn.Sequential(*model, nn.Linear(3, 1))
    check(model, sc.Domain.box(-50, 50), "20%")
    check(model, sc.Domain.polygon([[0.0, 0.0], [3.0, 1.0], [1.5, 0.500001]]), "5%")


def test_a_percentage_is_of_the_range_on_a_thin_domain():
    model = nn.Sequential(nn.Linear(2, 1), nn.Tanh(), nn.Linear(1, 1)).double()
    model[0].weight.data = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    thin = sc.Domain.polygon([[-1.0, 0.0], [1.0, 0.0], [0.0, 1e-4]])
    part = sc.partition(model, thin, smooth="10%", progress=False)
    extent = part.values.amax(0) - part.values.amin(0)
    assert part._bound <= 0.11 * extent


@pytest.mark.parametrize("act", [nn.ELU(0.3), nn.Hardswish(), nn.ReLU(), nn.Hardtanh()], ids=str)
@pytest.mark.parametrize("z", [-2.75, -0.5, 0.0, 0.5, 2.5, 3.0])
def test_a_piece_that_goes_on_beyond_its_kinks(act, z):
    layer = capture(nn.Sequential(nn.Linear(2, 1), act, nn.Linear(1, 1)), (2,), smooth=True)
    layer = layer.layers[0]
    middle = torch.tensor([[float(z)]], dtype=torch.float64)
    none, rows = torch.zeros_like(middle), torch.zeros(5, 1, 1, dtype=torch.float64)
    argument = Followed(middle, rows[:2], rows[2:], none, rows[2:], none, none, none)
    for wide in (0.0, 0.3, 1.0, 6.0):
        reach = torch.full_like(middle, wide)
        found = through_layer(
            layer, argument, reach, Extents(torch.zeros(1, 2), torch.zeros(1)), None
        )
        around = middle + wide * torch.linspace(-1, 1, 101, dtype=torch.float64)[:, None]
        off = layer.apply(around) - _on_one_piece(act, layer.apply, around, middle)
        assert off.amax().clamp(min=0) - off.amin().clamp(max=0) <= found.spread[0, 0] + 1e-9


KINKS = {nn.ELU: [0.0], nn.SELU: [0.0], nn.ReLU: [0.0], nn.Hardswish: [-3.0, 3.0]}
KINKS[nn.Hardtanh] = [-1.0, 1.0]
_FAR = 1e9


def _on_one_piece(act: nn.Module, apply, z: Tensor, middle: Tensor) -> Tensor:
    """The piece of a function at ``middle``, going on straight beyond its kinks, at z."""
    low, high = torch.full_like(middle, -_FAR), torch.full_like(middle, _FAR)
    for level in KINKS.get(type(act), []):
        low = torch.where(middle > level, level, low)
        high = torch.where((middle <= level) & (high == _FAR), level, high)
    inside = torch.minimum(torch.maximum(z, low), high).detach()
    straight = apply(inside)
    for end, step in ((low, 1e-7), (high, -1e-7)):
        slope = (apply(end + step) - apply(end)) / step
        straight = straight + torch.where(inside == end, slope * (z - end), 0.0)
    return torch.where((low < z) & (z < high), apply(z), straight)


def test_bounds_hold_at_the_border_of_every_cell():
    """Rounding cannot leave a strip of the domain between cells, or beyond the last one."""
    domain = sc.Domain.polygon([[0.0, 0.0], [1.0, 0.0], [1.0, 0.3000000001], [0.0, 0.3]])
    grid = SmoothCells.of(domain, 64, torch.device("cpu"))
    boxes = grid.boxes
    none = torch.zeros(len(boxes), 1, dtype=torch.float64)
    own = torch.arange(1.0, len(boxes) + 1, dtype=torch.float64)[:, None]
    rows = torch.zeros(5, len(boxes), 1, dtype=torch.float64)
    bend = torch.stack([own, none, own])
    table = CellBounds.of(grid, Followed(none, rows[:2], rows[2:], none, bend, none, none, none))
    corner = torch.cat([boxes.center - boxes.half, boxes.center + boxes.half], 1)
    sides = torch.cat([corner[:, :2], corner[:, :2]], 1)
    assert (table.largest(sides)[:, 0] >= own).all()
    assert (table.largest(corner)[:, 0] >= own).all()
    whole = torch.cat([corner[:, :2].amin(0), corner[:, 2:].amax(0)])[None]
    assert float(table.largest(whole)[0, 0]) >= len(boxes)


def test_circles_around_needles_are_no_smaller_than_their_sides():
    generator = torch.Generator().manual_seed(0)
    apex = torch.rand(1000, 2, generator=generator, dtype=torch.float64)
    along = torch.randn(1000, 2, generator=generator, dtype=torch.float64)
    width = 10 ** (-14 * torch.rand(1000, 1, generator=generator, dtype=torch.float64))
    across = width * torch.stack([-along[:, 1], along[:, 0]], 1)
    uv = torch.stack([apex, apex + along + across, apex + along - across], 1)
    square = squared_radii(uv)
    assert (square >= (uv.roll(1, 1) - uv).square().sum(2).amax(1) / 4).all()


@pytest.mark.few(2)
@pytest.mark.parametrize("smooth", [1e-2, "1%"])
@pytest.mark.parametrize("kinked", [False, True])
def test_numbers_beyond_float64_are_an_error(kinked, smooth):
    steps = [nn.Linear(2, 2), nn.ReLU()] if kinked else []
    exp = Call("exp", torch.exp)
    model = nn.Sequential(*steps, nn.Linear(2, 2), exp, nn.Linear(2, 2), exp, nn.Linear(2, 1))
    with pytest.raises(sc.SplineCamError, match="too large for float64"):
        sc.partition(model, sc.Domain.box(-1e3, 1e3), smooth=smooth, progress=False)


def test_a_rival_beyond_float64_may_win_a_maximum():
    """Where the slopes of exp are infinite, no bound is a number, and none may be finite."""
    exp = Call("exp", torch.exp)
    steps = nn.Linear(2, 2), exp, nn.Unflatten(1, (1, 2)), nn.MaxPool1d(2), nn.Flatten(), nn.ReLU6()
    model = nn.Sequential(*steps, nn.Linear(1, 1)).double()
    model[0].weight.data[:], model[0].bias.data[:] = 0, torch.tensor([1.0, -10.0])
    model[0].weight.data[1, 0] = 7.2  # at 10 it is ahead of the unit that is ahead at 0
    domain = sc.Domain.box(-100, 100)
    corners = Frame.of(domain).to_local(domain.corners)
    bend, _ = Inside(capture(model, (2,), smooth=True), domain)(corners[None])
    assert not bend.isfinite().any()


def test_tables_where_units_are_constant_or_soon_too_large():
    zero = nn.Linear(3, 2)
    zero.weight.data[:] = 0
    model = nn.Sequential(nn.Linear(2, 3), nn.ELU(0.4), zero, nn.Hardswish())
    part = sc.partition(model, sc.Domain.box(-2, 2), smooth="30%", progress=False)
    assert part._bound.amax() <= 1e-9
    low, high, tolerance = torch.tensor([[-1.0, -300.0], [1.0, 400.0], [1.0, 1e3]]).double()
    assert tables_of(EXP, low, high, tolerance).value.isfinite().all()


def test_tables_of_steep_functions_are_hardly_wider_than_their_range():
    """Errors of arguments are those of results divided by the slope."""
    low, high, tolerance = torch.tensor([[1.0], [18.5], [2e5]]).double()
    assert tables_of(EXP, low, high, tolerance).pieces.amax() < 20


def test_tables_are_close_where_units_have_influence_and_change_gently_elsewhere():
    """Large errors beside the part that matters would be taken for values in it."""
    low, high, tolerance = torch.tensor([[-5.0], [18.0], [1e-6]]).double()
    z = torch.linspace(-5, 18, 4000).double()[None]
    tables = tables_of(EXP, low, high, tolerance, (z, (z < 1).double()))
    assert 100 < tables.pieces[0] < 1000
    off = (piecewise_linear(z.T, *list(vars(tables).values())[:4]) - z.T.exp()).abs()
    assert off[z[0] < 1].amax() <= 2 * tolerance
    assert (off[z[0] > 1] <= 0.2 * z.T[z[0] > 1].exp()).all()


def test_tables_of_functions_that_are_bent_in_a_tiny_part_of_a_range():
    low, high, tolerance = torch.tensor([[-1e9, 3.0], [1.0, 3.0], [1e-3, 1e-3]]).double()
    z = torch.stack([torch.linspace(-1e9, 1, 99), torch.full((99,), 3.0)]).double()
    tables = tables_of(EXP, low, high, tolerance, (z, torch.ones_like(z)))
    assert 10 < tables.pieces[0] < 50
    assert tables.pieces[1] == 1
    z = torch.linspace(-20, 1, 999).double()[:, None].expand(-1, 2)
    off = (piecewise_linear(z, *list(vars(tables).values())[:4]) - z.exp()).abs()
    assert off[:, 0].amax() <= 3e-3


def test_a_unit_that_is_bent_only_between_the_centres_of_cells_gets_few_pieces():
    model = narrow(nn.ELU, 2, 2, 1, 1)
    model[0].weight.data.abs_()
    nn.init.constant_(model[2].weight, 1.0)
    model[2].bias.data -= model[:3](-torch.ones(1, 2).double())[0] + 1e-3
    part = check(model, sc.Domain.box(-1, 1), 1e-3, exact=0)
    assert len(part) < 50


def test_bounds_that_need_too_many_triangles_are_an_error(monkeypatch):
    monkeypatch.setattr(region_bounds, "_MOST", 3)
    monkeypatch.setattr(region_bounds, "_OF_EACH", 0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    with pytest.raises(sc.LimitError, match="triangles"):
        sc.partition(model, sc.Domain.box(-9, 9), smooth=1e-3, progress=False)


def narrow(act, *widths: int) -> nn.Sequential:
    """A network in float64 of few units; that of one unit has the weights 2 and 1."""
    torch.manual_seed(0)
    steps = [step for a, b in pairwise(widths) for step in (nn.Linear(a, b), act())]
    model = nn.Sequential(*steps[:-1]).double()
    if widths[1] == 1:
        model[0].weight.data = torch.tensor([[2.0, 1.0]], dtype=torch.float64)
    return model


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("act", "widths", "size", "smooth", "most"),
    [
        (nn.CELU, (2, 1, 1), 1, 1e-3, 4_000),
        (nn.CELU, (2, 1, 1), 1, 1e-4, 10_000),
        (lambda: nn.Softplus(beta=5), (2, 1, 1), 1, 1e-4, 8_000),
        (nn.CELU, (2, 2, 1), 1, 1e-4, 12_000),
        (nn.CELU, (2, 2, 2, 1), 1, 1e-4, 25_000),
        (nn.SiLU, (2, 3, 3, 1), 10, 0.1, 2_000),
        (lambda: nn.ELU(0.3), (2, 2, 3, 1), 3, 3e-2, 2_000),
    ],
)
def test_long_regions_are_divided_across_their_curvature(
    monkeypatch, act, widths, size, smooth, most
):
    looked_at, closely, alone = [], Inside.closely, Inside._alone

    def counted(self, corners, *given):
        looked_at.append(len(corners))
        return closely(self, corners, *given)

    def counted_again(self, corners, *given):
        looked_at.append(len(corners) if self.cells else 0)
        return alone(self, corners, *given)

    monkeypatch.setattr(Inside, "closely", counted)
    monkeypatch.setattr(Inside, "_alone", counted_again)
    check(narrow(act, *widths), sc.Domain.box(-size, size), smooth, exact=0)
    assert 0 < sum(looked_at) < 2 * most  # smooth networks count twice where cells say too little


def test_a_network_that_bends_one_way_needs_few_triangles(monkeypatch):
    """Between knots a convex function is below its chords, so that errors at knots bound it."""
    looked_at, closely = [], Inside.closely

    def counted(self, corners, *given):
        looked_at.append(len(corners))
        return closely(self, corners, *given)

    monkeypatch.setattr(Inside, "closely", counted)
    part = check(narrow(nn.Softplus, 2, 1, 1), sc.Domain.box(-1, 1), 1e-4, exact=0)
    assert sum(looked_at) < 8 * len(part)


def test_a_kink_that_the_next_layer_hides_needs_no_triangles():
    """Around -3 Hardswish is nowhere positive, so that a ReLU behind it stays off."""
    model = nn.Sequential(nn.Linear(2, 1), nn.Hardswish(), nn.ReLU(), nn.Linear(1, 1)).double()
    nn.init.constant_(model[0].bias, -3.0)
    corners = torch.tensor([[-0.1, -0.1], [0.3, -0.1], [0.0, 0.4]]).double()
    bend, branch = Inside(capture(model, (2,), smooth=True), sc.Domain.box(-1, 1))(corners[None])
    assert bend.amax() + branch.amax() < 1e-12


def test_errors_just_below_the_tolerance_are_bounded_at_once(monkeypatch):
    """Bounds stay below it, too, and none are computed where vertices exceed it."""
    found, bounds = [], region_bounds.Compared.region_bounds

    def counted(self):
        found.append(float((self.errors.abs() / self.allowed).max()))
        return bounds(self)

    monkeypatch.setattr(region_bounds.Compared, "region_bounds", counted)
    check(narrow(nn.SELU, 2, 3, 1), sc.Domain.box(-3, 3), 2e-3, exact=0)
    assert len(found) == 1
    assert 1 - region_bounds.GOAL < found[0] < 1


def test_fine_partitions_take_one_attempt_and_few_triangles(monkeypatch, registered):
    """Most regions are far below the tolerance, and bounds on them need not be close."""
    runs, looked_at, replaced, closely = [], [], smoothing.Compared, Inside.closely

    def compared(*given):
        runs.append(given)
        return replaced(*given)

    def counted(self, corners, *given):
        looked_at.append(len(corners))
        return closely(self, corners, *given)

    monkeypatch.setattr(smoothing, "Compared", compared)
    monkeypatch.setattr(Inside, "closely", counted)
    part = check(narrow(Snake, 2, 3, 3, 1), sc.Domain.box(-3, 3), 2e-3, exact=0)
    assert len(runs) == 1
    assert sum(looked_at) < 4 * len(part)


def test_few_triangles_of_smooth_networks_are_not_followed_alone(monkeypatch):
    """Dividing them takes less time, unless bounds on cells are far too large."""
    alone = []
    monkeypatch.setattr(Inside, "_alone", lambda self, *given: alone.append(given))
    check(narrow(nn.GELU, 2, 4, 4, 1), sc.Domain.box(-1, 1), 1e-2, exact=0)
    assert not alone


def test_flat_triangles_across_kinks_are_divided_at_their_longest_side():
    """Otherwise a part has all of this side, and is no better however often it is divided."""
    generator = torch.Generator().manual_seed(3)
    ends = torch.rand(2000, 2, 2, dtype=torch.float64, generator=generator) * 2 - 1
    share = torch.rand(2000, 1, dtype=torch.float64, generator=generator)
    between = ends[:, 0] + share * (ends[:, 1] - ends[:, 0])
    corners = torch.stack([ends[:, 0], between, ends[:, 1]], 1)
    goal = corners.new_full((2, len(corners), 1), 1e-6)
    program = capture(narrow(nn.SELU, 2, 3, 2, 1), (2,), smooth=True)
    errors = torch.zeros_like(corners[:, :, :1])
    bend, *_, sides = Inside(program, sc.Domain.box(-1, 1)).closely(corners, errors, goal)
    assert (bend > goal).any(0).all()
    assert (sides.argmax(1) == 2).all()


def test_forms_are_no_less_than_circles_say():
    """Radii by forms, also by such that are zero in one direction, hold all corners."""
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(500, 2, 2, generator=generator, dtype=torch.float64)
    root[:200, 1] *= 10 ** (-12 * torch.rand(200, 1, generator=generator, dtype=torch.float64))
    root[:50, 1] = 0
    form = (root.transpose(1, 2) @ root).flatten(1)[:, [0, 1, 3]].T
    corners = torch.randn(500, 3, 2, generator=generator, dtype=torch.float64)
    boxes = Boxes((corners.amin(1) + corners.amax(1)) / 2, (corners.amax(1) - corners.amin(1)) / 2)
    extents = boxes.extents(corners, closely=True)
    mapped = (root[:, None] @ corners[..., None])[..., 0]
    wanted = squared_radii(mapped)
    assert (extents.around(form) >= wanted * (1 - 1e-12)).all()
    assert (extents.around(form) <= wanted * (1 + 1e-6) + 1e-9).all()
    away = (root[:, None] @ (corners - boxes.center[:, None])[..., None])[..., 0]
    assert (extents.from_center(form) >= away.square().sum(2).amax(1) * (1 - 1e-12)).all()


def test_long_triangles_keep_the_promise_of_their_forms():
    """The network in long and thin triangles is near the plane of its values at the corners."""
    torch.manual_seed(5)
    corners = torch.randn(600, 3, 2, dtype=torch.float64) / 2
    corners[:400, 1] = corners[:400, 0] + 1e-3 * torch.randn(400, 2, dtype=torch.float64)
    domain = sc.Domain.box(-2, 2)
    frame = Frame.of(domain)
    share = torch.rand(60, 600, 3, dtype=torch.float64)
    share = (share / share.sum(2, keepdim=True))[..., None]
    for act in (nn.CELU, nn.GELU, nn.Tanh, nn.SELU):
        model = narrow(act, 2, 2, 2, 2)
        program = capture(model, (2,), smooth=True)
        zero, goal = torch.zeros_like(corners), torch.ones(2, 600, 2)
        bend, _, branch, _ = Inside(program, domain).closely(corners, zero, goal)
        with torch.no_grad():
            inside = model(frame.to_plane((share * corners).sum(2).flatten(0, 1))).view(60, 600, 2)
            plane = (share * model(frame.to_plane(corners.flatten(0, 1))).view(600, 3, 2)).sum(2)
        off = torch.stack([(inside - plane).amax(0), (plane - inside).amax(0)])
        assert (off <= bend + 2 * branch + 1e-14).all()
        assert (off.amax(0) / (bend.amax(0) + 2 * branch)).median() > 0.05


@pytest.mark.parametrize("act", [nn.GELU, nn.SELU, nn.Hardswish])
def test_a_percentage_of_a_constant_output_has_a_true_message(act):
    model = narrow(act, 2, 2, 1)
    model[0].weight.data[1], model[0].bias.data[1] = model[0].weight.data[0], model[0].bias.data[0]
    model[2].weight.data = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    with pytest.raises(sc.SplineCamError, match="Output 0 of the network is constant"):
        sc.partition(model, sc.Domain.box(-1, 1), smooth="1%", progress=False)


def test_cells_are_smallest_where_bounds_are_not_finite_otherwise(monkeypatch):
    model, domain = narrow(nn.Tanh, 2, 3, 3, 1), sc.Domain.box(-3, 3)
    for step in model[::2]:
        step.weight.data *= 16
    program = capture(model, (2,), smooth=True)
    counts = []
    monkeypatch.setattr(smoothing, "_BLUNT", 0.0)
    monkeypatch.setattr(smoothing, "_HELPS", 2.0)
    for finite in (True, False):
        monkeypatch.setattr(smoothing, "_finite", lambda found, known=finite: known)
        found = smoothing._surveyed(program, domain, lambda what, share: None)
        counts.append(found.bounds.grid.resolution)
    assert counts == [smoothing._FINEST, smoothing._LAST]


@pytest.mark.parametrize("below", [1.0, 1e-3])
def test_an_output_that_a_unit_that_is_off_makes_constant_is_partitioned(below):
    model = nn.Sequential(*narrow(nn.GELU, 2, 2, 1), nn.ReLU(), nn.Linear(1, 1)).double()
    x = torch.cartesian_prod(*torch.linspace(-1, 1, 101).double().expand(2, -1))
    model[2].bias.data -= model[:3](x).max() + below
    part = sc.partition(model, sc.Domain.box(-1, 1), smooth="1%", progress=False)
    assert len(part) < 20
    assert part._bound.max() < 1e-9


def test_quadratic_functions_are_no_larger_than_their_peaks():
    """Also where they are almost flat in a direction, and with numbers of any size."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    root = drawn(3000, 2, 2)
    root[:1000, 1] *= 10 ** (-9 * torch.rand(1000, 1, generator=generator).double())
    sign = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]).double()[torch.arange(3000) % 3]
    matrix = root.transpose(1, 2) @ (sign[:, :, None] * root)
    corners, errors = drawn(3000, 3, 2), drawn(3000, 3) * 10 ** drawn(3000, 1)
    sides = corners.roll(-1, 1) - corners
    bent = torch.einsum("nki,nij,nkj->nk", sides, matrix, sides)
    share = torch.rand(400, 3000, 3, generator=generator).double()
    share = share.pow(4) / share.pow(4).sum(2, keepdim=True)
    found = (share * errors).sum(2) + (share * share.roll(-1, 2) * bent).sum(2) / 2
    for size in (1.0, 1e-200, 1e200):
        scaled = (size * each.T[..., None] for each in (errors, bent))
        peak = region_bounds._peaks(*scaled)[:, 0] / size + errors.amax(1)
        assert (found.amax(0) <= peak + 1e-12 * bent.abs().amax(1)).all()
        close = (peak - found.amax(0)) / (1e-3 * peak.abs() + bent.abs().amax(1))
        assert close.median() < 0.01


def test_differences_at_corners_and_second_derivatives_bound_triangles_closely():
    """Of triangles in which second derivatives hardly change bounds are attained."""
    torch.manual_seed(0)
    model, domain = narrow(nn.Tanh, 2, 3, 2), sc.Domain.box(-2, 2)
    corners = torch.randn(300, 1, 2).double() / 2 + 0.05 * torch.randn(300, 3, 2).double()
    share = torch.rand(500, 300, 3, dtype=torch.float64)
    share = (share / share.sum(2, keepdim=True))[..., None]
    with torch.no_grad():
        at = Frame.of(domain).to_plane
        real = model(at((share * corners).sum(2).flatten(0, 1))).view(500, 300, 2)
        errors = 1e-3 * torch.randn(300, 3, 2).double()
        plane = model(at(corners.flatten(0, 1))).view(300, 3, 2) - errors
    off = real - (share * plane).sum(2)
    inside = Inside(capture(model, (2,), smooth=True), domain)
    bend, gap, branch, _ = inside.closely(corners, errors, torch.ones(2, 300, 2))
    above, below = errors.amax(1) + bend[0], bend[1] - errors.amin(1)
    assert (off.amax(0) <= above + 2 * branch).all()
    assert (-off.amin(0) <= below + 2 * branch).all()
    attained = torch.maximum(off.amax(0), errors.amax(1))
    assert (attained >= above - gap[0] - 0.05 * bend[0] - 1e-9).double().mean() > 0.98
    assert (gap.amax((0, 2)) / corners.std((1, 2)).square()).median() < 0.05


def test_registered_functions_need_no_more_regions_or_triangles_than_others(monkeypatch):
    looked_at, closely = [], Inside.closely

    def counted(self, corners, *given):
        looked_at.append(len(corners))
        return closely(self, corners, *given)

    monkeypatch.setattr(Inside, "closely", counted)
    with sc.register_op(Snake, curvature=2.0):
        for steps in ([], [nn.ReLU()]):
            looked_at.clear()
            head = nn.Linear(3, 1).double()
            model = nn.Sequential(*narrow(Snake, 2, 3, 3)[:2], *steps, head)
            part = check(model, sc.Domain.box(-3, 3), 1e-3, exact=0)
            assert sum(looked_at) < 12 * len(part)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (Call("sqrt", torch.sqrt), "sqrt"),
        (Call("sign", torch.sign), "discontinuous"),
        (nn.Softplus(1.0, 6.0), "jumps at its threshold"),
    ],
    ids=str,
)
def test_functions_without_a_bound_are_refused_with_the_reason(function, reason):
    model = nn.Sequential(nn.Linear(2, 3), function, nn.Linear(3, 1))
    with pytest.raises(sc.UnsupportedOpError, match=reason):
        sc.partition(model, sc.Domain.box(-1, 1), smooth=1e-2)


def test_regions_are_those_of_the_oracle():
    """The replaced network, written out with ReLUs, has exactly the regions of the result."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    model = model.double()
    domain = sc.Domain.box(-2, 2)
    part = sc.partition(model, domain, smooth="20%", progress=False)
    steps, mixed = [], nn.Identity()
    for linear, layer in zip([model[0], model[2]], part._network.layers, strict=True):
        units, rest = _written_out(layer)
        steps += [_joined(mixed, linear, units), nn.ReLU()]
        mixed = rest
    exact = nn.Sequential(*steps, _joined(mixed, model[4], None))
    assert_same_cells(part, exact_partition(exact, domain), atol=1e-9, resolution=2.0**-40)


def _written_out(layer) -> tuple[tuple[Tensor, Tensor], nn.Linear]:
    """Knots (N,) of the units (N,) of a layer of tables, and what adds up the ReLUs beyond them."""
    _, levels, start, value, slope = layer.operation.args
    knots = torch.cat([start[:1], levels])
    bends = torch.cat([slope[:1], slope.diff(dim=0)])
    unit = torch.arange(knots.shape[1]).expand_as(knots)
    used = torch.isfinite(knots)
    mix = nn.Linear(int(used.sum()), knots.shape[1]).double()
    weight = torch.zeros(mix.weight.shape, dtype=torch.float64)
    weight[unit[used], torch.arange(int(used.sum()))] = bends[used]
    mix.weight.data, mix.bias.data = weight, value[0].clone()
    return (unit[used], knots[used]), mix


def _joined(before: nn.Module, linear: nn.Linear, units: tuple[Tensor, Tensor] | None) -> nn.Linear:
    """A linear layer after another, and one row for each of the knots of its units."""
    weight, bias = linear.weight.data, linear.bias.data
    if isinstance(before, nn.Linear):
        weight, bias = weight @ before.weight.data, bias + weight @ before.bias.data
    if units is not None:
        weight, bias = weight[units[0]], bias[units[0]] - units[1]
    made = nn.Linear(weight.shape[1], weight.shape[0]).double()
    made.weight.data, made.bias.data = weight.clone(), bias.clone()
    return made


def test_a_constant_network_with_steep_functions():
    exp = Call("exp", torch.exp)
    model = nn.Sequential(nn.Linear(2, 3), exp, nn.Linear(3, 2), nn.ReLU6(), nn.Linear(2, 1))
    model[2].bias.data[:] = 1e3
    part = sc.partition(model, sc.Domain.box(-1, 1), smooth="1%", progress=False)
    assert part.values.amax() == part.values.amin()
    assert part._bound <= 1e-9 * part.values.abs().amax()


def test_a_constant_network_is_not_refused_for_a_jump_that_softplus_has_elsewhere():
    model = narrow(nn.Softplus, 2, 1, 1, 1)
    model = nn.Sequential(model[0], nn.LogSigmoid(), nn.ReLU(), *model[2:])
    part = sc.partition(model, sc.Domain.box(-1, 1), smooth="1%", progress=False)
    assert part._bound <= 1e-9 * part.values.abs().amax()


def test_offsets_much_larger_than_weights():
    """Rounding of sums with a large offset is part of the bounds."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 2)).double()
    model[2].bias.data[0] = 1e12
    part = sc.partition(model, sc.Domain.box(-1, 1), smooth=2e-1, progress=False)
    x, region = points(part, 200)
    assert largest_share(part, model, x, region, range(0, len(x), 20)) <= 1
    assert math.isfinite(part._bound.max())


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_stay_within_their_bounds_in_boxes(name):
    """Values, gradients and second derivatives anywhere in boxes that are tiny to huge."""
    torch.manual_seed(7)
    steps = [nn.Linear(2, 4), SMOOTH[name][0](), nn.Linear(4, 3), SMOOTH[name][0]()]
    model = nn.Sequential(*steps, nn.Linear(3, 1)).double()
    domain = sc.Domain.box(-2, 2)
    frame = Frame.of(domain)
    center, place = 1.5 * torch.rand(2, 400, 2, dtype=torch.float64) - 0.75
    half = 10 ** (-4 * torch.rand(400, 2, dtype=torch.float64)) / 2
    found = follow(capture(model, (2,), smooth=True), domain, Boxes(center, half))

    uv = (center + half * (2 * place / 1.5).clamp(-1, 1)).requires_grad_()
    value = model(frame.to_plane(uv)).detach()[:, 0]
    smooth = _with_pieces_of(model, frame.to_plane(uv), frame.to_plane(center))[:, 0]
    (gradient,) = torch.autograd.grad(smooth.sum(), uv, create_graph=True)
    rows = [torch.autograd.grad(row.sum(), uv, retain_graph=True)[0] for row in gradient.unbind(1)]
    smooth, gradient, second = smooth.detach(), gradient.detach(), torch.stack(rows, 1)
    slack = 1e-9 * (1 + value.abs().max() + second.abs().max())
    size = torch.linalg.matrix_norm(second, 2)
    assert ((value - found.value[:, 0]).abs() <= found.reach(half)[:, 0] + slack).all()
    assert ((value - smooth).abs() <= found.spread[:, 0] + slack).all()
    turned = (gradient - found.tangents[:, :, 0].T).norm(dim=1)
    assert (turned <= found.turn[:, 0] + slack).all()
    assert (size <= found.curvature[:, 0] + slack).all()
    if name != "registered":  # of which nothing is known but one bound
        small = half.amax(1) < 1e-3
        assert (found.curvature[small, 0] <= size[small] + 0.1 * size.max()).all()


def _with_pieces_of(model: nn.Sequential, x: Tensor, middle: Tensor) -> Tensor:
    """The network at points x, with the pieces that its functions have at others."""
    for step in model:
        if type(step) in KINKS and not (isinstance(step, nn.ELU) and step.alpha == 1):
            x = _on_one_piece(step, step, x, middle)
        else:
            x = step(x)
        middle = step(middle).detach()
    return x


KINKED = {
    "relu": [nn.Linear(2, 6), nn.GELU(), nn.Linear(6, 5), nn.ReLU()],
    "relu first": [nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 5), nn.GELU()],
    "selu": [nn.Linear(2, 6), nn.SELU(), nn.Linear(6, 5), nn.SELU()],
    "hardswish": [nn.Linear(2, 6), nn.Hardswish(), nn.Linear(6, 5), nn.Hardswish()],
    "negative slopes": [nn.Linear(2, 6), nn.PReLU(6, -0.5), nn.Linear(6, 5), nn.Tanh()],
    "two kinks": [nn.Linear(2, 6), nn.SiLU(), nn.Linear(6, 5), nn.Hardtanh(-0.5, 0.5)],
    "hidden": [nn.Linear(2, 5), nn.Hardswish(), nn.ReLU()],
    "in a row": [nn.Linear(2, 5), nn.SELU(), nn.Hardtanh(-1.2, 2.0)],
    "maximum": [nn.Linear(2, 15), nn.GELU(), nn.Unflatten(1, (1, 15)), nn.MaxPool1d(3)],
    "smallest": [
        nn.Linear(2, 20),
        nn.GELU(),
        nn.Unflatten(1, (5, 4)),
        Call("amin", lambda x: x.amin(2)),
    ],
}


@pytest.mark.parametrize("name", KINKED)
def test_triangles_that_are_crossed_by_kinks(name):
    """The network in triangles, tiny to huge, is near the plane of its values at the corners."""
    torch.manual_seed(5)
    steps = [*KINKED[name], nn.Flatten(), nn.Linear(5, 2), nn.Tanh(), nn.Linear(2, 2)]
    model = nn.Sequential(*steps).double()
    for step in (step for step in model if isinstance(step, nn.Linear)):
        nn.init.normal_(step.weight)
    domain = sc.Domain.box(-2, 2)
    program, frame = capture(model, (2,), smooth=True), Frame.of(domain)
    corners = torch.randn(600, 3, 2, dtype=torch.float64)
    corners = torch.randn(600, 1, 2, dtype=torch.float64) / 3 + corners * (
        10 ** (-4 * torch.rand(600, 1, 1, dtype=torch.float64)) / 2
    )
    corners[:100, 1] = corners[:100, 0] + 1e-7 * torch.randn(100, 2, dtype=torch.float64)
    bend, branch = Inside(program, domain)(corners)
    share = torch.rand(60, 600, 3, dtype=torch.float64)
    share = (share / share.sum(2, keepdim=True))[..., None]
    with torch.no_grad():
        inside = model(frame.to_plane((share * corners).sum(2).flatten(0, 1))).view(60, 600, 2)
        plane = (share * model(frame.to_plane(corners.flatten(0, 1))).view(600, 3, 2)).sum(2)
    off = torch.stack([(inside - plane).amax(0), (plane - inside).amax(0)])
    assert (off <= bend + 2 * branch + 1e-14).all()
    assert (off.amax(0) / (bend.amax(0) + 2 * branch)).median() > 0.05


class Products(nn.Module):
    """Many products before the only layer, with what a normalisation has: a mean and factors.

    One of them adds a large number to all units, which the next mean takes away again, so that
    nothing is left of it but its rounding. Or the second one subtracts a unit from its double.
    """

    def __init__(self, losing: int | None) -> None:
        super().__init__()
        torch.manual_seed(losing or 0)
        self.matrices = nn.ParameterList([torch.randn(6, n).double() for n in (2, 6, 6, 6, 6)])
        self.offsets = nn.ParameterList([torch.randn(6).double() for _ in self.matrices])
        if losing is not None:
            matrix = self.matrices[losing].data
            matrix += 2.0**20 * torch.randn(matrix.shape[1]).double()
            return
        for each in (self.matrices[0].data, self.offsets[0].data, self.offsets[1].data):
            each[5] = each[0]
        large = 2.0**20 * torch.randn(6).double()
        self.matrices[1].data[:, 0] += large
        self.matrices[1].data[:, 5] = -large

    def before(self, x: Tensor) -> Tensor:
        h = nn.functional.linear(x, self.matrices[0], self.offsets[0])
        for matrix, offset in list(zip(self.matrices, self.offsets, strict=True))[1:]:
            centred = (h - h.mean(-1, keepdim=True)) * offset
            h = centred + nn.functional.linear(centred, matrix, offset)
        return h

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.before(x)).sum(-1, keepdim=True)

    def exactly(self, x: list[Fraction], offset: int = 1) -> list[Fraction]:
        """The argument of the layer in rational numbers, or with offset 0 its linear part."""

        def linear(k: int, h: list[Fraction]) -> list[Fraction]:
            rows, own = self.matrices[k].tolist(), self.offsets[k].tolist()
            products = (zip(map(Fraction, row), h, strict=True) for row in rows)
            sums = (sum(a * b for a, b in each) for each in products)
            return [a + offset * Fraction(b) for a, b in zip(sums, own, strict=True)]

        h = linear(0, x)
        for k in range(1, len(self.matrices)):
            mean, own = sum(h) / len(h), map(Fraction, self.offsets[k].tolist())
            centred = [(a - mean) * b for a, b in zip(h, own, strict=True)]
            h = [a + b for a, b in zip(centred, linear(k, centred), strict=True)]
        return h


@pytest.mark.parametrize("losing", [0, 1, 2, 3, None])
def test_rounding_within_a_stage_stays_within_its_bound(losing):
    model = Products(losing)
    program = capture(model, (2,), smooth=True)
    assert len(program.dense_moduli(0)[program.stages[0].live_out[0]]) > 2  # steps among them
    domain = sc.Domain.box(-1.0, 2.0)
    boxes, seen = SmoothCells.of(domain, 2, program.device).boxes, []
    with torch.no_grad():
        follow(program, domain, boxes, visit=lambda layer, argument, reach: seen.append(argument))
        (found,) = seen
        generator = torch.Generator().manual_seed(0)
        inside = boxes.half[0] * (2 * torch.rand(20, 2, generator=generator).double() - 1)
        x = domain.embed(Frame.of(domain).to_plane(boxes.center[0] + inside))
        made = next(z for _, z in program.walk(x))
    worst = 0.0
    for point, values in zip(x.tolist(), made.tolist(), strict=True):
        exact = model.exactly(list(map(Fraction, point)))
        off = [abs(float(a - Fraction(b))) for a, b in zip(exact, values, strict=True)]
        shares = [a / b for a, b in zip(off, found.rounding[0].tolist(), strict=True)]
        worst = max(worst, *shares)
    assert 1e-3 < worst <= 1
    axes = (Frame.of(domain).scale * domain.basis).tolist()
    for axis, tangents in zip(axes, found.tangents[:, 0].tolist(), strict=True):
        exact = model.exactly(list(map(Fraction, axis)), offset=0)
        for a, b, most in zip(exact, tangents, found.tilt[0].tolist(), strict=True):
            assert abs(float(a - Fraction(b))) <= most
