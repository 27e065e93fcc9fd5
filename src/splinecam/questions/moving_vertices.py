"""Where vertices move with the parameters of a network, by one Newton step at each.

The derivative of the step is that of the vertex. Only a backward pass needs it, which takes blocks
of vertices one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._pytree import tree_leaves, tree_map_only

from splinecam._util.arrays import as_rows, lengths, take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import PARALLEL
from splinecam.errors import SplineCamError
from splinecam.geometry.convex import cross
from splinecam.geometry.subdivision import Mesh
from splinecam.network.capture import capture, captured_before
from splinecam.network.capture.cache import share
from splinecam.network.capture.models import EXCLUSIVE, Output, private_copy, unwrap
from splinecam.network.layer_graph import Weight
from splinecam.network.nonlinearities import (
    MaxNonlinearity,
    Nonlinearity,
    PiecewiseScalar,
    SortNonlinearity,
)
from splinecam.network.program import Program
from splinecam.questions.partition_data import PartitionData

Setting = tuple[Program, Callable[[Tensor], Tensor]]
"""A network, and what makes its inputs of points."""

Names = dict[int, tuple[str, bool]]
"""The parameter that each constant of a program is, by its id, and whether it is turned."""


Weighted = list[tuple[Tensor, Tensor]]
"""Tensors with weights of their shapes."""


def held(
    pulls: Callable[[list[Tensor], tuple[Tensor | None, ...]], Iterator[Weighted]],
    known: Sequence[Tensor],
    tensors: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """Known tensors as functions of others, which only a backward pass follows.

    pulls: yields tensors that the others make, from weights of the known tensors. Their weighted
    sums together have the derivatives of the weighted sum of the known tensors.
    """
    run: Callable[..., tuple[Tensor, ...]] = _Held.apply
    return run(pulls, len(known), *known, *tensors)


class _Held(torch.autograd.Function):
    """What stays as it is, with derivatives that are found block by block."""

    @staticmethod
    def forward(pulls: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The first tensors, which the others move."""
        return tuple(x.clone() for x in tensors[:count])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what moves them."""
        ctx.pulls, ctx.count = inputs[:2]
        ctx.save_for_backward(*inputs[2 + ctx.count :])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *weights: Tensor | None) -> Any:
        """The gradients of a weighted sum of them."""
        found: list[Any] = [None] * len(ctx.saved_tensors)
        needed = [k for k, each in enumerate(ctx.needs_input_grad[2 + ctx.count :]) if each]
        with torch.enable_grad(), temporarily_clear_interpreter_stack():
            given = [x.detach() for x in ctx.saved_tensors]
            moving = [given[k].requires_grad_() for k in needed]
            plain = tuple(None if x is None else x.detach() for x in weights)  # for torch.func
            for pairs in ctx.pulls(given, plain):
                some = [pair for pair in pairs if pair[0].requires_grad]
                made, by = ([pair[i] for pair in some] for i in (0, 1))
                own = torch.autograd.grad(made, moving, by, allow_unused=True)
                for k, x in zip(needed, own, strict=True):
                    if x is not None:
                        found[k] = x if found[k] is None else found[k] + x
        return None, None, *([None] * ctx.count), *found


Pulls = Callable[[Program, Tensor, tuple[Tensor | None, ...]], Iterator[Weighted]]
"""As of ``held``, from the network as a function of parameters, the corners, and weights."""


def followed(
    network: Program,
    names: Names,
    tensors: tuple[Mapping[str, Tensor], Tensor],
    known: tuple[Tensor, ...],
    pulls: Pulls,
) -> tuple[Tensor, ...]:
    """Known tensors as functions of parameters and corners.

    tensors: the parameters by their names, and the corners; pulls: as of ``held``.
    """
    parameters, corners = tensors
    used = sorted({name for name, _ in names.values()})

    def run(given: list[Tensor], weights: tuple[Tensor | None, ...]) -> Iterator[Weighted]:
        program = filled(network, names, dict(zip(used, given[1:], strict=True)))
        yield from pulls(program, given[0], weights)

    moving = [x.to(known[0]) for x in (corners, *(parameters[name] for name in used))]
    return held(run, known, moving)


def newton_pulls(setting: Setting, places: Places) -> Pulls:
    """The pulls of vertices (N, 2) and of the outputs there (N, n), by passes of the network.

    setting: the network, and what makes inputs of points.
    """

    def pulls(
        program: Program, corners: Tensor, weights: tuple[Tensor | None, ...]
    ) -> Iterator[Weighted]:
        block = max(1, backend_of(places.at.device).traced_activations // max(setting[0].widths))
        parts = [(places, weights)] if len(places.at) <= block else _blocks(places, weights, block)
        for some, (at, values) in parts:
            part, outputs = _newton(setting, program, some, corners, values is not None)
            moved = [(part, some.along(at, values))]
            yield moved if outputs is None or values is None else [*moved, (outputs, values)]

    return pulls


def _blocks(
    places: Places, weights: tuple[Tensor | None, ...], block: int
) -> Iterator[tuple[Places, tuple[Tensor | None, ...]]]:
    """Yield vertices, so many at a time, by the layers of their functions, with their weights."""
    order = torch.argsort(places.functions.layer.amax(1))
    for rows in torch.split(order, block):
        yield places.select(rows), tuple(None if w is None else take(w, rows) for w in weights)


def border_pull(places: Places, corners: Tensor, weights: tuple[Tensor | None, ...]) -> Weighted:
    """What has the derivatives of vertices (N, 2) by the domain's corners, as of ``held``."""
    border = (places.functions.layer.view(-1) < 0).nonzero()[:, 0]
    value, rise = _at_border(places, corners, border)
    return [(-value / (3 * rise), take(places.along(*weights).view(-1), border))]


