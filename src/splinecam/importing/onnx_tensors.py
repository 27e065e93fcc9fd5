"""Constant tensors of ONNX files: checked against the bytes that are there, then read.

External data are read only from files in the folder of the model, and below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam.errors import FileError
from splinecam.importing.onnx_file import damaged

__all__ = ["MOST_ENTRIES", "TensorReader", "bounded", "broadcast", "dtype_of_code"]

MOST_ENTRIES = 1 << 26
"""So many numbers may a value have that is made while a file is read: 512 MB in float64."""

_MOST_AXES = 64  # as in NumPy
_BFLOAT16 = 16
# Codes of TensorProto.DataType, the field that holds the entries, and their type as raw bytes.
_KINDS: dict[int, tuple[str, Any, torch.dtype]] = {
    1: ("float_data", np.dtype("<f4"), torch.float32),
    2: ("int32_data", np.dtype("u1"), torch.uint8),
    3: ("int32_data", np.dtype("i1"), torch.int8),
    5: ("int32_data", np.dtype("<i2"), torch.int16),
    6: ("int32_data", np.dtype("<i4"), torch.int32),
    7: ("int64_data", np.dtype("<i8"), torch.int64),
    9: ("int32_data", np.dtype("?"), torch.bool),
    10: ("int32_data", np.dtype("<f2"), torch.float16),
    11: ("double_data", np.dtype("<f8"), torch.float64),
    _BFLOAT16: ("int32_data", np.dtype("<u2"), torch.bfloat16),
}


def dtype_of_code(code: int) -> torch.dtype | None:
    """The torch type of a code of ONNX; None if there is none, as for strings.

    >>> dtype_of_code(1)
    torch.float32
    """
    return _KINDS[code][2] if code in _KINDS else None


def bounded(shape: tuple[int, ...], what: str) -> tuple[int, ...]:
    """The same shape, or an error if a value of that shape would be gigantic."""
    if len(shape) > _MOST_AXES:
        raise FileError(f"{what} would have {len(shape)} axes: at most {_MOST_AXES} can be read.")
    if any(size < 0 for size in shape) or prod(shape) > MOST_ENTRIES:
        raise FileError(
            f"{what} would have the shape {tuple(shape)}: a value that is made while a file is "
            f"read may have at most {MOST_ENTRIES} entries."
        )
    return shape


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape of the result of an operation that broadcasts; a ``ValueError`` if there is none.

    >>> broadcast((4, 1), (3,))
    (4, 3)
    """
    return tuple(np.broadcast_shapes(*(tuple(shape) for shape in shapes)))


class TensorReader:
    """Reads the tensors of one file. path: of the model, in whose folder external data lie."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, proto: Any, what: str = "") -> Tensor:
        """The tensor of a ``TensorProto``; what: its name in errors."""
        what = f"the tensor {what or proto.name!r}"
        if proto.data_type not in _KINDS:
            raise damaged(self.path, f"{what} has the type {proto.data_type}, which is not numeric")
        field, dtype, kind = _KINDS[proto.data_type]
        shape = tuple(int(size) for size in proto.dims)
        if any(size < 0 for size in shape):
            raise damaged(self.path, f"{what} has the shape {shape}")
        if proto.data_location == proto.EXTERNAL:
            raw = self._external(proto, what, prod(shape) * dtype.itemsize)
        elif proto.HasField("raw_data"):
            raw = proto.raw_data
        else:
            return self._from_field(getattr(proto, field), shape, what, proto.data_type)
        if len(raw) != prod(shape) * dtype.itemsize:
            raise damaged(
                self.path,
                f"{what} of shape {shape} has {len(raw)} bytes, not {prod(shape) * dtype.itemsize}",
            )
        array = np.frombuffer(raw, dtype)
        if dtype == np.dtype("?"):
            array = np.frombuffer(raw, "u1") != 0
        return _tensor(array, shape, kind)

    def _from_field(self, entries: Any, shape: tuple[int, ...], what: str, code: int) -> Tensor:
        _, dtype, kind = _KINDS[code]
        if len(entries) != prod(shape):
            raise damaged(
                self.path, f"{what} of shape {shape} has {len(entries)} entries, not {prod(shape)}"
            )
        if code in (10, _BFLOAT16):  # their bits are stored as whole numbers
            array = np.array(entries, np.int64).astype("<u2").view(dtype)
        else:
            array = np.array(entries).astype(dtype)
        return _tensor(array, shape, kind)

    # -- data in other files

    def _external(self, proto: Any, what: str, expected: int) -> bytes:
        given = {entry.key: entry.value for entry in proto.external_data}
        file = self._inside(given.get("location", ""), what)
        try:
            start, size = int(given.get("offset", 0)), file.stat().st_size
            count = int(given["length"]) if "length" in given else expected
        except (ValueError, OSError) as error:
            raise damaged(self.path, f"the external data of {what} cannot be found") from error
        if start < 0 or count != expected or start + count > size:
            raise damaged(
                self.path,
                f"{what} needs {expected} bytes from byte {start} of {file.name}, which has {size}",
            )
        try:
            with file.open("rb") as stream:
                stream.seek(start)
                return stream.read(count)
        except OSError as error:
            raise FileError(f"{file} cannot be read: {error.strerror or error}.") from error

    def _inside(self, location: str, what: str) -> Path:
        """The file with external data, which must lie in the folder of the model or below."""
        folder = self.path.resolve().parent
        pure = [PurePosixPath(location), PureWindowsPath(location)]
        plain = (
            location
            and "\0" not in location
            and not any(p.is_absolute() or p.drive or ".." in p.parts for p in pure)
        )
        file = (folder / location).resolve() if plain else folder
        if not plain or not file.is_relative_to(folder):
            raise FileError(
                f"{self.path} keeps {what} in {location!r}, outside of its folder, where nothing "
                "is read. Put the file with the data beside the model."
            )
        if not file.is_file():
            raise FileError(
                f"{self.path} keeps {what} in {location!r}, which is missing: put this file beside "
                "the model."
            )
        return file


def _tensor(array: Any, shape: tuple[int, ...], kind: torch.dtype) -> Tensor:
    """A tensor with a memory of its own."""
    if kind is torch.bfloat16:
        wide = array.astype("<u4") << 16
        return torch.from_numpy(wide.view("<f4").copy()).to(torch.bfloat16).reshape(shape)
    return torch.from_numpy(np.array(array)).to(kind).reshape(shape)
