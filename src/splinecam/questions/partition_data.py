"""The data of a partition: a mesh with the network's output on it, and what follows from both."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from splinecam._util.arrays import as_rows
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import PLANAR
from splinecam.engine.affine_maps import AffineMaps, Merged, affine_maps, gradients, merge
from splinecam.errors import SplineCamError, option
from splinecam.files.properties import OutputCondition
from splinecam.geometry.domain import Domain, Frame
from splinecam.geometry.point_location import Locator
from splinecam.geometry.subdivision import Mesh
from splinecam.network.capture.models import Output
from splinecam.network.program import Program
from splinecam.questions.wanted import Wanted
from splinecam.smooth.tables import Tables

_MOST = 8  # names in a message


def names_of(names: Iterable[Any] | None, outputs: int) -> tuple[str, ...] | None:
    """The names of the classes in the order of the outputs, two for one output, after checks."""
    if names is None:
        return None
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise TypeError(f"names must be a list of names, one for each class, not {names!r}")
    given, classes = tuple(map(str, names)), max(outputs, 2)
    if len(given) != classes:
        why = ": the class at or below the level, and that above it" if outputs == 1 else ""
        raise ValueError(f"names has {len(given)} entries, but there are {classes} classes{why}")
    again = next((name for k, name in enumerate(given) if name in given[:k]), None)
    if again is not None:
        raise ValueError(f"names has {again!r} twice: each class needs a name of its own")
    return given


def counted(number: int, noun: str) -> str:
    """A number of things in words, such as "1 region" or "2,000 regions"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def few(names: Sequence[str]) -> str:
    """The first names, as text for a message."""
    return ", ".join(map(repr, names[:_MOST])) + ", ..." * (len(names) > _MOST)


def class_number(which: Any, names: tuple[str, ...] | None, classes: int) -> int:
    """The number of a class that is given by number or name."""
    if isinstance(which, str):
        if names is not None and which in names:
            return names.index(which)
        known = "the partition has no names: set part.names"
        if names:
            known = f"the names are {few(names)}"
        raise ValueError(f"there is no class {which!r}; {known}")
    meant = "a class is given by its number or its name"
    return numbered(which, classes, ("class", "classes"), meant)


def whole_number(value: Any, meant: str) -> int:
    """A value as a whole number; otherwise an error that says what is meant."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{meant}, not {value!r}") from None


def numbered(value: Any, count: int, nouns: tuple[str, str], meant: str) -> int:
    """The number of one of several things, from the end if it is negative, or an error."""
    index = whole_number(value, meant)
    if not -count <= index < count:
        raise IndexError(f"{nouns[0]} {index} of {count} {nouns[1]}, numbered from 0")
    return index % count


class Attached:
    """A result with its model and the captured network, which are None until they are given."""

    _model: nn.Module | None
    _program: Program | None
    _given_by: ClassVar[tuple[str, str]]  # what this is, and how to give it its model

    def _absent(self) -> SplineCamError:
        """The error if they are missing."""
        what, how = self._given_by
        why = f"This needs the network, and the {what} was loaded without it."
        return SplineCamError(f"{why} Give the same model: {option(how)}.")

    @property
    def model(self) -> nn.Module:
        """The model that was partitioned; an error if the result was loaded without a model."""
        if self._model is None:
            raise self._absent()
        return self._model

    @property
    def _network(self) -> Program:
        """The captured network; an error if the result was loaded without a model."""
        if self._program is None:
            raise self._absent()
        return self._program


@dataclass(frozen=True)
class SmoothLayer:
    """A layer whose smooth function was replaced by tables, one for each of its units.

    name: of the layer; function: what was replaced, such as ``"gelu"``; units: how many it has;
    pieces: the number of linear pieces of all units together.
    """

    name: str
    function: str
    units: int
    pieces: int

    @property
    def pieces_per_unit(self) -> float:
        """The number of pieces that a unit has on average."""
        return self.pieces / max(1, self.units)


@dataclass(frozen=True, eq=False, repr=False)
class Smoothing:
    """The smooth functions that were replaced, and bounds on what this changes.

    tolerance: (n_out,) the error that each output was allowed; region_bounds: (F, n_out) how far
    the outputs of the model are from the map of each region, at most; layers: the layers that were
    replaced; refined: whether regions at the decision boundary were divided further, into triangles
    that have the model's own outputs at their corners; tables: what replaces the functions of each
    layer, by its name.

    >>> bounds = torch.tensor([[0.0005], [0.001]], dtype=torch.float64)
    >>> Smoothing(bounds[1], bounds, (SmoothLayer("1", "gelu", 64, 1984),))
    Smoothing(1 layer replaced: gelu, 31 pieces per unit on average; outputs within 0.001)
    """

    tolerance: Tensor
    region_bounds: Tensor
    layers: tuple[SmoothLayer, ...] = ()
    refined: bool = False
    tables: Mapping[str, Tables] = field(default_factory=dict)

    @cached_property
    def _bound(self) -> Tensor:
        """The largest distance of each output from the model's on any region, (n_out,)."""
        return self.region_bounds.amax(0)

    def to(self, device: torch.device) -> Smoothing:
        """The same on a device."""
        tables = {name: table.to(device) for name, table in self.tables.items()}
        bounds = self.region_bounds.to(device)
        return Smoothing(self.tolerance.to(device), bounds, self.layers, self.refined, tables)

    @property
    def within(self) -> str:
        """How near the model is, in words."""
        return f"within {_upwards(float(self._bound.max()))} of the model"

    def __repr__(self) -> str:
        count, units = len(self.layers), sum(layer.units for layer in self.layers)
        functions = ", ".join(dict.fromkeys(layer.function for layer in self.layers))
        pieces = sum(layer.pieces for layer in self.layers) / max(1, units)
        how = f": {functions}, {pieces:.3g} pieces per unit on average" if count else ""
        within = f"outputs within {_upwards(float(self._bound.max()))}"
        return f"Smoothing({counted(count, 'layer')} replaced{how}; {within})"


