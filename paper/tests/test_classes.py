"""Helpers of the experiments on classifiers: planes of images, eccentricities, areas."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from splinecam import DataError, Domain, partition
from splinecam_paper import boundary, table1
from splinecam_paper.data import Images
from splinecam_paper.training import image_cnn, image_mlp


def images() -> Images:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.rand(60, 1, 28, 28, generator=generator)
    labels = torch.arange(60) % 10
    classes = tuple("abcdefghij")
    return Images("mnist", pixels, labels, pixels, labels, classes, "made", stand_in=True)


def test_square_has_area_one_around_the_centre_of_three_images() -> None:
    data = images()
    samples = table1.three_images(data, seed=3)
    rows = [(data.test.flatten(1) == row.flatten()).all(1).nonzero().item() for row in samples]
    assert [int(data.test_labels[row]) for row in rows] == [2, 3, 3]
    assert rows[1] != rows[2]
    square = table1.unit_square(samples)
    assert square.area == pytest.approx(1.0)
    centre, off = square.project(samples.mean(0))
    assert torch.allclose(centre, square.center)
    assert float(off) < 1e-6


def test_too_few_images_of_a_class_are_an_error_that_names_it() -> None:
    few = replace(images(), test=images().test[:10], test_labels=images().test_labels[:10])
    with pytest.raises(DataError, match=r"1 of the test images of mnist show the class 'd'"):
        table1.three_images(few, seed=0)


def test_measures_of_a_square_cut_into_four() -> None:
    relu = nn.Sequential(nn.Identity(), nn.ReLU())
    found = table1.measure(partition(relu, Domain.box(-1, 1), progress=False))
    assert (found["NR"], found["ARV"], found["ANV"]) == (4, 1.0, 4.0)
    assert found["ARE"] == pytest.approx(2**0.5)
    assert found["ARE float32"] == pytest.approx(2**0.5)
    assert found["ARE repeated"] == pytest.approx(2**0.5 * 1e10)
    assert found["elongation"] == pytest.approx(2**0.5)


def test_rounding_to_float32_makes_close_vertices_coincide() -> None:
    layer = nn.Linear(2, 2).double()
    with torch.no_grad():  # lines at u = 0.5 and at u = 0.5 + 1e-9
        layer.weight.copy_(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
        layer.bias.copy_(torch.tensor([-0.5, -0.5 - 1e-9], dtype=torch.float64))
    part = partition(nn.Sequential(layer, nn.ReLU()), Domain.box(-1, 1), progress=False)
    found = table1.measure(part)
    assert found["coincident float32"] == 1
    assert found["ARE float32"] > found["ARE"] > 1e8


@pytest.mark.parametrize("strided", [True, False])
def test_every_network_has_four_vertices_a_region(strided: bool) -> None:
    square = table1.unit_square(table1.three_images(images(), seed=0)).zoom(10)
    for model in (image_mlp(seed=1), image_cnn(strided=strided, seed=1)):
        part = partition(model, square, progress=False)
        part.validate(progress=False)
        assert table1.measure(part)["ANV"] == 4.0


def test_leads_and_the_typical_image() -> None:
    outputs = torch.tensor([[3.0, 1.0], [1.0, 2.0], [5.0, 0.0], [0.0, 4.0], [9.0, 0.0]])
    labels = torch.tensor([0, 1, 0, 1, 0])
    assert boundary.leads(outputs, 0).tolist() == [2.0, -1.0, 5.0, -4.0, 9.0]
    assert boundary.typical(outputs, labels, 0) == 2
    assert boundary.typical(outputs, labels, 1, share=1.0) == 3


def test_third_image_is_the_one_most_surely_mistaken() -> None:
    case = boundary.CASES[1]
    data = images()

    class Known(nn.Module):
        """Decides as labelled, apart from image 13, a 3 that it takes for a 2."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            flat = data.test.flatten(1)
            row = torch.cdist(x.flatten(1), flat).argmin(1)
            label = torch.where(row == 13, 2, data.test_labels[row])
            return self.scale * nn.functional.one_hot(label, 10).float()

    anchors, found = boundary.three_images(Known(), data, case)
    assert found["anchors"][2] == 13
    assert found["labels"] == ["c", "d", "d"]
    assert found["decided"] == ["c", "d", "c"]
    assert anchors.shape == (3, 1, 28, 28)
