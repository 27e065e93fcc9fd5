"""Read and write the files of a store, whose folder anybody may have written.

Files lie in the folder, and none of them is a link. Manifests are JSON with a checksum, and their
entries have known types. Arrays are ``.npy`` files that end with a checksum, which ``numpy.load``
ignores. Whatever is wrong is a ``FileError``.

A checksum finds damage, not an attack: whoever changes a file can change its checksum as well. So
types, shapes and ranges are always checked before something is used as an index.

A list of results is JSON in which ``{"array": 3}`` stands for the array ``array_3``. Floats keep
all their bits. Tensors, tuples, and dicts with keys other than texts are marked as such.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
import stat
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import NoneType, UnionType
from typing import IO, Any, Union, get_args, get_origin

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.files import reason_of, replaced, writing
from splinecam._util.unpacking import PackedArrays
from splinecam.errors import FileError

_MOST, _LARGE = 1 << 48, sys.float_info.max  # above all counts, and the largest other number
_SUM = re.compile(rb'(.*), "crc32": "([0-9a-f]{8})"\}\s*', re.DOTALL)
_SUM_BYTES = 4  # of the checksum after an array
_FLAGS = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))

# What numpy raises where a file has no arrays.
_READING = (
    *(OSError, ValueError, TypeError, KeyError, AttributeError, SyntaxError, EOFError),
    *(RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error, struct.error),
    tokenize.TokenError,
)


# -- names ----------------------------------------------------------------------------------------


def inside(folder: Path, *names: Any) -> Path:
    """The path of a file or a folder in a folder, which need not exist.

    names: of the folders on the way, and its own. A ``FileError`` says which of them leads out of
    the folder, or is a link.

    >>> inside(Path("run"), "tiles", "00000000").as_posix()
    'run/tiles/00000000'
    """
    path = folder
    for name in names:
        plain = isinstance(name, str) and name not in ("", ".", "..") and "\0" not in name
        if not (plain and PurePosixPath(name).name == PureWindowsPath(name).name == name):
            raise FileError(f"{name!r} is not the name of a file in {path}. Do not trust {folder}.")
        path = path / name
        if path.is_symlink():
            raise FileError(f"{path} is a link, and a store has none. Do not trust {folder}.")
    return path


def refuse_links(folder: Path) -> None:
    """Raise a ``FileError`` if there is a link anywhere in a folder, before it is changed."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            inside(Path(place), name)


