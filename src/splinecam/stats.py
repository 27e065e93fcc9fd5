"""Numbers that describe a partition: the paper's statistics, slopes, outputs and boundary."""

from __future__ import annotations

import html
from collections.abc import Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from splinecam.ragged import lengths
from splinecam.table import centroid_values, measures, table

if TYPE_CHECKING:
    from splinecam._partition import Partition

__all__ = ["Stats", "compare", "stats", "table"]

# The paper's names, and what they are short for.
_SHORT = {
    "NR": "num_regions",
    "ARV": "mean_area",
    "ANV": "mean_vertices",
    "ARE": "mean_eccentricity",
}
_QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
_SUMMARY = ("mean", "mean_by_area", "median", "min", "q05", "q25", "q75", "q95", "max")
_COMPARED = (*_SHORT, "eccentricity.median", "slope_spectral.mean_by_area", "lipschitz_plane")
_SHOWN = 12  # layers and outputs that are printed


def stats(part: Partition, *, full: bool = False) -> Stats:
    """Statistics of a partition, as a mapping that prints as a table.

    - ``NR``, ``ARV``, ``ANV``, ``ARE`` as in the paper: the number of regions, and plain averages
      of their areas, numbers of vertices and eccentricities; also ``num_regions``, ``mean_area``,
      ``mean_vertices``, ``mean_eccentricity``
    - ``num_vertices``, ``num_edges``, ``domain_area``, ``total_area`` of all regions,
      ``total_edge_length``, ``unresolved`` places
    - ``area``, ``vertices``, ``perimeter``, ``diameter``, ``eccentricity``, ``slope_spectral``,
      ``slope_frobenius``: summaries of the columns of ``part.table()``. A summary has the keys
      ``mean``, ``mean_by_area`` (weighted: the mean over the domain), ``median``, ``min``, ``max``,
      ``q05``, ``q25``, ``q75`` and ``q95``
    - ``edges_by_layer`` (by the names of ``part.cuts``), ``border_edges``
    - ``lipschitz_plane``: the Lipschitz constant on the domain, the largest spectral norm
    - ``output_mean`` (the exact integral over the domain, divided by its area), ``output_min``,
      ``output_max``: one number per output, before a final softmax or sigmoid
    - ``boundary_length``: of the decision boundary

    With ``full`` the derivative by all inputs is computed on every region, which takes a backward
    pass per output, for ``slope_spectral_full``, ``slope_frobenius_full`` and ``lipschitz_input``,
    the largest spectral norm in input space at points of the domain.

    >>> import torch, splinecam as sc
    >>> relu = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
    >>> found = sc.partition(relu, sc.Domain.box(-1, 1), progress=False).stats()
    >>> found["NR"], found["ARV"], found["lipschitz_plane"], found["output_mean"]
    (4, 1.0, 1.0, (0.25, 0.25))
    """
    with torch.no_grad():
        columns = measures(part, full=full)
        summaries = {k: _summary(v.double(), part.areas) for k, v in columns.items()}
        numbers = {**_paper(summaries, len(part)), **_sizes(part), **summaries, **_edges(part)}
        numbers["lipschitz_plane"] = summaries["slope_spectral"]["max"]
        if full:
            numbers["lipschitz_input"] = summaries["slope_spectral_full"]["max"]
        numbers |= _outputs(part)
        numbers["boundary_length"] = part.decision_boundary().length
    return Stats(numbers)


@dataclass(frozen=True, eq=False, repr=False)
class Stats(Mapping[str, Any]):
    """What ``part.stats()`` gives: plain numbers, dicts and tuples by name."""

    numbers: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        if key in self.numbers:
            return self.numbers[key]
        hint = " Ask for stats(full=True)." if key in _ONLY_FULL else ""
        raise KeyError(f"no statistic {key!r} among {', '.join(self.numbers)}.{hint}")

    def __contains__(self, key: object) -> bool:
        return key in self.numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def keys(self) -> KeysView[str]:
        return self.numbers.keys()

    def __repr__(self) -> str:
        groups = _groups(self)
        wide = 2 + max(len(label) for group in groups for label, _ in group.rows)
        return "\n\n".join(group.text(wide) for group in groups)

    def _repr_html_(self) -> str:
        return "".join(group.html() for group in _groups(self))


