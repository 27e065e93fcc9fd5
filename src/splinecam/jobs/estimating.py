"""The verb ``estimate``: how large a partition will be, before it is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf, sqrt
from time import perf_counter

import torch

from splinecam._util.options import device_of, positive
from splinecam.engine.plan import Plan, first_device
from splinecam.engine.prediction import Prediction, predict
from splinecam.engine.step import Report
from splinecam.errors import LimitError, SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.network.capture import naming_option
from splinecam.network.capture.models import Output
from splinecam.partitions.computing import is_smooth
from splinecam.partitions.request import Model, Request, require_domain

_LONG = 3.0  # seconds after which a run shows an estimate
_RESULT = 150  # bytes of a region in a finished partition
_SMOOTH = "smooth= replaces it in a partition, but no estimate is made of that"  # an error says so


@dataclass(frozen=True, repr=False)
class Estimate:
    """About how many regions a partition has, and how long and how much memory it takes.

    domain: of the partition. prediction: what the numbers follow from.

    >>> Estimate(Domain.box(-1, 1), Prediction(111.0, 20_000.0, 1.4, memory=1200.0, each=2e-6))
    Estimate(about 20,000 regions (14,000 to 28,000), 40 ms, 24 MB)
    """

    domain: Domain
    prediction: Prediction

    @property
    def regions(self) -> int:
        """How many regions are expected."""
        return round(self.prediction.regions)

    @property
    def between(self) -> tuple[int, int]:
        """Numbers between which that of the regions most likely lies; equal if it is exact."""
        count, factor = self.prediction.regions, self.prediction.factor
        return max(1, round(count / factor)), round(count * factor)

    @property
    def seconds(self) -> float:
        """How long the partition takes here, once the model is read."""
        return self.prediction.seconds

    @property
    def memory(self) -> int:
        """The bytes of the partition at the worst moment, unless ``memory=`` limits them."""
        return round(self.prediction.memory * self.prediction.regions)

    def side(self, seconds: float = 60.0, *, regions: float | None = None) -> float:
        """The side of a smaller or larger domain around the same centre that takes so long, about.

        The side of a domain is that of a square of its area; ``domain.zoom`` makes another:
        ``domain.zoom(domain.area**0.5 / side)``. Beyond the domain that was looked at, there may be
        fewer or more regions than expected.

        seconds: how long its partition is to take. regions: how many it is to have, in place of
        that.

        >>> found = Estimate(Domain.box(-1, 1), Prediction(0.0, 99.0, 1.2, memory=0.0, each=0.5))
        >>> round(found.side(regions=100), 2), found.side(seconds=10) < 1
        (2.0, True)
        """
        positive(seconds, "seconds")
        if regions is None:
            regions = self.prediction.regions_in(seconds)
        else:
            positive(regions, "regions")
        return sqrt(self.domain.area) * self.prediction.size(regions)

    def __str__(self) -> str:
        low, high = self.between
        count = f"{self.regions:,} region{'s' * (self.regions != 1)}"
        if low < high:
            low, number, high = map(_rounded, (low, self.regions, high))
            count = f"about {number:,} regions ({low:,} to {high:,})"
        seconds = f"{self.seconds / 60:,.0f} min"
        if self.seconds < 90:
            seconds = _with_unit(1000 * self.seconds, "ms s")
        text = f"{count}, {seconds}, {_with_unit(self.memory / 1000, 'kB MB GB TB')}"
        side = f"a minute for {self._in_place(self.side())}"
        return f"{text}; {side}" if self.seconds > 60 else text

    def __repr__(self) -> str:
        return f"Estimate({self})"

    def _in_place(self, side: float) -> str:
        return f"a side of {side:.2g} in place of {sqrt(self.domain.area):.2g}"

    def advice(self, most: float) -> str:
        """A sentence on how large a domain may be that has no more regions than that."""
        count, fewer = _rounded(self.regions), _rounded(most)
        side = self._in_place(self.side(regions=most))
        return f"About {count:,} regions are expected: {side} has some {fewer:,}."


def _rounded(number: float) -> int:
    return round(float(f"{number:.2g}"))


def _with_unit(number: float, units: str) -> str:
    """A number of at least 1 to two digits, with the first unit in which it is below 1000."""
    number, (unit, *larger) = max(number, 1.0), units.split()
    while number >= 999.5 and larger:
        number, (unit, *larger) = number / 1000, larger
    return f"{float(f'{number:.2g}'):g} {unit}"


def estimate(
    model: Model, domain: Domain, *, output: Output = None, device: str | torch.device = "auto"
) -> Estimate:
    """Estimate how many regions ``partition`` would find, how long it would take, and its memory.

    Small parts of the domain are partitioned exactly, chosen where regions are to be expected. This
    takes some hundredths of a second for small networks, and a few forward passes of large ones.
    The number of regions is right within a factor of 2, and exact if there are few.

    model, domain, output, device: as for ``partition``.

    >>> from torch import nn
    >>> found = estimate(nn.ReLU(), Domain.box(-1, 1))
    >>> found.regions, found.between
    (4, (4, 4))
    """
    request = Request.of("estimate", model, {"output": output, "device": device})
    require_domain(domain)
    with torch.inference_mode(False), torch.no_grad(), naming_option(_SMOOTH):
        place = first_device(request.device, request.model, domain.input_shape)
        program = request.captured(domain.input_shape, place)
        return Estimate(domain, predict(Plan.of(program, device_of(request.device)), domain))


Show = Callable[[str], None]
"""Is called with a text on what a run will come to."""


def announcing(report: Report, show: Show | None, plan: Plan, domain: Domain) -> Report:
    """A report that also shows an estimate, once, as soon as a run takes long."""
    if show is None:
        return report
    due = perf_counter() + _LONG

    def told(name: str, regions: int, share: float) -> None:
        nonlocal due
        report(name, regions, share)
        if perf_counter() > due:
            due = inf
            if not is_smooth(plan.first.program):
                with suppress(SplineCamError):  # the run goes on without
                    show(str(Estimate(domain, predict(plan, domain))))

    return told


@contextmanager
def advising(plan: Plan, domain: Domain, max_regions: int | None) -> Iterator[None]:
    """Let the error of a partition that is too large say how large the domain may be."""
    try:
        yield
    except LimitError as error:
        found = None
        if not is_smooth(plan.first.program):
            with suppress(SplineCamError):
                found = Estimate(domain, predict(plan, domain))
        most = min(plan.last.memory / _RESULT, inf if max_regions is None else max_regions)
        if found is None or found.regions <= most:
            raise
        raise LimitError(f"{error} {found.advice(most)}") from None
