"""Many domains times many networks or checkpoints: one call, one table, one picture."""

from __future__ import annotations

import copy
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from splinecam._util.files import folder_of
from splinecam._util.options import kind_of
from splinecam._util.progress import progress_bar
from splinecam._util.text import TextTable, pandas_if_installed
from splinecam.errors import FileError, SplineCamError
from splinecam.files.loading import WEIGHTS, copy_weights, loaded, read_state_dict
from splinecam.geometry.domain import Domain
from splinecam.jobs.local import local_complexity
from splinecam.jobs.sweep import sweep
from splinecam.network.model_files import instead_of
from splinecam.parallel import engine_for
from splinecam.partitions.captured import Captured
from splinecam.partitions.partition import Partition
from splinecam.partitions.request import Smooth
from splinecam.plot.figures import panel_axes, written
from splinecam.plot.histograms import plot_bands
from splinecam.questions.stats import BATCHED, BOUNDS, batch_stats
from splinecam.stores import manifest
from splinecam.stores.result_store import MANIFEST, ResultStore, Taken, fill, results_in
from splinecam.stores.untrusted import check_entries, damaged, inside
from splinecam.training.runs import Run, Snapshot
from splinecam.training.store import INDEX, open_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Label = int | float | str
Row = dict[str, float]
Report = Callable[[int], Any]


@dataclass(frozen=True)
class Measures:
    """Measures a partition; ``many`` measures several at once, which is much faster."""

    names: tuple[str, ...]  # of statistics, as for ``grid``
    reduce: Callable[[Partition], Any] | None = None  # returns more numbers

    def __call__(self, part: Partition) -> Row:
        return self.many([part])[0]

    def many(self, parts: Sequence[Partition]) -> list[Row]:
        """Return the numbers of each partition by name.

        >>> import splinecam as sc, torch
        >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
        >>> Measures(("NR", "area.max"), lambda part: {"layers": len(part.layers)}).many([part])
        [{'NR': 4, 'area.max': 1.0, 'layers': 1}]
        """
        together = (*BATCHED, *BOUNDS)
        quick = batch_stats(parts, [name for name in self.names if name in together])
        slow = [name for name in self.names if name not in together]
        rows = []
        for k, part in enumerate(parts):
            stats = part.stats() if slow else {}
            row = _flat(
                {name: (quick[name][k] if name in quick else stats[name]) for name in self.names}
            )
            if self.reduce is not None:
                found = self.reduce(part)
                name = getattr(self.reduce, "__name__", "value")
                single = name if name.isidentifier() else "value"  # the name of a single number
                row |= _flat(found if isinstance(found, Mapping) else {single: found})
            rows.append(row)
        return rows


def _flat(numbers: Mapping[str, Any]) -> Row:
    """Return numbers by name; in an inner dict or tuple, the names have a dot between them."""
    row: Row = {}
    for name, value in numbers.items():
        if isinstance(value, tuple):
            value = dict(enumerate(value))
        if isinstance(value, Mapping):
            row |= _flat({f"{name}.{inner}": number for inner, number in value.items()})
            continue
        single = not isinstance(value, Tensor) or value.numel() == 1
        number = value.item() if single and hasattr(value, "item") else value
        if not isinstance(number, Real):
            raise TypeError(
                f"reduce must return numbers by name, but {name} is {type(value).__name__}. To "
                "keep other results of each domain, use sc.sweep(..., reduce=...)."
            )
        row[str(name)] = int(number) if isinstance(number, int) else float(number)
    return row


Rows = Sequence[Mapping[str, float]]

_WORDS = {
    "NR": "regions (NR)",
    "ARV": "mean area (ARV)",
    "ANV": "mean vertices (ANV)",
    "ARE": "mean eccentricity (ARE)",
    "density": "regions per area",
    "local_complexity": "switches along a diameter",
}
_PANEL, _ACROSS = (3.6, 2.5), 2  # inches of a panel; panels side by side


