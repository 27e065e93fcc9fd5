"""The result: a domain divided into regions, each with its polygon and affine map."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import cached_property
from io import BytesIO
from math import prod
from typing import Any, BinaryIO, TypeVar

import torch
from torch import Tensor, nn

from splinecam import io
from splinecam import plot as _plot
from splinecam._captured import Captured, model_of
from splinecam._util.backend import backend_of
from splinecam._util.options import device_of, kind_of, limit_of, memory_of
from splinecam._util.progress import progress_bar, tell
from splinecam._util.tolerances import EPS, PLANAR, SAFETY, VALUE_PRECISION
from splinecam.analysis import boundary
from splinecam.analysis import class_regions as classes
from splinecam.analysis import density as _density
from splinecam.analysis import neurons as _neurons
from splinecam.analysis import stats as _stats
from splinecam.analysis import validate as _validate
from splinecam.analysis.class_names import few, names_of
from splinecam.analysis.growth import regions_by_layer
from splinecam.analysis.record import Record
from splinecam.analysis.regions import Region, Regions, RegionViews, Unresolved
from splinecam.analysis.sampling import sample_regions
from splinecam.engine.affine_maps import AffineMaps, affine_maps, gradients
from splinecam.engine.merge import Merged, merge
from splinecam.engine.plan import Plan, first_device
from splinecam.engine.run import Outcome, run
from splinecam.errors import SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame
from splinecam.geometry.point_location import Locator
from splinecam.network.capture import capture
from splinecam.network.capture.outputs import Lost, Output, check_output
from splinecam.network.capture.private import dtype_of
from splinecam.network.model_files import instead_of
from splinecam.network.program import Program

__all__ = ["Partition", "Region", "Unresolved", "load", "partition"]


T = TypeVar("T")

_COMPARED = 1000  # vertices at which a model is compared with a partition from a file
_ABSENT = (
    "This needs the network, and the partition was loaded without it. Give the same model: "
    "sc.load(path, model=model), or part.attach(model)."
)


def partition(
    model: nn.Module | Captured,
    domain: Domain,
    *,
    output: Output = None,
    device: str | torch.device = "auto",
    memory: float | str | None = None,
    max_regions: float | None = None,
    names: Sequence[str] | None = None,
    progress: bool = True,
) -> Partition:
    """The exact partition of a domain into the linear regions of a piecewise-linear network.

    model: any ``nn.Module`` of continuous piecewise-linear operations, in eval mode; it is not
    changed. A network from ``capture`` stands for its model as it is now. output: which of several
    outputs of the model, as an index into a tuple, a key of a dict, the name of a field, or a
    function of the model's result. device: where the result is to be, by default on a GPU if there
    is one. It is computed there; only by default layers that are small enough are computed on the
    CPU, which is faster, and the log tells where it goes on.
    memory: bytes to stay within, as a number or written ``"4GB"`` (default: most of what the device
    has free). max_regions: stop with a ``LimitError`` beyond this many. names: what the classes are
    called, in the order of the outputs, or two names for a single output; pictures and tables use
    them, and ``part.names`` changes them. progress: show a bar, in interactive use only; elsewhere
    the logger ``splinecam`` tells of each step at level INFO.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> part = partition(model, Domain.box(-1, 1), progress=False)
    >>> part.validate().ok
    True
    """
    network, output, device = model_of(model, output, device)
    require_module(network)
    if not isinstance(domain, Domain):
        raise TypeError(f"domain must be a splinecam.Domain, not {kind_of(domain)}")
    check_output(output)
    memory, max_regions = memory_of(memory), limit_of("max_regions", max_regions)
    limits = memory, max_regions
    with torch.inference_mode(False):
        return _partition(network, domain, output, device, *limits, names, progress)


def require_module(model: object) -> None:
    """A ``TypeError`` for what is no model."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, not {instead_of(model)}")


