"""What a picture shows of an atlas: all of it, or a window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from splinecam.analysis.partition_data import PartitionData
from splinecam.atlas.atlas_data import AtlasData
from splinecam.atlas.extracting import Extract, extract
from splinecam.atlas.windows import Box, regions_in
from splinecam.errors import DomainError
from splinecam.geometry.domain import Domain

__all__ = ["Shown", "colors_of"]


@dataclass(frozen=True)
class Shown:
    """What a picture shows of an atlas.

    box: the window, None for the whole; domain: the rectangle, or the whole polygon; regions: those
    in the window by tile, None for all; count: their number.
    """

    atlas: AtlasData
    box: Box | None
    domain: Domain
    regions: dict[int, Tensor] | None
    count: int

    @classmethod
    def of(cls, atlas: AtlasData, box: Box | None) -> Shown:
        """What is in a window, or in the whole atlas."""
        if box is None:
            return cls(atlas, None, atlas.domain, None, len(atlas))
        regions = regions_in(atlas, box)
        count = sum(faces.shape[0] for faces in regions.values())
        if not count:
            raise DomainError(f"The window {list(box)} is outside of the domain.")
        u0, v0, u1, v1 = box
        corners = torch.tensor([[u0, v0], [u1, v0], [u1, v1], [u0, v1]], dtype=torch.float64)
        domain = replace(atlas.domain, corners=corners.to(atlas.domain.corners))
        return cls(atlas, box, domain, regions, count)

    def some(self, count: int) -> Extract:
        """About so many of the regions, evenly chosen, or all of them."""
        step = max(1, -(-self.count // count))
        if self.regions is not None:
            return extract(self.atlas, {k: faces[::step] for k, faces in self.regions.items()})

        def evenly(tile: PartitionData) -> Tensor:
            return torch.arange(0, len(tile), step, device=tile.mesh.uv.device)

        return extract(self.atlas, evenly)

    def colors(self, color: Any, found: Extract) -> Any:
        """What some regions are coloured by, from what was given for the whole atlas."""
        return colors_of(self.atlas, color, found.numbers)


def colors_of(atlas: AtlasData, color: Any, numbers: Tensor) -> Any:
    """The part of an array with an entry for each region of the atlas, or the colour as it is."""
    if color is None or isinstance(color, str):
        return color
    try:
        size = len(color)
    except TypeError:
        return color  # which is wrong, as the picture says
    if size != len(atlas):
        raise ValueError(f"color has {size:,} entries, but the atlas has {len(atlas):,} regions")
    if isinstance(color, Tensor):
        return color[numbers.to(color.device)]
    if isinstance(color, list | tuple):
        return [color[k] for k in numbers.tolist()]
    return color[numbers.cpu().numpy()]
