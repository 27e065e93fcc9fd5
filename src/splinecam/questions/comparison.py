"""Statistics of several partitions, side by side, and the number of regions by definition.

An activation region is a cell of the partition. A linear region is what neighbouring cells with
equal maps form together. The same map in separate places is one distinct map.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import take
from splinecam._util.text import TextTable, number_text, optional
from splinecam._util.tolerances import EPS, SAFETY, cluster
from splinecam.questions.measures import regions_by_layer
from splinecam.questions.partition_data import PartitionData
from splinecam.questions.stats import SHORT, Stats, stats, tables_text

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
    columns: dict[str, Mapping[str, Any]] = {}
    for name, each in by_name(several).items():
        if not isinstance(each, Mapping) and not hasattr(each, "stats"):
            raise TypeError(f"give partitions or their stats(), not {type(each).__name__}")
        columns[name] = each if isinstance(each, Mapping) else stats(each)
    chosen = [keys] if isinstance(keys, str) else list(keys)
    rows = {key: tuple(_number(each, key) for each in columns.values()) for key in chosen}
    return Comparison(tuple(columns), rows)


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
    """The items of a dict by name, or the items of a list by ``[index]``."""
    if isinstance(several, Mapping) and not isinstance(several, Stats):
        return {str(name): each for name, each in several.items()}
    if isinstance(several, list | tuple):
        return {f"[{k}]": each for k, each in enumerate(several)}
    raise TypeError(
        "give partitions by name, such as {'before': part, 'after': other}, or in a list, "
        f"not {type(several).__name__}"
    )


def _number(found: Mapping[str, Any], key: str) -> float:
    """One number by its key; a plain dict may hold summaries as dicts."""
    name, _, inner = key.partition(".")
    value = found[key] if key in found or not inner else found[name][inner]
    if isinstance(value, int | float):
        return value
    several = value if isinstance(value, Mapping) else range(len(value))
    one = f"{key}.{next(iter(several))}"
    raise ValueError(f"{key!r} has several numbers; choose one, such as {one!r}")


_LAYERS = "cells_by_layer"
_MEANINGS = {
    "activation_regions": "activation regions (one pattern)",
    "linear_regions": "linear regions (connected, one map)",
    "distinct_maps": "distinct maps",
    "unresolved": "maps too close to tell apart",
}


class Counts(dict[str, int]):
    """The result of ``part.counts()``: a dict of whole numbers that prints as a table.

    ``counts["linear_regions"]`` and ``counts.linear_regions`` are the same number. The numbers of
    cells by layer have the names of the layers: ``"cells_by_layer.1"``.

    >>> found = Counts({"activation_regions": 4, "cells_by_layer.1": 3, "cells_by_layer.3": 4})
    >>> found.activation_regions, found.cells_by_layer
    (4, {'1': 3, '3': 4})
    """

    def __init__(self, numbers: Mapping[str, int] | Iterable[tuple[str, int]] = ()) -> None:
        super().__init__(numbers)

    @property
    def activation_regions(self) -> int:
        """The number of cells of the partition: on each, every unit keeps one linear piece."""
        return self["activation_regions"]

    @property
    def linear_regions(self) -> int:
        """The number of connected open sets with one affine map, as large as possible each."""
        return self["linear_regions"]

    @property
    def distinct_maps(self) -> int:
        """The number of different affine maps."""
        return self["distinct_maps"]

    @property
    def unresolved(self) -> int:
        """How often two maps count as equal although rounding does not explain the difference."""
        return self["unresolved"]

    @property
    def cells_by_layer(self) -> dict[str, int]:
        """The number of cells that the layers up to each one make together."""
        start = f"{_LAYERS}."
        return {k.removeprefix(start): n for k, n in self.items() if k.startswith(start)}

    def _tables(self) -> list[TextTable]:
        rows = [(text, [number_text(self[key])]) for key, text in _MEANINGS.items() if key in self]
        layers = [(name, [number_text(n)]) for name, n in self.cells_by_layer.items()]
        both = (("Regions", rows), ("Cells after each layer", layers))
        return [TextTable(title, (), some) for title, some in both if some]

    def __repr__(self) -> str:
        return tables_text(self._tables()) or "Counts()"

    def _repr_html_(self) -> str:
        return "".join(table.html() for table in self._tables())


def counts(part: PartitionData) -> Counts:
    """The number of regions under each of the definitions in use, as a dict that prints as a table.

    - ``activation_regions``: the cells of the partition, which are its regions. Every unit keeps
      one linear piece on a cell.
    - ``linear_regions``: the pieces of ``part.merged()``. Neighbours with equal maps are one
      linear region, however many units switch between them. Regions that only touch at a vertex
      are separate.
    - ``distinct_maps``: the same map in separate places counts once.
    - ``unresolved``: how often two maps count as equal within the tolerance, although their
      difference is larger than rounding explains; usually 0.
    - ``cells_by_layer``: by the name of each layer, the cells that the layers up to this one make
      together, which are the regions of ``part.at_layer``.

    There are at most as many distinct maps as linear regions, and at most as many of these as
    activation regions.

    >>> import torch, splinecam as sc
    >>> model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU(), torch.nn.Hardtanh(-9, 1))
    >>> sc.partition(model, sc.Domain.box(-2, 2), progress=False).counts()
    Regions
      activation regions (one pattern)               9
      linear regions (connected, one map)            9
      distinct maps                                  9
      maps too close to tell apart                   0
    <BLANKLINE>
    Cells after each layer
      1                                              4
      2                                              9
    """
    with torch.no_grad():
        merged = part.merged()
        found, unclear = distinct_maps(part, merged.labels)
        # Across some edges, merged maps differ by more than rounding explains.
        beside, maps = part._edge_faces, part._maps
        a, b = beside[(beside >= 0).all(1)].unbind(1)
        jump = (maps.weight[a] - maps.weight[b]).abs().amax((1, 2))
        error = maps.error[a] + maps.error[b]
        unclear += int(((jump > error) & (jump <= SAFETY * error)).sum())
    numbers = (len(part), len(merged), found, unclear)
    layers = zip(part.layers, regions_by_layer(part), strict=True)
    by_layer = {f"{_LAYERS}.{name}": number for name, number in layers}
    return Counts({**dict(zip(_MEANINGS, numbers, strict=True)), **by_layer})


def distinct_maps(part: PartitionData, labels: Tensor) -> tuple[int, int]:
    """The number of different maps among pieces, and how many pieces are too close to tell.

    labels: (F,) the piece of each region; the region with the most precise map stands for it. Each
    coefficient is compared within the groups that the others leave, until none divides a group.
    """
    order = torch.sort(part._maps.error, stable=True).indices
    own, again = torch.sort(take(labels, order), stable=True)
    first = torch.ones_like(own, dtype=torch.bool)
    first[1:] = own[1:] != own[:-1]
    chosen = take(order, again)[first]
    group, count = torch.zeros_like(chosen), 1
    while True:
        before, unclear = count, torch.zeros_like(chosen, dtype=torch.bool)
        for column in range(3 * part._n_out):
            size = torch.bincount(group, minlength=count)
            shared = (take(size, group) > 1).nonzero()[:, 0]
            if not shared.shape[0]:
                return count, 0
            s, error = _coefficient(part, take(chosen, shared), column)
            order = torch.sort(s, stable=True).indices
            line, again = torch.sort(take(take(group, shared), order), stable=True)
            order = take(order, again)
            made, _, far = cluster(line, take(s, order), take(error, order))
            members = take(shared, order)
            group[members] = count + made
            unclear[members] |= far
            group = torch.unique(group, return_inverse=True)[1]
            count = int(group.max()) + 1
        if count == before:
            return count, int(unclear.sum())


def _coefficient(part: PartitionData, region: Tensor, column: int) -> tuple[Tensor, Tensor]:
    """A slope of an output, or its value at the frame's middle, and its error, (N,) each."""
    maps, (output, which) = part._maps, divmod(column, 3)
    error = take(maps.error, region)
    slope, anchor = take(maps.weight[:, output], region), take(maps.anchor, region)
    if which < 2:
        return slope[:, which], error
    value = take(maps.value[:, output], region)
    size = value.abs() + (slope * anchor).abs().sum(1)
    reach = 1 + anchor.abs().sum(1)
    error = part._value_error[output] + reach * error + EPS * size
    return value - (slope * anchor).sum(1), error