class Functions(NamedTuple):
    """Functions (N,): ``z[first] - z[second] - level`` of a layer; -1 as second for none.

    The layer -1 is the border, where first is the side; the layer after the last is the output.
    """

    layer: Tensor
    first: Tensor
    second: Tensor
    level: Tensor

    def at(self, index: Tensor) -> Functions:
        """The functions of some numbers."""
        return Functions(*(take(x, index) for x in self))


class Places(NamedTuple):
    """N vertices, each as a corner of a cell, and the functions that vanish along its two sides.

    The sides go to the next corner of the cell, and to the previous one. at: (N, 2) the vertex;
    sides: (N, 2, 2) the ways to the two; values: (N, n) the outputs; rises: (N, 2, n) of these
    to the two; functions: (N, 2) along the previous side, and along the next.
    """

    at: Tensor
    sides: Tensor
    values: Tensor
    rises: Tensor
    functions: Functions

    def sines(self) -> Tensor:
        """The sine of the angle between the sides, (N,)."""
        return cross(*self.sides.unbind(1)) / lengths(self.sides).prod(1)

    def along(self, at: Tensor | None, values: Tensor | None) -> Tensor:
        """Places and outputs with weights (N, 2) and (N, n), added up along each side, (N, 2)."""
        pairs = ((at, self.sides), (values, self.rises))
        ways = [(x * w[:, None]).sum(2) for w, x in pairs if w is not None]
        return sum(ways[1:], ways[0])

    def select(self, rows: Tensor) -> Places:
        """Some of them."""
        found: Places = tree_map_only(Tensor, lambda x: take(x, rows), self)
        return found


def places_of(
    mesh: Mesh,
    known: tuple[Tensor, Tensor],
    ids: Tensor | None,
    functions: Callable[[Tensor], Functions],
) -> Places:
    """Vertices (N,) of a mesh, or all, as corners of the cells that are largest there.

    known: plane coordinates (V, 2), and outputs (V, n); functions: those of some edges.
    """
    uv, values = known
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
    at, here = take(uv, own), take(values, own)
    edges = torch.stack([take(mesh.corners, take(before, corner)), take(mesh.corners, corner)], 1)
    sides, rises = (
        torch.stack([take(x, p) - y, take(x, q) - y], 1) for x, y in ((uv, at), (values, here))
    )
    found = (x.view(-1, 2) for x in functions(edges.view(-1) >> 1))
    made = Places(at, sides, here, rises, Functions(*found))
    require_angles(at, made.sines())
    return made


