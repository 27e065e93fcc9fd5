"""The number of a network whose surface is sought: an output, or the difference of two."""

from __future__ import annotations

from torch import Tensor

Output = int | tuple[int, int]


def chosen_output(y: Tensor, output: Output) -> Tensor:
    """One of the outputs (N, n_out), or the difference of two, (N,)."""
    return y[:, output] if isinstance(output, int) else y[:, output[0]] - y[:, output[1]]