def _partition(
    model: nn.Module,
    domain: Domain,
    output: Output,
    device: str | torch.device,
    memory: int | None,
    max_regions: int | None,
    names: Sequence[str] | None,
    progress: bool,
) -> Partition:
    first = first_device(device, model, domain.input_shape)
    program = capture(model, domain.input_shape, device=first, output=output)
    plan = Plan.of(program, device_of(device), memory)
    called = names_of(names, prod(program.output_shape))
    with progress_bar(len(program.layers), "cut", progress) as bar, torch.no_grad():

        def report(name: str, regions: int, share: float) -> None:
            tell(bar, name, regions)
            bar.update(share)

        outcome = run(program, domain, max_regions=max_regions, report=report, plan=plan)
    record = record_of(model, program, domain, outcome, output=output, names=called)
    return Partition(record, model, plan.last.program)


def record_of(
    model: nn.Module,
    program: Program,
    domain: Domain,
    outcome: Outcome,
    *,
    output: Output = None,
    names: tuple[str, ...] | None = None,
) -> Record:
    """What a run found, in a partition's terms."""
    return Record(
        domain=domain,
        mesh=outcome.mesh,
        values=outcome.output,
        value_error=outcome.error,
        layer_errors=outcome.layer_errors,
        unresolved=tuple(
            Unresolved((u, v), name, ambiguity.reason)
            for name, ambiguity in outcome.ambiguities
            for u, v in Frame.of(domain).to_plane(ambiguity.uv).tolist()
        ),
        layers=tuple(layer.name for layer in program.layers),
        stripped=program.stripped,
        dtype=dtype_of(model),
        output=output,
        names=names,
    )


def load(
    path: str | os.PathLike[str] | BinaryIO,
    *,
    model: nn.Module | None = None,
    output: Output = None,
    device: str | torch.device = "cpu",
    verify: bool = True,
) -> Partition:
    """A partition that ``part.save`` wrote, on the given device.

    The file does not hold the network. A ``FileError`` says what is wrong with a file that cannot
    be read.

    path: name of the file, or an open file. model: the same network, for what needs it
    (``patterns``, ``neurons``, ``fixed_units``, ``jacobian``, ``validate``, statistics in input
    space); it is compared with the file. output: needed again if it was a function, which a file
    does not hold. device: where the tensors are to be. verify: check that the regions are convex,
    fit together and cover the domain; without that, loading takes a fraction of the time, and only
    checksums, types, shapes and the range of indices are checked.
    """
    part = Partition(io.read(path, verify=verify).to(device_of(device)))
    if model is not None:
        part.attach(model, output=output)
    return part


def _unpickled(
    content: bytes, model: nn.Module | None, device: str, output: Output = None
) -> Partition:
    return load(BytesIO(content), model=model, output=output, device=device, verify=False)