@dataclass(frozen=True, eq=False, repr=False)
class Grid:
    """Numbers of D domains for each of C checkpoints; made by ``sc.grid`` and ``sc.load``.

    checkpoints: the labels (C,) in order; groups: the number of domains of each group; numbers: by
    name, arrays (C, D) with the domains group after group, and nan for missing numbers; folder: the
    store, if there is one.
    """

    checkpoints: tuple[Label, ...]
    groups: Mapping[str, int]
    numbers: Mapping[str, NDArray[Any]]
    folder: Path | None = None

    @classmethod
    def of(
        cls, rows: Mapping[Label, Rows], groups: Mapping[str, int], folder: Path | None = None
    ) -> Grid:
        """Return a grid of the numbers of each domain for each checkpoint."""
        every = [row for some in rows.values() for row in some]
        shape = len(rows), sum(groups.values())
        numbers = {
            name: np.array([row.get(name, np.nan) for row in every]).reshape(shape)
            for name in dict.fromkeys(name for row in every for name in row)
        }
        return cls(tuple(rows), groups, numbers, folder)

    @property
    def statistics(self) -> tuple[str, ...]:
        """The names of the numbers."""
        return tuple(self.numbers)

    def values(self, statistic: str, group: str | None = None) -> NDArray[Any]:
        """Return a statistic for each checkpoint and each domain, of all or of a group, (C, D)."""
        found = self.numbers[self._known(statistic)]
        if group is None:
            return found
        if group not in self.groups:
            raise ValueError(f"there is no group {group!r}; there are {', '.join(self.groups)}")
        return found[:, self._slices()[group]]

    def table(self) -> Any:
        """Return a row per checkpoint and domain: a DataFrame, or without pandas a dict of lists.

        Columns: ``checkpoint``, ``group``, ``domain`` (the number within its group), and the
        statistics.
        """
        count, sizes = len(self.checkpoints), list(self.groups.values())
        columns: dict[str, Any] = {
            "checkpoint": [label for label in self.checkpoints for _ in range(sum(sizes))],
            "group": np.repeat(list(self.groups), sizes).tolist() * count,
            "domain": [k for size in sizes for k in range(size)] * count,
        }
        return _frame(columns | {k: v.reshape(-1) for k, v in self.numbers.items()})

    def summary(self) -> Any:
        """Return the mean and the standard deviation of every statistic, by checkpoint and group.

        A pandas DataFrame, or without pandas a dict of lists, with the columns ``checkpoint``,
        ``group``, ``domains`` (how many), and ``NR_mean``, ``NR_std``, ... The standard deviation
        has D - 1 in the denominator; it is nan for a single domain.
        """
        places = [(label, group) for label in self.checkpoints for group in self.groups]
        columns: dict[str, Any] = {
            "checkpoint": [label for label, _ in places],
            "group": [group for _, group in places],
            "domains": [self.groups[group] for _, group in places],
        }
        for name in self.numbers:
            means, deviations = zip(*self._moments(name), strict=True)
            columns[f"{name}_mean"], columns[f"{name}_std"] = list(means), list(deviations)
        return _frame(columns)

    def to_markdown(self, statistics: Sequence[str] | None = None) -> str:
        """Return a table in Markdown: mean and standard deviation by checkpoint and group.

        statistics: the columns, by default all.
        """
        return self._text(statistics).markdown()

    def to_latex(self, statistics: Sequence[str] | None = None) -> str:
        """Return the table of ``to_markdown`` as a ``tabular`` for the package booktabs.

        statistics: the columns, by default all.
        """
        return self._text(statistics).latex().replace("±", r"$\pm$")

    def plot(
        self,
        statistics: str | Sequence[str] | None = None,
        *,
        band: Literal["mean", "points"] = "mean",
        log: bool | None = None,
        xlabel: str = "epoch",
        axes: Sequence[Axes] | None = None,
    ) -> Figure:
        """Draw statistics over the checkpoints: the mean of each group of domains with a band.

        statistics: the panels, by default all. band: ``"mean"`` for a 95 % confidence interval of
        the mean, or ``"points"`` for the middle 80 % of the domains. log: whether the axes of
        values are logarithmic, by default where the means span more than a decade or so. xlabel:
        what the checkpoints are. axes: one for each panel, instead of a new figure.
        """
        wanted = [statistics] if isinstance(statistics, str) else list(statistics or self.numbers)
        if not wanted or not self.checkpoints:
            raise ValueError("there is nothing to draw: the grid is empty")
        numeric = all(isinstance(label, int | float) for label in self.checkpoints)
        at = self.checkpoints if numeric else range(len(self.checkpoints))
        panels = panel_axes(axes, len(wanted), min(len(wanted), _ACROSS), _PANEL)
        options: Any = {"band": band, "log": log, "xlabel": xlabel}
        for ax, name in zip(panels, wanted, strict=True):
            words = _WORDS.get(name, written(name.replace("_", " ")))
            groups = {group: self.values(name, group) for group in self.groups}
            shown = groups if list(groups) != [""] else groups[""]
            plot_bands(np.array(at, np.float64), shown, ax=ax, ylabel=words, **options)
            if not numeric:
                ax.set_xticks(list(at), [written(str(label)) for label in self.checkpoints])
        figure: Any = panels[0].get_figure()
        return figure  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        count, domains = len(self.checkpoints), sum(self.groups.values())
        groups = "" if list(self.groups) == [""] else f" in {len(self.groups)} groups"
        kept = f", in {self.folder}" if self.folder else ""
        size = f"{count} checkpoint{'s' * (count != 1)} x {domains} domain{'s' * (domains != 1)}"
        return f"Grid({size}{groups}: {', '.join(self.numbers)}{kept})"

    def _repr_html_(self) -> str:
        return self._text(None).html()

    def _known(self, statistic: str) -> str:
        if statistic not in self.numbers:
            known = ", ".join(self.numbers)
            raise ValueError(f"the grid has no statistic {statistic!r}; there are {known}")
        return statistic

    def _slices(self) -> dict[str, slice]:
        """Return the places of each group among the domains."""
        ends = np.cumsum(list(self.groups.values())).tolist()
        sizes = self.groups.items()
        return {name: slice(end - n, end) for (name, n), end in zip(sizes, ends, strict=True)}

    def _moments(self, name: str) -> Iterator[tuple[float, float]]:
        """Yield the mean and the standard deviation by checkpoint, and within it by group."""
        for row in self.numbers[name]:
            for places in self._slices().values():
                some = row[places]
                known = some[~np.isnan(some)].astype(np.float64)
                mean = float(known.mean()) if len(known) else np.nan
                yield mean, float(known.std(ddof=1)) if len(known) > 1 else np.nan

    def _text(self, statistics: Sequence[str] | None) -> TextTable:
        names = [statistics] if isinstance(statistics, str) else list(statistics or self.numbers)
        columns = [list(self._moments(self._known(name))) for name in names]
        labels = [f"{label} {each}".rstrip() for label in self.checkpoints for each in self.groups]
        cells = [[_plus_minus(*column[k]) for column in columns] for k in range(len(labels))]
        return TextTable("", tuple(names), list(zip(labels, cells, strict=True)))


