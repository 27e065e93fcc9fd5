"""Files that unpack to more bytes than they have: how much of them is read, and what is refused.

A file of a megabyte can announce terabytes, or truly hold a gigabyte of zeros. Whatever is read is
compared first with what its header says, and with the size of the file.
"""

from __future__ import annotations

import math
import os
import pickle
import pickletools
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from splinecam.errors import FileError

TEXT = 1 << 20
"""Bytes that a text in a file may always have: reading it costs much more than its bytes."""

_FREE = 1 << 26  # bytes that the arrays of a file may always have
_RATIO = 100  # bytes for every byte of the file; deflate reaches 1032
_NUMBER = 8  # bytes of a number in memory, whatever it has in the file
_KEY = 64  # values in a key of a pickled dict; hashing the key hashes all of them
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # how NumPy and torch write


def most_bytes(packed: int, free: int = _FREE) -> int:
    """How many bytes a file of so many bytes may unpack to; free: bytes that it always may."""
    return free + _RATIO * packed


def refused(name: str | Path, packed: int, instead: str) -> FileError:
    """The error for a file of so many bytes that would need far more memory; instead: advice."""
    return FileError(
        f"{name} is not opened: it has {packed:,} bytes, but would take far more memory than that. "
        f"{instead}"
    )


def open_archive(path: Path) -> zipfile.ZipFile:
    """A zip archive, whose files together are no more than its size explains."""
    archive = zipfile.ZipFile(path)
    packed = path.stat().st_size
    if sum(info.file_size for info in archive.infolist()) > most_bytes(packed):
        archive.close()
        raise refused(path, packed, "If you trust it, pack it again without compression (zip -0).")
    return archive


def read_text(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """The content of a file of text, or of a pickle, in an archive."""
    if _is_long(info):
        raise refused(info.filename, info.compress_size, "Write it again without compression.")
    return archive.read(info)


def _is_long(info: zipfile.ZipInfo) -> bool:
    return info.file_size > most_bytes(info.compress_size, TEXT)


class PackedArrays(Mapping[str, NDArray[Any]]):
    """The arrays in an .npz file; each is read when it is asked for, and never unpickled.

    A ``FileError`` refuses arrays that are larger than the file explains; damaged ones raise a
    ``ValueError``, ``EOFError``, ``OSError`` or ``zipfile.BadZipFile``.

    file: stays open as long as arrays are read. name: of the file, for messages.
    """

    def __init__(self, file: IO[bytes], name: str | Path) -> None:
        self._archive, self._name = zipfile.ZipFile(file), name
        self._packed = file.seek(0, os.SEEK_END)
        self._members = {
            info.filename.removesuffix(".npy"): info
            for info in self._archive.infolist()
            if info.filename.endswith(".npy")
        }
        self._read: dict[str, int] = {}  # the bytes of each array so far

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, key: object) -> bool:
        return key in self._members  # without reading it

    def __getitem__(self, key: str) -> NDArray[Any]:
        info = self._members[key]
        shape, dtype = self.header(key)
        self._read[key] = math.prod(shape) * max(_NUMBER, dtype.itemsize)
        if sum(self._read.values()) > most_bytes(self._packed):
            raise self._refused()
        try:
            with self._archive.open(info) as member:
                return np.lib.format.read_array(member, allow_pickle=False)
        except zlib.error as error:
            raise ValueError(f"{key} cannot be unpacked: {error}") from error

    def header(self, key: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """The shape and the type of an array, which must be what its bytes can hold."""
        info = self._members[key]
        if info.compress_type not in _METHODS:
            raise ValueError(f"{key} is packed by a method that NumPy does not use")
        try:
            with self._archive.open(info) as member:
                shape, dtype = npy_header(member)
                start = member.tell()
        except zlib.error as error:
            raise ValueError(f"{key} cannot be unpacked: {error}") from error
        check_size(key, shape, dtype, info.file_size - start)
        return shape, dtype

    def text(self, key: str) -> bytes:
        """The bytes of an array that holds a text."""
        if _is_long(self._members[key]):
            raise self._refused()
        return self[key].tobytes()

    def _refused(self) -> FileError:
        return refused(
            self._name,
            self._packed,
            "If you trust it, write it again without compression, and open that:\n"
            f'    np.savez("plain.npz", **np.load({str(self._name)!r}))',
        )


def npy_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and the type of the array in an .npy file that is open at its start."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    return shape, dtype


def check_size(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], there: int) -> None:
    """Raise a ``ValueError`` unless an array takes the bytes that are there; pickles may differ."""
    if min(shape, default=0) < 0 or (
        not dtype.hasobject and math.prod(shape) * dtype.itemsize != there
    ):
        raise ValueError(f"{name} has {there:,} bytes, which do not fit the shape {shape}")


# -- pickles -------------------------------------------------------------------------------------

