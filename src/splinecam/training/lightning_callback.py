"""A callback of Lightning that counts training steps for a watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from splinecam._util.text import missing

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise missing("Lightning", "watch.lightning()", "lightning") from error


class LightningWatch(Callback):  # type: ignore[misc]
    """Counts the steps of ``Trainer.fit`` for a watch, with the scalars loss and epoch."""

    def __init__(self, step: Callable[..., Any], finish: Callable[..., Any]) -> None:
        self.step, self.finish = step, finish
        self._last = -1
        self._scalars: dict[str, Any] = {}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Count the first step: 0, or the step of a checkpoint."""
        self._last, self._scalars = trainer.global_step, {"epoch": float(trainer.current_epoch)}
        self.step(self._last, **self._scalars)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count an optimizer step; a batch that only accumulates gradients is none."""
        if trainer.global_step != self._last:
            epoch = trainer.current_epoch + (batch_idx + 1) / trainer.num_training_batches
            # ``training_step`` returns the loss by itself, by its name, or not at all.
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            known = {} if loss is None else {"loss": loss}
            self._last, self._scalars = trainer.global_step, {**known, "epoch": epoch}
            self.step(self._last, **self._scalars)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Record the network at the end, unless the last step was recorded."""
        self.finish(self._last, **self._scalars)
