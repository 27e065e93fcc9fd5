"""The arrays of a tile in a folder: plain ``.npy`` files, which are mapped when they are read.

``mesh_*``  the fields of ``Mesh``; integers in the narrowest type that holds them
``values``  (V, n_out)

Floating-point arrays are mapped into memory as they are. Integers become 64 bits wide when they are
first used.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.files import writing
from splinecam.errors import FileError
from splinecam.geometry.subdivision import Mesh
from splinecam.io.partition_files import narrow

__all__ = [
    "AGAIN",
    "StoredMesh",
    "TileCounts",
    "mapped",
    "read_array",
    "write_array",
    "write_tile",
]


AGAIN = "Remove the folder of the atlas, and compute it again."  # what to do about damage


@dataclass(frozen=True)
class TileCounts:
    """How many vertices, edges and regions a tile has."""

    vertices: int
    edges: int
    regions: int


class StoredMesh(Mesh):
    """The mesh of a tile, whose arrays are read when they are first used."""

    _folder: Path
    _counts: TileCounts

    @classmethod
    def of(cls, folder: Path, counts: TileCounts) -> StoredMesh:
        """The mesh in a folder, of which nothing is read yet."""
        mesh = cls.__new__(cls)
        vars(mesh).update(_folder=folder, _counts=counts)
        return mesh

    @property
    def num_vertices(self) -> int:
        return self._counts.vertices if "_counts" in vars(self) else super().num_vertices

    @property
    def num_edges(self) -> int:
        return self._counts.edges if "_counts" in vars(self) else super().num_edges

    @property
    def num_faces(self) -> int:
        return self._counts.regions if "_counts" in vars(self) else super().num_faces

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.__dataclass_fields__:
            raise AttributeError(name)
        array = mapped(self._folder, f"mesh_{name}")
        tensor = torch.from_numpy(array if array.dtype.kind == "f" else array.astype(np.int64))
        vars(self)[name] = tensor
        return tensor


def write_array(folder: Path, name: str, value: Tensor | NDArray[Any]) -> None:
    """Write an array to a file of its own; integers are narrowed."""
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    path = folder / f"{name}.npy"
    with writing(path):
        np.save(path, narrow(np.ascontiguousarray(array)))


def write_tile(folder: Path, mesh: Mesh, values: Tensor) -> None:
    """Write the arrays of a tile to a folder, which is there already."""
    for field in fields(Mesh):
        write_array(folder, f"mesh_{field.name}", getattr(mesh, field.name))
    write_array(folder, "values", values)


def mapped(folder: Path, name: str, mode: Any = "c") -> NDArray[Any]:
    """An array of a file that is mapped into memory; changes stay in memory unless asked for."""
    path = folder / f"{name}.npy"
    try:
        array: NDArray[Any] = np.load(path, mmap_mode=mode, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FileError(f"{path} cannot be read ({error}). {AGAIN}") from error
    return array


def read_array(folder: Path, name: str) -> Tensor:
    """A small array as a tensor; integers become 64 bits wide."""
    path = folder / f"{name}.npy"
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FileError(f"{path} cannot be read ({error}). {AGAIN}") from error
    return torch.from_numpy(array if array.dtype.kind == "f" else array.astype(np.int64))
