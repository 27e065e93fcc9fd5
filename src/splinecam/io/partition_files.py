"""Partitions in files: plain numpy arrays in an .npz archive, without pickle.

``about``        JSON as bytes: format and version, the domain's input shape, names of the cuts, the
                 final operation left out, the model's floating-point type, unresolved places, which
                 of several outputs (its index or name, or the name of a function), names of the
                 classes; files of earlier versions lack the last two
``domain_*``     origin (D,), basis (2, D), corners (k, 2)
``mesh_*``       the fields of ``Mesh``; whole numbers as narrow as they fit
``maps_*``       the fields of ``AffineMaps``
``values``       (V, n_out), ``value_error`` (n_out,), ``cut_error_0`` (n,), ...

Coordinates are local: plane = center + scale * local, where center is the domain's centroid and
scale the smallest power of two not below half the domain's diameter.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.files import reason_of, replaced
from splinecam.analysis.partition_data import PartitionData, Unresolved
from splinecam.engine.affine_maps import AffineMaps
from splinecam.errors import FileError, SplineCamError
from splinecam.geometry.checks import check_mesh
from splinecam.geometry.domain import Domain
from splinecam.geometry.subdivision import Mesh
from splinecam.network.capture.outputs import Lost, Output

__all__ = ["read", "save"]

_FORMAT, _VERSION = "splinecam partition", 1

# Fields that have another name in files, as they had it when the format was made.
_FILE_NAMES = {"edge_layer": "edge_op", "vertex_layer": "vertex_op"}

Arrays = Mapping[str, NDArray[Any]]
P = TypeVar("P", bound=PartitionData)


def _mesh_key(name: str) -> str:
    """The name in a file of a field of a mesh."""
    return f"mesh_{_FILE_NAMES.get(name, name)}"


# -- writing --------------------------------------------------------------------------------------


def save(part: PartitionData, path: str | os.PathLike[str] | BinaryIO) -> None:
    """Write everything but the network to a file (conventionally .npz) that ``sc.load`` reads.

    The file holds plain arrays (``numpy.load`` reads them) and appears only when it is complete.

    >>> import splinecam as sc, tempfile
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> part = sc.partition(net, sc.Domain.box(-1, 1), progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     part.save(f"{folder}/regions.npz")
    ...     again = sc.load(f"{folder}/regions.npz")
    >>> len(again) == len(part)
    True
    """
    arrays = _arrays(part)
    if not isinstance(path, str | os.PathLike):
        np.savez(path, **arrays)
        return
    with replaced(path) as file:
        np.savez(file, **arrays)


def _arrays(part: PartitionData) -> dict[str, Any]:
    domain = part.domain
    about = {
        "format": _FORMAT,
        "version": _VERSION,
        "input_shape": domain.input_shape,
        "cuts": part.layers,
        "stripped": part.stripped,
        "dtype": str(part.dtype).removeprefix("torch."),
        "unresolved": part.unresolved,
        "output": _output_written(part.output),
        "names": part.names,
    }
    tensors = {f"domain_{name}": getattr(domain, name) for name in ("origin", "basis", "corners")}
    tensors |= {_mesh_key(name): tensor for name, tensor in vars(part.mesh).items()}
    tensors |= {f"maps_{name}": tensor for name, tensor in vars(part.maps).items()}
    tensors |= {"values": part.values, "value_error": part.value_error}
    tensors |= {f"cut_error_{k}": part.layer_errors[name] for k, name in enumerate(part.layers)}
    arrays = {name: _narrow(tensor.cpu().numpy()) for name, tensor in tensors.items()}
    return {"about": np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays}


def _output_written(output: Output) -> Any:
    """Which output was selected; of a function only its name."""
    if isinstance(output, Lost) or callable(output):
        return {"function": str(getattr(output, "name", getattr(output, "__name__", output)))}
    return output


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers in the smallest type that holds them all."""
    if array.dtype.kind != "i":
        return array
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    return array.astype(np.result_type(np.min_scalar_type(low), np.min_scalar_type(-high - 1)))


# -- reading --------------------------------------------------------------------------------------


def read(
    path: str | os.PathLike[str] | BinaryIO,
    kind: type[P],
    *,
    device: torch.device,
    verify: bool = True,
) -> P:
    """The partition in a file; a ``FileError`` says what is wrong with a file that holds none.

    kind: the class of the result. device: where its tensors are to be. verify: also check that the
    regions fit together and cover the domain. Checksums, types, shapes and the range of indices are
    checked in any case, so that nothing reads out of bounds.
    """
    if not isinstance(path, str | os.PathLike):
        return _moved(_read(path, "The file", kind, verify), device)
    try:
        with Path(path).open("rb") as file:
            return _moved(_read(file, str(path), kind, verify), device)
    except FileNotFoundError:
        raise FileError(f"There is no file {path}.") from None
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be read: {reason_of(error)}.") from None


def _moved(part: P, device: torch.device) -> P:
    """The partition with its tensors moved to a device; the domain stays where it is."""
    part.mesh = part.mesh.to(device)
    part.values, part.value_error = part.values.to(device), part.value_error.to(device)
    part.layer_errors = {name: error.to(device) for name, error in part.layer_errors.items()}
    part.maps = AffineMaps(*(tensor.to(device) for tensor in vars(part.maps).values()))
    return part


def _read(file: BinaryIO, name: str, kind: type[P], verify: bool) -> P:
    arrays, about = _contents(file, name)
    try:
        part = _assembled(arrays, about, kind)
        _check_shapes(part)
        if verify:
            _check_mesh(part)
        return part
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, SplineCamError) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise FileError(f"{name} is damaged: {what}. Compute the partition again.") from error


