"""Topology: pieces and holes of class regions and the boundary, and the graph of regions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.arrays import counts_of
from splinecam._util.graphs import Graph, components, diameter_bounds, graph_of
from splinecam._util.text import TextTable, number_text
from splinecam.geometry.outlines import FacePieces, face_pieces
from splinecam.questions.boundary import Boundary, Kind, decision_boundary
from splinecam.questions.class_regions import ClassRegions, class_regions
from splinecam.questions.partition_data import PartitionData, Unresolved
from splinecam.questions.stats import few_rows


@dataclass(frozen=True, eq=False, repr=False)
class RegionGraph:
    """The graph of F regions, of which neighbours share an edge.

    neighbours: the neighbours of all regions, ascending for each; offsets: (F + 1,) where the
    neighbours of each region begin.
    """

    offsets: Tensor
    neighbours: Tensor

    def __len__(self) -> int:
        return int(self.offsets.shape[0]) - 1

    @property
    def num_edges(self) -> int:
        """The number of pairs of neighbours."""
        return int(self.neighbours.shape[0]) // 2

    @cached_property
    def degrees(self) -> Tensor:
        """The number of neighbours of each region, (F,)."""
        return self.offsets.diff()

    @property
    def min_degree(self) -> int:
        """The smallest number of neighbours."""
        return int(self.degrees.min())

    @property
    def mean_degree(self) -> float:
        """The mean number of neighbours."""
        return 2 * self.num_edges / len(self)

    @property
    def max_degree(self) -> int:
        """The largest number of neighbours."""
        return int(self.degrees.max())

    @property
    def degree_histogram(self) -> Tensor:
        """How many regions have 0, 1, 2, ... neighbours, (max_degree + 1,)."""
        return torch.bincount(self.degrees)

    @cached_property
    def diameter_bounds(self) -> tuple[int, int]:
        """The diameter between two bounds, which are equal if it is known exactly.

        The diameter is the largest number of edges between two regions. The lower bound is such a
        number, and the upper one follows from the triangle inequality. The bounds always meet for
        up to 2,000 regions; for more, the search ends after about 4 million distances.
        """
        return diameter_bounds(Graph(self.offsets, self.neighbours))

    @property
    def diameter(self) -> int:
        """The largest distance between two regions, or its lower bound if it is not exact."""
        return self.diameter_bounds[0]

    @property
    def diameter_is_exact(self) -> bool:
        """Whether the bounds of the diameter are equal."""
        return self.diameter_bounds[0] == self.diameter_bounds[1]

    def __repr__(self) -> str:
        low, high = self.diameter_bounds
        diameter = str(low) if low == high else f"{low} to {high}"
        size = f"{len(self):,} regions, {self.num_edges:,} pairs of neighbours"
        degrees = f"degrees {self.min_degree} to {self.max_degree}, mean {self.mean_degree:.4g}"
        return f"RegionGraph({size}, {degrees}, diameter {diameter})"


def region_graph(part: PartitionData) -> RegionGraph:
    """The graph of the regions of a partition; regions that only touch at a vertex are apart."""
    part._require("the graph of regions")
    beside = part._edge_faces
    a, b = beside[(beside >= 0).all(1)].unbind(1)
    return RegionGraph(*graph_of(len(part), a, b))


class ClassTopology(NamedTuple):
    """The topology of one class, by its name, or its number as text.

    components: the number of connected pieces (b0); holes: the number of their holes (b1).
    """

    name: str
    components: int
    holes: int
    area: float


class BoundaryTopology(NamedTuple):
    """The topology of the decision boundary as a graph of segments.

    components: the number of connected parts (b0); cycles: the number of independent cycles (b1).
    """

    components: int
    cycles: int
    length: float


@dataclass(frozen=True, eq=False, repr=False)
class Topology:
    """The result of ``part.topology()``; each part is computed when it is first asked for.

    class_regions: the domain divided by class; closed: whether pieces are joined at vertices.
    """

    class_regions: ClassRegions
    closed: bool

    @cached_property
    def classes(self) -> tuple[ClassTopology, ...]:
        """Components, holes and area of each class, in the order of the outputs."""
        n, found = self.class_regions.n_classes, self.pieces
        numbers = counts_of(found.label, n).tolist()
        holes = found.holes.new_zeros(n).index_add_(0, found.label, found.holes).tolist()
        names = self.class_regions.partition.names or tuple(map(str, range(n)))
        areas = self.class_regions.areas.tolist()
        return tuple(map(ClassTopology, names, numbers, holes, areas))

    @cached_property
    def pieces(self) -> FacePieces:
        """The connected pieces of all classes.

        ``piece`` is of each cell, ``label`` (the class) and ``holes`` (their number) of each piece.
        """
        found = self.class_regions
        return face_pieces(found.winners.overlay.mesh, found.cell_class, closed=self.closed)

    @cached_property
    def boundary(self) -> BoundaryTopology:
        """Components and independent cycles of the decision boundary."""
        ends, nodes = self._boundary.segments, int(self._boundary.points.shape[0])
        parts = int(components(nodes, *ends.unbind(1)).max()) + 1 if nodes else 0
        cycles = int(ends.shape[0]) - nodes + parts  # Euler's formula
        return BoundaryTopology(parts, cycles, self._boundary.length)

    @cached_property
    def _boundary(self) -> Boundary:
        found = self.class_regions
        return decision_boundary(found.partition, kind=found.kind, level=found.level)

    @cached_property
    def graph(self) -> RegionGraph:
        """The graph of the regions, with degrees and diameter."""
        return region_graph(self.class_regions.partition)

    @property
    def unresolved(self) -> tuple[Unresolved, ...]:
        """Places where float64 could not tell how pieces are connected, usually none."""
        return (*self.class_regions.unresolved, *self._boundary.unresolved)

    def _tables(self) -> list[TextTable]:
        classes = [(each.name, [*map(number_text, each[1:])]) for each in self.classes]
        boundary = [("", [*map(number_text, self.boundary)])]
        tables = [
            TextTable("Classes", ("components", "holes", "area"), few_rows(classes)),
            TextTable("Decision boundary", ("components", "cycles", "length"), boundary),
        ]
        if self.class_regions.partition._wanted is not None:  # its regions are not all there
            return tables
        low, high = self.graph.diameter_bounds
        diameter = number_text(low) if low == high else f"{low:,} to {high:,}"
        degrees = (self.graph.min_degree, self.graph.mean_degree, self.graph.max_degree)
        graph = [("", [*map(number_text, (len(self.graph), *degrees)), diameter])]
        heads = ("regions", "min degree", "mean", "max", "diameter")
        return [*tables, TextTable("Graph of regions", heads, graph)]

    def __repr__(self) -> str:
        tables = self._tables()
        labels = [f"  {label}" for table in tables for label, _ in table.rows]
        wide = max(map(len, (*labels, *(table.title for table in tables))))
        return "\n\n".join(table.text(wide) for table in tables)

    def _repr_html_(self) -> str:
        return "".join(table.html() for table in self._tables())


def topology(
    part: PartitionData, *, kind: Kind = "argmax", level: float = 0.0, closed: bool = False
) -> Topology:
    """How the classes, the decision boundary and the regions are connected.

    - ``classes``: for each class the number of connected pieces and of their holes, which are the
      Betti numbers b0 and b1, and the area. A part of another class is a hole only if the piece
      surrounds it, not if it reaches the border of the domain.
    - ``boundary``: the number of connected parts of the decision boundary, and of its independent
      cycles.
    - ``graph``: the graph of regions that share an edge, with its degrees and its diameter.

    A class is the part of the domain where its output is the largest, without ties along lines,
    which belong to the boundary only; where classes tie on an area, it belongs to the first.

    kind, level: as for ``part.class_regions``. closed: by default, pieces are open sets: those that
    only touch at a vertex are separate, as in ``part.class_regions().polygons``. With closed=True
    they are connected there.

    >>> import splinecam as sc
    >>> from splinecam.testing import Abs
    >>> from torch import nn
    >>> _ = (ring := nn.Sequential(Abs(), nn.Linear(2, 1))).requires_grad_(False)
    >>> _ = ring[1].weight.fill_(1.0), ring[1].bias.fill_(-1.0)  # |x| + |y| = 1
    >>> sc.partition(ring, sc.Domain.box(-2, 2), progress=False).topology()
    Classes           components      holes       area
      0                        1          0          2
      1                        1          1         14
    <BLANKLINE>
    Decision boundary components     cycles     length
                               1          1      5.657
    <BLANKLINE>
    Graph of regions     regions min degree       mean        max   diameter
                               4          2          2          2          2
    """
    return Topology(class_regions(part, kind=kind, level=level), bool(closed))
