from __future__ import annotations

import random
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from exact_solids import Maxout, area_between, areas, cells
from splinecam._util.arrays import following, owners_of
from splinecam.errors import LimitError
from splinecam.geometry.solids import Solid
from splinecam.kernels.solid import cut_solid
from splinecam.network.capture import capture
from splinecam.solid import extract
from splinecam.solid.complex import AUXILIARY, Complex
from splinecam.solid.data import SurfaceData
from splinecam.solid.extract import _halves, surface_data
from splinecam.solid.faces import FlatFaces
from splinecam.solid.front import Front
from splinecam.testing.oracle.steps import Abs

ACTIVATIONS = {
    "relu": nn.ReLU,
    "leaky": partial(nn.LeakyReLU, 0.25),
    "abs": Abs,
    "clamp": nn.ReLU6,
    "maxout": partial(Maxout, 3),
}
KINDS = "normal", "lattice", "without biases", "duplicates"
BOXES = [
    sc.Domain.cube(-1, 1),
    sc.Domain.box3((-1, 0, -3), (1, 2, 2)),
    sc.Domain.tetrahedron([0.0, 0, 0], [2, 0, 0], [0.5, 2, 0], [0.3, 0.2, 1.7]),
]


def random_network(seed: int, kind: str, *, most: int = 4) -> nn.Sequential:
    """A small network, whose units may pass through vertices, coincide, or be dead."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    width = 3
    for _ in range(min(most - 1, draw.choice([1, 2, 2, 3]))):
        act, units = draw.choice([*ACTIVATIONS]), draw.randint(2, most)
        count = units * (3 if act == "maxout" else 1)
        layers += [_linear(width, count, kind), ACTIVATIONS[act]()]
        width = units
    return nn.Sequential(*layers, _linear(width, 1, kind))


def _linear(inputs: int, units: int, kind: str) -> nn.Linear:
    layer = nn.Linear(inputs, units, bias=kind != "without biases").double()
    with torch.no_grad():
        if kind == "lattice":
            layer.weight.copy_(torch.randint(-2, 3, layer.weight.shape))
            layer.bias.copy_(torch.randint(-2, 3, layer.bias.shape))
        if kind == "duplicates":
            for k, factor in enumerate([1.0, -1.0, 0.0][: units - 1], 1):
                layer.weight[k], layer.bias[k] = factor * layer.weight[0], factor * layer.bias[0]
    return layer


def mesh_is_closed(data: SurfaceData) -> bool:
    """Whether each side of a polygon has a neighbour, in the other direction, or is on the box."""
    v, V = data.face_vertices, data.vertices.shape[0]
    after = v[following(data.face_offsets, len(v))]
    there, count = torch.unique(v * V + after, return_counts=True)
    back, again = torch.unique(after * V + v, return_counts=True)
    number = torch.zeros(V * V if V * V < 10**8 else 0, dtype=torch.int64)
    assert len(number) or not V
    number[there] += count
    number[back] -= again
    open_ = (number[v * V + after] != 0) & (data.edge_layer != -1)
    return not bool(open_.any())


def sizes_of(data: SurfaceData) -> Tensor:
    """The areas of the polygons, positive where they are seen from the side of larger outputs."""
    v, x, offsets = data.face_vertices, data.vertices, data.face_offsets
    owner, after = owners_of(offsets.diff(), len(v)), v[following(offsets, len(v))]
    first = x[v[offsets[:-1]]][owner]
    whole = torch.zeros((len(offsets) - 1, 3), dtype=torch.float64)
    whole.index_add_(0, owner, torch.linalg.cross(x[v] - first, x[after] - first))
    along = (whole * data.gradients).sum(1).sign()
    return along * whole.norm(dim=1) / 2


def assert_exact(model: nn.Sequential, box: Solid, grid: int) -> None:
    """The cells and the surface of a small network are those of rational arithmetic."""
    program, found = capture(model, box.input_shape), cells(model, box)
    parts = sc.partition(model, box, progress=False)
    parts.validate(samples=200)
    expected = torch.tensor(sorted(float(cell.volume) for cell in found), dtype=torch.float64)
    volumes = parts.volumes.sort().values
    assert volumes.shape == expected.shape
    assert torch.allclose(volumes, expected, rtol=0, atol=1e-12 * float(expected.sum()))
    data = surface_data(program, box, grid=grid)
    sizes, areas_inside, beside = sizes_of(data), areas(found), area_between(found)
    if beside:
        assert float(sizes.abs().sum()) == pytest.approx(sum(areas_inside) + beside)
    else:
        assert torch.allclose(
            sizes.sort().values, torch.tensor(areas_inside, dtype=torch.float64), atol=1e-9
        )
    assert bool((sizes >= 0).all())
    assert mesh_is_closed(data)
    owner = owners_of(data.face_offsets.diff(), len(data.face_vertices))
    values = (data.gradients[owner] * data.vertices[data.face_vertices]).sum(1) + data.bias[owner]
    assert not len(values) or float(values.abs().max()) < 1e-11 * (1 + data.gradients.abs().max())
    assert not data.unresolved
    assert not parts.unresolved


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_cells_and_faces_are_those_of_rational_arithmetic(kind: str, seed: int) -> None:
    assert_exact(random_network(seed, kind, most=2), BOXES[seed % 3], 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(40))
def test_many_small_networks(kind: str, seed: int) -> None:
    assert_exact(random_network(seed, kind), BOXES[seed % 3], seed % 4)


class Skip(nn.Module):
    """Two layers with connections around them, a max-pooling, and a clamp."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        y = y + torch.clamp(self.second(y), -0.5, 0.5)
        pooled = nn.functional.max_pool1d(y[:, None], 3)[:, 0]
        return self.last(y) + torch.cat([pooled, x[:, :1]], 1)