def open_plain(path: Path) -> IO[bytes]:
    """A file to read; a ``FileError`` if it is a link, a pipe or a device."""
    try:
        number = os.open(path, os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        if path.is_symlink():
            raise FileError(f"{path} is a link, and a store has none.") from None
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise FileError(f"{path} cannot be read: {reason}.") from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise FileError(f"{path} is not a file.")
    return os.fdopen(number, "rb")


def damaged(path: Path, what: object, remedy: str) -> FileError:
    """The error for a file that is not as it was written; remedy: what to do about it."""
    return FileError(f"{path} is damaged: {what}. {remedy}")


# -- manifests ------------------------------------------------------------------------------------


def seal(entries: Mapping[str, Any]) -> bytes:
    """Entries as JSON, with a checksum as the last one.

    >>> seal({"step": 3})
    b'{"step": 3, "crc32": "d3a4e216"}'
    """
    text = json.dumps(entries).removesuffix("}")
    return f'{text}, "crc32": "{zlib.crc32(text.encode()):08x}"}}'.encode()


def parse(content: bytes, path: Path, remedy: str) -> dict[str, Any]:
    """The entries in a file; ``check_sum`` tells whether they are unchanged."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise damaged(path, "it is not JSON", remedy) from None
    if not isinstance(found, dict):
        raise damaged(path, f"{_short(found)} is not a list of entries", remedy)
    return {name: value for name, value in found.items() if name != "crc32"}


def check_sum(content: bytes, path: Path, remedy: str) -> None:
    """Raise a ``FileError`` if what ``seal`` has written was changed."""
    parts = _SUM.fullmatch(content)
    if parts is None or zlib.crc32(parts[1]) != int(parts[2], 16):
        raise damaged(path, "its checksum is wrong", remedy)


def unseal(content: bytes, path: Path, remedy: str) -> dict[str, Any]:
    """The entries that ``seal`` has written to a file; a ``FileError`` if they have changed."""
    found = parse(content, path, remedy)
    check_sum(content, path, remedy)
    return found


def check_entries(
    found: Any, kinds: Mapping[str, Any], path: Path, remedy: str, *, others: bool = False
) -> None:
    """Raise a ``FileError`` unless there are entries of these names and types.

    kinds: the types, as annotations write them. ``int`` stands for counts, which are not negative,
    ``float`` for finite numbers, and tuples are lists in JSON. others: whether there may be more.
    """
    if not isinstance(found, dict):
        raise damaged(path, f"{_short(found)} is not a list of entries", remedy)
    for name, kind in kinds.items():
        if name not in found:
            raise damaged(path, f"there is no {name!r}", remedy)
        if not _fits(found[name], kind):
            raise damaged(path, f"{name!r} is {_short(found[name])}", remedy)
    if not others and (more := found.keys() - kinds.keys()):
        raise damaged(path, f"{min(more)!r} is not known", remedy)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value of JSON is of a type."""
    origin, given = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if kind in (int, float) and isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, int) and 0 <= value < _MOST
    if kind is float:
        return isinstance(value, int | float) and abs(value) <= _LARGE
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in given)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(each, given[1]) for each in value.values())
    if origin in (list, tuple) and not isinstance(value, list):
        return False
    if origin is list:
        return all(_fits(each, given[0]) for each in value)
    if origin is tuple:
        return len(value) == len(given) and all(map(_fits, value, given))
    return isinstance(value, NoneType if kind is None else kind)


# -- arrays ---------------------------------------------------------------------------------------


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array and its checksum to a file; an old file of the name is replaced."""
    array = np.ascontiguousarray(array)
    with writing(path), replaced(path) if path.exists() else path.open("xb") as file:
        np.save(file, array)
        file.write(_sum(path, array).to_bytes(_SUM_BYTES, "little"))


def _sum(path: Path, array: NDArray[Any]) -> int:
    """The checksum of an array of this name, type and shape."""
    start = zlib.crc32(f"{path.name} {array.dtype.str} {array.shape}".encode())
    return zlib.crc32(array.reshape(-1).view(np.uint8).data, start)


@contextmanager
def _reading(path: Path, remedy: str) -> Iterator[IO[bytes]]:
    """A file to read arrays from; whatever goes wrong is a ``FileError`` with a remedy."""
    try:
        with open_plain(path) as file:
            yield file
    except FileNotFoundError:
        raise FileError(f"There is no file {path}. {remedy}") from None
    except FileError:
        raise
    except _READING as error:
        raise damaged(path, error, remedy) from error


def read_array(path: Path, kinds: str, remedy: str, *, verify: bool = True) -> NDArray[Any]:
    """The array in a file, which is mapped into memory; changes stay in memory.

    kinds: ``"f"`` for float64, ``"i"`` for whole numbers, ``"fi"`` for either. verify: whether to
    compare the checksum.
    """
    with _reading(path, remedy) as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"version {version} of .npy files")
        shape, reverse, dtype = np.lib.format.read_array_header_1_0(file)
        begin, size = file.tell(), os.fstat(file.fileno()).st_size
        known = dtype == np.float64 or dtype.kind == "i"
        if not known or dtype.kind not in kinds or not dtype.isnative or reverse:
            raise ValueError(f"it has entries of the type {dtype}")
        count = math.prod(shape)
        if begin + count * dtype.itemsize + _SUM_BYTES != size or begin % dtype.itemsize:
            raise ValueError(f"{size:,} bytes do not fit an array {shape}")
        block = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    array: NDArray[Any] = np.frombuffer(block, dtype, count, begin).reshape(shape)
    if verify and _sum(path, array) != int.from_bytes(block[-_SUM_BYTES:], "little"):
        raise damaged(path, "its checksum is wrong", remedy)
    return array


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write small arrays to an ``.npz`` file, which appears when it is complete."""
    inside(path.parent, path.name)
    with replaced(path) as file:
        np.savez(file, **arrays)