def _plus_minus(mean: float, deviation: float) -> str:
    """Return a mean with its standard deviation as text.

    >>> _plus_minus(12.345, 0.678), _plus_minus(43.9, 210.5)
    ('12.35 ± 0.68', '43.9 ± 210')
    """
    spread = f"{deviation:.2g}"
    if 100 <= deviation < 1e6:
        spread = f"{float(spread):.0f}"
    return f"{mean:.4g}" + ("" if np.isnan(deviation) else f" ± {spread}")


def _frame(columns: Mapping[str, Any]) -> Any:
    """Return a pandas DataFrame, or without pandas a dict of lists."""
    pandas = pandas_if_installed()
    if pandas is None:
        return {name: list(column) for name, column in columns.items()}
    return pandas.DataFrame(columns)


_REMEDY = "Remove the folder, and compute the grid again."  # of damage
_MOST = 1 << 24  # domains of a grid
_LOCAL, _TOGETHER = "local_complexity", 64  # domains whose local complexity is found together
_SECONDS, _ROUNDS = 1.0, 2  # a chunk takes at most 1 s, and a worker gets at least 2 chunks


def grid(
    model: Any,
    domains: Mapping[str, Sequence[Domain]] | Iterable[Domain],
    *,
    checkpoints: Any = None,
    statistics: str | Sequence[str] | None = None,
    reduce: Callable[[Partition], Any] | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **options: Any,
) -> Grid:
    """Measure the partitions of many domains by many networks, or checkpoints of one network.

    The result has the usual table of papers: the mean and the standard deviation of the number of
    regions, their average area, and so on, by checkpoint and group of domains. Partitions are
    measured and not kept.

    model: one network with ``checkpoints``; or several networks, in a dict by name or in another
    iterable, also of pairs of a label and a network. Networks are taken one after the other.

    domains: lists of domains by the name of their group, such as ``{"train": [...], "test":
    [...]}``, or one list.

    checkpoints: weights of the model: state dicts or their paths, in a dict by epoch or in another
    iterable, also of pairs of a label and a state dict; the path of a folder of ``.pt`` or
    ``.safetensors`` files, ordered and labelled by the numbers in their names; or a run of
    ``sc.watch(..., weights=True)``, or its folder. A copy of the model takes the weights one after
    the other, in eval mode; the model itself stays as it is.

    statistics: names of what is measured, as in ``part.stats()``, or ``"density"``, the number of
    regions per area. The default is computed for a hundred partitions at once; other statistics
    take longer than a small partition itself. With ``smooth=``, the default also has ``"bound"``,
    the largest distance of outputs from the maps, and ``"undecided_area"``, the area without a
    certain class. ``"local_complexity"`` stands alone and makes no partition: it counts the
    switches along diameters of the ball inside each square, in 12 directions that are the same for
    all, with ``sc.local_complexity(..., exact=True)``, for inputs of any size. Their mean has the
    same name, and that of a layer ``local_complexity.<layer>``. reduce: a function from a partition
    to more numbers, in a dict by name.

    store: a folder in which every result is kept as soon as it is computed. After an interruption,
    the same call computes only what is missing; more checkpoints may be added. Several processes
    can work on one store. ``sc.load`` opens it.

    progress: show a progress bar in interactive use. options: of ``sc.sweep``, such as n_jobs,
    device, memory, max_regions, output, or smooth for networks with functions such as GELU.

    >>> import splinecam as sc, torch
    >>> model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
    >>> weights = {epoch: nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1)).state_dict()
    ...            for epoch in (0, 10, 20)}
    >>> squares = [sc.Domain.around(x, side=1.0) for x in torch.rand(5, 2)]
    >>> found = grid(model, {"train": squares[:3], "test": squares[3:]}, checkpoints=weights)
    >>> found
    Grid(3 checkpoints x 5 domains in 2 groups: NR, ARV, ANV, ARE, density, boundary_length, \
total_edge_length)
    >>> found.values("NR", "train").shape
    (3, 3)
    """
    if options.get("refine") is not None:
        raise TypeError(
            "refine= is not for grid(), whose statistics need all regions; networks with smooth "
            'functions take smooth=sc.Smooth(1e-3, refine="boundary")'
        )
    groups, accuracy = _groups(domains), Smooth.of(options.get("smooth"))
    if statistics is None:
        statistics = BATCHED if accuracy is None else (*BATCHED, *BOUNDS)
    names = (statistics,) if isinstance(statistics, str) else tuple(statistics)
    if _LOCAL in names and (len(names) > 1 or reduce is not None or accuracy is not None):
        raise ValueError(
            f"{_LOCAL} comes from no partition: let another grid of the same domains measure it, "
            "without other statistics, reduce= or smooth="
        )
    every = [domain for some in groups.values() for domain in some]
    work = _Work(every, Measures(names, reduce), options, accuracy)
    sizes = {name: len(some) for name, some in groups.items()}
    folder = None if store is None else folder_of(store)
    if folder is not None:
        about = {"kind": "grid", "groups": list(sizes.items()), **work.facts}
        with ResultStore(folder, about):
            pass  # a store of another grid is refused
    count = count_of(model, checkpoints)
    total = None if count is None else count * len(work.domains)
    rows: dict[Label, Rows] = {}
    with progress_bar(total, "domain", progress) as bar:
        for label, network in networks_of(model, checkpoints):
            if label in rows:
                raise ValueError(f"there are two checkpoints {label!r}: give each its own label")
            if folder is None:
                found = dict(work.measured(network, bar.update, work.domains))
                rows[label] = [found[place] for place in range(len(found))]
            else:
                rows[label] = work.stored(network, folder, label, len(rows), bar.update)
    return Grid.of(rows, sizes, folder)


