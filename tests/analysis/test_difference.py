"""Differences of two networks against exact fractions, random points, and the models."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from exact_boundaries import exact_difference
from splinecam.engine import run as engine
from splinecam.engine.tiling import MeshTile
from splinecam.geometry.subdivision import Mesh

F64 = torch.float64


def mlp(*sizes: int, seed: int = 0, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [layer for n, m in pairwise(sizes) for layer in (nn.Linear(n, m), activation())]
    return nn.Sequential(*layers[:-1])


def quantised(model: nn.Module, levels: int = 7) -> nn.Module:
    """Weights rounded to a few levels of each tensor."""
    other = copy.deepcopy(model)
    for weight in other.parameters():
        step = weight.detach().abs().max() / levels
        weight.data = (weight.data / step).round() * step
    return other


def pruned(model: nn.Module, share: float = 0.3) -> nn.Module:
    """The smallest weights of each matrix are zero; many units stay as they are."""
    other = copy.deepcopy(model)
    for weight in other.parameters():
        if weight.dim() > 1:
            limit = weight.detach().abs().flatten().kthvalue(int(share * weight.numel()) + 1).values
            weight.data[weight.detach().abs() < limit] = 0
    return other


def tuned(model: nn.Module) -> nn.Module:
    """Only the last layer differs."""
    other = copy.deepcopy(model)
    last = list(other.parameters())[-2]
    last.data += 0.1 * torch.randn(last.shape, generator=torch.Generator().manual_seed(1))
    return other


def permuted(model: nn.Sequential) -> nn.Sequential:
    """The same function, with the hidden units in another order."""
    other = copy.deepcopy(model)
    linear = [module for module in other if isinstance(module, nn.Linear)]
    for before, after in pairwise(linear):
        order = torch.randperm(before.out_features, generator=torch.Generator().manual_seed(2))
        before.weight.data, before.bias.data = before.weight.data[order], before.bias.data[order]
        after.weight.data = after.weight.data[:, order]
    return other


def difference(a: nn.Module, b: nn.Module, half: float = 2.0) -> sc.results.Difference:
    return sc.difference(a, b, sc.Domain.box(-half, half), device="cpu", progress=False)


def check(diff: sc.results.Difference) -> None:
    """All four views of the common partition are valid, and have the same regions."""
    for part in (diff.partition, diff.a, diff.b, diff.delta):
        assert part.validate().ok
        assert part.mesh.edges.equal(diff.partition.mesh.edges)
    assert not diff.unresolved
    values = torch.cat([diff.a.values, diff.b.values], 1)
    assert diff.partition.values.equal(values)
    assert diff.delta.values.equal(diff.a.values - diff.b.values)


def random_inputs(count: int, half: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return half * (2 * torch.rand(count, 2, generator=generator, dtype=F64) - 1)


SMALL = mlp(2, 5, 4, 3, seed=4)
PAIRS = {
    "quantised": (SMALL, quantised(SMALL)),
    "pruned": (SMALL, pruned(SMALL)),
    "last layer tuned": (SMALL, tuned(SMALL)),
    "distilled": (SMALL, mlp(2, 4, 3, seed=5)),
    "deeper": (mlp(2, 4, 3, seed=5), SMALL),
    "other activation": (SMALL, mlp(2, 5, 3, seed=6, activation=nn.LeakyReLU)),
    "permuted": (SMALL, permuted(SMALL)),
    "equal": (SMALL, copy.deepcopy(SMALL)),
    "one output": (mlp(2, 5, 4, 1, seed=7), mlp(2, 5, 1, seed=8)),
    "affine": (nn.Linear(2, 2), nn.Linear(2, 2)),
    "affine and not": (nn.Linear(2, 3), SMALL),
    "no biases": (
        nn.Sequential(nn.Linear(2, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False)),
        nn.Sequential(nn.Linear(2, 5, bias=False), nn.ReLU(), nn.Linear(5, 2, bias=False)),
    ),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", PAIRS)
def test_agrees_with_exact_fractions(name: str) -> None:
    a, b = PAIRS[name]
    diff = difference(a, b)
    check(diff)
    exact = exact_difference(a, b, diff.delta.domain)
    n = len(exact.largest)
    if name != "permuted":
        assert len(diff) == exact.cells
    for k in range(n):
        found = diff.largest(output=k)
        assert abs(found.value - exact.largest[k]) <= found.error
        assert abs(float(diff.maxima[k]) - exact.largest[k]) <= found.error
    for norm, truth in ((1, exact.norm_1), (math.inf, exact.norm_inf)):
        found = diff.largest(norm)
        assert abs(found.value - truth) <= found.error
    assert diff.largest(2).value == pytest.approx(math.sqrt(exact.square_2), abs=1e-13)
    for column, exacts in ((diff.mean, exact.mean), (diff.bias, exact.bias)):
        assert column.tolist() == pytest.approx(list(map(float, exacts)), abs=1e-14)
    assert diff.rms.square().tolist() == pytest.approx(
        list(map(float, exact.mean_square)), abs=1e-14
    )
    areas = [[float(area) for area in row] for row in exact.areas]
    torch.testing.assert_close(
        diff.disagreement.areas, torch.tensor(areas, dtype=F64), rtol=0, atol=1e-12
    )


def test_equal_networks_differ_by_exactly_zero() -> None:
    model = mlp(2, 20, 20, 4)
    other = mlp(2, 20, 20, 4)
    diff = difference(model, other)
    check(diff)
    assert diff.partition.layers == ("both.1", "both.3")
    assert bool((diff.delta.values == 0).all())
    assert float(diff.error.max()) == 0
    for norm in (1, 2, "inf"):
        found = diff.largest(norm)
        assert found.value == found.error == found.measured == 0
    assert diff.mean.tolist() == diff.rms.tolist() == diff.bias.tolist() == [0.0] * 4
    assert diff.disagreement.area == 0
    assert diff.disagreement.pairs() == {}
    assert len(diff) == len(sc.partition(model, diff.delta.domain, device="cpu", progress=False))


def test_units_in_another_order_are_the_same_function() -> None:
    model = mlp(2, 16, 16, 3)
    diff = difference(model, permuted(model))
    check(diff)
    assert diff.largest().value == diff.largest().error == 0
    assert diff.disagreement.area == 0
    own = sc.partition(model, diff.delta.domain, device="cpu", progress=False)
    assert len(diff) == len(own)


class Skip(nn.Module):
    """A network that is no chain, so that it is not stacked."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + x.sum(1, keepdim=True)


