"""What the paper's code gets wrong is right here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import splinecam as sc
from compat_cases import assert_same_regions, make, wrap
from splinecam import compat
from splinecam.compat.utils import areas_of, mesh_of
from splinecam.testing import assert_same_cells, exact_partition


def test_repeated_units_draw_one_line() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        for k, factor in enumerate([1.0, -1.0, 2.0]):
            model[0].weight[k + 3] = factor * model[0].weight[0]
            model[0].bias[k + 3] = factor * model[0].bias[0]
        model[2].weight[1], model[2].bias[1] = model[2].weight[0], model[2].bias[0]
    square = 2 * torch.tensor([[-1.0, -1], [1, -1], [1, 1], [-1, 1]], dtype=torch.float64)
    NN = wrap(model.eval(), square)
    regions, _, _ = compat.compute.get_partitions_with_db(square, NN.T, NN)
    assert_same_regions(regions, NN, model, square)
    part = regions.parts[0]
    assert_same_cells(part, exact_partition(NN.model, part.domain), atol=1e-9)


def test_layers_without_activation_divide_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 50), nn.Linear(50, 3)).eval()
    square = torch.tensor([[-1.0, -1], [1, -1], [1, 1], [-1, 1]])
    NN = wrap(model, square)
    regions, _, _ = compat.compute.get_partitions_with_db(square, NN.T, NN)
    assert len(regions) == len(sc.partition(model[:2], sc.Domain.box(-1, 1), progress=False))
    assert len(NN.layers) == 3
    assert NN.layers[2].get_weights().shape == (3, 6)


def test_normalisation_after_the_activation_stays_after_it() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 9), nn.ReLU(), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 1))
    model(torch.randn(100, 2))
    square = torch.tensor([[-2.0, -2], [2, -2], [2, 2], [-2, 2]], dtype=torch.float64)
    NN = wrap(model.eval(), square)
    assert NN.verify()
    regions, _, _ = compat.compute.get_partitions_with_db(square, NN.T, NN)
    assert_same_regions(regions, NN, model, square)


def test_convolutions_of_any_padding_and_stride() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, (3, 2), stride=(2, 1)),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(6, 2),
    ).eval()
    domain = compat.utils.get_square_slice_from_two_anchors(torch.randn(2, 1, 7, 5).double(), 2)
    NN = wrap(model, domain, (1, 7, 5))
    regions, _, _ = compat.compute.get_partitions_with_db(domain, NN.T, NN)
    assert_same_regions(regions, NN, model, domain)
    with pytest.raises(sc.SplineCamError, match="not a ReLU"):
        NN.layers[2].get_weights()


def test_a_polygon_that_is_no_rectangle() -> None:
    model, _ = make("mlp")
    generator = torch.Generator().manual_seed(5)
    plane = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    flat = torch.tensor([[0.0, 0], [2, 0], [2.5, 1.5], [1, 3], [-1, 1]], dtype=torch.float64)
    domain = flat @ plane + 0.3
    NN = wrap(model, domain)
    torch.testing.assert_close(NN.T[:, :2].T @ NN.T[:, :2], torch.eye(2).to(NN.T))
    uv = compat.utils.plane_coordinates(domain, NN.T)
    torch.testing.assert_close(NN.layers[0](uv).cpu(), domain)
    torch.testing.assert_close(NN.layers[0].to_input(domain).cpu(), uv)
    regions, _, _ = compat.compute.get_partitions_with_db(domain, NN.T, NN)
    assert_same_regions(regions, NN, model, domain)


def test_a_plane_with_other_axes() -> None:
    model, domain = make("mlp")
    T = compat.utils.get_proj_mat(domain)
    skew = torch.tensor([[2.0, 0.5, 0.1], [0, 3, 0.2], [0, 0, 1]], dtype=torch.float64)
    NN = compat.wrappers.model_wrapper(model, T=T @ skew, device="cpu")
    assert NN.verify()
    regions, _, Abw = compat.compute.get_partitions_with_db(domain, T @ skew, NN)
    part = wrap(model, domain).partition(compat.utils.plane_coordinates(domain, T))
    assert len(regions) == len(part)
    areas = areas_of(mesh_of(regions))
    torch.testing.assert_close(areas.sum(), part.areas.sum().cpu() / 6)
    uv = compat.utils.get_region_means(regions)
    made = (Abw[:, :, :2] @ uv[:, :, None])[:, :, 0] + Abw[:, :, 2]
    torch.testing.assert_close(made, NN.layers[:-1](uv).cpu())


def test_boundaries_between_classes() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    nn.init.normal_(model[2].weight)
    square = 4 * torch.tensor([[-1.0, -1], [1, -1], [1, 1], [-1, 1]], dtype=torch.float64)
    NN = wrap(model, square)
    boundary = NN.partition(compat.utils.plane_coordinates(square, NN.T)).decision_boundary()
    _, edges, _ = compat.compute.get_partitions_with_db(square, NN.T, NN)
    assert len(edges) == len(boundary) > 2
    i, j = boundary.classes[0].tolist()
    assert NN.layers[-1].to_decision_boundary(between_class=[i, j])
    _, some, _ = compat.compute.get_partitions_with_db(square, NN.T, NN)
    assert 0 < len(some) == len(boundary.between(i, j)) < len(edges)
    assert NN.layers[-1].get_weights().shape == (1, 17)
    values = NN.layers[:-1](some.flatten(0, 1))
    weights = NN.layers[-1].get_weights()[0]
    assert float((values @ weights[:-1] + weights[-1]).abs().max()) < 1e-12
    NN.layers[-1].to_decision_boundary()
    assert NN.layers[-1].get_weights().shape == (6, 17)
    assert NN.layers[-1].get_intersection_pattern(values).shape == (2 * len(some), 6)
    with pytest.raises(ValueError, match="only the last layer"):
        NN.layers[1].to_decision_boundary()
    assert (
        compat.wrappers.model_wrapper(model, is_classifier=True, device="cpu")
        .layers[-1]
        .is_classifier
    )


def test_without_a_boundary_there_are_no_segments() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
    with torch.no_grad():
        model[2].weight.zero_()
        model[2].bias.fill_(1)
    square = torch.tensor([[-1.0, -1], [1, -1], [1, 1], [-1, 1]])
    NN = wrap(model, square)
    _, edges, _ = compat.compute.get_partitions_with_db(square, NN.T, NN)
    assert edges.shape == (0, 2, 2)


def test_statistics_count_every_vertex() -> None:
    model, domain = make("leaky")
    NN = wrap(model, domain)
    regions, _, _ = compat.compute.get_partitions_with_db(domain, NN.T, NN)
    names, values = compat.utils.get_region_statistics(regions)
    closed = [torch.cat([region, region[:1]]) for region in regions]
    assert compat.utils.get_region_statistics(closed)[1].equal(values)
    found = dict(zip(names, values.tolist(), strict=True))
    part = regions.parts[0]
    stats = part.stats()
    assert found["vol_m"] == pytest.approx(stats["ARV"])
    assert found["vol_m"] * found["nregions"] == pytest.approx(8.0)  # the area of the square
    assert found["avg_verts"] == pytest.approx(stats["ANV"])
    assert found["ecc_m"] == pytest.approx(stats["ARE"])
    assert found["vol_std"] == pytest.approx(float(part.areas.std()))
    assert found["nverts"] == int(part.mesh.counts().sum())
    assert found["nregions"] == stats["NR"]
    one = compat.utils.get_region_statistics(regions[:1])[1]
    assert one[1] == 0
    square = torch.tensor([[0.0, 0], [3, 0], [3, 1], [0, 1], [0, 0]])
    assert float(compat.utils.region_area_2d(square)) == 3
    assert float(compat.utils.region_eccentricity_2d(square)) == pytest.approx(10**0.5)
    assert float(compat.utils.region_eccentricity_2d(square, eps=1.0)) == pytest.approx(10**0.5 / 2)


def test_the_model_stays_as_it_is() -> None:
    model, domain = make("mlp")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    NN = wrap(model, domain)
    after = model.state_dict()
    assert all(after[name].equal(value) for name, value in before.items())
    assert {value.dtype for value in after.values()} == {torch.float32}
    with torch.no_grad():
        model[0].weight.mul_(2)
    assert NN.model[0].weight.cpu().equal(before["0.weight"].double())
    with pytest.raises(ValueError, match=r"call model.eval\(\) first"):
        wrap(model.train(), domain)


def test_verify_looks_at_the_model() -> None:
    model, domain = make("mlp")
    NN = wrap(model, domain)
    with torch.no_grad():
        NN.model[0].bias.add_(0.1)
    assert not NN.verify()


# -- planes and squares -----------------------------------------------------------------------


def test_squares() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 1, 2, 3, dtype=torch.float64)
    utils = compat.utils
    one = utils.get_square_slice_from_one_anchor(x[:1], pad_dist=0.05, seed=4)
    two = utils.get_square_slice_from_two_anchors(x[:2], pad_dist=0.05, seed=4)
    three = utils.get_square_slice_from_centroid(x, pad_dist=0.05)
    for square, center in ((one, x[0]), (two, x[:2].mean(0)), (three, x.mean(0))):
        assert square.shape == (5, 6)
        assert square[0].equal(square[-1])
        torch.testing.assert_close(square[:-1].mean(0), center.flatten())
        assert sc.Domain.polygon(square).area == pytest.approx(0.005)  # 2 * pad_dist ** 2
    assert one.equal(utils.get_square_slice_from_one_anchor(x[:1], pad_dist=0.05, seed=4))
    assert not one.equal(utils.get_square_slice_from_one_anchor(x[:1], pad_dist=0.05))
    across = (two[0] - two[2]) / 0.1
    torch.testing.assert_close(across, nn.functional.normalize((x[0] - x[1]).flatten(), dim=0))
    with pytest.raises(ValueError, match="2 rows, and this square needs 3"):
        utils.get_square_slice_from_centroid(x[:2])
    with pytest.raises(sc.DomainError, match="parallel"):
        utils.get_square_slice_from_centroid(
            x[[0, 0, 0]] * torch.tensor([1, 2, 3])[:, None, None, None]
        )


def test_planes_of_domains_that_are_none() -> None:
    with pytest.raises(sc.DomainError, match="three vertices"):
        compat.utils.get_proj_mat(torch.eye(2))
    with pytest.raises(sc.DomainError, match="off the plane"):
        compat.utils.get_proj_mat(torch.cat([torch.eye(3), torch.rand(1, 3)]))
    model, domain = make("mlp")
    NN = wrap(model, domain)
    with pytest.raises(ValueError, match="not the matrix"):
        compat.compute.get_partitions_with_db(domain, NN.T + 1, NN)
    with pytest.raises(sc.DomainError, match=r"\(4, 2\), and inputs of shape \(4,\) need \(4, 3\)"):
        compat.wrappers.model_wrapper(model, T=torch.rand(4, 2))


def test_other_polygons() -> None:
    polygon = torch.from_numpy(compat.utils.create_polytope_2d(scale=2, seed=10))
    assert polygon.shape == (31, 2)
    domain = sc.Domain.polygon(polygon)
    triangles = compat.utils.split_domain_by_edge(polygon)
    assert len(triangles) == 30
    areas = [float(compat.utils.region_area_2d(each)) for each in triangles]
    assert sum(areas) == pytest.approx(domain.area)


@pytest.mark.parametrize("channels", [(), (3,)])
def test_samples_near_a_boundary(channels: tuple[int, ...]) -> None:
    data = torch.zeros(4, 2, 5, *channels, dtype=torch.uint8)
    data[1], data[2], data[3] = 9, 5, 7
    data[:, 0, 1] = 1
    found = compat.utils.get_nneigh_points(
        SimpleNamespace(data=data.numpy(), targets=[0, 0, 1, 1]), [0, 1]
    )
    images = data.movedim(-1, 1) if channels else data
    assert found.equal(images[[1, 3, 2]].flatten(1).double())