def opened(folder: Path) -> Run | Grid | None:
    """The run or the grid in a folder, as far as they are there; None if neither has begun."""
    if (folder / INDEX).is_file():
        return open_run(folder)
    return open_grid(folder) if _identity(folder).get("kind") == "grid" else None


def open_grid(path: Path) -> Grid:
    """The grid in a folder as far as it is computed; missing numbers are nan."""
    about = _identity(path)
    check_entries(about, {"groups": list[tuple[str, int]]}, path, _REMEDY, others=True)
    sizes: dict[str, int] = dict(about["groups"])
    count = sum(sizes.values())
    if count > _MOST:
        raise damaged(path, f"a grid of {count:,} domains", _REMEDY)
    places = [inside(path, each.name) for each in sorted(path.iterdir())]
    parts = [(_identity(each), each) for each in places if each.is_dir()]
    found = [(facts, each) for facts, each in parts if facts.get("kind") == "checkpoint"]
    for facts, each in found:
        check_entries(facts, {"label": float | str, "position": int}, each, _REMEDY, others=True)
    numeric = all(isinstance(facts["label"], int | float) for facts, _ in found)
    found.sort(key=lambda pair: pair[0]["label" if numeric else "position"])
    rows: dict[Label, Rows] = {}
    for facts, each in found:
        done = results_in(each)
        for row in done.values():
            if not isinstance(row, dict) or not all(
                value is None or isinstance(value, int | float | str) for value in row.values()
            ):
                raise damaged(each, "it holds something else than numbers by their names", _REMEDY)
        rows[facts["label"]] = [done.get(k, {}) for k in range(count)]
    return Grid.of(rows, sizes, path)


