"""Networks and weights in files of other programs: exported programs, tensors, state dicts."""

from __future__ import annotations

import json
import logging
import os
import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from splinecam._util import unpacking
from splinecam._util.text import optional
from splinecam.errors import CaptureError, FileError, SplineCamError
from splinecam.files.onnx_module import read_onnx
from splinecam.network.capture.tracing.diagnosis import first_line
from splinecam.network.model_files import instead_of, kind_of_file

_PICKLED = "it holds pickled objects, which are not opened, because opening them can run any code"
_FOREIGN = "it was not written by NumPy (np.save, np.savez)"
_KINDS = "biufc"  # of numbers
_PICKLES = 5  # before the storages, in a file of torch before version 1.6


def require_file(path: Path) -> None:
    """Raise an error if a file does not exist, or is a folder."""
    if path.is_dir():
        raise FileError(f"{path} is a folder, not a file.")
    if not path.exists():
        raise FileError(f"There is no file {path}.")


def load_numpy(path: Path, key: str | None = None) -> dict[str, Tensor]:
    """Return the numbers, or only those of a key, in an .npy or .npz file by name, in float64."""
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
        arrays = unpacking.PackedArrays(file, path)
        names = [key] if key is not None and key in arrays else list(arrays)
        return {
            name: _wide(arrays[name]) for name in names if arrays.header(name)[1].kind in _KINDS
        }
    file.seek(0)
    shape, dtype = unpacking.npy_header(file)
    unpacking.check_size("the array", shape, dtype, path.stat().st_size - file.tell())
    file.seek(0)
    array = np.lib.format.read_array(file, allow_pickle=False)
    return {"": _wide(array)} if array.dtype.kind in _KINDS else {}


def _wide(array: NDArray[Any]) -> Tensor:
    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    return torch.from_numpy(np.array(array, wide))


def load_torch(path: Path) -> Any:
    """Return the tensors in plain containers that a .pt or .pth file holds."""
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
    given: list[Any] = torch.serialization.get_safe_globals()  # that the caller lets torch trust
    globals_ = [each[0] if isinstance(each, tuple) else each for each in given]
    trusted = [f"{each.__module__} {each.__qualname__}" for each in globals_]
    most = unpacking.most_bytes(path.stat().st_size)
    try:
        if zipfile.is_zipfile(path):
            with unpacking.open_archive(path) as archive:
                for info in archive.infolist():
                    if info.filename.lower().endswith("data.pkl"):
                        unpacking.check_pickle(
                            BytesIO(unpacking.read_text(archive, info)), most, trusted
                        )
            return
        with path.open("rb") as file:
            for _ in range(_PICKLES):
                unpacking.check_pickle(file, most, trusted)
    except OverflowError as error:
        raise FileError(
            f"{path} is not opened: {error}, which its {path.stat().st_size:,} bytes do not "
            "explain. Save tensors alone, and expanded ones as copies: torch.save(x.clone(), ...)."
        ) from error


def load_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a .safetensors file by name, in the types of the file."""
    require_file(path)
    safetensors = optional("safetensors", f"Reading {path}", "safetensors")
    reader = optional("safetensors.torch", f"Reading {path}", "safetensors")
    try:
        return dict(reader.load_file(path))
    except (safetensors.SafetensorError, OSError, KeyError, ValueError) as error:
        message = f"{path} cannot be read: it is damaged, or not written by safetensors ({error})."
        raise FileError(message) from error


_ZEROS = "torch.zeros(2, ...)  # two inputs of the model"
EXPORT = f"""\
      x = {_ZEROS}
      program = torch.export.export(
          model.eval(), (x,), dynamic_shapes=({{0: torch.export.Dim("batch")}},)
      )
      torch.export.save(program, "model.pt2")"""

_MANY = 2**31  # points that a program must be able to take at once
_FORCE, _FORBID = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


def read_program(path: Path) -> tuple[nn.Module, tuple[int, ...] | None]:
    """Return the module in an exported program, and the shape of one input if it is fixed."""
    _refuse_objects(path)
    try:
        with _tensors_only(), path.open("rb") as file:
            exported = torch.export.load(file)
            module = exported.module()
    except Exception as error:
        raise FileError(
            f"{path} cannot be read by torch {torch.__version__} ({first_line(error)}). Was it "
            "written by another version of torch, or changed since? Export the model again:\n"
            f"{EXPORT}"
        ) from error
    return module, _input_shape(exported, path)


def _refuse_objects(path: Path) -> None:
    """Raise an error if a program holds objects or compiled code, which would run when opened."""
    with unpacking.open_archive(path) as archive:
        for info in archive.infolist():
            name = info.filename
            if "/aotinductor/" in name:
                raise CaptureError(f"{path} is a compiled package. Export the model:\n{EXPORT}")
            if not name.endswith("_config.json"):
                continue
            entries = json.loads(unpacking.read_text(archive, info)).get("config", {})
            for key, entry in entries.items():
                if not str(entry.get("path_name")).startswith(("weight_", "tensor_")):
                    raise CaptureError(
                        f"{path} holds an object that is no tensor ({key}). It is not opened, "
                        "because that can run any code. Use the code that makes the model: "
                        "package.module:factory."
                    )


@contextmanager
def _tensors_only() -> Iterator[None]:
    """Let torch unpickle tensors only, and silence its logs and warnings."""
    saved = {name: os.environ.pop(name, None) for name in (_FORCE, _FORBID)}
    disabled = logging.root.manager.disable
    os.environ[_FORCE] = "1"
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        del os.environ[_FORCE]
        os.environ.update({name: value for name, value in saved.items() if value is not None})


def _input_shape(exported: Any, path: Path) -> tuple[int, ...] | None:
    """Return the shape of one input; raise an error unless a batch may have any size."""
    nodes = {node.name: node for node in exported.graph.nodes}
    names = [name for name in exported.graph_signature.user_inputs if name in nodes]
    if len(names) != 1:
        raise CaptureError(
            f"The program in {path} has {len(names)} inputs: it must have one tensor. Wrap the "
            "model in a module whose forward takes one tensor, and export that."
        )
    shape = list(nodes[names[0]].meta["val"].shape)
    if not shape:
        raise CaptureError(f"The program in {path} takes a single number, not a batch of inputs.")
    batch, *rest = shape
    size = f"exactly {batch}" if isinstance(batch, int) else ""
    limits = None if size else exported.range_constraints.get(batch.node.expr)
    if limits is not None and not (limits.lower <= 2 and limits.upper >= _MANY):
        size = f"{limits.lower} to {limits.upper}"
    if size:
        zeros = f"torch.zeros({', '.join(map(str, [2, *rest]))})"
        raise CaptureError(
            f"The program in {path} was exported for a batch of {size}, but many points are run "
            f"at once. Export it for a batch of any size:\n{EXPORT.replace(_ZEROS, zeros)}"
        )
    return tuple(rest) if all(isinstance(n, int) for n in rest) else None


WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".npz")
"""How the names of files of weights end."""

_WRAPPED = ("state_dict", "model_state_dict", "model")  # where checkpoints keep their weights
_PREFIXES = ("module.", "_orig_mod.")  # of all names: by data parallelism and torch.compile


def load_weights(model: nn.Module, path: Path) -> None:
    """Copy the state dict in a file into a model, in the types of the model's own weights."""
    copy_weights(model, read_state_dict(path), f"in {path}")