def read_arrays(path: Path, names: Iterable[str] | None, remedy: str) -> dict[str, NDArray[Any]]:
    """Arrays by their names, by default all, from a file of ``write_arrays``."""
    with _reading(path, remedy) as file:
        content = PackedArrays(file, path)
        return {name: content[name] for name in (content if names is None else names)}


Arrays = Mapping[str, NDArray[Any]]

_RESULTS = "results"  # the array with the JSON


def encode(results: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """The arrays of a file with the results.

    Numbers, texts, None, arrays, tensors, and tuples, lists and dicts of them can be encoded; a
    ``TypeError`` names a result of another type.

    >>> decode(encode([{"NR": 4, "ARV": 0.5}, (1, None)]))
    [{'NR': 4, 'ARV': 0.5}, (1, None)]
    """
    arrays: dict[str, NDArray[Any]] = {}
    lines = [_plain(result, arrays) for result in results]
    text = json.dumps(lines, separators=(",", ":"))
    return {_RESULTS: np.frombuffer(text.encode(), np.uint8), **arrays}


def decode(arrays: Arrays) -> list[Any]:
    """The results in the arrays of a file."""
    return [_restored(line, arrays) for line in json.loads(arrays[_RESULTS].tobytes())]


@dataclass(frozen=True)
class Codec:
    """How results are kept in files."""

    encode: Callable[[Sequence[Any]], dict[str, NDArray[Any]]]  # from results to arrays
    decode: Callable[[Arrays], list[Any]]  # from arrays to results
    size: Callable[[Any], int]  # the bytes of a result, which tell when to write


VALUES = Codec(encode, decode, lambda result: 0)
"""Results that are numbers, texts and arrays."""


def _plain(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """A value as JSON; its arrays are added to the others."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return float(value) if isinstance(value, float) else int(value)
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item()
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    if isinstance(array, np.ndarray) and array.dtype.kind in "biufcUS":
        number = len(arrays)
        arrays[f"array_{number}"] = array
        return {"array" if array is value else "tensor": number}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and not _marked(value):
            return {key: _plain(item, arrays) for key, item in value.items()}
        return {"dict": [[_plain(k, arrays), _plain(v, arrays)] for k, v in value.items()]}
    if isinstance(value, tuple | list):
        items = [_plain(item, arrays) for item in value]
        return {"tuple": items} if isinstance(value, tuple) else items
    raise TypeError(
        f"a store cannot keep {type(value).__qualname__}: let reduce return numbers, texts, "
        "arrays, or tuples, lists and dicts of them"
    )


def _marked(value: Mapping[str, Any]) -> bool:
    """Whether a dict looks like a mark."""
    return len(value) == 1 and next(iter(value)) in ("array", "tensor", "tuple", "dict")


def _restored(value: Any, arrays: Arrays) -> Any:
    """The value that JSON stands for."""
    if isinstance(value, list):
        return [_restored(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if not _marked(value):
        return {key: _restored(item, arrays) for key, item in value.items()}
    ((kind, inner),) = value.items()
    if kind == "tuple":
        return tuple(_restored(item, arrays) for item in inner)
    if kind == "dict":
        return {_restored(k, arrays): _restored(v, arrays) for k, v in inner}
    array = arrays[f"array_{inner}"]
    return torch.from_numpy(array) if kind == "tensor" else array
