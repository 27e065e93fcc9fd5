"""Vertices, areas, maps and boundaries as functions of the parameters, with gradients.

A vertex lies where two known functions vanish: units on their knots, ties, sides of the domain. It
is the corner of a region on which both are affine, and along each of the two sides there one of
them vanishes. One Newton step in the coordinates of these sides, which are held fixed, leaves the
vertex where it is, and has the gradient of its place, as the functions are computed from the
parameters. All else follows from the vertices. The combinatorics are those of the present
parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._pytree import tree_leaves, tree_map_only

from splinecam._util.arrays import as_rows, lengths, take
from splinecam._util.options import kind_of
from splinecam.errors import SplineCamError
from splinecam.geometry.convex import cross
from splinecam.geometry.subdivision import Mesh
from splinecam.network.capture import capture
from splinecam.network.capture.models import private_copy, unwrap
from splinecam.network.nonlinearities import (
    MaxNonlinearity,
    Nonlinearity,
    PiecewiseScalar,
    SortNonlinearity,
)
from splinecam.network.program import Program
from splinecam.questions.boundary import check_kind, levels_of, output_of, winners_of
from splinecam.questions.partition_data import PartitionData

Integrand = Literal["output", "modulus", "square"]
_PARALLEL = 1e-9  # the sine of the angle between lines up to which they have no one crossing


@dataclass(frozen=True, eq=False, repr=False)
class Differentiable:
    """The geometry of a partition with V vertices and F regions, as tensors with gradients.

    Gradients are with respect to the parameters of the model, and to the corners of the domain if
    given. What is first used is computed, from the vertices that it needs.

    partition: the partition, in whose order vertices and regions are.
    """

    partition: PartitionData
    _level: float
    _program: Program
    _corners: Tensor
    _names: dict[int, tuple[str, bool]]
    _fixed: dict[str, Any]  # what does not depend on the parameters, which all of ``at`` share

    def at(self, parameters: Mapping[str, Tensor], corners: Tensor | None = None) -> Differentiable:
        """The same as a function of other tensors with the same values, as ``torch.func`` needs.

        parameters: by the names of ``model.named_parameters()``; corners: (k, 2) of the domain.

        >>> import splinecam as sc
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.ReLU())
        >>> moving = sc.partition(model, sc.Domain.box(-1, 1), progress=False).differentiable()
        >>> given = dict(model.named_parameters())
        >>> gradient = torch.func.grad(lambda p: moving.at(p).class_areas[0])(given)
        >>> gradient["0.bias"].shape
        torch.Size([1])
        """
        program = _filled(self.partition._network, self._names, parameters)
        if corners is None:
            corners = self._corners
        changed = {"_program": program, "_corners": _corners_like(corners, self._corners)}
        return replace(self, **changed)  # type: ignore[arg-type]

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        """What does not depend on the parameters, without the marks that torch.func leaves."""
        if name not in self._fixed:
            with torch.no_grad(), temporarily_clear_interpreter_stack():
                self._fixed[name] = make()
        return self._fixed[name]

    def _follow(self, places: _Places) -> tuple[Tensor, Tensor, Tensor]:
        """Where vertices (N,) move, (N, 2), by which parts of their sides, and the outputs."""
        part, outputs = _newton(self.partition, self._program, places, self._corners)
        return places.at + (part[:, :, None] * places.sides).sum(1), part, outputs

    def _vertices_and_values(self, ids: Tensor | None) -> tuple[Tensor, Tensor]:
        """The vertices, and the outputs there; if some are given, only these (N,) move."""
        data = self.partition

        def functions(edge: Tensor) -> _Functions:
            return _functions(data, edge)

        def find() -> tuple[_Places, Tensor, Tensor]:
            return _places(data.mesh, data.vertices, ids, functions), data.vertices, data.values

        name = "all vertices" if ids is None else "some vertices"
        if ids is not None:
            self._fixed.pop(name, None)
        places, fixed, known = self._once(name, find)
        at, part, out = self._follow(places)
        here, after, before = (take(known, x) for x in (places.vertex, *places.beside.unbind(1)))
        values = out + part[:, :1] * (after - here) + part[:, 1:] * (before - here)
        if ids is None:
            return at, values
        return fixed.index_copy(0, ids, at), known.index_copy(0, ids, values)

    @cached_property
    def _everywhere(self) -> tuple[Tensor, Tensor]:
        return self._vertices_and_values(None)

    @property
    def vertices(self) -> Tensor:
        """Plane coordinates of the vertices, (V, 2)."""
        return self._everywhere[0]

    @property
    def values(self) -> Tensor:
        """The outputs at the moving vertices, (V, n_out)."""
        return self._everywhere[1]

    @property
    def degenerate(self) -> Tensor:
        """The vertices at which more than two lines meet; the gradient is that of two, (V,)."""
        found: Tensor = self._once("degenerate", lambda: _degenerate(self.partition))
        return found

    @cached_property
    def _triangles(self) -> tuple[Tensor, Tensor]:
        """Triangles that fill the cells, by their vertices (T, 3), and the cell of each."""
        mesh = self.partition.mesh
        vertex, owner, after = mesh.corner_vertices(), mesh.owners(), mesh.next_corner()
        first = mesh.offsets[:-1][owner]
        place = torch.arange(len(vertex), device=vertex.device)
        inner = ((place != first) & (after != first)).nonzero()[:, 0]
        return torch.stack([vertex[x] for x in (first[inner], inner, after[inner])], 1), owner[
            inner
        ]

    @cached_property
    def _sizes(self) -> Tensor:
        """The areas of the triangles, (T,)."""
        a, b, c = _rows(self.vertices, self._triangles[0]).unbind(1)
        return cross(b - a, c - a) / 2

    @cached_property
    def areas(self) -> Tensor:
        """The area of each region, (F,)."""
        mesh, at = self.partition.mesh, self.vertices
        vertex, owner = mesh.corner_vertices(), mesh.owners()
        first = take(vertex, mesh.offsets[:-1])
        p = take(at, vertex) - take(take(at.detach(), first), owner)  # for precision
        sums = cross(p, take(p, mesh.next_corner())) / 2
        return sums.new_zeros(mesh.num_faces).index_add(0, owner, sums)

    @cached_property
    def _outline(self) -> tuple[Tensor, Tensor]:
        """The segments where classes meet or end, (S, 2, 2), and those left and right, (S, 2)."""
        places, ends, sides = self._once("outline", lambda: _outline(self.partition, self._level))
        return _rows(self._follow(places)[0], ends), sides

    @cached_property
    def class_areas(self) -> Tensor:
        """The area of each class, (K,); of one output, class 1 is where it is above the level."""
        segments, sides = self._outline
        p, q = (segments - self.partition.domain.center.to(segments)).unbind(1)
        sums = cross(p, q) / 2
        areas = sums.new_zeros(max(2, self.partition._n_out) + 1)  # the last one is outside
        left, right = torch.where(sides < 0, len(areas) - 1, sides).unbind(1)
        return areas.index_add(0, left, sums).index_add(0, right, -sums)[:-1]

    @cached_property
    def _maps(self) -> tuple[Tensor, Tensor]:
        """The slopes (F, n_out, 2) and offsets (F, n_out) of the regions."""
        domain, mesh = self.partition.domain, self.partition.mesh
        uv = self.partition._frame.to_plane(mesh.means())
        x = domain.embed(uv)
        axes = domain.basis.to(uv).view(2, 1, *domain.input_shape).expand(2, *x.shape)
        weight = self._program.derivatives(x, axes).permute(1, 2, 0)
        return weight, as_rows(self._program(x)) - (weight @ uv[:, :, None])[:, :, 0]

    @property
    def weight(self) -> Tensor:
        """The slope of each region's map in plane coordinates, (F, n_out, 2)."""
        return self._maps[0]

    @property
    def bias(self) -> Tensor:
        """The offset of each region's map: output = weight @ uv + bias, (F, n_out)."""
        return self._maps[1]

    def integrals(self, of: Integrand = "output") -> Tensor:
        """The exact integral over each region of outputs, of their moduli or squares, (F, n_out).

        of: ``"output"``, ``"modulus"`` or ``"square"``.
        """
        f = _rows(self.values, self._triangles[0])
        if of == "output":
            mean = f.mean(1)
        elif of == "square":
            mean = (f.square().sum(1) + f.sum(1).square()) / 12
        elif of == "modulus":
            mean = _mean_modulus(f)
        else:
            raise ValueError(f"of is {of!r}; choose 'output', 'modulus' or 'square'")
        sums = self._sizes[:, None] * mean
        total = sums.new_zeros((len(self.partition), sums.shape[1]))
        return total.index_add(0, self._triangles[1], sums)

    @cached_property
    def boundary(self) -> Tensor:
        """The segments of the decision boundary, (S, 2, 2): where two classes meet."""
        segments, sides = self._outline
        return take(segments, (sides >= 0).all(1).nonzero()[:, 0])

    def level_set(self, level: float = 0.0, output: int | None = None) -> Tensor:
        """The segments on which an output has a level, (S, 2, 2).

        level: the level. output: the index of the output, needed if there are several.
        """
        index = output_of(self.partition, output)
        if not isinstance(level, Tensor):
            levels_of(level)
        mesh, known = self.partition.mesh, self.partition.values[:, index].detach()
        above = known > level
        p, q = mesh.edges.unbind(1)
        edge = (take(above, p) != take(above, q)).nonzero()[:, 0]
        number = torch.full_like(p, -1)
        number[edge] = torch.arange(len(edge), device=p.device)
        ends = take(mesh.edges, edge)
        if not len(edge):
            return self.partition.vertices.new_zeros((0, 2, 2))
        if "_everywhere" in vars(self):
            uv, values = self._everywhere
        else:
            uv, values = self._vertices_and_values(torch.unique(ends))
        y = _rows(values[:, index], ends) - level
        t = y[:, :1] / (y[:, :1] - y[:, 1:])
        a, b = _rows(uv, ends).unbind(1)
        at = take(number, mesh.corners >> 1)  # a convex cell is crossed on two sides, or on none
        return _rows(torch.lerp(a, b, t), at[at >= 0].view(-1, 2))

    def distances(self, points: Tensor) -> Tensor:
        """The distance of each of some points from the decision boundary, (N,).

        points: plane coordinates (N, 2).
        """
        if points.shape[1:] != (2,):
            raise ValueError(f"points has the shape {tuple(points.shape)}; it must be (N, 2)")
        if not len(self.boundary):
            raise SplineCamError(
                "The partition has no decision boundary, so that no point has a distance from it. "
                "Ask for distances only if len(moving.boundary) is not 0."
            )
        a, b = self.boundary.unbind(1)
        way = b - a
        off = points.to(a)[:, None] - a
        t = ((off * way).sum(2) / way.square().sum(1).clamp_min(1e-300)).clamp(0, 1)
        nearest = (off - t[..., None] * way).square().sum(2).min(1).values
        return nearest.sqrt()

    def __repr__(self) -> str:
        bad = int(self.degenerate.sum())
        words = f"{len(self.partition):,} regions, {len(self.degenerate):,} vertices"
        return f"Differentiable({words}{f', {bad:,} degenerate' * (bad > 0)})"