def test_rounding_leaves_differences_within_the_bound() -> None:
    model = mlp(2, 16, 16, 3)
    diff = difference(Skip(model), Skip(permuted(model)))
    check(diff)
    assert 0 < float(diff.maxima.max()) <= float(diff.error.max()) < 1e-12
    assert diff.disagreement.area < 1e-12
    own = sc.partition(Skip(model), diff.delta.domain, device="cpu", progress=False)
    assert len(diff) == len(own)


@pytest.mark.few(1)
@pytest.mark.parametrize("change", [quantised, pruned, tuned])
def test_stacked_chains_and_one_mesh_over_the_other_agree(
    change: Callable[[nn.Module], nn.Module],
) -> None:
    model = mlp(2, 16, 16, 3)
    stacked = difference(model, change(model))
    other = difference(Skip(model), Skip(change(model)))
    for diff in (stacked, other):
        check(diff)
        assert int(diff.partition.mesh.edge_layer.max()) < len(diff.partition.layers)
    assert stacked.partition.layers == tuple(
        name.replace("body.", "") for name in other.partition.layers
    )
    assert len(stacked) == len(other)
    torch.testing.assert_close(stacked.maxima, other.maxima)
    torch.testing.assert_close(stacked.mean, other.mean)
    for one, two in ((stacked, other), (other, stacked)):  # the edges have the same units
        ends = two.partition.vertices[two.partition.mesh.edges].mean(1)
        where = two.partition.domain.embed(ends)
        inner = two.partition.mesh.edge_layer >= 0
        for layer, z in one.partition._network.walk(where):
            index = one.partition.layers.index(layer.name)
            mine = inner & (two.partition.mesh.edge_layer == index)
            assert float(z[mine, two.partition.mesh.edge_unit[mine]].abs().max()) < 1e-12


