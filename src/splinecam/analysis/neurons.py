"""Neuron curves: where in the domain single units switch, and which units never do.

An edge names the first unit that drew it. Others may switch on it as well (a unit twice, a later
one that bends where an earlier one does), so that the patterns of the two regions beside an edge
say which units' curves it belongs to.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import prod
from typing import Self

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import offsets_of, take
from splinecam.analysis.curves import Curves
from splinecam.analysis.partition_data import PartitionData
from splinecam.errors import SplineCamError
from splinecam.network.nonlinearities import (
    MaxNonlinearity,
    Nonlinearity,
    PiecewiseScalar,
    SortNonlinearity,
)

__all__ = ["NeuronCurves", "fixed_units", "neurons", "op_of"]

_TABLE = 1 << 26  # pieces of units held at a time


@dataclass(frozen=True, eq=False, repr=False)
class NeuronCurves(Curves):
    """The segments on which units switch; each has a unit's higher piece on its left.

    Every segment is an edge of the partition, as often as units switch on it. ``label`` counts the
    units of all cuts one after the other and ascends; ``op`` and ``unit`` say the same in two
    numbers, as ``part.edge_layer`` and ``part.edge_unit`` do. A unit with several knots has several
    curves of one label. The unit of a maximum is a group, and the winner's flat index is the piece;
    the unit of a sorting is the first of the two that change places; a registered operation's unit
    is one of its functions.
    """

    @cached_property
    def op(self) -> Tensor:
        """Index into the partition's ``cuts``, (S,)."""
        return torch.searchsorted(self._first, self.label, right=True) - 1

    @cached_property
    def unit(self) -> Tensor:
        """Flat index of the unit in its cut, (S,)."""
        return self.label - self._first[self.op]

    def key(self, label: int) -> tuple[str, int]:
        """The name of the cut and the unit that a label stands for."""
        op = int(torch.searchsorted(self._first, label, right=True)) - 1
        return self.partition.layers[op], int(label - self._first[op])

    def of(
        self, *, layer: str | int | None = None, unit: int | Sequence[int] | Tensor | None = None
    ) -> Self:
        """Only the curves of some units, named as for ``neurons``; the layer if there are several.

        >>> from torch import nn
        >>> import splinecam as sc
        >>> model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
        >>> part = sc.partition(model, sc.Domain.box(-9, 9), progress=False)
        >>> part.neurons(layer="1").of(unit=2)
        NeuronCurves(1 unit of '1', ...
        """
        ops = torch.unique(self.op).tolist()
        if layer is None and unit is not None and len(ops) == 1:
            layer = ops[0]
        return self.select(_chosen(self.partition, layer, unit)[self.label])

    @cached_property
    def units(self) -> Tensor:
        """The units that switch somewhere, as (op, unit), ascending, (U, 2)."""
        label = torch.unique_consecutive(torch.sort(self.label).values)
        op = torch.searchsorted(self._first, label, right=True) - 1
        return torch.stack([op, label - self._first[op]], 1)

    @cached_property
    def unit_lengths(self) -> Tensor:
        """How long the curves of each of ``units`` are, (U,)."""
        place = torch.unique(self.label, return_inverse=True)[1]
        return self.lengths.new_zeros(self.units.shape[0]).index_add_(0, place, self.lengths)

    def longest(self) -> Self:
        """The curves of the unit that has most of them, by length."""
        return self.select(self.label == self._longest)

    @property
    def _longest(self) -> int:
        """The label of that unit; -1 if there is none."""
        if not len(self):
            return -1
        op, unit = self.units[self.unit_lengths.argmax()]
        return int(self._first[op] + unit)

    @cached_property
    def _first(self) -> Tensor:
        return _first_labels(self.partition)

    def _what(self) -> str:
        units, cuts = self.units.shape[0], torch.unique(self.units[:, 0]).tolist()
        of = f" of {self.partition.layers[cuts[0]]!r}" if len(cuts) == 1 else ""
        return f"{units:,} unit{'s' * (units != 1)}{of}, {super()._what()}"


