"""A recorded step of a training run: a partition and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from splinecam._partition import Partition, load
from splinecam.errors import SplineCamError

__all__ = ["Snapshot", "around_means"]


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot:
    """One recorded step of a training run.

    step: its number; scalars: numbers by name, those that were given and statistics of the
    partition; around: for each group of points, the number of regions around each of them.
    source: the partition itself, the file that holds it, or None if it was not kept.
    """

    step: int
    scalars: Mapping[str, float]
    around: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    source: Partition | Path | None = None

    @property
    def partition(self) -> Partition:
        """The partition, without its model; from a store it is read anew each time."""
        if self.source is None:
            raise SplineCamError(
                f"The partition of step {self.step} was not kept, as memory for partitions was "
                "full. Keep them in files: sc.watch(..., store='runs/a')."
            )
        return load(self.source) if isinstance(self.source, Path) else self.source

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in self.scalars.items())
        return f"Snapshot(step {self.step:,}{': ' * bool(numbers)}{numbers})"


def around_means(snapshot: Snapshot) -> dict[str, float]:
    """The mean number of regions around the points of each group, by ``around_<group>``."""
    return {f"around_{group}": sum(n) / len(n) for group, n in snapshot.around.items()}
