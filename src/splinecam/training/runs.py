"""The recorded steps of a training run, as a sequence, a table and a plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

import numpy as np
import torch
from torch import Tensor

from splinecam._util.options import as_float64, kind_of
from splinecam._util.text import pandas_if_installed
from splinecam.errors import SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.partitions.partition import Partition, load
from splinecam.plot.arrays import Floats
from splinecam.plot.figures import panel_axes, require_matplotlib, written
from splinecam.plot.histograms import Band, is_wide, plot_bands, style_chart
from splinecam.plot.palette import CLASSES, text_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 100  # points of a group
LOCAL = "local_"  # begins the names of scalars of local complexity, before the group
_SHARE = 1 / 20  # the default radius by the domain's diameter


def squares_around(
    domain: Domain, points: Mapping[str, Any] | None, radius: float | None
) -> tuple[dict[str, list[Domain]], float | None]:
    """Return squares around the points of each group, by name, and their side, or None."""
    if points is None:
        if radius is not None:
            raise ValueError("radius belongs to points: give points= as well")
        return {}, None
    if not isinstance(points, Mapping) or not points:
        raise TypeError(
            "points must be inputs by name, such as {'train': x_train, 'test': x_test, "
            f"'random': 100}}, not {kind_of(points)}"
        )
    radius = domain.diameter * _SHARE if radius is None else float(radius)
    if not (math.isfinite(radius) and radius > 0):
        raise ValueError(f"radius must be a positive finite number, not {radius}")
    given = {
        str(name): _inputs(domain, f"points[{name!r}]", x)
        for name, x in points.items()
        if not isinstance(x, int | np.integer)
    }
    generator, seeds = torch.Generator().manual_seed(0), count()
    groups: dict[str, list[Domain]] = {}
    for key, x in points.items():
        name, side = str(key), 2 * radius
        chosen = given[name] if name in given else _random(domain, given, int(x), generator)
        groups[name] = [Domain.around(each, side=side, seed=next(seeds)) for each in chosen]
    return groups, 2 * radius


def _inputs(domain: Domain, name: str, x: Any) -> Tensor:
    """Return at most 100 of the inputs x as (n, *input_shape) in float64 on the CPU."""
    points = as_float64(x, name).cpu()
    shape = tuple(points.shape)
    if shape[1:] not in (domain.input_shape, (domain.dim,)) or not shape[0]:
        raise ValueError(
            f"{name} has shape {shape}; give inputs (N, {', '.join(map(str, domain.input_shape))}) "
            "or a number of random ones"
        )
    chosen = torch.linspace(0, shape[0] - 1, min(shape[0], _MOST)).round().long()
    return points[chosen].reshape(-1, *domain.input_shape)


def _random(
    domain: Domain, given: Mapping[str, Tensor], number: int, generator: torch.Generator
) -> Tensor:
    """Return random inputs (number, *input_shape), in the domain or the box of given inputs."""
    if number < 1:
        raise ValueError(f"give at least 1 random point, not {number}")
    if domain.dim > 2 and given:
        known = torch.cat(list(given.values()))
        low, high = known.amin(0), known.amax(0)
        share = torch.rand(number, *domain.input_shape, dtype=torch.float64, generator=generator)
        return low + share * (high - low)
    corners = domain.corners.cpu()  # the triangles from the first one fill the polygon
    p, q = corners[1:-1] - corners[0], corners[2:] - corners[0]
    area = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
    triangle = torch.multinomial(area, number, replacement=True, generator=generator)
    a, b = torch.rand(2, number, 1, dtype=torch.float64, generator=generator)
    a, b = torch.where(a + b > 1, 1 - a, a), torch.where(a + b > 1, 1 - b, b)
    return domain.embed(corners[0] + a * p[triangle] + b * q[triangle])


_TALL, _LOW, _WIDE = 2.7, 1.25, 5.6  # inches: heights of the first and other panels, the width


def plot_run(
    run: Run,
    *,
    x: str = "step",
    measure: Literal["regions", "area", "local"] | None = None,
    band: Literal["mean", "points"] = "mean",
    scalars: Sequence[str] = ("loss",),
    axes: Sequence[Axes] | None = None,
) -> Figure:
    """Draw regions around points over the steps of a training run, and scalars below.

    A line shows the mean over each group of points, with a band. A run without points shows the
    number of regions of the domain.

    run: from ``watch.run`` or ``sc.load``; ``watch.plot()`` and ``run.plot()`` call this.

    x: the abscissa, ``"step"`` or the name of a scalar such as ``"epoch"``.

    measure: ``"regions"`` in the square around each point, or their average ``"area"``: the area of
    the square divided by their number; or ``"local"`` for the local complexity, all layers together
    and each on its own, with 99 % intervals as bands. By default ``"local"`` if it was recorded,
    else ``"regions"``.

    band: ``"mean"`` for a 95 % confidence interval of the mean (1.96 standard errors), or
    ``"points"`` for the middle 80 % of the points.

    scalars: the names of the scalars below, each in a panel of its own, if the run has them.

    axes: one for the regions and one for each drawn scalar, instead of a new figure.

    >>> import splinecam as sc, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> points = {"train": torch.rand(20, 2), "random": 20}
    >>> watch = sc.watch(model, sc.Domain.box(-1, 1), every=1, points=points)
    >>> for k in range(4):
    ...     _ = watch.step(loss=1 / (k + 1))
    >>> len(watch.plot().axes)
    2
    """
    require_matplotlib()
    if not len(run):
        raise ValueError("there is nothing to draw: no step has been recorded")
    local = _local_names(run)
    measure = measure or ("local" if local else "regions")
    if measure not in ("regions", "area", "local"):
        raise ValueError(f'measure is {measure!r}; choose "regions", "area" or "local"')
    if measure == "local" and not local:
        raise ValueError('the run has no local complexity: watch statistics="local_complexity"')
    if band not in get_args(Band):
        raise ValueError(f'band is {band!r}; choose "mean" or "points"')
    names = [scalars] if isinstance(scalars, str) else list(scalars)
    names = [name for name in names if any(name in each.scalars for each in run)]
    at = _column(run, x)
    shown = local if measure == "local" else {"": []}
    panels = _panels(axes, len(shown) + len(names))
    if measure == "local":
        for ax, (layer, keys) in zip(panels, shown.items(), strict=False):
            _draw_local(ax, run, at, layer, keys)
    else:
        _draw_regions(panels[0], run, at, measure, band)
    for ax, name in zip(panels[len(shown) :], names, strict=True):
        values = _column(run, name)
        ax.plot(at, values, color=text_color(ax.figure), linewidth=1.2)
        ax.set_ylabel(written(name.replace("_", " ")), fontsize=9)
        if is_wide(values):
            ax.set_yscale("log")
    for ax in panels:
        style_chart(ax, at)
    panels[-1].set_xlabel(written(x.replace("_", " ")), fontsize=9)
    figure: Any = panels[0].get_figure()
    if axes is None:
        figure.align_ylabels(panels)
    return figure  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot:
    """One recorded step of a training run.

    step: its number; scalars: numbers by name, given ones and statistics of the partition; around:
    for each group of points, the number of regions around each point. source: the partition, its
    file, or None if it was not kept; weights: the file of the weights for ``sc.grid`` and
    ``torch.load``, or None if they were not kept.
    """

    step: int
    scalars: Mapping[str, float]
    around: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    source: Partition | Path | None = None
    weights: Path | None = None

    @property
    def partition(self) -> Partition:
        """The partition, without its model; in a store, it is read from its file each time."""
        if self.source is None:
            raise SplineCamError(
                f"The partition of step {self.step} was not kept: the memory for partitions was "
                "full. Keep them in files: sc.watch(..., store='runs/a')."
            )
        return load(self.source) if isinstance(self.source, Path) else self.source

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in self.scalars.items())
        return f"Snapshot(step {self.step:,}{': ' * bool(numbers)}{numbers})"


@dataclass(frozen=True, eq=False, repr=False)
class Run(Sequence[Snapshot]):
    """The recorded steps of a training run, in order.

    snapshots: one per recorded step; side: the side of the squares around points, if there are any;
    folder: the store, if there is one.

    A slice is a run again: ``run[::10].plot()`` and ``sc.movie(run[50:], ...)`` work.
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

    @property
    def steps(self) -> list[int]:
        """The numbers of the recorded steps."""
        return [snapshot.step for snapshot in self.snapshots]

    def table(self) -> Any:
        """Return a row per recorded step: a pandas DataFrame, or without pandas a dict of lists.

        The columns are the scalars, and for each group of points the mean number of regions around
        them (``around_train``, ...); missing numbers are nan. Rows are indexed by step.
        """
        rows = [{**each.scalars, **around_means(each)} for each in self.snapshots]
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name, math.nan) for row in rows] for name in names}
        pandas = pandas_if_installed()
        if pandas is None:
            return {"step": self.steps, **columns}
        return pandas.DataFrame(columns, index=pandas.Index(self.steps, name="step"))

    def __repr__(self) -> str:
        steps = self.steps
        span = f", {steps[0]:,} to {steps[-1]:,}" if steps else ""
        kept = f", in {self.folder}" if self.folder else ""
        return f"Run({len(steps):,} step{'s' * (len(steps) != 1)}{span}{kept})"

    def plot(self, **options: Any) -> Figure:
        """Draw regions around points, and the loss, over the steps: see ``plot_run``."""
        return plot_run(self, **options)


