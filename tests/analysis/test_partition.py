from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.geometry.point_location import Locator


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 12), nn.LeakyReLU(), nn.Linear(12, 3)
    )


@pytest.fixture
def part(model: nn.Module) -> sc.Partition:
    return sc.partition(model, sc.Domain.box(-2, 2), progress=False)


def test_flat_arrays_fit_together(part: sc.Partition):
    V, E, F = part.vertices.shape[0], part.mesh.edges.shape[0], len(part)
    assert V - E + F == 1
    assert part.values.shape == (V, 3)
    assert part.weight.shape == (F, 3, 2)
    assert part.bias.shape == (F, 3)
    assert part.mesh.edge_layer.shape == part.mesh.edge_unit.shape == (E,)
    assert (
        int(part.mesh.offsets[-1]) == part._face_vertices.shape[0] == int(part.mesh.counts().sum())
    )
    assert part.layers == ("1", "3")
    assert float(part.areas.sum()) == pytest.approx(16)
    assert set(part.mesh.edge_layer.tolist()) == {-1, 0, 1}
    assert set(part.mesh.vertex_layer.tolist()) == {-1, 0, 1}


def test_maps_reproduce_the_model(part: sc.Partition, model: nn.Module):
    predicted = (part.weight @ part.centroids[:, :, None]).squeeze(2) + part.bias
    actual = copy.deepcopy(model).double()(part.centroids)
    assert torch.allclose(predicted, actual, atol=1e-12)


def test_every_edge_lies_on_the_zero_set_of_its_unit(part: sc.Partition, model: nn.Module):
    double = copy.deepcopy(model).double()
    middle = part.vertices[part.mesh.edges].mean(1)
    for layer, depth in ((0, 1), (1, 3)):
        mine = part.mesh.edge_layer == layer
        z = double[:depth](middle[mine]).detach()
        own = z.gather(1, part.mesh.edge_unit[mine][:, None])
        assert float(own.abs().max()) < 1e-13


def test_regions_are_a_sequence_of_views(part: sc.Partition):
    assert len(part) == len(part)
    region = part[3]
    assert region.vertices.shape == (int(part.mesh.counts()[3]), 2)
    assert region.area == float(part.areas[3])
    assert torch.equal(region.weight, part.weight[3])
    assert torch.equal(region.bias, part.bias[3])
    assert part[-1].index == len(part) - 1
    assert [r.index for r in part[2:5]] == [2, 3, 4]
    assert sum(1 for _ in part) == len(part)
    with pytest.raises(IndexError, match="regions"):
        part[len(part)]


def test_patterns_differ_between_neighbours_in_the_unit_of_their_edge(part: sc.Partition):
    patterns = part.patterns()
    inner = (part._edge_faces >= 0).all(1)
    a, b = part._edge_faces[inner].unbind(1)
    for layer, name in enumerate(part.layers):
        mine = part.mesh.edge_layer[inner] == layer
        unit = part.mesh.edge_unit[inner][mine]
        rows = torch.arange(len(unit))
        pieces = patterns[name]
        assert (pieces[a[mine]][rows, unit] != pieces[b[mine]][rows, unit]).all()
    one = part[5].pattern
    assert {name: p.tolist() for name, p in one.items()} == {
        name: p[5].tolist() for name, p in patterns.items()
    }
    together = torch.cat(list(patterns.values()), 1)
    assert len(torch.unique(together, dim=0)) == len(part), "no two regions have one pattern"


def test_neighbours_are_mutual(part: sc.Partition):
    for region in part[:20]:
        assert len(region.neighbours) > 0
        for other in region.neighbours:
            assert region.index in part[other].neighbours


def test_jacobian_in_input_space(model: nn.Module):
    images = torch.randn(3, 2, 5)
    net = nn.Sequential(nn.Flatten(), nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 2))
    part = sc.partition(net, sc.Domain.through(*images), progress=False)
    jacobian = part[0].jacobian()
    assert jacobian.shape == (2, 2, 5)
    projected = jacobian.reshape(2, -1) @ part.domain.basis.T
    assert torch.allclose(projected, part[0].weight, atol=1e-12)


# -- locate -----------------------------------------------------------------------------------


def brute_force(part: sc.Partition, uv: Tensor) -> Tensor:
    found = torch.full((len(uv),), -1)
    for i in range(len(part)):
        p = part[i].vertices
        side = p.roll(-1, 0) - p
        gap = uv[:, None] - p
        cross = side[:, 0] * gap[..., 1] - side[:, 1] * gap[..., 0]
        found[(cross >= 0).all(1)] = i
    return found


