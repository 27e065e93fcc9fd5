"""Labelled images as they lie in files: bytes, checked against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splinecam.errors import DataError

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class RawImages:
    """Images (N, C, H, W) of bytes with labels (N,), for training and for testing.

    note: what is known of them, to be told after the name of the data set.
    """

    train: Bytes
    train_labels: NDArray[Any]
    test: Bytes
    test_labels: NDArray[Any]
    classes: tuple[str, ...]
    note: str

    def __post_init__(self) -> None:
        if self.train.shape[1:] != self.test.shape[1:]:
            shapes = f"{self.train.shape[1:]} and {self.test.shape[1:]}"
            raise DataError(f"Training and test images have different shapes: {shapes}.")


def check_labels(where: str, labels: NDArray[Any], images: int, classes: int) -> None:
    """Raise an error unless there is one label per image, each the number of a class."""
    if len(labels) != images:
        raise DataError(f"{where} is damaged: it has {len(labels)} labels for {images} images.")
    if images == 0:
        raise DataError(f"{where} is damaged: it has no images.")
    if labels.max() >= classes:
        raise DataError(
            f"{where} is damaged: the label {labels.max()} is not one of 0 to {classes - 1}."
        )
