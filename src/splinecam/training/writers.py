"""Writing scalars to TensorBoard, Weights & Biases or a logger of Lightning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splinecam._util.options import kind_of

__all__ = ["check_writer", "write_scalars"]

_METHODS = ("add_scalar", "log_metrics", "log")


def check_writer(writer: Any) -> None:
    """Raise a ``TypeError`` for an object that does not take scalars."""
    if writer is not None and not any(callable(getattr(writer, k, None)) for k in _METHODS):
        raise TypeError(
            "writer must be a SummaryWriter of TensorBoard (add_scalar), a run of Weights & Biases "
            f"(log) or a logger of Lightning (log_metrics), not {kind_of(writer)}"
        )


def write_scalars(writer: Any, step: int, scalars: Mapping[str, float]) -> None:
    """Pass the scalars of a step to a writer, with names that begin with ``splinecam/``."""
    named = {f"splinecam/{name}": value for name, value in scalars.items()}
    if callable(getattr(writer, "add_scalar", None)):
        for name, value in named.items():
            writer.add_scalar(name, value, step)
    elif callable(getattr(writer, "log_metrics", None)):
        writer.log_metrics(named, step=step)
    elif writer is not None:
        writer.log(named, step=step)
