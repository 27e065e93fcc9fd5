"""Labelled images as they lie in files: IDX, the batches of CIFAR-10, and folders by class."""

from __future__ import annotations

import hashlib
import io
import pickle
import re
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splinecam import DataError
from splinecam_paper.data.files import LIMIT, FileSet, decoded, unzipped

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


# -- IDX files: MNIST and Fashion-MNIST -----------------------------------------------------------


_IDX_SHA256 = {  # of the uncompressed files: training images and labels, test images and labels
    "mnist": (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    "fashion-mnist": (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
}
_PARTS = (("train-images", 3), ("train-labels", 1), ("t10k-images", 3), ("t10k-labels", 1))


def read_idx(files: FileSet, name: str, classes: tuple[str, ...]) -> RawImages | None:
    """The four files of MNIST or Fashion-MNIST; None if the place does not hold them."""
    found = [_named(files, part, axes) for part, axes in _PARTS]
    if not any(found):
        return None
    arrays, digests = [], []
    for (part, axes), file in zip(_PARTS, found, strict=True):
        if file is None:
            raise DataError(f"{files.path} has no file {part}-idx{axes}-ubyte beside its others.")
        where = files.where(file)
        content = files.read(file)
        if file.endswith(".gz"):
            content = unzipped(content, where, partial(_size, axes=axes))
        digests.append(hashlib.sha256(content).hexdigest())
        arrays.append(parse_idx(content, where, axes))
    if any(digests[0] == sums[0] for other, sums in _IDX_SHA256.items() if other != name):
        return None  # both data sets have the same names of files
    for images, labels, file in ((0, 1, found[1]), (2, 3, found[3])):
        check_labels(files.where(str(file)), arrays[labels], len(arrays[images]), len(classes))
    standard = tuple(digests) == _IDX_SHA256[name]
    note = "the standard files" if standard else "not the standard files"
    train, train_labels, test, test_labels = arrays
    return RawImages(train[:, None], train_labels, test[:, None], test_labels, classes, note)


def parse_idx(content: bytes, where: str, axes: int) -> NDArray[np.uint8]:
    """The array of bytes in the content of an IDX file, which has so many axes.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), "labels", axes=1)
    array([7, 9], dtype=uint8)
    """
    magic = bytes((0, 0, 8, axes))  # 8 stands for unsigned bytes
    if content[:4] != magic:
        raise DataError(
            f"{where} is not an IDX file of bytes with {axes} ax{'is' if axes == 1 else 'es'}: it "
            f"starts with {content[:4].hex() or 'nothing'}, not with {magic.hex()}."
        )
    size = _size(content, axes)
    if len(content) != size:
        how = "ends too early" if len(content) < size else "goes on after its end"
        raise DataError(f"{where} is damaged: it {how}; its header announces {size:,} bytes.")
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    return values.reshape(_shape(content, axes))


def _named(files: FileSet, part: str, axes: int) -> str | None:
    """The file of a part of the data, by one of its usual names."""
    names = [f"{part}{mark}idx{axes}-ubyte" for mark in "-."]
    return files.named(*names, *(f"{name}.gz" for name in names))


def _shape(content: bytes, axes: int) -> tuple[int, ...]:
    return tuple(int.from_bytes(content[4 * i : 4 * i + 4], "big") for i in range(1, axes + 1))


def _size(content: bytes, axes: int) -> int:
    """How many bytes a file has according to its header."""
    return 4 + 4 * axes + prod(_shape(content, axes))


# -- CIFAR-10: its binary version, and the pickles of torchvision ---------------------------------


_RECORD = 1 + 3 * 32 * 32  # a label and the bytes of a red, a green and a blue image
_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_CIFAR_SHA256 = {  # of the records of all training batches, and of the test batch
    "train": "a0181da372c0d63a5920fdbea2ec3f83ecbc552d378218e1cb473cf634941a3b",
    "test": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
_BINARY = "take the binary version of CIFAR-10 (cifar-10-binary.tar.gz) instead"

Records = NDArray[np.uint8]


def read_cifar(files: FileSet, classes: tuple[str, ...]) -> RawImages | None:
    """The six batches of CIFAR-10; None if the place does not hold them.

    Both versions become the same records, so that one checksum holds for both.
    """
    found = [files.named(f"{batch}.bin", batch) for batch in _BATCHES]
    if not any(found):
        return None
    parts = []
    for batch, file in zip(_BATCHES, found, strict=True):
        if file is None:
            raise DataError(f"{files.path} has no file {batch} beside the others of CIFAR-10.")
        content, where = files.read(file), files.where(file)
        records = _records(content, where) if file.endswith(".bin") else _unpickled(content, where)
        check_labels(where, records[:, 0], len(records), len(classes))
        parts.append(records)
    train, test = np.concatenate(parts[:5]), parts[5]
    sums = {
        "train": hashlib.sha256(train.data).hexdigest(),
        "test": hashlib.sha256(test.data).hexdigest(),
    }
    note = "the standard files" if sums == _CIFAR_SHA256 else "not the standard files"
    images = [part[:, 1:].reshape(-1, 3, 32, 32) for part in (train, test)]
    return RawImages(images[0], train[:, 0], images[1], test[:, 0], classes, note)


def _records(content: bytes, where: str) -> Records:
    if len(content) % _RECORD:
        raise DataError(
            f"{where} is damaged: its {len(content):,} bytes are not a whole number of records of "
            f"{_RECORD} bytes."
        )
    return np.frombuffer(content, np.uint8).reshape(-1, _RECORD)


def _unpickled(content: bytes, where: str) -> Records:
    """The records in a pickle, of which nothing is executed."""
    try:
        batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        entries = {key if isinstance(key, bytes) else key.encode(): batch[key] for key in batch}
        data, labels = entries[b"data"].bytes_of(), np.array(entries[b"labels"])
        if (
            labels.ndim != 1
            or labels.dtype.kind != "i"
            or not np.all((labels >= 0) & (labels < 256))
        ):
            raise ValueError("its labels are not small whole numbers")
        if len(data) != len(labels):
            raise ValueError(f"it has {len(labels)} labels for {len(data)} images")
    except Exception as error:  # a damaged pickle raises anything
        raise DataError(f"{where} cannot be read ({error}); {_BINARY}.") from error
    return np.concatenate([labels.astype(np.uint8)[:, None], data], axis=1)


class _Stub:
    """Stands for an object of NumPy in a pickle, and keeps what the pickle says of it."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def bytes_of(self) -> Records:
        """The array of images that this stands for."""
        _, shape, dtype, fortran, content = self.state
        kind = dtype.arguments[0]
        if fortran or kind not in (b"u1", "u1") or len(shape) != 2 or shape[1] != _RECORD - 1:
            raise ValueError(f"its data of type {kind!r} and shape {shape} are not images")
        return np.frombuffer(content, np.uint8).reshape(shape)


class _Unpickler(pickle.Unpickler):
    """Puts stubs in place of arrays and their types, and refuses every other object."""

    _KNOWN = ("_reconstruct", "ndarray", "dtype")

    def find_class(self, module: str, name: str) -> type[_Stub]:
        if module.split(".")[0] == "numpy" and name in self._KNOWN:
            return _Stub
        raise pickle.UnpicklingError(f"it holds a {module}.{name}, which is not created")


# -- folders by class: TinyImageNet, also in a zip archive ----------------------------------------


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