def neurons(
    part: PartitionData,
    *,
    layer: str | int | None = None,
    unit: int | Sequence[int] | Tensor | None = None,
) -> NeuronCurves:
    """The curves on which units switch: of all, of one layer, or of some units of a layer.

    layer: a name of ``part.layers``, the module in which only one of them is (``"block1"`` for
    ``"block1.relu"``), the module right before it (``"fc2"`` of ``relu(fc2(x))``), or an index into
    them. unit: flat index or indices in that cut; of maxima the group, of sorted units the first of
    a pair.

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
    with torch.no_grad():
        chosen = _chosen(part, layer, unit)
        own = _own_edges(part, chosen)
        edge, label, turned = _merged(part, [*_differences(part, chosen), own])
        ends, regions = part.edges[edge], part.edge_faces[edge]
        ends, regions = (torch.where(turned[:, None], x.flip(1), x) for x in (ends, regions))
        vertices, segments = torch.unique(ends, return_inverse=True)
        return NeuronCurves(part, part.vertices[vertices], segments, regions, label)


def fixed_units(part: PartitionData) -> dict[str, Tensor]:
    """Per cut the piece that each unit keeps on the whole domain, -1 if it switches, (units,).

    Laid out as ``part.patterns()``. Of a ReLU 0 is never active and 1 always; of a maximum the
    number is that of the unit that always wins; of a function with a period the piece is counted
    modulo its knots, so that none is negative.

    >>> from torch import nn
    >>> import splinecam as sc
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> model[0].bias.data = torch.tensor([-9.0, 0.0, 9.0])
    >>> sc.partition(model, sc.Domain.box(-1, 1), progress=False).fixed_units()
    {'1': tensor([ 0, -1,  1])}
    """
    cuts = part.program.layers
    ends: dict[int, Tensor] = {}  # the lowest and the highest piece of every unit so far
    with torch.no_grad():
        for op, pieces in _pieces(part, part.mesh.means(), range(len(cuts))):
            seen = torch.cat([ends[op], pieces]) if op in ends else pieces
            ends[op] = torch.stack([seen.amin(0), seen.amax(0)])
    found = {}
    for op, cut in enumerate(cuts):
        lowest, highest = ends[op].long()
        fixed = lowest == highest
        if isinstance(cut, PiecewiseScalar) and cut.period is not None:
            lowest = lowest % cut.levels.shape[0]
        found[cut.name] = torch.where(fixed, lowest, -1)
    return found


# ----------------------------------------------------------------------------- which units


def _num_units(cut: Nonlinearity) -> int:
    """Number of units that can draw an edge."""
    return int(cut.members.shape[0]) if isinstance(cut, MaxNonlinearity) else prod(cut.shape)


def _unit_of_piece(cut: Nonlinearity, device: torch.device) -> Tensor:
    """The unit of each column of a cut's pieces, (n,)."""
    if isinstance(cut, SortNonlinearity):
        return cut.pairs[0]
    return torch.arange(_num_units(cut), device=device)


def _first_labels(part: PartitionData) -> Tensor:
    """The label of each cut's first unit, and the number of all labels, (C + 1,)."""
    counts = [_num_units(cut) for cut in part.program.layers]
    return offsets_of(torch.tensor(counts, dtype=torch.int64, device=part.mesh.uv.device))


def _chosen(
    part: PartitionData, layer: str | int | None, unit: int | Sequence[int] | Tensor | None
) -> Tensor:
    """Which labels are meant, (U,) booleans."""
    first = _first_labels(part)
    chosen = torch.zeros(int(first[-1]), dtype=torch.bool, device=first.device)
    if layer is None and unit is None:
        return ~chosen
    if layer is None and len(part.layers) != 1:
        raise ValueError(f"unit {unit} of which layer? Give layer=, one of {_names(part)}")
    op = 0 if layer is None else op_of(part, layer)
    start, end = first[op : op + 2].tolist()
    if unit is None:
        chosen[start:end] = True
        return chosen
    try:
        index = torch.as_tensor(unit, device=first.device).reshape(-1)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"units are numbered by whole numbers, not {unit!r}") from None
    if index.numel() and (index.is_floating_point() or index.dtype == torch.bool):
        raise TypeError(f"units are numbered by whole numbers, not {unit!r}")
    wrong = index[(index < 0) | (index >= end - start)]
    if wrong.numel():
        raise IndexError(
            f"unit {int(wrong[0])} of layer {part.layers[op]!r}, "
            f"whose units are 0 to {end - start - 1}"
        )
    chosen[start + index.long()] = True
    return chosen


def op_of(part: PartitionData, layer: str | int) -> int:
    """The index of the cut that is meant."""
    cuts = part.layers
    if not isinstance(layer, str):
        try:
            op = operator.index(layer)
        except TypeError:
            raise TypeError(
                f"layer must be the name or the number of one cut, not {layer!r}: {_names(part)}"
            ) from None
        if not -len(cuts) <= op < len(cuts):
            raise IndexError(f"layer {op} of {len(cuts)} cuts: {_names(part)}")
        return op % len(cuts)
    if layer in cuts:
        return cuts.index(layer)
    within = [op for op, name in enumerate(cuts) if name.startswith(f"{layer}.")]
    # A ReLU that is called as a function is named by the module before it.
    within = within or [op for op, cut in enumerate(part.program.layers) if cut.after == layer]
    if len(within) != 1:
        what = f"{len(within)} cuts are" if within else "no cut is"
        raise SplineCamError(
            f"{what} called {layer!r}; give one of {_names(part)}, or the module right before it"
        )
    return within[0]


def _names(part: PartitionData) -> str:
    return ", ".join(map(repr, part.layers)) or "none, as the network is affine"


