"""Statistics of several partitions, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splinecam._util.optional import optional
from splinecam._util.text_table import TextTable, number_text
from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.stats import SHORT, Stats, stats

__all__ = ["Comparison", "by_name", "compare"]

_COMPARED = (*SHORT, "eccentricity.median", "slope_spectral.mean_by_area", "lipschitz_plane")


def compare(
    several: Mapping[str, Stats | PartitionData] | Sequence[Stats | PartitionData],
    *,
    keys: Sequence[str] = _COMPARED,
) -> Comparison:
    """A table of some statistics of several partitions, side by side.

    The table prints as text, is displayed in notebooks, and has ``to_frame()``, ``to_latex()`` and
    ``to_markdown()``.

    several: partitions or their statistics, in a dict by name, or in a list. keys: the names of the
    statistics; a number in a summary has a dot, as in ``"area.median"``.

    >>> import torch, splinecam as sc
    >>> relu = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
    >>> boxes = {"small": sc.Domain.box(-1, 1), "large": sc.Domain.box(-2, 2)}
    >>> parts = {name: sc.partition(relu, box, progress=False) for name, box in boxes.items()}
    >>> print(compare(parts, keys=["NR", "area.median"]))
                     small    large
      NR                 4        4
      area.median        1        4
    """
    chosen = [keys] if isinstance(keys, str) else list(keys)
    columns = {name: _stats_of(each) for name, each in by_name(several).items()}
    return Comparison(
        tuple(columns), {key: tuple(_number(s, key) for s in columns.values()) for key in chosen}
    )


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of ``compare``: the names of P partitions, and P numbers for each key.

    >>> table = Comparison(("small", "large"), {"NR": (4, 16), "ARV": (1.0, 0.25)})
    >>> print(table.to_markdown())
    |     | small | large |
    |:----|------:|------:|
    | NR  |     4 |    16 |
    | ARV |     1 |  0.25 |
    """

    names: tuple[str, ...]
    numbers: dict[str, tuple[float, ...]]

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row per partition and a column per key."""
        pandas = optional("pandas", "to_frame", "table")
        return pandas.DataFrame(self.numbers, index=list(self.names))

    def to_dict(self) -> dict[str, dict[str, float]]:
        """The numbers of each partition by name, as plain dicts."""
        return {
            name: {key: row[k] for key, row in self.numbers.items()}
            for k, name in enumerate(self.names)
        }

    def to_latex(self) -> str:
        """The printed table as a ``tabular``, with the rules of the LaTeX package booktabs."""
        return self._table.latex()

    def to_markdown(self) -> str:
        """The printed table in GitHub's Markdown."""
        return self._table.markdown()

    @property
    def _table(self) -> TextTable:
        rows = [(key, [number_text(x) for x in row]) for key, row in self.numbers.items()]
        return TextTable("", self.names, rows)

    def __str__(self) -> str:
        return self._table.text(2 + max(map(len, self.numbers), default=0))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._table.html()


def by_name(several: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """The items of a dict by name, or those of a list by ``[index]``.

    >>> by_name(["this", "that"])
    {'[0]': 'this', '[1]': 'that'}
    """
    if isinstance(several, Mapping) and not isinstance(several, Stats):
        return {str(name): each for name, each in several.items()}
    if isinstance(several, list | tuple):
        return {f"[{k}]": each for k, each in enumerate(several)}
    raise TypeError(
        "give partitions by name, such as {'before': part, 'after': other}, or in a list, "
        f"not {type(several).__name__}"
    )


def _stats_of(each: Any) -> Mapping[str, Any]:
    """The statistics of a partition, or the given statistics."""
    if isinstance(each, Mapping):
        return each
    if not hasattr(each, "stats"):
        raise TypeError(f"give partitions or their stats(), not {type(each).__name__}")
    return stats(each)


def _number(found: Mapping[str, Any], key: str) -> float:
    """One number by its key; a plain dict may hold summaries as dicts."""
    name, _, inner = key.partition(".")
    value = found[key] if key in found or not inner else found[name][inner]
    if isinstance(value, int | float):
        return value
    several = value if isinstance(value, Mapping) else range(len(value))
    raise ValueError(
        f"{key!r} has several numbers; choose one, such as {key + '.' + str(next(iter(several)))!r}"
    )
