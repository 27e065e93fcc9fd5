"""Partitions in files: plain numpy arrays in an .npz archive, without pickle.

``about``        JSON as bytes: format and version, the domain's input shape, names of the layers,
                 the final operation left out, the model's floating-point type, unresolved places,
                 the selected output (its index or name, or the name of a function), names of the
                 classes; ``smoothing``: the layers that were replaced, each with its name,
                 function, units and pieces, and whether regions were refined
``domain_*``     origin (D,), basis (2, D), corners (k, 2)
``mesh_*``       the fields of ``Mesh``; integers in the narrowest type that holds them
``maps_*``       the fields of ``AffineMaps``
``values``       (V, n_out), ``value_error`` (n_out,), ``layer_error_0`` (n,), ... of each layer
``smooth_*``     for a model with smooth functions: ``tolerance`` (n_out,), ``bounds`` (F, n_out),
                 and the fields of ``Tables`` of each replaced layer as ``smooth_table_0_*``, ...
``settled``      for a partition with ``refine``: (F,) the regions that are not divided, if there
                 are any on which the question is open, these as ``undecided`` (F,), and the
                 fields of its ``OutputCondition`` as ``wanted_*``; ``wanted`` in ``about`` says
                 what can be asked

Coordinates of the mesh are local: plane = center + scale * local, where center is the domain's
centroid and scale the smallest power of two not below half the domain's diameter.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util import versions
from splinecam._util.files import opened, reason_of
from splinecam._util.unpacking import PackedArrays
from splinecam.engine.affine_maps import AffineMaps
from splinecam.errors import FileError, SplineCamError
from splinecam.files.properties import OutputCondition
from splinecam.geometry.checks import check_field, check_mesh
from splinecam.geometry.domain import Domain
from splinecam.geometry.subdivision import Mesh
from splinecam.network.capture.models import Lost, Output
from splinecam.questions.partition_data import PartitionData, Smoothing, SmoothLayer, Unresolved
from splinecam.questions.wanted import Aspect, Wanted
from splinecam.smooth.tables import Tables


def smoothing_written(part: PartitionData) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The record of smoothing in ``about``, and its tensors; nothing if the partition is exact."""
    record = part.smoothing
    if record is None:
        return {}, {}
    layers = [astuple(layer) for layer in record.layers]
    about = {"layers": layers, "refined": record.refined, "tables": list(record.tables)}
    tensors = {"smooth_tolerance": record.tolerance, "smooth_bounds": record.region_bounds}
    for k, table in enumerate(record.tables.values()):
        tensors |= {_key(k, name): tensor for name, tensor in vars(table).items()}
    return {"smoothing": about}, tensors


def _key(table: int, name: str) -> str:
    return f"smooth_table_{table}_{name}"


def smoothing_read(
    about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], floats: Callable[[str], Tensor]
) -> Smoothing | None:
    """The record that ``about`` and the arrays of a file describe, if there is one.

    floats: gives an array of finite numbers by its name.
    """
    found = about.get("smoothing")
    if found is None:
        return None
    layers = tuple(
        SmoothLayer(str(name), str(function), int(units), int(pieces))
        for name, function, units, pieces in found["layers"]
    )
    tensors = floats("smooth_tolerance"), floats("smooth_bounds")
    tables = {
        str(name): Tables(**{f.name: _array(arrays, _key(k, f.name)) for f in fields(Tables)})
        for k, name in enumerate(found["tables"])
    }
    return Smoothing(*tensors, layers, bool(found["refined"]), tables)


def _array(arrays: Mapping[str, NDArray[Any]], name: str) -> Tensor:
    """A tensor of a table: its levels may be infinite, and numbers of pieces are whole."""
    array = arrays[name]
    if array.dtype.kind == "i":
        array = array.astype(np.int64)
    elif array.dtype != np.float64 or np.isnan(array).any():
        raise ValueError(f"{name} is no array of numbers")
    return torch.from_numpy(array)


def check_smoothing(part: PartitionData) -> None:
    """Raise an error unless the record has the shapes of the partition, and bounds."""
    record, n = part.smoothing, int(part._outputs.shape[-1])
    if record is None:
        return
    bounds = {"smooth_tolerance": record.tolerance, "smooth_bounds": record.region_bounds}
    _check_shape("smooth_tolerance", record.tolerance, (n,))
    _check_shape("smooth_bounds", record.region_bounds, (part.mesh.num_faces, n))
    for k, table in enumerate(record.tables.values()):
        pieces, units = table.slope.shape
        _check_shape(_key(k, "levels"), table.levels, (pieces - 1, units))
        for name in ("start", "value"):
            _check_shape(_key(k, name), getattr(table, name), (pieces, units))
    for name, tensor in bounds.items():
        if bool((tensor < 0).any()):
            raise ValueError(f"{name} has negative entries")


_FORMAT = "splinecam partition"
_PLANE = ("origin", "basis", "corners")  # the arrays of a domain

Arrays = Mapping[str, NDArray[Any]]
P = TypeVar("P", bound=PartitionData)


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
    with opened(path) as file:
        np.savez(file, **arrays)


