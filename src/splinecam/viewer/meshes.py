"""A mesh as messages: its arrays, slopes, class colours, bounds, and the band without a class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.tolerances import SAFETY
from splinecam.plot.arrays import classes_and_leads, to_numpy, weighted_quantiles
from splinecam.plot.colors import Coloring, ColorOptions, class_legend, color_regions, output_name
from splinecam.plot.rasters import CellColors
from splinecam.plot.regions import default_color
from splinecam.questions.boundary import knows_classes
from splinecam.questions.certainty import class_band
from splinecam.questions.class_regions import class_regions
from splinecam.questions.partition_data import PartitionData
from splinecam.viewer.answers import number
from splinecam.viewer.container import Message

_CUT = 20_000  # how many regions are few, and are cut along the decision boundary for the scale


def class_coloring(part: PartitionData, options: ColorOptions, *, most: int = _CUT) -> Coloring:
    """Return colours by class: their legend, and their scale up to the typical lead.

    Few regions are cut into cells of one class each, as for pictures; of many regions, those on the
    boundary hardly change the median lead. With given limits, only the classes are to be found.
    """
    if options.limits is None and len(part) <= most:
        return color_regions(part, "class", options)
    values = part._outputs
    if options.limits is None:
        mesh, weight = part.mesh, to_numpy(part.areas)
        values = mesh.sums(values[mesh.corner_vertices()]) / mesh.counts()[:, None]
        winner, lead = classes_and_leads(values, options.level)
        typical = float(weighted_quantiles(lead, [0.5], weight)[0])
    else:
        winner, _ = classes_and_leads(values, options.level)
        weight, typical = np.ones(len(winner)), options.limits[1]
    label, legend = class_legend(part, winner, weight, options)
    scale, fill = (0.0, typical) if typical > 0 else None, CellColors(colors=np.zeros((0, 4)))
    return Coloring(part.mesh, fill, label, legend=legend, scale=scale)


_STEPS = 127  # of a byte, on each side of 0


def winning_outputs(part: PartitionData, regions: Tensor) -> Tensor:
    """Return the largest output (N,) in the middle of each region (N,)."""
    mesh, n = part.mesh, part._n_out
    if n == 1:
        return torch.zeros_like(regions)
    if regions.shape[0] == 1:
        first, last = mesh.offsets[regions[0]], mesh.offsets[regions[0] + 1]
        corner = mesh.edges.view(-1)[mesh.corners[first:last]]
        return part._outputs[corner].mean(0).argmax()[None]
    middle = mesh.sums(part._outputs[mesh.corner_vertices()]) / mesh.counts()[:, None]
    return middle.argmax(1)[regions]


def gradients_at(part: PartitionData, regions: Tensor, outputs: Tensor) -> Tensor:
    """Return the derivative (N, D) of one output for each region; regions, outputs: (N,)."""
    if part._program is None and part.domain.dim == 2:  # maps are known without the network
        slope = part.weight[regions, outputs]
        return slope @ part.domain.basis.to(slope)
    program, domain = part._network, part.domain
    widest = max([domain.dim, *(math.prod(layer.shape) for layer in program.layers)])
    rows = max(1, backend_of(part.mesh.uv.device).traced_activations // widest)
    middle = part._frame.to_plane(part.mesh.means()[regions])
    found = []
    for uv, output in zip(torch.split(middle, rows), torch.split(outputs, rows), strict=True):
        with torch.inference_mode(False), torch.enable_grad():
            x = domain.embed(uv).clone().requires_grad_()
            # Points do not mix, so one backward pass is enough for all of them.
            chosen = program(x).flatten(1).gather(1, output[:, None]).sum()
            slope = torch.autograd.grad(chosen, x, materialize_grads=True)[0]
        found.append(slope.flatten(1))
    return torch.cat(found) if found else part._outputs.new_zeros((0, domain.dim))


def gradient_answer(part: PartitionData, mesh: str, region: int, output: int | None) -> Message:
    """Return the derivative of an output, or of the winning one, on a region as a message."""
    regions = torch.tensor([region], device=part.mesh.uv.device)
    part._require_complete(regions)
    chosen = winning_outputs(part, regions)
    if output is not None:
        chosen = torch.full_like(chosen, output)
    slope = to_numpy(gradients_at(part, regions, chosen)[0]).astype(np.float32)
    header = {"kind": "gradient", "mesh": mesh, "region": region, "output": int(chosen[0])}
    return Message(header, {"gradient": slope})


def quantized_gradients(part: PartitionData) -> dict[str, Any]:
    """Return bytes (F, D) that are, times their scales (F,), derivatives of the winning outputs."""
    regions = torch.arange(len(part), device=part.mesh.uv.device)
    outputs = winning_outputs(part, regions)
    slope = to_numpy(gradients_at(part, regions, outputs))
    scale = np.abs(slope).max(1, initial=0.0) / _STEPS
    steps = np.rint(slope / np.where(scale > 0, scale, 1)[:, None])
    return {
        "gradients": steps.astype(np.int8),
        "gradientScale": scale.astype(np.float32),
        "gradientOutput": to_numpy(outputs).astype(np.uint32),
    }


def band_answer(part: PartitionData, about: dict[str, Any], level: Any) -> Message:
    """Return the polygons on which no class is certain, in the partition's local coordinates."""
    band = class_band(part, smallest=False, level=number(level, "level"))
    frame = {"center": part._frame.center.tolist(), "scale": part._frame.scale}
    points = to_numpy(part._frame.to_local(band.vertices))
    arrays = {"points": points, "counts": _as(band.offsets.diff(), np.uint16)}
    return Message({"kind": "band", **about, **frame, "share": band.share}, arrays)


