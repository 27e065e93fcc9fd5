"""What a viewer shows: panes side by side, each with one frame or a series of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from splinecam._partition import Partition
from splinecam.geometry.domain import Domain

__all__ = ["Pane"]


@dataclass
class Pane:
    """Partitions of one domain, shown one at a time: epochs, checkpoints, or a single one."""

    title: str
    partitions: Sequence[Partition]
    labels: list[str]
    grows: bool = False

    @property
    def domain(self) -> Domain:
        """The domain that is shown now."""
        return self.partition(0).domain

    def partition(self, frame: int) -> Partition:
        """The partition of a frame."""
        return self.partitions[frame]
