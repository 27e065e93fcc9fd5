"""The edges of a partition, by the layer that drew them, and the decision boundary."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import is_color_like
from torch import Tensor

from splinecam._util.csr import lengths
from splinecam.analysis.curves import Curves
from splinecam.analysis.partition_data import PartitionData
from splinecam.plot.arrays import to_numpy
from splinecam.plot.decorations import clip_to
from splinecam.plot.lines import Lines, LineWidth
from splinecam.plot.palette import PAPER

__all__ = ["draw_boundary", "draw_edges"]

# Widths in points, and as a share of the lines' spacing, from the first layer to the last.
_WIDEST, _NARROWEST = 0.6, 0.35
_SHARE = 0.06
_STRONG, _WEAK = 0.6, 0.45  # opacity
_EDGES = "give True, False, the numbers of the edges to draw, or the name of a colour for all"

_BOUNDARY, _LEAST_BOUNDARY, _RIM = 1.9, 0.5, 1.6
_BOUNDARY_SHARE, _APART = 0.25, 0.02


def draw_edges(part: PartitionData, ax: Axes, edges: Any, width: float | None, ink: str) -> None:
    """Draw edges by layer, the first layer on top: later ones are lighter and thinner.

    The width of a layer's lines follows from how close the lines of this layer and of those before
    are, so that the first layers stay visible where the last ones are dense. edges: True, the
    numbers of those to draw, or the colour of all.
    """
    if isinstance(edges, str):
        if not is_color_like(edges):
            raise TypeError(f"edges is {edges!r}, which is no colour; {_EDGES}")
        edges, ink = True, edges
    chosen = _chosen(part, edges)
    layer, segments = part.edge_layer[chosen], part.vertices[part.edges[chosen]]
    length = lengths(segments[:, 1] - segments[:, 0])
    inner = layer >= 0
    total = length.new_zeros(len(part.layers)).index_add_(0, layer[inner], length[inner])
    spacing = (part.domain.area / total.cumsum(0)).cpu().tolist()
    depth = max(len(part.layers) - 1, 1)
    for k in reversed(range(len(part.layers))):
        late = k / depth
        most = _WIDEST + (_NARROWEST - _WIDEST) * late
        style: dict[str, Any] = {"line_width": LineWidth(spacing[k], _SHARE, most)}
        if width is not None:
            style = {"linewidths": width}
        alpha, zorder = _STRONG + (_WEAK - _STRONG) * late, 2 + (1 - late) / 2
        some = to_numpy(segments[layer == k])
        ax.add_collection(
            Lines(some, colors=ink, alpha=alpha, zorder=zorder, **style), autolim=False
        )


def _chosen(part: PartitionData, edges: Any) -> Tensor:
    """Indices of the edges to draw, (N,)."""
    device = part.edges.device
    if isinstance(edges, (bool, np.bool_)):
        return torch.arange(part.edges.shape[0] if edges else 0, device=device)
    index = torch.as_tensor(edges, device=device).reshape(-1)
    if index.dtype == torch.bool and index.shape[0] == part.edges.shape[0]:
        return index.nonzero()[:, 0]
    if index.is_floating_point() or index.dtype == torch.bool:
        raise TypeError(f"edges: {_EDGES}")
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < part.edges.shape[0]:
        raise IndexError(f"edges: the partition has {part.edges.shape[0]:,}, numbered from 0")
    return index.long()


def draw_boundary(ax: Axes, curves: Curves, color: Any, *, rim: bool) -> None:
    """Draw a boundary on top of a picture; a white rim makes it visible on dark colours too."""
    if not len(curves):
        return
    domain = curves.partition.domain
    spacing = domain.area / max(curves.length, np.finfo(np.float64).tiny)
    spacing = min(spacing, _APART * domain.diameter)  # thinner lines on small pictures
    segments = to_numpy(curves.ends)
    for ink, extra, zorder in [(color, 0.0, 3.2)] + [(PAPER, _RIM, 3.1)] * rim:
        width = LineWidth(spacing, _BOUNDARY_SHARE, _BOUNDARY, _LEAST_BOUNDARY, extra)
        lines = Lines(segments, colors=ink, line_width=width, zorder=zorder)
        ax.add_collection(lines, autolim=False)
        clip_to(lines, ax, domain)