MAX_CLASSES = 32_000  # the time to find the winner of every point grows with the outputs
_BLOCK = 1 << 22  # numbers in a block


@dataclass(frozen=True)
class MeshSizes:
    """How much a mesh may hold."""

    outputs: int = 1000  # how many are sent
    values: int = 16_000_000  # of all outputs together
    points: int = 8_000_000  # coordinates that are sent in double precision
    precise: int = 8_000_000  # values that are sent in double precision
    cut: int = 100_000  # with up to so many vertices, regions are cut to find all winners


def has_classes(part: PartitionData, level: float | None = None) -> bool:
    """Return whether outputs mean classes: as in pictures, or as names or a level are given."""
    named = part.names is not None or level is not None
    known = part._n_out <= MAX_CLASSES and knows_classes(part, level or 0.0)
    return known and (named or default_color(part) == "class")


def mesh_answer(
    part: PartitionData, about: dict[str, Any], level: float | None, sizes: MeshSizes
) -> Message:
    """Return the mesh of a partition; about: its id, pane, frame and window."""
    mesh, outputs, values = part.mesh, outputs_of(part, level, sizes), part._outputs
    if len(outputs) < values.shape[1]:
        values = values[:, torch.tensor(outputs, device=values.device)]
    header = {
        "kind": "mesh",
        **about,
        "center": part._frame.center.tolist(),
        "scale": part._frame.scale,
        "regionCount": len(part),
        "outputs": outputs,
        "outputNames": [output_name(part, k) for k in outputs],
        "errors": (SAFETY * part._value_error[outputs]).tolist(),
        "ranges": torch.stack([values.amin(0), values.amax(0)], 1).tolist(),
        "unresolved": len(part.unresolved),
    }
    few = to_numpy(mesh.counts()).max(initial=0) < 256
    arrays = {
        "points": _real(mesh.uv, sizes.points),
        "edges": _as(mesh.edges, np.uint32),
        "corners": _as(mesh.corners, np.uint32),
        "counts": _as(mesh.counts(), np.uint8 if few else np.uint16),
        "edgeLayer": _as(mesh.edge_layer, np.int16),
        "edgeUnit": _as(mesh.edge_unit, np.int32),
        "values": _real(values, sizes.precise),
    }
    if part.smoothing is not None:
        header["within"] = part.smoothing.within
        bounds = to_numpy(part.region_bounds)[:, outputs]
        single = bounds.astype(np.float32)  # and rounded up
        above = np.nextafter(single, np.float32(np.inf))
        arrays["regionBounds"] = np.where(single < bounds, above, single)
    return Message(header, arrays)


def _as(values: Tensor, dtype: Any) -> Any:
    return to_numpy(values).astype(dtype)


def _real(values: Tensor, precise: int) -> Any:
    return _as(values, np.float64 if values.numel() <= precise else np.float32)


def outputs_of(part: PartitionData, level: float | None, sizes: MeshSizes) -> list[int]:
    """Return the outputs to send, ascending: all, or those that win somewhere or come closest."""
    n, vertices = part._n_out, part.mesh.num_vertices
    most = max(2, min(sizes.outputs, sizes.values // max(1, vertices)))
    if n <= most:
        return list(range(n))
    exact = vertices <= sizes.cut  # among very many vertices, each winner wins at some of them
    classes = has_classes(part, level)

    def find() -> list[int]:
        values = part._outputs
        # How close each output comes to the largest at any vertex: 0, or the negative gap.
        lead = values.new_full((n,), -torch.inf)
        for block in torch.split(values, max(1, _BLOCK // n)):
            lead = torch.maximum(lead, (block - block.amax(1, keepdim=True)).amax(0))
        if classes:
            winners = torch.unique(class_regions(part).cell_class) if exact else lead == 0
            lead[winners] = torch.inf
        count = max(most, int(lead.isinf().sum()))
        return sorted(torch.topk(lead, count).indices.tolist())

    return part._remembered("outputs of a viewer", (most, exact, classes), find)
