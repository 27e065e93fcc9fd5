"""A network watched while it trains: partitions and numbers at chosen steps."""

from __future__ import annotations

import operator
import os
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from splinecam._util.files import folder_of
from splinecam._util.options import kind_of
from splinecam.errors import SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.jobs.local import local_complexity
from splinecam.jobs.partitioning import partition
from splinecam.jobs.sweep import sweep
from splinecam.network.capture.models import unwrap
from splinecam.partitions.partition import Partition
from splinecam.partitions.request import Request
from splinecam.questions.stats import BOUNDS, batch_stats
from splinecam.training.runs import LOCAL, Run, Snapshot, around_means, squares_around
from splinecam.training.store import FolderStore, MemoryStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Every = int | str | Iterable[int] | Callable[[int], bool]

_PER_DECADE = 20  # steps of "log" per power of ten


def step_filter(every: Every) -> Callable[[int], bool]:
    """Return a function that says whether a step is recorded; every: as for ``watch``.

    >>> [step for step in range(1000) if step_filter(250)(step)]
    [0, 250, 500, 750]
    >>> [step for step in range(20, 40) if step_filter("log")(step)]
    [22, 25, 28, 31, 35, 39]
    """
    if callable(every):
        return lambda step: bool(every(step))
    if isinstance(every, str):
        if every != "log":
            raise ValueError(f'every is {every!r}; give a number, steps, a function, or "log"')
        return _is_log_step
    if isinstance(every, Iterable):
        steps = frozenset(operator.index(step) for step in every)
        return lambda step: step in steps
    try:
        period = operator.index(every)
    except TypeError:
        raise TypeError(
            f'every must be a whole number, steps, a function of the step, or "log", not {every!r}'
        ) from None
    if isinstance(every, bool) or period < 1:
        raise ValueError(f"every must be at least 1, not {every!r}")
    return lambda step: step % period == 0


def _is_log_step(step: int) -> bool:
    """Return whether a power of 10 ** (1 / 20) lies in (step, step + 1], or the step is 0."""
    if step == 0:
        return True
    low, high = np.floor(np.log10([step, step + 1]) * _PER_DECADE)
    return bool(high > low)


def log_steps(last: int, count: int) -> list[int]:
    """Return about ``count`` different steps from 0 to ``last``, spaced nearly logarithmically.

    A network changes fast at first and slowly later, so it changes by about as much between any two
    of these steps.

    last: the number of the last step. count: how many steps, at most.

    >>> log_steps(1000, 10)
    [0, 1, 4, 9, 21, 45, 99, 215, 464, 1000]
    """
    if last < 0 or count < 2:
        raise ValueError(f"give last >= 0 and count >= 2, not {last} and {count}")
    return sorted({round(step) for step in (np.geomspace(1, last + 1, count) - 1).tolist()})


