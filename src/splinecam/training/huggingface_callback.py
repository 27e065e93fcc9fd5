"""A callback of Hugging Face's trainer that counts training steps for a watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from splinecam._util.text import missing

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise missing("transformers and accelerate", "watch.huggingface()", "huggingface") from error


class HuggingFaceWatch(TrainerCallback):  # type: ignore[misc]
    """Counts the steps of ``Trainer.train`` for a watch, with the scalars loss and epoch.

    A step is counted when the next one begins: the trainer has logged its loss by then, and has not
    changed the weights yet. step, finish: of the watch; they count a step and record the last one.
    """

    def __init__(self, step: Callable[..., Any], finish: Callable[..., Any]) -> None:
        self.step, self.finish = step, finish

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Count the completed step, at first 0 or the step of a checkpoint."""
        self.step(state.global_step, **_scalars(state))

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Record the network at the end, unless the last step was recorded."""
        self.finish(state.global_step, **_scalars(state))


def _scalars(state: Any) -> dict[str, float]:
    """Return the last logged loss, if any, and the epoch."""
    loss = next((x["loss"] for x in reversed(state.log_history) if "loss" in x), None)
    found = {} if loss is None else {"loss": float(loss)}
    return found if state.epoch is None else {**found, "epoch": float(state.epoch)}
