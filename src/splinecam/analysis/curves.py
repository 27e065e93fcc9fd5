"""Curves in the plane: segments that know their regions and hang together in polylines."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from splinecam._util.bvh import BoxTree
from splinecam._util.csr import lengths
from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.polylines import Polylines, polylines

if TYPE_CHECKING:
    from splinecam.analysis.nearest import Nearest

__all__ = ["Curves"]


@dataclass(frozen=True, eq=False, repr=False)
class Curves:
    """S segments between P points of the plane.

    points: (P, 2) plane coordinates; segments: (S, 2) start and end, as indices of points;
    regions: (S, 2) the regions left and right of each segment, the same twice inside a region and
    -1 outside the domain; label: (S,) the curve that it belongs to (see ``key``).

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

    @cached_property
    def polylines(self) -> Polylines:
        """The segments in order, as lines that end where not just two of one label meet."""
        return polylines(self)

    def key(self, label: int) -> Any:
        """What a label means to the reader, such as a pair of classes."""
        return label

    def select(self, chosen: Tensor) -> Self:
        """Only some of the segments, (N,) indices or (S,) booleans."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        rows: dict[str, Any] = {
            name: value[chosen]
            for name, value in values.items()
            if isinstance(value, Tensor) and name != "points"
        }
        return replace(self, **rows)

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
        return self.partition.inputs(uv, dtype=dtype, device=device)

    def sample_uv(self, n: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Plane coordinates (n, 2) of random points on the curves, uniform by length."""
        from splinecam.analysis.sampling import sample_segments

        return sample_segments(self, n, generator)[0]

    def nearest(self, x: Any) -> Nearest:
        """The closest point of the curves to each input."""
        from splinecam.analysis.nearest import nearest

        return nearest(self, x)

    @cached_property
    def local_ends(self) -> Tensor:
        """Both ends of each segment in the engine's own coordinates, (S, 2, 2)."""
        return self.partition.frame.to_local(self.ends)

    @cached_property
    def tree(self) -> BoxTree:
        """The boxes of the segments, for searching, in the engine's own coordinates."""
        return BoxTree(self.local_ends.amin(1), self.local_ends.amax(1))

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """Draw the curves; see ``splinecam.plot.plot_curves``."""
        from splinecam.plot import plot_curves

        return plot_curves(self, ax=ax, **style)

    def plot_samples(self, n: int = 25, **style: Any) -> Any:
        """Show n inputs on the curves as images; see ``splinecam.plot.plot_samples``."""
        from splinecam.plot import plot_samples

        return plot_samples(self, n, **style)

    def _what(self) -> str:
        """What there is, as the reader sees it first."""
        return f"{len(self):,} segment{'s' * (len(self) != 1)}"

    def _repr_html_(self) -> str:
        """A small picture and the main numbers, as notebooks show it."""
        from splinecam.plot.notebook import curves_card

        return curves_card(self)

    def __repr__(self) -> str:
        lines = len(self.polylines)
        return (
            f"{type(self).__name__}({self._what()}, {lines:,} polyline{'s' * (lines != 1)}, "
            f"length {self.length:.4g})"
        )
