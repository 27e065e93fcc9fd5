from __future__ import annotations

import pytest
import torch

from made_data import make_data
from splinecam.reproduce.data import load_images, load_mesh, load_photo


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mnist", (1, 28, 28)),
        ("fashion-mnist", (1, 28, 28)),
        ("cifar10", (3, 32, 32)),
        ("tinyimagenet", (3, 64, 64)),
    ],
)
def test_made_data_are_found_by_name(folder, name, shape):
    images = load_images(name, folder)
    assert images.train.shape[1:] == images.test.shape[1:] == shape
    assert images.train.dtype == torch.float32
    assert images.train_labels.dtype == torch.int64
    assert len(images.train) == len(images.train_labels)
    assert len(images.test) == len(images.test_labels)
    assert 0 <= images.train.min() < 0.2 < 0.8 < images.train.max() <= 1
    assert images.train_labels.max() < len(images.classes)
    assert not images.stand_in


def test_made_photo_and_mesh_are_found(folder):
    assert load_photo("made", folder).values.shape == (48, 48)
    assert len(load_mesh("bunny", folder).triangles) == 24 * 12 * 2