def test_locate_agrees_with_brute_force(part: sc.Partition):
    x = torch.rand(2000, 2).double() * 5 - 2.5
    assert torch.equal(part.locate(x), brute_force(part, x))
    assert part.locate(part.centroids).tolist() == list(range(len(part)))


def test_locate_knows_borders_corners_and_what_is_off_the_plane(part: sc.Partition):
    assert (part.locate(part.vertices) >= 0).all()
    assert part.locate(torch.tensor([[2.0, 2.0], [2.1, 0.0]])).tolist()[1] == -1
    assert part.locate(torch.empty(0, 2)).shape == (0,)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))
    plane = sc.partition(net, sc.Domain.around(torch.zeros(4), side=2, seed=3), progress=False)
    on = plane.domain.embed(torch.tensor([[0.1, 0.2]]).double())
    normal = torch.linalg.svd(plane.domain.basis).Vh[3]
    assert int(plane.locate(on)) >= 0
    assert int(plane.locate(on + 0.1 * normal)) == -1


@pytest.mark.slow
def test_the_grid_stays_small_where_regions_crowd():
    crowd = nn.Linear(2, 120)
    with torch.no_grad():
        crowd.bias.mul_(1e-3)
    part = sc.partition(
        nn.Sequential(crowd, nn.ReLU(), nn.Linear(120, 1)), sc.Domain.box(-1, 1), progress=False
    )
    locator = Locator(part.mesh)
    assert locator.faces.shape[0] <= 8 * (len(part) + 8)
    x = torch.rand(500, 2).double() * 2e-3 - 1e-3
    assert torch.equal(part.locate(x), brute_force(part, x))


# -- merged -----------------------------------------------------------------------------------


def test_merged_unites_regions_with_one_map():
    # relu(x) - relu(-x) = x: the second unit pair adds a border but no kink
    net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]))
        net[2].weight.copy_(torch.tensor([[1.0, -1.0, 1.0]]))
    part = sc.partition(sc.nn.AsWritten(net), sc.Domain.box(-1, 1), progress=False)
    merged = part.merged()
    assert len(part) == 4
    assert len(merged) == 2
    assert merged.labels.shape == (4,)
    kept = part.mesh.edges[merged.edges]
    assert float(part.vertices[kept].diff(dim=1).abs().sum()) == pytest.approx(8 + 2)
    assert repr(merged) == "Merged(2 pieces of 4 regions)"


def test_merged_keeps_regions_apart_that_differ(part: sc.Partition):
    assert len(part.merged()) == len(part)


# -- behaviour --------------------------------------------------------------------------------


def test_reprs(part: sc.Partition):
    assert repr(part).startswith(f"Partition({len(part):,} regions, ")
    assert "3 outputs, 2 layers, on cpu" in repr(part)
    assert repr(part[0]).startswith("Region(0: ")
    assert part is part


def test_a_final_softmax_is_left_out_and_said(model: nn.Module):
    part = sc.partition(nn.Sequential(model, nn.Softmax(1)), sc.Domain.box(-2, 2), progress=False)
    assert part.stripped == "softmax"
    assert "final softmax left out" in repr(part)
    assert part.validate().ok


def test_a_network_without_layers_is_one_region():
    part = sc.partition(nn.Linear(2, 2), sc.Domain.box(-1, 1), progress=False)
    assert len(part) == 1
    assert part.validate().ok


def test_results_do_not_depend_on_the_run(model: nn.Module):
    first, second = (sc.partition(model, sc.Domain.box(-2, 2), progress=False) for _ in range(2))
    assert torch.equal(first.vertices, second.vertices)
    assert torch.equal(first._face_vertices, second._face_vertices)


