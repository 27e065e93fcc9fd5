"""The derivative of one output in input space on regions, in full and in one byte per number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam.analysis.partition_data import PartitionData
from splinecam.plot.arrays import to_numpy
from splinecam.viewer.answers import Answer

__all__ = ["gradient_answer", "gradients_at", "quantized_gradients", "winning_outputs"]

_STEPS = 127  # of a byte, on each side of 0


def winning_outputs(part: PartitionData, regions: Tensor) -> Tensor:
    """The largest output in the middle of each region (N,), (N,)."""
    mesh, n = part.mesh, part.values.shape[1]
    if n == 1:
        return torch.zeros_like(regions)
    if regions.shape[0] == 1:
        first, last = mesh.offsets[regions[0]], mesh.offsets[regions[0] + 1]
        corner = mesh.edges.view(-1)[mesh.corners[first:last]]
        return part.values[corner].mean(0).argmax()[None]
    middle = mesh.sums(part.values[mesh.corner_vertices()]) / mesh.counts()[:, None]
    return middle.argmax(1)[regions]


def gradients_at(part: PartitionData, regions: Tensor, outputs: Tensor) -> Tensor:
    """The derivative of one output for each region, (N, D); regions, outputs: (N,)."""
    if part._program is None and part.domain.dim == 2:  # maps are known without the network
        slope = part.weight[regions, outputs]
        return slope @ part.domain.basis.to(slope)
    program, domain = part.program, part.domain
    widest = max([domain.dim, *(math.prod(layer.shape) for layer in program.layers)])
    rows = max(1, backend_of(part.values.device).traced_activations // widest)
    middle = part.frame.to_plane(part.mesh.means()[regions])
    found = []
    for uv, output in zip(torch.split(middle, rows), torch.split(outputs, rows), strict=True):
        with torch.inference_mode(False), torch.enable_grad():
            x = domain.embed(uv).clone().requires_grad_()
            y = program(x).reshape(x.shape[0], -1)
            # Points do not mix, so that one backward pass is enough for all of them.
            chosen = y.gather(1, output[:, None]).sum()
            slope = torch.autograd.grad(chosen, x, materialize_grads=True)[0]
        found.append(slope.flatten(1))
    return torch.cat(found) if found else part.values.new_zeros((0, domain.dim))


def gradient_answer(part: PartitionData, mesh: str, region: int, output: int | None) -> Answer:
    """The derivative of an output (None: that which wins) on a region, as a message."""
    regions = torch.tensor([region], device=part.values.device)
    chosen = winning_outputs(part, regions)
    if output is not None:
        chosen = torch.full_like(chosen, output)
    slope = to_numpy(gradients_at(part, regions, chosen)[0]).astype(np.float32)
    header = {"kind": "gradient", "mesh": mesh, "region": region, "output": int(chosen[0])}
    return Answer(header, {"gradient": slope})


def quantized_gradients(part: PartitionData) -> dict[str, Any]:
    """The derivatives of the winning outputs in bytes: gradients (F, D), gradientScale (F,).

    The derivative is the byte times the scale, up to half of the scale. gradientOutput (F,) tells
    which output wins in the middle of a region: elsewhere in it, another one may.
    """
    regions = torch.arange(len(part), device=part.values.device)
    outputs = winning_outputs(part, regions)
    slope = to_numpy(gradients_at(part, regions, outputs))
    scale = np.abs(slope).max(1, initial=0.0) / _STEPS
    steps = np.rint(slope / np.where(scale > 0, scale, 1)[:, None])
    return {
        "gradients": steps.astype(np.int8),
        "gradientScale": scale.astype(np.float32),
        "gradientOutput": to_numpy(outputs).astype(np.uint32),
    }
