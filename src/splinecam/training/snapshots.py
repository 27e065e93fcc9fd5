"""What was recorded of a training run: a sequence of steps, each with a partition and numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from splinecam._partition import Partition, load
from splinecam.errors import SplineCamError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Run", "Snapshot"]


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


@dataclass(frozen=True, eq=False, repr=False)
class Run(Sequence[Snapshot]):
    """The recorded steps of a training run, in order.

    snapshots: one per recorded step; side: of the squares around points, if there are any;
    folder: where the run is kept, if it is in a store.

    Slices are runs again, so that ``run[::10].plot()`` and ``sc.movie(run[50:], ...)`` work.
    """

    snapshots: tuple[Snapshot, ...]
    side: float | None = None
    folder: Path | None = None

    @overload
    def __getitem__(self, index: int) -> Snapshot: ...
    @overload
    def __getitem__(self, index: slice) -> Run: ...
    def __getitem__(self, index: int | slice) -> Snapshot | Run:
        if isinstance(index, slice):
            return Run(self.snapshots[index], self.side, self.folder)
        return self.snapshots[index]

    def __len__(self) -> int:
        return len(self.snapshots)

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self.snapshots)

    @property
    def steps(self) -> list[int]:
        """The numbers of the recorded steps."""
        return [snapshot.step for snapshot in self.snapshots]

    def table(self) -> Any:
        """One row per recorded step: a pandas DataFrame, or without pandas a dict of lists.

        Columns are the scalars, and for each group of points the mean number of regions around
        them (``around_train``, ...); nan where a step has no such number. Rows are indexed by step.
        """
        rows = [{**each.scalars, **around_means(each)} for each in self.snapshots]
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name, math.nan) for row in rows] for name in names}
        try:
            import pandas
        except ImportError:
            return {"step": self.steps, **columns}
        return pandas.DataFrame(columns, index=pandas.Index(self.steps, name="step"))

    def plot(self, **options: Any) -> Figure:
        """Draw regions around points, and the loss, over the steps: see ``plot_run``."""
        from splinecam.training.curves import plot_run

        return plot_run(self, **options)

    def __repr__(self) -> str:
        steps = self.steps
        span = f", {steps[0]:,} to {steps[-1]:,}" if steps else ""
        kept = f", in {self.folder}" if self.folder else ""
        return f"Run({len(steps):,} step{'s' * (len(steps) != 1)}{span}{kept})"


def around_means(snapshot: Snapshot) -> dict[str, float]:
    """The mean number of regions around the points of each group, by ``around_<group>``."""
    return {
        f"around_{group}": sum(counts) / len(counts) for group, counts in snapshot.around.items()
    }
