"""The band around a boundary in which a model with smooth functions may have its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.csr import following, offsets_of, owners_of, take, take_rows
from splinecam._util.shapely_arrays import polygons
from splinecam.analysis.partition_data import PartitionData

__all__ = ["Band", "band_of"]


@dataclass(frozen=True, eq=False, repr=False)
class Band:
    """The part of a domain on which bounds leave a question open, as P convex polygons.

    Bounds differ from region to region, so that polygons of neighbouring regions need not meet in
    common corners. A band is empty if the partition is exact.

    partition: what was asked; offsets: (P + 1,) the place in ``vertices`` where each polygon
    begins; vertices: (N, 2) its corners, counter-clockwise, in plane coordinates; regions: (P,) the
    region that it lies in; label: (P,) which of several questions it belongs to, such as the number
    of a level, else 0.
    """

    partition: PartitionData
    offsets: Tensor
    vertices: Tensor
    regions: Tensor
    label: Tensor

    def __len__(self) -> int:
        return int(self.regions.shape[0])

    @cached_property
    def areas(self) -> Tensor:
        """The area of each polygon, (P,)."""
        counts = self.offsets.diff()
        owner = owners_of(counts, self.vertices.shape[0])
        p = self.vertices - take(self.vertices, take(self.offsets, owner))
        q = take(p, following(self.offsets, p.shape[0]))
        cross = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
        return cross.new_zeros(len(self)).index_add_(0, owner, cross).clamp(min=0) / 2

    @cached_property
    def area(self) -> float:
        """The area of all polygons together."""
        return float(self.areas.sum())

    @property
    def share(self) -> float:
        """The same as a share of the domain, between 0 and 1."""
        return self.area / self.partition.domain.area

    def select(self, chosen: Tensor) -> Band:
        """Some of the polygons.

        chosen: their numbers, or a mask (P,).
        """
        index = torch.arange(len(self), device=self.regions.device)[chosen]
        entries, counts = take_rows(self.offsets, index)
        rest = take(self.regions, index), take(self.label, index)
        return Band(self.partition, offsets_of(counts), take(self.vertices, entries), *rest)

    def rings(self) -> tuple[Tensor, Tensor]:
        """The polygons as closed rings, each of which ends with its first corner.

        Returns where each begins, (P + 1,), and the points (N + P, 2) in plane coordinates.
        """
        counts = self.offsets.diff()
        offsets = offsets_of(counts + 1)
        ring = owners_of(counts + 1, int(offsets[-1]))
        place = torch.arange(ring.shape[0], device=ring.device) - offsets[ring]
        return offsets, take(self.vertices, self.offsets[ring] + place % counts[ring])

    def to_shapely(self) -> NDArray[Any]:
        """The polygons as an array of shapely's Polygons in plane coordinates, (P,)."""
        return polygons(self.offsets, self.vertices)

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """Hatch the band.

        ax: where to draw. style: see ``splinecam.plot.plot_band``.
        """
        from splinecam.plot import plot_band

        return plot_band(self, ax=ax, **style)

    def __repr__(self) -> str:
        if not len(self):
            return "Band(empty)"
        count, regions = len(self), int(torch.unique(self.regions).shape[0])
        return (
            f"Band({count:,} polygon{'s' * (count != 1)} in {regions:,} "
            f"region{'s' * (regions != 1)}, area {self.area:.4g}, "
            f"{100 * self.share:.3g} % of the domain)"
        )


def band_of(
    part: PartitionData,
    parts: Iterable[tuple[Tensor, Tensor, Tensor]],
    labels: Sequence[int] | None = None,
) -> Band:
    """The band of several lists of polygons: their offsets, local corners and regions.

    Polygons that rounding has left without any width are dropped. labels: one for each list, else
    all are 0.
    """
    found = list(parts)
    like = part.mesh.offsets
    counts = torch.cat([like[:0], *(offsets.diff() for offsets, _, _ in found)])
    uv = torch.cat([part.mesh.uv[:0], *(uv for _, uv, _ in found)])
    regions = torch.cat([like[:0], *(regions for _, _, regions in found)])
    vertices = part.frame.to_plane(uv)
    label = torch.zeros_like(regions)
    if labels is not None:
        sizes = torch.tensor([len(each) for _, _, each in found], device=like.device)
        label = torch.tensor(labels, device=like.device)[owners_of(sizes, len(regions))]
    band = Band(part, offsets_of(counts), vertices, regions, label)
    return band.select(band.areas > 0)
