"""One-dimensional domains: segments and paths in a model's input space, one or many."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import Views
from splinecam._util.options import as_float64, require_finite
from splinecam._util.tolerances import LARGEST_DOMAIN, SMALLEST_DOMAIN
from splinecam.errors import DomainError


@dataclass(frozen=True, eq=False, repr=False)
class Path:
    """The straight segments from each of k inputs to the next one.

    A position ``t`` on the path is the share of its length that lies behind, from 0 to 1.

    points: (k, D) the inputs, flat; input_shape: the shape of one input.

    >>> Path([[0.0, 0.0], [3.0, 4.0]], (2,))
    Path(1 segment, length 5, input shape (2,))
    """

    points: Tensor
    input_shape: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_shape", tuple(int(n) for n in self.input_shape))
        points = _finite(self.points, "points").cpu().clone()
        D = math.prod(self.input_shape)
        if points.ndim != 2 or points.shape[1] != D or len(points) < 2:
            raise DomainError(
                f"points has shape {tuple(points.shape)}, expected (k, {D}) with k >= 2. Build "
                "paths with Domain.segment and Domain.path."
            )
        object.__setattr__(self, "points", points)
        _require_length(self.lengths, "The path stands still: points {} and the next one")

    @property
    def dim(self) -> int:
        """D, the number of entries of one input."""
        return math.prod(self.input_shape)

    @cached_property
    def lengths(self) -> Tensor:
        """The length of each segment, (k - 1,)."""
        lengths: Tensor = torch.linalg.vector_norm(self.points.diff(dim=0), dim=1)
        return lengths

    @property
    def length(self) -> float:
        """The length of the whole path."""
        return float(self.lengths.sum())

    @cached_property
    def corners(self) -> Tensor:
        """The positions of the given inputs on the path, (k,), from 0 to 1."""
        share = torch.cumsum(self.lengths, 0) / self.lengths.sum()
        share[-1] = 1.0
        return torch.cat([share.new_zeros(1), share])

    def embed(self, t: Any) -> Tensor:
        """The float64 inputs ``(N, *input_shape)`` at positions along the path.

        t: ``(N,)``, from 0 to 1.

        >>> Path([[0.0, 0.0], [1.0, 0.0], [1.0, 3.0]], (2,)).embed([0.125, 0.5]).tolist()
        [[0.5, 0.0], [1.0, 1.0]]
        """
        t = as_float64(t, "t")
        if t.ndim != 1:
            raise DomainError(f"t has shape {tuple(t.shape)}; embed takes positions (N,).")
        corners, points = self.corners.to(t.device), self.points.to(t.device)
        at = torch.searchsorted(corners[1:-1].contiguous(), t, right=True)
        share = (t - corners[at]) / (corners[at + 1] - corners[at])
        x = torch.lerp(points[at], points[at + 1], share[:, None])
        return x.view(t.shape[0], *self.input_shape)

    def __repr__(self) -> str:
        count = len(self.points) - 1
        return (
            f"Path({count} segment{'s' * (count != 1)}, length {self.length:.4g}, "
            f"input shape {self.input_shape})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class SegmentBatch(Views[Path]):
    """S segments of one input space, for :func:`splinecam.sweep`; ``segments[i]`` is a path.

    starts, ends: (S, D) inputs, flat, on any device; input_shape: the shape of one input.
    """

    starts: Tensor
    ends: Tensor
    input_shape: tuple[int, ...]
    _noun = "segment"

    def __post_init__(self) -> None:
        _require_length(self.lengths, "Segment {} has no length: its ends")

    def __len__(self) -> int:
        return int(self.starts.shape[0])

    def _view(self, index: int) -> Path:
        return Path(torch.stack([self.starts[index], self.ends[index]]), self.input_shape)

    @property
    def dim(self) -> int:
        """D, the number of entries of one input."""
        return math.prod(self.input_shape)

    @cached_property
    def lengths(self) -> Tensor:
        """The length of each segment, (S,)."""
        lengths: Tensor = torch.linalg.vector_norm(self.ends - self.starts, dim=1)
        return lengths

    def __repr__(self) -> str:
        return f"SegmentBatch({len(self):,} segments, input shape {self.input_shape})"


def segment(a: Any, b: Any) -> Path:
    """The straight segment from the input ``a`` to the input ``b``, a domain of one dimension.

    ``partition`` gives the pieces of a network along it. Inputs may have any number of entries.

    a, b: single inputs of the model's input shape.

    >>> from splinecam import Domain
    >>> Domain.segment([0.0, 0.0, 0.0], [1.0, 2.0, 2.0])
    Path(1 segment, length 3, input shape (3,))
    """
    first, last = _finite(a, "a"), _finite(b, "b")
    if first.shape != last.shape:
        raise DomainError(
            f"The ends differ in shape: a {tuple(first.shape)}, b {tuple(last.shape)}. Give two "
            "single inputs of the model's input shape, without a batch dimension."
        )
    return path(torch.stack([first, last.to(first.device)]))


def path(points: Any) -> Path:
    """The path of straight segments from each input to the next one, a domain of one dimension.

    points: ``(k, *input_shape)``, at least two inputs, of which no two in a row are equal.

    >>> from splinecam import Domain
    >>> Domain.path([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]).corners.tolist()
    [0.0, 0.5, 1.0]
    """
    x = _finite(points, "points")
    if x.ndim < 1 or len(x) < 2:
        raise DomainError(
            f"points has shape {tuple(x.shape)}, but a path needs at least two inputs: give them "
            "as (k, *input_shape), k >= 2."
        )
    return Path(x.reshape(len(x), -1), tuple(x.shape[1:]) or (1,))


def segments(a: Any, b: Any) -> SegmentBatch:
    """Many segments, from the inputs ``a`` to the inputs ``b``, for one call of ``sweep``.

    a, b: batches ``(S, *input_shape)``; a single input as ``a`` or ``b`` is an end of all segments.

    >>> from splinecam import Domain
    >>> Domain.segments([0.0, 0.0], [[1.0, 0.0], [0.0, 2.0]]).lengths.tolist()
    [1.0, 2.0]
    """
    first, last = _finite(a, "a"), _finite(b, "b")
    last = last.to(first.device)
    try:
        first, last = first + torch.zeros_like(last), last + torch.zeros_like(first)
    except RuntimeError:
        raise DomainError(
            f"a has shape {tuple(first.shape)} and b {tuple(last.shape)}: give two batches "
            "(S, *input_shape) of the same shape."
        ) from None
    if first.ndim < 2 or not len(first):
        raise DomainError(
            f"a and b have shape {tuple(first.shape)}: give batches (S, *input_shape) of one or "
            "more inputs. For a single segment use Domain.segment."
        )
    flat = [x.reshape(len(first), -1) for x in (first, last)]
    return SegmentBatch(flat[0], flat[1], tuple(first.shape[1:]))


def _finite(value: Any, name: str) -> Tensor:
    """A float64 tensor on the device of ``value``; an entry that is not finite is an error."""
    return require_finite(as_float64(value, name), name)


def _require_length(lengths: Tensor, what: str) -> None:
    """Raise an error, which begins with ``what``, for the first segment of a wrong length."""
    wrong = (lengths < SMALLEST_DOMAIN) | (lengths > LARGEST_DOMAIN)
    if not bool(wrong.any()):
        return
    index = int(wrong.nonzero()[0])
    length = float(lengths[index])
    if length > LARGEST_DOMAIN:
        raise DomainError(
            f"Segment {index} has length {length:.3g}, more than {LARGEST_DOMAIN:.0e}."
        )
    raise DomainError(
        f"{what.format(index)} are equal, or closer than {SMALLEST_DOMAIN:.0e}. A segment needs "
        "two different ends."
    )
