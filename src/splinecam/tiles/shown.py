"""What a picture shows of an atlas: all of it, or a window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from splinecam.errors import DomainError
from splinecam.geometry.domain import Domain
from splinecam.partitions.partition import Partition
from splinecam.questions.partition_data import PartitionData
from splinecam.tiles.atlas_data import AtlasData
from splinecam.tiles.extracting import (
    Box,
    extract,
    local_box,
    meeting,
    tiles_in,
)

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Shown:
    """What a picture shows of an atlas.

    box: the window, None for the whole; domain: the rectangle, or the whole polygon; tiles: the
    numbers of those in the window; count: the number of regions in it.
    """

    atlas: AtlasData
    box: Box | None
    domain: Domain
    tiles: list[int]
    count: int

    @classmethod
    def of(cls, atlas: AtlasData, box: Box | None) -> Shown:
        """What is in a window, or in the whole atlas."""
        if box is None:
            return cls(atlas, None, atlas.domain, list(range(atlas.num_tiles)), len(atlas))
        local = local_box(atlas.frame, box)
        tiles = tiles_in(atlas, local)
        count = sum(meeting(atlas.tile(k).mesh, local).shape[0] for k in tiles)
        if not count:
            raise DomainError(f"The window {list(box)} is outside of the domain.")
        u0, v0, u1, v1 = box
        corners = torch.tensor([[u0, v0], [u1, v0], [u1, v1], [u0, v1]], dtype=torch.float64)
        domain = replace(atlas.domain, corners=corners.to(atlas.domain.corners))
        return cls(atlas, box, domain, tiles, count)

    def some(self, count: int) -> tuple[Partition, Tensor]:
        """About so many of the regions, evenly chosen, or all of them, and their numbers (F,)."""
        step = max(1, -(-self.count // count))
        local = None if self.box is None else local_box(self.atlas.frame, self.box)

        def evenly(tile: PartitionData) -> Tensor:
            if local is not None:
                return meeting(tile.mesh, local)[::step]
            return torch.arange(0, len(tile), step, device=tile.mesh.uv.device)

        return extract(self.atlas, evenly, self.tiles)


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