def outputs(model: nn.Module, data: SurfaceData, box: Solid) -> Tensor:
    return model(box.to_input(data.vertices)).detach()


@pytest.mark.parametrize("pair", [(0, 1), (2, 0)])
def test_a_tie_of_two_outputs_of_a_network_with_skips(pair: tuple[int, int]) -> None:
    torch.manual_seed(3)
    model, box = Skip().double(), sc.Domain.cube(-2, 2)
    data = surface_data(capture(model, (3,)), box, output=pair, grid=2)
    y = outputs(model, data, box)
    assert float((y[:, pair[0]] - y[:, pair[1]]).abs().max()) < 1e-14
    assert mesh_is_closed(data)
    assert len(data.bias)
    whole = surface_data(capture(model, (3,)), box, output=pair, grid=0)
    assert len(whole.bias) == len(data.bias)
    assert float(sizes_of(whole).sum()) == pytest.approx(float(sizes_of(data).sum()), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_size_of_the_box_changes_nothing(scale: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 1))
    model = model.double()
    plain = surface_data(capture(model, (3,)), sc.Domain.cube(-1, 1), level=0.1)
    with torch.no_grad():
        model[0].weight /= scale
    scaled = surface_data(capture(model, (3,)), sc.Domain.cube(-scale, scale), level=0.1)
    assert torch.equal(plain.face_offsets, scaled.face_offsets)
    assert torch.allclose(plain.vertices, scaled.vertices / scale, atol=1e-12)


def test_a_tetrahedron_in_a_larger_space() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    box = sc.Domain.tetrahedron(*torch.randn(4, 5))
    level = float(model(box.to_input(box.corners.mean(0, keepdim=True))).detach())
    data = surface_data(capture(model, (5,)), box, level=level)
    assert len(data.bias)
    assert float((outputs(model, data, box) - level).abs().max()) < 1e-14
    assert mesh_is_closed(data)


def test_crossings_are_those_along_segments() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
    model = nn.Sequential(*model, nn.Linear(16, 1)).double()
    data = surface_data(capture(model, (3,)), sc.Domain.cube(-1, 1), level=-0.35)
    ends = torch.rand((2, 300, 3), dtype=torch.float64) * 2 - 1
    pieces = sc.along(model, sc.Domain.segments(*ends), progress=False)
    values = pieces.values.view(-1) + 0.35
    owner = owners_of(pieces.offsets.diff(), len(values))
    changes = ((values[1:] >= 0) != (values[:-1] >= 0)) & (owner[1:] == owner[:-1])
    assert int(changes.sum()) == _crossings(data, *ends)
    assert int(changes.sum()) > 5