_ONLY_FULL = ("slope_spectral_full", "slope_frobenius_full", "lipschitz_input")


def compare(
    several: Mapping[str, Stats | Partition] | Sequence[Stats | Partition],
    *,
    keys: Sequence[str] = _COMPARED,
) -> str:
    """A text table of some numbers of several partitions, side by side.

    several: statistics or partitions, by name or in a list, where they are called by their places.
    keys: names of numbers; a dot leads into a summary, as in ``"area.median"``.

    >>> import torch, splinecam as sc
    >>> relu = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
    >>> boxes = {"small": sc.Domain.box(-1, 1), "large": sc.Domain.box(-2, 2)}
    >>> parts = {name: sc.partition(relu, box, progress=False) for name, box in boxes.items()}
    >>> print(compare(parts, keys=["NR", "area.median"]))
                     small    large
      NR                 4        4
      area.median        1        4
    """

    def look_up(found: Mapping[str, Any], key: str) -> str:
        name, _, inner = key.partition(".")
        return _number(found[name][inner] if inner else found[name])

    columns = {name: _stats_of(each) for name, each in by_name(several).items()}
    rows = [(key, [look_up(found, key) for found in columns.values()]) for key in keys]
    return _Group("", tuple(columns), rows).text(2 + max((len(key) for key in keys), default=0))


