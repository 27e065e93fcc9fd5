from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from splinecam import DataError
from splinecam_paper.data import load_photo, photos


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.delenv("SPLINECAM_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_photo_of_scikit_image():
    photo = load_photo("camera")
    assert photo.values.shape == (512, 512)
    assert photo.values.dtype == torch.float32
    assert 0 <= photo.values.min() < photo.values.max() <= 1
    assert photo.source == "scikit-image's 'camera'."
    assert load_photo("astronaut", size=64).values.shape == (64, 64)


def test_an_image_file_is_preferred_and_its_middle_scaled(tmp_path):
    stripes = np.zeros((10, 30, 3), np.uint8)
    stripes[:, 10:20] = 255
    Image.fromarray(stripes).save(tmp_path / "camera.png")
    assert load_photo("camera", tmp_path).values.shape == (10, 30)
    photo = load_photo("camera.png", tmp_path, size=5)
    assert photo.values.shape == (5, 5)
    assert photo.values.min() == 1
    assert photo.source == "The photo camera.png."


def test_sixteen_bits(tmp_path):
    deep = np.linspace(0, 65535, 12).astype(np.uint16).reshape(3, 4)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    values = load_photo("deep", tmp_path).values
    torch.testing.assert_close(values, torch.linspace(0, 1, 12).reshape(3, 4), atol=1 / 255, rtol=0)


def test_stand_ins(monkeypatch):
    with pytest.raises(DataError, match="photo 'nobody' is not on this machine"):
        load_photo("nobody")
    photo = load_photo("nobody", size=32, stand_in=True)
    assert photo.stand_in
    assert photo.source == "scikit-learn's 'flower', in place of 'nobody'."
    assert photo.values.shape == (32, 32)
    monkeypatch.setattr(photos, "_packaged", lambda *where: None)
    photo = load_photo("nobody", stand_in=True)
    assert photo.source == "A picture by a formula, in place of 'nobody'."
    assert photo.values.shape == (256, 256)
    assert photo.values.std() > 0.1


def test_what_is_wrong(tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken.jpg is not an image that pillow can read"):
        load_photo("broken", tmp_path, stand_in=True)
    with pytest.raises(DataError, match="at least 1 pixel, not 0"):
        load_photo("camera", size=0)