def _identity(folder: Path) -> dict[str, Any]:
    """Return what the results in a folder are, with their position; empty if there are none."""
    found = manifest.read_manifest(folder / MANIFEST, manifest.RESULTS)
    return {**found.pop("identity"), **found} if found else {}


@dataclass
class _Work:
    """What is computed for each checkpoint."""

    domains: list[Domain]
    measures: Measures
    options: Mapping[str, Any]
    accuracy: Smooth | None  # it is among the options, too
    chunk: int | None = None  # how many domains a worker gets at a time

    def measured(
        self, network: nn.Module, report: Report, domains: Iterable[Domain]
    ) -> Iterator[tuple[int, Mapping[str, float]]]:
        """Yield the place of each domain and its numbers, in any order."""
        if self.measures.names == (_LOCAL,):
            yield from _local_rows(network, report, domains, self.options)
            return
        options: Any = {"chunk": self.chunk, **self.options}
        options |= {"progress": False, "reduce": self.measures}
        begin, count = time.monotonic(), 0
        for place, row in sweep(network, domains, stream=True, order=False, **options):
            report(1)
            count += 1
            yield place, row
        engine = engine_for(self.options.get("n_jobs"))
        if engine is not None and count >= engine.workers:
            # The next network is likely to take as long, so chunks need not begin small.
            rounds = max(_ROUNDS, math.ceil((time.monotonic() - begin) / _SECONDS))
            self.chunk = math.ceil(count / (engine.workers * rounds))

    def stored(
        self, network: nn.Module, folder: Path, label: Label, position: int, report: Report
    ) -> Rows:
        """Return the numbers of all domains, and compute those that the store lacks."""
        smooth, output = self.accuracy is not None, self.options.get("output")
        facts = manifest.model_facts(network, self.domains[0], output, smooth=smooth)
        about = {"kind": "checkpoint", "label": label, **self.facts, **facts}
        digests = dict(enumerate(map(manifest.domain_digest, self.domains)))
        with ResultStore(inside(folder, _name(label)), about, {"position": position}) as store:
            report(len(digests) - len(store.missing(digests)))

            def compute(numbers: Iterator[int]) -> Iterator[tuple[int, Any]]:
                taken = Taken(numbers, self.domains)
                rows = self.measured(network, report, taken)
                yield from ((taken.numbers[place], row) for place, row in rows)

            fill(store, digests, compute)
            return list(store.read(digests))

    @property
    def facts(self) -> dict[str, Any]:
        """What is measured, for a manifest."""
        return {
            "smooth": None if self.accuracy is None else self.accuracy.facts,
            "statistics": self.measures.names,
            "reduce": manifest.function_name(self.measures.reduce),
            "output": manifest.output_name(self.options.get("output")),
        }