def around_means(snapshot: Snapshot) -> dict[str, float]:
    """Return the mean number of regions around the points of each group, as ``around_<group>``."""
    return {f"around_{group}": sum(n) / len(n) for group, n in snapshot.around.items()}


def _local_names(run: Run) -> dict[str, list[str]]:
    """Return the scalars of local complexity by layer, of which the first one means all."""
    names = dict.fromkeys(key for each in run for key in each.scalars)
    groups = dict.fromkeys(group for each in run for group in each.around)
    found: dict[str, list[str]] = {}
    for group in groups:
        begin = LOCAL + group
        for name in names:
            if name == begin or (name.startswith(f"{begin}.") and f"{name}_low" in names):
                found.setdefault(name[len(begin) + 1 :], []).append(name)
    return found


def _draw_local(ax: Axes, run: Run, at: Floats, layer: str, names: list[str]) -> None:
    """Draw the local complexity of each group in a layer, with its interval."""
    for k, name in enumerate(names):
        value, low, high = (_column(run, name + end) for end in ("", "_low", "_high"))
        color, group = CLASSES[k % len(CLASSES)], name.removeprefix(LOCAL)
        label = written(group.removesuffix(f".{layer}") if layer else group)
        ax.fill_between(at, low, high, color=color, alpha=0.18, linewidth=0)
        ax.plot(at, value, color=color, linewidth=1.6, label=label)
    words = f"switches in layer {layer}" if layer else "switches along a diameter"
    ax.set_ylabel(written(words), fontsize=9)
    if not layer:
        ax.legend(frameon=False, fontsize=8)