def test_the_witness_shows_the_difference_to_both_models() -> None:
    model = mlp(2, 16, 16, 3)
    diff = difference(model, quantised(model))
    for found in (diff.largest(), diff.largest(1), diff.largest(2), diff.largest(output=1)):
        assert found.input.dtype == torch.float32
        assert found.measured == pytest.approx(found.value, abs=1e-5)
        assert found.outputs[0].tolist() == pytest.approx(model(found.input[None])[0].tolist())
        u, v = found.place
        assert found.input.tolist() == pytest.approx([u, v])


@pytest.mark.parametrize("types", [(torch.float32, F64), (F64, torch.float32)])
def test_networks_of_two_floating_point_types(types: tuple[torch.dtype, torch.dtype]) -> None:
    a, b = mlp(2, 8, 3).to(types[0]), mlp(2, 8, 3, seed=1).to(types[1])
    diff = difference(a, b)
    check(diff)
    found = diff.largest()
    assert found.input.dtype == types[0]
    assert found.measured == pytest.approx(found.value, abs=1e-5)
    same = difference(a, mlp(2, 8, 3).to(types[1]))
    assert same.largest().value == 0


@pytest.mark.slow
def test_agrees_with_a_million_random_points() -> None:
    a = mlp(2, 24, 24, 5, seed=2).double()
    a[-1].bias.data -= a(torch.zeros(1, 2, dtype=F64))[0]
    b = quantised(a, 3)
    diff = difference(a, b, 3.0)
    check(diff)
    x = random_inputs(1_000_000, 3.0)
    with torch.no_grad():
        ya, yb = a(x), b(x)
    off = (ya - yb).abs()
    assert bool((off.amax(0) <= diff.maxima + 1e-12).all())
    torch.testing.assert_close(diff.mean, off.mean(0), rtol=5e-3, atol=0)
    torch.testing.assert_close(diff.rms, off.square().mean(0).sqrt(), rtol=5e-3, atol=0)
    table = torch.bincount(5 * ya.argmax(1) + yb.argmax(1), minlength=25).double() / 1e6 * 36
    torch.testing.assert_close(diff.disagreement.areas.flatten(), table, rtol=0, atol=0.05)
    assert diff.disagreement.share == pytest.approx(
        float((ya.argmax(1) != yb.argmax(1)).double().mean()), abs=1e-3
    )


def test_polygons_and_outline_of_the_disagreement() -> None:
    a = mlp(2, 24, 24, 3, seed=2)
    a[-1].bias.data -= a(torch.zeros(1, 2))[0]
    diff = difference(a, quantised(a, 3))
    found = diff.disagreement
    assert found.area > 0
    assert sum(p.area for p in found.polygons()) == pytest.approx(found.area, rel=1e-12)
    for (i, j), area in found.pairs().items():
        assert sum(p.area for p in found.polygons(i, j)) == pytest.approx(area, rel=1e-10)
    assert float(found.areas.sum()) == pytest.approx(16.0, rel=1e-12)
    offsets, points = found.rings()
    assert points[offsets[:-1]].equal(points[offsets[1:] - 1])
    # Points of the outline lie on one of the two decision boundaries.
    places = found.outline.sample_uv(100)
    away = [part.decision_boundary().nearest(places).distance for part in (diff.a, diff.b)]
    assert float(torch.minimum(*away).max()) < 1e-9


@pytest.mark.slow
def test_cnn_with_max_pooling_on_a_slice_of_images() -> None:
    torch.manual_seed(0)

    def cnn() -> nn.Sequential:
        return nn.Sequential(
            *(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)),
        )

    a = cnn()
    images = torch.randn(3, 1, 8, 8)
    domain = sc.Domain.through(*images)
    for b in (quantised(a), cnn(), tuned(a)):
        diff = sc.difference(a, b, domain, device="cpu", progress=False)
        check(diff)
        x = diff.a.sample(2000, dtype=F64)
        with torch.no_grad():
            off = (copy.deepcopy(a).double()(x) - copy.deepcopy(b).double()(x)).abs()
        assert bool((off.amax(0) <= diff.maxima + 1e-9).all())
        assert float(diff.maxima.max()) < 4 * float(off.max())


