"""Where a run computes: on one device, or on the CPU until there is enough work for a GPU.

A GPU needs milliseconds for a layer of any size, in which a CPU finishes a small one. How many
regions there will be is not known beforehand, so that the choice is made anew before every stage
and every cut. It depends on sizes alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from math import prod, sqrt
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from splinecam._util.backend import is_cuda
from splinecam._util.options import device_of
from splinecam.arrangement.refinement import NewVertices
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels import GpuKernel, History, Kernel, gpu_kernel_for, kernel_for
from splinecam.network.nonlinearities import Nonlinearity, PiecewiseScalar
from splinecam.network.program import Program

__all__ = [
    "Place",
    "Plan",
    "crossing_units",
    "first_device",
    "free_memory",
    "moved",
    "vertices_after",
]

T = TypeVar("T")

_log = logging.getLogger("splinecam")

# Numbers (vertices times numbers per vertex) of a stage from which on a GPU is faster.
_ENOUGH = 1 << 20
_MESH = 64  # what a vertex costs besides its values, in numbers

# Networks with more weights or larger inputs begin on the GPU: what a CPU does to one point of
# them takes as long as a GPU does to thousands.
_WEIGHTS, _INPUTS = 1 << 21, 1 << 14

_MEMINFO = Path("/proc/meminfo")  # where Linux tells how much memory is free
_UNKNOWN_MEMORY = 8 << 30  # bytes to assume where the system does not tell


def first_device(
    device: str | torch.device, model: nn.Module, input_shape: tuple[int, ...]
) -> torch.device:
    """Where a run of a model begins: where the caller says, or on the CPU if the model is small."""
    last = device_of(device)
    if device != "auto" or last.type == "cpu" or prod(input_shape) > _INPUTS:
        return last
    weights = sum(weight.numel() for weight in model.parameters())
    return last if weights > _WEIGHTS else torch.device("cpu")


def free_memory(device: torch.device) -> int:
    """Bytes a partition may take by default: most of what the device has free."""
    if is_cuda(device):
        return int(0.75 * torch.cuda.mem_get_info(device)[0])
    try:
        _, known = _MEMINFO.read_text().split("MemAvailable:")
        return int(0.75 * 1024 * int(known.split(maxsplit=1)[0]))
    except (OSError, ValueError):
        return _UNKNOWN_MEMORY  # not every system tells


@dataclass(frozen=True)
class Place:
    """A device: the program there, the bytes to stay within, and compiled kernels, if any.

    kernel: of a CPU; gpu: of a GPU.
    """

    program: Program
    memory: int
    kernel: Kernel | None = None
    gpu: GpuKernel | None = None

    @classmethod
    def of(cls, program: Program, memory: int | None = None, *, compiled: bool = True) -> Place:
        """The program's device; memory: by default what is free there."""
        device = program.device
        memory = free_memory(device) if memory is None else memory
        kernel = kernel_for(device) if compiled else None
        return cls(program, memory, kernel, gpu_kernel_for(device) if compiled else None)

    @property
    def device(self) -> torch.device:
        return self.program.device


@dataclass
class Plan:
    """The place where a run begins, and how to make the one where it may go on, and ends.

    enough: numbers from which on a stage is computed at the second place.
    """

    first: Place
    make_second: Callable[[], Place] | None = None
    enough: float = _ENOUGH

    @classmethod
    def of(
        cls,
        program: Program,
        to: torch.device | None = None,
        memory: int | None = None,
        *,
        compiled: bool = True,
    ) -> Plan:
        """Begin on the program's device; to: another one, on which the result is to be."""
        first = Place.of(program, memory, compiled=compiled)
        if to is None or to == program.device:
            return cls(first)
        return cls(first, lambda: Place.of(program.to(to), memory, compiled=compiled))

    @cached_property
    def second(self) -> Place:
        if self.make_second is None:
            raise ValueError("this plan has one place only")
        with torch.inference_mode(False):  # the program goes on to belong to the result
            return self.make_second()

    @property
    def last(self) -> Place:
        """Where the result is."""
        return self.first if self.make_second is None else self.second

    def worth_moving(self, vertices: float, width: int) -> bool:
        """Whether a stage with so many numbers at each of the vertices is for the second place."""
        return self.make_second is not None and vertices * (width + _MESH) > self.enough

    def tell(self, name: str | None = None) -> None:
        """Say in the log where the run went on, if it could."""
        if self.make_second is None:
            return
        if name is None:
            _log.info("all layers were computed on %s", self.first.device)
        else:
            _log.info("%s: computed on %s from here on", name, self.second.device)


def vertices_after(mesh: Mesh, lines: int) -> float:
    """About how many vertices a mesh will have when so many functions have cut it.

    The zero set of each goes through about as many of F faces as a line does, sqrt(F), and every
    other two of them meet.
    """
    return mesh.num_vertices + 1.5 * lines * sqrt(mesh.num_faces) + lines * lines / 4


def crossing_units(layer: Nonlinearity, low: Tensor, high: Tensor) -> int:
    """How many units of a cut may change sign, if that is what it cuts by; else all of them."""
    if isinstance(layer, PiecewiseScalar) and layer.at_zero:
        return int(((low < 0) & (high > 0)).sum())
    return low.numel()


def moved(value: T, device: torch.device) -> T:
    """The same data with all tensors on a device; what occurs twice stays one object."""
    found: T = _moved(value, device, {})
    return found


def _moved(value: Any, device: torch.device, done: dict[int, Any]) -> Any:
    if id(value) not in done:
        done[id(value)] = _moved_once(value, device, done)
    return done[id(value)]


def _moved_once(value: Any, device: torch.device, done: dict[int, Any]) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _moved(item, device, done) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_moved(item, device, done) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, History):
        return _moved(NewVertices(*value.tensors()), device, done)
    if is_dataclass(value) and not isinstance(value, (type, Nonlinearity)):
        # Meshes and refinements of the compiled kernel become ordinary ones.
        kind = next(base for base in type(value).__mro__ if "__dataclass_params__" in vars(base))
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        return kind(**{name: _moved(part, device, done) for name, part in parts.items()})
    return value
