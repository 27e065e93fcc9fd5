"""Data in place of files that are not there: digits of scikit-learn, and formulas."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.text import optional
from splinecam.reproduce.data.raw_images import RawImages


def enlarged_digits(side: int, channels: int, classes: tuple[str, ...]) -> RawImages:
    """The 1,797 digits of scikit-learn, enlarged from 8 x 8; every fifth one is a test image.

    Colour images (3 channels) have a digit in one random colour on a background of another. The
    ten digits go by the names of the first ten classes.
    """
    digits = optional("sklearn.datasets", "Data in place of missing files", "reproduce")
    found = digits.load_digits()
    border = side // 8
    size = side - 2 * border
    small = torch.from_numpy(found.images / 16)[:, None]
    large = torch.nn.functional.interpolate(small, (size, size), mode="bilinear")
    ink = torch.nn.functional.pad(large, (border,) * 4).numpy()
    if channels == 3:
        drawn = np.random.default_rng(0)
        colours = drawn.random((2, len(ink), 3, 1, 1))
        ink = colours[0] + ink * (colours[1] - colours[0])
    images = (ink * 255).round().clip(0, 255).astype(np.uint8)
    test = np.arange(len(images)) % 5 == 4
    kept: list[NDArray[np.uint8]] = [images[~test], images[test]]
    labels = found.target
    note = "scikit-learn's digits, enlarged" + (" and coloured" if channels == 3 else "")
    return RawImages(kept[0], labels[~test], kept[1], labels[test], classes[:10], note)


def formula_photo(side: int) -> Tensor:
    """A grey image (side, side) of waves, a disc and a square: smooth parts and sharp edges."""
    line = torch.linspace(-1, 1, side)
    x, y = line, line[:, None]
    waves = 0.5 + 0.2 * torch.sin(7 * x + 3 * y * y) + 0.15 * torch.cos(5 * y - 4 * x * y)
    disc = ((x + 0.3) ** 2 + (y + 0.2) ** 2 < 0.16).float()
    square = ((x - 0.45).abs().maximum((y - 0.4).abs()) < 0.25).float()
    return (waves + 0.35 * disc - 0.35 * square).clamp(0, 1)


def bumpy_torus(around: int = 96, across: int = 48) -> tuple[Tensor, Tensor]:
    """The vertices (V, 3) and triangles (T, 3) of a closed torus with bumps, seen from outside."""
    u = torch.arange(around, dtype=torch.float64)[:, None] * (2 * torch.pi / around)
    v = torch.arange(across, dtype=torch.float64) * (2 * torch.pi / across)
    tube = 0.35 + 0.05 * torch.cos(5 * u) * torch.cos(3 * v)
    ring = 0.6 + tube * torch.cos(v)
    corners = (ring * torch.cos(u), ring * torch.sin(u), tube * torch.sin(v))
    i, j = torch.arange(around)[:, None], torch.arange(across)
    ahead, up = (i + 1) % around, (j + 1) % across
    a, b, c, d = (k * across + m for k, m in ((i, j), (ahead, j), (ahead, up), (i, up)))
    triangles = torch.stack([torch.stack([a, b, c], -1), torch.stack([a, c, d], -1)], 2)
    return torch.stack(corners, -1).reshape(-1, 3), triangles.reshape(-1, 3)