def differentiable(
    part: PartitionData, *, corners: Tensor | None = None, level: float = 0.0
) -> Differentiable:
    """The vertices, areas, maps, boundaries and integrals, with gradients for training.

    All tensors have the values of the partition, and gradients with respect to the parameters and
    the domain's corners. The combinatorics are held fixed: the number of regions has no gradient,
    and where a vertex meets a line, the gradient is that of the present regions. After a step,
    partition anew.

    corners: (k, 2) the corners of the domain, to differentiate by them. level: of a single output,
    at which classes change.

    >>> import splinecam as sc
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    >>> area = part.differentiable().class_areas[1]
    >>> area.backward()
    >>> model[0].weight.grad.shape
    torch.Size([8, 2])
    """
    part._require("gradients")
    if part.smoothing is not None:
        raise SplineCamError(
            "Smooth functions of the model were replaced, and the places of their knots have no "
            "gradient. Give differentiable a partition that was made without smooth=."
        )
    level = check_kind(part, "argmax", level)[1]
    fixed = part.domain.corners
    if corners is not None and not torch.equal(
        _corners_like(corners, fixed).detach().to(fixed.device), fixed.to(corners.dtype)
    ):
        raise SplineCamError(
            "The corners are others than part.domain.corners, of which the partition was made. "
            "Partition the new domain, and give its corners."
        )
    names = _constants(part)
    return Differentiable(
        part,
        level,
        _filled(part._network, names, dict(unwrap(part.model).named_parameters()), same=True),
        fixed.to(part.vertices) if corners is None else corners,
        names,
        {},
    )


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x by an index of any shape; its derivative is faster than that of ``x[index]``."""
    return x.index_select(0, index.reshape(-1)).view(*index.shape, *x.shape[1:])


def _corners_like(corners: Tensor, fixed: Tensor) -> Tensor:
    """The corners that a caller gives, which must be as many as those of the domain."""
    if not isinstance(corners, Tensor) or corners.shape != fixed.shape:
        what = tuple(corners.shape) if isinstance(corners, Tensor) else kind_of(corners)
        raise SplineCamError(
            f"The corners must be like part.domain.corners, of the shape {tuple(fixed.shape)}, not "
            f"{what}."
        )
    return corners


def _mean_modulus(f: Tensor) -> Tensor:
    """The mean of |f| over triangles, from its values (T, 3, n) at their corners."""
    low, middle, high = f.sort(1).values.unbind(1)
    flipped = middle > 0  # turn signs so that one corner at most is positive
    a = torch.where(flipped, -low, high)
    b, c = torch.where(flipped, -high, low), -torch.where(flipped, middle, -middle)
    spread = (a - b) * (a - c)
    positive = torch.where(a > 0, a**3 / torch.where(spread > 0, spread, 1.0), 0.0) / 3
    return 2 * positive - (a + b + c) / 3


# -- vertices, and the functions that vanish there -------------------------------------------------


class _Functions(NamedTuple):
    """Functions (N,): ``z[first] - z[second] - level`` of a layer; -1 as second for none.

    The layer -1 is the border, where first is the side; the layer after the last is the output.
    """

    layer: Tensor
    first: Tensor
    second: Tensor
    level: Tensor

    def at(self, index: Tensor) -> _Functions:
        """The functions of some numbers."""
        return _Functions(*(take(x, index) for x in self))


class _Places(NamedTuple):
    """N vertices, each as a corner of a cell, and the functions that vanish along its two sides.

    vertex: (N,); beside: (N, 2) the next corner of the cell, and the previous one; at: (N, 2) the
    vertex; sides: (N, 2, 2) the ways to the two; functions: (2 N,) along the previous side, and
    along the next.
    """

    vertex: Tensor
    beside: Tensor
    at: Tensor
    sides: Tensor
    functions: _Functions


def _places(
    mesh: Mesh, uv: Tensor, ids: Tensor | None, functions: Callable[[Tensor], _Functions]
) -> _Places:
    """Vertices (N,) of a mesh, or all, as corners of the cells that are largest there.

    uv: (V, 2) plane coordinates; functions: those of some edges.
    """
    vertex = mesh.corner_vertices()
    after, before = mesh.next_corner(), mesh.previous_corner()
    corner = torch.arange(len(vertex), device=vertex.device)
    if ids is not None:
        wanted = torch.zeros(mesh.num_vertices, dtype=torch.bool, device=vertex.device)
        corner = take(wanted.index_fill(0, ids, True), vertex).nonzero()[:, 0]
    own, p, q = (take(vertex, x) for x in (corner, take(after, corner), take(before, corner)))
    at = take(uv, own)
    size = cross(take(uv, p) - at, take(uv, q) - at)
    top = uv.new_zeros(mesh.num_vertices).scatter_reduce_(0, own, size, "amax")
    best = (size >= take(top, own)).nonzero()[:, 0]
    chosen = corner.new_zeros(mesh.num_vertices).scatter_reduce_(0, take(own, best), best, "amax")
    chosen = chosen if ids is None else take(chosen, ids)
    own, p, q, corner = (take(x, chosen) for x in (own, p, q, corner))
    at = take(uv, own)
    edges = torch.stack([take(mesh.corners, take(before, corner)), take(mesh.corners, corner)], 1)
    sides = torch.stack([take(uv, p) - at, take(uv, q) - at], 1)
    flat = (cross(*sides.unbind(1)) <= _PARALLEL * lengths(sides).prod(1)).nonzero()[:, 0]
    if len(flat):
        raise SplineCamError(
            f"The lines that meet at {tuple(at[flat[0]].tolist())} are parallel up to rounding, so "
            "that the place of their crossing has no gradient. Choose another domain, or change "
            "the parameters a little."
        )
    return _Places(own, torch.stack([p, q], 1), at, sides, functions(edges.view(-1) >> 1))


def _functions(part: PartitionData, edge: Tensor) -> _Functions:
    """The function that vanishes on each of some edges (N,) of the partition."""
    mesh, network = part.mesh, part._network
    layer, first = take(mesh.edge_layer, edge).long(), take(mesh.edge_unit, edge).long()
    found = _Functions(layer, first, torch.full_like(first, -1), mesh.uv.new_zeros(len(first)))
    border = (layer < 0).nonzero()[:, 0]
    first[border] = _sides(part, _middles(part, edge[border]))
    asked = [k for k, own in enumerate(network.layers) if not _is_plain(own)]
    if asked:
        others = torch.isin(layer, layer.new_tensor(asked)).nonzero()[:, 0]
        x = part.domain.embed(_middles(part, edge[others]))
        for k, (own, z) in enumerate(network.walk(x)):
            rows = (layer[others] == k).nonzero()[:, 0]
            if k in asked and len(rows):
                place = others[rows]
                _describe(own, z.flatten(1)[rows], first[place], place, found)
            if k == asked[-1]:
                break
    return found


def _is_plain(layer: Nonlinearity) -> bool:
    """Whether all borders of a layer are zeros of its units."""
    described = PiecewiseScalar, MaxNonlinearity, SortNonlinearity
    if isinstance(layer, PiecewiseScalar):
        return layer.at_zero
    return not isinstance(layer, described)


def _middles(part: PartitionData, edge: Tensor) -> Tensor:
    """The middles of edges (N,) in plane coordinates, (N, 2)."""
    return _rows(part.vertices, take(part.mesh.edges, edge)).mean(1)


def _outline(part: PartitionData, level: float) -> tuple[_Places, Tensor, Tensor]:
    """The vertices N where classes meet or end, segments (S, 2) between, and classes beside."""
    found = winners_of(part, "argmax", level, whole=True)
    cells, source, scores = found.overlay.mesh, found.overlay.source, found.overlay.z
    beside = cells.halfedge_face()
    label = torch.where(beside < 0, -1, take(found.winner, beside.clamp(min=0))).view(-1, 2)
    edge = (label[:, 0] != label[:, 1]).nonzero()[:, 0]
    ids, ends = torch.unique(take(cells.edges, edge), return_inverse=True)
    single = part._n_out == 1

    def functions(edge: Tensor) -> _Functions:
        old = take(source, edge)
        made = _functions(part, old.clamp(min=0))
        new = (old < 0).nonzero()[:, 0]
        tied = _rows(scores, take(cells.edges, edge[new])).mean(1).topk(2, 1).indices
        made.layer[new] = len(part._network.layers)
        made.first[new], made.second[new] = (0, -1) if single else tied.sort(1).values.unbind(1)
        made.level[new] = level if single else 0.0
        return made

    uv = part._frame.to_plane(cells.uv)
    return _places(cells, uv, ids, functions), ends, take(label, edge)


def _degenerate(part: PartitionData) -> Tensor:
    """The vertices at which more than two lines meet, (V,)."""
    mesh = part.mesh
    layer, unit = mesh.edge_layer.long(), mesh.edge_unit.long().clone()
    border = (layer < 0).nonzero()[:, 0]
    unit[border] = _sides(part, _middles(part, border))
    line = torch.unique((layer + 1) * (int(unit.max()) + 1) + unit, return_inverse=True)[1]
    count = int(line.max()) + 1
    ends = mesh.edges * count + line[:, None]
    return torch.bincount(torch.unique(ends) // count, minlength=mesh.num_vertices) > 2


def _sides(part: PartitionData, uv: Tensor) -> Tensor:
    """The side of the domain on which each point lies, (N,)."""
    corners = part.domain.corners.to(uv)
    way = corners.roll(-1, 0) - corners
    off: Tensor = cross(way, uv[:, None] - corners).abs() / way.norm(dim=1)
    return off.argmin(1)


def _describe(
    layer: Nonlinearity, z: Tensor, unit: Tensor, edge: Tensor, found: _Functions
) -> None:
    """Tell on which knot units (N,) are, or which units tie, at values (N, n)."""
    rows = torch.arange(len(z), device=z.device)
    if isinstance(layer, PiecewiseScalar):
        value = z[rows, unit]
        levels = layer.levels_between(z.amin(0), z.amax(0))[:, unit]
        nearest = (levels - value).abs().argmin(0)
        found.level[edge] = levels[nearest, rows]
        return
    if isinstance(layer, MaxNonlinearity):
        group = layer.members[unit]
        values = z.gather(1, group) * (-1 if layer.smallest else 1)
        best = values.argmax(1)
        same = group == group.gather(1, best[:, None])  # a unit may be in a group twice
        rival = values.masked_fill(same, -torch.inf).argmax(1)
        pair = torch.stack([group[rows, best], group[rows, rival]], 1).sort(1).values
        found.first[edge], found.second[edge] = pair.unbind(1)
    elif isinstance(layer, SortNonlinearity):
        group = layer.members[(layer.members[None] == unit[:, None, None]).any(2).int().argmax(1)]
        gap = (z.gather(1, group) - z[rows, unit][:, None]).abs()
        gap = gap.masked_fill(group == unit[:, None], torch.inf)
        found.second[edge] = group[rows, gap.argmin(1)]


def _newton(
    part: PartitionData, program: Program, places: _Places, corners: Tensor
) -> tuple[Tensor, Tensor]:
    """One step at N vertices, as parts of the two sides, (N, 2), and the outputs, (N, n_out).

    Units are on the pieces of the cell, which a point in it tells. This matters for those whose
    knots are at the vertex, and for their part in the units of later layers.
    """
    domain, base, own = part.domain, part._network, places.functions
    inner = places.at + places.sides.sum(1) / 3
    border = (own.layer < 0).nonzero()[:, 0]
    way = corners.roll(-1, 0) - corners
    side, row = take(own.first, border), border // 2
    way, corner = (take(x.to(inner), side) for x in (way, corners))
    order, values = [border], [cross(way, take(places.at, row) - corner)]
    rises = [cross(way.detach(), take(inner - places.at, row))]
    live = program._entry(domain.embed(places.at))
    fixed = base._entry(domain.embed(inner))
    for k, stage in enumerate(program.stages):
        live = program.advance(k, live)
        with torch.no_grad():
            fixed = base.advance(k, fixed)
        name = program.output_name if stage.layer is None else stage.layer.source
        mine = (own.layer == k).nonzero()[:, 0]
        order.append(mine)
        functions, row = own.at(mine), mine // 2
        values.append(_values(live[name], functions, row, stage.layer))
        inside = _values(fixed[name], functions, row, stage.layer)
        rises.append(inside - values[-1].detach())
        layer = base.stages[k].layer
        if stage.layer is not None and layer is not None:
            z, at = live[layer.argument], fixed[layer.argument]
            with torch.no_grad():
                fixed = base._apply_layer(k, fixed)
            live = live | {layer.result: _applied(stage.layer, layer, z, at)}
    step = -torch.cat(values) / (3 * torch.cat(rises))
    place = torch.cat(order)
    rank = torch.empty_like(place).index_copy_(0, place, torch.arange(len(place)).to(place))
    return take(step, rank).view(-1, 2), as_rows(live[program.output_name])


def _values(z: Tensor, functions: _Functions, row: Tensor, layer: Nonlinearity | None) -> Tensor:
    """The values of functions of a layer (N,) from its units (V, ...) at vertices (N,)."""
    size, flat = z.shape[1:].numel(), z.reshape(-1)
    value = take(flat, row * size + functions.first)
    if layer is not None and _is_plain(layer):
        return value
    paired = (functions.second >= 0).nonzero()[:, 0]
    other = take(flat, take(row, paired) * size + take(functions.second, paired))
    return value.index_add(0, paired, -other) - functions.level


def _applied(layer: Nonlinearity, base: Nonlinearity, z: Tensor, at: Tensor) -> Tensor:
    """A layer at z (N, ...) with its derivative at other points (N, ...), by z and parameters."""
    if layer.rectifies:
        return z * (at > 0)
    moved = base.apply(z + (at - z).detach())
    return layer.apply(z.detach()) + (moved - moved.detach())


# -- the program as a function of the parameters ---------------------------------------------------


def _constants(part: PartitionData) -> dict[int, tuple[str, bool]]:
    """The parameter that each constant of the program is, by its id, and whether it is turned.

    A copy of the model with other numbers, all of them different, tells which constant is which.
    """
    for each in part._network.written:
        raise SplineCamError(
            f"Gradients cannot be followed to the weights: {each}. Partition "
            "splinecam.nn.AsWritten(model)."
        )
    generator = torch.Generator().manual_seed(0)

    def shaken(x: Tensor) -> Tensor:
        if not isinstance(x, torch.nn.Parameter) or not x.is_floating_point():
            return x.detach().clone()
        noise = torch.rand(x.shape, generator=generator, dtype=torch.float64).to(x.device)
        return torch.nn.Parameter(x.detach() * (1 + noise / 64).to(x) + (noise / 1024).to(x))

    twin = private_copy(unwrap(part.model), shaken)
    named = {name: p.detach().double() for name, p in twin.named_parameters()}
    network, found = part._network, dict[int, tuple[str, bool]]()
    other = capture(twin, network.input_shape, device=network.device, output=part._chosen_output)
    for a, b in zip(_calls(network), _calls(other), strict=True):
        for mine, its in zip(tree_leaves(a[1:]), tree_leaves(b[1:]), strict=True):
            if not isinstance(mine, Tensor) or torch.equal(mine, its):
                continue
            found[id(mine)] = _parameter(named, its, a[0])
    return found


def _calls(program: Program) -> Iterator[tuple[str, Any, Any]]:
    """The names and arguments of the steps and of the layers."""
    for stage in program.stages:
        for step in stage.steps:
            yield step.name, step.args, step.kwargs
        if stage.layer is not None:
            yield stage.layer.name, stage.layer.operation.args, stage.layer.operation.kwargs


def _parameter(named: Mapping[str, Tensor], constant: Tensor, where: str) -> tuple[str, bool]:
    """The name of the parameter that a constant is, and whether it is turned."""
    for name, p in named.items():
        for turned in (False, True)[: 1 + (p.dim() > 1)] if p.numel() == constant.numel() else ():
            if torch.equal((p.mT if turned else p).reshape(constant.shape).to(constant), constant):
                return name, turned
    raise SplineCamError(
        f"The weights of {where!r} are computed from parameters before the network runs, so that "
        "gradients cannot be followed to these. Keep such a computation out of the model, for "
        "instance with torch.nn.utils.parametrize.remove_parametrizations."
    )


def _filled(
    program: Program,
    names: dict[int, tuple[str, bool]],
    parameters: Mapping[str, Tensor],
    *,
    same: bool = False,
) -> Program:
    """The program with parameters in place of constants; same: require that they are equal."""
    missing = sorted({name for name, _ in names.values()}.difference(parameters))
    if missing:
        raise SplineCamError(
            f"The parameters lack {', '.join(map(repr, missing))}. Give all of "
            "model.named_parameters()."
        )

    def fill(constant: Tensor) -> Tensor:
        if id(constant) not in names:
            return constant
        name, turned = names[id(constant)]
        own = parameters[name].to(constant)
        if own.numel() != constant.numel():
            raise SplineCamError(
                f"The parameter {name!r} has the shape {tuple(own.shape)}, but the model's has "
                f"{constant.numel()} numbers. Give tensors like model.named_parameters()."
            )
        own = (own.mT if turned else own).reshape(constant.shape)
        if same and not torch.equal(own, constant):
            raise SplineCamError(
                f"The parameter {name!r} has changed since the partition was made, whose lines "
                "are elsewhere now. Partition the model again after each step."
            )
        return own

    stages = []
    for stage in program.stages:
        filled = [tree_map_only(Tensor, fill, (step.args, step.kwargs)) for step in stage.steps]
        pairs = zip(stage.steps, filled, strict=True)
        steps = tuple(replace(step, args=args, kwargs=kwargs) for step, (args, kwargs) in pairs)
        layer = stage.layer
        if layer is not None:
            layer = replace(layer, operation=layer.operation.moved(fill))
        stages.append(replace(stage, steps=steps, layer=layer))
    return replace(program, stages=tuple(stages))