def require_angles(at: Tensor, sines: Tensor) -> None:
    """Raise an error if lines that meet at vertices (N, 2) are parallel; sines: of angles, (N,)."""
    flat = (sines <= PARALLEL).nonzero()[:, 0]
    if len(flat):
        raise SplineCamError(
            f"The lines that meet at {tuple(at[flat[0]].tolist())} are parallel up to rounding, so "
            "that the place of their crossing has no gradient. Choose another domain, or change "
            "the parameters a little."
        )


def functions_of(part: PartitionData, edge: Tensor) -> Functions:
    """The function that vanishes on each of some edges (N,) of the partition."""
    mesh, network = part.mesh, part._network
    layer, first = take(mesh.edge_layer, edge).long(), take(mesh.edge_unit, edge).long()
    found = Functions(layer, first, torch.full_like(first, -1), mesh.uv.new_zeros(len(first)))
    border = (layer < 0).nonzero()[:, 0]
    first[border] = sides_at(part, middles(part, edge[border]))
    asked = [k for k, own in enumerate(network.layers) if not _is_plain(own)]
    if asked:
        others = torch.isin(layer, layer.new_tensor(asked)).nonzero()[:, 0]
        x = part.domain.embed(middles(part, edge[others]))
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


def middles(part: PartitionData, edge: Tensor) -> Tensor:
    """The middles of edges (N,) in plane coordinates, (N, 2)."""
    ends = take(part.mesh.edges, edge)
    return (take(part.vertices, ends[:, 0]) + take(part.vertices, ends[:, 1])) / 2


def sides_at(part: PartitionData, uv: Tensor) -> Tensor:
    """The side of the domain on which each point lies, (N,)."""
    corners = part.domain.corners.to(uv)
    way = corners.roll(-1, 0) - corners
    off: Tensor = cross(way, uv[:, None] - corners).abs() / way.norm(dim=1)
    return off.argmin(1)


def _describe(layer: Nonlinearity, z: Tensor, unit: Tensor, edge: Tensor, found: Functions) -> None:
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
    setting: Setting, program: Program, places: Places, corners: Tensor, outputs: bool
) -> tuple[Tensor, Tensor | None]:
    """One step at N vertices, as parts of the two sides, (N, 2), and perhaps outputs, (N, n_out).

    Units are on the pieces of the cell, which a point in it tells. This matters for those whose
    knots are at the vertex, and for their part in the units of later layers.
    """
    base, embed = setting
    own = Functions(*(x.view(-1) for x in places.functions))
    order = torch.argsort(own.layer, stable=True)
    counts = torch.bincount(
        own.layer + 1, minlength=1
    ).tolist()  # of the border first, then of each stage
    border, *groups = torch.split(order, counts)
    last = len(program.stages) - 1 if outputs else len(groups) - 1
    inner = places.at + places.sides.sum(1) / 3
    values, rises = ([x] for x in _at_border(places, corners, border))
    live = program._entry(embed(places.at))
    fixed = base._entry(embed(inner))
    for k, stage in enumerate(program.stages[: last + 1]):
        live = program.advance(k, live)
        with torch.no_grad():
            fixed = base.advance(k, fixed)
        name = program.output_name if stage.layer is None else stage.layer.source
        if k < len(groups) and counts[k + 1]:
            functions, row = own.at(groups[k]), groups[k] // 2
            values.append(_values(live[name], functions, row, stage.layer))
            inside = _values(fixed[name], functions, row, stage.layer)
            rises.append(inside - values[-1].detach())
        layer = base.stages[k].layer
        if k < last and stage.layer is not None and layer is not None:
            z, at = live[layer.argument], fixed[layer.argument]
            with torch.no_grad():
                fixed = base._apply_layer(k, fixed)
            live = live | {layer.result: _applied(stage.layer, layer, z, at)}
    step = -torch.cat(values) / (3 * torch.cat(rises))
    rank = torch.empty_like(order).index_copy_(
        0, order, torch.arange(len(order), device=order.device)
    )
    found = take(step, rank).view(-1, 2)
    return found, as_rows(live[program.output_name]) if outputs else None


