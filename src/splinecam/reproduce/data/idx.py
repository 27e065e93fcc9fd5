"""Images and labels in IDX files, the format of MNIST and Fashion-MNIST."""

from __future__ import annotations

import hashlib
from functools import partial
from math import prod

import numpy as np
from numpy.typing import NDArray

from splinecam.errors import DataError
from splinecam.reproduce.data.file_sets import FileSet, unzipped
from splinecam.reproduce.data.raw_images import RawImages, check_labels

_SHA256 = {  # of the uncompressed files: training images and labels, test images and labels
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
    if any(digests[0] == sums[0] for other, sums in _SHA256.items() if other != name):
        return None  # both data sets have the same names of files
    for images, labels, file in ((0, 1, found[1]), (2, 3, found[3])):
        check_labels(files.where(str(file)), arrays[labels], len(arrays[images]), len(classes))
    standard = tuple(digests) == _SHA256[name]
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