# ----------------------------------------------------------------------------- which edges

# Finds are (edge, label, turned), each (N,): the segment runs against the edge if ``turned``.
_Finds = tuple[Tensor, Tensor, Tensor]


def _own_edges(part: PartitionData, chosen: Tensor) -> _Finds:
    """Edges that a chosen unit drew."""
    edge = (part.edge_layer >= 0).nonzero()[:, 0]
    label = _first_labels(part)[part.edge_layer[edge]] + part.edge_unit[edge]
    mine = chosen[label].nonzero()[:, 0]
    edge, label = edge[mine], label[mine]
    return edge, label, torch.zeros_like(edge, dtype=torch.bool)


def _differences(part: PartitionData, chosen: Tensor) -> Iterator[_Finds]:
    """Edges beside which the pieces of a chosen unit differ."""
    first = _first_labels(part)
    columns: dict[int, Tensor] = {}
    for op, cut in enumerate(part.program.layers):
        column = chosen[first[op] + _unit_of_piece(cut, first.device)].nonzero()[:, 0]
        if column.numel():
            columns[op] = column
    if not columns:
        return
    means = part.mesh.means()
    for edges in _strips(part, means, sum(x.numel() for x in columns.values())):
        faces, place = torch.unique(part.edge_faces[edges], return_inverse=True)
        tables: dict[int, list[Tensor]] = {op: [] for op in columns}
        for op, pieces in _pieces(part, means[faces], columns):
            tables[op].append(pieces[:, columns[op]])
        for op, blocks in tables.items():
            unit = _unit_of_piece(part.program.layers[op], first.device)[columns[op]]
            for row, column, turned in _unequal(torch.cat(blocks), place):
                yield edges[row], first[op] + unit[column], turned


def _unequal(table: Tensor, pairs: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Where the two rows of a table (R, n) that each pair (N, 2) names differ.

    A block of pairs at a time: the pair, the column, and whether the second row has the more.
    """
    width = table.shape[1]
    step = max(1, backend_of(table.device).numbers // width)
    for start in range(0, pairs.shape[0], step):
        left, right = (take(table, row) for row in pairs[start : start + step].unbind(1))
        place = _places(left != right)
        turned = (left < right).view(-1)[place]
        yield start + place // width, place % width, turned


def _places(mask: Tensor) -> Tensor:
    """Flat indices of the true entries, ascending; ``nonzero`` takes longer where they are few."""
    flat = mask.view(-1)
    flat = torch.nn.functional.pad(flat, (0, -flat.shape[0] % 8))
    words = flat.view(torch.int64).nonzero()[:, 0]
    item, byte = flat.view(-1, 8)[words].nonzero(as_tuple=True)
    return 8 * words[item] + byte


def _strips(part: PartitionData, means: Tensor, pieces: int) -> Iterator[Tensor]:
    """Inner edges in strips of the domain, with so few regions that their pieces can be held."""
    inner = (part.edge_faces >= 0).all(1).nonzero()[:, 0]
    size = max(1, _TABLE // pieces)
    if means.shape[0] <= size or not inner.shape[0]:
        yield from [inner] * bool(inner.shape[0])
        return
    order = torch.sort(means[:, 1]).indices
    rank = torch.empty_like(order)
    rank[order] = torch.arange(order.shape[0], device=order.device)
    strip = rank[part.edge_faces[inner]].amin(1) // size
    strip, order = torch.sort(strip)
    counts = torch.unique_consecutive(strip, return_counts=True)[1]
    yield from torch.split(inner[order], counts.tolist())


def _pieces(
    part: PartitionData, local: Tensor, ops: Collection[int]
) -> Iterator[tuple[int, Tensor]]:
    """The pieces (B, units) of some cuts at points (N, 2) in the engine's coordinates.

    A block of points at a time, and no further through the network than to the last of ``ops``.
    """
    widest = max([part.domain.dim, *(prod(cut.shape) for cut in part.program.layers)])
    step = max(1, backend_of(local.device).numbers // widest)
    for block in torch.split(local, step):
        walk = part.program.walk(part.domain.embed(part.frame.to_plane(block)))
        for op, (cut, z) in enumerate(islice(walk, max(ops, default=-1) + 1)):
            if op in ops:
                yield op, cut.pieces(z, part.layer_errors[cut.name])


def _merged(part: PartitionData, finds: list[_Finds]) -> _Finds:
    """Every find once, the first of equals, in the order of labels and edges."""
    edge, label, turned = (torch.cat(parts) for parts in zip(*finds, strict=True))
    key, order = torch.sort(label * part.mesh.num_edges + edge, stable=True)
    fresh = torch.ones_like(key, dtype=torch.bool)
    fresh[1:] = key[1:] != key[:-1]
    order = order[fresh]
    return edge[order], label[order], turned[order]
