"""Gradients of vertices, areas, maps, boundaries and integrals, against finite differences."""

from __future__ import annotations

import gc
import random
import weakref
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from gradient_cases import KINDS, combinatorics, drawn, error, length, nearest, polygon
from splinecam.errors import SplineCamError
from splinecam.kernels.kernel import Kernel, available
from splinecam.network.capture import capturing
from splinecam.questions import differentiable, moving_vertices
from splinecam.questions.differentiable import Differentiable
from splinecam.questions.moving_vertices import constants_of
from splinecam.testing import Abs

BOX = sc.Domain.box(-1, 1)
EXPORTED = ("skip", "pool", "maxout", "sort", "image")  # torch takes seconds to begin with these


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(kind, seed, marks=[pytest.mark.slow] * (kind in EXPORTED))
        for seed in range(4)
        for kind in dict.fromkeys(KINDS)
    ],
)
def test_gradients_are_those_of_finite_differences(kind: str, seed: int) -> None:
    found = [error(*drawn(seed + more, kind), seed) for more in (0, 100)]
    assert max(x for x in found if x is not None) < 1e-9


compiled = pytest.mark.skipif(not available(), reason="the kernel was not built")
CHAINS = {
    "relu": [nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 17), nn.ReLU(), nn.Linear(17, 9), Abs()],
    "slopes": [nn.Linear(3, 9), nn.LeakyReLU(0.1), nn.Linear(9, 12), Abs(), nn.Linear(12, 7)],
    "knots": [nn.Linear(3, 12), nn.Hardtanh(-0.3, 0.4), nn.Linear(12, 9), nn.Softshrink(0.2)],
    "norm": [nn.Linear(3, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 9), nn.ReLU6()],
    "image": [
        nn.Linear(3, 16), nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 3, 2), nn.ReLU(),
        nn.AvgPool2d(2, 1), nn.Flatten(), nn.Linear(12, 9), nn.ReLU(),
    ],
    "no bias": [nn.Linear(3, 9, bias=False), nn.ReLU(), nn.Linear(9, 9, bias=False), nn.ReLU()],
}  # fmt: skip


@compiled
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "image")) for kind in CHAINS],
)
def test_a_walk_over_the_regions_has_the_gradients_of_passes(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(4)
    model = nn.Sequential(*CHAINS[kind], nn.LazyLinear(2)).double().eval()
    basis = torch.linalg.qr(torch.randn(3, 2, dtype=torch.float64)).Q.T
    domain = sc.Domain.polygon(0.3 + 3 * polygon(random.Random(1)) @ basis)
    model(torch.zeros(1, 3, dtype=torch.float64))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    part = sc.partition(model, domain, progress=False)
    corners = domain.corners.clone().requires_grad_()
    leaves = [*model.parameters(), corners]

    def gradients() -> list[Tensor]:
        d = part.differentiable(corners=corners)
        assert (d._chain is None) == (differentiable.chain_of is none)
        found = torch.autograd.grad(scalar(d), leaves, retain_graph=True)
        vertices = torch.autograd.grad(d.vertices.square().sum(), leaves, allow_unused=True)
        return [*found, *(torch.zeros(1) if x is None else x for x in vertices)]

    def scalar(d: Differentiable) -> Tensor:
        maps = d.weight.square().sum(2) @ d.bias.new_tensor([1.0, 2.0]) + d.bias.square().sum(1)
        total = (maps * d.areas).sum() + (d.integrals("square") * d.areas[:, None]).sum()
        return total + d.integrals("modulus").sum() + d.values.square().sum()

    def none(*given: object) -> None:
        return None

    fast = gradients()
    monkeypatch.setattr(differentiable, "chain_of", none)
    monkeypatch.setattr(differentiable, "kernel_for", none)
    for own, other in zip(fast, gradients(), strict=True):
        assert (own - other).norm() <= 1e-12 * other.norm() + 1e-14


@compiled
def test_a_walk_in_parts_has_the_same_bits_with_more_threads() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(2, 80), nn.ReLU(), nn.Linear(80, 80), nn.ReLU(), nn.Linear(80, 2)]
    model = nn.Sequential(*layers).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    part = sc.partition(model, sc.Domain.box(-9, 9), progress=False)
    assert len(part) > 10_000  # three parts
    moving = part.differentiable()
    expected = torch.autograd.grad(moving.vertices.square().sum(), model[0].weight)[0]
    chain, weights = moving._chain, {"corner": moving._fixed["corners"], "place": 2 * part.vertices}
    assert chain is not None
    found = []
    for threads in (1, 2, 3):
        some = replace(chain, kernel=Kernel(threads))
        (first, *_), _ = some.bends.derivatives(
            some.kernel, part.mesh, weights | {"order": chain.order}
        )
        found.append(part._frame.scale * first.T)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert torch.allclose(found[0], expected, rtol=1e-10)
    weights, given = {"order": chain.order, "map": some.maps()}, (some.kernel, part.mesh)
    tapes = {}, {"tape": some.tape}
    plain, taped = (some.bends.derivatives(*given, weights | tape)[0] for tape in tapes)
    assert all(map(torch.equal, plain, taped))


