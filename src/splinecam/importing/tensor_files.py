"""Tensors in files, read without unpickling any other object."""

from __future__ import annotations

import pickle
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.optional import optional
from splinecam._util.unpacking import (
    PackedArrays,
    check_pickle,
    check_size,
    most_bytes,
    npy_header,
    open_archive,
    read_text,
)
from splinecam.errors import FileError

__all__ = ["load_numpy", "load_safetensors", "load_torch", "require_file"]

_PICKLED = "it holds pickled objects, which are not opened, because opening them can run any code"
_FOREIGN = "it was not written by NumPy (np.save, np.savez)"
_KINDS = "biufc"  # of numbers
_PICKLES = 5  # in a file that torch wrote before version 1.6, before its storages


def require_file(path: Path) -> None:
    """Raise an error that says so when a file does not exist or is a folder."""
    if path.is_dir():
        raise FileError(f"{path} is a folder, not a file.")
    if not path.exists():
        raise FileError(f"There is no file {path}.")


def load_numpy(path: Path, key: str | None = None) -> dict[str, Tensor]:
    """Return the numbers in an .npy or .npz file by name, in float64; an .npy file has no name.

    key: the only array to read, if the file has it.
    """
    require_file(path)
    try:
        with path.open("rb") as file:
            arrays = _numbers(file, path, key)
    except FileError:
        raise
    except (ValueError, EOFError, OSError, RuntimeError, zipfile.BadZipFile) as error:
        reason = f"it is damaged ({error})"
        if "allow_pickle" in str(error) or "magic string is" in str(error):
            with path.open("rb") as file:
                reason = _PICKLED if file.read(1) in (b"\x93", b"\x80", b"P") else _FOREIGN
        raise FileError(f"{path} cannot be read: {reason}.") from error
    if not arrays:
        raise FileError(f"{path} holds no arrays of numbers.")
    return arrays


def _numbers(file: BinaryIO, path: Path, key: str | None) -> dict[str, Tensor]:
    """The arrays of numbers in an open file of NumPy."""
    if file.read(2) == b"PK":
        arrays = PackedArrays(file, path)
        names = [key] if key is not None and key in arrays else list(arrays)
        return {
            name: _wide(arrays[name]) for name in names if arrays.header(name)[1].kind in _KINDS
        }
    file.seek(0)
    shape, dtype = npy_header(file)
    check_size("the array", shape, dtype, path.stat().st_size - file.tell())
    file.seek(0)
    array = np.lib.format.read_array(file, allow_pickle=False)
    return {"": _wide(array)} if array.dtype.kind in _KINDS else {}


def _wide(array: NDArray[Any]) -> Tensor:
    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    return torch.from_numpy(np.array(array, wide))


def load_torch(path: Path) -> Any:
    """Return what a .pt or .pth file holds, if that is tensors in plain containers."""
    require_file(path)
    try:
        _check_torch(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise FileError(
            f"{path} cannot be read: {_PICKLED}. Save tensors alone: "
            'torch.save(model.state_dict(), "weights.pt"), or torch.save(x, "samples.pt").'
        ) from error
    except FileError:
        raise
    except (RuntimeError, EOFError, OSError, ValueError, zipfile.BadZipFile) as error:
        message = f"{path} cannot be read: it is damaged, or not written by torch.save."
        raise FileError(message) from error


def _check_torch(path: Path) -> None:
    """Raise an error if the pickles in a file would take far more than its size explains."""
    trusted = [f"{each.__module__} {each.__qualname__}" for each in _safe_globals()]
    most = most_bytes(path.stat().st_size)
    try:
        if zipfile.is_zipfile(path):
            with open_archive(path) as archive:
                for info in archive.infolist():
                    if info.filename.lower().endswith("data.pkl"):
                        check_pickle(BytesIO(read_text(archive, info)), most, trusted)
            return
        with path.open("rb") as file:
            for _ in range(_PICKLES):
                check_pickle(file, most, trusted)
    except OverflowError as error:
        raise FileError(
            f"{path} is not opened: {error}, which its {path.stat().st_size:,} bytes do not "
            "explain. Save tensors alone, and expanded ones as copies: torch.save(x.clone(), ...)."
        ) from error


def _safe_globals() -> list[Any]:
    """The classes and functions that the caller has told torch to trust."""
    given = torch.serialization.get_safe_globals()
    return [each[0] if isinstance(each, tuple) else each for each in given]


def load_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a .safetensors file by name, in the types of the file."""
    require_file(path)
    safetensors = optional("safetensors", f"Reading {path}", "safetensors")
    reader = optional("safetensors.torch", f"Reading {path}", "safetensors")
    try:
        return dict(reader.load_file(path))
    except (safetensors.SafetensorError, OSError, KeyError, ValueError) as error:
        raise FileError(
            f"{path} cannot be read: it is damaged, or not written by safetensors ({error})."
        ) from error
