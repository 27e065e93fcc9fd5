"""Curves in the plane: segments, and the questions that can be asked about them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.csr import offsets_of, owners_of, places_of
from splinecam._util.shapely_arrays import line_strings
from splinecam.analysis.nearest import nearest
from splinecam.analysis.polylines import Polylines, polylines
from splinecam.analysis.sampling import sample_segments
from splinecam.analysis.segments import Segments

__all__ = ["Curves"]


@dataclass(frozen=True, eq=False, repr=False)
class Curves(Segments):
    """Segments that form curves, with the questions that can be asked about them.

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
        return self.partition.inputs(uv, dtype=dtype, device=device)

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
        counts = lines.offsets.diff()
        offsets = offsets_of(counts + lines.closed.long())
        line = owners_of(offsets.diff(), int(offsets[-1]))
        place = (
            places_of(counts, line, offsets) % counts[line]
        )  # a closed line returns to its start
        return line_strings(offsets, self.points[lines.points[lines.offsets[line] + place]])

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
        return f"{len(self):,} segment{'s' * (len(self) != 1)}"

    def __repr__(self) -> str:
        lines = len(self.polylines)
        return (
            f"{type(self).__name__}({self._summary()}, {lines:,} polyline{'s' * (lines != 1)}, "
            f"length {self.length:.4g})"
        )
