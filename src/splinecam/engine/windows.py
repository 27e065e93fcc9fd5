"""Many domains in windows: groups of similar domains are run as batches, outcomes come in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import torch

from splinecam.engine.batched import run_batch
from splinecam.engine.plan import Plan
from splinecam.engine.run import Outcome, Report
from splinecam.errors import LimitError
from splinecam.geometry.domain import Domain

__all__ = ["run_window"]

# The domains of a batch share their rounding errors: none may be so much larger than another.
_ALIKE = 4.0


def run_window(
    plan: Plan,
    window: list[Domain],
    *,
    max_regions: int | None = None,
    report: Report = lambda name, regions, share: None,
    first: int = 0,
) -> Iterator[Outcome]:
    """Yield the outcome of each domain of a window, in order.

    max_regions: of each domain; first: the number of the first domain, for the message of an error.
    """
    run_group = partial(
        run_batch, plan.first.program, max_regions=max_regions, report=report, plan=plan
    )
    found: dict[int, Outcome] = {}
    due = 0
    for group in _groups(window):
        outcomes = run_group([window[place] for place in group])
        for place in group:
            # The contexts end before an outcome is yielded, or they would hold for the caller, too.
            with torch.inference_mode(False), torch.no_grad():
                try:
                    found[place] = next(outcomes)
                except LimitError as error:
                    raise LimitError(f"domains[{first + place}]: {error}") from None
            while due in found:
                yield found.pop(due)
                due += 1


def _groups(window: list[Domain]) -> list[list[int]]:
    """The places of domains of similar size around inputs of similar size, in ascending groups."""
    inputs = [float(domain.embed(domain.corners).abs().amax(0).mean()) for domain in window]
    sides = [domain.diameter for domain in window]
    groups = [
        sorted(group)
        for nearby in _alike(range(len(window)), inputs)
        for group in _alike(nearby, sides)
    ]
    return sorted(groups)


def _alike(places: Iterable[int], sizes: list[float]) -> list[list[int]]:
    """The places in groups of similar sizes."""
    groups: list[list[int]] = []
    for place in sorted(places, key=lambda place: sizes[place]):
        if not groups or sizes[place] > _ALIKE * sizes[groups[-1][0]]:
            groups.append([])
        groups[-1].append(place)
    return groups