@contextmanager
def temporary_eval_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into eval mode without gradients or autocast; restore modes and random states."""
    # The flags are set one by one: ``train`` and ``eval`` may do more, such as merging weights.
    modes = [(module, module.training) for module in unwrap(model).modules()]
    cuda = torch.cuda.is_available()
    used = cuda and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
    devices = list(range(torch.cuda.device_count())) if used else []
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(torch.no_grad())
        for device in ("cpu", "cuda") if cuda else ("cpu",):
            stack.enter_context(torch.autocast(device, enabled=False))
        try:
            for module, _ in modes:
                module.training = False
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002


def _writing_to(writer: Any) -> Callable[[int, Mapping[str, float]], None]:
    """Return a function that passes the scalars of a step to a writer, or to nobody."""
    if writer is None:
        return lambda step, scalars: None
    methods = ("add_scalar", "log_metrics", "log")
    method = next((name for name in methods if callable(getattr(writer, name, None))), None)
    if method is None:
        raise TypeError(
            "writer must be a SummaryWriter of TensorBoard (add_scalar), a run of Weights & Biases "
            f"(log) or a logger of Lightning (log_metrics), not {kind_of(writer)}"
        )

    def write(step: int, scalars: Mapping[str, float]) -> None:
        named = {f"splinecam/{name}": value for name, value in scalars.items()}
        if method != "add_scalar":
            getattr(writer, method)(named, step=step)
            return
        for name, value in named.items():
            writer.add_scalar(name, value, step)

    return write


_LOCAL = "local_complexity"
_PRECISION = 0.05  # of local complexity at a step, in the curves of a training
_STATISTICS: tuple[str, ...] = ("num_regions", "mean_area", "mean_vertices", "mean_eccentricity")
_STATISTICS += ("lipschitz_plane", "boundary_length")


def watch(
    model: nn.Module,
    domain: Domain,
    *,
    every: Every = 100,
    points: Mapping[str, Any] | None = None,
    radius: float | None = None,
    store: str | os.PathLike[str] | None = None,
    weights: bool = False,
    writer: Any = None,
    statistics: str | Sequence[str] | None = None,
    **options: Any,
) -> Watch:
    """Watch a network while it trains; call ``watch.step(loss=loss)`` once for each training step.

    At chosen steps the partition of the domain is computed for the network in eval mode. Weights,
    gradients, modes and random states stay as they are, bit for bit: training is not disturbed.

    model: the network that is trained, also wrapped by ``torch.compile`` or data parallelism.

    domain: what is partitioned.

    every: which steps are recorded: a number n for 0, n, 2n, ...; a list of steps; ``"log"`` for
    about 20 steps per power of ten; or a function of the step's number. ``sc.training.log_steps``
    gives a list for a run of known length.

    points: inputs by name, such as ``{"train": x_train, "test": x_test, "random": 100}``. Regions
    are counted in a square around each point, in a random plane if inputs have more than two
    numbers. At most 100 points of a group are taken, evenly spaced. A number means so many random
    points: in the domain for inputs of two numbers, otherwise in the box around the given inputs.

    radius: half the side of these squares, by default a twentieth of the domain's diameter.

    store: a folder for the run; ``sc.load`` opens it even while training goes on. Without a
    store everything is kept in memory: partitions up to 2 GiB, and then only scalars.

    weights: also keep the weights of each recorded step in the store: ``sc.grid`` can then look at
    other domains later.

    writer: also gets the scalars: a ``SummaryWriter`` of TensorBoard, a run of Weights & Biases, or
    a logger of Lightning.

    statistics: names of numbers of ``part.stats()`` that become scalars; a dot leads into a
    summary, as in ``"area.median"``. With ``smooth=``, the default also has ``"bound"``, the
    largest distance of outputs from the maps, and ``"undecided_area"``, the area without a certain
    class. ``"local_complexity"`` records how often units switch in balls of the given radius around
    the points, as ``sc.local_complexity`` finds it to 5 %: ``local_<group>`` and, for each layer,
    ``local_<group>.<layer>``, with the ends ``..._low`` and ``..._high`` of their intervals.

    options: for ``sc.partition``, such as device, memory, max_regions, or smooth for networks with
    functions such as GELU.

    >>> import splinecam as sc
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
    >>> watch = sc.watch(model, sc.Domain.box(-1, 1), every=5)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> for _ in range(10):
    ...     loss = (model(torch.rand(50, 2)) ** 2).mean()
    ...     _ = watch.step(loss=loss)
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    >>> _ = watch.snapshot()
    >>> watch.run.steps
    [0, 5, 10]
    """
    request = Request.of("watch", model, {"progress": False, **options})
    if not isinstance(domain, Domain):
        raise TypeError(f"domain must be a splinecam.Domain, not {kind_of(domain)}")
    write = _writing_to(writer)
    groups, side = squares_around(domain, points, radius)
    if statistics is None:
        statistics = _STATISTICS if request.smooth is None else (*_STATISTICS, *BOUNDS)
    names = (statistics,) if isinstance(statistics, str) else tuple(statistics)
    if _LOCAL in names and not groups:
        raise ValueError(f"{_LOCAL} is measured around points: give points= as well")
    if weights and store is None:
        raise ValueError("weights=True is for a store: give store= as well")
    kept: MemoryStore | FolderStore = MemoryStore()
    if store is not None:
        facts = None if request.smooth is None else request.smooth.facts
        kept = FolderStore(folder_of(store), domain, side, weights=weights, smooth=facts)

    def observe(given: Mapping[str, Any]) -> Observed:
        if taken := given.keys() & set(names):
            raise ValueError(f"{min(taken)} is a statistic: give the scalar another name")
        everywhere: Any = {"progress": False, **options}
        with temporary_eval_mode(model):
            part = partition(model, domain, **everywhere)
            scalars = {name: _number(name, value) for name, value in given.items()}
            scalars |= _numbers(part, tuple(name for name in names if name != _LOCAL))
            if _LOCAL in names:
                scalars |= _local_numbers(model, groups, options)
            squares = [square for group in groups.values() for square in group]
            counts = iter(sweep(model, squares, reduce=len, **everywhere) if squares else ())
            around = {name: tuple(next(counts) for _ in group) for name, group in groups.items()}
            part._maps  # noqa: B018 (they are saved, and need the network as it is now)
        return part, scalars, around

    return Watch(model, domain, observe, step_filter(every), kept, side, write)


Observed = tuple[Partition, dict[str, float], dict[str, tuple[int, ...]]]
"""The partition, the given scalars with the statistics, and regions around points."""


class Watch:
    """Counts training steps and records the chosen ones; made by ``sc.watch``.

    model: the network that is watched. domain: what is partitioned.

    In distributed training only the first process records; the others just count.
    """

    def __init__(
        self,
        model: nn.Module,
        domain: Domain,
        observe: Callable[[Mapping[str, Any]], Observed],
        chosen: Callable[[int], bool],
        store: MemoryStore | FolderStore,
        side: float | None,
        write: Callable[[int, Mapping[str, float]], None],
    ) -> None:
        self.model, self.domain, self._observe = model, domain, observe
        self._chosen, self._store, self._side, self._write = chosen, store, side, write
        self._next, self._recorded = 0, False
        self._unnumbered = bool(store.snapshots)  # a continued run begins at an unknown step

    @property
    def run(self) -> Run:
        """What has been recorded so far."""
        return Run(tuple(self._store.snapshots), self._side, self._store.folder)

    def step(self, step: int | None = None, **scalars: Any) -> Snapshot | None:
        """Count a training step; return what is recorded if it is a chosen one, else None.

        step: its number, by default the number of earlier calls; it must be given when a run in a
        store is continued. scalars: numbers, tensors of one number, or functions that return one,
        which are called at chosen steps only, with the model in eval mode.

        An error at the first recorded step is raised. Later errors become warnings, and training
        goes on without a record of the step.
        """
        number = self._count(step)
        return self._record(number, scalars) if self._chosen(number) else None

    def snapshot(self, step: int | None = None, **scalars: Any) -> Snapshot | None:
        """Record the network as it is now, whether or not the step is a chosen one.

        step: its number, by default the number of calls of ``step`` so far, which is the number of
        updates after a loop. The step is not counted. scalars: numbers by name, as for ``step``.
        """
        following = self._next
        number = self._count(step)
        self._next = following if step is None else number
        return self._record(number, scalars)

    def plot(self, **options: Any) -> Figure:
        """Draw regions around points, and the loss, over the steps: see ``plot_run``."""
        return self.run.plot(**options)

    def lightning(self) -> Any:
        """Return a callback for the ``Trainer`` of Lightning, which counts its steps here.

        The network is recorded when training begins, after chosen optimizer steps with the loss of
        the batch, and when training ends. This needs ``splinecam[lightning]``.
        """
        from splinecam.training.lightning_callback import LightningWatch

        return LightningWatch(self.step, self._finish)

    def huggingface(self) -> Any:
        """Return a callback for the ``Trainer`` of Hugging Face, which counts its steps here.

        The network is recorded when training begins, after chosen optimizer steps with the last
        logged loss, and when training ends. This needs ``splinecam[huggingface]``.
        """
        from splinecam.training.huggingface_callback import HuggingFaceWatch

        return HuggingFaceWatch(self.step, self._finish)

    def __repr__(self) -> str:
        return f"Watch({type(self.model).__name__}, next step {self._next:,}, {self.run!r})"

    def _finish(self, step: int, **scalars: Any) -> None:
        """Record the last step, unless it was recorded."""
        if step not in self.run.steps[-1:]:
            self.snapshot(step, **scalars)

    def _count(self, step: int | None) -> int:
        """Return the number of a step, and expect the following one next."""
        if step is None and self._unnumbered:
            raise ValueError(
                f"{self._store.folder} already holds a run, up to step "
                f"{self._store.snapshots[-1].step:,}. To continue it, say at which step training "
                "resumes, watch.step(step, loss=...); otherwise choose another folder."
            )
        number = self._next if step is None else int(step)
        if number < 0:
            raise ValueError(f"step must not be negative, but is {number}")
        self._unnumbered, self._next = False, number + 1
        return number

    def _record(self, step: int, given: Mapping[str, Any]) -> Snapshot | None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized() and distributed.get_rank():
            return None  # only the first process records
        try:
            state = unwrap(self.model).state_dict
            snapshot = self._store.keep(step, *self._observe(given), state)
        except (SplineCamError, MemoryError, torch.OutOfMemoryError) as error:
            if not self._recorded:
                raise
            message = f"Step {step:,} was not recorded: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
            return None
        self._recorded = True
        self._write(step, {**snapshot.scalars, **around_means(snapshot)})
        return snapshot


def _numbers(part: Partition, names: tuple[str, ...]) -> dict[str, float]:
    """Return the named statistics of a partition."""
    if set(names) <= {"num_regions", "NR"}:
        return dict.fromkeys(names, len(part))
    stats, found = part.stats(), {}
    for name in names:
        if name in BOUNDS:
            (found[name],) = batch_stats([part], [name])[name]
            continue
        key, _, inner = name.partition(".")
        found[name] = _number(name, stats[key][inner] if inner else stats[key])
    return found


def _local_numbers(
    model: nn.Module, groups: Mapping[str, list[Domain]], options: Mapping[str, Any]
) -> dict[str, float]:
    """Return the local complexity around the points of each group, in balls within the squares."""
    known = {key: options[key] for key in ("output", "device", "memory") if key in options}
    numbers: dict[str, float] = {}
    for group, squares in groups.items():
        x = torch.cat([square.embed(square.center[None]) for square in squares])
        radius = squares[0].area ** 0.5 / 2
        found = local_complexity(model, x, radius, precision=_PRECISION, progress=False, **known)
        for layer in (None, *found.layers):
            name = LOCAL + group + ("" if layer is None else f".{layer}")
            value, low, high = found.mean(layer)
            numbers |= {name: value, f"{name}_low": low, f"{name}_high": high}
    return numbers


def _number(name: str, value: Any) -> float:
    """Return a scalar as a number; functions are called."""
    value = value() if callable(value) else value
    try:
        number = value.item() if hasattr(value, "item") else value
        return number if isinstance(number, int) else float(number)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be one number, not {value!r}") from None