def _crossings(data: SurfaceData, a: Tensor, b: Tensor) -> int:
    """How often segments pass through polygons, which are convex."""
    v, offsets = data.face_vertices, data.face_offsets
    x, after = data.vertices, following(offsets, len(v))
    owner = owners_of(offsets.diff(), len(v))
    count = 0
    for p, q in zip(a, b, strict=True):
        start, end = (data.gradients @ r + data.bias + 0.35 for r in (p, q))
        hit = p + (start / (start - end))[:, None] * (q - p)
        inside = torch.linalg.cross(x[v[after]] - x[v], hit[owner] - x[v])
        left = (inside * data.gradients[owner]).sum(1) >= 0
        least = torch.ones(len(start), dtype=torch.int64)
        least.scatter_reduce_(0, owner, left.long(), "amin")
        count += int((least.bool() & (start * end < 0)).sum())
    return count


def test_an_output_that_is_zero_in_a_region_is_reported() -> None:
    model = nn.Sequential(nn.Linear(3, 1), nn.ReLU(), nn.Linear(1, 1)).double()
    with torch.no_grad():
        for parameter, value in zip(
            model.parameters(), ([1.0, 2, 0.5], 0.125, -1.0, 0), strict=True
        ):
            parameter.copy_(torch.tensor(value))
    data = surface_data(capture(model, (3,)), sc.Domain.cube(-1, 1), grid=0)
    assert data.report["flat cells"] == 1
    assert len(data.bias) == 1
    assert float(sizes_of(data)) > 0
    assert float((data.vertices @ torch.tensor([1.0, 2, 0.5]).double() + 0.125).abs().max()) < 1e-15


def test_an_output_without_the_level_has_no_surface() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    data = surface_data(capture(model, (3,)), sc.Domain.cube(-1, 1), level=1e3)
    assert data.vertices.shape == (0, 3)
    assert data.report["dropped"] > 0


def test_memory_is_a_limit() -> None:
    model = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 1)).double()
    with pytest.raises(LimitError, match="memory="):
        sc.surface(model, sc.Domain.cube(-1, 1), memory="10KB")


@pytest.mark.parametrize("kind", ["relu", "leaky", "maxout"])
def test_parts_of_the_box_make_the_same_surface(kind: str) -> None:
    torch.manual_seed(0)
    act, units = ACTIVATIONS[kind](), 12 if kind != "maxout" else 6
    wide = 3 * units if kind == "maxout" else units
    layers = [nn.Linear(3, wide), act, nn.Linear(units, wide), act, nn.Linear(units, 1)]
    model, box = nn.Sequential(*layers).double(), sc.Domain.cube(-1, 1)
    level = float(model(torch.zeros((1, 3)).double()).detach())
    whole = sc.surface(model, box, level=level)
    parts = sc.surface(model, box, level=level, memory="500KB")
    assert parts.report()["largest"] < whole.report()["largest"] / 2
    for name in ("faces", "vertices", "edges", "open edges", "components", "euler", "kept"):
        assert parts.report()[name] == whole.report()[name]
    assert parts.unresolved == ()
    assert parts.area == pytest.approx(whole.area, rel=1e-13)
    assert parts.volume == pytest.approx(whole.volume, rel=1e-13)
    torch.testing.assert_close(parts.areas.sort().values, whole.areas.sort().values)
    parts.validate(segments=50)


def test_parts_are_divided_again_as_they_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    layers = [nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)]
    model, box = nn.Sequential(*layers).double(), sc.Domain.cube(-1, 1)
    level = float(model(torch.zeros((1, 3)).double()).detach())
    whole, seen = sc.surface(model, box, level=level), []

    def noted(front: Front, planes: Tensor) -> tuple[Front, Front] | None:
        found = _halves(front, planes)
        seen.append((front.index, found is None))
        if found is not None:
            one, other = (half.complex.uvw for half in found)
            assert len(one) + len(other) > front.complex.num_vertices  # the seam belongs to both
        return found

    monkeypatch.setattr(extract, "_USUAL", 100_000)
    monkeypatch.setattr(extract, "_halves", noted)
    parts = sc.surface(model, box, level=level)
    assert {(0, False), (1, False)} <= set(seen)
    parts.validate(segments=50)
    assert len(parts) == len(whole)
    assert parts.area == pytest.approx(whole.area, rel=1e-13)


