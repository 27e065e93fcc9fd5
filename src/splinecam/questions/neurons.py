"""Neuron curves: where in the domain single units switch, and which units never do.

An edge records the first unit that drew it, but other units may switch on it, too. The activation
patterns of the two regions beside an edge tell which curves the edge belongs to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import prod
from typing import Self

import torch
from torch import Tensor

from splinecam._util.arrays import offsets_of, take
from splinecam._util.backend import backend_of
from splinecam.network.nonlinearities import MaxNonlinearity, PiecewiseScalar, SortNonlinearity
from splinecam.questions.curves import Curves
from splinecam.questions.measures import layer_index, layer_names
from splinecam.questions.partition_data import PartitionData, counted

_TABLE = 1 << 26  # pieces of units held at a time

Units = int | Sequence[int] | Tensor | None


@dataclass(frozen=True, eq=False, repr=False)
class NeuronCurves(Curves):
    """The segments on which units switch; the unit's higher piece is on the left of each segment.

    Every segment is an edge of the partition, and occurs once for each unit that switches on it.
    ``label`` numbers the units of all layers consecutively and ascends; ``layer`` and ``unit`` say
    the same in two numbers, as ``part.mesh`` does for edges. A unit with several breakpoints has
    several curves with one label. The unit of a maximum is a group, and its piece is the winner's
    flat index. The unit of a sorting is the first of the two that change places, and the unit of a
    registered operation is one of its functions.
    """

    @cached_property
    def layer(self) -> Tensor:
        """Index into the partition's ``layers``, (S,)."""
        return self._layer_of(self.label)

    @cached_property
    def unit(self) -> Tensor:
        """Flat index of the unit in its layer, (S,)."""
        return self.label - self._first[self.layer]

    def key(self, label: int) -> tuple[str, int]:
        """The name of the layer and the unit that a label stands for."""
        layer = int(self._layer_of(self.label.new_tensor(label)))
        return self.partition.layers[layer], int(label - self._first[layer])

    def of(self, *, layer: str | int | None = None, unit: Units = None) -> Self:
        """Only the curves of some units, given as for ``part.neurons``.

        layer: may be left out where the curves are of one layer.

        >>> from torch import nn
        >>> import splinecam as sc
        >>> model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
        >>> part = sc.partition(model, sc.Domain.box(-9, 9), progress=False)
        >>> part.neurons(layer="1").of(unit=2)
        NeuronCurves(1 unit of '1', ...
        """
        layers = torch.unique(self.layer).tolist()
        if layer is None and unit is not None and len(layers) == 1:
            layer = layers[0]
        return self.select(_chosen(self.partition, layer, unit)[self.label])

    @cached_property
    def units(self) -> Tensor:
        """The units that switch somewhere, as (layer, unit), ascending, (U, 2)."""
        label: Tensor = torch.unique(self.label)
        layer = self._layer_of(label)
        return torch.stack([layer, label - self._first[layer]], 1)

    @cached_property
    def unit_lengths(self) -> Tensor:
        """Length of the curves of each of ``units``, (U,)."""
        place = torch.unique(self.label, return_inverse=True)[1]
        return self.lengths.new_zeros(self.units.shape[0]).index_add_(0, place, self.lengths)

    def longest(self) -> Self:
        """The curves of the unit whose curves are longest."""
        if not len(self):
            return self
        layer, unit = self.units[self.unit_lengths.argmax()]
        return self.select(self.label == self._first[layer] + unit)

    @cached_property
    def _first(self) -> Tensor:
        return _first_labels(self.partition)

    def _layer_of(self, label: Tensor) -> Tensor:
        return torch.searchsorted(self._first, label, right=True) - 1

    def _summary(self) -> str:
        count, layers = self.units.shape[0], torch.unique(self.units[:, 0]).tolist()
        of = f" of {self.partition.layers[layers[0]]!r}" if len(layers) == 1 else ""
        return f"{counted(count, 'unit')}{of}, {super()._summary()}"


