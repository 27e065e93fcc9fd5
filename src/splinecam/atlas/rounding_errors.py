"""The rounding errors of a tile in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam._util.files import replaced

__all__ = ["ERRORS", "largest_errors", "read_errors", "write_errors"]

ERRORS = "errors.npz"  # the file in a tile's folder, until the atlas is complete


def write_errors(path: Path, value_error: Tensor, layer_errors: Mapping[str, Tensor]) -> None:
    """Write the errors of the outputs (n_out,), and of the units of each layer (n,)."""
    arrays: dict[str, Any] = {
        f"layer_{k}": error.cpu().numpy() for k, error in enumerate(layer_errors.values())
    }
    arrays |= {"values": value_error.cpu().numpy(), "names": np.array(list(layer_errors), "U")}
    with replaced(path) as file:
        np.savez(file, **arrays)


def read_errors(path: Path) -> tuple[Tensor, dict[str, Tensor]]:
    """The errors in a file."""
    with np.load(path, allow_pickle=False) as found:
        names = found["names"].tolist()
        layers = {name: torch.from_numpy(found[f"layer_{k}"]) for k, name in enumerate(names)}
        return torch.from_numpy(found["values"]), layers


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