@compiled
def test_a_tape_that_ends_early_changes_no_bits() -> None:
    torch.manual_seed(0)
    layers = [x for n, m in ((2, 9), (9, 9), (9, 9)) for x in (nn.Linear(n, m), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(9, 2)).double()
    part = sc.partition(model, sc.Domain.box(-9, 9), progress=False)
    chain = part.differentiable()._chain
    assert chain is not None
    weights = {"order": chain.order, "map": torch.rand(len(part), 3, 2, dtype=torch.float64)}
    maps = chain.maps()

    def gradients(more: dict[str, Tensor]) -> list[Tensor]:
        found = chain.bends.derivatives(chain.kernel, part.mesh, weights | more)
        return [*found[0], *found[1]]

    wanted = gradients({})
    for size in (0, 1, 2, 40, 300, chain.tape.numel()):
        tape = torch.full((size + 9,), torch.nan, dtype=torch.float64)
        found = chain.bends.maps(chain.kernel, part.mesh, chain.order, tape[:size])
        assert torch.equal(found, maps)
        assert tape[size:].isnan().all()
        assert all(map(torch.equal, gradients({"tape": tape[:size]}), wanted))
    assert not torch.equal(gradients({"tape": torch.zeros_like(tape)})[0], wanted[0])  # is read


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["skip", "pool"])
def test_networks_that_are_no_chains_have_gradients_by_passes(kind: str) -> None:
    model, domain = drawn(3, kind)
    assert sc.partition(model, domain, progress=False).differentiable()._chain is None


def test_parameters_of_functions_are_followed_by_passes() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.PReLU(), nn.Linear(4, 1))
    moving = sc.partition(model, BOX, progress=False).differentiable()
    moving.integrals().sum().backward()
    assert moving._chain is None
    assert model[1].weight.grad.abs() > 0  # type: ignore[union-attr]


@compiled
def test_maps_and_their_gradients_are_those_of_the_model_in_each_region() -> None:
    model = relu(5)
    part = sc.partition(model, BOX, progress=False)
    d, points = part.differentiable(), part.centroids
    slopes = torch.func.vmap(torch.func.jacrev(model))(points)
    assert torch.allclose(d.weight, slopes, atol=1e-13)
    assert torch.allclose(
        d.bias, model(points) - (slopes @ points[:, :, None])[:, :, 0], atol=1e-13
    )
    weights = torch.randn_like(slopes)
    expected = torch.autograd.grad((weights * slopes).sum(), model[0].weight)[0]
    found = torch.autograd.grad((weights * d.weight).sum(), model[0].weight)[0]
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [("pool", 771), ("sort", 981), ("sort", 1077)])
def test_steps_are_small_enough_that_nothing_changes(kind: str, seed: int) -> None:
    found = error(*drawn(seed, kind), seed)
    assert found is not None
    assert found < 1e-8


