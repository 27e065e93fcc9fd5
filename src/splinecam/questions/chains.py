"""Networks that are chains, whose derivatives follow from one walk over the regions.

A chain is a product with a matrix, functions of one variable, a product, and so on. From a region
to its neighbour one unit bends as a rule, so that the maps of all layers there, and derivatives by
all parameters, cost far less than passes through the network: see ``kernels/walk.c``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from splinecam.geometry.subdivision import Mesh
from splinecam.kernels.kernel import Kernel, kernel_for
from splinecam.kernels.walk import Bends
from splinecam.network.nonlinearities import PiecewiseScalar
from splinecam.network.program import FAR, Program
from splinecam.questions.moving_vertices import Weighted
from splinecam.questions.partition_data import PartitionData

_MOST = 1 << 22  # numbers in the matrices of a chain, or that a walk keeps
_KEPT = 12  # numbers for each unit, see ``queue_t``
_TAPED = 64  # numbers on the tape for each region, most of which are never written
_DENSE = 4  # times as many as the network multiplies with


@dataclass(frozen=True)
class Chain:
    """A network as a chain, on the regions of a partition."""

    bends: Bends
    kernel: Kernel
    mesh: Mesh
    order: Tensor  # of a walk, see ``Bends.order``
    tape: Tensor  # of the walk that finds maps, for the one back

    def maps(self) -> Tensor:
        """The maps of the regions in the mesh's coordinates, (F, 3, n_out), see ``Bends.maps``."""
        return self.bends.maps(self.kernel, self.mesh, self.order, self.tape)

    def pull(self, program: Program, weights: Mapping[str, Tensor]) -> Weighted:
        """What has the derivatives of a weighted sum, see ``Bends.derivatives``.

        program: the network as a function of the parameters.
        """
        given = {"order": self.order, **weights}
        found = zip(*self.bends.derivatives(self.kernel, self.mesh, given), strict=True)
        both = zip(_products(program), found, strict=True)
        return [pair for made, by in both for pair in zip(made, by, strict=True)]


def chain_of(part: PartitionData, names: Mapping[int, object]) -> Chain | None:
    """The network of a partition as a chain; None if it is none, or without the compiled kernel.

    names: the parameters by the ids of constants.
    """
    program, kernel = part._network, kernel_for(part.vertices.device)
    layers = program.layers
    inputs = [(program.input_name,), *((layer.result,) for layer in layers)]
    if kernel is None or not layers or [stage.live_in for stage in program.stages] != inputs:
        return None
    for layer in layers:
        if not isinstance(layer, PiecewiseScalar) or layer.period is not None:
            return None
        known = tree_leaves((layer.operation.args, layer.operation.kwargs))
        if layer.source != layer.argument or any(id(x) in names for x in known):
            return None
    widths = [prod(x) for x in (program.input_shape, *(own.shape for own in layers))]
    widths.append(prod(program.output_shape))
    numbers = sum(n * m for n, m in pairwise(widths))
    kept = _KEPT * len(layers) * sum(widths)  # of changes of each layer in all later ones
    if kept > _MOST or numbers > min(_MOST, _DENSE * sum(program.products)):
        return None
    matrices, offsets = zip(*_products(program), strict=True)
    frame, domain = part._frame, part.domain
    start = torch.cat([frame.scale * domain.basis, domain.embed(frame.center[None]).flatten(1)])
    own = [layer for layer in layers if isinstance(layer, PiecewiseScalar)]
    knots = max(len(layer.levels) for layer in own)
    bends = Bends(
        tuple(widths),
        start.contiguous(),
        torch.cat([*(x.flatten() for x in matrices[:-1]), matrices[-1].T.flatten()]),
        torch.cat(offsets),
        torch.cat([_filled(x.levels, knots, torch.inf) for x in own], 1),
        torch.cat([_filled(x.slopes, knots + 1) for x in own], 1),
        torch.cat([_value_at_zero(x) for x in own]),
    )
    tape = matrices[0].new_empty(min(_TAPED * len(part), 8 * _MOST))
    return Chain(bends, kernel, part.mesh, bends.order(kernel, part.mesh), tape)


def _products(program: Program) -> Iterator[tuple[Tensor, Tensor]]:
    """The matrices (n, m) and the offsets (m,) of the stages of a chain."""
    for k, stage in enumerate(program.stages):
        (zeros,) = program.zeros(k, 1).values()
        n = zeros.numel()
        ways = torch.cat([FAR * torch.eye(n, dtype=zeros.dtype), zeros.view(1, n)])
        made = program.advance(k, {stage.live_in[0]: ways.view(n + 1, *zeros.shape[1:])})
        name = program.output_name if stage.layer is None else stage.layer.source
        found = made[name].flatten(1)
        yield (found[:-1] - found[-1]) / FAR, found[-1]


def _filled(rows: Tensor, count: int, value: float | None = None) -> Tensor:
    """Rows (K, n) with more of them, which have a value or are like the last."""
    last = rows[-1:] if value is None else torch.full_like(rows[-1:], value)
    return torch.cat([rows, last.expand(count - len(rows), -1)])


def _value_at_zero(layer: PiecewiseScalar) -> Tensor:
    """The values of a layer at zero, if the first slopes went on until there, (n,)."""
    z = layer.levels[0].clamp(max=0) - 1
    value: Tensor = layer.apply(z.view(1, *layer.shape)).flatten()
    return value - layer.slopes[0] * z
