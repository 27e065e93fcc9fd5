"""Curves in the plane: the polylines that segments form, and the closest points to inputs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.arrays import Views, lengths, line_strings, offsets_of, owners_of, take
from splinecam._util.bvh import BoxTree
from splinecam._util.graphs import chains
from splinecam.errors import SplineCamError
from splinecam.geometry.outlines import closed_lines
from splinecam.geometry.point_location import closest
from splinecam.questions.partition_data import PartitionData, counted
from splinecam.questions.sampling import choose, sample_count, uniform


def polylines(curves: Curves) -> Polylines:
    """The longest chains of segments of one label through points where just two of them meet.

    They are in the order of label and lowest segment. That segment gives the direction of the
    chain, and is the first one of a closed chain.
    """
    ends = curves.segments
    found = chains(ends, curves.label)
    counts = found.offsets[1:] - found.offsets[:-1]
    offsets = offsets_of(counts + (~found.closed).long())
    # Each segment contributes its first point, and the last one of an open line both points.
    along = take(ends, found.members)
    along = torch.where(found.backward[:, None], along.flip(1), along)
    points = ends.new_empty(int(offsets[-1]))
    shift = take(offsets[:-1] - found.offsets[:-1], owners_of(counts, len(curves)))
    points[torch.arange(len(curves), device=ends.device) + shift] = along[:, 0]
    points[offsets[1:][~found.closed] - 1] = along[found.offsets[1:][~found.closed] - 1, 1]
    label = take(curves.label, take(found.members, found.offsets[:-1]))
    return Polylines(curves, offsets, points, found.members, found.closed, label)


@dataclass(frozen=True, eq=False, repr=False)
class Polylines(Views["Polyline"]):
    """The polylines of curves, as a sequence of views.

    curves: the segments; points: the indices of the points in order, without the first one again
    at the end of a closed line; offsets: (L + 1,) where each line begins there; segments: (S,) the
    segments in order, in which lines begin at ``segment_offsets``; closed: (L,) whether each line
    is; label: (L,) the curve that it belongs to.
    """

    curves: Curves
    offsets: Tensor
    points: Tensor
    segments: Tensor
    closed: Tensor
    label: Tensor

    _noun: ClassVar[str] = "polyline"

    def __len__(self) -> int:
        return int(self.label.shape[0])

    def _view(self, index: int) -> Polyline:
        return Polyline(self, index)

    @cached_property
    def segment_offsets(self) -> Tensor:
        """The place in ``segments`` where each line begins, (L + 1,)."""
        return self.offsets - offsets_of((~self.closed).long())

    @cached_property
    def lengths(self) -> Tensor:
        """Length of each line, (L,)."""
        line = owners_of(self.segment_offsets[1:] - self.segment_offsets[:-1])
        each = take(self.curves.lengths, self.segments)
        return each.new_zeros(len(self)).index_add_(0, line, each)

    def __repr__(self) -> str:
        return f"Polylines({len(self):,}, {int(self.closed.sum()):,} of them closed)"


@dataclass(frozen=True, eq=False, repr=False)
class Polyline:
    """One polyline; the last point of a closed one is joined to the first."""

    lines: Polylines
    index: int

    @property
    def points(self) -> Tensor:
        """Plane coordinates of the points in order, (k, 2); the first is not repeated."""
        start, end = self.lines.offsets[self.index : self.index + 2].tolist()
        return self.lines.curves.points[self.lines.points[start:end]]

    @property
    def path(self) -> Tensor:
        """The points, and for a closed line the first one again at the end, for drawing."""
        return torch.cat([self.points, self.points[:1]]) if self.closed else self.points

    @property
    def segments(self) -> Tensor:
        """The segments in order, as indices into the curves."""
        start, end = self.lines.segment_offsets[self.index : self.index + 2].tolist()
        return self.lines.segments[start:end]

    @property
    def closed(self) -> bool:
        """Whether the line ends where it begins."""
        return bool(self.lines.closed[self.index])

    @property
    def length(self) -> float:
        """Length of the line."""
        return float(self.lines.lengths[self.index])

    @property
    def label(self) -> int:
        """The label of the curve that the line belongs to."""
        return int(self.lines.label[self.index])

    @property
    def key(self) -> Any:
        """What the label stands for, such as a pair of classes."""
        return self.lines.curves.key(self.label)

    def __repr__(self) -> str:
        kind, segments = "closed" if self.closed else "open", counted(len(self.segments), "segment")
        return f"Polyline({self.key}, {kind}, {segments}, length {self.length:.4g})"


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

    curves: Curves
    uv: Tensor
    distance: Tensor
    segment: Tensor
    certain: Tensor

    def __len__(self) -> int:
        return int(self.segment.shape[0])

    @cached_property
    def x(self) -> Tensor:
        """The closest points as inputs for the model, (N, ...)."""
        return self.curves.partition._inputs(self.uv)

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
            hint = "only a decision boundary does; see label and keys"
            raise AttributeError(f"{type(self.curves).__name__} has no classes, {hint}")
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
        certain = f"{int(self.certain.sum()):,} certain"
        return f"Nearest({counted(len(self), 'input')}, {reach}, {certain})"


def nearest(curves: Curves, x: Any) -> Nearest:
    """The closest point of the curves to each input.

    The distance to the decision boundary is the robustness radius within the plane where it is
    ``certain``.

    x: a batch (N, ...), a flat batch, or one input, on the plane or off it.

    >>> import splinecam as sc
    >>> from splinecam.questions.curves import Curves
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.ReLU())
    >>> part = sc.partition(net, sc.Domain.box(-1, 1), progress=False)
    >>> mesh = part.mesh
    >>> border = Curves(part, part.vertices, mesh.edges, part._edge_faces, mesh.edge_layer)
    >>> nearest(border.select(mesh.edge_layer < 0), [[0.75, 0.0]]).distance
    tensor([0.2500], dtype=torch.float64)
    """
    part = curves.partition
    uv, off = part.domain.project(x)
    points = part._frame.to_local(uv.to(curves.points))
    segment, distance = _search(curves, points)
    found = segment >= 0
    t = closest(points[found], take(curves.local_ends, segment[found]))[0]
    ends = take(curves.ends, segment[found])
    near = torch.full_like(points, torch.nan)
    near[found] = torch.lerp(ends[:, 0], ends[:, 1], t[:, None])
    certain = found & (distance <= _depth(part, points))
    full = torch.hypot(part._frame.scale * distance, off.to(distance))
    return Nearest(curves, near, full, segment, certain)


def _search(curves: Curves, points: Tensor) -> tuple[Tensor, Tensor]:
    """Segment and distance of the closest points, (N,) each, in local coordinates."""
    # A point without a finite square would search everywhere; nan searches nowhere.
    squares, tree = points.square().sum(1), curves.tree
    best = torch.where(squares.isfinite(), torch.inf, torch.nan).to(squares)
    found = torch.full_like(best, _NONE, dtype=torch.int64)
    for block in torch.split(tree.sorted(points), _BLOCK) if len(tree) else ():
        made = _search_block(curves.local_ends, tree, points[block], best[block])
        found[block], best[block] = made
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
    corners = part._frame.to_local(part.domain.corners.to(points))
    side = corners.roll(-1, 0) - corners
    inward = torch.stack([-side[:, 1], side[:, 0]], 1) / lengths(side)[:, None]
    depth = torch.full_like(points[:, 0], torch.inf)
    for corner, normal in zip(corners, inward, strict=True):
        depth = torch.minimum(depth, (points - corner) @ normal)
    return depth


def sample_segments(
    curves: Curves, n: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Random points on the segments, uniform by length: coordinates (n, 2) and segments (n,)."""
    n = sample_count(n)
    chance = uniform((n, 2), generator, curves.points.device)
    if n and not curves.length > 0:
        raise SplineCamError(
            "There is nothing to sample from: the curves have no segments of positive length. "
            "Check their length first, or choose a larger domain or another level."
        )
    segment = choose(curves.lengths, chance[:, 0])
    ends = take(curves.ends, segment)
    return torch.lerp(ends[:, 0], ends[:, 1], chance[:, 1:]), segment