def neurons(
    part: PartitionData, *, layer: str | int | None = None, unit: Units = None
) -> NeuronCurves:
    """The curves on which units switch: of all units, of one layer, or of some units of a layer.

    layer: a name of ``part.layers``, or an index into them; or a module in which there is only one
    layer (``"block1"`` for ``"block1.relu"``), or the module right before the layer (``"fc2"`` for
    ``relu(fc2(x))``). unit: flat index or indices in that layer; the group of a maximum, and the
    first of a pair of sorted units.

    The domain's border belongs to no curve.

    >>> from torch import nn
    >>> import splinecam as sc
    >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> model[0].load_state_dict({"weight": torch.eye(2), "bias": torch.zeros(2)})
    <All keys matched successfully>
    >>> part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    >>> part.neurons(layer="1")
    NeuronCurves(2 units of '1', 4 segments, 2 polylines, length 4)
    >>> part.neurons(layer="1", unit=0).ends[:, :, 0].abs().max()  # where x is 0
    tensor(0., dtype=torch.float64)
    """
    part._require("the curves of units")
    with torch.no_grad():
        chosen = _chosen(part, layer, unit)
        edge, label, backward = _switches(part, chosen)
        ends, regions = (
            torch.where(backward[:, None], pair.flip(1), pair)
            for pair in (part.mesh.edges[edge], part._edge_faces[edge])
        )
        vertices, segments = torch.unique(ends, return_inverse=True)
        return NeuronCurves(part, part.vertices[vertices], segments, regions, label)


def fixed_units(part: PartitionData) -> dict[str, Tensor]:
    """By layer, the piece that each unit keeps on the whole domain, -1 if it switches, (units,).

    The layout is the same as in ``part.patterns()``. A ReLU with 0 is never active, and a ReLU with
    1 always is. The number of a maximum is the unit that always wins. The piece of a periodic
    function is counted modulo its breakpoints.

    >>> from torch import nn
    >>> import splinecam as sc
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> model[0].bias.data = torch.tensor([-9.0, 0.0, 9.0])
    >>> sc.partition(model, sc.Domain.box(-1, 1), progress=False).fixed_units()
    {'1': tensor([ 0, -1,  1])}
    """
    part._require("units that keep one piece")
    layers = part._network.layers
    extremes: dict[int, Tensor] = {}  # the lowest and the highest piece of every unit so far
    with torch.no_grad():
        for index, pieces in _pieces(part, part.mesh.means(), range(len(layers))):
            seen = torch.cat([extremes[index], pieces]) if index in extremes else pieces
            extremes[index] = torch.stack([seen.amin(0), seen.amax(0)])
    found = {}
    for index, layer in enumerate(layers):
        lowest, highest = extremes[index].long()
        fixed = lowest == highest
        if isinstance(layer, PiecewiseScalar) and layer.period is not None:
            lowest = lowest % layer.levels.shape[0]
        found[layer.name] = torch.where(fixed, lowest, -1)
    return found


def _first_labels(part: PartitionData) -> Tensor:
    """The label of each layer's first unit, and the number of all labels, (L + 1,)."""
    counts = [
        len(layer.members) if isinstance(layer, MaxNonlinearity) else prod(layer.shape)
        for layer in part._network.layers
    ]
    counts += [1] * (len(part.layers) - len(counts))  # edges of refinement belong to no unit
    return offsets_of(torch.tensor(counts, dtype=torch.int64, device=part.mesh.uv.device))


def _chosen(part: PartitionData, layer: str | int | None, unit: Units) -> Tensor:
    """A mask of the labels that are meant, (U,)."""
    first = _first_labels(part)
    chosen = torch.zeros(int(first[-1]), dtype=torch.bool, device=first.device)
    if layer is None and unit is None:
        chosen[: int(first[len(part._network.layers)])] = True
        return chosen
    if layer is None and len(part.layers) != 1:
        raise ValueError(f"unit {unit} of which layer? Give layer=, one of {layer_names(part)}")
    index = 0 if layer is None else layer_index(part, layer)
    start, end = first[index : index + 2].tolist()
    if unit is None:
        chosen[start:end] = True
        return chosen
    try:
        units = torch.as_tensor(unit, device=first.device).reshape(-1)
        if units.numel() and (units.is_floating_point() or units.dtype == torch.bool):
            raise TypeError
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"units are numbered by whole numbers, not {unit!r}") from None
    wrong = units[(units < 0) | (units >= end - start)]
    if wrong.numel():
        which = f"unit {int(wrong[0])} of layer {part.layers[index]!r}"
        raise IndexError(f"{which}, whose units are 0 to {end - start - 1}")
    chosen[start + units.long()] = True
    return chosen


