"""A complex on its way through a network, layer after layer.

On every cell all values after the affine part of a stage are affine. The cells are then divided by
the layer of the stage, and the next affine part follows. Values at new vertices are interpolated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows, counts_of, offsets_of, owners_of, take, take_rows
from splinecam._util.backend import backend_of
from splinecam._util.text import number_text
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.arrangement.crossings import Functions
from splinecam.engine.activations import require_no_overflow
from splinecam.errors import LimitError
from splinecam.geometry.solids import Solid
from splinecam.kernels.solid import Bounded, CutArrays
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity
from splinecam.network.ops.bounds import Bound
from splinecam.network.program import FAR, Program
from splinecam.solid.complex import AUXILIARY, Complex
from splinecam.solid.fits import means

_COPIES = 4  # of a front in memory when it is divided, as measured
_GENERATIONS = 4.0  # of interpolations in one layer, each of which rounds once


@dataclass(frozen=True, eq=False)
class Target:
    """The function of n outputs whose zero set is wanted: ``outputs @ weight - level``."""

    weight: Tensor  # (n,)
    level: float

    def of(self, outputs: Tensor) -> Tensor:
        """Its values (N,) for outputs (N, ...)."""
        return as_rows(outputs) @ self.weight - self.level

    def error(self, bound: Bound) -> float:
        """The rounding error of its values."""
        size = as_rows(bound.error) + 2 * EPS * as_rows(bound.magnitude)
        return float((size @ self.weight.abs()).amax()) + 2 * EPS * abs(self.level)


class Thinning(Protocol):
    """What leaves out cells of a front while they are divided."""

    def bounded(self, front: Front, ends: bool) -> Bounded | None:
        """What bounds the target on cells of the front, None if nothing does.

        ends: whether the cells are divided by all functions of the layer that are left.
        """

    def count(self, made: CutArrays) -> None:
        """Take note of what was left out."""

    def without_empty(
        self, front: Front, parent: Tensor | None = None
    ) -> tuple[Front, Tensor | None]:
        """A front without cells that need not be divided; see ``Front.select``.

        parent: (C,) the cell that each was before a cut, after which only pieces may be left out.
        """


@dataclass(frozen=True, eq=False)
class Front:
    """A complex after the affine part of a stage, and values at its V vertices.

    live: (V, ...) by names; bounds: of these; uncut: places (N, 3) where rounding left open where a
    function vanishes.
    """

    program: Program
    complex: Complex
    index: int
    live: dict[str, Tensor]
    bounds: dict[str, Bound]
    target: Target | None = None
    uncut: list[Tensor] = field(default_factory=list)

    @classmethod
    def of(cls, program: Program, solid: Solid, target: Target | None = None) -> Front:
        """A body as the only cell, after the first affine part.

        The origin goes through that part by itself, so that far away its rounding moves the values
        of all vertices alike.
        """
        whole, name, shape = Complex.of(solid), program.input_name, (-1, *solid.input_shape)
        ways = FAR * (whole.uvw @ solid.basis)
        rows = torch.cat([ways, torch.zeros_like(ways[:1]), solid.origin[None]]).view(shape)
        made = program.advance(0, {name: rows})
        live = {key: (x[:-2] - x[-2]) / FAR + x[-1] for key, x in made.items()}
        size = FAR * (whole.uvw.abs().amax(0) @ solid.basis.abs()).view(shape)
        bounds = {}
        for key, (_, error) in program.bounds(0, {name: Bound(size, 2 * EPS * size)}).items():
            size = live[key].abs().amax(0, keepdim=True)
            bounds[key] = Bound(size, error / FAR + EPS * size)
        return cls(program, whole, 0, live, bounds, target)

    @property
    def layer(self) -> Nonlinearity | None:
        """The layer that divides the cells next."""
        return self.program.stages[self.index].layer

    @cached_property
    def f(self) -> Tensor:
        """The target's values at the vertices, (V,)."""
        assert self.target is not None
        parts = []
        for some in self._blocks():
            for i in range(self.index, len(self.program.stages)):
                some = _applied(self.program, i, some)
                if i + 1 < len(self.program.stages):
                    some = self.program.advance(i + 1, some)
            parts.append(self.target.of(some[self.program.output_name]))
        return torch.cat(parts) if parts else self.complex.uvw.new_zeros(0)

    @property
    def output_bound(self) -> Bound:
        """The bound of the outputs, and of their rounding, wherever units are in their ranges."""
        bounds = self.bounds
        for i in range(self.index, len(self.program.stages)):
            layer = self.program.stages[i].layer
            if layer is None:
                break
            z = bounds[layer.source]
            size = as_rows(z.magnitude + SAFETY * z.error)
            result = layer.bound(bounds[layer.argument], -size, size)
            bounds = self.program.bounds(i + 1, {**bounds, layer.result: result})
        return bounds[self.program.output_name]

    def slopes(self, solid: Solid, uvw: Tensor) -> Tensor:
        """The derivatives of all outputs at points (N, 3) of the body, (N, n, 3)."""
        x = solid.to_input(uvw)
        ways = solid.basis.view(3, 1, *solid.input_shape).expand(3, *x.shape)
        return self.program.derivatives(x, ways).permute(1, 2, 0)

    @property
    def memory(self) -> int:
        """The bytes that it took to make the front."""
        arrays = [*self.complex.arrays, self.complex.uvw, *self.live.values()]
        return _COPIES * sum(x.nbytes for x in arrays)

    def require_room(self, memory: int | None, what: str) -> None:
        """Raise a ``LimitError`` if it took more bytes than are allowed to make the front."""
        if memory is not None and self.memory > memory:
            raise LimitError(
                f"{what} needs more than {number_text(self.memory / 1e6)} MB, and memory= allows "
                f"{number_text(memory / 1e6)} MB. Allow more, or divide the box."
            )

    def _blocks(self) -> Iterator[dict[str, Tensor]]:
        width = max(*self.program.widths, 1)
        step = max(64, backend_of(self.complex.uvw.device).numbers // (2 * width))
        for start in range(0, self.complex.num_vertices, step):
            yield {name: x[start : start + step] for name, x in self.live.items()}

    def select(self, cells: Tensor) -> tuple[Front, Tensor | None]:
        """The cells where a mask (C,) is set, and the vertices that are left, None if all are."""
        part, kept = self.complex.select(cells)
        if kept is None:
            return self, None
        live = {name: take(x, kept) for name, x in self.live.items()}
        return replace(self, complex=part, live=live), kept

    def aged(self, rounds: int) -> Front:
        """The front with the rounding of values that were interpolated in some more rounds."""
        more = rounds * _GENERATIONS * EPS
        bounds = {name: Bound(m, error + more * m) for name, (m, error) in self.bounds.items()}
        return replace(self, bounds=bounds)

    def divided(
        self,
        z: Tensor,
        tolerance: Tensor,
        label: Tensor,
        layer: int,
        thinning: Thinning | None = None,
    ) -> Front:
        """The front with cells cut along the zero sets of functions (V, m)."""
        front = self
        while z.shape[1]:
            front = front.aged(1)
            ends = layer == front.index  # but for a GPU, where nothing is bounded meanwhile
            bounded = None if thinning is None else thinning.bounded(front, ends)
            cut = front.complex.cut(z, tolerance, label, layer, bounded)
            some = cut.made.functions
            if thinning is not None:
                thinning.count(cut.made)
            z, tolerance, label = z[:, some:], tolerance[some:], label[some:]
            z = cut.carry(z) if z.shape[1] else z
            live = {name: cut.carry(x) for name, x in front.live.items()}
            uncut = front.uncut
            if cut.made.uncut.shape[0]:
                corners = cut.complex.cell_corners()
                uncut = [*uncut, means(cut.complex.uvw, *corners, cut.made.uncut)]
            front = replace(front, complex=cut.complex, live=live, uncut=uncut)
            if thinning is not None and z.shape[1]:
                front, kept = thinning.without_empty(front, cut.made.parent)
                z = z if kept is None else take(z, kept)
        return front

    def carried(self, thinning: Thinning | None = None) -> Front:
        """Divide the cells by the layer, and go on to the next affine part."""
        layer, program = self.layer, self.program
        assert layer is not None
        z, bound = as_rows(self.live[layer.source]), self.bounds[layer.source]
        low, high = z.amin(0), z.amax(0)
        error = bound.error.reshape(-1)
        require_no_overflow({layer.name: error}, error)
        functions = _functions(layer, z, error, low, high)
        front = self
        if functions.m:
            values = _values(functions)
            tolerance = SAFETY * functions.error
            numbers = torch.arange(functions.m, device=z.device)
            front = replace(self, complex=_named(self.complex, values, tolerance, self.index))
            front = front.divided(values, tolerance, numbers, self.index, thinning)
            front = replace(front, complex=_labelled(front, layer, functions, tolerance))
        bounds, known = dict(front.bounds), front.complex.num_vertices
        bounds[layer.result] = layer.bound(bounds[layer.argument], low, high)
        following: dict[str, Tensor] = {}
        i, begin = self.index + 1, 0
        for some in front._blocks():
            made = program.advance(i, _applied(program, self.index, some))
            for name, x in made.items():
                if not begin:
                    following[name] = x if len(x) == known else x.new_empty(known, *x.shape[1:])
                if len(x) < known:
                    following[name][begin : begin + len(x)] = x
            begin += len(x)
        return replace(
            front,
            index=i,
            live=following,
            bounds=program.bounds(i, {name: bounds[name] for name in program.stages[i].live_in}),
        )


def _applied(program: Program, i: int, live: dict[str, Tensor]) -> dict[str, Tensor]:
    """Values with the layer of a stage applied to them."""
    layer = program.stages[i].layer
    return live if layer is None else {**live, layer.result: layer.apply(live[layer.argument])}


def _functions(
    layer: Nonlinearity, z: Tensor, error: Tensor, low: Tensor, high: Tensor
) -> Functions:
    """The functions whose zero sets are borders; of a maximum all differences of its units."""
    if isinstance(layer, MaxNonlinearity):
        size = layer.members.shape[1]
        i, j = torch.triu_indices(size, size, 1, device=z.device)
        first, second = layer.members[:, i].flatten(), layer.members[:, j].flatten()
        group = torch.arange(len(layer.members), device=z.device).repeat_interleave(len(i))
        return Functions.differences(z, first, second, group, error, low, high)
    found = layer.functions(z, error, low, high)
    assert found is not None
    return found


def _values(functions: Functions) -> Tensor:
    """The values of all functions at all vertices, (V, m)."""
    z, unit = functions.z, functions.unit
    every = functions.m == z.shape[1] and torch.equal(
        unit, torch.arange(functions.m, device=unit.device)
    )
    values = z if every else z.index_select(1, unit)
    if functions.other is not None:
        return values - z.index_select(1, functions.other)
    return values if not bool(functions.level.any()) else values - functions.level


def _named(whole: Complex, z: Tensor, tolerance: Tensor, layer: int) -> Complex:
    """The complex with the layer of auxiliary faces on which a function vanishes."""
    arrays = whole.arrays
    auxiliary = (arrays.face_layer == AUXILIARY).nonzero()[:, 0]
    face, unit = _borders(whole, z, tolerance, auxiliary)
    layers, units = arrays.face_layer.clone(), arrays.face_unit.clone()
    layers[face], units[face] = layer, unit
    rows, _ = take_rows(arrays.face_offsets, face)
    edges, edge_layer = arrays.corners[rows] >> 1, arrays.edge_layer.clone()
    edge_layer[edges[edge_layer[edges] == AUXILIARY]] = layer
    made = arrays._replace(face_layer=layers, face_unit=units, edge_layer=edge_layer)
    return replace(whole, arrays=made)


def _borders(whole: Complex, z: Tensor, tolerance: Tensor, faces: Tensor) -> tuple[Tensor, Tensor]:
    """The faces among some on which a function vanishes, and that function, pair by pair.

    Where it vanishes on the cells beside a face, too, the face is no border of it.
    """
    rows, sizes = take_rows(whole.arrays.face_offsets, faces)
    at, m = take(whole.corner_vertices(), rows), z.shape[1]
    some = (counts_of(at, z.shape[0]) > 0).nonzero()[:, 0]
    near, unit = (take(z, some).abs() <= tolerance).nonzero(as_tuple=True)
    if not near.shape[0]:
        return faces[:0], faces[:0]
    vertex = some[near]
    found = _vanishing(at, sizes, vertex, unit, z.shape)
    face, unit_of = faces[found // m], found % m
    offsets, corners = whole.cell_corners()
    beside = whole.beside()[face].amax(1)
    rows, sizes = take_rows(offsets, beside)
    values = z[corners[rows], unit_of[owners_of(sizes, rows.shape[0])]].abs()
    largest = values.new_zeros(len(face)).scatter_reduce_(
        0, owners_of(sizes, rows.shape[0]), values, "amax"
    )
    border = largest > tolerance[unit_of]
    return face[border], unit_of[border]


def _vanishing(
    at: Tensor, sizes: Tensor, vertex: Tensor, unit: Tensor, shape: torch.Size
) -> Tensor:
    """The faces at all of whose corners a unit vanishes: face * m + unit.

    at: the corners of faces of these sizes; vertex, unit: where units vanish; shape: (V, m).
    """
    offsets = offsets_of(counts_of(vertex, shape[0]))
    rows, counts = take_rows(offsets, at)
    owner = owners_of(sizes, at.shape[0])[owners_of(counts, rows.shape[0])]
    keys, times = torch.unique(owner * shape[1] + unit[rows], return_counts=True)
    found: Tensor = keys[times == sizes[keys // shape[1]]]
    return found


def _labelled(
    front: Front, layer: Nonlinearity, functions: Functions, tolerance: Tensor
) -> Complex:
    """The complex with units for new faces, of which some are no borders of a maximum."""
    whole, arrays = front.complex, front.complex.arrays
    new = (arrays.face_layer == front.index).nonzero()[:, 0]
    column = arrays.face_unit[new]
    units, layers = arrays.face_unit.clone(), arrays.face_layer.clone()
    units[new] = functions.label[column]
    if isinstance(layer, MaxNonlinearity) and layer.members.shape[1] > 2:
        functions = replace(functions, z=as_rows(front.live[layer.source]))
        beaten = new[_beaten(whole, layer, functions, new, column)]
        layers[beaten] = AUXILIARY
        # Two other units may be equal on the same face.
        face, column = _borders(whole, _values(functions), tolerance, beaten)
        ahead = ~_beaten(whole, layer, functions, face, column)
        layers[face[ahead]] = front.index
        units[face[ahead]] = functions.label[column[ahead]]
    return replace(whole, arrays=arrays._replace(face_layer=layers, face_unit=units))


def _beaten(
    whole: Complex, layer: MaxNonlinearity, functions: Functions, face: Tensor, column: Tensor
) -> Tensor:
    """Whether a third unit is ahead of two units that are equal on a face, for each face, (N,)."""
    z = functions.z
    rows, sizes = take_rows(whole.arrays.face_offsets, face)
    owner = owners_of(sizes, rows.shape[0])
    group = layer.members[functions.label[column]]  # (N, R)
    at = take(whole.corner_vertices(), rows)
    own = z[at, functions.unit[column][owner]]
    values = z[at[:, None], group[owner]]
    ahead = own - values.amin(1) if layer.smallest else values.amax(1) - own
    ahead = ahead.new_zeros(len(face)).scatter_reduce_(0, owner, ahead, "amax")
    return ahead > SAFETY * 2 * functions.error[column]