def _contents(file: BinaryIO, name: str) -> tuple[Arrays, dict[str, Any]]:
    """The arrays, and what the file says of itself."""
    foreign = FileError(f"{name} is not a partition saved by SplineCam (part.save).")
    if not _begins_as_archive(file):
        raise foreign
    try:
        with np.load(file, allow_pickle=False) as content:
            if "about" not in content.files:
                raise foreign
            about = json.loads(content["about"].tobytes())
            if not isinstance(about, dict) or about.get("format") != _FORMAT:
                raise foreign
            if about.get("version") != _VERSION:
                raise FileError(
                    f"{name} has version {about.get('version')} of the format; this SplineCam "
                    f"reads version {_VERSION}. Install a newer splinecam to read it."
                )
            return {key: content[key] for key in content.files}, about
    except (EOFError, zipfile.BadZipFile, OSError, ValueError, RuntimeError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(
            f"{name} is truncated or damaged ({error}). Save the partition again."
        ) from error


def _begins_as_archive(file: BinaryIO) -> bool:
    start = file.tell()
    head = file.read(4)
    file.seek(start)
    return head == b"PK\x03\x04"


def _assembled(arrays: Arrays, about: Mapping[str, Any], kind: type[P]) -> P:
    """The partition that consists of the given arrays."""
    layers = tuple(map(str, about["cuts"]))
    domain = Domain(
        origin=_floats(arrays, "domain_origin"),
        basis=_floats(arrays, "domain_basis"),
        corners=_floats(arrays, "domain_corners"),
        input_shape=tuple(about["input_shape"]),
    )
    mesh = Mesh(
        uv=_floats(arrays, "mesh_uv"),
        **{f.name: _whole(arrays, _mesh_key(f.name)) for f in fields(Mesh) if f.name != "uv"},
    )
    part = kind(
        domain=domain,
        mesh=mesh,
        values=_floats(arrays, "values"),
        value_error=_floats(arrays, "value_error"),
        layer_errors={name: _floats(arrays, f"cut_error_{k}") for k, name in enumerate(layers)},
        unresolved=tuple(
            Unresolved((u, v), layer, why) for (u, v), layer, why in about["unresolved"]
        ),
        layers=layers,
        stripped=about["stripped"],
        dtype=_dtype(about["dtype"]),
        output=_output_read(about.get("output")),
    )
    part.maps = AffineMaps(*(_floats(arrays, f"maps_{f.name}") for f in fields(AffineMaps)))
    part.names = about.get("names")
    return part


def _output_read(written: Any) -> Output:
    if isinstance(written, dict):
        return Lost(str(written["function"]))
    if written is None or (isinstance(written, (int, str)) and not isinstance(written, bool)):
        return written
    raise ValueError(f"{written!r} does not name an output")


def _floats(arrays: Arrays, name: str) -> Tensor:
    array = arrays[name]
    if array.dtype != np.float64:
        raise ValueError(f"{name} is {array.dtype}, not float64")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has entries that are not finite")
    return torch.from_numpy(array)


def _whole(arrays: Arrays, name: str) -> Tensor:
    array = arrays[name]
    if array.dtype.kind != "i":
        raise ValueError(f"{name} is {array.dtype}, not whole numbers")
    return torch.from_numpy(array.astype(np.int64))


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(f"{name} is not a floating-point type")
    return dtype


def _check_shapes(part: PartitionData) -> None:
    """Every array must have the length that the others imply, and name what is there."""
    mesh, maps, n = part.mesh, part.maps, part.values.shape[-1]
    V, E, F = mesh.num_vertices, mesh.num_edges, mesh.num_faces
    H = mesh.corners.numel()
    expected: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        "mesh_uv": (mesh.uv, (V, 2)),
        "mesh_edges": (mesh.edges, (E, 2)),
        "mesh_offsets": (mesh.offsets, (F + 1,)),
        "mesh_corners": (mesh.corners, (H,)),
        "mesh_edge_op": (mesh.edge_layer, (E,)),
        "mesh_edge_unit": (mesh.edge_unit, (E,)),
        "mesh_vertex_op": (mesh.vertex_layer, (V,)),
        "values": (part.values, (V, n)),
        "value_error": (part.value_error, (n,)),
        "maps_anchor": (maps.anchor, (F, 2)),
        "maps_value": (maps.value, (F, n)),
        "maps_weight": (maps.weight, (F, n, 2)),
        "maps_error": (maps.error, (F,)),
    }
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, not {shape}")
    limits = {
        "mesh_edges": (mesh.edges, 0, V),
        "mesh_corners": (mesh.corners, 0, 2 * E),
        "mesh_edge_op": (mesh.edge_layer, -1, len(part.layers)),
        "mesh_vertex_op": (mesh.vertex_layer, -1, len(part.layers)),
    }
    for name, (index, low, high) in limits.items():
        if index.numel() and not low <= int(index.min()) <= int(index.max()) < high:
            raise ValueError(f"{name} names what is not there")
    steps = mesh.counts()
    if int(mesh.offsets[0]) or int(mesh.offsets[-1]) != H or not bool((steps >= 3).all()):
        raise ValueError("mesh_offsets do not divide mesh_corners into polygons")


def _check_mesh(part: PartitionData) -> None:
    """The regions must cover the domain once; unresolved places may be out of shape."""
    trusted = torch.full((part.mesh.num_faces,), not part.unresolved)
    area = part.domain.area / part.frame.scale**2
    for check in check_mesh(part.mesh, area, trusted):
        if not check.ok:
            raise ValueError(f"the mesh fails a check: {str(check).removeprefix('FAIL ')}")
