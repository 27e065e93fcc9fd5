"""The networks of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import nn

__all__ = ["mlp", "parameter_count", "seeded"]


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


def parameter_count(model: nn.Module) -> int:
    """The number of parameters of a model."""
    return sum(parameter.numel() for parameter in model.parameters())
