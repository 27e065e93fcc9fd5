"""The rounding errors of a tile in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam.atlas.tile_files import AGAIN
from splinecam.stores.untrusted import damaged, read_arrays, write_arrays

__all__ = ["ERRORS", "largest_errors", "read_errors", "write_errors"]

ERRORS = "errors.npz"  # the file in a tile's folder, until the atlas is complete


def write_errors(path: Path, value_error: Tensor, layer_errors: Mapping[str, Tensor]) -> None:
    """Write the errors of the outputs (n_out,), and of the units of each layer (n,)."""
    arrays: dict[str, Any] = {
        f"layer_{k}": error.cpu().numpy() for k, error in enumerate(layer_errors.values())
    }
    arrays |= {"values": value_error.cpu().numpy(), "names": np.array(list(layer_errors), "U")}
    write_arrays(path, arrays)


def read_errors(path: Path) -> tuple[Tensor, dict[str, Tensor]]:
    """The errors in a file."""
    found = read_arrays(path, None, AGAIN)
    names = found.pop("names", np.zeros(0))
    places = [*(f"layer_{k}" for k in range(names.size)), "values"]
    sound = names.ndim == 1 and names.dtype.kind == "U" and found.keys() == set(places)
    for array in found.values():
        sound &= array.ndim == 1 and array.dtype == np.float64 and bool((array >= 0).all())
        sound = sound and bool(np.isfinite(array).all())
    if not sound:
        raise damaged(path, "it holds something else than rounding errors", AGAIN)
    *layers, values = (torch.from_numpy(found[place]) for place in places)
    return values, dict(zip(names.tolist(), layers, strict=True))


def largest_errors(paths: Iterable[Path]) -> tuple[Tensor, dict[str, Tensor]]:
    """The largest errors of several files."""
    first, *others = map(read_errors, paths)
    values, layers = first
    for value, errors in others:
        values = torch.maximum(values, value)
        layers = {
            name: torch.maximum(layers[name], error) if name in layers else error
            for name, error in (layers | errors).items()
        }
    return values, layers
