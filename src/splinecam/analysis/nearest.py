"""The closest points of curves to given inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from splinecam._util.bvh import BoxTree
from splinecam._util.csr import lengths, take
from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.segments import Segments
from splinecam.geometry.distances import closest

__all__ = ["Nearest", "nearest"]

_BLOCK = 1 << 15  # points in a block
_GUESSES = 4  # segments that each point is compared with first
_NONE = torch.iinfo(torch.int64).max


@dataclass(frozen=True, eq=False, repr=False)
class Nearest:
    """The closest point of the curves to each of N inputs.

    curves: what was searched; uv: (N, 2) plane coordinates of the closest points; distance: (N,)
    from the inputs, which may lie off the plane; segment: (N,) the segment with the closest point,
    of several the lowest; certain: (N,) whether the input's projection is no farther from the
    closest point than from the outside of the domain, so that no curve out there can be closer.

    Without a closest point these are nan, inf (nan for inputs that are not finite), -1 and False.
    """

    curves: Segments
    uv: Tensor
    distance: Tensor
    segment: Tensor
    certain: Tensor

    def __len__(self) -> int:
        return int(self.segment.shape[0])

    @cached_property
    def x(self) -> Tensor:
        """The closest points as inputs for the model, (N, ...)."""
        return self.curves.partition.inputs(self.uv)

    @property
    def label(self) -> Tensor:
        """The curve on which each closest point lies, -1 where there is none, (N,)."""
        return self._of_segments(self.curves.label)

    @property
    def keys(self) -> list[Any]:
        """What the labels mean, such as pairs of classes; None where there is no closest point."""
        found = zip(self.label.tolist(), self.segment.tolist(), strict=True)
        return [None if segment < 0 else self.curves.key(label) for label, segment in found]

    @property
    def classes(self) -> Tensor:
        """The two classes between which each closest point lies, -1 where there is none, (N, 2)."""
        classes = getattr(self.curves, "classes", None)
        if not isinstance(classes, Tensor):
            raise AttributeError(
                f"{type(self.curves).__name__} has no classes, only a decision boundary between "
                "several outputs does; see label and keys"
            )
        return self._of_segments(classes)

    def _of_segments(self, values: Tensor) -> Tensor:
        """The values of the closest points' segments, -1 where there is none."""
        out = values.new_full((len(self), *values.shape[1:]), -1)
        found = self.segment >= 0
        out[found] = values[self.segment[found]]
        return out

    def __repr__(self) -> str:
        found = self.distance[self.segment >= 0]
        reach = f"distances {found.min():.4g} to {found.max():.4g}" if len(found) else "none found"
        inputs = f"{len(self):,} input{'s' * (len(self) != 1)}"
        return f"Nearest({inputs}, {reach}, {int(self.certain.sum()):,} certain)"


def nearest(curves: Segments, x: Any) -> Nearest:
    """The closest point of the curves to each input.

    The distance to the decision boundary is the robustness radius within the plane where it is
    ``certain``.

    x: a batch (N, ...), a flat batch, or one input, on the plane or off it.

    >>> import splinecam as sc
    >>> from splinecam.analysis.curves import Curves
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.ReLU())
    >>> part = sc.partition(net, sc.Domain.box(-1, 1), progress=False)
    >>> border = Curves(part, part.vertices, part.edges, part.edge_faces, part.edge_layer)
    >>> nearest(border.select(part.edge_layer < 0), [[0.75, 0.0]]).distance
    tensor([0.2500], dtype=torch.float64)
    """
    part = curves.partition
    uv, off = part.domain.project(x)
    points = part.frame.to_local(uv.to(curves.points))
    segment, distance = _search(curves, points)
    found = segment >= 0
    t = closest(points[found], take(curves.local_ends, segment[found]))[0]
    ends = take(curves.ends, segment[found])
    near = torch.full_like(points, torch.nan)
    near[found] = torch.lerp(ends[:, 0], ends[:, 1], t[:, None])
    certain = found & (distance <= _depth(part, points))
    full = torch.hypot(part.frame.scale * distance, off.to(distance))
    return Nearest(curves, near, full, segment, certain)


def _search(curves: Segments, points: Tensor) -> tuple[Tensor, Tensor]:
    """Segment and distance of the closest points, (N,) each, in local coordinates."""
    # A point without a finite square would search everywhere; nan searches nowhere.
    squares = points.square().sum(1)
    best = torch.where(squares.isfinite(), torch.inf, torch.nan).to(squares)
    found = torch.full_like(best, _NONE, dtype=torch.int64)
    tree, ends = curves.tree, curves.local_ends
    if len(tree):
        for block in torch.split(tree.sorted(points), _BLOCK):
            found[block], best[block] = _search_block(ends, tree, points[block], best[block])
    return torch.where(found == _NONE, -1, found), best.sqrt()


def _search_block(
    ends: Tensor, tree: BoxTree, points: Tensor, best: Tensor
) -> tuple[Tensor, Tensor]:
    """Segment and squared distance of the closest points, (N,) each."""
    found, reach = torch.full_like(best, _NONE, dtype=torch.int64), best.clone()

    def compare(point: Tensor, segment: Tensor) -> None:
        square = closest(take(points, point), take(ends, segment))[1]
        lower = best.scatter_reduce(0, point, square, "amin")
        found[lower < best] = _NONE
        best.copy_(lower)
        reach.copy_(reach.minimum(best))
        hit = (square == take(best, point)).nonzero()[:, 0]
        found.scatter_reduce_(0, take(point, hit), take(segment, hit), "amin")

    finite = best.isinf().nonzero()[:, 0]
    guesses = tree.guesses(take(points, finite), _GUESSES)
    compare(finite.repeat_interleave(_GUESSES), guesses.view(-1))
    for point, segment in tree.walk(points, reach, nearest=True):
        compare(point, segment)
    return found, best


def _depth(part: PartitionData, points: Tensor) -> Tensor:
    """Distance of local points (N, 2) from the domain's border, negative outside, (N,)."""
    corners = part.frame.to_local(part.domain.corners.to(points))
    side = corners.roll(-1, 0) - corners
    inward = torch.stack([-side[:, 1], side[:, 0]], 1) / lengths(side)[:, None]
    depth = torch.full_like(points[:, 0], torch.inf)
    for corner, normal in zip(corners, inward, strict=True):
        depth = torch.minimum(depth, (points - corner) @ normal)
    return depth
