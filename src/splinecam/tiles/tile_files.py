"""The arrays of a tile in a folder: plain ``.npy`` files, which are mapped when they are read.

``mesh_*``  the fields of ``Mesh``; integers in the narrowest type that holds them
``values``  (V, n_out)
``settled`` (F,) with ``refine``: 1 for faces on which the question is settled, else 0

Floating-point arrays are mapped into memory as they are. Integers become 64 bits wide when they are
first used. An array is checked when it is first read, so that no index is out of bounds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam.geometry.checks import check_field
from splinecam.geometry.subdivision import Mesh
from splinecam.partitions.partition_files import narrow
from splinecam.stores import untrusted
from splinecam.stores.manifest import ATLAS
from splinecam.stores.untrusted import damaged, read_arrays, write_arrays

AGAIN = ATLAS.remedy  # what to do about damage

Column = tuple[tuple[int | str, ...], float, float | str]
"""A shape, and the range of the entries: from the first number on, and below the second.

A letter is a number that all columns of a file have in common.
"""
SETTLED = "settled"
FINITE = -sys.float_info.max, math.inf  # the range of numbers that are finite


def read_field(
    folder: Path, units: tuple[int, ...], verify: bool, mesh: Mesh, name: str
) -> dict[str, Tensor]:
    """An array of a mesh in a folder, by its name, as ``LazyMesh`` loads it."""
    kind, key = "f" if name == "uv" else "i", f"mesh_{name}"
    tensor = read_array(folder, key, kind, verify=verify)
    try:
        check_field(mesh, name, tensor, units)
    except ValueError as error:
        raise damaged(folder / f"{key}.npy", f"it {error}", AGAIN) from None
    return {name: tensor}


def write_array(folder: Path, name: str, value: Tensor | NDArray[Any]) -> None:
    """Write an array to a file of its own; integers are narrowed."""
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    untrusted.write_array(folder / f"{name}.npy", narrow(array))


def write_tile(folder: Path, mesh: Mesh, values: Tensor) -> None:
    """Write the arrays of a tile to an existing folder."""
    for field in fields(Mesh):
        write_array(folder, f"mesh_{field.name}", getattr(mesh, field.name))
    write_array(folder, "values", values)


def read_array(folder: Path, name: str, kinds: str, *, verify: bool = True) -> Tensor:
    """An array as a tensor; integers become 64 bits wide, others are mapped into memory."""
    array = untrusted.read_array(folder / f"{name}.npy", kinds, AGAIN, verify=verify)
    return torch.from_numpy(array if array.dtype.kind == "f" else array.astype(np.int64))


def read_values(folder: Path, vertices: int, outputs: int, *, verify: bool = True) -> Tensor:
    """The outputs (V, n_out) at the vertices of a tile."""
    values = read_array(folder, "values", "f", verify=verify)
    if tuple(values.shape) != (vertices, outputs):
        what = f"it has the shape {tuple(values.shape)}, not {vertices, outputs}"
        raise damaged(folder / "values.npy", what, AGAIN)
    if values.numel() and not bool(torch.stack(values.aminmax()).isfinite().all()):
        raise damaged(folder / "values.npy", "it has entries that are not finite", AGAIN)
    return values


def read_settled(folder: Path, regions: int, *, verify: bool) -> Tensor:
    """Which regions of a tile are settled, (F,)."""
    found = read_array(folder, SETTLED, "i", verify=verify)
    if found.shape != (regions,) or bool(((found < 0) | (found > 1)).any()):
        raise damaged(folder / f"{SETTLED}.npy", "it does not say which regions are settled", AGAIN)
    return found.bool()


def read_mesh(folder: Path, units: Sequence[int], artificial: int) -> Mesh:
    """The whole mesh in a folder; units: of each layer; artificial: the layer of other edges."""
    names = [field.name for field in fields(Mesh)]
    arrays = (read_array(folder, f"mesh_{name}", "f" if name == "uv" else "i") for name in names)
    mesh = Mesh(*arrays)
    check_fields(mesh, units, artificial, folder)
    return mesh


def check_fields(mesh: Mesh, units: Sequence[int], artificial: int, folder: Path) -> None:
    """Raise a ``FileError`` unless the arrays of a mesh from a folder fit together."""
    like = mesh  # with artificial edges as if they were on the border
    if mesh.edge_layer.shape == mesh.edge_unit.shape:
        mask, made = mesh.edge_layer == artificial, mesh.vertex_layer
        like = replace(
            mesh,
            edge_layer=mesh.edge_layer.masked_fill(mask, -1),
            edge_unit=mesh.edge_unit.masked_fill(mask, -1),
            vertex_layer=made.masked_fill(made == artificial, -1),
        )
    for name, value in vars(like).items():
        try:
            check_field(like, name, value, units)
        except (ValueError, IndexError) as error:  # arrays may lack dimensions
            raise damaged(folder / f"mesh_{name}.npy", f"it {error}", AGAIN) from None


def write_columns(path: Path, columns: Mapping[str, Tensor]) -> None:
    """Write arrays to an ``.npz`` file."""
    write_arrays(path, {name: value.cpu().numpy() for name, value in columns.items()})


def read_columns(path: Path, columns: Mapping[str, Column]) -> dict[str, Tensor]:
    """The arrays of an ``.npz`` file by their names; a ``FileError`` if one has another shape."""
    found = untrusted.read_arrays(path, columns, AGAIN)
    sizes: dict[Any, float] = {}
    for name, (shape, low, end) in columns.items():
        array, kinds = found[name], ("f8",) if isinstance(low, float) else ("i8", "b1")
        same = len(shape) == array.ndim and array.dtype.str[1:] in kinds
        for size, n in zip(shape, array.shape, strict=False):
            same &= n == (sizes.setdefault(size, n) if isinstance(size, str) else size)
        if not same:
            raise damaged(path, f"{name} has the shape {array.shape} and type {array.dtype}", AGAIN)
        above = sizes[end] if isinstance(end, str) else end
        if array.size and not low <= array.min() <= array.max() < above:
            raise damaged(path, f"{name} has an entry out of range", AGAIN)
    return {name: torch.from_numpy(found[name]) for name in columns}


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
