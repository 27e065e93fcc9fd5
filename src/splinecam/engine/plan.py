"""How a run is computed: on which device, how a stage is evaluated, and how faces are cut.

All of these choices are made here. They depend on sizes, on the device and on the installed
packages alone, so that the same call always gives the same bits.

A GPU needs milliseconds for a layer of any size, in which a CPU finishes a small one. A run may
therefore begin on the CPU and continue on a GPU as soon as there is enough work. The number of
regions is not known beforehand, so that the device is chosen anew before every stage and layer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from math import inf, prod, sqrt
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from splinecam._util.backend import is_cuda
from splinecam._util.options import device_of
from splinecam.arrangement.crossings import Signs
from splinecam.arrangement.refine import NewVertices, Refinement
from splinecam.engine.activations import Refined, State
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels.gpu import GpuKernel, gpu_kernel_for
from splinecam.kernels.kernel import Dense, History, Kernel, kernel_for
from splinecam.network.nonlinearities import Nonlinearity, PiecewiseScalar
from splinecam.network.ops.bounds import Bound
from splinecam.network.program import Program

# Networks with more weights or larger inputs begin on the GPU: a CPU needs as long for one point of
# them as a GPU for thousands.
_WEIGHTS, _INPUTS = 1 << 21, 1 << 14


def first_device(
    device: str | torch.device, model: nn.Module, input_shape: tuple[int, ...]
) -> torch.device:
    """The device on which a run begins: the caller's, or the CPU if that is free and pays."""
    last = device_of(device)
    if device != "auto" or last.type == "cpu" or not is_light(model, input_shape):
        return last
    return torch.device("cpu")


def is_light(model: nn.Module, input_shape: tuple[int, ...]) -> bool:
    """Whether a model and its inputs are so small that a run may begin on the CPU."""
    if prod(input_shape) > _INPUTS:
        return False
    return sum(weight.numel() for weight in model.parameters()) <= _WEIGHTS


T = TypeVar("T")

_log = logging.getLogger("splinecam")

# Numbers (vertices times numbers per vertex) of a stage from which on a GPU is faster.
_ENOUGH = 1 << 20
_MESH = 64  # what a vertex costs besides its values, in numbers

_MEMINFO = Path("/proc/meminfo")  # where Linux reports how much memory is free
_UNKNOWN_MEMORY = 8 << 30  # bytes to assume where the system does not report it

# Units up to which all signs are found along with the values; in wider layers most never change.
_WIDE = 1 << 12
# That many signs are found in any case: of few vertices it is fast, however wide the layer.
_FEW_SIGNS = 1 << 22

# The results of a stage for single units are found only if they have no more numbers than this.
_COLUMNS = 1 << 24


# -- devices ----------------------------------------------------------------------------------


def free_memory(device: torch.device) -> int:
    """Bytes a partition may take by default: most of what the device has free."""
    if is_cuda(device):
        return int(0.75 * torch.cuda.mem_get_info(device)[0])
    try:
        _, known = _MEMINFO.read_bytes().split(b"MemAvailable:")
        return int(0.75 * 1024 * int(known.split(maxsplit=1)[0]))
    except (OSError, ValueError):
        return _UNKNOWN_MEMORY


Share = Callable[[torch.device], float]
"""Which part of the free memory of a device a computation may take."""


@dataclass(frozen=True)
class Place:
    """A device: the program there, the bytes to stay within, and compiled kernels, if any.

    kernel: for a CPU; gpu: for a GPU. then: the device on which the run may continue, if it is not
    this one.
    """

    program: Program
    memory: int
    kernel: Kernel | None = None
    gpu: GpuKernel | None = None
    then: torch.device | None = None

    @classmethod
    def of(
        cls,
        program: Program,
        memory: int | None = None,
        *,
        compiled: bool = True,
        share: Share = lambda device: 1.0,
    ) -> Place:
        """The program's device; memory: by default the share of what is free there."""
        device = program.device
        memory = int(share(device) * free_memory(device)) if memory is None else memory
        if not compiled:
            return cls(program, memory)
        return cls(program, memory, kernel_for(device), gpu_kernel_for(device))

    @property
    def device(self) -> torch.device:
        return self.program.device