def _arrays(part: PartitionData) -> dict[str, Any]:
    domain = part.domain
    smooth, tensors = smoothing_written(part)
    if part._wanted is not None and part._settled is not None:
        smooth["wanted"], more = part._wanted.written()
        tensors |= {**more, "settled": part._settled}
        if part._undecided is not None:
            tensors["undecided"] = part._undecided
    about = {
        "format": _FORMAT,
        "version": versions.PARTITION,
        "input_shape": domain.input_shape,
        "layers": part.layers,
        "stripped": part.stripped,
        "dtype": str(part._dtype).removeprefix("torch."),
        "unresolved": part.unresolved,
        "output": output_written(part._chosen_output),
        "names": part.names,
        **smooth,
    }
    tensors |= {f"domain_{name}": getattr(domain, name) for name in _PLANE}
    tensors |= {f"mesh_{name}": tensor for name, tensor in vars(part.mesh).items()}
    tensors |= {f"maps_{name}": tensor for name, tensor in vars(part._known_maps).items()}
    tensors |= {"values": part._outputs, "value_error": part._value_error}
    tensors |= {f"layer_error_{k}": part._layer_errors[name] for k, name in enumerate(part.layers)}
    arrays = {name: narrow(tensor.cpu().numpy()) for name, tensor in tensors.items()}
    return {"about": np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays}


def output_written(output: Output) -> Any:
    """The selected output as JSON; only the name of a function is written."""
    if isinstance(output, Lost) or callable(output):
        return {"function": str(getattr(output, "name", getattr(output, "__name__", output)))}
    return output


def narrow(array: NDArray[Any]) -> NDArray[Any]:
    """Integers in the smallest type that holds them all."""
    if array.dtype.kind != "i":
        return array
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    return array.astype(np.result_type(np.min_scalar_type(low), np.min_scalar_type(-high - 1)))


def read(
    path: str | os.PathLike[str] | BinaryIO, kind: type[P], *, device: torch.device, verify: bool
) -> P:
    """The partition in a file, or a ``FileError`` that says what is wrong with the file.

    kind: the class of the result. device: where its tensors are stored. verify: also check that the
    regions fit together and cover the domain. Checksums, types, shapes and the range of indices are
    always checked, so that no index is out of bounds.
    """
    try:
        if isinstance(path, str | os.PathLike):
            with Path(path).open("rb") as file:
                part = _read(file, str(path), kind, verify)
        else:
            part = _read(path, "The file", kind, verify)
    except FileNotFoundError:
        raise FileError(f"There is no file {path}.") from None
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be read: {reason_of(error)}.") from None
    part.mesh = part.mesh.to(device)
    part._outputs, part._value_error = part._outputs.to(device), part._value_error.to(device)
    part._layer_errors = {name: error.to(device) for name, error in part._layer_errors.items()}
    maps = AffineMaps(*(tensor.to(device) for tensor in vars(part._known_maps).values()))
    part._known_maps = maps
    if part._settled is None:
        part._maps = maps
    else:
        part._settled = part._settled.to(device)
        part._undecided = None if part._undecided is None else part._undecided.to(device)
    part.smoothing = part.smoothing and part.smoothing.to(device)
    return part


def _read(file: BinaryIO, name: str, kind: type[P], verify: bool) -> P:
    try:
        arrays, about = _contents(file, name)
        part = _assembled(arrays, about, kind)
        check_arrays(part)
        _check_maps(part)
        if verify:
            _check_mesh(part)
        return part
    except FileError:
        raise
    except (EOFError, zipfile.BadZipFile, OSError, RuntimeError) as error:
        raise FileError(
            f"{name} is truncated or damaged ({error}). Save the partition again."
        ) from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, SplineCamError) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise FileError(f"{name} is damaged: {what}. Compute the partition again.") from error


def _contents(file: BinaryIO, name: str) -> tuple[Arrays, dict[str, Any]]:
    """The arrays of a file, each read when it is used, and the description in ``about``."""
    foreign = FileError(f"{name} is not a partition saved by SplineCam (part.save).")
    if file.read(4) != b"PK\x03\x04":
        raise foreign
    arrays = PackedArrays(file, name)
    about = json.loads(arrays.text("about")) if "about" in arrays else None
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise foreign
    if about.get("version") != versions.PARTITION:
        raise FileError(
            f"{name} has version {about.get('version')} of the format; this SplineCam reads "
            f"version {versions.PARTITION}. Compute it again, or read it where it was written."
        )
    return arrays, about


