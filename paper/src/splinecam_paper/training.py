"""The networks of the paper, and how they are trained.

A training writes checkpoints: one that was interrupted goes on where it was.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from splinecam._util.files import replaced, writing
from splinecam_paper.experiment import Setup

# -- networks -------------------------------------------------------------------------------------


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


# -- random changes of images ---------------------------------------------------------------------


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


# -- training -------------------------------------------------------------------------------------


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
