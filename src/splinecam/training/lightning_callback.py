"""A callback of Lightning that counts training steps for a watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splinecam.errors import SplineCamError

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise SplineCamError(
            "watch.lightning() needs Lightning, which is not installed. "
            "Run: pip install 'splinecam[lightning]'"
        ) from error

if TYPE_CHECKING:
    from splinecam.training.watching import Watch

__all__ = ["LightningWatch"]


class LightningWatch(Callback):  # type: ignore[misc]
    """Records the network of a watch during ``Trainer.fit``, with the scalars loss and epoch."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._last = -1
        self._scalars: dict[str, Any] = {}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Count the step that training begins with, 0 or that of a checkpoint."""
        self._last, self._scalars = trainer.global_step, {"epoch": float(trainer.current_epoch)}
        self.watch.step(self._last, **self._scalars)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count an optimizer step; batches whose gradients are only accumulated are none."""
        if trainer.global_step != self._last:
            epoch = trainer.current_epoch + (batch_idx + 1) / trainer.num_training_batches
            self._last, self._scalars = trainer.global_step, {**_loss(outputs), "epoch": epoch}
            self.watch.step(self._last, **self._scalars)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Record the network at the end, unless that has been done."""
        if self._last not in self.watch.run.steps[-1:]:
            self.watch.snapshot(self._last, **self._scalars)


def _loss(outputs: Any) -> dict[str, Any]:
    """The loss of a batch, which ``training_step`` returns by itself or by name, or not at all."""
    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
    return {} if loss is None else {"loss": loss}
