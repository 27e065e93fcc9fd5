"""Compute a grid: every domain for every checkpoint, one checkpoint after the other."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from torch import nn

from splinecam._partition import Partition
from splinecam._smooth_partitioning import Accuracy
from splinecam._sweep import sweep
from splinecam._util.files import folder_of
from splinecam._util.options import kind_of
from splinecam._util.progress import progress_bar
from splinecam.analysis.batch_stats import BATCHED, BOUNDS
from splinecam.errors import FileError
from splinecam.geometry.domain import Domain
from splinecam.grids.checkpoints import Label, count_of, networks_of
from splinecam.grids.result import Grid, Rows
from splinecam.grids.statistics import Measures
from splinecam.parallel import engine_for
from splinecam.stores.filling import Taken, fill
from splinecam.stores.fingerprints import domain_digest, function_name
from splinecam.stores.manifest import read_manifest
from splinecam.stores.model_facts import model_facts, output_name
from splinecam.stores.result_store import ResultStore, results_in
from splinecam.stores.untrusted import check_entries, damaged, inside

__all__ = ["grid", "open_grid"]

_ANEW = "Remove the folder, and compute the grid again."  # what to do about damage
_MOST = 1 << 24  # domains of a grid
_SECONDS, _ROUNDS = 1.0, 2  # that a chunk takes at most, and chunks of a worker at least


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
    """Measure the partitions of many domains by many networks, or checkpoints of one.

    The result has the table that papers show: the mean and the standard deviation of the number of
    regions, their average area, and so on, by checkpoint and group of domains. Partitions are
    measured as they are computed, and not kept.

    model: one network with ``checkpoints``; or several networks in a dict by name, or another
    iterable of networks, or of pairs of a label and a network, each of which is used before the
    next one is taken.

    domains: lists of domains by the name of their group, such as ``{"train": [...], "test":
    [...]}``, or one list.

    checkpoints: weights of the model: state dicts, or paths of them, in a dict by epoch or in
    another iterable, also of pairs of a label and a state dict; the path of a folder of ``.pt`` or
    ``.safetensors`` files, which are ordered and labelled by the numbers in their names; or a run
    that ``sc.watch(..., weights=True)`` has recorded, or its folder. A copy of the model takes the
    weights one after the other, in eval mode; the model itself stays as it is.

    statistics: names of what is measured, as in ``part.stats()``, or ``"density"``, the number of
    regions per area. The default ones are computed for a hundred partitions at once; other ones
    take longer than the partition itself if it is small. With ``smooth=``, the default ones also
    have ``"bound"``, how far any output of the network may be from the maps, and
    ``"undecided_area"``, on which no class is certain. reduce: a function of a partition that
    gives more numbers, in a dict by name.

    store: a folder in which every result is kept as soon as it is computed. The same call computes
    only what is missing, whatever has interrupted the last one; more checkpoints may be added.
    Several processes can work on one store. ``sc.open_grid`` opens it.

    progress: show a progress bar in interactive use. options: those of ``sc.sweep``, such as
    n_jobs, device, memory, max_regions, output, or smooth for networks with GELU and the like.

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
    groups, accuracy = _groups(domains), Accuracy.among(options)
    if statistics is None:
        statistics = BATCHED if accuracy is None else (*BATCHED, *BOUNDS)
    names = (statistics,) if isinstance(statistics, str) else tuple(statistics)
    every = [domain for some in groups.values() for domain in some]
    work = _Work(every, Measures(names, reduce), options, accuracy)
    sizes = {name: len(some) for name, some in groups.items()}
    folder = None if store is None else folder_of(store)
    if folder is not None:
        work.open(folder, sizes)
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


