"""Statistics of one partition or many: the paper's averages, slopes, outputs and boundary.

Partitions around samples are small, so that a hundred together take hardly longer than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam._util.arrays import lengths, owners_of
from splinecam._util.text import TextTable, no_attribute, number_text
from splinecam.geometry.domain import Domain
from splinecam.geometry.subdivision import Mesh
from splinecam.questions.boundary import decision_boundary
from splinecam.questions.certainty import class_band
from splinecam.questions.measures import centroid_values, measures, shapes
from splinecam.questions.partition_data import PartitionData

# The names of the paper, and the longer ones.
_AVERAGED = {"ARV": "area", "ANV": "vertices", "ARE": "eccentricity"}
SHORT = {"NR": "num_regions", **{short: f"mean_{name}" for short, name in _AVERAGED.items()}}
QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
_SUMMARY = ("mean", "mean_by_area", "std", "median", "min", "q05", "q25", "q75", "q95", "max")
_LAYERS, _OUTPUTS = "edges_by_layer", ("output_mean", "output_min", "output_max")
_BOUND = "bound"
_ONLY_FULL = ("slope_spectral_full", "slope_frobenius_full", "lipschitz_input")
_PRINTED = 12  # layers and outputs


def stats(part: PartitionData, *, full: bool = False) -> Stats:
    """Statistics of a partition: a dict of plain numbers that prints as a table.

    - ``NR``, ``ARV``, ``ANV``, ``ARE`` as in the paper: the number of regions, and the averages of
      their areas, numbers of vertices and eccentricities; also called ``num_regions``,
      ``mean_area``, ``mean_vertices``, ``mean_eccentricity``
    - ``num_vertices``, ``num_edges``, ``domain_area``, ``total_area`` of all regions,
      ``total_edge_length``, ``unresolved`` places
    - ``area``, ``vertices``, ``perimeter``, ``diameter``, ``eccentricity``, ``slope_spectral``,
      ``slope_frobenius``: summaries of the columns of ``part.table()``. A summary has the keys
      ``mean``, ``mean_by_area`` (weighted by area, which is the mean over the domain), ``std`` (the
      standard deviation over the regions), ``median``, ``min``, ``max``, ``q05``, ``q25``, ``q75``
      and ``q95``: ``stats["area.median"]``, or ``stats["area"]["median"]``
    - ``edges_by_layer`` (by the names of ``part.layers``), ``border_edges``
    - ``lipschitz_plane``: the Lipschitz constant on the domain, the largest spectral norm
    - ``output_mean`` (the exact integral over the domain, divided by its area), ``output_min``,
      ``output_max``: one number per output, before a final softmax or sigmoid
    - ``boundary_length``: the length of the decision boundary
    - if smooth functions of the model were replaced: ``bound``, one number per output, how far the
      model is from the maps at most; ``undecided_area``, on which no class is certain

    full: also compute the derivative by all inputs on every region, which takes a backward pass per
    output, for ``slope_spectral_full``, ``slope_frobenius_full`` and ``lipschitz_input``, the
    largest spectral norm in input space at points of the domain.

    >>> import torch, splinecam as sc
    >>> relu = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
    >>> found = sc.partition(relu, sc.Domain.box(-1, 1), progress=False).stats()
    >>> found["NR"], found["ARV"], found["lipschitz_plane"], found["output_mean"]
    (4, 1.0, 1.0, (0.25, 0.25))
    """
    with torch.no_grad():
        columns = measures(part, full=full)
        summaries = {k: _summary(v.double(), part.areas) for k, v in columns.items()}
        drawn = torch.bincount(part.mesh.edge_layer + 1, minlength=len(part.layers) + 1)
        edges = edge_numbers(part.layers, drawn.tolist())
        # An affine function has its mean at the centroid, and its maximum at a vertex.
        mean = part.areas @ centroid_values(part) / part.areas.sum()
        outputs = output_numbers(part.names, mean, part.values.amin(0), part.values.amax(0))
        length = decision_boundary(part).length
        a, b = part.mesh.uv[part.mesh.edges].unbind(1)
        sizes = {
            "num_vertices": part.mesh.num_vertices,
            "num_edges": part.mesh.num_edges,
            "domain_area": part.domain.area,
            "total_area": float(part.areas.sum()),
            "total_edge_length": float(lengths(b - a).sum()) * part._frame.scale,
            "unresolved": len(part.unresolved),
        }
        found = composed(summaries, len(part), sizes | edges, outputs, length)
        if part.smoothing is not None:
            names = output_names(part.names, part._bound.shape[0])
            bound = zip(names, part._bound.tolist(), strict=True)
            found.update((f"{_BOUND}.{name}", number) for name, number in bound)
            found["undecided_area"] = class_band(part).area
        return found


class Stats(dict[str, Any]):
    """The result of ``part.stats()``: a dict of plain numbers that prints as a table.

    The keys of summaries, and of numbers per layer or output, have a dot: ``"area.median"``,
    ``"edges_by_layer.1"``, ``"output_mean.0"``; outputs go by the partition's names, if it has
    some. The name before the dot gives the whole group: ``stats["area"]`` is a dict, and
    ``stats["output_mean"]`` a tuple. Names without a dot are attributes, too: ``stats.NR``.
    ``json.dumps``, ``pandas.DataFrame([part.stats()])`` and
    ``pandas.DataFrame({"a": part.stats()})`` accept the dict as it is.

    >>> found = Stats({"NR": 4, "area.mean": 1.0, "area.std": 0.5, "output_mean.0": 2.0})
    >>> found["area"], found["output_mean"], found["area.std"]
    ({'mean': 1.0, 'std': 0.5}, (2.0,), 0.5)
    >>> found.NR, found.area
    (4, {'mean': 1.0, 'std': 0.5})
    """

    def __init__(self, numbers: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__(numbers)

    def __missing__(self, key: str) -> Any:
        if key in self:
            inner = self._group(key)
            return tuple(inner.values()) if key in (*_OUTPUTS, _BOUND) else inner
        hint = " Ask for stats(full=True)." if str(key).partition(".")[0] in _ONLY_FULL else ""
        raise KeyError(f"no statistic {key!r} among {', '.join(self.nested())}.{hint}")

    def __getattr__(self, name: str) -> Any:
        """A number or a group by its name: ``stats.NR``, ``stats.area``."""
        if name.startswith("_") or name not in self:
            raise no_attribute("stats", name, self.nested())
        return self[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.nested()]

    def __contains__(self, key: object) -> bool:
        inner = isinstance(key, str) and (key == _LAYERS or bool(self._group(key)))
        return super().__contains__(key) or inner

    def get(self, key: str, default: Any = None) -> Any:
        """A number or a group of numbers, or the default if there is none."""
        try:
            return self[key]
        except KeyError:
            return default

    def copy(self) -> Stats:
        """A copy of the statistics."""
        return Stats(self)

    def to_dict(self) -> dict[str, float]:
        """The numbers by the same keys, as a plain dict."""
        return dict(self)

    def nested(self) -> dict[str, Any]:
        """A plain dict with a dict for each group, or a tuple for one number per output."""
        names = [*(key.partition(".")[0] for key in self), _LAYERS]  # there may be no layer
        return {name: self[name] for name in dict.fromkeys(names)}

    def _group(self, name: str) -> dict[str, Any]:
        start = f"{name}."
        return {key.removeprefix(start): self[key] for key in self if key.startswith(start)}

    def __repr__(self) -> str:
        return tables_text(_groups(self))

    def _repr_html_(self) -> str:
        return "".join(group.html() for group in _groups(self))


def _summary(values: Tensor, areas: Tensor) -> dict[str, float]:
    """The averages and quantiles of one number per region, (F,)."""
    spread = values.std(correction=0), values.min(), values.max()
    plain = torch.stack([values.mean(), areas @ values / areas.sum(), *spread]).tolist()
    quantiles = np.quantile(values.cpu().numpy(), list(QUANTILES.values())).tolist()
    names = ("mean", "mean_by_area", "std", "min", "max", *QUANTILES)
    return summary_of(dict(zip(names, plain + quantiles, strict=True)))


def summary_of(numbers: Mapping[str, float]) -> dict[str, float]:
    """The numbers of a summary in their order."""
    return {name: numbers[name] for name in _SUMMARY}


def composed(
    summaries: dict[str, dict[str, float]],
    regions: int,
    sizes: dict[str, Any],
    outputs: dict[str, Any],
    boundary_length: float,
) -> Stats:
    """The statistics from their parts; sizes: also the numbers of edges."""
    split = {name: sizes.pop(name) for name in (_LAYERS, "border_edges")}
    means = {f"mean_{k}": summaries[k]["mean"] for k in _AVERAGED.values()}
    named = {"num_regions": regions, **means}
    short = {key: named[name] for key, name in SHORT.items()}
    numbers = {**short, **named, **sizes, **summaries, **split}
    numbers["lipschitz_plane"] = summaries["slope_spectral"]["max"]
    if "slope_spectral_full" in summaries:
        numbers["lipschitz_input"] = summaries["slope_spectral_full"]["max"]
    numbers |= {**outputs, "boundary_length": boundary_length}
    found = Stats()
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            found.update((f"{name}.{inner}", number) for inner, number in value.items())
        else:
            found[name] = value
    return found


def edge_numbers(layers: Sequence[str], counts: Sequence[int]) -> dict[str, Any]:
    """The numbers of edges: by layer, and on the border, which is the first of the counts."""
    return {_LAYERS: dict(zip(layers, counts[1:], strict=True)), "border_edges": counts[0]}


def output_numbers(names: Sequence[str] | None, *columns: Tensor) -> dict[str, Any]:
    """The mean, the smallest and the largest number of each output, from (n_out,) each."""
    names = output_names(names, columns[0].shape[0])
    return {
        key: dict(zip(names, column.tolist(), strict=True))
        for key, column in zip(_OUTPUTS, columns, strict=True)
    }


def output_names(names: Sequence[str] | None, count: int) -> Sequence[str]:
    """The names of outputs, or their numbers if they have none, or two names for one output."""
    return [str(k) for k in range(count)] if names is None or count == 1 else names


def _groups(found: Stats) -> list[TextTable]:
    """The tables that are printed."""

    def singles(title: str, **rows: str) -> TextTable:
        named = [(label, [number_text(found[k])]) for k, label in rows.items() if k in found]
        return TextTable(title, (), named)

    def summaries(title: str, **rows: str) -> TextTable:
        head = tuple(name.replace("mean_by_area", "by area") for name in _SUMMARY)
        head = tuple(f"{int(name[1:])} %" if name[0] == "q" else name for name in head)
        named = [(k, found[name]) for name, k in rows.items() if name in found]
        lines = [(k, [number_text(row[x]) for x in _SUMMARY]) for k, row in named]
        return TextTable(title, head, lines)

    layers = {"border": found["border_edges"], **found[_LAYERS]}
    edges = [(name, [number_text(count)]) for name, count in layers.items()]
    columns = [*_OUTPUTS, *([_BOUND] if _BOUND in found else [])]
    heads = tuple(name.removeprefix("output_") for name in columns)
    outputs = zip(found._group("output_mean"), *(found[k] for k in columns), strict=True)
    rows = [(name, [number_text(x) for x in row]) for name, *row in outputs]
    return [
        singles(
            "Partition",
            num_regions="regions (NR)",
            num_vertices="vertices",
            num_edges="edges",
            domain_area="domain area",
            total_edge_length="total edge length",
            boundary_length="decision boundary length",
            undecided_area="undecided area",
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
        TextTable("Edges by layer", (), few_rows(edges)),
        TextTable("Output", heads, few_rows(rows)),
    ]


def tables_text(tables: Sequence[TextTable]) -> str:
    """Tables one below the other, with labels of the same width."""
    wide = 2 + max((len(label) for table in tables for label, _ in table.rows), default=0)
    return "\n\n".join(table.text(wide) for table in tables)


def few_rows(rows: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """The first rows, and the number of the others."""
    more = len(rows) - _PRINTED
    return rows if more <= 1 else [*rows[:_PRINTED], (f"... and {more:,} more", [])]


BATCHED = (*SHORT, "density", "boundary_length", "total_edge_length")
"""The statistics that are computed together; ``density`` is the number of regions per area."""

BOUNDS = ("bound", "undecided_area")
"""How far any output may be from the maps, and the area without a certain class; 0 if exact."""

_BLOCK = 1 << 22  # outputs at vertices in a block
_ALIKE = 4.0  # how many times larger a rounding error in a block may be than another


def batch_stats(
    parts: Sequence[PartitionData], names: Sequence[str] = BATCHED
) -> dict[str, list[float]]:
    """Some statistics of each partition, as ``part.stats()`` gives them, and the density.

    names: which of ``BATCHED`` and ``BOUNDS`` are wanted.

    >>> import splinecam as sc
    >>> relu = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
    >>> parts = sc.sweep(relu, [sc.Domain.box(-1, 1), sc.Domain.box(-1, 3)], progress=False)
    >>> batch_stats(parts, ("NR", "ARV", "density"))
    {'NR': [4, 4], 'ARV': [1.0, 4.0], 'density': [1.0, 0.25]}
    """
    found: dict[str, list[float]] = {name: [0.0] * len(parts) for name in names}
    for places in _blocks(parts):
        for name, numbers in _measured([parts[place] for place in places], names).items():
            for place, number in zip(places, numbers, strict=True):
                found[name][place] = number
    return found


def _blocks(parts: Sequence[PartitionData]) -> list[list[int]]:
    """The places of partitions with similar rounding errors, which are measured together."""
    if not parts:
        return []
    errors = torch.stack([part._value_error.amax() for part in parts]).tolist()
    blocks: list[list[int]] = []
    size, least = 0, 0.0
    for place in sorted(range(len(parts)), key=lambda place: errors[place]):
        numbers = parts[place].values.numel()
        if not blocks or size + numbers > _BLOCK or errors[place] > _ALIKE * least:
            blocks.append([])
            size, least = 0, errors[place]
        blocks[-1].append(place)
        size += numbers
    return blocks


@torch.no_grad()
def _measured(parts: Sequence[PartitionData], names: Sequence[str]) -> dict[str, list[float]]:
    """The statistics of partitions that fit a block."""
    for part in parts:
        part._require("statistics of regions")
    meshes = [part.mesh for part in parts]
    mesh, device = _united(meshes), meshes[0].uv.device
    counts = torch.tensor([each.num_faces for each in meshes], device=device)
    scale = mesh.uv.new_tensor([part._frame.scale for part in parts])
    face = owners_of(counts, mesh.num_faces)

    def sums(values: Tensor, owner: Tensor) -> Tensor:
        return values.new_zeros(len(parts)).index_add_(0, owner, values)

    def edge_lengths() -> Tensor:
        edges = torch.tensor([each.num_edges for each in meshes], device=device)
        a, b = mesh.uv[mesh.edges].unbind(1)
        return sums(lengths(b - a), owners_of(edges, mesh.num_edges)) * scale

    def boundary_lengths() -> Tensor:
        curves = decision_boundary(_together(parts, mesh))
        return sums(curves.lengths, face[curves.regions.amax(1)]) * scale

    found: dict[str, Callable[[], Tensor]] = {
        "NR": lambda: counts,
        "ARV": lambda: sums(mesh.areas_and_centroids()[0], face) * scale.square() / counts,
        "ANV": lambda: sums(mesh.counts(), face) / counts.to(scale),
        "ARE": lambda: sums(shapes(mesh).eccentricity, face) / counts,
        "density": lambda: counts / scale.new_tensor([part.domain.area for part in parts]),
        "total_edge_length": edge_lengths,
        "boundary_length": boundary_lengths,
        "bound": lambda: torch.stack([part._bound.amax() for part in parts]),
        "undecided_area": lambda: scale.new_tensor([class_band(part).area for part in parts]),
    }
    return {name: found[name]().tolist() for name in names}


def _united(meshes: Sequence[Mesh]) -> Mesh:
    """One mesh of several that do not touch, whatever their coordinates are."""
    vertex = edge = corner = 0
    edges, corners, offsets = [], [], [meshes[0].offsets[:1]]
    for mesh in meshes:
        edges.append(mesh.edges + vertex)
        corners.append(mesh.corners + 2 * edge)
        offsets.append(mesh.offsets[1:] + corner)
        vertex += mesh.num_vertices
        edge += mesh.num_edges
        corner += mesh.corners.shape[0]
    kept = ("uv", "edge_layer", "edge_unit", "vertex_layer")
    others = {name: torch.cat([getattr(mesh, name) for mesh in meshes]) for name in kept}
    numbered = {"edges": torch.cat(edges), "offsets": torch.cat(offsets)}
    return Mesh(corners=torch.cat(corners), **numbered, **others)


def _together(parts: Sequence[PartitionData], mesh: Mesh) -> PartitionData:
    """The united mesh with the outputs of all; its plane coordinates are the local ones."""
    first = parts[0]
    corners = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    plane = Domain(torch.zeros(2), torch.eye(2), corners, (2,))
    values = torch.cat([part.values for part in parts])
    error = torch.stack([part._value_error for part in parts]).amax(0)
    what = first.layers, first.stripped, first._dtype
    return PartitionData(plane, mesh, values, error, {}, (), *what)
