"""Images that the package ``datasets`` of Hugging Face has on this machine already."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splinecam.reproduce.data.image_folder import NAMES
from splinecam.reproduce.data.raw_images import RawImages

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