def open_grid(folder: str | os.PathLike[str]) -> Grid:
    """The grid that ``sc.grid(..., store=folder)`` has computed so far.

    It can be opened while the computation goes on, from any process and without the networks;
    numbers that are missing yet are nan. Open it again to see later ones.

    folder: where the grid is stored.
    """
    path = Path(folder)
    about = read_manifest(path)
    if about is None or about.get("kind") != "grid":
        what = "has no grid in it" if path.is_dir() else "is not there"
        raise FileError(f"{path} {what}. A grid is made by sc.grid(..., store=folder).")
    check_entries(about, {"groups": list[tuple[str, int]]}, path, _ANEW, others=True)
    sizes: dict[str, int] = dict(about["groups"])
    if sum(sizes.values()) > _MOST:
        raise damaged(path, f"a grid of {sum(sizes.values()):,} domains", _ANEW)
    places = [inside(path, each.name) for each in sorted(path.iterdir())]
    parts = [(each, read_manifest(each)) for each in places if each.is_dir()]
    found = [(facts, each) for each, facts in parts if facts and facts.get("kind") == "checkpoint"]
    for facts, each in found:
        check_entries(facts, {"label": float | str, "position": int}, each, _ANEW, others=True)
    numeric = all(isinstance(facts["label"], int | float) for facts, _ in found)
    found.sort(key=lambda pair: pair[0]["label" if numeric else "position"])
    rows: dict[Label, Rows] = {}
    for facts, each in found:
        done = results_in(each)
        if not all(
            isinstance(row, dict) and all(map(_is_number, row.values())) for row in done.values()
        ):
            raise damaged(each, "it holds something else than numbers by their names", _ANEW)
        rows[facts["label"]] = [done.get(k, {}) for k in range(sum(sizes.values()))]
    return Grid.of(rows, sizes, path)


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float | str)


@dataclass
class _Work:
    """What is computed for each checkpoint."""

    domains: list[Domain]
    measures: Measures
    options: Mapping[str, Any]
    accuracy: Accuracy | None  # which is among the options
    chunk: int | None = None  # domains that a worker gets at a time

    def measured(
        self, network: nn.Module, report: Callable[[int], Any], domains: Iterable[Domain]
    ) -> Iterator[tuple[int, Mapping[str, float]]]:
        """Yield the place of each domain and its numbers, as they are done."""
        options: Any = {"chunk": self.chunk, **self.options}
        options |= {"progress": False, "reduce": self.measures}
        begin, count = time.monotonic(), 0
        for place, row in sweep(network, domains, stream=True, order=False, **options):
            report(1)
            count += 1
            yield place, row
        engine = engine_for(self.options.get("n_jobs"))
        if engine is not None and count >= engine.workers:
            # The next network is likely to take as long: then chunks need not begin small.
            rounds = max(_ROUNDS, math.ceil((time.monotonic() - begin) / _SECONDS))
            self.chunk = math.ceil(count / (engine.workers * rounds))

    def open(self, folder: Path, sizes: Mapping[str, int]) -> None:
        """Make the store of a grid, or check that it is the same grid."""
        about = {"kind": "grid", "groups": list(sizes.items()), **self._facts()}
        with ResultStore(folder, about):
            pass

    def stored(
        self,
        network: nn.Module,
        folder: Path,
        label: Label,
        position: int,
        report: Callable[[int], Any],
    ) -> Rows:
        """The numbers of all domains; those that the store lacks are computed."""
        smooth, output = self.accuracy is not None, self.options.get("output")
        facts = model_facts(network, self.domains[0], output, smooth=smooth)
        about = {"kind": "checkpoint", "label": label, **self._facts(), **facts}
        digests = dict(enumerate(map(domain_digest, self.domains)))
        with ResultStore(inside(folder, _name(label)), about, {"position": position}) as store:
            report(len(digests) - len(store.missing(digests)))

            def compute(numbers: Iterator[int]) -> Iterator[tuple[int, Any]]:
                taken = Taken(numbers, self.domains)
                rows = self.measured(network, report, taken)
                yield from ((taken.numbers[place], row) for place, row in rows)

            fill(store, digests, compute)
            return list(store.read(digests))

    def _facts(self) -> dict[str, Any]:
        """What is measured, for a manifest."""
        return {
            "smooth": None if self.accuracy is None else self.accuracy.facts,
            "statistics": self.measures.names,
            "reduce": function_name(self.measures.reduce),
            "output": output_name(self.options.get("output")),
        }


def _groups(domains: Any) -> dict[str, list[Domain]]:
    """The domains by group; those of a single list have a group without a name."""
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
    """The name of the folder of a checkpoint.

    >>> _name(12), _name("last"), _name("a/b")
    ('checkpoint-00000012', 'checkpoint-last', 'checkpoint-a_b-82badf67')
    """
    text = f"{label:08d}" if isinstance(label, int) and label >= 0 else str(label)
    plain = re.sub(r"[^\w=.,+-]", "_", text)[:64]
    if isinstance(label, str) and (plain != text or text.isdigit() or text != text.lower()):
        plain += f"-{blake2b(text.encode(), digest_size=4).hexdigest()}"
    return f"checkpoint-{plain}"