def _upwards(number: float) -> str:
    """A number in three digits, of which the last is rounded up, so that bounds stay bounds.

    >>> _upwards(0.0009951), _upwards(0.001), _upwards(0.0)
    ('0.000996', '0.001', '0')
    """
    if not number > 0 or not math.isfinite(number):
        return f"{number:.3g}"
    with localcontext(Context(prec=3, rounding=ROUND_CEILING)):
        return f"{float(+Decimal(repr(number))):.3g}"


T = TypeVar("T")


class Unresolved(NamedTuple):
    """A place (u, v) of the plane that float64 could not settle, the layer, and the reason."""

    place: tuple[float, float]
    layer: str
    reason: str


@dataclass(eq=False, repr=False)
class PartitionData(Attached):
    """A convex polygon divided into V vertices, E edges and F regions, as flat tensors.

    domain: the polygon; mesh: its subdivision, in the coordinates of ``frame``; _outputs: (V,
    n_out) the network's output at the vertices, or one with the same answer to ``_wanted``;
    _value_error: (n_out,) the rounding error of the output; _layer_errors: by the name of a layer,
    the rounding errors of its units, (n,) each; unresolved: places that float64 could not settle,
    usually none; layers: the names of the non-linearities, in the order of evaluation; stripped:
    the final softmax, sigmoid or tanh that was left out, if any; _dtype: the model's floating-point
    type; _chosen_output: that of a model with several; smoothing: what was replaced in a
    model with smooth functions, None if it has none; _wanted: the question that regions were
    divided for, None if all are complete; _settled: (F,) those that are not, as the answer is the
    same on all of each; _undecided: (F,) those of them on which it is not, as the computation was
    ended, None for none.
    """

    domain: Domain
    mesh: Mesh
    _outputs: Tensor
    _value_error: Tensor
    _layer_errors: dict[str, Tensor]
    unresolved: tuple[Unresolved, ...]
    layers: tuple[str, ...]
    stripped: str | None
    _dtype: torch.dtype
    _chosen_output: Output = None
    smoothing: Smoothing | None = None
    _wanted: Wanted | None = None
    _settled: Tensor | None = None
    _undecided: Tensor | None = None
    _names: tuple[str, ...] | None = field(default=None, init=False)
    _model: nn.Module | None = field(default=None, init=False)
    _program: Program | None = field(default=None, init=False)
    _results: dict[str, tuple[Any, Any]] = field(default_factory=dict, init=False)
    _given_by: ClassVar[tuple[str, str]] = (
        "partition",
        "sc.load(path, model=model), or part.attach(model)",
    )

    def __len__(self) -> int:
        return self.mesh.num_faces

    @property
    def values(self) -> Tensor:
        """The output at the vertices, (V, n_out)."""
        return self._outputs if self._wanted is None else self._true_outputs

    @values.setter
    def values(self, values: Tensor) -> None:
        self._outputs = values

    @property
    def _n_out(self) -> int:
        return int(self._outputs.shape[1])

    @cached_property
    def _true_outputs(self) -> Tensor:
        """The output at all vertices, which the network computes at those of settled regions."""
        found, others = self._outputs.clone(), (~self._known).nonzero()[:, 0]
        step = max(1, backend_of(found.device).numbers // max(1, *self._network.widths))
        with torch.no_grad():
            for some in torch.split(others, step):
                found[some] = as_rows(self._network(self.domain.embed(self.vertices[some])))
        return found

    @cached_property
    def _known(self) -> Tensor:
        """The vertices of complete regions, (V,), at which ``_outputs`` are the network's."""
        return self._corners_of(self.complete)

    def _corners_of(self, regions: Tensor) -> Tensor:
        """The vertices (V,) of marked regions (F,)."""
        found = torch.zeros(self.mesh.num_vertices, dtype=torch.bool, device=self.mesh.uv.device)
        found[self._face_vertices[regions[self.mesh.owners()]]] = True
        return found

    @property
    def complete(self) -> Tensor:
        """Which regions are linear regions of the network, (F,): all, unless ``refine`` was given.

        On each of the others the answer to what was asked is the same, so that they were not
        divided. They are unions of linear regions.
        """
        if self._settled is None:
            return torch.ones(len(self), dtype=torch.bool, device=self.mesh.uv.device)
        return ~self._settled

    @property
    def undecided(self) -> Tensor:
        """On which regions the question of ``refine`` is open, (F,): none without ``partial=True``.

        They are neither complete, nor is the answer the same on all of one.
        """
        if self._undecided is None:
            return torch.zeros(len(self), dtype=torch.bool, device=self.mesh.uv.device)
        return self._undecided

    def _require(self, what: str, wanted: Wanted | None = None, *, partial: bool = False) -> None:
        """Raise an error unless a question can be answered, or all regions are complete.

        partial: whether it may be answered on some regions alone.
        """
        own = self._wanted
        if own is None or (wanted is not None and own.covers(wanted)):
            if partial or not self._is_partial:
                return
            raise SplineCamError(
                f"The computation was ended before all was settled: {self._left}. "
                "part.undecided says which; for the rest, compute the partition to its end."
            )
        need = "" if wanted is not None else ", and this needs all linear regions"
        raise SplineCamError(
            f"The partition was made for {own.words} alone (refine=), so that "
            f"{int((~self.complete).sum()):,} of its {len(self):,} regions are not divided{need}. "
            f"For {what}, leave refine= out: sc.partition(model, domain)."
        )

    @cached_property
    def _is_partial(self) -> bool:
        """Whether any region is undecided."""
        return self._undecided is not None and bool(self._undecided.any())

    @property
    def _left(self) -> str:
        """How many regions are undecided, in words."""
        open_, areas = self.undecided, self.areas
        share = float(areas[open_].sum() / areas.sum())
        return (
            f"{int(open_.sum()):,} of {len(self):,} regions are undecided, {share:.1%} of the area"
        )

    def _claims(self, condition: OutputCondition) -> Tensor | None:
        """1 or -1 for settled regions on which a condition holds or not, (F,); None without any."""
        if self._wanted is None or not self._wanted.is_about(condition):
            return None
        first = self._face_vertices[self.mesh.offsets[:-1]]
        return self._wanted.labels(self._outputs[first])[:, 0].to(torch.int8)

    def _require_complete(self, regions: Tensor) -> None:
        """Raise an error unless some regions (N,) are complete."""
        if self._wanted is not None and not bool(self.complete[regions].all()):
            self._require("what is linear on them")

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the classes, or None; assign a list of names, or None, to change them.

        A model with one output has two names: of the class at or below the level, and above it.

        >>> import splinecam as sc
        >>> part = sc.partition(nn.Linear(2, 3), Domain.box(-1, 1), names=["cat", "dog", "bird"])
        >>> part.names = ["a", "b", "c"]
        >>> part.names
        ('a', 'b', 'c')
        """
        return self._names

    @names.setter
    def names(self, names: Sequence[str] | None) -> None:
        self._names = names_of(names, self._n_out)

    @cached_property
    def _frame(self) -> Frame:
        """The local coordinates of ``mesh`` and ``maps``, which are centred and of unit size."""
        return Frame.of(self.domain)

    @property
    def region_bounds(self) -> Tensor:
        """How far the model is at most from each region's map, (F, n_out); zero if it is exact."""
        if self.smoothing is None:
            return self._outputs.new_zeros((len(self), self._n_out))
        return self.smoothing.region_bounds

    @property
    def _bound(self) -> Tensor:
        """How far each output of the model is at most from the maps, (n_out,)."""
        if self.smoothing is None:
            return self._outputs.new_zeros(self._n_out)
        return self.smoothing._bound

    @cached_property
    def vertices(self) -> Tensor:
        """Plane coordinates of the vertices, (V, 2)."""
        return self._frame.to_plane(self.mesh.uv)

    @cached_property
    def _face_vertices(self) -> Tensor:
        """Vertices of all regions, counter-clockwise, region after region, (H,)."""
        return self.mesh.corner_vertices()

    @cached_property
    def areas(self) -> Tensor:
        """Area of each region, (F,)."""
        return self._areas_and_centroids[0] * self._frame.scale**2

    @cached_property
    def centroids(self) -> Tensor:
        """Centroid of each region, (F, 2)."""
        return self._frame.to_plane(self._areas_and_centroids[1])

    @cached_property
    def _areas_and_centroids(self) -> tuple[Tensor, Tensor]:
        return self.mesh.areas_and_centroids()

    @cached_property
    def _maps(self) -> AffineMaps:
        """The affine maps in local coordinates, each relative to a point inside its region."""
        self._require("the maps of regions")
        return self._maps_on(self.mesh, self._outputs)

    @cached_property
    def _known_maps(self) -> AffineMaps:
        """The same, with zeros for regions that are not complete."""
        if self._wanted is None:
            return self._maps
        faces = self.complete.nonzero()[:, 0]
        mesh, vertices, _ = self.mesh.select(faces)
        found = vars(self._maps_on(mesh, self._outputs[vertices])).values()
        shapes = ((x, x.new_zeros((len(self), *x.shape[1:]))) for x in found)
        return AffineMaps(*(zero.index_copy_(0, faces, x) for x, zero in shapes))

    def _maps_on(self, mesh: Mesh, values: Tensor) -> AffineMaps:
        # Triangles of a refinement have other maps than the network.
        refined = self.smoothing is not None and self.smoothing.refined
        network = None if refined else self._network
        with torch.no_grad():
            given = mesh, values, self._value_error
            return affine_maps(*given, network, self.domain, self._frame)

    @property
    def weight(self) -> Tensor:
        """Slope of each region's affine map in plane coordinates, (F, n_out, 2)."""
        self._require("the maps of regions")
        return self._affine[0]

    @property
    def bias(self) -> Tensor:
        """Offset of each region's affine map: output = weight @ uv + bias, (F, n_out)."""
        self._require("the maps of regions")
        return self._affine[1]

    @cached_property
    def _affine(self) -> tuple[Tensor, Tensor]:
        """The slopes and offsets of all regions, which are zeros unless they are complete."""
        maps, weight = self._known_maps, self._known_maps.weight / self._frame.scale
        anchor = self._frame.to_plane(maps.anchor)
        return weight, maps.value - (weight * anchor[:, None]).sum(2)

    @cached_property
    def _edge_faces(self) -> Tensor:
        """Regions left and right of each edge, -1 outside the domain, (E, 2)."""
        return self.mesh.halfedge_face().view(-1, 2)

    def locate(self, x: Tensor) -> Tensor:
        """The region of each input (N, ...), (N,); -1 outside the domain or off its plane.

        An input on an edge or at a vertex belongs to the adjacent region in which it lies deepest,
        and of equals to the one with the lowest number. The domain includes its border. Inputs in
        single precision may be off the plane by their rounding. Check for -1 before indexing with
        the result: Python takes -1 for the last element.

        x: a batch of inputs (N, ...), a flat batch, or one input.
        """
        local, off = in_plane(self.domain, self._frame, x, self.mesh.uv)
        return torch.where(off, -1, self._locator(local))

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self.mesh)

    def _indices(self, regions: Tensor | Sequence[int] | int) -> Tensor:
        """The numbers (N,) of regions that are given by number, from the end too, or by mask."""
        return region_numbers(regions, len(self), self.mesh.uv.device)

    def patterns(self, regions: Tensor | Sequence[int] | int | None = None) -> dict[str, Tensor]:
        """The piece that each unit is on, by the name of the layer, (N, units) each.

        The piece of a function of one variable is the number of breakpoints below the unit's value
        (counted from the table's first, if it is periodic); of a maximum, the flat index of the
        unit of the layer's input that wins the group; of a sorting, whether the first of two units
        is the larger one, for the pairs 01, 02, ..., 12, ... of each group; of a registered
        operation, whether each function is positive.

        regions: numbers of regions, or a mask (F,), by default all.
        """
        if regions is None:
            self._require("the patterns of all regions")
            return self._patterns_at(self.mesh.means())
        chosen = self._indices(regions)
        self._require_complete(chosen)
        return self._patterns_at(self.mesh.means()[chosen])

    def _patterns_at(self, local: Tensor, errors: float = 1.0) -> dict[str, Tensor]:
        """The patterns at local points (N, 2); within so many errors, a unit is on a breakpoint."""
        slack = {name: errors * error for name, error in self._layer_errors.items()}
        widest = max([self.domain.dim, *(len(error) for error in slack.values())])
        with torch.no_grad():
            blocks = [
                self._network.patterns(self.domain.embed(self._frame.to_plane(block)), slack)
                for block in torch.split(local, max(1, backend_of(local.device).numbers // widest))
            ]
        return {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}

    def jacobian(self, regions: Tensor | Sequence[int] | int) -> Tensor:
        """The derivative of the output in input space on some regions, (N, n_out, ...).

        regions: numbers of regions, or a mask (F,).
        """
        chosen = self._indices(regions)
        self._require_complete(chosen)
        if not chosen.shape[0]:
            return self._outputs.new_zeros((0, self._n_out, *self.domain.input_shape))
        uv = self._frame.to_plane(self.mesh.means()[chosen])
        return gradients(self._network, self.domain.embed(uv))

    def merged(self) -> Merged:
        """The pieces that neighbouring regions with the same affine map form together."""
        return merge(self.mesh, self._maps, self.areas)

    def _inputs(
        self,
        uv: Tensor,
        *,
        dtype: torch.dtype | None = None,
        device: str | torch.device | None = None,
    ) -> Tensor:
        """The inputs (N, ...) at plane coordinates (N, 2), ready for the model.

        uv: plane coordinates. dtype, device: by default the model's floating-point type, and the
        device of the domain.
        """
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating-point type, not {dtype}")
        return self.domain.embed(uv).to(device or self.domain.origin.device, dtype or self._dtype)

    def _remembered(self, name: str, options: Any, compute: Callable[[], T]) -> T:
        """The result of a computation, which is kept until other options are asked for."""
        if name not in self._results or self._results[name][0] != options:
            self._results[name] = options, compute()
        found: T = self._results[name][1]
        return found

    def __repr__(self) -> str:
        parts = [
            counted(len(self), "region"),
            f"{self.mesh.num_edges:,} edges",
            counted(self._n_out, "output"),
            counted(len(self.layers), "layer"),
        ]
        if self._wanted is not None:
            done = f"{int(self.complete.sum()):,} of them complete"
            parts.append(f"{done}, made for {self._wanted.words}")
        if self._is_partial:
            parts.append(self._left)
        if self.stripped:
            parts.append(f"final {self.stripped} left out")
        if self.smoothing is not None:
            parts.append(self.smoothing.within)
        if self.unresolved:
            parts.append(f"{len(self.unresolved):,} unresolved places")
        if self.names is not None:
            parts.append(f"classes {few(self.names)}")
        if self._model is None:
            parts.append("without its model")
        return f"{type(self).__name__}({', '.join(parts)}, on {self.mesh.uv.device})"


@dataclass(frozen=True)
class Region:
    """A view of one convex cell, on which output = weight @ uv + bias; nothing is copied."""

    partition: PartitionData
    index: int

    @property
    def vertices(self) -> Tensor:
        """Plane coordinates of the vertices, counter-clockwise, (k, 2)."""
        p = self.partition
        start, end = p.mesh.offsets[self.index], p.mesh.offsets[self.index + 1]
        return p.vertices[p._face_vertices[start:end]]

    @property
    def area(self) -> float:
        """Area in plane coordinates."""
        return float(self.partition.areas[self.index])

    @property
    def centroid(self) -> Tensor:
        """Plane coordinates of the centroid, (2,)."""
        return self.partition.centroids[self.index]

    @property
    def weight(self) -> Tensor:
        """Slope of the output in plane coordinates, (n_out, 2)."""
        return self._affine[0][self.index]

    @property
    def bias(self) -> Tensor:
        """Offset of the output, (n_out,)."""
        return self._affine[1][self.index]

    @property
    def _affine(self) -> tuple[Tensor, Tensor]:
        self.partition._require_complete(torch.tensor([self.index]))
        return self.partition._affine

    @property
    def pattern(self) -> dict[str, Tensor]:
        """The piece that each unit is on, by the name of the layer, (units,) each."""
        return {k: v[0] for k, v in self.partition.patterns([self.index]).items()}

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The numbers of the regions that share an edge with this one, ascending."""
        mesh, beside = self.partition.mesh, self.partition._edge_faces.view(-1)
        start, end = mesh.offsets[self.index], mesh.offsets[self.index + 1]
        found = torch.unique(beside[mesh.corners[start:end] ^ 1])
        return tuple(found[found >= 0].tolist())

    def jacobian(self) -> Tensor:
        """The derivative of the output in input space, (n_out, ...)."""
        return self.partition.jacobian([self.index])[0]

    def _repr_html_(self) -> str:
        from splinecam.plot.notebook import region_card

        return region_card(self)

    def __repr__(self) -> str:
        u, v = self.centroid.tolist()
        k = int(self.partition.mesh.counts()[self.index])
        place = f"around ({u:.4g}, {v:.4g})"
        if not bool(self.partition.complete[self.index]):
            place += ", not divided"
        return f"Region({self.index}: {k} vertices, area {self.area:.4g}, {place})"


def in_plane(domain: Domain, frame: Frame, x: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Local coordinates (N, 2) of inputs, of a tensor's type, and which are off the plane, (N,)."""
    uv, distance = domain.project(x)
    local = frame.to_local(uv.to(like))
    reach = float(domain.origin.abs().max()) + domain.diameter
    coarse = isinstance(x, Tensor) and x.is_floating_point()
    rounding = torch.finfo(x.dtype).eps * domain.dim**0.5 if coarse else 0.0
    return local, distance.to(local.device) > max(PLANAR, rounding) * reach


def region_numbers(
    regions: Tensor | Sequence[int] | int, count: int, device: torch.device
) -> Tensor:
    """The numbers (N,) of regions, of which there are ``count``, as ``_indices`` takes them."""
    index = torch.as_tensor(regions, device=device).reshape(-1)
    if index.dtype == torch.bool:
        if index.shape[0] != count:
            raise IndexError(f"a mask of {index.shape[0]} for {count:,} regions")
        return index.nonzero()[:, 0]
    if index.is_floating_point() and index.numel():
        raise TypeError("regions are numbered by whole numbers")
    index = index.long()
    index = torch.where(index < 0, index + count, index)
    if bool(((index < 0) | (index >= count)).any()):
        raise IndexError(f"there are {count:,} regions, numbered from 0")
    return index
