"""Random changes of images keep their shapes and values, and are what they say."""

from __future__ import annotations

import torch

from splinecam_paper.training import augmented, brightened, flipped, shifted


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_images_are_mirrored_or_not() -> None:
    x = torch.rand(50, 3, 4, 4)
    found = flipped(x, drawn())
    same = (found == x).flatten(1).all(1)
    mirrored = (found == x.flip(3)).flatten(1).all(1)
    assert (same ^ mirrored).all()
    assert 10 < int(same.sum()) < 40


def test_images_are_shifted_by_whole_pixels() -> None:
    x = torch.rand(30, 2, 16, 16)
    found = shifted(x, drawn())
    moves = [(a, b) for a in range(-2, 3) for b in range(-2, 3)]
    inner = [x.roll(move, (2, 3))[:, :, 2:-2, 2:-2] for move in moves]
    equal = torch.stack([(found[:, :, 2:-2, 2:-2] == each).flatten(1).all(1) for each in inner])
    assert equal.any(0).all()
    assert int(equal.any(1).sum()) > 5  # different ones


def test_brightness_stays_in_range_and_changes_are_repeatable() -> None:
    x = torch.rand(20, 3, 8, 8)
    for change in (brightened, augmented):
        found = change(x, drawn(1))
        assert found.shape == x.shape
        assert float(found.min()) >= 0
        assert float(found.max()) <= 1
        assert found.equal(change(x, drawn(1)))
        assert not found.equal(change(x, drawn(2)))