class Partition(RegionViews):
    """A convex polygon divided into V vertices, E edges and F regions, as flat tensors.

    Coordinates are plane coordinates of ``domain``. A region is a convex cell on which every unit
    keeps one linear piece; ``merged()`` unites neighbours with equal maps. A partition is a
    sequence of its regions: ``part[i]``, ``part[:10]``, ``for region in part``.

    domain: what was partitioned; cuts: names of the non-linearities, in the order in which they
    cut; stripped: the final softmax, sigmoid or tanh that was left out, if any; values:
    (V, n_out) the output at the vertices; value_error: (n_out,) its rounding error; unresolved:
    places that float64 could not settle (usually none); dtype: the model's floating-point type;
    layer_errors: rounding errors of the units of each cut; output: which of several outputs of the
    model this is, None if there is one. mesh, frame: the subdivision in the
    engine's own coordinates, and these coordinates.
    """

    def __init__(
        self, record: Record, model: nn.Module | None = None, program: Program | None = None
    ) -> None:
        self.domain = record.domain
        self.layers = record.layers
        self.stripped = record.stripped
        self.values = record.values
        self.value_error = record.value_error
        self.unresolved = record.unresolved
        self.dtype = record.dtype
        self.layer_errors = record.layer_errors
        self.output = record.output
        self.mesh = record.mesh
        self._names = record.names
        self._maps = record.maps
        self._model, self._program = model, program

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the classes are called, or None; set it to a list of names, or to None.

        Two names for a model with one output: of the class at or below the level, and above it.

        >>> part = partition(nn.Linear(2, 3), Domain.box(-1, 1), names=["cat", "dog", "bird"])
        >>> part.names = ["a", "b", "c"]
        >>> part.names
        ('a', 'b', 'c')
        """
        return self._names

    @names.setter
    def names(self, names: Sequence[str] | None) -> None:
        self._names = names_of(names, self.values.shape[1])

    # -- the network --------------------------------------------------------------------------

    @property
    def model(self) -> nn.Module:
        """The model that was partitioned; an error if the partition was loaded without it."""
        if self._model is None:
            raise SplineCamError(_ABSENT)
        return self._model

    @property
    def program(self) -> Program:
        """The captured network; an error if the partition was loaded without its model."""
        if self._program is None:
            raise SplineCamError(_ABSENT)
        return self._program

    def attach(self, model: nn.Module, *, output: Output = None) -> None:
        """Give a loaded partition its model back; an error if it is another one.

        output: which of several outputs, by default the one that the partition was made of.
        """
        check_output(output)
        output = self.output if output is None else output
        if isinstance(output, Lost):
            raise SplineCamError(
                f"The partition is of an output that the function {output.name} selects, and files "
                "hold no functions. Give the function again: output=..., along with the model."
            )
        with torch.inference_mode(False), torch.no_grad():
            device = self.mesh.uv.device
            program = capture(model, self.domain.input_shape, device=device, output=output)
            layers = tuple(layer.name for layer in program.layers)
            some = slice(None, None, max(1, self.mesh.num_vertices // _COMPARED))
            found = program(self.domain.embed(self.vertices[some])).flatten(1)
        if layers != self.layers or found.shape[1] != self.values.shape[1]:
            raise SplineCamError(
                f"The model is not the one that was partitioned: it has {found.shape[1]} outputs "
                f"and the layers {layers}; the partition has {self.values.shape[1]} and "
                f"{self.layers}."
            )
        spread = self.values.amax(0) - self.values.amin(0) + EPS * self.values.abs().amax(0)
        off = (found - self.values[some]).abs()
        if bool((off > VALUE_PRECISION * spread.max() + SAFETY * self.value_error).any()):
            raise SplineCamError(
                "The model is not the one that was partitioned: its outputs at the vertices differ "
                f"by up to {float(off.max()):.3g}. Were its weights changed since?"
            )
        self._model, self._program, self.output = model, program, output

    @cached_property
    def frame(self) -> Frame:
        """The engine's own coordinates."""
        return Frame.of(self.domain)

    # -- arrays -------------------------------------------------------------------------------

    @cached_property
    def vertices(self) -> Tensor:
        """Plane coordinates of the vertices, (V, 2)."""
        return self.frame.to_plane(self.mesh.uv)

    @property
    def edges(self) -> Tensor:
        """End vertices of each edge, (E, 2)."""
        return self.mesh.edges

    @property
    def edge_layer(self) -> Tensor:
        """Index into ``cuts`` of what drew each edge, -1 for the domain's border, (E,)."""
        return self.mesh.edge_layer

    @property
    def edge_unit(self) -> Tensor:
        """Unit (flat index) of that cut which switches on each edge, -1 for the border, (E,).

        Of maxima the group, which is a unit of the result; of two sorted units the first.
        """
        return self.mesh.edge_unit

    @property
    def vertex_layer(self) -> Tensor:
        """Index into ``cuts`` of what made each vertex, -1 for the domain's corners, (V,)."""
        return self.mesh.vertex_layer

    @property
    def face_offsets(self) -> Tensor:
        """Where each region's corners begin in ``face_vertices``, (F + 1,)."""
        return self.mesh.offsets

    @cached_property
    def face_vertices(self) -> Tensor:
        """Vertices of all regions, counter-clockwise, region after region, (H,)."""
        return self.mesh.corner_vertices()

    @property
    def num_corners(self) -> Tensor:
        """Number of vertices of each region, (F,)."""
        return self.mesh.counts()

    @cached_property
    def areas(self) -> Tensor:
        """Area of each region, (F,)."""
        return self._areas_and_centroids[0] * self.frame.scale**2

    @cached_property
    def centroids(self) -> Tensor:
        """Centroid of each region, (F, 2)."""
        return self.frame.to_plane(self._areas_and_centroids[1])

    @cached_property
    def _areas_and_centroids(self) -> tuple[Tensor, Tensor]:
        return self.mesh.areas_and_centroids()

    @cached_property
    def maps(self) -> AffineMaps:
        """The affine maps in the engine's own coordinates, anchored inside each region."""
        if self._maps is not None:
            return self._maps
        with torch.no_grad():
            return affine_maps(
                self.mesh, self.values, self.value_error, self.program, self.domain, self.frame
            )

    @cached_property
    def weight(self) -> Tensor:
        """Slope of each region's affine map in plane coordinates, (F, n_out, 2)."""
        return self.maps.weight / self.frame.scale

    @cached_property
    def bias(self) -> Tensor:
        """Offset of each region's affine map: output = weight @ uv + bias, (F, n_out)."""
        anchor = self.frame.to_plane(self.maps.anchor)
        return self.maps.value - (self.weight @ anchor[:, :, None])[:, :, 0]

    @cached_property
    def edge_faces(self) -> Tensor:
        """Regions left and right of each edge, -1 outside the domain, (E, 2)."""
        return self.mesh.halfedge_face().view(-1, 2)

    # -- earlier names ------------------------------------------------------------------------

    @property
    def cuts(self) -> tuple[str, ...]:
        """The earlier name of ``layers``; deprecated."""
        return self._earlier("cuts", "layers", self.layers)

    @property
    def cut_errors(self) -> dict[str, Tensor]:
        """The earlier name of ``layer_errors``; deprecated."""
        return self._earlier("cut_errors", "layer_errors", self.layer_errors)

    @property
    def edge_op(self) -> Tensor:
        """The earlier name of ``edge_layer``; deprecated."""
        return self._earlier("edge_op", "edge_layer", self.edge_layer)

    @property
    def vertex_op(self) -> Tensor:
        """The earlier name of ``vertex_layer``; deprecated."""
        return self._earlier("vertex_op", "vertex_layer", self.vertex_layer)

    @staticmethod
    def _earlier(old: str, new: str, value: T) -> T:
        warnings.warn(f"part.{old} is now part.{new}", DeprecationWarning, stacklevel=3)
        return value

    # -- questions ----------------------------------------------------------------------------

    @property
    def regions(self) -> Regions:
        """The regions as a sequence of light views."""
        return Regions(self)

    def __len__(self) -> int:
        return self.mesh.num_faces

    @property
    def _owner(self) -> Partition:
        return self

    def locate(self, x: Tensor) -> Tensor:
        """Region of each input (N, ...), (N,); -1 outside the domain or off its plane.

        Mind that Python takes index -1 for the last element: look before you index with it.
        Inputs in single precision may be as far off the plane as their rounding.
        """
        uv, distance = self.domain.project(x)
        local = self.frame.to_local(uv.to(self.mesh.uv))
        reach = float(self.domain.origin.abs().max()) + self.domain.diameter
        coarse = isinstance(x, Tensor) and x.is_floating_point()
        rounding = torch.finfo(x.dtype).eps * self.domain.dim**0.5 if coarse else 0.0
        off = distance.to(local.device) > max(PLANAR, rounding) * reach
        return torch.where(off, -1, self._locator(local))

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self.mesh)

    def neighbours(self, region: int) -> Tensor:
        """Regions that share an edge with the given one, ascending."""
        index = int(self._indices(region)[0])
        start, end = self.mesh.offsets[index], self.mesh.offsets[index + 1]
        twins = self.mesh.corners[start:end] ^ 1
        found: Tensor = torch.unique(self.edge_faces.view(-1)[twins])
        return found[found >= 0]

    def _indices(self, regions: Tensor | Sequence[int] | int) -> Tensor:
        """Region numbers as a tensor (N,); negative ones count from the end. Or a mask (F,)."""
        index = torch.as_tensor(regions, device=self.mesh.uv.device).reshape(-1)
        if index.dtype == torch.bool:
            if index.shape[0] != len(self):
                raise IndexError(f"a mask of {index.shape[0]} for {len(self):,} regions")
            return index.nonzero()[:, 0]
        if index.is_floating_point() and index.numel():
            raise TypeError("regions are numbered by whole numbers")
        index = index.long()
        index = torch.where(index < 0, index + len(self), index)
        if bool(((index < 0) | (index >= len(self))).any()):
            raise IndexError(f"the partition has {len(self):,} regions, numbered from 0")
        return index

    def patterns(self, regions: Tensor | Sequence[int] | int | None = None) -> dict[str, Tensor]:
        """Which piece each unit is on, per cut, (N, units) each.

        Functions of one variable: how many knots lie below the unit's value (from the table's
        first on, if it is periodic). Maxima: which unit of the cut's input wins each group, as a
        flat index. Sorting: whether the first of two units is the larger one, for the pairs 01, 02,
        ..., 12, ... of each group. Registered operations: whether each function is positive.
        """
        chosen = slice(None) if regions is None else self._indices(regions)
        return self._patterns_at(self.mesh.means()[chosen])

    def _patterns_at(self, local: Tensor, errors: float = 1.0) -> dict[str, Tensor]:
        """Patterns at points (N, 2) in the engine's coordinates, blind to so many errors."""
        blind = {name: errors * error for name, error in self.layer_errors.items()}
        widest = max([self.domain.dim, *(len(error) for error in blind.values())])
        with torch.no_grad():
            blocks = [
                self.program.patterns(self.domain.embed(self.frame.to_plane(block)), blind)
                for block in torch.split(local, max(1, backend_of(local.device).numbers // widest))
            ]
        return {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}

    def jacobian(self, regions: Tensor | Sequence[int] | int) -> Tensor:
        """Derivative of the output in input space, (N, n_out, ...)."""
        chosen = self._indices(regions)
        if not chosen.shape[0]:
            return self.values.new_zeros((0, self.values.shape[1], *self.domain.input_shape))
        return gradients(
            self.program, self.domain.embed(self.frame.to_plane(self.mesh.means()[chosen]))
        )

    def merged(self) -> Merged:
        """Unite neighbouring regions that have the same affine map."""
        return merge(self.mesh, self.maps, self.areas)

    # -- what it is for: each of these is a function of a partition, in a module of its own -------

    decision_boundary = boundary.decision_boundary
    level_set = boundary.level_set
    class_regions = classes.class_regions
    neurons = _neurons.neurons
    fixed_units = _neurons.fixed_units
    sample = sample_regions
    density = _density.density
    regions_by_layer = regions_by_layer
    stats = _stats.stats
    table = _stats.table
    validate = _validate.validate
    plot = _plot.plot
    plot_surface = _plot.plot_surface
    plot_layers = _plot.plot_layers
    plot_histograms = _plot.plot_histograms
    save = io.save

    def inputs(
        self,
        uv: Tensor,
        *,
        dtype: torch.dtype | None = None,
        device: str | torch.device | None = None,
    ) -> Tensor:
        """The inputs (N, ...) at plane coordinates (N, 2), ready for the model.

        By default they have the model's floating-point type and are on the domain's device.
        """
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating-point type, not {dtype}")
        return self.domain.embed(uv).to(device or self.domain.origin.device, dtype or self.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by way of the file format; the model is pickled by its own rules."""
        file = BytesIO()
        self.save(file)
        output = None if self._model is None else self.output  # else the file holds it
        return _unpickled, (file.getvalue(), self._model, str(self.mesh.uv.device), output)

    def _repr_html_(self) -> str:
        """A small picture and the main numbers, as notebooks show it."""
        from splinecam.plot.notebook import partition_card

        return partition_card(self)

    def __repr__(self) -> str:
        parts = [
            f"{len(self):,} region{'s' * (len(self) != 1)}",
            f"{self.mesh.num_edges:,} edges",
            f"{self.values.shape[1]} output{'s' * (self.values.shape[1] != 1)}",
            f"{len(self.layers)} layer{'s' * (len(self.layers) != 1)}",
        ]
        if self.stripped:
            parts.append(f"final {self.stripped} left out")
        if self.unresolved:
            parts.append(f"{len(self.unresolved):,} unresolved places")
        if self.names is not None:
            parts.append(f"classes {few(self.names)}")
        if self._model is None:
            parts.append("without its model")
        return f"Partition({', '.join(parts)}, on {self.mesh.uv.device})"