def test_softmax_is_left_out_of_both() -> None:
    a = nn.Sequential(*mlp(2, 8, 3), nn.Softmax(1))
    b = nn.Sequential(*mlp(2, 8, 3, seed=1), nn.Softmax(1))
    diff = difference(a, b)
    check(diff)
    plain = difference(a[:-1], b[:-1])
    torch.testing.assert_close(diff.maxima, plain.maxima)
    found = diff.largest()
    assert float(found.outputs[0].sum()) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.few(1)
@pytest.mark.parametrize("wrap", [lambda model: model, Skip], ids=["stacked", "joined"])
def test_less_memory_gives_the_same_regions(
    wrap: Callable[[nn.Module], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiles = []
    tile_of = engine.tile_of

    def noted(mesh: Mesh, faces: Tensor, **options: bool) -> MeshTile:
        tiles.append(faces.shape[0])
        return tile_of(mesh, faces, **options)

    monkeypatch.setattr(engine, "tile_of", noted)
    model = mlp(2, 32, 32, 3)
    a, b = wrap(model), wrap(quantised(model))
    whole = difference(a, b)
    domain = whole.delta.domain
    tiled = sc.difference(a, b, domain, memory=2_000_000, device="cpu", progress=False)
    assert len(tiles) > 2
    check(tiled)
    assert len(tiled) == len(whole)
    torch.testing.assert_close(tiled.maxima, whole.maxima)
    torch.testing.assert_close(tiled.mean, whole.mean)
    with pytest.raises(sc.LimitError, match="max_regions=2,000"):
        sc.difference(a, b, domain, max_regions=2000, progress=False)


def test_outputs_names_and_captured_networks() -> None:
    class Two(nn.Module):
        def __init__(self, body: nn.Module) -> None:
            super().__init__()
            self.body = body

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            y = self.body(x)
            return {"logits": y, "aux": y[:, :1]}

    a, b = Two(mlp(2, 6, 3)), Two(mlp(2, 6, 3, seed=1))
    domain = sc.Domain.box(-2, 2)
    names = ["cat", "dog", "bird"]
    diff = sc.difference(a, b, domain, output="logits", names=names, device="cpu", progress=False)
    check(diff)
    assert diff.a.names == diff.b.names == ("cat", "dog", "bird")
    assert diff.largest(output="dog").value == diff.largest(output=1).value
    assert "largest.bird" in diff.stats()
    captured = [sc.capture(model, (2,), output="logits", device="cpu") for model in (a, b)]
    again = sc.difference(*captured, domain, progress=False)
    assert again.maxima.equal(diff.maxima)


def test_errors_say_which_model_and_why() -> None:
    domain = sc.Domain.box(-1, 1)
    a = mlp(2, 4, 3)
    with pytest.raises(sc.SplineCamError, match=r"shape \(3,\), and model_b of the shape \(2,\)"):
        sc.difference(a, mlp(2, 4, 2), domain)
    with pytest.raises(sc.UnsupportedOpError, match="model_b: 1 op is not supported"):
        sc.difference(a, nn.Sequential(nn.Linear(2, 3), nn.SiLU(), nn.Linear(3, 3)), domain)
    with pytest.raises(sc.SplineCamError, match="model_a: "):
        sc.difference(mlp(5, 4, 3), a, domain)
    with pytest.raises(sc.SplineCamError, match="ends with softmax, and model_b with no such"):
        sc.difference(nn.Sequential(*a, nn.Softmax(1)), a, domain)
    with pytest.raises(TypeError, match=r"model_b must be an nn\.Module"):
        sc.difference(a, 5, domain)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"domain must be a splinecam\.Domain"):
        sc.difference(a, a, (0, 1))  # type: ignore[arg-type]
    diff = sc.difference(a, a, domain, progress=False)
    with pytest.raises(ValueError, match="norm must be 1, 2 or inf"):
        diff.largest(3)
    with pytest.raises(IndexError, match="class 3 of 3"):
        diff.largest(output=3)
    with pytest.raises(sc.SplineCamError, match="pairwise"):
        diff.decisions(kind="pairwise")


def test_texts_and_numbers() -> None:
    a = mlp(2, 8, 3)
    diff = difference(a, quantised(a, 2))
    numbers = diff.stats()
    assert numbers["regions"] == len(diff)
    assert numbers["largest_inf"] == diff.largest().value
    assert numbers["mean.2"] == float(diff.mean[2])
    assert repr(diff).startswith(f"Difference({len(diff):,} regions, 3 outputs, largest")
    assert "largest difference of an output" in str(diff)
    assert "<table>" in diff._repr_html_()
    assert "LargestDifference(" in repr(diff.largest())
    assert repr(diff.disagreement).startswith("Disagreement(")


def test_two_classes_of_affine_models_are_cut_one_after_the_other() -> None:
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    with torch.no_grad():
        a.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
        b.weight.copy_(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
        a.bias.zero_()
        b.bias.zero_()
    found = sc.difference(a, b, sc.Domain.box(-1, 1), progress=False).disagreement
    assert found.areas.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_a_single_output_decides_by_its_level() -> None:
    a, b = nn.Linear(2, 1, dtype=F64), nn.Linear(2, 1, dtype=F64)
    for model, bias in ((a, 0.0), (b, 0.5)):
        model.weight.data = torch.tensor([[1.0, 0.0]], dtype=F64)
        model.bias.data.fill_(bias)
    diff = difference(a, b, 1.0)
    assert diff.disagreement.areas.tolist() == [[1.0, 1.0], [0.0, 2.0]]
    assert diff.decisions(level=0.25).areas.tolist() == [[1.5, 1.0], [0.0, 1.5]]
    assert diff.largest().value == 0.5
    assert diff.mean.tolist() == [0.5]
    assert diff.bias.tolist() == [-0.5]


def test_the_picture_has_colours_boundaries_and_hatching() -> None:
    a = mlp(2, 16, 16, 3, seed=2)
    a[-1].bias.data -= a(torch.zeros(1, 2))[0]
    diff = difference(a, quantised(a, 3))
    cells = diff.magnitude()
    assert float(cells.values.max()) == float(diff.maxima.max())
    ax = diff.plot(labels=("full", "quantised"))
    assert len(ax.images) == 1
    assert any(patch.get_hatch() for patch in ax.patches)
    plain = diff.plot(output=1, hatch=None, boundary=False, edges=True)
    assert not any(patch.get_hatch() for patch in plain.patches)
    assert difference(a, copy.deepcopy(a)).plot() is not None
    with pytest.raises(ValueError, match="low < high"):
        diff.plot(limits=(1.0, 0.0))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("wrap", [lambda model: model, Skip], ids=["stacked", "joined"])
@pytest.mark.parametrize("change", [quantised, pruned, tuned, copy.deepcopy])
def test_cuda_gives_the_same_difference(
    change: Callable[[nn.Module], nn.Module], wrap: Callable[[nn.Module], nn.Module]
) -> None:
    model = mlp(2, 32, 32, 3)
    a, b, domain = wrap(model), wrap(change(model)), sc.Domain.box(-2, 2)
    plain = difference(a, b)
    for device in ("cuda", "auto"):
        moved = [copy.deepcopy(each).to("cuda" if device == "cuda" else "cpu") for each in (a, b)]
        diff = sc.difference(*moved, domain, device=device, progress=False)
        assert diff.delta.values.is_cuda
        assert diff.partition.validate().ok
        assert len(diff) == len(plain)
        for column in ("maxima", "mean", "rms", "bias"):
            torch.testing.assert_close(getattr(diff, column).cpu(), getattr(plain, column))
        areas = diff.disagreement.areas.cpu()
        torch.testing.assert_close(areas, plain.disagreement.areas, rtol=0, atol=1e-9)
        if change is copy.deepcopy:
            assert float(diff.maxima.max()) == diff.largest().error == 0