@dataclass
class Plan:
    """The place where a run begins, and how to make the one where it may continue, and ends.

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
        share: Share = lambda device: 1.0,
    ) -> Plan:
        """Begin on the program's device.

        to: another one, on which the result is to be. memory: bytes to stay within; by default the
        share of what a device has free, which is less than all of it if others use it, too.
        """
        first = Place.of(program, memory, compiled=compiled, share=share)
        if to is None or to == program.device:
            return cls(first)
        first = replace(first, then=to)
        return cls(first, lambda: Place.of(program.to(to), memory, compiled=compiled, share=share))

    @cached_property
    def second(self) -> Place:
        if self.make_second is None:
            raise ValueError("this plan has one place only")
        with torch.inference_mode(False):  # the program becomes part of the result
            return self.make_second()

    @property
    def last(self) -> Place:
        """The place of the result."""
        return self.first if self.make_second is None else self.second

    def worth_moving(self, vertices: float, width: int) -> bool:
        """Whether a stage with so many numbers at each of the vertices is for the second place."""
        return self.make_second is not None and vertices * (width + _MESH) > self.enough

    def log_device(self, stage: str | None = None) -> None:
        """Log at which stage the run has moved to the second place; None: it has not."""
        if stage is None:
            _log.info("all layers were computed on %s", self.first.device)
        else:
            _log.info("%s: computed on %s from here on", stage, self.second.device)


def vertices_after(mesh: Mesh, lines: int) -> float:
    """About how many vertices a mesh will have when so many functions have cut it.

    The zero set of each crosses about as many of F faces as a line does, sqrt(F), and every other
    two of them meet.
    """
    return mesh.num_vertices + 1.5 * lines * sqrt(mesh.num_faces) + lines * lines / 4


def crossing_units(layer: Nonlinearity, low: Tensor, high: Tensor) -> int:
    """How many units of a layer may change sign, if it cuts where they do; else all of them."""
    if isinstance(layer, PiecewiseScalar) and layer.at_zero:
        return int(((low < 0) & (high > 0)).sum())
    return low.numel()


def to_device(value: T, device: torch.device) -> T:
    """A copy of nested data with all tensors on a device; what occurs twice stays one object."""
    found: T = _to_device(value, device, {})
    return found


def _to_device(value: Any, device: torch.device, done: dict[int, Any]) -> Any:
    def move(item: Any) -> Any:
        if id(item) not in done:
            done[id(item)] = _to_device(item, device, done)
        return done[id(item)]

    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: move(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [move(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, History):
        return move(NewVertices(*value.tensors()))
    if is_dataclass(value) and not isinstance(value, (type, Nonlinearity)):
        # Meshes and refinements of the compiled kernel become ordinary ones.
        kind = next(base for base in type(value).__mro__ if "__dataclass_params__" in vars(base))
        return kind(**{each.name: move(getattr(value, each.name)) for each in fields(value)})
    return value


# -- cutting ----------------------------------------------------------------------------------


def finds_signs(layer: Nonlinearity, vertices: int = _FEW_SIGNS) -> bool:
    """Whether the signs of a layer's units are found along with their values, at the vertices."""
    if not isinstance(layer, PiecewiseScalar) or not layer.at_zero:
        return False
    units = prod(layer.shape)
    return units <= _WIDE or units * vertices <= _FEW_SIGNS


def cutting_kernel(place: Place, signs: Signs | None) -> Kernel | None:
    """The compiled kernel, if it cuts the faces; without it, tensor operations do.

    signs: of the layer's units, if they are known. The kernel takes none that vanish at a vertex.
    """
    return place.kernel if signs is not None and signs.clear else None


def overlaying_kernel(plan: Plan) -> Kernel | None:
    """The compiled kernel, if it lays two partitions over each other.

    It does so where all is on the CPU. On a GPU two networks are run together.
    """
    return plan.first.kernel if plan.make_second is None else None


# -- evaluation -------------------------------------------------------------------------------

DIRECT = ("direct", "direct")


class Costs(NamedTuple):
    """What the evaluators cost per number, in relation to each other, measured.

    term: a term of a sum; change: a breakpoint in a running sum; point: a new vertex that is
    interpolated and sent through the stage; product: a number that is multiplied for that.
    narrow: columns up to which running sums are tried. least: what the direct evaluation must cost
    for another one to be chosen, as it rounds less.
    """

    term: float
    change: float
    point: float
    product: float
    narrow: float
    least: float = 0.0

    def evaluators(
        self, new: Sequence[tuple[int, int, int]], width: int, numbers: int, products: int
    ) -> tuple[str, str]:
        """The evaluators of the new vertices on edges, and of those inside faces.

        new: for each of the two, the numbers of vertices, of breakpoints on all lines, and of
        breakpoints on the vertices' lines, summed over the vertices. width: values per vertex
        after the stage; numbers: before and after it; products: multiplications for them.
        """
        chosen, total, count = [], 0.0, 0
        for vertices, breakpoints, terms in new:
            costs = {"terms": (2 * vertices + terms) * width * self.term}
            if width <= self.narrow:
                costs["sums"] = breakpoints * width * self.change
            chosen.append(min(costs, key=costs.__getitem__))
            total += costs[chosen[-1]]
            count += vertices
        direct = count * (self.point * numbers + self.product * products)
        return DIRECT if direct <= max(total, self.least) else (chosen[0], chosen[1])


TENSORS = Costs(term=1.5, change=12.0, point=6.0, product=1 / 16, narrow=64)
# Of the compiled kernel, in nanoseconds: where it evaluates the stage, and where it does not.
DENSE = Costs(term=0.8, change=7.0, point=1.5, product=0.13, narrow=inf, least=1e6)
KERNEL = Costs(term=0.8, change=7.0, point=6.0, product=0.5, narrow=inf, least=1e6)


