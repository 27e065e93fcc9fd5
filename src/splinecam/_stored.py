"""A sweep whose results are kept in a folder: only what is missing there is computed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from splinecam._partition import Partition
from splinecam._smooth_partitioning import NearOutcome, near_partition
from splinecam._sweeping import Sweep, checked
from splinecam._util.options import device_of
from splinecam.analysis.class_names import names_of
from splinecam.analysis.partition_data import Unresolved
from splinecam.analysis.smoothing import Smoothing
from splinecam.engine.run import Outcome
from splinecam.errors import FileError, LimitError, SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.io.partition_files import check_arrays
from splinecam.io.smoothing_arrays import smoothing_read, smoothing_written
from splinecam.network.program import Program
from splinecam.parallel.flat import FlatOutcomes, flat_outcomes, outcomes_of
from splinecam.stores.encoding import VALUES, Codec, decode, encode
from splinecam.stores.filling import Taken, fill
from splinecam.stores.fingerprints import domain_digest, function_name
from splinecam.stores.model_facts import model_facts
from splinecam.stores.result_store import ResultStore

__all__ = ["Run", "stored_sweep"]

Run = Callable[[Iterable[Domain]], Iterator[tuple[int, Any]]]
"""Yields the place and the result of each domain, as they are done."""

_BLOCK = 1024  # domains that are computed before the results of a stream are read


def stored_sweep(
    how: Sweep, run: Run, domains: Iterable[Domain], folder: Path, *, stream: bool
) -> Iterator[Any]:
    """Yield the results in order; those that the folder lacks are computed and written first.

    stream: take so many domains at a time that their results need not be in memory together.
    """
    coming = checked(domains)
    first = next(coming, None)
    if first is None:
        return
    about = {
        "kind": "sweep",
        "smooth": None if how.accuracy is None else how.accuracy.facts,
        **model_facts(how.model, first, how.output, smooth=how.accuracy is not None),
        "reduce": function_name(how.reduce),
    }
    coming, start = chain([first], coming), 0
    restored = _Restored.of(how, first)
    codec = VALUES if how.reduce is not None else restored.codec
    with ResultStore(folder, about, codec=codec) as store:
        while some := list(islice(coming, _BLOCK if stream else None)):
            digests = {start + k: domain_digest(domain) for k, domain in enumerate(some)}
            fill(store, digests, _computing(run, some, start))
            for domain, result in zip(some, store.read(digests), strict=True):
                yield result if how.reduce is not None else restored.partition(domain, result)
            start += len(some)


def _computing(
    run: Run, domains: Sequence[Domain], start: int
) -> Callable[[Iterator[int]], Iterator[tuple[int, Any]]]:
    """Computes some of the domains by their numbers, of which the first one has ``start``."""

    def compute(numbers: Iterator[int]) -> Iterator[tuple[int, Any]]:
        taken = Taken(numbers, domains, start)
        try:
            for place, result in run(taken):
                yield taken.numbers[place], result
        except SplineCamError as error:  # which may name the domain by its place
            named = re.match(r"domains\[(\d+)\]", str(error))
            if named is None:
                raise
            name = f"domains[{taken.numbers[int(named[1])]}]"
            kind = LimitError if isinstance(error, LimitError) else SplineCamError
            raise kind(name + str(error)[named.end() :]) from None

    return compute


@dataclass(frozen=True)
class _Restored:
    """Makes partitions from files of outcomes, whose places are on a device."""

    model: nn.Module
    program: Program
    how: Sweep
    names: tuple[str, ...] | None
    device: torch.device

    @classmethod
    def of(cls, how: Sweep, first: Domain) -> _Restored:
        device = device_of(how.device)
        program = how.captured(first, device)
        names = names_of(how.names, prod(program.output_shape))
        return cls(how.model, program, how, names, device)

    @property
    def codec(self) -> Codec:
        """How partitions are kept: their arrays one after the other, and unresolved places."""
        return Codec(_encode, self._decode, _bytes)

    def _decode(self, arrays: Mapping[str, NDArray[Any]]) -> list[Any]:
        flat, unresolved, *records = decode(arrays)
        columns = {name: _widened(array) for name, array in flat[0].items()}
        outcomes = outcomes_of(FlatOutcomes(columns, *flat[1:]), self.device)
        for k, written in records[0].items() if records else ():
            record = _smoothing(*written).to(self.device)
            outcomes[k] = NearOutcome(**vars(outcomes[k]), record=record)
        return [(outcome, unresolved.get(k, ())) for k, outcome in enumerate(outcomes)]

    def partition(self, domain: Domain, result: Any) -> Partition:
        """The partition of a domain; a ``FileError`` if its arrays do not fit together."""
        try:
            part = self._assembled(domain, *result)
            check_arrays(part)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise FileError(
                f"The store is damaged: {error}. Remove it, and compute its results again."
            ) from error
        return part

    def _assembled(self, domain: Domain, outcome: Outcome, unresolved: Iterable[Any]) -> Partition:
        part = near_partition(
            self.model,
            self.program,
            domain,
            outcome,
            output=self.how.output,
            names=self.names,
        )
        part.unresolved = tuple(Unresolved(tuple(place), *why) for place, *why in unresolved)
        return part


def _encode(parts: Sequence[Partition]) -> dict[str, NDArray[Any]]:
    """The arrays of a file of partitions; maps are left out, which follow from the others."""
    outcomes = [
        Outcome(part.mesh, part.values, part.value_error, part.layer_errors, []) for part in parts
    ]
    columns, *rest = flat_outcomes(outcomes)
    narrow = {name: _narrowed(column) for name, column in columns.items()}
    unresolved = {k: list(part.unresolved) for k, part in enumerate(parts) if part.unresolved}
    records = {k: smoothing_written(part) for k, part in enumerate(parts) if part.smoothing}
    return encode([(narrow, *rest), unresolved, *([records] if records else [])])


def _smoothing(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Smoothing:
    """The record of replaced functions that ``smoothing_written`` has made."""
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    found = smoothing_read(about, arrays, tensors.__getitem__)
    if found is None:
        raise ValueError("there is no record of replaced functions")
    return found


def _bytes(part: Partition) -> int:
    return sum(array.nbytes for array in (part.values, *vars(part.mesh).values()))


def _narrowed(column: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers in 32 bits, if they fit."""
    small = column.dtype == np.int64 and np.abs(column).max(initial=0) < 1 << 31
    return column.astype(np.int32) if small else column


def _widened(column: NDArray[Any]) -> NDArray[Any]:
    return column.astype(np.int64) if column.dtype == np.int32 else column
