"""A network as a chain of layers: an affine map of the values before, and slopes of its units.

The layers are those of the captured network, whatever its modules are. First comes the adapter from
the plane to the input space, then each non-linearity with the affine operations before it, and last
the rest after all non-linearities. Values between layers are flat, (B, n).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from splinecam._util.backend import backend_of
from splinecam._util.options import device_of
from splinecam.compat.utils import Maps, plane_coordinates
from splinecam.errors import DomainError, SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.jobs.partitioning import partition
from splinecam.network.capture import FirstLayers, capture
from splinecam.network.capture.models import private_copy, widened
from splinecam.network.nonlinearities import PiecewiseScalar
from splinecam.network.program import Program
from splinecam.partitions.partition import Partition

_VERIFIED = 32  # units of a layer


class adapter(nn.Module):
    """The plane as the first layer: uv -> ``T[:, :2] @ uv + T[:, 2]``; T: (D, 3)."""

    def __init__(self, T: Tensor) -> None:
        super().__init__()
        self.T = T
        self.input_shape, self.output_shape = torch.tensor(2), torch.tensor(len(T))

    def forward(self, x: Tensor) -> Tensor:
        """The inputs (B, D) at plane coordinates (B, 2)."""
        return x.to(self.T) @ self.T[:, :2].T + self.T[:, 2]

    def to_input(self, x: Tensor) -> Tensor:
        """Plane coordinates (B, 2) of the points of the plane that are nearest to inputs (B, D)."""
        inverse: Tensor = torch.linalg.pinv(self.T[:, :2])
        return (x.to(self.T) - self.T[:, 2]) @ inverse.T

    def get_weights(self, row_idx: Any = None, dtype: torch.dtype = torch.float64) -> Tensor:
        """The matrix (D, 3) of the plane, or some rows of it."""
        return (self.T if row_idx is None else self.T[row_idx]).to(dtype)

    def get_activation_pattern(self, x: Tensor) -> Tensor:
        """Ones, (B, D)."""
        return self.T.new_ones(len(x), len(self.T))

    get_intersection_pattern = get_activation_pattern


class layer(nn.Module):
    """One layer of a network: ``forward(x) = q * (W @ x + b)`` with slopes q of its units."""

    def __init__(self, program: Program, index: int, live: dict[str, Tensor]) -> None:
        super().__init__()
        self.program, self.index = program, index
        self.stage = program.stages[index]
        last = index + 1 == len(program.stages)
        self.results = (program.output_name,) if last else program.stages[index + 1].live_in
        self.shapes = {name: live[name].shape[1:] for name in self.stage.live_in}
        self.zeros = torch.cat([live[name].flatten(1) for name in self.stage.live_in], 1) * 0
        self.input_shape = torch.tensor(self.zeros.shape[1])
        self.output_shape = torch.tensor(self.forward(self.zeros).shape[1])
        self.is_classifier = False
        self.between_class: tuple[int, int] | None = None

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """The values after the layer, (B, n)."""
        made = self.program._apply_layer(self.index, self._advance(x))
        return torch.cat([made[name].flatten(1) for name in self.results], 1)

    @torch.no_grad()
    def get_weights(self, row_idx: Any = None, dtype: torch.dtype = torch.float64) -> Tensor:
        """The weights and, in the last column, the biases of the units, (n, m + 1), dense.

        After ``to_decision_boundary`` a row is the difference of two classes.

        row_idx: the wanted units, by default all; some units of a wide layer take less memory.
        """
        bias = self._before(self.zeros)[0]
        units = torch.arange(len(bias), device=bias.device)
        if self.is_classifier:
            first, second = self._pairs(len(bias)).T
            rows = torch.cat([self._rows(units), bias[:, None]], 1)
            found = rows[first] - rows[second]
            return (found if row_idx is None else found[row_idx]).to(dtype)
        units = units if row_idx is None else units[row_idx].reshape(-1)
        return torch.cat([self._rows(units), bias[units, None]], 1).to(dtype)

    @torch.no_grad()
    def get_activation_pattern(self, x: Tensor) -> Tensor:
        """The slope of each unit at values (B, m) before the layer, (B, n)."""
        if self.stage.layer is None:
            return self.zeros.new_ones(len(x), int(self.output_shape))
        slopes = self._rectifier().slopes
        made = self._advance(x)
        result = self.stage.layer.result
        parts = [
            torch.where(made[name].flatten(1) > 0, slopes[1], slopes[0])
            if after == result
            else torch.ones_like(made[name].flatten(1))
            for name, after in zip(self._arguments, self.results, strict=True)
        ]
        return torch.cat(parts, 1)

    @torch.no_grad()
    def get_intersection_pattern(self, x: Tensor) -> Tensor:
        """Whether each unit, or difference of classes, is positive at values (B, m), (B, n)."""
        before = self._before(x)
        if self.is_classifier:
            first, second = self._pairs(before.shape[1]).T
            before = before[:, first] - before[:, second]
        return (before > 0).double()

    def to_decision_boundary(self, between_class: Sequence[int] | None = None) -> bool:
        """Ask ``get_partitions_with_db`` for the boundary between two classes, by default of all.

        Only the last layer has classes, its units.
        """
        if self.stage.layer is not None:
            raise ValueError("only the last layer of a network, NN.layers[-1], has classes")
        self.between_class = None
        if between_class is not None:
            i, j = between_class
            self.between_class = (int(i), int(j))
        self.is_classifier = True
        self.output_shape = torch.tensor(len(self.get_weights()))
        return True

    @property
    def _arguments(self) -> list[str]:
        """The names of the values that become the results, before the non-linearity."""
        if self.stage.layer is None:
            return list(self.results)
        renamed = {self._rectifier().result: self.stage.layer.argument}
        return [renamed.get(name, name) for name in self.results]

    def _rectifier(self) -> PiecewiseScalar:
        """The non-linearity, which must scale its units on both sides of zero."""
        found = self.stage.layer
        if isinstance(found, PiecewiseScalar) and found.at_zero:
            argument = self._advance(self.zeros)[found.argument]
            if not bool(found.apply(torch.zeros_like(argument)).any()):
                return found
        raise SplineCamError(
            f"The layer {found.name if found else ''!r} is not a ReLU or leaky ReLU, so it has no"
            " slopes and weights of the form q * (W @ x + b). get_partitions_with_db and"
            " splinecam.partition work for it, and part.weight has the maps of the regions."
        )

    def _pairs(self, classes: int) -> Tensor:
        if self.between_class is not None:
            return torch.tensor([self.between_class])
        return torch.tensor(list(combinations(range(classes), 2))).reshape(-1, 2)

    def _advance(self, x: Tensor) -> dict[str, Tensor]:
        """The values before the non-linearity, from flat values (B, m) before the layer."""
        parts = torch.split(x.to(self.zeros), list(map(prod, self.shapes.values())), 1)
        named = zip(self.shapes.items(), parts, strict=True)
        live = {name: part.reshape(len(x), *shape) for (name, shape), part in named}
        return self.program.advance(self.index, live)

    def _rows(self, units: Tensor) -> Tensor:
        """The weights (N, m) of some units: each is the gradient of one unit at a point."""
        width = self.zeros.shape[1] + int(self.output_shape)
        found: list[Tensor] = []
        for block in torch.split(units, max(1, backend_of(units.device).numbers // width)):
            with torch.enable_grad():
                x = self.zeros.repeat(len(block), 1).requires_grad_()
                found += torch.autograd.grad(self._before(x).gather(1, block[:, None]).sum(), x)
        return torch.cat(found)

    def _before(self, x: Tensor) -> Tensor:
        made = self._advance(x)
        return torch.cat([made[name].flatten(1) for name in self._arguments], 1)


class model_wrapper:
    """A network on a plane of its input space, as a chain of ``layers``.

    model: any module that ``splinecam.partition`` takes, in eval mode; it is copied, and later
    changes have no effect. input_shape: of one input, by default flat. T: (D, 3) the plane, from
    ``get_proj_mat``; by default the input space itself, if that has two dimensions. device: by
    default a GPU if there is one. dtype: everything is computed in float64 anyway.

    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)).eval()
    >>> NN = model_wrapper(net)
    >>> NN.verify(), len(NN.layers), NN.layers[1].get_weights().shape
    (True, 3, torch.Size([8, 3]))
    """

    def __init__(
        self,
        model: nn.Module,
        input_shape: Sequence[int] | None = None,
        is_classifier: bool = False,
        *,
        T: Tensor | None = None,
        dtype: torch.dtype = torch.float64,
        device: str | torch.device = "auto",
    ) -> None:
        if model.training:
            raise ValueError("The model is in training mode: call model.eval() first.")
        plane = torch.eye(2, 3) if T is None else T.detach()
        self.device = device_of(device)
        self.T = plane.to(self.device, torch.float64)
        shape = (len(self.T),) if input_shape is None else tuple(int(n) for n in input_shape)
        if self.T.dim() != 2 or self.T.shape[1] != 3 or prod(shape) != len(self.T):
            raise DomainError(
                f"T has shape {tuple(plane.shape)}, and inputs of shape {shape} need "
                f"{(prod(shape), 3)}: use T = get_proj_mat(domain)."
            )
        self.input_shape, self.dtype = shape, torch.float64
        self.model = private_copy(model, lambda tensor: widened(tensor, self.device))
        self.program = capture(self.model, shape, device=self.device)
        layers: list[layer] = []
        live = {self.program.input_name: self.T.new_zeros((1, *shape))}
        for index, stage in enumerate(self.program.stages):
            if stage.steps or stage.layer is not None:
                layers.append(layer(self.program, index, live))
            live = self.program._apply_layer(index, self.program.advance(index, live))
        self.layers: Any = nn.Sequential(adapter(self.T), *layers)
        # The columns of T need not be orthonormal: they are basis @ triangle.
        self._basis, self._triangle = torch.linalg.qr(self.T[:, :2])
        self.is_classifier = is_classifier
        if is_classifier:
            layers[-1].to_decision_boundary()

    @torch.no_grad()
    def verify(self, seed: int = 0, eps: float = 1e-5) -> bool:
        """Whether the layers, and their slopes and weights, give what the model computes.

        They are compared at random points of the plane, and only in some units of wide layers.
        """
        generator = torch.Generator().manual_seed(seed)
        uv = torch.randn(16, 2, dtype=torch.float64, generator=generator).to(self.device)
        wanted = self.model(self.layers[0](uv).reshape(-1, *self.input_shape))
        x, pairs = uv, []
        for each in self.layers:
            after = each(x)
            some = torch.randperm(after.shape[1], generator=generator)[:_VERIFIED]
            weights, slopes = each.get_weights(some), each.get_activation_pattern(x)[:, some]
            pairs.append((slopes * (x @ weights[:, :-1].T + weights[:, -1]), after[:, some]))
            x = after
        made = (self.program.final or nn.Identity())(x.reshape(-1, *self.program.output_shape))
        pairs.append((made, wanted))
        return all(bool((a - b).abs().max() <= eps * b.abs().max().clamp(min=1)) for a, b in pairs)

    def partition(self, polygon: Tensor | Domain, layers: int | None = None) -> Partition:
        """The partition of a polygon (k, 2) of the plane by the first layers, or by all."""
        domain = polygon
        if not isinstance(domain, Domain):
            corners = (domain.to(self.T) @ self._triangle.T).cpu()
            domain = Domain(self.T[:, 2].cpu(), self._basis.T.cpu(), corners, self.input_shape)
        model = self.model
        if layers is not None:
            model = FirstLayers(model, min(layers, len(self.program.layers)))
        return partition(model, domain, device=self.device, progress=False)

    def to_plane(self, points: Tensor) -> Tensor:
        """Coordinates (..., 2) with respect to T of points of a partition."""
        inverse: Tensor = torch.linalg.inv(self._triangle)
        return points @ inverse.T

    def polygons(self, part: Partition) -> list[Tensor]:
        """The regions of a partition as open polygons (k, 2) on the CPU, with respect to T."""
        vertices = self.to_plane(part.vertices)[part._face_vertices].cpu()
        return list(torch.split(vertices, part.mesh.counts().tolist()))

    def maps(self, part: Partition) -> Tensor:
        """The affine maps (F, n, 3) of the regions of a partition, with respect to T."""
        weight = part.weight @ self._triangle
        return torch.cat([weight, part.bias[:, :, None]], 2).as_subclass(Maps)


class Cycles(list[Tensor]):
    """All regions of some partitions as open polygons (k, 2), and the partitions."""

    def __init__(self, NN: model_wrapper, parts: Sequence[Partition]) -> None:
        super().__init__(polygon for part in parts for polygon in NN.polygons(part))
        self.NN, self.parts = NN, tuple(parts)


def to_next_layer_partition(
    cycles: Tensor | Sequence[Tensor],
    Abw: Tensor | None,
    current_layer: int,
    NN: model_wrapper,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device | None = None,
) -> tuple[Cycles, Tensor]:
    """The regions after one more layer, and the given polygon in which each of them lies, (F,).

    The units of this layer and of the layers before it divide the polygons where the network is not
    differentiable. A layer without a non-linearity divides nothing.

    cycles: convex polygons (k, 2) of the plane, or one; the unchanged list from the layer before is
    continued at once. Abw: not needed, as the network itself is evaluated; a result of ``get_Abw``
    learns how its regions are divided. current_layer: from 1, the index into ``NN.layers``. dtype,
    device: those of NN are used.
    """
    if (
        isinstance(cycles, Cycles)
        and cycles.NN is NN
        and len(cycles) == sum(map(len, cycles.parts))
    ):
        before = list(cycles.parts)
        parts = [NN.partition(part.domain, current_layer) for part in before]
        inside = [old._locator(new.mesh.means()) for old, new in zip(before, parts, strict=True)]
        sizes = [len(part) for part in before]
    else:
        polygons = [cycles] if isinstance(cycles, Tensor) else list(cycles)
        parts = [NN.partition(polygon, current_layer) for polygon in polygons]
        inside = [torch.zeros(len(part), dtype=torch.int64, device=NN.device) for part in parts]
        sizes = [1] * len(parts)
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    out_idx = torch.cat([k + index for k, index in zip(starts, inside, strict=True)]).cpu()
    if isinstance(Abw, Maps):
        Abw.parents = out_idx
    return Cycles(NN, parts), out_idx


def to_next_layer_partition_batched(
    cycles: Tensor | Sequence[Tensor],
    Abw: Tensor | None,
    current_layer: int,
    NN: model_wrapper,
    **options: Any,
) -> tuple[Cycles, Tensor]:
    """The same as ``to_next_layer_partition``; sizes of batches and workers are not needed."""
    return to_next_layer_partition(cycles, Abw, current_layer, NN)


def get_partitions_with_db(
    domain: Tensor | Sequence[Tensor], T: Tensor, NN: model_wrapper, **options: int
) -> tuple[Cycles, Tensor, Tensor]:
    """The regions of a polygon of the input space, the decision boundary, and maps of the regions.

    Regions are a list of open polygons (k, 2) in the coordinates of T. The boundary (S, 2, 2) has
    both ends of its segments: there two classes tie and no third one is larger, or a single output
    is zero. After ``to_decision_boundary`` it may be that of two classes only. The maps (F, n, 3)
    lead from coordinates of T to the units of the last layer with a non-linearity.

    domain: (k, ...) the vertices of a convex polygon. T: the plane of NN. options: sizes of batches
    and numbers of workers, which are not needed.
    """
    if not T.detach().to(NN.T).equal(NN.T):
        raise ValueError("T is not the matrix of the plane that NN was wrapped with")
    part = NN.partition(plane_coordinates(domain, T))
    pair = getattr(NN.layers[-1], "between_class", None)
    boundary = NN.to_plane(part.decision_boundary(classes=pair).ends).cpu()
    maps = NN.maps(part.at_layer(len(part.layers))).as_subclass(Tensor).cpu()
    return Cycles(NN, [part]), boundary, maps