@dataclass(frozen=True)
class StagePlan:
    """How one affine stage is evaluated.

    evaluators: of the new vertices on edges, and of those inside faces. "direct": they are
    interpolated and sent through the stage. "terms": their values follow from those at the ends of
    their lines, and from a term for each breakpoint. "sums": the same with running sums. compiled:
    whether the compiled kernel finds them. dense: given if that evaluates the whole stage, with the
    name of the result.
    """

    evaluators: tuple[str, str] = DIRECT
    compiled: tuple[bool, bool] = (False, False)
    dense: tuple[Dense, str] | None = None


def plan_stage(place: Place, program: Program, index: int, state: State) -> StagePlan:
    """Choose how a stage is evaluated at the vertices of a state."""
    kernel = place.kernel
    dense = None if kernel is None else _dense_input(program, index, state, kernel)
    if dense is not None:
        return StagePlan(dense[0].methods, dense=dense)
    if not isinstance(state.pending, Refined) or not _follows_lines(program, index, state):
        return StagePlan()
    width, history = program.widths[index], state.history
    if place.kernel is None or history is None:
        costs, counts = TENSORS, _counts(state.pending.refinement)
    else:
        costs, counts = KERNEL, history.counts
    units, products = prod(state.pending.layer.shape), program.products[index]
    first, second = costs.evaluators(counts, width, units + width, products)
    loops = [place.kernel is not None and (x == "terms" or history) for x in (first, second)]
    return StagePlan((first, second), (bool(loops[0]), bool(loops[1])))


def _dense_input(
    program: Program, index: int, state: State, kernel: Kernel
) -> tuple[Dense, str] | None:
    """What the compiled kernel multiplies, if it can evaluate the stage."""
    layer = program.stages[index].layer
    if layer is not None and not finds_signs(layer, state.mesh.num_vertices):
        return None
    if state.history is None and state.num_known < state.mesh.num_vertices:
        return None
    found = dense_product(program, index, state.layer, state.rows, state.bounds, state.history)
    if found is None or state.settled is None:
        return found
    # Lines may end at vertices without values, so that new vertices follow from old factors only.
    wanted = kernel.open_corners(state.mesh, state.settled)[0]
    return replace(found[0], place=state.place, wanted=wanted, methods=DIRECT), found[1]


def dense_product(
    program: Program,
    index: int,
    pending: Nonlinearity | None,
    rows: Mapping[str, Tensor],
    bounds: Mapping[str, Bound],
    history: History | None = None,
) -> tuple[Dense, str] | None:
    """The product with a constant matrix that a stage is, if it is one, and the name of its result.

    pending: the layer that is to be applied to the rows; it must be a rectifier. history: how the
    vertices without rows came about.
    """
    dense = program.dense(index)
    if dense is None:
        return None
    name, step = dense
    if pending is not None and not (pending.result == name and pending.rectifies):
        return None
    z, weight = rows[name if pending is None else pending.argument], step.args[1]
    width, units = weight.shape
    if prod(z.shape[1:]) != units or not z.is_contiguous():
        return None
    methods = DIRECT
    if history is not None and history.has_breakpoints:
        methods = DENSE.evaluators(history.counts, width, units + width, units * width)
    bias = step.args[2] if len(step.args) > 2 else None
    product = Dense(
        z=z.view(z.shape[0], units),
        rectified=pending is not None,
        columns=weight.T.contiguous(),
        bias=None if bias is None else bias.contiguous(),
        magnitude=bounds[name].magnitude.contiguous(),
        error=bounds[name].error.contiguous(),
        history=history,
        methods=methods,
    )
    return product, step.name


def _follows_lines(program: Program, index: int, state: State) -> bool:
    """Whether the stage's values at new vertices can be found along the vertices' lines."""
    if not isinstance(state.pending, Refined):
        return False
    layer, refinement = state.pending.layer, state.pending.refinement
    if refinement.breakpoints is None or refinement.kept is not None:
        return False
    if not program.mixes(index):  # where a unit is zero, its result stays exactly that
        return False
    units = state.bounds[layer.result].magnitude.numel()
    most = units * max(units, program.widths[index])
    return units == prod(layer.shape) and most <= _COLUMNS


def _counts(refinement: Refinement) -> list[tuple[int, int, int]]:
    """The numbers of new vertices and breakpoints, see :meth:`Costs.evaluators`."""
    if refinement.breakpoints is None:
        raise ValueError("no breakpoints are known")
    on_edges, on_chords = refinement.breakpoints
    terms = torch.stack([each.per_vertex().sum() for each in (on_edges, on_chords)]).tolist()
    return [
        (refinement.on_edges.count, on_edges.count, terms[0]),
        (int(on_chords.line.shape[0]), on_chords.count, terms[1]),
    ]
