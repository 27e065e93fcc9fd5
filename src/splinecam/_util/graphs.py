"""Graphs as flat arrays: neighbours in rows, distances from many nodes at once, and the diameter.

The diameter is the largest distance between two nodes. Each node from which the distances are known
bounds it: the largest of these distances, the eccentricity of the node, is a lower bound, and the
triangle inequality bounds the eccentricities of all other nodes. The nodes to start from are
chosen by these bounds (Takes and Kosters, "Determining the diameter of small world networks",
2011), so that few of them settle the diameter of most graphs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.csr import counts_of, offsets_of, owners_of, take, take_rows

__all__ = ["DISTANCES", "Graph", "diameter_bounds", "distances", "graph_of"]

# The number of distances after which the diameter remains between its bounds.
DISTANCES = 1 << 22

# Nodes whose distances are computed at a time: with more of them, more are computed in vain, and
# with fewer, each step takes as long. A large graph needs some rounds, which follow each other.
_BATCH, _ROUNDS = 16, 8


class Graph(NamedTuple):
    """An undirected graph of n nodes: the neighbours of node i are in row i, ascending.

    offsets: (n + 1,); neighbours: (2M,) of M edges.
    """

    offsets: Tensor
    neighbours: Tensor

    @property
    def degrees(self) -> Tensor:
        """The number of neighbours of each node, (n,)."""
        return self.offsets.diff()


def graph_of(n: int, a: Tensor, b: Tensor) -> Graph:
    """The graph of n nodes with edges a-b, of which equal ones count once.

    >>> graph_of(3, torch.tensor([0, 1, 1]), torch.tensor([1, 2, 0])).neighbours
    tensor([1, 0, 2, 1])
    """
    key = torch.unique(torch.cat([a * n + b, b * n + a]))
    return Graph(offsets_of(counts_of(key // n, n)), key % n)


def distances(graph: Graph, sources: Tensor) -> Tensor:
    """The number of edges from each source (B,) to every node, (B, n); -1 without a way.

    >>> distances(graph_of(3, torch.tensor([0, 1]), torch.tensor([1, 2])), torch.tensor([0]))
    tensor([[0, 1, 2]], dtype=torch.int32)
    """
    n = graph.offsets.shape[0] - 1
    start = torch.arange(sources.shape[0], device=sources.device) * n
    distance = torch.full((sources.shape[0] * n,), -1, dtype=torch.int32, device=sources.device)
    claimed = torch.empty_like(distance)
    front, steps = start + sources, 0
    distance[front] = 0
    while front.shape[0]:  # as often as the largest distance
        steps += 1
        node = front % n
        rows, counts = take_rows(graph.offsets, node)
        reached = take(front - node, owners_of(counts, rows.shape[0]))
        reached += take(graph.neighbours, rows)
        reached = reached[take(distance, reached) < 0]
        # A node that several others reach goes on once.
        turn = torch.arange(reached.shape[0], dtype=torch.int32, device=reached.device)
        claimed[reached] = turn
        front = reached[take(claimed, reached) == turn]
        distance[front] = steps
    return distance.view(-1, n)


def diameter_bounds(graph: Graph, limit: int = DISTANCES) -> tuple[int, int]:
    """A lower and an upper bound of the diameter of a connected graph, equal if it is settled.

    limit: the number of distances after which the bounds are returned as they are.

    >>> diameter_bounds(graph_of(3, torch.tensor([0, 1]), torch.tensor([1, 2])))
    (2, 2)
    """
    n = graph.offsets.shape[0] - 1
    low = graph.offsets.new_zeros(n)
    high = torch.full_like(low, n - 1)
    known = torch.zeros_like(low, dtype=torch.bool)
    batch, computed = max(2, min(_BATCH, limit // (_ROUNDS * n))), 0
    while int(low.max()) < int(high.max()) and computed < limit:
        sources = _promising(low, high, known, batch)
        found = distances(graph, sources).long()
        computed += found.numel()
        eccentricity = found.amax(1)
        low = torch.maximum(low, torch.maximum(found, eccentricity[:, None] - found).amax(0))
        high = torch.minimum(high, (found + eccentricity[:, None]).amin(0))
        low[sources] = high[sources] = eccentricity
        known[sources] = True
    return int(low.max()), int(high.max())


def _promising(low: Tensor, high: Tensor, known: Tensor, batch: int) -> Tensor:
    """Nodes of unknown eccentricity, at most ``batch``: far-off ones, and central ones.

    low, high: (n,) bounds of the eccentricities. A node with the largest upper bound may end a
    longest way. A node with the smallest lower bound is central, so that its distances lower the
    upper bounds of the others.
    """
    unknown = (~known).nonzero()[:, 0]
    above, below = take(high, unknown), take(low, unknown)
    far = _spread(unknown[above == above.max()], batch - batch // 2)
    central = _spread(unknown[below == below.min()], batch // 2)
    chosen: Tensor = torch.unique(torch.cat([far, central]))
    return chosen


def _spread(nodes: Tensor, count: int) -> Tensor:
    """Some of the nodes, evenly by number, as nodes of near numbers are often near each other."""
    step = max(1, -(-nodes.shape[0] // count))
    return nodes[step // 2 :: step] if nodes.shape[0] > count else nodes
