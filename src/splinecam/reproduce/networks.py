"""The networks of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import torch
from torch import nn

# Channels of the convolutions of a VGG, in blocks that end with a pool.
_BLOCKS = {
    11: ((64,), (128,), (256, 256), (512, 512), (512, 512)),
    16: ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512)),
}


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Make weights from a seed, and leave the random state of the caller as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def mlp(
    widths: Sequence[int], activation: Callable[[], nn.Module] = nn.ReLU, *, seed: int = 0
) -> nn.Sequential:
    """A fully connected network from ``widths[0]`` inputs to ``widths[-1]`` outputs.

    >>> parameter_count(mlp([784, 50, 50, 50, 10]))  # of Table 1
    44860
    """
    with seeded(seed):
        layers: list[nn.Module] = []
        for into, out in pairwise(widths):
            layers += [nn.Linear(into, out), activation()]
    return nn.Sequential(*layers[:-1])


def image_mlp(*, seed: int = 0) -> nn.Sequential:
    """The fully connected network of Table 1 and Fig. 6, on images of 28 x 28 pixels."""
    return nn.Sequential(nn.Flatten(), *mlp([784, 50, 50, 50, 10], seed=seed))


def image_cnn(*, strided: bool, seed: int = 0) -> nn.Sequential:
    """Two convolutions and a hidden layer of 50 units, on images of 28 x 28 pixels.

    The paper prints the number of parameters of such a network, but not its filters. These two
    have that number: 16 and 28 filters of 3 x 3 pixels, and 5 x 5 positions at the end. strided:
    whether the convolutions take strides of 3 and 2, or average pooling follows each of them; the
    layers then have 100 and 25, or 676 and 121 positions.

    >>> [parameter_count(image_cnn(strided=strided)) for strided in (True, False)]  # of Table 1
    [39780, 39780]
    """
    with seeded(seed):
        first, second = nn.Conv2d(1, 16, 3), nn.Conv2d(16, 28, 3)
        if strided:
            first, second = nn.Conv2d(1, 16, 3, 3, 1), nn.Conv2d(16, 28, 3, 2, 1)
        shrink = nn.Identity if strided else partial(nn.AvgPool2d, 2)
        features = [first, nn.ReLU(), shrink(), second, nn.ReLU(), shrink(), nn.Flatten()]
        return nn.Sequential(*features, nn.Linear(700, 50), nn.ReLU(), nn.Linear(50, 10))


def parameter_count(model: nn.Module) -> int:
    """The number of parameters of a model."""
    return sum(parameter.numel() for parameter in model.parameters())


def cifar_cnn(filters: int, *, channels: int = 3, classes: int = 10, seed: int = 0) -> nn.Module:
    """The network for CIFAR10: six convolutions, every second one strided, and two linear layers.

    As in the authors' script there is no activation between the linear layers, and the number of
    filters doubles after every second convolution.

    >>> [parameter_count(cifar_cnn(filters)) for filters in (8, 16, 32)]
    [23698, 81690, 304810]
    """
    with seeded(seed):
        layers: list[nn.Module] = []
        for width in (filters, 2 * filters, 4 * filters):
            for stride in (1, 2):
                layers += [nn.Conv2d(channels, width, 3, stride, padding=1), nn.ReLU()]
                channels = width
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]  # of 32 x 32 pixels: both average pools
        layers += [nn.Linear(channels, 128), nn.Linear(128, classes)]
    return nn.Sequential(*layers)


def vgg(
    depth: int,
    *,
    side: int = 64,
    channels: int = 3,
    classes: int = 200,
    factor: float = 1.0,
    seed: int = 0,
) -> nn.Sequential:
    """VGG11 or VGG16 as in the authors' code: batch-norm, average pools, a strided first layer.

    side: of the images, a power of two; blocks that see a single pixel end without a pool. factor:
    of the number of channels and of units.

    >>> [parameter_count(vgg(depth)) for depth in (11, 16)]
    [9325832, 16921224]
    """
    with seeded(seed):
        layers: list[nn.Module] = []
        stride = 2
        for block in _BLOCKS[depth]:
            for width in block:
                wide = round(factor * width)
                layers.append(nn.Conv2d(channels, wide, 3, stride, padding=1, bias=False))
                layers += [nn.BatchNorm2d(wide), nn.ReLU()]
                side, channels, stride = side // stride, wide, 1
            if side > 1:
                layers.append(nn.AvgPool2d(2))
                side //= 2
        layers.append(nn.Flatten())
        for width in (2048, 512) if depth == 16 else ():
            wide = round(factor * width)
            layers += [nn.Linear(channels, wide), nn.ReLU()]
            channels = wide
        layers.append(nn.Linear(channels, classes))
    return nn.Sequential(*layers)
