"""VGG networks trained on TinyImageNet, with and without data augmentation.

The authors start from weights of ImageNet; ours are trained from scratch. Experiments with the same
settings and the same folder for results share the checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from splinecam.reproduce.augmenting import augmented
from splinecam.reproduce.data import Images, load_images
from splinecam.reproduce.experiment import Setup
from splinecam.reproduce.fitting import Training, accuracy, fit
from splinecam.reproduce.networks import vgg


@dataclass(frozen=True)
class VggSettings:
    """Images and networks: the side of images, how many of them, and the factor of widths."""

    training: Training = field(default_factory=lambda: Training(60, batch=128))
    side: int = 64
    factor: float = 1.0
    images: int | None = None


def tiny_imagenet(setup: Setup, settings: VggSettings) -> Images:
    """The images with the side and the number of the settings, in random order."""
    images = load_images("tinyimagenet", setup.data, stand_in=setup.quick)
    order = torch.randperm(len(images.train), generator=torch.Generator().manual_seed(0))
    order = order[: settings.images]
    return replace(
        images,
        train=_resized(images.train[order], settings.side),
        train_labels=images.train_labels[order],
        test=_resized(images.test, settings.side),
    )


def _resized(x: Tensor, side: int) -> Tensor:
    return x if x.shape[-1] == side else adaptive_avg_pool2d(x, side)


def trained_vgg(
    depth: int, images: Images, settings: VggSettings, *, setup: Setup, augment: bool
) -> tuple[nn.Module, float]:
    """A network of 11 or 16 layers trained with the seed of the setup, and its test accuracy."""
    model = vgg(
        depth,
        side=settings.side,
        channels=images.train.shape[1],
        classes=len(images.classes),
        factor=settings.factor,
        seed=setup.seed,
    )
    fit(
        model,
        (images.train, images.train_labels),
        settings.training,
        setup=setup,
        name=f"vgg{depth}{'-augmented' if augment else ''}-{setup.seed}",
        augment=augmented if augment else None,
    )
    return model, accuracy(model, images.test, images.test_labels, batch=250)


def entropy(model: nn.Module, x: Tensor, *, batch: int = 250) -> Tensor:
    """The entropy of the class probabilities of each sample, (N,)."""
    device = next(model.parameters()).device
    with torch.no_grad():
        parts = torch.split(x, batch)
        logits = torch.cat([model(part.to(device)).double().cpu() for part in parts])
    share = logits.softmax(1)
    found: Tensor = -torch.special.xlogy(share, share).sum(1)
    return found