def _local_rows(
    network: nn.Module, report: Report, domains: Iterable[Domain], options: Mapping[str, Any]
) -> Iterator[tuple[int, Row]]:
    """Yield the place of each domain, and the mean switches along diameters of the ball in it.

    The directions are those of all domains, so that it does not matter which come together.
    """
    used = ("output", "device", "memory", "max_regions")
    known: Any = {key: options[key] for key in used if key in options}
    squares, begin = iter(domains), 0
    while some := list(islice(squares, _TOGETHER)):
        x = torch.cat([square.embed(square.center[None]) for square in some])
        radius = [square.area**0.5 / 2 for square in some]
        ways = torch.randn(12, *x.shape[1:], generator=torch.Generator().manual_seed(0))
        known |= {"directions": ways, "exact": True, "progress": False}
        found = local_complexity(network, x, radius, **known)
        for k in range(len(some)):
            row = {_LOCAL: found.mean(samples=[k]).value}
            for layer in found.layers:
                row[f"{_LOCAL}.{layer}"] = found.mean(layer, samples=[k]).value
            yield begin + k, row
        report(len(some))
        begin += len(some)


def _groups(domains: Any) -> dict[str, list[Domain]]:
    """Return the domains by group; the group of a single list has no name."""
    if isinstance(domains, Domain) or not isinstance(domains, Mapping | Iterable):
        raise TypeError(
            "domains must be lists of domains by the name of their group, such as {'train': [...], "
            f"'test': [...]}}, or one list, not {kind_of(domains)}"
        )
    given = domains if isinstance(domains, Mapping) else {"": domains}
    groups = {str(name): list(some) for name, some in given.items()}
    for name, some in groups.items():
        for k, domain in enumerate(some):
            if not isinstance(domain, Domain):
                which = f"domains[{name!r}][{k}]" if name else f"domains[{k}]"
                raise TypeError(f"{which} must be a splinecam.Domain, not {kind_of(domain)}")
    if not any(groups.values()):
        raise ValueError("there are no domains to measure")
    return groups


def _name(label: Label) -> str:
    """Return the name of the folder of a checkpoint.

    >>> _name(12), _name("last"), _name("a/b")
    ('checkpoint-00000012', 'checkpoint-last', 'checkpoint-a_b-82badf67')
    """
    text = f"{label:08d}" if isinstance(label, int) and label >= 0 else str(label)
    plain = re.sub(r"[^\w=.,+-]", "_", text)[:64]
    if isinstance(label, str) and (plain != text or text.isdigit() or text != text.lower()):
        plain += f"-{blake2b(text.encode(), digest_size=4).hexdigest()}"
    return f"checkpoint-{plain}"


# -- the networks: models, state dicts, files, or a watched run -----------------------------------

_SUFFIXES = tuple(suffix for suffix in WEIGHTS if suffix != ".npz")


def networks_of(model: Any, checkpoints: Any) -> Iterator[tuple[Label, nn.Module]]:
    """Yield the networks of a grid with their labels; each must be used before the next."""
    if checkpoints is None:
        if isinstance(model, nn.Module | Captured) or _is_path(model):
            model = {"model": model}
        for label, each in _labelled(model, "model"):
            network = loaded(each.model if isinstance(each, Captured) else each)
            if not isinstance(network, nn.Module):
                raise TypeError(
                    f"model[{label!r}] must be an nn.Module, not {instead_of(each)}. For several "
                    "state dicts of one model: sc.grid(model, domains, checkpoints=...)"
                )
            yield label, network
        return
    network = loaded(model.model if isinstance(model, Captured) else model)
    if not isinstance(network, nn.Module):
        raise TypeError(
            "checkpoints= are weights for one model: model must be an nn.Module, not "
            f"{instead_of(model)}"
        )
    network = copy.deepcopy(network).eval()
    for label, each in _labelled(checkpoints, "checkpoints"):
        copy_weights(network, *_weights(label, each))
        yield label, network