_Switches = tuple[Tensor, Tensor, Tensor]
"""Edges (N,) on which units switch, their labels, and whether the segment is reversed."""


def _switches(part: PartitionData, chosen: Tensor) -> _Switches:
    """All switches of chosen units, each once, in the order of labels and edges."""
    own = (part.mesh.edge_layer >= 0).nonzero()[:, 0]
    label = _first_labels(part)[part.mesh.edge_layer[own]] + part.mesh.edge_unit[own]
    drawn = chosen[label].nonzero()[:, 0]
    several = [*_differences(part, chosen)]
    several.append((own[drawn], label[drawn], torch.zeros_like(drawn, dtype=torch.bool)))
    edge, label, backward = (torch.cat(columns) for columns in zip(*several, strict=True))
    key, order = torch.sort(label * part.mesh.num_edges + edge, stable=True)
    fresh = torch.ones_like(key, dtype=torch.bool)  # the first of equal ones
    fresh[1:] = key[1:] != key[:-1]
    order = order[fresh]
    return edge[order], label[order], backward[order]


def _differences(part: PartitionData, chosen: Tensor) -> Iterator[_Switches]:
    """Yield the edges on whose two sides a chosen unit has different pieces."""
    first = _first_labels(part)
    columns, units = {}, {}
    for index, layer in enumerate(part._network.layers):
        unit = torch.arange(int(first[index + 1] - first[index]), device=first.device)
        if isinstance(layer, SortNonlinearity):
            unit = layer.pairs[0]  # of each column of the pieces
        column = chosen[first[index] + unit].nonzero()[:, 0]
        if column.numel():
            columns[index], units[index] = column, unit[column]
    if not columns:
        return
    means = part.mesh.means()
    for edges in _strips(part, means, sum(column.numel() for column in columns.values())):
        faces, place = torch.unique(part._edge_faces[edges], return_inverse=True)
        tables: dict[int, list[Tensor]] = {index: [] for index in columns}
        for index, pieces in _pieces(part, means[faces], columns):
            tables[index].append(pieces[:, columns[index]])
        for index, blocks in tables.items():
            for row, column, less in _unequal(torch.cat(blocks), place):
                yield edges[row], first[index] + units[index][column], less


def _unequal(table: Tensor, pairs: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield where pairs (N, 2) of rows of a table (R, n) differ, and whether the first is lower."""
    step = max(1, backend_of(table.device).numbers // table.shape[1])
    for start in range(0, pairs.shape[0], step):
        left, right = (take(table, row) for row in pairs[start : start + step].unbind(1))
        row, column = (left != right).nonzero(as_tuple=True)
        yield start + row, column, (left < right)[row, column]


def _strips(part: PartitionData, means: Tensor, pieces: int) -> Iterator[Tensor]:
    """Yield the inner edges by strips of the domain; the pieces of a strip fit in memory."""
    inner = (part._edge_faces >= 0).all(1).nonzero()[:, 0]
    size = max(1, _TABLE // pieces)
    if not inner.shape[0]:
        return
    if means.shape[0] <= size:
        yield inner
        return
    order = torch.sort(means[:, 1]).indices
    rank = torch.empty_like(order)
    rank[order] = torch.arange(order.shape[0], device=order.device)
    strip, order = torch.sort(rank[part._edge_faces[inner]].amin(1) // size)
    counts = torch.unique_consecutive(strip, return_counts=True)[1]
    yield from torch.split(inner[order], counts.tolist())


def _pieces(
    part: PartitionData, local: Tensor, layers: Collection[int]
) -> Iterator[tuple[int, Tensor]]:
    """Yield the pieces (B, units) of some layers at local points (N, 2), in blocks."""
    widest = max([part.domain.dim, *(prod(layer.shape) for layer in part._network.layers)])
    step = max(1, backend_of(local.device).numbers // widest)
    for block in torch.split(local, step):
        walk = part._network.walk(part.domain.embed(part._frame.to_plane(block)))
        for index, (layer, z) in enumerate(islice(walk, max(layers, default=-1) + 1)):
            if index in layers:
                yield index, layer.pieces(z, part._layer_errors[layer.name])
