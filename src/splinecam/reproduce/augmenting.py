"""Random changes of a batch of images: flips, shifts and brightness."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


def flipped(x: Tensor, generator: torch.Generator) -> Tensor:
    """The images (N, C, H, W), each mirrored from left to right with probability 1/2."""
    mirror = torch.rand(len(x), 1, 1, 1, generator=generator).to(x.device) < 0.5
    return torch.where(mirror, x.flip(3), x)


def shifted(x: Tensor, generator: torch.Generator) -> Tensor:
    """The square images (N, C, H, H), each moved by up to an eighth of its side.

    What comes in from outside is the image reflected at its border.
    """
    n, channels, side, _ = x.shape
    most = max(1, side // 8)
    large = pad(x, (most,) * 4, mode="reflect")
    first = torch.randint(0, 2 * most + 1, (2, n, 1), generator=generator).to(x.device)
    rows, columns = first + torch.arange(side, device=x.device)
    image = torch.arange(n, device=x.device)[:, None, None, None]
    channel = torch.arange(channels, device=x.device)[:, None, None]
    return large[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def brightened(x: Tensor, generator: torch.Generator) -> Tensor:
    """The images with values from 0 to 1, each multiplied by a random number from 0.6 to 1.4."""
    factor = 0.6 + 0.8 * torch.rand(len(x), 1, 1, 1, generator=generator).to(x.device)
    return (factor * x).clamp(0, 1)


def augmented(x: Tensor, generator: torch.Generator) -> Tensor:
    """The images mirrored, moved and made brighter or darker at random."""
    return brightened(shifted(flipped(x, generator), generator), generator)
