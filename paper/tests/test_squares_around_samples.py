"""The statistics of squares around samples, beside those of their partitions one by one."""

from __future__ import annotations

import pytest
import torch

from splinecam import partition
from splinecam_paper.neighbourhoods import Squares, chosen, uniform
from splinecam_paper.training import cifar_cnn, mlp, vgg


def test_statistics_are_those_of_each_partition() -> None:
    model = mlp([6, 12, 12, 3])
    samples = {"train": torch.rand(3, 6), "random": torch.rand(2, 6)}
    squares = Squares.around(samples, 16.0, seed=1)
    found = squares.measure(model, device="cpu")
    assert {name: len(group["NR"]) for name, group in found.items()} == {"train": 3, "random": 2}
    part = partition(model, squares.groups["train"][2], device="cpu", progress=False)
    stats = part.stats()
    ours = {name: float(column[2]) for name, column in found["train"].items()}
    assert ours["NR"] == stats["NR"] > 4
    for name, long in (("ARV", "area.mean"), ("ARE", "eccentricity.mean"), ("std", "area.std")):
        assert ours[name] == pytest.approx(stats[long])
    assert ours["ARV"] * ours["NR"] == pytest.approx(squares.area)


def test_samples_are_chosen_once_and_random_ones_fill_the_range() -> None:
    x = torch.arange(20.0)[:, None]
    assert len(set(chosen(x, 20).flatten().tolist())) == 20
    assert chosen(x, 5, seed=1).equal(chosen(x, 5, seed=1))
    images = torch.tensor([[0.0, 2.0], [1.0, 3.0]])[:, :, None]  # two channels of one pixel
    drawn = uniform(images.expand(2, 2, 50), 40)
    assert (drawn[:, 0] < 1.0).all()
    assert (drawn[:, 1] > 2.0).all()


@pytest.mark.parametrize("side", [4, 16, 32])
def test_networks_for_small_images_are_partitioned(side: int) -> None:
    x = torch.rand(8, 3, side, side)
    for model in (cifar_cnn(2), vgg(11, side=side, factor=1 / 32, classes=4)):
        model.train()(x)
        model.eval()
        square = Squares.around({"a": x[:1]}, 0.01).groups["a"][0]
        assert partition(model, square, device="cpu", progress=False).validate().ok
