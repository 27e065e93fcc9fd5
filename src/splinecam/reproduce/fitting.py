"""Training with checkpoints: an interrupted training goes on where it was."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from splinecam._util.files import replaced, writing
from splinecam.reproduce.experiment import Setup

Augment = Callable[[Tensor, torch.Generator], Tensor]
Record = Callable[[int, nn.Module], Any]

_PAUSE = 10.0  # seconds between two checkpoints


@dataclass(frozen=True)
class Training:
    """How a network is trained: by Adam with decoupled weight decay.

    epochs: passes over the data. batch: samples a step. rate: the learning rate at the start, which
    falls to zero along a cosine unless ``constant`` is set. decay: of the weights.
    """

    epochs: int
    batch: int = 256
    rate: float = 1e-3
    decay: float = 0.0
    constant: bool = False

    def rate_at(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        if self.constant:
            return self.rate
        return self.rate * 0.5 * (1 + math.cos(math.pi * epoch / self.epochs))


@dataclass
class _State:
    """A training under way: the epochs that are done, and what was recorded after them."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    key: str
    path: Path
    epoch: int = 0
    records: dict[int, Any] = field(default_factory=dict)

    def save(self) -> None:
        """Write the checkpoint, which replaces an earlier one."""
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "key": self.key,
            "epoch": self.epoch,
            "records": self.records,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        with replaced(self.path) as file:
            torch.save(content, file)

    def resume(self) -> None:
        """Go on from the checkpoint if there is one of the same training."""
        if not self.path.is_file():
            return
        try:
            found = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception:  # a damaged file is as good as none
            return
        if found["key"] != self.key:
            return
        self.model.load_state_dict(found["model"])
        self.optimizer.load_state_dict(found["optimizer"])
        self.epoch, self.records = found["epoch"], found["records"]


def fit(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    training: Training,
    *,
    setup: Setup,
    name: str,
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
    augment: Augment | None = None,
    record: Record | None = None,
    record_after: Collection[int] = (),
) -> dict[int, Any]:
    """Train a model, and return what ``record`` found after chosen epochs; it ends in eval mode.

    data: inputs and targets. name: of the checkpoint ``setup.out / "checkpoints" / name.pt``, which
    is written every few seconds: the same call goes on from there. loss: of outputs and targets.
    augment: changes a batch of inputs at random. record: called with the number of epochs done and
    the model in eval mode; what it returns must be numbers, texts, tensors, lists or dicts of them.
    record_after: the epochs after which it is called; 0 is before the training.
    """
    device = setup.trained_on
    model.to(device)
    x, y = (part.to(device) for part in data)
    optimizer = torch.optim.AdamW(model.parameters(), lr=training.rate, weight_decay=training.decay)
    path = setup.out / "checkpoints" / f"{name}.pt"
    state = _State(model, optimizer, _key(model, data, training, setup.seed), path)
    state.resume()
    saved = perf_counter()

    def note() -> None:
        if record is not None and state.epoch in record_after and state.epoch not in state.records:
            model.eval()
            with torch.no_grad():
                state.records[state.epoch] = record(state.epoch, model)

    with setup.bar(training.epochs, "epochs") as bar:
        bar.set_description_str(name)
        bar.update(state.epoch)
        note()
        while state.epoch < training.epochs:
            model.train()
            value = _epoch(state, (x, y), training, setup.seed, loss, augment)
            state.epoch += 1
            note()
            bar.update()
            bar.set_postfix_str(f"loss {value:.3g}")
            if perf_counter() - saved > _PAUSE or state.epoch == training.epochs:
                state.save()
                saved = perf_counter()
    setup.tell(f"{name}: trained for {training.epochs} epochs")
    model.eval()
    return state.records


def _epoch(
    state: _State,
    data: tuple[Tensor, Tensor],
    training: Training,
    seed: int,
    loss: Callable[[Tensor, Tensor], Tensor],
    augment: Augment | None,
) -> float:
    """Train for one pass over the data in random order, and return the mean loss."""
    x, y = data
    # Numbers that depend on the epoch alone: a training that goes on is the same as one in a piece.
    generator = torch.Generator().manual_seed(1_000_003 * seed + state.epoch)
    order = torch.randperm(len(x), generator=generator).to(x.device)
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.manual_seed(1_000_003 * seed + state.epoch)  # for dropout
        total = torch.zeros((), device=x.device)
        for group in state.optimizer.param_groups:
            group["lr"] = training.rate_at(state.epoch)
        for batch in torch.split(order, training.batch):
            inputs = x[batch] if augment is None else augment(x[batch], generator)
            state.optimizer.zero_grad()
            value = loss(state.model(inputs), y[batch])
            value.backward()  # type: ignore[no-untyped-call]
            state.optimizer.step()
            total += value.detach() * len(batch)
    return float(total) / len(x)


def accuracy(model: nn.Module, x: Tensor, labels: Tensor, *, batch: int = 1000) -> float:
    """The share of samples whose largest output is that of their label."""
    device = next(model.parameters()).device
    with torch.no_grad():
        right = [
            (model(part.to(device)).argmax(1).cpu() == label).sum()
            for part, label in zip(torch.split(x, batch), torch.split(labels, batch), strict=True)
        ]
    return float(torch.stack(right).sum()) / len(x)


def _key(model: nn.Module, data: tuple[Tensor, Tensor], training: Training, seed: int) -> str:
    """What a checkpoint must agree in: the network at its start, the data, and the training."""
    state = [(name, tuple(value.shape)) for name, value in model.state_dict().items()]
    sums = [float(part.double().sum()) for part in data]
    shapes = [tuple(part.shape) for part in data]
    text = repr((state, sums, shapes, training, seed))
    return hashlib.sha256(text.encode()).hexdigest()
