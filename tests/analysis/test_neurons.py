"""The curves of units: known ones, and that units really switch there and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

import splinecam as sc
from splinecam._util.backend import using
from splinecam._util.tolerances import SAFETY
from splinecam.network.nonlinearities import MaxNonlinearity, SortNonlinearity
from splinecam.network.ops import register
from splinecam.nn import GroupSort, Maxout, PiecewiseLinear
from splinecam.questions import neurons as module
from splinecam.questions.neurons import NeuronCurves
from strategies import Net, dense, domains, examples, maxima_nets, mlp, nets


def partition(model: nn.Module, domain: sc.Domain | None = None) -> sc.Partition:
    domain = sc.Domain.box(-1, 1) if domain is None else domain
    return sc.partition(model, domain, device="cpu", progress=False)


def lengths(curves: NeuronCurves) -> dict[tuple[str, int], float]:
    """Length by layer and unit."""
    names = curves.partition.layers
    pairs = [(names[layer], unit) for layer, unit in curves.units.tolist()]
    return dict(zip(pairs, curves.unit_lengths.tolist(), strict=True))


def assert_on(curves: NeuronCurves, axis: int, *places: float) -> None:
    """All segments lie on lines through these places of an axis, and each line has some."""
    found = curves.ends[:, :, axis]
    assert len(curves)
    assert torch.equal(found[:, 0], found[:, 1])
    assert sorted(set(found.flatten().tolist())) == pytest.approx(sorted(places), abs=1e-15)


def assert_oriented(curves: NeuronCurves) -> None:
    """Left and right regions lie left and right, and the higher piece is left."""
    part = curves.partition
    start, end = curves.ends.unbind(1)
    along = end - start
    across = torch.stack([-along[:, 1], along[:, 0]], 1)
    left, right = (part.centroids[side] for side in curves.regions.unbind(1))
    assert bool((((left - start) * across).sum(1) > 0).all())
    assert bool((((right - start) * across).sum(1) < 0).all())
    patterns = part.patterns()
    for layer, name in enumerate(part.layers):
        one = part._network.layers[layer]
        if isinstance(one, SortNonlinearity):
            continue  # a unit is in several pairs
        rows = (curves.layer == layer).nonzero()[:, 0]
        sides = curves.regions[rows].unbind(1)
        high, low = (patterns[name][side, curves.unit[rows]] for side in sides)
        assert bool((high >= low).all())


# ------------------------------------------------------------------------------- known curves


def test_one_line() -> None:
    part = partition(nn.Sequential(dense([[1, 0]], [-0.25]), nn.ReLU()))
    curves = part.neurons(layer="1", unit=0)
    assert_on(curves, 0, 0.25)
    assert curves.length == pytest.approx(2.0)
    assert curves.ends[0, :, 1].tolist() == [1.0, -1.0]  # the active side is on the left
    assert curves.key(int(curves.label[0])) == ("1", 0)
    assert repr(curves) == "NeuronCurves(1 unit of '1', 1 segment, 1 polyline, length 2)"


def test_absolute_values_bend_on_the_axes() -> None:
    weight = [[1, 0], [-1, 0], [0, 1], [0, -1]]
    model = nn.Sequential(dense(weight), nn.ReLU(), dense([[1, 1, 1, 1]]))
    part = partition(model)
    assert len(part) == 4
    curves = part.neurons()
    assert lengths(curves) == pytest.approx({("1", unit): 2.0 for unit in range(4)})
    for unit in range(4):  # edges name units 0 and 2; the other two switch there as well
        own = part.neurons(layer=0, unit=unit)
        assert_on(own, unit // 2, 0.0)
        assert len(own) == 2
    assert_oriented(curves)
    first, opposite = (curves.of(unit=unit) for unit in (0, 1))
    assert torch.equal(first.regions, opposite.regions.flip(1))


def test_a_unit_twice_has_two_equal_curves() -> None:
    row = [0.3, -0.7]
    part = partition(
        nn.Sequential(dense([row, [2 * x for x in row], row], [0.1, 0.2, 0.1]), nn.ReLU())
    )
    assert part.mesh.num_faces == 2
    found = [part.neurons(unit=unit) for unit in range(3)]
    for curves in found:
        assert torch.equal(curves.ends, found[0].ends)
        assert torch.equal(curves.regions, found[0].regions)


def test_a_later_unit_bends_on_an_earlier_line() -> None:
    # relu(x) - 0 * relu(y) of the second layer is positive exactly right of the first one's line
    model = nn.Sequential(
        dense([[1, 0], [0, 1]]), nn.ReLU(), dense([[1, 0], [1, -1]]), nn.ReLU(), dense([[1, 1]])
    )
    part = partition(model)
    curves = part.neurons()
    assert_on(curves.of(layer="3", unit=0), 0, 0.0)
    assert curves.of(layer="3", unit=0).length == pytest.approx(2.0)
    # relu(x) > relu(y): the diagonal, and the line x = 0 below the axis
    assert curves.of(layer="3", unit=1).length == pytest.approx(2**0.5 + 1)
    assert_oriented(curves)


def test_relu_of_relu_switches_where_the_first_does() -> None:
    part = partition(nn.Sequential(dense([[1, 1]]), nn.ReLU(), nn.ReLU()))
    first, second = (part.neurons(layer=layer) for layer in (0, 1))
    assert first.length == pytest.approx(8**0.5)
    assert torch.equal(first.ends, second.ends)
    assert torch.equal(first.regions, second.regions)


def test_hardtanh_has_two_parallel_lines_of_one_unit() -> None:
    part = partition(nn.Sequential(dense([[2, 0]]), nn.Hardtanh()))
    curves = part.neurons(unit=0)
    assert_on(curves, 0, -0.5, 0.5)
    assert curves.units.tolist() == [[0, 0]]
    assert curves.unit_lengths.tolist() == pytest.approx([4.0])
    assert len(curves.polylines) == 2
    assert_oriented(curves)


def test_a_periodic_function_has_a_line_for_every_knot() -> None:
    wave = PiecewiseLinear([0.0, 0.5, 1.0], [0.0, 1.0, 0.0], extrapolate="periodic")
    part = partition(nn.Sequential(dense([[1, 0], [0.1, 0]], [0.0, 0.25]), wave))
    assert_on(part.neurons(unit=0), 0, -0.5, 0.0, 0.5)
    assert len(part.neurons(unit=1)) == 0
    assert part.fixed_units()["1"].tolist() == [-1, 1]
    before = partition(nn.Sequential(dense([[0.1, 0], [0.1, 0]], [-0.25, -0.75]), wave))
    assert before.patterns()["1"].tolist() == [[0, -1]]
    assert before.fixed_units()["1"].tolist() == [0, 1]  # -1 would say that it switches


def test_the_unit_of_a_maximum_is_its_group() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Maxout(2, 3, 4), nn.Linear(3, 1)).double()
    part = partition(model, sc.Domain.box(-4, 4))
    curves = part.neurons()
    assert set(curves.unit.tolist()) <= {0, 1, 2}
    winner = part.patterns()[part.layers[0]]
    left, right = (winner[side, curves.unit] for side in curves.regions.unbind(1))
    assert bool((left != right).all())
    assert len(curves) == int((part.mesh.edge_layer >= 0).sum())
    with pytest.raises(IndexError, match="units are 0 to 2"):
        part.neurons(unit=3)


def test_maximum_of_three_planes_meets_in_a_point() -> None:
    model = nn.Sequential(dense([[1, 0], [-1, 0], [0, 2]]), nn.Unflatten(1, (1, 3)), Largest())
    curves = partition(model).neurons(unit=0)
    assert len(curves) == 3
    assert len(curves.polylines) == 3  # they meet in the origin
    assert curves.length == pytest.approx(1 + 2 * 1.25**0.5)


class Largest(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.amax(2)


def test_sorted_units_switch_in_pairs_named_by_the_first() -> None:
    # pairs of the group: 0 and 1 where x = y, 0 and 2 where x = 0.5, 1 and 2 where y = 0.5
    part = partition(nn.Sequential(dense([[1, 0], [0, 1], [0, 0]], [0, 0, 0.5]), GroupSort(3)))
    curves = part.neurons()
    expected = {0: 8**0.5 + 2, 1: 2.0}
    assert lengths(curves) == pytest.approx({(part.layers[0], u): x for u, x in expected.items()})
    assert_on(part.neurons(unit=1), 1, 0.5)
    assert len(part.neurons(unit=2)) == 0


def test_a_registered_operation_switches_where_its_functions_vanish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(register, "_CLASSES", dict(register._CLASSES))

    class Fold(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x > 0.5, 1 - x, x)

    sc.register_op(Fold, cuts=lambda module, x: x - 0.5)
    part = partition(nn.Sequential(dense([[1, 0], [0, 1], [0, 0]]), Fold()))
    assert_on(part.neurons(unit=0), 0, 0.5)
    assert_on(part.neurons(unit=1), 1, 0.5)
    assert part.fixed_units()[part.layers[0]].tolist() == [-1, -1, 0]


def test_units_that_never_switch() -> None:
    model = nn.Sequential(
        dense([[1, 0], [0, 1], [1, 1], [0, 0], [1, 0]], [-5, 5, 0, 0, -1]), nn.ReLU()
    )
    part = partition(model)
    # the last one is negative but for the domain's border
    assert part.fixed_units()["1"].tolist() == [0, 1, -1, 0, 0]
    assert part.neurons().units.tolist() == [[0, 2]]


def test_an_affine_network_has_no_curves() -> None:
    part = partition(nn.Sequential(dense([[1, 2]])))
    assert len(part.neurons()) == 0
    assert part.neurons().units.shape == (0, 2)
    assert part.fixed_units() == {}
    with pytest.raises(IndexError, match="affine"):
        part.neurons(layer=0)


def test_one_region_has_no_curves() -> None:
    part = partition(nn.Sequential(dense([[1, 0], [0, 1]], [7, -7]), nn.ReLU()))
    assert len(part) == 1
    assert len(part.neurons()) == len(part.neurons(layer=0, unit=1)) == 0
    assert part.fixed_units()["1"].tolist() == [1, 0]


# ------------------------------------------------------------------------------- random ones


def preactivations(model: nn.Module, x: Tensor) -> list[Tensor]:
    """What goes into each ReLU of the real model."""
    seen: list[Tensor] = []

    def look(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        seen.append(args[0].flatten(1))

    hooks = [m.register_forward_pre_hook(look) for m in model.modules() if type(m) is nn.ReLU]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.fixture(scope="module", params=[(2, 24, 24, 24, 3), (2, 40, 1), (2, 6, 6, 6, 6, 6, 2)])
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, sc.Partition, NeuronCurves]:
    model = mlp(*request.param, seed=len(request.param))
    part = partition(model, sc.Domain.box(-3, 3))
    return model, part, part.neurons()


Case = tuple[nn.Module, sc.Partition, NeuronCurves]


def test_units_are_zero_on_their_curves(case: Case) -> None:
    model, part, curves = case
    middle = part.domain.embed(curves.ends.mean(1))
    for layer, z in enumerate(preactivations(model, middle)):
        rows = (curves.layer == layer).nonzero()[:, 0]
        own = z[rows, curves.unit[rows]].abs()
        assert bool(
            (own <= SAFETY * part._layer_errors[part.layers[layer]][curves.unit[rows]]).all()
        )


def test_all_inner_edges_are_covered(case: Case) -> None:
    _, part, curves = case
    inner = part._edge_faces[(part.mesh.edge_layer >= 0).nonzero()[:, 0]].sort(1).values
    covered = torch.unique(curves.regions.sort(1).values, dim=0)
    assert torch.equal(covered, torch.unique(inner, dim=0))
    assert bool((curves.regions >= 0).all())
    assert_oriented(curves)


def test_curves_are_at_least_the_edges_that_a_unit_drew(case: Case) -> None:
    _, part, curves = case
    ends = part.vertices[part.mesh.edges]
    length = (ends[:, 1] - ends[:, 0]).norm(dim=1)
    for (name, unit), found in lengths(curves).items():
        own = (part.mesh.edge_layer == part.layers.index(name)) & (part.mesh.edge_unit == unit)
        assert found >= float(length[own].sum()) * (1 - 1e-12)


def test_the_choice_of_a_layer_and_units_is_the_same_as_of_curves(case: Case) -> None:
    _, part, curves = case
    for layer in (0, -1, part.layers[0]):
        for unit in (None, 1, [0, 3, 3], torch.tensor([2])):
            direct, chosen = part.neurons(layer=layer, unit=unit), curves.of(layer=layer, unit=unit)
            assert torch.equal(direct.ends, chosen.ends)
            assert torch.equal(direct.label, chosen.label)
            assert torch.equal(direct.regions, chosen.regions)
            assert len(direct.points) == len(torch.unique(direct.segments))


def test_first_layer_units_are_one_straight_line(case: Case) -> None:
    model, _, curves = case
    first = curves.of(layer=0)
    for label in torch.unique(first.label).tolist():
        one = first.of(layer=0, unit=first.key(label)[1])
        (line,) = one.polylines
        assert not line.closed
        chord = (line.points[-1] - line.points[0]).norm()
        assert line.length == pytest.approx(float(chord), rel=1e-12)
        border = (line.points[[0, -1]].abs() - 3).abs().amin(1)
        assert bool((border <= 1e-14).all())
        z = (
            line.points @ model[0].weight[one.unit[0]].detach()
            + model[0].bias[one.unit[0]].detach()
        )
        assert float(z.abs().max()) <= 1e-13


def test_fixed_units_agree_with_samples_and_curves(case: Case) -> None:
    model, part, curves = case
    fixed = part.fixed_units()
    x = part.domain.embed(part.centroids)
    for layer, z in enumerate(preactivations(model, x)):
        on = (z > 0).long()
        expected = torch.where(on.amin(0) == on.amax(0), on.amin(0), -1)
        assert torch.equal(fixed[part.layers[layer]], expected)
        switching = (expected == -1).nonzero()[:, 0]
        assert torch.equal(curves.units[curves.units[:, 0] == layer, 1], switching)


def test_blocks_and_strips_change_nothing(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    _, part, curves = case
    fixed = part.fixed_units()
    monkeypatch.setattr(module, "_TABLE", 4000)
    with using(numbers=1500):
        again, fixed_again = part.neurons(), part.fixed_units()
    for name in ("points", "segments", "regions", "label"):
        assert torch.equal(getattr(again, name), getattr(curves, name))
    for name, pieces in fixed_again.items():
        assert torch.equal(pieces, fixed[name])


def at_border(curves: NeuronCurves) -> Tensor:
    """Whether each segment's unit is between two pieces in the segment's middle, (S,)."""
    part = curves.partition
    middles = part.domain.embed(curves.ends.mean(1))
    sources = {layer.name: z for layer, z in part._network.walk(middles)}
    found = torch.zeros(len(curves), dtype=torch.bool)
    for layer, one in enumerate(part._network.layers):
        z, slack = sources[one.name], SAFETY * part._layer_errors[one.name]
        if isinstance(one, MaxNonlinearity):
            between = one.winners(z, slack).sum(2) > 1
        else:
            between = one.pieces(z, slack) != one.pieces(z, -slack)
        if isinstance(one, SortNonlinearity):
            first = one.pairs[0].expand_as(between)
            many = torch.zeros(len(z), len(slack), dtype=torch.int64)
            between = many.scatter_add_(1, first, between.long()) > 0
        rows = (curves.layer == layer).nonzero()[:, 0]
        found[rows] = between[rows, curves.unit[rows]]
    return found


@examples(40)
@given(st.one_of(nets(), maxima_nets(depth=2)), domains())
def test_units_switch_on_their_curves_and_only_there(net: Net, domain: sc.Domain) -> None:
    part = partition(net.module(), domain)
    assume(not part.unresolved)
    curves = part.neurons()
    inner = (part.mesh.edge_layer >= 0).nonzero()[:, 0]
    assert len(curves) >= len(inner)
    if len(curves):
        assert bool(at_border(curves).all())
        assert_oriented(curves)
    # every drawn edge is in the curve of the unit that drew it
    own = torch.stack([part.mesh.edge_layer[inner], part.mesh.edge_unit[inner]], 1)
    faces = part._edge_faces[inner].sort(1).values
    wanted = torch.cat([own, faces], 1).tolist()
    found = torch.cat(
        [curves.layer[:, None], curves.unit[:, None], curves.regions.sort(1).values], 1
    ).tolist()
    assert set(map(tuple, wanted)) <= set(map(tuple, found))
    assert len(set(map(tuple, found))) == len(found)


# ------------------------------------------------------------------------------- names


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(2, 2, 3, padding=1) for _ in range(2))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(x + self.conv2(self.relu(self.conv1(x))))
        return y


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU())
        self.block, self.pool, self.head = Block(), nn.MaxPool2d(2), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.pool(self.block(self.stem(x))).flatten(1))
        return y


@pytest.fixture(scope="module")
def image() -> tuple[nn.Module, sc.Partition]:
    torch.manual_seed(0)
    model = Image().double().eval()
    return model, partition(model, sc.Domain.around(torch.randn(1, 4, 4), side=4.0, seed=0))


def test_names_of_a_convolutional_network(image: tuple[nn.Module, sc.Partition]) -> None:
    _, part = image
    assert part.layers == ("stem.1", "block.relu", "block.relu#2", "pool")
    curves = part.neurons()
    assert set(curves.layer.tolist()) == {0, 1, 2, 3}
    for layer, name in enumerate(part.layers):
        one = part.neurons(layer=name)
        assert set(one.layer.tolist()) == {layer}
        assert torch.equal(one.ends, curves.of(layer=layer).ends)
        assert {one.key(label)[0] for label in one.label.tolist()} == {name}
    assert torch.equal(part.neurons(layer="stem").ends, part.neurons(layer="stem.1").ends)
    assert torch.equal(part.neurons(layer=-1).ends, part.neurons(layer="pool").ends)
    assert {key[0]: len(x) for key, x in part.fixed_units().items()} == {"s": 32, "b": 32, "p": 8}
    assert bool(at_border(curves).all())
    assert_oriented(curves)


def test_units_of_convolutions_are_zero_on_their_curves(
    image: tuple[nn.Module, sc.Partition],
) -> None:
    model, part = image
    curves = part.neurons(layer="block.relu#2")
    z = preactivations(model, part.domain.embed(curves.ends.mean(1)))[2]
    own = z.gather(1, curves.unit[:, None])[:, 0].abs()
    assert bool((own <= SAFETY * part._layer_errors["block.relu#2"][curves.unit]).all())


@pytest.mark.parametrize(
    ("choice", "error", "message"),
    [
        ({"layer": "conv9"}, sc.SplineCamError, "no layer is called 'conv9'; give one of 'stem.1'"),
        ({"layer": "block"}, sc.SplineCamError, "2 layers are called 'block'; give one of"),
        ({"layer": "ste"}, sc.SplineCamError, "no layer is called 'ste'"),
        ({"layer": 4}, IndexError, "layer 4 of 4 layers: 'stem.1', "),
        ({"layer": -5}, IndexError, "layer -5 of 4 layers"),
        ({"layer": 1.5}, TypeError, "layer must be the name or the number"),
        (
            {"layer": "pool", "unit": 8},
            IndexError,
            "unit 8 of layer 'pool', whose units are 0 to 7",
        ),
        ({"layer": 0, "unit": [0, 32]}, IndexError, "unit 32 of layer 'stem.1'"),
        ({"layer": 0, "unit": -1}, IndexError, "unit -1 of layer 'stem.1'"),
        ({"layer": 0, "unit": 0.5}, TypeError, "whole numbers"),
        ({"layer": 0, "unit": [True]}, TypeError, "whole numbers"),
        ({"unit": 3}, ValueError, "unit 3 of which layer"),
    ],
)
def test_wrong_choices_are_explained(
    image: tuple[nn.Module, sc.Partition],
    choice: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        image[1].neurons(**choice)


def test_no_units_have_no_curves(image: tuple[nn.Module, sc.Partition]) -> None:
    assert len(image[1].neurons(layer=0, unit=[])) == 0


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("last", [nn.ReLU(), GroupSort(3)])
def test_cuda_gives_the_same_curves(last: nn.Module) -> None:
    model = nn.Sequential(mlp(2, 16, 16, 12), last, Maxout(12, 2, 3)).double()
    here, there = (
        sc.partition(model, sc.Domain.box(-2, 2), device=device, progress=False)
        for device in ("cpu", "cuda")
    )
    assert lengths(there.neurons()) == pytest.approx(lengths(here.neurons()), rel=1e-9)
    one = there.neurons(layer=1, unit=[2, 3])
    assert one.points.device.type == one.label.device.type == "cuda"
    assert {one.key(label)[1] for label in one.label.tolist()} <= {2, 3}
    for name, pieces in there.fixed_units().items():
        assert torch.equal(pieces.cpu(), here.fixed_units()[name])


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(2, 8), nn.Linear(8, 5), nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.fc1(x))
        return self.fc3(torch.relu(self.fc2(x)))


def test_a_function_is_named_by_the_module_before_it() -> None:
    torch.manual_seed(0)
    part = sc.partition(Functional(), sc.Domain.box(-2, 2), device="cpu", progress=False)
    assert part.layers == ("relu", "relu_1")
    assert torch.equal(part.neurons(layer="fc2").label, part.neurons(layer="relu_1").label)
    assert torch.equal(part.neurons(layer="fc1").label, part.neurons(layer=0).label)
    with pytest.raises(sc.SplineCamError, match="no layer is called 'fc3'"):
        part.neurons(layer="fc3")


def test_of_one_layer_and_the_longest() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU())
    part = sc.partition(model, sc.Domain.box(-5, 5), progress=False)
    first = part.neurons(layer=0)
    assert first.of(unit=3).unit.tolist() == [3] * len(part.neurons(layer=0, unit=3))
    longest = first.longest()
    assert torch.unique(longest.label).numel() == 1
    assert longest.length == pytest.approx(float(first.unit_lengths.max()))
    with pytest.raises(ValueError, match="of which layer"):
        part.neurons().of(unit=3)
    assert len(first.select(first.label < 0).longest()) == 0