def by_name(several: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Several things by their names, those in a list by their places.

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
    """Statistics as they are, and those of a partition."""
    if isinstance(each, Mapping):
        return each
    if not hasattr(each, "stats"):
        raise TypeError(f"give partitions or their stats(), not {type(each).__name__}")
    return stats(each)


# -- the numbers ------------------------------------------------------------------------------


def _summary(values: Tensor, areas: Tensor) -> dict[str, float]:
    """Averages and quantiles of one number per region, (F,)."""
    mean_by_area = areas @ values / areas.sum()
    plain = torch.stack([values.mean(), mean_by_area, values.min(), values.max()])
    names = ("mean", "mean_by_area", "min", "max", *_QUANTILES)
    found = dict(zip(names, torch.cat([plain, _quantiles(values)]).tolist(), strict=True))
    return {name: found[name] for name in _SUMMARY}


def _quantiles(values: Tensor) -> Tensor:
    """The values (F,) at the ranks of ``_QUANTILES``, linear between two ranks."""
    rank = torch.tensor(list(_QUANTILES.values()), dtype=torch.float64) * (len(values) - 1)
    low, high = rank.floor().long(), rank.ceil().long()
    if values.is_cuda:
        ordered = values.sort().values
    else:  # on a CPU a few ranks are found much faster than all
        ordered = torch.from_numpy(np.partition(values.numpy(), torch.cat([low, high]).tolist()))
    below, above = ordered[low.to(values.device)], ordered[high.to(values.device)]
    return below + (rank - low).to(values) * (above - below)


def _paper(summaries: dict[str, dict[str, float]], regions: int) -> dict[str, Any]:
    named = {f"mean_{k}": summaries[k]["mean"] for k in ("area", "vertices", "eccentricity")}
    named = {"num_regions": regions, **named}
    return {**{short: named[name] for short, name in _SHORT.items()}, **named}


def _sizes(part: Partition) -> dict[str, Any]:
    a, b = part.mesh.uv[part.edges].unbind(1)
    return {
        "num_vertices": part.mesh.num_vertices,
        "num_edges": part.mesh.num_edges,
        "domain_area": part.domain.area,
        "total_area": float(part.areas.sum()),
        "total_edge_length": float(lengths(b - a).sum()) * part.frame.scale,
        "unresolved": len(part.unresolved),
    }


def _edges(part: Partition) -> dict[str, Any]:
    border, *counts = torch.bincount(part.edge_op + 1, minlength=len(part.cuts) + 1).tolist()
    return {"edges_by_layer": dict(zip(part.cuts, counts, strict=True)), "border_edges": border}


def _outputs(part: Partition) -> dict[str, Any]:
    # An affine function is at the centroid what it is on average, and largest at a corner.
    mean = part.areas @ centroid_values(part) / part.areas.sum()

    def numbers(values: Tensor) -> tuple[float, ...]:
        return tuple(values.tolist())

    return {
        "output_mean": numbers(mean),
        "output_min": numbers(part.values.amin(0)),
        "output_max": numbers(part.values.amax(0)),
    }


# -- printing ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """A small table with a title: columns, and rows of a label and cells."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, list[str]]]

    def text(self, wide: int) -> str:
        lines = [(self.title, list(self.columns)), *((f"  {k}", cells) for k, cells in self.rows)]
        cell = max(8, *(len(x) for _, cells in lines for x in cells)) if self.columns else 12
        return "\n".join(
            (f"{label:<{wide}}" + "".join(f"{x:>{cell + 1}}" for x in cells)).rstrip()
            for label, cells in lines
        )

    def html(self) -> str:
        def row(tag: str, label: str, cells: Sequence[str]) -> str:
            inner = "".join(f"<{tag}>{html.escape(x)}</{tag}>" for x in cells)
            return f"<tr><th style='text-align:left'>{html.escape(label)}</th>{inner}</tr>"

        body = "".join(row("td", label, cells) for label, cells in self.rows)
        return f"<table>{row('th', self.title, self.columns)}{body}</table>"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _groups(found: Stats) -> list[_Group]:
    """Everything that is printed."""

    def singles(title: str, **rows: str) -> _Group:
        named = [(label, [_number(found[k])]) for k, label in rows.items() if k in found]
        return _Group(title, (), named)

    def summaries(title: str, **rows: str) -> _Group:
        head = tuple(name.replace("mean_by_area", "by area") for name in _SUMMARY)
        head = tuple(f"{int(name[1:])} %" if name[0] == "q" else name for name in head)
        named = [(k, found[name]) for name, k in rows.items() if name in found]
        return _Group(title, head, [(k, [_number(row[x]) for x in _SUMMARY]) for k, row in named])

    layers = {"border": found["border_edges"], **found["edges_by_layer"]}
    outputs = zip(*(found[f"output_{k}"] for k in ("mean", "min", "max")), strict=True)
    return [
        singles(
            "Partition",
            num_regions="regions (NR)",
            num_vertices="vertices",
            num_edges="edges",
            domain_area="domain area",
            total_edge_length="total edge length",
            boundary_length="decision boundary length",
            unresolved="unresolved places",
        ),
        summaries(
            "Regions",
            area="area (mean: ARV)",
            vertices="vertices (mean: ANV)",
            eccentricity="eccentricity (mean: ARE)",
            perimeter="perimeter",
            diameter="diameter",
        ),
        summaries(
            "Slope",
            slope_spectral="spectral norm",
            slope_frobenius="Frobenius norm",
            slope_spectral_full="spectral, input space",
            slope_frobenius_full="Frobenius, input space",
        ),
        singles(
            "Lipschitz constant on the domain",
            lipschitz_plane="within the plane",
            lipschitz_input="in input space",
        ),
        _Group("Edges by layer", (), _few([(k, [_number(x)]) for k, x in layers.items()])),
        _Group(
            "Output",
            ("mean", "min", "max"),
            _few([(str(k), [_number(x) for x in row]) for k, row in enumerate(outputs)]),
        ),
    ]


def _few(rows: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """The first rows, and how many more there are."""
    more = len(rows) - _SHOWN
    return rows if more <= 1 else [*rows[:_SHOWN], (f"... and {more:,} more", [])]
