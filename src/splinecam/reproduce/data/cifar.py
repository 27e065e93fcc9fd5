"""CIFAR-10 in its binary version, or in the pickles that torchvision keeps."""

from __future__ import annotations

import hashlib
import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splinecam.errors import DataError
from splinecam.reproduce.data.file_sets import FileSet
from splinecam.reproduce.data.raw_images import RawImages, check_labels

_RECORD = 1 + 3 * 32 * 32  # a label and the bytes of a red, a green and a blue image
_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_SHA256 = {  # of the records of all training batches, and of the test batch
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
    note = "the standard files" if sums == _SHA256 else "not the standard files"
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