def copy_weights(model: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Copy a state dict into a model in the types of its own weights; source: for an error."""
    for prefix in _PREFIXES:
        if state and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    try:
        model.load_state_dict(_with_tied_names(model, state))
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:] if line.strip()]
        shown = "".join(f"\n  {line[:200]}{' ...' * (len(line) > 200)}" for line in lines[:6])
        more = f"\n  ... and {len(lines) - 6} more" if len(lines) > 6 else ""
        raise SplineCamError(
            f"The weights {source} do not fit {type(model).__name__}:{shown}{more}"
        ) from error


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a file by the names of their parameters and buffers."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return load_numpy(path)
    if suffix == ".safetensors":
        return load_safetensors(path)
    found = load_torch(path)
    for key in _WRAPPED:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not (isinstance(found, Mapping) and all(isinstance(x, Tensor) for x in found.values())):
        raise FileError(
            f"{path} holds no state dict. Write one with "
            'torch.save(model.state_dict(), "weights.pt").'
        )
    return dict(found)


def _with_tied_names(model: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give every name of a shared weight the tensor of one of them, as safetensors writes it."""
    names: dict[int, list[str]] = {}
    for name, weight in model.state_dict(keep_vars=True).items():
        names.setdefault(id(weight), []).append(name)
    full = dict(state)
    for tied in names.values():
        given = [state[name] for name in tied if name in state]
        full |= {name: given[0] for name in tied if given and name not in state}
    return full


def load_model(
    path: str | os.PathLike[str], *, input_shape: tuple[int, ...] | None = None
) -> nn.Module:
    """The network in a file, as a module in eval mode: an ONNX file, or an exported program.

    The layers of an ONNX network are torch's own wherever torch has them. They are named after the
    nodes of the file, and hold its weights in float32, or in float64 where the file does. The
    module takes inputs ``(N, *input_shape)``, also where the file has a batch of one, a batch of
    another fixed size, or none. It computes for a point what the file gives for this point alone.
    Several outputs are returned as a dict by their names. Nothing in an ONNX file is executed, and
    nothing outside of its folder is read. An exported program is code: load only programs that you
    trust.

    path: of a ``.onnx`` or a ``.pt2`` file. input_shape: of one input, without the batch, where an
    ONNX file leaves it open.

    >>> load_model("net.h5")
    Traceback (most recent call last):
    ...
    splinecam.errors.FileError: There is no file net.h5.
    """
    place = Path(os.fsdecode(path))
    if not place.exists():
        raise FileError(f"There is no file {place}.")
    kind = kind_of_file(place)
    if kind == "onnx":
        return read_onnx(place, input_shape).eval()
    if kind == "exported":
        return read_program(place)[0]
    raise FileError(f"a model cannot be loaded from {instead_of(place)}")


def loaded(model: object) -> object:
    """The model itself, or for a path the network in its file, if models are in such files."""
    if not isinstance(model, (str, os.PathLike)):
        return model
    place = Path(os.fsdecode(model))
    return load_model(place) if kind_of_file(place) in ("onnx", "exported") else model


def module_of(model: object, argument: str = "model") -> nn.Module:
    """The module that is given, or that is in a file; a ``TypeError`` that names the argument."""
    network = loaded(model)
    if not isinstance(network, nn.Module):
        raise TypeError(f"{argument} must be an nn.Module, not {instead_of(network)}")
    return network
