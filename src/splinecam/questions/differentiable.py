"""Vertices, areas, maps and boundaries as functions of the parameters, with gradients.

A vertex lies where two known functions vanish: units on their knots, ties, sides of the domain. One
Newton step ``v - J^-1 z(v)``, with J and v held fixed and z computed from the parameters, leaves
the vertex where it is, and has the gradient of its place. Outputs at moving vertices, areas and
integrals are sums over triangles of them. The combinatorics are those of the present parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from splinecam._util.arrays import as_rows, take
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
from splinecam.questions.boundary import winners_of
from splinecam.questions.partition_data import PartitionData

Of = Literal["output", "modulus", "square"]
_PARALLEL = 1e-9  # the sine of the angle between lines up to which they have no one crossing


@dataclass(frozen=True, eq=False, repr=False)
class Differentiable:
    """The geometry of a partition, as tensors with gradients.

    Regions are cut where the largest output changes, into C convex cells with V vertices. Gradients
    are with respect to the parameters of the model, and to the corners of the domain if given.

    region, label: (C,) the region and the class of each cell; degenerate: (V,) vertices in which
    more than two lines meet, whose gradient is that of two of them.
    """

    partition: PartitionData
    region: Tensor
    label: Tensor
    degenerate: Tensor
    _mesh: Mesh
    _program: Program
    _at: Tensor
    _corners: Tensor
    _functions: tuple[_Functions, _Functions]
    _inverse: Tensor
    _names: dict[int, tuple[str, bool]]

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
        changed = {"_program": program, "_corners": self._corners if corners is None else corners}
        return replace(self, **changed)  # type: ignore[arg-type]

    @cached_property
    def vertices(self) -> Tensor:
        """Plane coordinates of the vertices, (V, 2)."""
        one, other = self._functions
        z = _evaluate(self._program, self.partition, self._at, (one, other), self._corners)
        return self._at - (self._inverse @ z[:, :, None])[:, :, 0]

    @cached_property
    def values(self) -> Tensor:
        """The outputs at the moving vertices, (V, n_out)."""
        domain = self.partition.domain
        return as_rows(self._program(domain.embed(self.vertices)))

    @cached_property
    def _triangles(self) -> tuple[Tensor, Tensor]:
        """Triangles that fill the cells, by their vertices (T, 3), and the cell of each."""
        mesh = self._mesh
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

    def _over(self, index: Tensor, count: int, sums: Tensor) -> Tensor:
        """Sums over the triangles of each region or class."""
        total = sums.new_zeros((count, *sums.shape[1:]))
        return total.index_add(0, index[self._triangles[1]], sums)

    @cached_property
    def areas(self) -> Tensor:
        """The area of each region, (F,)."""
        return self._over(self.region, len(self.partition), self._sizes)

    @cached_property
    def class_areas(self) -> Tensor:
        """The area of each class, (K,); of one output, class 1 is where it is above the level."""
        return self._over(self.label, max(2, self.partition._n_out), self._sizes)

    @cached_property
    def _maps(self) -> tuple[Tensor, Tensor]:
        """The slopes (F, n_out, 2) and offsets (F, n_out) of the regions."""
        triangles, cell = self._triangles
        order = self._sizes.detach().argsort()
        rank = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order)).to(order))
        largest = torch.zeros(len(self.partition), dtype=torch.int64, device=order.device)
        largest.scatter_reduce_(0, self.region[cell], rank, "amax")
        corner = triangles[order[largest]]  # of the largest triangle, which is the most precise
        uv, f = _rows(self.vertices, corner), _rows(self.values, corner)
        weight = torch.linalg.solve(uv[:, 1:] - uv[:, :1], f[:, 1:] - f[:, :1]).mT
        return weight, f[:, 0] - (weight @ uv[:, 0, :, None])[:, :, 0]

    @property
    def weight(self) -> Tensor:
        """The slope of each region's map in plane coordinates, (F, n_out, 2)."""
        return self._maps[0]

    @property
    def bias(self) -> Tensor:
        """The offset of each region's map: output = weight @ uv + bias, (F, n_out)."""
        return self._maps[1]

    def integrals(self, of: Of = "output") -> Tensor:
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
        return self._over(self.region, len(self.partition), self._sizes[:, None] * mean)

    @cached_property
    def boundary(self) -> Tensor:
        """The segments of the decision boundary, (S, 2, 2): where cells of two classes meet."""
        beside = self._mesh.halfedge_face().view(-1, 2)
        a, b = self.label[beside.clamp(min=0)].unbind(1)
        return _rows(self.vertices, self._mesh.edges[(a != b) & (beside >= 0).all(1)])

    def level_set(self, level: float = 0.0, output: int = 0) -> Tensor:
        """The segments on which an output has a level, (S, 2, 2).

        level: the level; output: which output.
        """
        y, mesh = self.values[:, output] - level, self._mesh
        p, q = mesh.edges.unbind(1)
        crossed = (y[p] > 0) != (y[q] > 0)
        t = y[p[crossed]] / (y[p[crossed]] - y[q[crossed]])
        ends = _rows(self.vertices, mesh.edges[crossed])
        points = torch.lerp(ends[:, 0], ends[:, 1], t[:, None])
        number = torch.full_like(p, -1)
        number[crossed] = torch.arange(len(t), device=p.device)
        at = number[mesh.corners >> 1]  # a convex cell is crossed on two sides, or on none
        return _rows(points, at[at >= 0].view(-1, 2))

    def distances(self, points: Tensor) -> Tensor:
        """The distance of each of some points from the decision boundary, (N,).

        points: plane coordinates (N, 2).
        """
        a, b = self.boundary.unbind(1)
        way = b - a
        off = points.to(a)[:, None] - a
        t = ((off * way).sum(2) / way.square().sum(1).clamp_min(1e-300)).clamp(0, 1)
        nearest = (off - t[..., None] * way).square().sum(2).min(1).values
        return nearest.sqrt()

    def __repr__(self) -> str:
        bad = int(self.degenerate.sum())
        words = f"{len(self.partition):,} regions, {len(self._at):,} vertices"
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
    names = _constants(part)
    program = _filled(part._network, names, dict(unwrap(part.model).named_parameters()))
    found = winners_of(part, "argmax", float(level), whole=True)
    cells, source = found.overlay.mesh, found.overlay.source
    at = part._frame.to_plane(cells.uv)
    with torch.no_grad():
        edges = _edge_functions(part, cells, source, found.overlay.z, level)
        one, other, degenerate = _chosen(cells, edges)
    fixed = part.domain.corners.to(at)
    moving = at.clone().requires_grad_()
    with torch.enable_grad():
        z = _evaluate(part._network, part, moving, (one, other), fixed)
        rows = [torch.autograd.grad(z[:, k].sum(), moving, retain_graph=k == 0)[0] for k in (0, 1)]
    return Differentiable(
        part,
        found.overlay.face,
        found.winner,
        degenerate,
        cells,
        program,
        at,
        fixed if corners is None else corners,
        (one, other),
        _inverse(torch.stack(rows, 1)),
        names,
    )


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x by an index of any shape; its derivative is faster than that of ``x[index]``."""
    return x.index_select(0, index.reshape(-1)).view(*index.shape, *x.shape[1:])


def _inverse(jacobian: Tensor) -> Tensor:
    """The inverses of (V, 2, 2), or least steps where rows are parallel or zero."""
    size = jacobian.norm(dim=2)
    sine = cross(*jacobian.unbind(1)).abs() / (size[:, 0] * size[:, 1]).clamp_min(1e-300)
    odd = (sine <= _PARALLEL).nonzero()[:, 0]
    safe = jacobian.clone()
    safe[odd] = torch.eye(2).to(safe)
    inverse: Tensor = torch.linalg.inv(safe)
    inverse[odd] = torch.linalg.pinv(jacobian[odd], rtol=_PARALLEL)
    return inverse


def _mean_modulus(f: Tensor) -> Tensor:
    """The mean of |f| over triangles, from its values (T, 3, n) at their corners."""
    low, middle, high = f.sort(1).values.unbind(1)
    flipped = middle > 0  # turn signs so that one corner at most is positive
    a = torch.where(flipped, -low, high)
    b, c = torch.where(flipped, -high, low), -torch.where(flipped, middle, -middle)
    spread = (a - b) * (a - c)
    positive = torch.where(a > 0, a**3 / torch.where(spread > 0, spread, 1.0), 0.0) / 3
    return 2 * positive - (a + b + c) / 3


# -- the functions that vanish at a vertex ---------------------------------------------------------


@dataclass(frozen=True)
class _Functions:
    """Functions (N,): ``z[first] - z[second] - level`` of a layer; -1 as second for none.

    The layer -1 is the border, where first is the side; the layer after the last is the output.
    """

    layer: Tensor
    first: Tensor
    second: Tensor
    level: Tensor

    def at(self, index: Tensor) -> _Functions:
        """The functions of some numbers."""
        return _Functions(*(take(x, index) for x in vars(self).values()))

    def ids(self) -> Tensor:
        """Equal numbers for equal functions."""
        found: Tensor = torch.unique(self.level, return_inverse=True)[1]
        for part in (self.layer, self.first, self.second):
            found = found * int(part.max() + 2) + part + 1
        return found


def _edge_functions(
    part: PartitionData, cells: Mesh, source: Tensor, scores: Tensor, level: float
) -> _Functions:
    """The function that vanishes on each edge of the cells."""
    old, network = part.mesh, part._network
    layer, first = old.edge_layer.clone(), old.edge_unit.clone()
    found = _Functions(
        layer,
        first,
        torch.full_like(first, -1),
        torch.zeros_like(old.uv[:1, 0]).expand(len(first)).clone(),
    )
    middle = old.uv[old.edges].mean(1)
    border = (layer < 0).nonzero()[:, 0]
    first[border] = _sides(part, part._frame.to_plane(middle[border]))
    inner = (layer >= 0).nonzero()[:, 0]
    one_knot = [isinstance(x, PiecewiseScalar) and x.at_zero for x in network.layers]
    if not all(one_knot):
        asked = ~torch.tensor([*one_knot, True], device=layer.device)
        inner = inner[asked[layer[inner]]]
        walk = network.walk(part.domain.embed(part._frame.to_plane(middle[inner])))
        for k, (each, z) in enumerate(walk):
            own = (layer[inner] == k).nonzero()[:, 0]
            if not one_knot[k] and len(own):
                edge = inner[own]
                _describe(each, z.flatten(1)[own], first[edge], edge, found)
    new = (source < 0).nonzero()[:, 0]
    top = scores[cells.edges[new]].mean(1).topk(2, 1).indices.sort(1).values
    kept = found.at(source.clamp(min=0))
    kept.layer[new] = len(network.layers)
    single = part._n_out == 1
    kept.first[new], kept.second[new] = (top[:, 0] * (not single)), (-1 if single else top[:, 1])
    kept.level[new] = level if single else 0.0
    return kept


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


def _chosen(cells: Mesh, edges: _Functions) -> tuple[_Functions, _Functions, Tensor]:
    """Two functions that vanish at each vertex, as unlike as possible, and if there are more."""
    ids, count = edges.ids(), cells.num_vertices
    vertex = cells.edges.view(-1)
    edge = torch.arange(len(vertex), device=vertex.device) // 2
    way = cells.uv[cells.edges[:, 1]] - cells.uv[cells.edges[:, 0]]
    way = way / way.norm(dim=1, keepdim=True).clamp_min(1e-300)
    one = (
        torch.zeros_like(vertex[:1]).expand(count).clone().scatter_reduce_(0, vertex, edge, "amax")
    )
    sine = cross(way[edge], way[one[vertex]]).abs()
    sine = sine.masked_fill(ids[edge] == ids[one[vertex]], -1)
    order = sine.argsort(stable=True)
    rank = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order)).to(order))
    best = torch.zeros_like(one).scatter_reduce_(0, vertex, rank, "amax")
    other = edge[order[best]]
    third = (ids[edge] != ids[one[vertex]]) & (ids[edge] != ids[other[vertex]])
    degenerate = torch.zeros(count, dtype=torch.bool, device=vertex.device)
    degenerate[vertex[third]] = True
    return edges.at(one), edges.at(other), degenerate


def _evaluate(
    program: Program,
    part: PartitionData,
    uv: Tensor,
    functions: tuple[_Functions, _Functions],
    corners: Tensor,
) -> Tensor:
    """The values of two functions each at plane coordinates (V, 2), (V, 2)."""
    corner, found = corners.to(uv), []
    way = corner.roll(-1, 0) - corner
    for own in functions:
        side = torch.where(own.layer < 0, own.first, 0)
        found.append(cross(_rows(way, side), uv - _rows(corner, side)))
    live = program._entry(part.domain.embed(uv))
    for k, stage in enumerate(program.stages):
        live_before = program.advance(k, live)
        live = program._apply_layer(k, live_before)
        z = live_before[program.output_name if stage.layer is None else stage.layer.source]
        z = z.flatten(1)
        for i, own in enumerate(functions):
            here = own.layer == k
            if not bool(here.any()):
                continue
            first, second = (torch.where(here, x, 0)[:, None] for x in (own.first, own.second))
            value = z.gather(1, first)[:, 0] - own.level
            if bool((second >= 0).any()):
                value = (
                    value - torch.where(second >= 0, z.gather(1, second.clamp(min=0)), 0.0)[:, 0]
                )
            found[i] = torch.where(here, value, found[i])
    return torch.stack(found, 1)


# -- the program as a function of the parameters ---------------------------------------------------


def _constants(part: PartitionData) -> dict[int, tuple[str, bool]]:
    """The parameter that each constant of the program is, by its id, and whether it is turned.

    A copy of the model with other numbers, all of them different, tells which constant is which.
    """
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
    program: Program, names: dict[int, tuple[str, bool]], parameters: Mapping[str, Tensor]
) -> Program:
    """The program with parameters in place of constants."""

    def fill(constant: Tensor) -> Tensor:
        if id(constant) not in names:
            return constant
        name, turned = names[id(constant)]
        own = parameters[name].to(constant)
        return (own.mT if turned else own).reshape(constant.shape)

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
