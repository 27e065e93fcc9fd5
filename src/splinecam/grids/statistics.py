"""What a grid measures of each partition: statistics by name, and numbers of a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from torch import Tensor

from splinecam._partition import Partition
from splinecam.analysis.batch_stats import BATCHED, BOUNDS, batch_stats

__all__ = ["Measures"]

Row = dict[str, float]


@dataclass(frozen=True)
class Measures:
    """Measures a partition; ``many`` measures several at once, which is much faster.

    names: of statistics, as in ``part.stats()``, or ``"density"``; ``"bound"`` is the largest one
    of all outputs. reduce: gives more numbers.
    """

    names: tuple[str, ...]
    reduce: Callable[[Partition], Any] | None = None

    def __call__(self, part: Partition) -> Row:
        return self.many([part])[0]

    def many(self, parts: Sequence[Partition]) -> list[Row]:
        """The numbers of each partition by name.

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
            numbers = {
                name: quick[name][k] if name in quick else stats[name] for name in self.names
            }
            rows.append({**_flat(numbers), **_reduced(self.reduce, part)})
        return rows


def _reduced(reduce: Callable[[Partition], Any] | None, part: Partition) -> Row:
    """The numbers that the function gives; a single number is called after the function."""
    if reduce is None:
        return {}
    found = reduce(part)
    if isinstance(found, Mapping):
        return _flat(found)
    name = getattr(reduce, "__name__", "value")
    return _flat({name if name.isidentifier() else "value": found})


def _flat(numbers: Mapping[str, Any]) -> Row:
    """Numbers by name; those of an inner dict or tuple by both names with a dot between."""
    row: Row = {}
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            row |= _flat({f"{name}.{inner}": number for inner, number in value.items()})
        elif isinstance(value, tuple):
            row |= _flat({f"{name}.{k}": number for k, number in enumerate(value)})
        else:
            row[str(name)] = _number(name, value)
    return row


def _number(name: str, value: Any) -> float:
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    number = number.item() if hasattr(number, "item") and not isinstance(number, Tensor) else number
    if isinstance(number, Real):
        return int(number) if isinstance(number, int) else float(number)
    raise TypeError(
        f"reduce must return numbers by name, but {name} is {type(value).__name__}. To keep other "
        "results of each domain, use sc.sweep(..., reduce=...)."
    )
