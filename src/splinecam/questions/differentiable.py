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
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from splinecam._util.arrays import as_rows, lengths, take
from splinecam._util.options import kind_of
from splinecam._util.tolerances import THIN_SLOPES
from splinecam.errors import SplineCamError
from splinecam.geometry.convex import cross
from splinecam.kernels.kernel import kernel_for
from splinecam.kernels.walk import face_integrals, widest_corners
from splinecam.network.capture.models import unwrap
from splinecam.network.program import Program
from splinecam.questions.boundary import check_kind, levels_of, output_of, winners_of
from splinecam.questions.chains import Chain, chain_of
from splinecam.questions.measures import triangle_integrals, triangles
from splinecam.questions.moving_vertices import (
    Functions,
    Names,
    Places,
    Pulls,
    Weighted,
    border_pull,
    constants_of,
    filled,
    followed,
    functions_of,
    held,
    middles,
    newton_pulls,
    places_of,
    require_angles,
    sides_at,
)
from splinecam.questions.partition_data import PartitionData

Integrand = Literal["output", "modulus", "square"]


@dataclass(frozen=True, eq=False, repr=False)
class Differentiable:
    """The geometry of a partition with V vertices and F regions, as tensors with gradients.

    Gradients are with respect to the parameters of the model, and to the corners of the domain if
    given. What is first used is computed, from the vertices that it needs.

    partition: the partition, in whose order vertices and regions are.
    """

    partition: PartitionData
    _level: float
    _parameters: Mapping[str, Tensor]
    _corners: Tensor
    _names: Names
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
        filled(self.partition._network, self._names, parameters)  # names what does not fit
        corners = self._corners if corners is None else _corners_like(corners, self._corners)
        changed = {"_parameters": parameters, "_corners": corners}
        return replace(self, **changed)  # type: ignore[arg-type]

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        """What does not depend on the parameters, without the marks that torch.func leaves."""
        if name not in self._fixed:
            with torch.no_grad(), temporarily_clear_interpreter_stack():
                self._fixed[name] = make()
        return self._fixed[name]

    def _moved(self, known: tuple[Tensor, ...], pulls: Pulls) -> tuple[Tensor, ...]:
        """Known tensors as functions of the parameters and the corners; pulls: as of ``held``."""
        tensors = self._parameters, self._corners
        return followed(self.partition._network, self._names, tensors, known, pulls)

    def _follow(self, places: Places) -> tuple[Tensor, ...]:
        """Vertices (N, 2) as parameters move them, and the outputs there, (N, n)."""
        setting = self.partition._network, self.partition.domain.embed
        return self._moved((places.at, places.values), newton_pulls(setting, places))

    def _all_places(self, ids: Tensor | None = None) -> Places:
        """The vertices of the partition, or some (N,), as corners."""
        return _places_in(self.partition, ids)

    @property
    def _chain(self) -> Chain | None:
        """The network as a chain, if it is one."""
        found: Chain | None = self._once("chain", lambda: chain_of(self.partition, self._names))
        return found

    @cached_property
    def _everywhere(self) -> tuple[Tensor, ...]:
        if self._chain is None:
            return self._follow(self._once("all vertices", self._all_places))
        chain, data = self._chain, self.partition
        corner = self._once("corners", lambda: self._widest(chain))
        return self._moved((data.vertices, data.values), _walk_pulls(data, chain, corner))

    def _widest(self, chain: Chain) -> Tensor:
        """The corners as which all vertices move, (V,)."""
        corner, sine = widest_corners(chain.kernel, chain.mesh)
        require_angles(self.partition.vertices, sine)
        return corner

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

    @property
    def _triangles(self) -> tuple[Tensor, Tensor]:
        """Triangles that fill the cells, by their vertices (3, T), and the cell of each, (T,)."""
        found: tuple[Tensor, Tensor] = self._once(
            "triangles", lambda: triangles(self.partition.mesh)
        )
        return found

    def _integrals(self, kind: str, *values: Tensor) -> Tensor:
        """The integrals over each region of functions with values (V, n), or of 1, (F, n)."""
        data = self.partition
        kernel = kernel_for(data.vertices.device)
        if kernel is None:
            corners, owner = self._triangles
            pieces = triangle_integrals(corners, kind, self.vertices, *values)
            return pieces.new_zeros((len(data), pieces.shape[1])).index_add(0, owner, pieces)
        fixed = kernel, data.mesh, kind, data.vertices, data.values[:, : None if values else 1]
        known = self._once(f"integrals of {kind}", lambda: face_integrals(*fixed))

        def pulls(given: list[Tensor], weights: tuple[Tensor | None, ...]) -> Iterator[Weighted]:
            yield list(zip(given, face_integrals(*fixed, weights[0]), strict=False))

        return held(pulls, known, (self.vertices, *values))[0]

    @cached_property
    def areas(self) -> Tensor:
        """The area of each region, (F,)."""
        return self._integrals("area")[:, 0]

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
        if self._chain is not None:
            return self._maps_of(self._chain)
        data, at, values = self.partition, self.vertices, self.values
        triangle, thin = self._once("triangles of maps", self._largest)
        (a, b, c), (f, g, h) = (_rows(x, triangle).unbind(1) for x in (at, values))
        p, q, u, v = b - a, c - a, g - f, h - f
        (px, py), (qx, qy) = (x[:, None].unbind(2) for x in (p, q))
        rise = torch.stack([u * qy - v * py, v * px - u * qx], 2)
        weight = rise / cross(p, q)[:, None, None]
        bias = f - (weight * a[:, None]).sum(2)
        if len(thin):
            pairs = zip((weight, bias), self._slow_maps(thin), strict=True)
            weight, bias = (x.index_copy(0, thin, y) for x, y in pairs)
        return data.weight + (weight - weight.detach()), data.bias + (bias - bias.detach())

    def _maps_of(self, chain: Chain) -> tuple[Tensor, Tensor]:
        """The same by a walk over the regions."""
        frame = self.partition._frame
        x, y = frame.center.tolist()

        def make() -> tuple[Tensor, Tensor]:
            made = chain.maps()
            slopes, start = made[:, :2].mT / frame.scale, made[:, 2]
            return slopes, start - x * slopes[:, :, 0] - y * slopes[:, :, 1]

        def pulls(
            program: Program, corners: Tensor, weights: tuple[Tensor | None, ...]
        ) -> Iterator[Weighted]:
            w, b = weights
            shape = chain.mesh.num_faces, 3, chain.bends.widths[-1]
            given = chain.mesh.uv.new_tensor([-x, -y, frame.scale])[:, None] / frame.scale
            given = given.new_zeros(shape) if b is None else given * b[:, None]
            if w is not None:
                given[:, :2].add_(w.mT, alpha=1 / frame.scale)
            yield chain.pull(program, {"map": given, "tape": chain.tape})

        weight, bias = self._moved(self._once("maps", make), pulls)
        return weight, bias

    def _largest(self) -> tuple[Tensor, Tensor]:
        """The largest of the triangles of each cell, (F, 3), and the cells where it is thin."""
        data = self.partition
        corners, owner = self._triangles
        corners = corners.T.contiguous()
        sides = _rows(data.vertices, corners)
        sides = sides.roll(-1, 1) - sides
        size = cross(sides[:, 0], sides[:, 1])
        top = size.new_zeros(len(data)).scatter_reduce_(0, owner, size, "amax")
        best = (size >= take(top, owner)).nonzero()[:, 0]
        chosen = owner.new_zeros(len(data)).scatter_reduce_(0, take(owner, best), best, "amax")
        triangle = take(corners, chosen)
        sharp = _rows(self._once("all vertices", self._all_places).sines(), triangle).amin(1)
        width = take(size / lengths(sides).amax(1), chosen)
        extent = (data.vertices.amax(0) - data.vertices.amin(0)).norm()
        return triangle, (width * sharp <= THIN_SLOPES * extent).nonzero()[:, 0]

    def _slow_maps(self, cells: Tensor) -> tuple[Tensor, Tensor]:
        """The slopes and offsets of some cells (N,) by derivatives of the network."""
        domain, data = self.partition.domain, self.partition
        program = filled(data._network, self._names, self._parameters)
        uv = data._frame.to_plane(take(data.mesh.means(), cells))
        x = domain.embed(uv)
        axes = domain.basis.to(uv).view(2, 1, *domain.input_shape).expand(2, *x.shape)
        weight = program.derivatives(x, axes).permute(1, 2, 0)
        return weight, as_rows(program(x)) - (weight * uv[:, None]).sum(2)

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
        if of not in get_args(Integrand):
            raise ValueError(f"of is {of!r}; choose 'output', 'modulus' or 'square'")
        return self._integrals(of, self.values)

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
            ids = torch.unique(ends)
            with torch.no_grad(), temporarily_clear_interpreter_stack():
                places = self._all_places(ids)
            moved_at, moved_values = self._follow(places)
            uv = self.partition.vertices.index_copy(0, ids, moved_at)
            values = self.partition.values.index_copy(0, ids, moved_values)
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
    names = constants_of(part._network, part.model, part._chosen_output)
    given = dict(unwrap(part.model).named_parameters())
    filled(part._network, names, given, same=True)
    return Differentiable(
        part,
        level,
        given,
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


def _places_in(part: PartitionData, ids: Tensor | None) -> Places:
    """The vertices of a partition, or some (N,), as corners."""
    known = part.vertices, part.values
    return places_of(part.mesh, known, ids, lambda edge: functions_of(part, edge))


def _walk_pulls(part: PartitionData, chain: Chain, corner: Tensor) -> Pulls:
    """The pulls of all vertices and of the outputs there, by a walk over the regions.

    They know nothing of what keeps these tensors, which otherwise would keep itself.
    """

    def pulls(
        program: Program, corners: Tensor, weights: tuple[Tensor | None, ...]
    ) -> Iterator[Weighted]:
        at, outputs = weights
        place = {} if at is None else {"place": part._frame.scale * at}
        output = {} if outputs is None else {"output": outputs, "values": part.values}
        yield chain.pull(program, {"corner": corner, **place, **output})
        if corners.requires_grad:
            ids = torch.unique(part.mesh.edges[part.mesh.edge_layer < 0])
            some = tuple(None if x is None else take(x, ids) for x in weights)
            yield border_pull(_places_in(part, ids), corners, some)

    return pulls


def _outline(part: PartitionData, level: float) -> tuple[Places, Tensor, Tensor]:
    """The vertices N where classes meet or end, segments (S, 2) between, and classes beside."""
    found = winners_of(part, "argmax", level, whole=True)
    cells, source, scores = found.overlay.mesh, found.overlay.source, found.overlay.z
    beside = cells.halfedge_face()
    label = torch.where(beside < 0, -1, take(found.winner, beside.clamp(min=0))).view(-1, 2)
    edge = (label[:, 0] != label[:, 1]).nonzero()[:, 0]
    ids, ends = torch.unique(take(cells.edges, edge), return_inverse=True)
    single = part._n_out == 1

    def functions(edge: Tensor) -> Functions:
        old = take(source, edge)
        made = functions_of(part, old.clamp(min=0))
        new = (old < 0).nonzero()[:, 0]
        tied = _rows(scores, take(cells.edges, edge[new])).mean(1).topk(2, 1).indices
        made.layer[new] = len(part._network.layers)
        made.first[new], made.second[new] = (0, -1) if single else tied.sort(1).values.unbind(1)
        made.level[new] = level if single else 0.0
        return made

    uv = part._frame.to_plane(cells.uv)
    return places_of(cells, (uv, uv[:, :0]), ids, functions), ends, take(label, edge)


def _degenerate(part: PartitionData) -> Tensor:
    """The vertices at which more than two lines meet, (V,)."""
    mesh = part.mesh
    layer, unit = mesh.edge_layer.long(), mesh.edge_unit.long().clone()
    border = (layer < 0).nonzero()[:, 0]
    unit[border] = sides_at(part, middles(part, border))
    line = torch.unique((layer + 1) * (int(unit.max()) + 1) + unit, return_inverse=True)[1]
    count = int(line.max()) + 1
    ends = mesh.edges * count + line[:, None]
    return torch.bincount(torch.unique(ends) // count, minlength=mesh.num_vertices) > 2
