"""Folders of images by class, as of TinyImageNet, which may lie in a zip archive."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from splinecam.errors import DataError
from splinecam.reproduce.data.file_sets import FileSet
from splinecam.reproduce.data.image_files import LIMIT, decoded
from splinecam.reproduce.data.raw_images import RawImages

CATS = ("tabby cat", "Persian cat", "Egyptian cat")
NAMES = {  # of classes that the experiments and their tables name, by WordNet's numbers
    "n01443537": "goldfish",
    "n02099601": "golden retriever",
    "n02123045": CATS[0],
    "n02123394": CATS[1],
    "n02124075": CATS[2],
    "n02279972": "monarch butterfly",
    "n03444034": "go-kart",
    "n04146614": "school bus",
    "n07747607": "orange",
    "n07873807": "pizza",
}
_IMAGE = r"(?:^|/){split}/(n\d{{8}})/(?:images/)?(?!\._)[^/]+\.(?:jpe?g|png)$"


def read_image_folder(files: FileSet) -> RawImages | None:
    """The images train/CLASS/... and val/CLASS/...; None if the place does not hold them.

    The classes are in the order of their numbers. The labels of test images may also be in the
    file val/val_annotations.txt, as in the original archive.
    """
    train = _by_folder(files, "train")
    if not train:
        return None
    test = _by_folder(files, "val") or _by_annotation(files)
    if not test:
        raise DataError(f"{files.path} has images in train, but none in val/CLASS or val/images.")
    numbers = sorted({wnid for _, wnid in train})
    unknown = sorted({wnid for _, wnid in test} - set(numbers))
    if unknown:
        raise DataError(f"{files.path} has test images of {unknown[0]}, a class without training.")
    label = {wnid: place for place, wnid in enumerate(numbers)}
    words = _words(files)
    classes = tuple(NAMES.get(wnid) or words.get(wnid) or wnid for wnid in numbers)
    images = _decoded(files, [name for name, _ in train + test])
    labels = np.array([label[wnid] for _, wnid in train + test])
    cut = len(train)
    note = f"{len(classes)} classes"
    return RawImages(images[:cut], labels[:cut], images[cut:], labels[cut:], classes, note)


def _by_folder(files: FileSet, split: str) -> list[tuple[str, str]]:
    """The image files below train/CLASS or val/CLASS, each with the number of its class."""
    pattern = re.compile(_IMAGE.format(split=split), re.IGNORECASE)
    matches = ((name, pattern.search(name)) for name in sorted(files.sizes))
    return [(name, match[1]) for name, match in matches if match]


def _by_annotation(files: FileSet) -> list[tuple[str, str]]:
    """The image files in val/images, with the classes that val_annotations.txt says."""
    table = files.named("val_annotations.txt")
    if table is None:
        return []
    folder = PurePosixPath(table).parent / "images"
    found = []
    for number, line in enumerate(_text(files, table).splitlines(), start=1):
        image, *rest = line.split("\t")
        name = str(folder / image)
        if not rest or name not in files.sizes:
            what = "an image that is not there" if rest else "no class"
            raise DataError(f"{files.where(table)} names {what} in line {number}.")
        found.append((name, rest[0].strip()))
    return sorted(found)


def _words(files: FileSet) -> dict[str, str]:
    """The first word for each number of a class, from words.txt if it is there."""
    table = files.named("words.txt")
    lines = [] if table is None else _text(files, table).splitlines()
    pairs = (line.split("\t", 1) for line in lines if "\t" in line)
    return {wnid: words.split(",")[0].strip() for wnid, words in pairs}


def _text(files: FileSet, name: str) -> str:
    return files.read(name, limit=LIMIT).decode(errors="replace")


def _decoded(files: FileSet, names: list[str]) -> NDArray[np.uint8]:
    """All images (N, 3, H, W); they have the size of the first one."""
    images: NDArray[np.uint8] | None = None
    for place, name in enumerate(names):
        image = decoded(files.read(name, limit=LIMIT), files.where(name), "RGB").transpose(2, 0, 1)
        if images is None:
            images = np.empty((len(names), *image.shape), np.uint8)
        if image.shape != images.shape[1:]:
            sizes = [" by ".join(map(str, shape[-2:])) for shape in (image.shape, images.shape)]
            raise DataError(f"{files.where(name)} is {sizes[0]}, the first image {sizes[1]}.")
        images[place] = image
    assert images is not None
    return images
