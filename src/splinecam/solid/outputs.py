"""The number of a network whose surface is sought: an output, or the difference of two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from splinecam.network.capture import models

Output = int | tuple[int, int]
Winner = Literal["argmax", "argmin"]


def chosen_output(y: Tensor, output: Output) -> Tensor:
    """One of the outputs (N, n_out), or the difference of two, (N,)."""
    return y[:, output] if isinstance(output, int) else y[:, output[0]] - y[:, output[1]]


@dataclass(frozen=True)
class Margin:
    """By how much a class is behind the best of the others, (B, 1), below 0 where it wins.

    output: which of several outputs of the model has the classes; number: of the class; kind: the
    largest or the smallest number wins.
    """

    output: models.Output
    number: int
    kind: Winner

    def __call__(self, result: Any) -> Tensor:
        y = models.selected(result, self.output).flatten(1)
        y = -y if self.kind == "argmin" else y
        own, count = y[:, self.number : self.number + 1], y.shape[1]
        others = y[:, [k for k in range(count) if k != self.number]]
        return (others if count == 2 else others.amax(1, keepdim=True)) - own