def test_no_array_is_made_on_the_default_device() -> None:
    program, box = (
        capture(nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 1)), (3,)),
        BOXES[0],
    )
    plain = surface_data(program, box, level=0.1, memory=10**6)
    with torch.device("meta"):
        other = surface_data(program, box, level=0.1, memory=10**6)
    assert torch.equal(other.vertices, plain.vertices)


def test_seams_that_do_not_match_are_found() -> None:
    """Two squares with a common side, along which a grid has divided a rectangle."""
    uvw = torch.tensor([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]).double()
    corner, layers = torch.arange(4), torch.full((4,), 7)
    ends = torch.stack([corner, corner.roll(-1)], 1)
    halves = []
    for shift, side in ((0.0, 1), (1.0, 3)):
        layer = layers.clone()
        layer[side] = AUXILIARY
        points = uvw + torch.tensor([shift, 0, 0])
        offsets, group = torch.tensor([0, 4]), torch.tensor([0])
        halves.append(FlatFaces(points, ends, corner, corner, layer, offsets, group))
    pieces = FlatFaces.together(halves, 1e-12)
    assert not len(pieces.lacking())
    assert pieces.joined().offsets.tolist() == [0, 4]
    halves[1].uvw[3, 1] += 1e-3
    torn = FlatFaces.together(halves, 1e-12)
    assert torn.lacking()[:, 0].tolist() == [1.0, 1.0]
    assert torn.joined().offsets.tolist() == [0, 4, 8]


def test_what_is_no_box_or_no_output_is_refused() -> None:
    model, box = nn.Linear(3, 2), sc.Domain.cube(-1, 1)
    with pytest.raises(TypeError, match=r"Domain\.cube"):
        sc.surface(model, sc.Domain.box(-1, 1))
    with pytest.raises(IndexError, match="2 outputs"):
        sc.surface(model, box, output=2)
    with pytest.raises(ValueError, match="different"):
        sc.surface(model, box, output=(1, 1))
    with pytest.raises(sc.CaptureError, match="smooth"):
        sc.surface(nn.Sequential(model, nn.GELU(), nn.Linear(2, 1)), box)
    with pytest.raises(sc.DomainError, match="one plane"):
        sc.Domain.tetrahedron([0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0])
    with pytest.raises(sc.DomainError, match="below"):
        sc.Domain.box3((0, 0, 1), (1, 1, 0))


def test_arrays_that_do_not_fit_together_are_refused() -> None:
    whole = Complex.of(sc.Domain.cube(-1, 1))
    wrong = whole.arrays._replace(corners=whole.arrays.corners + 1000)
    z = whole.uvw[:, :1].contiguous()
    zero = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(MemoryError, match="malformed"):
        cut_solid(wrong, z, z[0] * 0, zero, 0)


def test_a_face_that_bends_where_three_units_of_a_maximum_are_equal_is_not_one() -> None:
    weights = [
        "-2 2 2 -1 -1 1 0 0 1 1 2 0 2 -1 1 2 2 0 0 1 0 -1 -1 -2 -2 1 0",
        "-2 2 1 -1 1 1 0 -1 1 1 1 0 2 2 1 1 1 0 0 -2 0 -2 -2 0 1 -2 0 1 0 -1 1 1 -2 0 -1 1",
        "1 0 2 -2",
    ]
    biases = "-2 -1 0 0 -2 -1 2 1 1", "2 2 1 0 1 -1 0 -1 -1 1 0 1", "1"
    layers = [nn.Linear(3, 9), nn.Linear(3, 12), nn.Linear(4, 1)]
    for layer, weight, bias in zip(layers, weights, biases, strict=True):
        layer.weight.data = torch.tensor([*map(float, weight.split())]).view_as(layer.weight)
        layer.bias.data = torch.tensor([*map(float, bias.split())])
    model = nn.Sequential(layers[0], Maxout(3), layers[1], Maxout(3), layers[2]).double()
    found = sc.surface(model, sc.Domain.cube(-1, 1), progress=False)
    assert found.validate(segments=50).checks
    assert found.areas.sort().values.tolist() == pytest.approx(areas(cells(model, BOXES[0])))