def _at_border(places: Places, corners: Tensor, border: Tensor) -> tuple[Tensor, Tensor]:
    """The values and rises of those functions of vertices, (M,), that are sides of the domain."""
    side, row = take(places.functions.first.view(-1), border), border // 2
    way, corner = (take(x.to(places.at), side) for x in (corners.roll(-1, 0) - corners, corners))
    value = cross(way, take(places.at, row) - corner)
    return value, cross(way.detach(), take(places.sides.sum(1) / 3, row))


def _values(z: Tensor, functions: Functions, row: Tensor, layer: Nonlinearity | None) -> Tensor:
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
        result: Tensor = torch.ops.aten.threshold_backward(z, at, 0)  # z * (at > 0) in one pass
        return result
    moved = base.apply(z + (at - z).detach())
    return layer.apply(z.detach()) + (moved - moved.detach())


# -- the program as a function of the parameters ---------------------------------------------------


def constants_of(network: Program, model: nn.Module, output: Output) -> Names:
    """The parameters of a model that the constants of its program are.

    What is known of the capture tells it, or else a copy of the model with other numbers, all of
    them different.
    """
    for each in network.written:
        raise SplineCamError(
            f"Gradients cannot be followed to the weights: {each}. Partition "
            "splinecam.nn.AsWritten(model)."
        )
    given = unwrap(model)
    with EXCLUSIVE:
        before = captured_before(given, network.input_shape, network.device, output)
    if before is not None and [x[0] for x in _calls(before)] == [x[0] for x in _calls(network)]:
        return _known_constants(network, before, given)
    generator = torch.Generator().manual_seed(0)

    def shaken(x: Tensor) -> Tensor:
        if not isinstance(x, torch.nn.Parameter) or not x.is_floating_point():
            return x.detach().clone()
        noise = torch.rand(x.shape, generator=generator, dtype=torch.float64).to(x.device)
        return torch.nn.Parameter(x.detach() * (1 + noise / 64).to(x) + (noise / 1024).to(x))

    twin = private_copy(given, shaken)
    for own, p in zip(twin.parameters(), given.parameters(), strict=True):
        own.requires_grad_(p.requires_grad)  # as captures depend on it
    with EXCLUSIVE:
        share(given, twin)  # to export it anew takes a hundred times as long
    named = {name: p.detach().double() for name, p in twin.named_parameters()}
    found: Names = {}
    other = capture(twin, network.input_shape, device=network.device, output=output)
    for a, b in zip(_calls(network), _calls(other), strict=True):
        for mine, its in zip(tree_leaves(a[1:]), tree_leaves(b[1:]), strict=True):
            if not isinstance(mine, Tensor) or torch.equal(mine, its):
                continue
            found[id(mine)] = _parameter(named, its, a[0])
    return found


def _known_constants(network: Program, template: Program, model: nn.Module) -> Names:
    """The same, from a program that has a ``Weight`` in the place of each parameter or buffer."""
    tied = dict(model.named_parameters(remove_duplicate=False))
    first = {id(p): name for name, p in model.named_parameters()}
    leaves = (
        zip(*(tree_leaves(call[1:]) for call in pair), strict=True)
        for pair in zip(_calls(network), _calls(template), strict=True)
    )
    pairs = ((mine, its.name) for each in leaves for mine, its in each if isinstance(its, Weight))
    return {id(mine): (first[id(tied[name])], False) for mine, name in pairs if name in tied}


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


def filled(
    program: Program,
    names: Names,
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
                f"The parameter {name!r} has changed since the model was partitioned, whose lines "
                "are elsewhere now. Compute the partition or surface again after each step."
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