def _draw_regions(ax: Axes, run: Run, at: Floats, measure: str, band: Band) -> None:
    """Draw a line and a band for each group of points, or the number of regions of the domain."""
    groups = list(dict.fromkeys(group for each in run for group in each.around))
    if not groups:
        total = [each.scalars.get("num_regions", np.nan) for each in run]
        ax.plot(at, total, color=CLASSES[0], linewidth=1.6)
        ax.set_ylabel("regions of the domain", fontsize=9)
        return
    side = np.float64(run.side or np.nan)
    what = "mean area of regions" if measure == "area" else "regions"
    around = {group: [each.around.get(group, ()) for each in run] for group in groups}
    counts = {  # (steps, points), or nan
        group: np.array([*zip_longest(*found, fillvalue=np.nan)], np.float64).T
        for group, found in around.items()
    }
    values = {group: side**2 / n if measure == "area" else n for group, n in counts.items()}
    label, log = f"{what}\nin a square of side {side:.3g}", True if measure == "area" else None
    plot_bands(at, values, ax=ax, band=band, log=log, xlabel="", ylabel=label)


def _column(run: Run, name: str) -> Floats:
    """Return the number or a scalar of each step; nan where there is none."""
    if name == "step":
        return np.array(run.steps, np.float64)
    if not any(name in each.scalars for each in run):
        known = ", ".join(dict.fromkeys(key for each in run for key in each.scalars))
        raise ValueError(f"the run has no scalar {name!r}; there are: step, {known}")
    return np.array([each.scalars.get(name, np.nan) for each in run], np.float64)


def _panels(axes: Sequence[Axes] | None, count: int) -> list[Axes]:
    """Return the given axes, or those of a new figure, one above the other."""
    import matplotlib.pyplot as plt

    if axes is not None:
        return panel_axes(axes, count)
    heights = [_TALL] + [_LOW] * (count - 1)
    grid: Any = {"height_ratios": heights, "sharex": True, "squeeze": False}
    size = (_WIDE, sum(heights) + 0.5)
    _, panels = plt.subplots(count, 1, figsize=size, layout="constrained", **grid)
    return list(panels[:, 0])