_TENSORS = tuple(f"torch._utils _rebuild_tensor{version}" for version in ("", "_v2", "_v3"))
_PLAIN = (  # what else may be called: it takes no more than it is given
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_parameter_with_state",
    "torch.nn.parameter Parameter",
    "torch Size",
    "torch device",
    "torch.serialization _get_layout",
    "collections OrderedDict",
    "collections Counter",
    *(f"{module} {name}" for module in ("builtins", "__builtin__") for name in ("set", "complex")),
)
_BYTES = tuple(f"{module} bytearray" for module in ("builtins", "__builtin__"))
_LATIN = ("latin1", "latin-1")


@dataclass(slots=True)
class _Value:
    """A pickled value: what it is, if that is plain, and how many values are in it."""

    plain: Any = None
    size: int = 1
    largest: int = 0  # the size of the largest value directly in it

    def add(self, values: Collection[_Value]) -> None:
        self.size += sum(value.size for value in values)
        self.largest = max([self.largest, *(value.size for value in values)])


def check_pickle(file: BinaryIO, most: int, trusted: Collection[str] = ()) -> None:
    """Follow the pickle in a file without opening it, and raise an error if it is no plain one.

    A ``pickle.UnpicklingError`` says that it calls what makes no tensors, an ``OverflowError`` that
    its tensors would take more than ``most`` bytes or its keys are costly to hash, and a
    ``ValueError`` that it is damaged.

    trusted: what it may call beside that, as "module name".
    """
    stack: list[_Value | None] = []  # None is a mark
    memo: dict[Any, _Value] = {}
    need = 0
    try:
        for code, word, _ in pickletools.genops(file):
            name = code.name
            if name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
                memo[len(memo) if word is None else word] = _top(stack)
            elif name in ("BINGET", "LONG_BINGET", "GET"):
                stack.append(memo[word])
            elif name == "MARK":
                stack.append(None)
            elif name not in ("PROTO", "FRAME", "STOP"):
                taken = _taken(stack, [each.name for each in code.stack_before])
                value, more = _result(name, word, taken, trusted)
                stack.extend([value] * len(code.stack_after))
                need += more
                if need > most:
                    raise OverflowError(f"its tensors would take more than {most:,} bytes")
    except (IndexError, KeyError, AttributeError, TypeError) as error:
        raise ValueError("it is no complete pickle") from error


def _top(stack: list[_Value | None]) -> _Value:
    if stack[-1] is None:
        raise IndexError
    return stack[-1]


def _taken(stack: list[_Value | None], before: list[str]) -> list[_Value]:
    """Take what an instruction takes from a stack: a number of values, or all above the mark."""
    taken: list[_Value] = []
    fixed = before.index("mark") if "mark" in before else len(before)
    if "mark" in before:
        while (value := stack.pop()) is not None:
            taken.append(value)
    for _ in range(fixed):
        taken.append(_top(stack))
        stack.pop()
    return taken[::-1]


def _result(
    name: str, word: Any, taken: list[_Value], trusted: Collection[str]
) -> tuple[_Value, int]:
    """What an instruction leaves on the stack, and the bytes that it takes."""
    if name in ("SETITEM", "SETITEMS", "ADDITEMS", "APPEND", "APPENDS", "BUILD"):
        held, *rest = taken
        keys = rest if name == "ADDITEMS" else rest[::2] if name.startswith("SETITEM") else []
        _check_keys(max((key.size for key in keys), default=0))
        held.add(rest)
        return held, 0
    if name in ("REDUCE", "NEWOBJ"):
        return _Value(size=1 + taken[1].size), _cost(taken[0], taken[1], trusted)
    if name in ("BINPERSID", "PERSID"):
        return _Value(), abs(int(taken[0].plain[4].plain))
    if name in ("STACK_GLOBAL", "INST", "OBJ", "NEWOBJ_EX"):
        raise pickle.UnpicklingError(f"{name} may call anything")
    value = _Value(tuple(taken) if "TUPLE" in name else word)
    value.add(taken)
    return value, 0


def _check_keys(largest: int) -> None:
    if largest > _KEY:
        raise OverflowError(f"a key of a dict in it has more than {_KEY} values")


def _cost(function: _Value, given: _Value, trusted: Collection[str]) -> int:
    """The bytes that a call takes beyond what it is given."""
    arguments: tuple[_Value, ...] = given.plain
    name = function.plain
    if name in _TENSORS:
        return 8 * math.prod(abs(int(size.plain)) for size in arguments[2].plain)
    if name == "_codecs encode" and arguments[1].plain in _LATIN:  # others may double the bytes
        return 0
    if name in _BYTES and not any(isinstance(each.plain, int) for each in arguments):
        return 0  # a number would be that of zero bytes
    if name not in _PLAIN and name not in trusted:
        raise pickle.UnpicklingError(f"{name} is not called")
    if arguments and name.endswith((" set", " Counter")):
        _check_keys(arguments[0].largest)
    return 0