@dataclass(frozen=True, eq=False, repr=False)
class Curves:
    """S segments between P points of the plane, each of which belongs to a labelled curve.

    partition: the partition in which the segments lie; points: (P, 2) plane coordinates; segments:
    (S, 2) start and end, as indices of points; regions: (S, 2) the regions left and right of each
    segment, the same twice inside a region and -1 outside the domain; label: (S,) the curve that a
    segment belongs to, see ``key``.

    Further fields of subclasses are tensors with S rows, or no tensors.

    >>> import splinecam as sc
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.ReLU())
    >>> part = sc.partition(net, sc.Domain.box(-1, 1), progress=False)
    >>> points = torch.tensor([[-0.5, 0.0], [0.0, 0.0], [0.0, 0.5]], dtype=torch.float64)
    >>> segments = torch.tensor([[0, 1], [1, 2]])
    >>> curves = Curves(part, points, segments, torch.zeros_like(segments), segments[:, 0] * 0)
    >>> curves
    Curves(2 segments, 1 polyline, length 1)
    >>> curves.nearest([[0.25, 0.125]]).distance
    tensor([0.2500], dtype=torch.float64)
    """

    partition: PartitionData
    points: Tensor
    segments: Tensor
    regions: Tensor
    label: Tensor

    def __len__(self) -> int:
        return int(self.segments.shape[0])

    @cached_property
    def ends(self) -> Tensor:
        """Plane coordinates of both ends of each segment, (S, 2, 2)."""
        return self.points[self.segments]

    @cached_property
    def lengths(self) -> Tensor:
        """Length of each segment, (S,)."""
        return lengths(self.ends[:, 1] - self.ends[:, 0])

    @property
    def length(self) -> float:
        """Length of all segments together."""
        return float(self.lengths.sum())

    def key(self, label: int) -> Any:
        """What a label stands for, such as a pair of classes."""
        return label

    def select(self, chosen: Tensor) -> Self:
        """Return some of the segments.

        chosen: their indices (N,), or a mask (S,).
        """
        rows: dict[str, Any] = {}
        for name in (field.name for field in fields(self) if field.name != "points"):
            values = getattr(self, name)
            rows[name] = values[chosen] if isinstance(values, Tensor) else values
        return replace(self, **rows)

    @cached_property
    def local_ends(self) -> Tensor:
        """Both ends of each segment in the coordinates of the partition's frame, (S, 2, 2)."""
        return self.partition._frame.to_local(self.ends)

    @cached_property
    def tree(self) -> BoxTree:
        """The bounding boxes of the segments in local coordinates, for searching."""
        return BoxTree(self.local_ends.amin(1), self.local_ends.amax(1))

    nearest = nearest

    @cached_property
    def polylines(self) -> Polylines:
        """The segments in order, as lines that end where not just two of one label meet."""
        return polylines(self)

    def sample(
        self,
        n: int,
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: str | torch.device | None = None,
    ) -> Tensor:
        """Random inputs on the curves, uniform by length, (n, ...), ready for the model.

        By default they have the model's floating-point type and are on the domain's device.
        """
        uv = self.sample_uv(n, generator=generator)
        return self.partition._inputs(uv, dtype=dtype, device=device)

    def sample_uv(self, n: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Plane coordinates (n, 2) of random points on the curves, uniform by length."""
        return sample_segments(self, n, generator)[0]

    def to_shapely(self) -> NDArray[Any]:
        """The polylines as an array of shapely's LineStrings in plane coordinates, (L,).

        They have the order of ``polylines``; closed ones end with their first point.

        >>> import splinecam as sc
        >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
        >>> [line.length for line in part.neurons().to_shapely()]
        [2.0, 2.0]
        """
        lines = self.polylines
        offsets, places = closed_lines(lines.offsets, lines.closed.long())
        return line_strings(offsets, self.points[lines.points[places]])

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """Draw the curves; see ``splinecam.plot.plot_curves``."""
        from splinecam.plot import plot_curves

        return plot_curves(self, ax=ax, **style)

    def plot_samples(self, n: int = 25, **style: Any) -> Any:
        """Show n inputs on the curves as images; see ``splinecam.plot.plot_samples``."""
        from splinecam.plot import plot_samples

        return plot_samples(self, n, **style)

    def _repr_html_(self) -> str:
        from splinecam.plot.notebook import curves_card

        return curves_card(self)

    def _summary(self) -> str:
        """The first words of the representation: what the curves are."""
        return counted(len(self), "segment")

    def __repr__(self) -> str:
        parts = self._summary(), counted(len(self.polylines), "polyline")
        return f"{type(self).__name__}({', '.join(parts)}, length {self.length:.4g})"