def count_of(model: Any, checkpoints: Any) -> int | None:
    """Return how many networks there are, if that is known before they are taken."""
    several = model if checkpoints is None else checkpoints
    if isinstance(several, nn.Module | Captured) or (checkpoints is None and _is_path(model)):
        return 1
    if _is_path(several):
        return sum(1 for _ in _labelled(several, "checkpoints"))
    return len(several) if isinstance(several, Sized) else None


def _labelled(several: Any, name: str) -> Iterator[tuple[Label, Any]]:
    """Yield what was given with labels: keys, numbers of steps, or places in order."""
    if _is_path(several):
        place = Path(several)
        several = open_run(place) if (place / INDEX).is_file() else _files(place)
    if isinstance(several, Run):
        yield from ((snapshot.step, snapshot) for snapshot in several)
    elif isinstance(several, Mapping) and not _is_state(several):
        yield from ((_label(key), each) for key, each in several.items())
    elif isinstance(several, Iterable) and not _is_state(several):
        for place_in_order, each in enumerate(several):
            named = isinstance(each, tuple) and len(each) == 2
            yield (_label(each[0]), each[1]) if named else (place_in_order, each)
    else:
        what = "a single state dict" if _is_state(several) else kind_of(several)
        raise TypeError(
            f"{name} must be several, in a dict by epoch or in a list, or the path of a folder, "
            f"not {what}"
        )


def _weights(label: Label, each: Any) -> tuple[Mapping[str, Tensor], str]:
    """Return the state dict of a checkpoint, and where it is from, in words."""
    if isinstance(each, Snapshot):
        if each.weights is None:
            raise SplineCamError(
                f"Step {label} of the run was recorded without its weights. Record them as well: "
                "sc.watch(..., store='runs/a', weights=True)."
            )
        each = each.weights
    if _is_path(each):
        return read_state_dict(Path(each)), f"in {each}"
    if isinstance(each, nn.Module):
        return each.state_dict(), f"of checkpoint {label}"
    if not _is_state(each):
        what = kind_of(each) if each else f"an empty {kind_of(each)}"
        raise TypeError(
            f"checkpoints[{label!r}] must be a state dict or the path of one, not {what}"
        )
    return each, f"of checkpoint {label}"


def _files(folder: Path) -> dict[Label, Path]:
    """Return the files of weights in a folder, in the order of the numbers in their names."""
    if not folder.is_dir():
        raise FileError(f"There is no folder {folder}.")
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    found = [path for path in visible if path.suffix.lower() in _SUFFIXES]
    if not found:
        raise FileError(f"{folder} has no checkpoints: no file ends in {', '.join(_SUFFIXES)}.")
    words = {path: re.split(r"(\d+)", path.stem) for path in found}
    found.sort(key=lambda path: [int(w) if k % 2 else w for k, w in enumerate(words[path])])
    texts = {tuple(each[::2]) for each in words.values()}
    if len(texts) == 1:  # if names differ in numbers only, the first different one is the label
        for numbers in zip(*(words[path][1::2] for path in found), strict=True):
            labels = [int(number) for number in numbers]
            if len(set(labels)) == len(found):
                return dict(zip(labels, found, strict=True))
    return {path.stem: path for path in found}


def _label(key: Any) -> Label:
    """Return the label of a checkpoint as a plain number or text."""
    plain = key.item() if hasattr(key, "item") else key
    return plain if isinstance(plain, int | float | str) else str(plain)


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def _is_state(value: Any) -> bool:
    """Return whether a value is a dict of tensors by the names of parameters and buffers."""
    return isinstance(value, Mapping) and any(isinstance(item, Tensor) for item in value.values())