def test_a_triangle_that_turns_over_is_an_event() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    seen = []
    for offset in (0.1, 0.05, -0.05):
        with torch.no_grad():
            model[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
            model[0].bias.copy_(torch.tensor([0.0, 0.0, offset]))
            model[2].weight.fill_(1.0)
            model[2].bias.fill_(5.0)
        part = sc.partition(model, BOX, progress=False)
        seen.append(combinatorics(part, part.differentiable()))
    assert seen[0] == seen[1] != seen[2]
    assert seen[1][:3] == seen[2][:3]


def test_another_nearest_segment_is_an_event() -> None:
    ends = torch.tensor([[[0.0, 0.0], [0.2, 0.0]], [[0.2, 0.0], [1.0, 0.0]]], dtype=torch.float64)
    label = torch.tensor([4, 7])
    assert nearest(ends, label) == [([7], False), ([4], True)]
    assert nearest(ends + 0.15, label) == [([4], False), ([4], True)]
    bent = torch.tensor([[[0.3, 0.3], [0.8, 0.9]], [[-0.2, 0.9], [0.3, 0.3]]], dtype=torch.float64)
    assert nearest(bent, label) == [([4, 7], True), ([7], False)]


def relu(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    for parameter in model.double().parameters():
        nn.init.normal_(parameter, std=0.7)
    return model


def test_values_are_those_of_the_partition() -> None:
    part = sc.partition(relu(1), BOX, progress=False)
    d = part.differentiable()
    classes = part.class_regions()
    assert torch.allclose(d.areas, part.areas, atol=1e-12)
    assert torch.allclose(d.vertices, part.vertices, atol=1e-12)
    assert torch.allclose(d.values, part.values, atol=1e-12)
    assert torch.allclose(d.weight, part.weight, atol=1e-6)
    assert torch.allclose(d.bias, part.bias, atol=1e-6)
    assert torch.allclose(d.class_areas, classes.areas, atol=1e-12)
    level = length(d.level_set(0.1, 2)).item()
    assert length(d.boundary).item() == pytest.approx(part.decision_boundary().length)
    assert level == pytest.approx(part.level_set(0.1, output=2).length)


def test_integrals_are_exact() -> None:
    part = sc.partition(nn.Sequential(nn.Identity(), nn.ReLU()), BOX, progress=False)
    d = part.differentiable()
    assert d.integrals().sum(0).tolist() == pytest.approx([1.0, 1.0])
    assert d.integrals("square").sum(0).tolist() == pytest.approx([2 / 3, 2 / 3])
    flat = sc.partition(nn.Linear(2, 1).double(), BOX, progress=False)
    with torch.no_grad():
        flat.model.weight.copy_(torch.tensor([[1.0, 0.0]]))
        flat.model.bias.zero_()
    d = sc.partition(flat.model, BOX, progress=False).differentiable()
    assert d.integrals("modulus").sum().item() == pytest.approx(2.0)
    with pytest.raises(ValueError, match="'cube'"):
        d.integrals("cube")  # type: ignore[arg-type]


def test_what_is_differentiated_is_released() -> None:
    part = sc.partition(relu(2), BOX, progress=False)
    moving = part.differentiable(corners=BOX.corners.clone().requires_grad_())
    total = moving.areas.square().sum() + moving.values.sum() + moving.weight.sum()
    (total + moving.class_areas[0] + moving.level_set(0.1, 0).sum()).backward()
    kept = weakref.ref(moving)
    del moving, total
    gc.collect()
    assert kept() is None


def test_given_parameters_work_with_torch_func() -> None:
    model = relu(2)
    part = sc.partition(model, BOX, progress=False)
    given = {name: p.detach() for name, p in model.named_parameters()}

    moving = part.differentiable()
    found = torch.func.grad(lambda p: moving.at(p).class_areas[0])(given)
    moving.class_areas[0].backward()
    for name, parameter in model.named_parameters():
        own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert torch.allclose(found[name], own)
    of = torch.func.grad(lambda p: moving.at(p).areas.square().sum() + moving.at(p).weight.sum())
    total = moving.areas.square().sum() + moving.weight.sum()
    own = torch.autograd.grad(total, list(model.parameters()))
    assert all(torch.allclose(x, y) for x, y in zip(of(given).values(), own, strict=True))


def test_vertices_of_more_than_two_lines_are_named() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False))
    d = sc.partition(model.double(), BOX, progress=False).differentiable()
    assert "1 degenerate" in repr(d)
    assert d.vertices[d.degenerate].abs().max() < 1e-15
    assert error(model, BOX, 0) < 1e-9  # type: ignore[operator]


def test_lines_that_are_parallel_up_to_rounding_are_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.0, 1.0], [1e-10, 1.0]]))
        model[0].bias.zero_()
    part = sc.partition(model, BOX, progress=False)
    with pytest.raises(SplineCamError, match=r"at \(0.0, 0.0\) are parallel up to rounding"):
        _ = part.differentiable().areas