def _assembled(arrays: Arrays, about: Mapping[str, Any], kind: type[P]) -> P:
    """The partition that consists of the given arrays."""
    layers = tuple(map(str, about["layers"]))
    plane = {name: _floats(arrays, f"domain_{name}") for name in _PLANE}
    domain = Domain(**plane, input_shape=tuple(about["input_shape"]))
    whole = {f.name: _whole(arrays, f"mesh_{f.name}") for f in fields(Mesh) if f.name != "uv"}
    mesh = Mesh(uv=_floats(arrays, "mesh_uv"), **whole)
    part = kind(
        domain=domain,
        mesh=mesh,
        _outputs=_floats(arrays, "values"),
        _value_error=_floats(arrays, "value_error"),
        _layer_errors={name: _floats(arrays, f"layer_error_{k}") for k, name in enumerate(layers)},
        unresolved=tuple(
            Unresolved((u, v), layer, why) for (u, v), layer, why in about["unresolved"]
        ),
        layers=layers,
        stripped=about["stripped"],
        _dtype=dtype_named(about["dtype"]),
        _chosen_output=output_read(about.get("output")),
        smoothing=smoothing_read(about, arrays, lambda name: _floats(arrays, name)),
    )
    if about.get("wanted") is not None:
        part._wanted = wanted_read(about["wanted"], arrays)
        part._settled = _bools(arrays, "settled")
        part._undecided = _bools(arrays, "undecided") if "undecided" in arrays else None
    part._known_maps = AffineMaps(*(_floats(arrays, f"maps_{f.name}") for f in fields(AffineMaps)))
    part.names = about.get("names")
    return part


def wanted_read(written: Mapping[str, Any], arrays: Arrays) -> Wanted:
    """The question that regions were divided for."""
    aspect, pair = written["aspect"], written["pair"]
    if aspect not in get_args(Aspect):
        raise ValueError(f"{aspect!r} is no question")
    condition = None
    if aspect == "condition":
        C = _floats(arrays, "wanted_C") if "wanted_C" in arrays else None
        A, b = _floats(arrays, "wanted_A"), _floats(arrays, "wanted_b")
        strict, start = _bools(arrays, "wanted_strict"), _whole(arrays, "wanted_start")
        Q = _floats(arrays, "wanted_Q") if "wanted_Q" in arrays else None
        factors = None if Q is None else _whole(arrays, "wanted_factors")
        condition = OutputCondition(A, b, strict, C, start, Q, factors)
    levels = tuple(float(level) for level in written["levels"])
    known = None if pair is None else (int(pair[0]), int(pair[1]))
    return Wanted(aspect, known, int(written["output"]), levels, condition)


def output_read(written: Any) -> Output:
    """The selected output that JSON stands for."""
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


def _bools(arrays: Arrays, name: str) -> Tensor:
    array = arrays[name]
    if array.dtype != np.bool_:
        raise ValueError(f"{name} is {array.dtype}, not true or false")
    return torch.from_numpy(array)


def _whole(arrays: Arrays, name: str) -> Tensor:
    array = arrays[name]
    if array.dtype.kind != "i":
        raise ValueError(f"{name} is {array.dtype}, not whole numbers")
    return torch.from_numpy(array.astype(np.int64))


def dtype_named(name: str) -> torch.dtype:
    """A floating-point type by its name."""
    dtype = getattr(torch, name)
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(f"{name} is not a floating-point type")
    return dtype


def check_arrays(part: PartitionData) -> None:
    """Raise an error unless all arrays beside the maps have matching shapes, and valid indices."""
    mesh, n = part.mesh, part._outputs.shape[-1]
    units = [int(part._layer_errors[name].shape[0]) for name in part.layers]
    for name, tensor in vars(mesh).items():
        try:
            check_field(mesh, name, tensor, units)
        except ValueError as error:
            raise ValueError(f"mesh_{name} {error}") from None
    _check_shape("values", part._outputs, (mesh.num_vertices, n))
    _check_shape("value_error", part._value_error, (n,))
    if not bool(torch.stack(part._outputs.aminmax()).isfinite().all()):
        raise ValueError("values has entries that are not finite")
    check_smoothing(part)
    if part._settled is not None and part._wanted is not None:
        _check_shape("settled", part._settled, (mesh.num_faces,))
        _check_shape("undecided", part.undecided, (mesh.num_faces,))
        if bool((part.undecided & part.complete).any()):
            raise ValueError("regions are both complete and undecided")
        asked = part._wanted
        if not 0 <= asked.output < n or (asked.condition and asked.condition.A.shape[-1] != n):
            raise ValueError(f"wanted is about other outputs than the {n} of the network")


def _check_maps(part: PartitionData) -> None:
    F, n = part.mesh.num_faces, part._outputs.shape[-1]
    shapes = {"anchor": (F, 2), "value": (F, n), "weight": (F, n, 2), "error": (F,)}
    for name, shape in shapes.items():
        _check_shape(f"maps_{name}", getattr(part._known_maps, name), shape)


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, not {shape}")


def _check_mesh(part: PartitionData) -> None:
    """Raise an error unless the regions cover the domain once, apart from unresolved places."""
    trusted = torch.full((part.mesh.num_faces,), not part.unresolved)
    area = part.domain.area / part._frame.scale**2
    for check in check_mesh(part.mesh, area, trusted):
        if not check.ok:
            raise ValueError(f"the mesh fails a check: {str(check).removeprefix('FAIL ')}")
