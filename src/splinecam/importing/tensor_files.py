"""Tensors in files, read without unpickling any other object."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam.errors import FileError, SplineCamError

__all__ = ["load_numpy", "load_safetensors", "load_torch", "require_file"]

_PICKLED = "it holds pickled objects, which are not opened, because opening them can run any code"
_FOREIGN = "it was not written by NumPy (np.save, np.savez)"


def require_file(path: Path) -> None:
    """Raise an error that says so when a file does not exist or is a folder."""
    if path.is_dir():
        raise FileError(f"{path} is a folder, not a file.")
    if not path.exists():
        raise FileError(f"There is no file {path}.")


def load_numpy(path: Path) -> dict[str, Tensor]:
    """Return the numbers in an .npy or .npz file by name, in float64; an .npy file has no name."""
    require_file(path)
    try:
        found: Any = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            arrays = {"": found}
        else:
            with found:
                arrays = {name: found[name] for name in found.files}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        reason = f"it is damaged ({error})"
        if "allow_pickle" in str(error):  # which NumPy also says of files that are not its own
            with path.open("rb") as file:
                reason = _PICKLED if file.read(1) in (b"\x93", b"\x80", b"P") else _FOREIGN
        raise FileError(f"{path} cannot be read: {reason}.") from error
    tensors = {}
    for name, array in arrays.items():
        if array.dtype.kind in "biufc":
            wide = np.complex128 if array.dtype.kind == "c" else np.float64
            tensors[name] = torch.from_numpy(np.array(array, wide))
    if not tensors:
        raise FileError(f"{path} holds no arrays of numbers.")
    return tensors


def load_torch(path: Path) -> Any:
    """Return what a .pt or .pth file holds, if that is tensors in plain containers."""
    require_file(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise FileError(
            f"{path} cannot be read: {_PICKLED}. Save tensors alone: "
            'torch.save(model.state_dict(), "weights.pt"), or torch.save(x, "samples.pt").'
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        message = f"{path} cannot be read: it is damaged, or not written by torch.save."
        raise FileError(message) from error


def load_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a .safetensors file by name, in the types of the file."""
    require_file(path)
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise SplineCamError(
            f"Reading {path} needs safetensors, which is not installed. "
            "Run: pip install 'splinecam[safetensors]'"
        ) from error
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise FileError(
            f"{path} cannot be read: it is damaged, or not written by safetensors ({error})."
        ) from error
