"""The closest points of curves: exact, for many points and many segments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from splinecam._util.bvh import BoxTree
from splinecam._util.csr import lengths, take
from splinecam.analysis.segments import Segments
from splinecam.geometry.distances import closest
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame

__all__ = ["Nearest", "nearest"]

_BLOCK = 1 << 15  # points that look for their segments at once
_GUESSES = 4  # segments that each point tries first
_NOBODY = torch.iinfo(torch.int64).max


@dataclass(frozen=True, eq=False, repr=False)
class Nearest:
    """The closest point of the curves to each of N inputs.

    uv: (N, 2) its plane coordinates; distance: (N,) from the input, which may lie off the plane;
    segment: (N,) on which it lies, of several the lowest; certain: (N,) whether the input's
    projection is no farther from it than from the outside of the domain, so that no curve out there
    could be nearer.

    Where there is nothing: nan, inf (nan for inputs that are not finite), -1 and False.
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
        """The closest points as inputs that are ready for the model, (N, ...)."""
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
        """What each closest point's segment has, -1 where there is none."""
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

    x: a batch (N, ...), a flat batch, or one input, on the plane or off it. For the decision
    boundary the distance is the robustness radius within the plane, where it is ``certain``.

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
    segment, reach = _search(curves, points)
    found = segment >= 0
    t = closest(points[found], take(curves.local_ends, segment[found]))[0]
    ends = take(curves.ends, segment[found])
    near = torch.full_like(points, torch.nan)
    near[found] = torch.lerp(ends[:, 0], ends[:, 1], t[:, None])
    return Nearest(
        curves,
        near,
        torch.hypot(part.frame.scale * reach, off.to(reach)),
        segment,
        found & (reach <= _depth(part.domain, part.frame, points)),
    )


def _search(curves: Segments, points: Tensor) -> tuple[Tensor, Tensor]:
    """Segment and distance of the closest points, (N,) each, in the engine's coordinates."""
    # What is not finite, or has no finite square, would look everywhere; as nan it looks nowhere.
    squares = points.square().sum(1)
    best = torch.where(squares.isfinite(), torch.inf, torch.nan).to(squares)
    found = torch.full_like(best, _NOBODY, dtype=torch.int64)
    tree, ends = curves.tree, curves.local_ends
    if len(tree):
        for block in torch.split(tree.sorted(points), _BLOCK):
            found[block], best[block] = _search_block(ends, tree, points[block], best[block])
    return torch.where(found == _NOBODY, -1, found), best.sqrt()


def _search_block(
    ends: Tensor, tree: BoxTree, points: Tensor, best: Tensor
) -> tuple[Tensor, Tensor]:
    """Segment and squared distance of the closest points, (N,) each."""
    found, reach = torch.full_like(best, _NOBODY, dtype=torch.int64), best.clone()

    def compare(point: Tensor, segment: Tensor) -> None:
        square = closest(take(points, point), take(ends, segment))[1]
        lower = best.scatter_reduce(0, point, square, "amin")
        found[lower < best] = _NOBODY
        best.copy_(lower)
        reach.copy_(reach.minimum(best))
        hit = (square == take(best, point)).nonzero()[:, 0]
        found.scatter_reduce_(0, take(point, hit), take(segment, hit), "amin")

    finite = best.isinf().nonzero()[:, 0]
    guesses = tree.guesses(take(points, finite), _GUESSES)
    compare(finite.repeat_interleave(_GUESSES), guesses.view(-1))
    for point, segment in tree.walk(points, reach, closing=True):
        compare(point, segment)
    return found, best


def _depth(domain: Domain, frame: Frame, points: Tensor) -> Tensor:
    """Distance of points (N, 2) from the border of the domain, negative outside, (N,)."""
    corners = frame.to_local(domain.corners.to(points))
    side = corners.roll(-1, 0) - corners
    inward = torch.stack([-side[:, 1], side[:, 0]], 1) / lengths(side)[:, None]
    depth = torch.full_like(points[:, 0], torch.inf)
    for corner, normal in zip(corners, inward, strict=True):
        depth = torch.minimum(depth, (points - corner) @ normal)
    return depth
