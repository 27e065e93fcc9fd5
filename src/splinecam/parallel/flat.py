"""Domains, outcomes and objects with large arrays as flat blocks that travel well.

A block begins with the sizes of its parts. The first part is a pickle, the others are the contents
of arrays, so that reading a mapped file copies none of them. Operations of torch are pickled by
their names, and functions without a name by their code.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from splinecam._util.text import optional
from splinecam.arrangement.crossings import Ambiguities
from splinecam.engine.run import Outcome
from splinecam.errors import SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.geometry.subdivision import Mesh

Array = npt.NDArray[Any]
Block = npt.NDArray[np.uint8]
Parts = list[memoryview]

_ALIGNED = 64  # bytes: where parts begin in a block
_BYTES = np.uint8


def parts_of(value: Any) -> Parts:
    """The parts of the block of an object, the table of their sizes first."""
    buffers: list[pickle.PickleBuffer] = []
    file = BytesIO()
    _pickler_class()(file, protocol=5, buffer_callback=buffers.append).dump(value)
    parts = [file.getbuffer(), *(buffer.raw() for buffer in buffers)]
    sizes = np.array([len(parts), *(part.nbytes for part in parts)], dtype=np.int64)
    return [sizes.data.cast("B"), *parts]


@dataclass(frozen=True)
class Packed:
    """An object, and the parts of its block."""

    value: Any
    parts: Parts

    @classmethod
    def first_of(cls, *makers: Callable[[], Any]) -> Packed:
        """Make one object after the other, and pack the first that can be pickled."""
        reasons = []
        for maker in makers:
            value = maker()
            try:
                return cls(value, parts_of(value))
            except Exception as error:  # the objects of others may raise anything
                reasons.append(error)
        raise SplineCamError(
            "The network cannot be sent to another process, because it cannot be pickled: "
            f"{reasons[0]}. Use n_jobs=1, or define its classes and functions in a module."
        ) from reasons[0]


def join(parts: Parts) -> Block:
    """The block of these parts."""
    block = np.zeros(sum(_room(part.nbytes) for part in parts), dtype=_BYTES)
    start = 0
    for part in parts:
        block[start : start + part.nbytes] = np.frombuffer(part, dtype=_BYTES)
        start += _room(part.nbytes)
    return block


def save(parts: Parts, path: Path) -> None:
    """Write the block of these parts to a file."""
    with path.open("wb") as file:
        for part in parts:
            file.write(part)
            file.write(bytes(_room(part.nbytes) - part.nbytes))


def load(block: Block) -> Any:
    """The object in a block; its arrays are views of the block if that can be written to."""
    block = _writable(block)
    (count,) = block[:8].view(np.int64)
    sizes = block[8 : 8 * (count + 1)].view(np.int64).tolist()
    start, parts = _room(8 * (int(count) + 1)), []
    for size in sizes:
        parts.append(block[start : start + size])
        start += _room(size)
    return pickle.loads(parts[0].data, buffers=parts[1:])


def load_file(path: Path) -> Any:
    """The object in a file; its arrays are in a private, writable map of the file."""
    return load(np.memmap(path, dtype=_BYTES, mode="c").view(np.ndarray))


def _writable(array: Array) -> Array:
    """The array, or a copy if it is read-only, because an engine shares it."""
    return array if array.flags.writeable else array.copy()


def _room(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


@cache
def _pickler_class() -> type[Any]:
    cloudpickle = optional("cloudpickle", "Work in other processes", "parallel")

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc,name-defined]
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, torch._ops.OpOverload):
                return _overload, (*value._schema.name.split("::"), value._overloadname)
            if isinstance(value, torch._ops.OpOverloadPacket):
                return _overload, value._qualified_op_name.split("::")
            if _plain(value):
                return _tensor, _flat(value)
            return super().reducer_override(value)

    return Pickler


def _overload(namespace: str, name: str, overload: str | None = None) -> Any:
    packet = getattr(getattr(torch.ops, namespace), name)
    return packet if overload is None else getattr(packet, overload)


_KINDS = {
    *(torch.float64, torch.float32, torch.float16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
}


def _plain(value: Any) -> bool:
    """Whether a value is a tensor that an array can stand for."""
    return (
        type(value) is Tensor
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and value.dtype in _KINDS
        and not value.requires_grad
        and not value.is_neg()
        and not vars(value)
    )


def _flat(value: Tensor) -> tuple[Array, tuple[int, ...], tuple[int, ...]]:
    """The numbers of a tensor in its storage, its shape and its strides."""
    shape, strides = tuple(value.shape), tuple(value.stride())
    steps = zip(shape, strides, strict=True)
    span = 1 + sum((size - 1) * stride for size, stride in steps) if value.numel() else 0
    return value.as_strided((span,), (1,)).numpy(), shape, strides


def _tensor(flat: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(flat).as_strided(shape, strides)


class FlatDomains(NamedTuple):
    """N domains of one input shape.

    origins: (N, D); bases: (N, 2, D); corners: (K, 2) of all domains; counts: (N,) of corners.
    """

    origins: Array
    bases: Array
    corners: Array
    counts: list[int]
    input_shape: tuple[int, ...]

    def domains(self) -> list[Domain]:
        """The domains as they were, without checking them again."""
        split = torch.split(_tensor_of(self.corners), self.counts)
        rows = zip(_tensor_of(self.origins), _tensor_of(self.bases), split, strict=True)
        found = []
        for origin, basis, corners in rows:
            domain = object.__new__(Domain)
            about = {"origin": origin, "basis": basis, "corners": corners}
            vars(domain).update(about, input_shape=self.input_shape)
            found.append(domain)
        return found


def flat_domains(domains: Sequence[Domain]) -> FlatDomains:
    """Domains of one input shape as flat arrays."""
    return FlatDomains(
        torch.stack([domain.origin for domain in domains]).numpy(),
        torch.stack([domain.basis for domain in domains]).numpy(),
        torch.cat([domain.corners for domain in domains]).numpy(),
        [domain.corners.shape[0] for domain in domains],
        domains[0].input_shape,
    )


class FlatOutcomes(NamedTuple):
    """The outcomes of N domains.

    columns: the fields of all meshes, the outputs, and, of refined ones, the settled faces, each as
    one array. sizes: (N,) rows of every column. errors: of every batch, the rounding errors of the
    output and of the units of each layer; batch: (N,) the batch of each domain. ambiguities: by the
    numbers of domains.
    """

    columns: dict[str, Array]
    sizes: dict[str, list[int]]
    errors: list[tuple[Array, dict[str, Array]]]
    batch: list[int]
    ambiguities: dict[int, list[tuple[str, Array, str]]]


def flat_outcomes(outcomes: Sequence[Outcome]) -> FlatOutcomes:
    """Outcomes as flat arrays, in the memory of the CPU."""
    names = [field.name for field in fields(Mesh)]
    found = {name: [getattr(outcome.mesh, name) for outcome in outcomes] for name in names}
    found["output"] = [outcome.output for outcome in outcomes]
    if any(outcome.settled is not None for outcome in outcomes):
        found["settled"] = [
            each.mesh.uv.new_zeros(0, dtype=torch.bool) if each.settled is None else each.settled
            for each in outcomes
        ]
    batches = {id(outcome.layer_errors): outcome for outcome in outcomes}
    number = {key: i for i, key in enumerate(batches)}
    return FlatOutcomes(
        {name: _array(torch.cat(tensors)) for name, tensors in found.items()},
        {name: [tensor.shape[0] for tensor in tensors] for name, tensors in found.items()},
        [
            (_array(each.error), {name: _array(x) for name, x in each.layer_errors.items()})
            for each in batches.values()
        ],
        [number[id(outcome.layer_errors)] for outcome in outcomes],
        {
            i: [(name, _array(place.uv), place.reason) for name, place in outcome.ambiguities]
            for i, outcome in enumerate(outcomes)
            if outcome.ambiguities
        },
    )


def outcomes_of(flat: FlatOutcomes, device: torch.device | None = None) -> list[Outcome]:
    """The outcomes, as views of the flat arrays, or of their copies on another device."""
    errors = [
        (_tensor_of(error, device), {name: _tensor_of(x, device) for name, x in layers.items()})
        for error, layers in flat.errors
    ]
    split = {
        name: torch.split(_tensor_of(column, device), flat.sizes[name])
        for name, column in flat.columns.items()
    }
    output, settled = split.pop("output"), split.pop("settled", ())
    rows = zip(*split.values(), strict=True)
    meshes = [Mesh(**dict(zip(split, row, strict=True))) for row in rows]
    ambiguities = {
        i: [(name, Ambiguities(_tensor_of(uv, device), reason)) for name, uv, reason in places]
        for i, places in flat.ambiguities.items()
    }
    found = [
        Outcome(mesh, values, *errors[batch], ambiguities.get(i, []))
        for i, (mesh, values, batch) in enumerate(zip(meshes, output, flat.batch, strict=True))
    ]
    for i, faces in enumerate(settled):
        found[i] = replace(found[i], settled=faces if len(faces) else None)
    return found


def _array(tensor: Tensor) -> Array:
    array: Array = np.ascontiguousarray(tensor.detach().cpu().numpy())
    return array


def _tensor_of(array: Array, device: torch.device | None = None) -> Tensor:
    tensor = torch.from_numpy(_writable(array))
    return tensor if device is None else tensor.to(device)