def test_what_does_not_fit_is_named() -> None:
    model = relu(1)
    part = sc.partition(model, BOX, progress=False)
    moving, given = part.differentiable(), dict(model.named_parameters())
    square = BOX.corners
    for corners in (square[:3], square.tolist(), 2 * square, square * torch.nan):
        with pytest.raises(SplineCamError, match=r"corners .*domain.corners"):
            part.differentiable(corners=corners)  # type: ignore[arg-type]
    assert part.differentiable(corners=square.float()).areas.sum().item() == pytest.approx(4.0)
    with pytest.raises(SplineCamError, match=r"corners .*\(4, 2\)"):
        moving.at(given, square[:3])
    with pytest.raises(SplineCamError, match=r"'0.weight'.*named_parameters"):
        moving.at({name: p for name, p in given.items() if name != "0.weight"})
    with pytest.raises(SplineCamError, match=r"'0.weight' has the shape \(1, 2\)"):
        moving.at(given | {"0.weight": given["0.weight"][:1]})
    with pytest.raises(SplineCamError, match="for models with one output"):
        part.differentiable(level=0.1)
    with pytest.raises(SplineCamError, match="output=0 to 2"):
        moving.level_set(0.1)
    with pytest.raises(IndexError, match="output 3 of 3"):
        moving.level_set(0.1, 3)
    with pytest.raises(ValueError, match="finite"):
        moving.level_set(float("nan"), 0)
    for points in (torch.zeros(2), torch.zeros(1, 3)):
        with pytest.raises(ValueError, match=r"points .*\(N, 2\)"):
            moving.distances(points)
    with torch.no_grad():
        given["0.bias"].add_(0.1)
    with pytest.raises(SplineCamError, match=r"'0.bias' has changed.*[Pp]artition"):
        part.differentiable()


def test_there_is_no_distance_from_no_boundary() -> None:
    model = nn.Linear(2, 1)
    nn.init.constant_(model.bias, 9.0)
    moving = sc.partition(model, BOX, progress=False).differentiable()
    assert len(moving.boundary) == 0
    with pytest.raises(SplineCamError, match="no decision boundary"):
        moving.distances(torch.zeros(1, 2))


def test_maps_of_thin_regions_have_precise_gradients() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.6, 0.8]] * 2, dtype=torch.float64))
        model[0].bias.copy_(torch.tensor([0.1, 0.1 + 1e-9], dtype=torch.float64))
        model[2].weight.copy_(torch.tensor([[1.0, 2.0]]))
        model[2].bias.fill_(0.3)
    moving = sc.partition(sc.nn.AsWritten(model), BOX, progress=False).differentiable()
    strip = int(moving.areas.argmin())
    assert moving.areas[strip] < 1e-8
    total = moving.weight[strip, 0] @ torch.tensor([1.0, 10.0]).double() + moving.bias[strip, 0]
    total.backward()
    # The second unit alone is on: weight = 2 (0.6, 0.8), bias = 2 (0.1 + 1e-9) + 0.3.
    expected = {0: [[0, 0], [2, 20]], 2: [[0, 0.6 + 8 + 0.1 + 1e-9]]}
    for k, rows in expected.items():
        found = model[k].weight.grad
        assert torch.allclose(found, torch.tensor(rows, dtype=torch.float64), rtol=1e-12)


@pytest.mark.slow
def test_a_model_that_was_exported_is_not_exported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, domain = drawn(3, "skip")
    part = sc.partition(model, domain, progress=False)
    monkeypatch.setattr(capturing, "export_graph", None)
    part.differentiable().areas.square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in list(model.parameters())[:2])


def test_parameters_are_found_with_and_without_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    own = nn.Linear(4, 4)
    layers = [nn.Linear(2, 4), nn.ReLU(), own, nn.BatchNorm1d(4), nn.ReLU(), own, nn.ReLU()]
    part = sc.partition(nn.Sequential(*layers).eval(), BOX, progress=False)
    given = part._network, part.model, part._chosen_output
    with monkeypatch.context() as patch:
        patch.setattr(moving_vertices, "private_copy", None)
        fast = constants_of(*given)
    assert sorted(fast.values())[-2:] == [("3.bias", False), ("3.weight", False)]
    monkeypatch.setattr(moving_vertices, "captured_before", lambda *_: None)
    assert fast == constants_of(*given)


@pytest.mark.slow
def test_weights_that_are_computed_are_named() -> None:
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 4)), nn.ReLU())
    part = sc.partition(model, BOX, progress=False)
    with pytest.raises(SplineCamError, match="computed from parameters"):
        part.differentiable()