def test_the_model_is_left_as_it_was(model: nn.Module):
    before = copy.deepcopy(model.state_dict())
    model.train()
    sc.partition(model, sc.Domain.box(-2, 2), progress=False).validate()
    assert model.training
    for name, value in model.state_dict().items():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name])
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_an_interrupt_leaves_nothing_broken(model: nn.Module, monkeypatch: pytest.MonkeyPatch):
    from splinecam.engine import step as engine

    before = copy.deepcopy(model.state_dict())
    with monkeypatch.context() as patch:

        def interrupted(*args: object, **kwargs: object) -> None:
            raise KeyboardInterrupt

        for name in ("refine", "refine_compiled"):
            patch.setattr(engine, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            sc.partition(model, sc.Domain.box(-2, 2), progress=True)
    assert torch.is_grad_enabled()
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert sc.partition(model, sc.Domain.box(-2, 2), progress=False).validate().ok


@pytest.mark.slow
def test_progress_is_silent_when_nobody_watches(
    model: nn.Module, capfd: pytest.CaptureFixture[str]
):
    pytest.importorskip("ipykernel")  # which is there beside notebooks, too
    sc.partition(model, sc.Domain.box(-2, 2))
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_progress_shows_the_regions(
    model: nn.Module, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    part = sc.partition(model, sc.Domain.box(-2, 2))
    shown = capfd.readouterr().err
    assert f"{len(part):,} regions" in shown
    sc.partition(model, sc.Domain.box(-2, 2), progress=False)
    assert capfd.readouterr().err == ""


def test_wrong_arguments_are_named(model: nn.Module):
    box = sc.Domain.box(-1, 1)
    with pytest.raises(TypeError, match=r"nn\.Module, not function"):
        sc.partition(lambda x: x, box)
    with pytest.raises(TypeError, match="the class ReLU"):
        sc.partition(nn.ReLU, box)
    with pytest.raises(TypeError, match=r"must be a splinecam\.Domain, not Sequential"):
        sc.partition(model, model)
    with pytest.raises(TypeError, match="max_regions must be a whole number"):
        sc.partition(model, box, max_regions=10.5)
    with pytest.raises(TypeError, match="memory must be a whole number"):
        sc.partition(model, box, memory=float("inf"))
    with pytest.raises(ValueError, match="memory must be at least 1"):
        sc.partition(model, box, memory=0)
    for device in ("cuda", "mps", "gpu", "meta"):
        with pytest.raises(sc.SplineCamError, match=f"device '{device}' is not available"):
            sc.partition(model, box, device=device)


def test_regions_are_found_by_any_whole_number(part: sc.Partition):
    last = len(part) - 1
    assert part[torch.tensor(-1)].index == last
    assert part[-1].neighbours == part[last].neighbours
    assert part.jacobian([]).shape == (0, 3, 2)
    assert part.jacobian(3).shape == (1, 3, 2)
    assert torch.equal(part.patterns(-1)["1"], part.patterns([last])["1"])
    for ask in (part.jacobian, part.patterns, part.__getitem__):
        with pytest.raises(IndexError, match=r"\d regions"):
            ask(len(part))
    with pytest.raises(TypeError):
        part[1.5]


def test_inference_mode_is_no_obstacle(model: nn.Module):
    with torch.inference_mode():
        part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
        assert part.validate().ok
        assert part.jacobian(0).shape == (1, 3, 2)


def test_a_domain_of_the_wrong_shape_is_a_clear_error(model: nn.Module):
    with pytest.raises(sc.CaptureError, match=r"\(batch, 5\)"):
        sc.partition(model, sc.Domain.around(torch.zeros(5), side=1), progress=False)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_gives_the_same_cells(model: nn.Module):
    cpu = sc.partition(model, sc.Domain.box(-2, 2), device="cpu", progress=False)
    gpu = sc.partition(model, sc.Domain.box(-2, 2), device="cuda", progress=False)
    assert len(cpu) == len(gpu)
    assert torch.allclose(cpu.areas.sort().values, gpu.areas.cpu().sort().values, atol=1e-13)
    assert gpu.validate().ok


def test_many_levels_meet_the_limit_before_they_are_drawn():
    waves = nn.Sequential(sc.nn.PeriodicEncoding(2), nn.Linear(10, 1))
    with pytest.raises(sc.LimitError, match="max_regions=1,000"):
        sc.partition(waves, sc.Domain.box(-3000, 3000), max_regions=1000)


def test_winners_of_a_padded_pool_are_units_of_its_input():
    class Pool(nn.Module):
        """The largest of nothing, u and v; and of three constants."""

        def forward(self, x: Tensor) -> Tensor:
            y = torch.cat([x, torch.zeros_like(x) - 10], 1)[:, None]
            return nn.functional.max_pool1d(y, 3, stride=3, padding=1).flatten(1)

    part = sc.partition(Pool(), sc.Domain.box(-1, 1), progress=False)
    winner = next(iter(part.patterns().values()))[:, 0]
    expected = (part.centroids[:, 1] > part.centroids[:, 0]).int()
    assert torch.equal(winner, expected)
    assert sorted(winner.tolist()) == [0, 1]


def test_tensors_that_are_no_buffers_are_validated_in_float64():
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.randn(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.table

    model = nn.Sequential(nn.Linear(2, 6), Mixed(), nn.ReLU(), nn.Linear(6, 2)).eval()
    assert sc.partition(model, sc.Domain.box(-1, 1), progress=False, memory=1e9).validate().ok
    assert model[1].table.dtype == torch.float32
