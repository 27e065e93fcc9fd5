"""Graphs as flat arrays: neighbours, distances, connected components, cycles and chains.

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

from splinecam._util.arrays import counts_of, offsets_of, owners_of, take, take_rows
from splinecam._util.backend import backend_of

# The number of distances after which the diameter remains between its bounds.
DISTANCES = 1 << 22

# Nodes whose distances are computed at a time: with more of them, more are computed in vain, and
# with fewer, each step takes as long. A large graph needs some rounds, which follow each other.
_BATCH, _ROUNDS = 16, 8


class Graph(NamedTuple):
    """An undirected graph of n nodes with M edges: row i has the neighbours of node i."""

    offsets: Tensor  # (n + 1,)
    neighbours: Tensor  # (2M,), ascending in each row

    @property
    def degrees(self) -> Tensor:
        """The number of neighbours of each node, (n,)."""
        return self.offsets.diff()


def graph_of(n: int, a: Tensor, b: Tensor) -> Graph:
    """The graph of n nodes with edges a-b; equal edges count once.

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
        # A node with the largest upper bound may end a longest way. A node with the smallest lower
        # bound is central, so that its distances lower the upper bounds of the others.
        unknown = (~known).nonzero()[:, 0]
        above, below = take(high, unknown), take(low, unknown)
        far = _evenly(unknown[above == above.max()], batch - batch // 2)
        central = _evenly(unknown[below == below.min()], batch // 2)
        sources = torch.unique(torch.cat([far, central]))
        found = distances(graph, sources).long()
        computed += found.numel()
        eccentricity = found.amax(1)
        low = torch.maximum(low, torch.maximum(found, eccentricity[:, None] - found).amax(0))
        high = torch.minimum(high, (found + eccentricity[:, None]).amin(0))
        low[sources] = high[sources] = eccentricity
        known[sources] = True
    return int(low.max()), int(high.max())


def _evenly(nodes: Tensor, count: int) -> Tensor:
    """Some of the nodes, evenly by number, as nodes of near numbers are often near each other."""
    step = max(1, -(-nodes.shape[0] // count))
    return nodes[step // 2 :: step] if nodes.shape[0] > count else nodes


_INT32 = 1 << 31  # members that fit in 32 bits, with which gathers are faster


def components(n: int, a: Tensor, b: Tensor) -> Tensor:
    """The component of each of n nodes in the graph with edges a-b, (n,), by lowest nodes."""
    labels: Tensor = torch.unique(roots(n, a, b), return_inverse=True)[1]
    return labels


def roots(n: int, a: Tensor, b: Tensor) -> Tensor:
    """The lowest node of each node's component in the graph with edges a-b, (n,)."""
    root = torch.arange(n, device=a.device)
    while True:
        ends = take(root, a), take(root, b)
        low, hooked = torch.minimum(*ends), root
        for end in ends:
            hooked = hooked.scatter_reduce(0, end, low, "amin")
        while not torch.equal(hooked, further := take(hooked, hooked)):
            hooked = further
        if torch.equal(hooked, root):
            return root
        root = hooked


def cycles(following: Tensor) -> tuple[Tensor, Tensor]:
    """The cycles of a permutation, from their lowest members: offsets (F + 1,), members (H,)."""
    if backend_of(following.device).asynchronous:
        return long_cycles(following)
    lowest, leader, cycle, offsets = _leaders(following)
    members = torch.empty_like(cycle)  # all are followed at once, which is fast if they are short
    current, place = leader, offsets[:-1]
    while current.shape[0]:
        members.index_copy_(0, place, current)
        current, place = take(following, current), place + 1
        going = (current != take(lowest, current)).nonzero()[:, 0]
        current, place = take(current, going), take(place, going)
    return offsets, members


def long_cycles(following: Tensor) -> tuple[Tensor, Tensor]:
    """What ``cycles`` returns, in as many rounds as the longest cycle's length has binary digits.

    >>> long_cycles(torch.tensor([2, 1, 3, 0]))
    (tensor([0, 3, 4]), tensor([0, 2, 3, 1]))
    """
    lowest, _, cycle, offsets = _leaders(following)
    index = torch.arange(following.shape[0], device=following.device)
    _, ahead = _to_the_stop(torch.where(following == lowest, index, following))
    members = torch.empty_like(index)
    members[take(offsets[1:], cycle) - 1 - ahead] = index
    return offsets, members


def _leaders(following: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The leader of each member's cycle (H,), all leaders, the cycles (H,), and their offsets."""
    lowest = _lowest_ahead(following)
    index = torch.arange(following.shape[0], device=following.device)
    leader = (lowest == index).nonzero()[:, 0]
    rank = torch.empty_like(index)
    rank[leader] = torch.arange(leader.shape[0], device=index.device)
    cycle = take(rank, lowest)
    return lowest, leader, cycle, offsets_of(counts_of(cycle, leader.shape[0]))


def _lowest_ahead(following: Tensor) -> Tensor:
    """The lowest member that can be reached from each member, itself included, (H,)."""
    index = torch.arange(following.shape[0], device=following.device)
    lowest, step = (x.int() if x.shape[0] < _INT32 else x for x in (index, following))
    while True:  # the lowest member within 1, 2, 4, ... steps
        lower = lowest
        for _ in range(backend_of(following.device).doublings):
            lower, step = torch.minimum(lower, take(lower, step)), take(step, step)
        if torch.equal(lower, lowest):
            return lowest.long()
        lowest = lower


class Chains(NamedTuple):
    """C chains of S segments, in CSR form."""

    offsets: Tensor  # (C + 1,)
    members: Tensor  # (S,) the segments in order along each chain
    backward: Tensor  # (S,) whether the chain runs from the end of each segment to its start
    closed: Tensor  # (C,)


def chains(ends: Tensor, label: Tensor) -> Chains:
    """Join segments (S, 2) at the nodes where exactly two of one label (S,) meet.

    Chains are ordered by label, then by lowest segment, and have the direction of that segment;
    closed ones begin with it.

    >>> chains(torch.tensor([[0, 1], [2, 1], [2, 3]]), torch.zeros(3)).members
    tensor([0, 1, 2])
    """
    partner = _partners(ends, label)
    step = _steps(partner)
    index = torch.arange(ends.shape[0], device=ends.device)
    # The lowest segment that is reached through the end or through the start of each.
    lowest = (_lowest_ahead(step) >> 1).view(-1, 2).amin(1)
    closed = torch.ones_like(index, dtype=torch.bool)
    closed[take(lowest, _stops(partner).nonzero()[:, 0] >> 1)] = False
    leader = (lowest == index).nonzero()[:, 0]
    leader = take(leader, torch.sort(take(label, leader), stable=True).indices)
    closed = take(closed, leader)
    opened = 2 * leader[closed]  # closed chains are opened where they begin
    both = torch.cat([opened, partner[opened]])
    partner[both] = both
    last, ahead = _to_the_stop(_steps(partner))
    forward = last[0::2] == take(last, 2 * lowest)
    place = torch.where(forward, ahead[1::2], ahead[0::2])
    chain = torch.empty_like(index)
    chain[leader] = torch.arange(leader.shape[0], device=index.device)
    chain = take(chain, lowest)
    offsets = offsets_of(counts_of(chain, leader.shape[0]))
    members = torch.empty_like(index)
    members[take(offsets, chain) + place] = index
    return Chains(offsets, members, take(~forward, members), closed)


def _partners(ends: Tensor, label: Tensor) -> Tensor:
    """The other end (2S,) at a node that two ends of one label share, or the end itself."""
    kind = torch.unique(label, return_inverse=True)[1]
    nodes = int(ends.max()) + 1 if ends.shape[0] else 0
    key, order = torch.sort((kind[:, None] * nodes + ends).view(-1))
    same = torch.zeros(key.shape[0] + 1, dtype=torch.bool, device=key.device)
    same[1:-1] = key[1:] == key[:-1]  # whether each one equals the one before it
    first = (same[1:-1] & ~same[:-2] & ~same[2:]).nonzero()[:, 0]
    partner = torch.arange(key.shape[0], device=key.device)
    partner[order[first]] = order[first + 1]
    partner[order[first + 1]] = order[first]
    return partner


def _stops(partner: Tensor) -> Tensor:
    """Whether a chain ends with the segment that it enters through each end, (2S,)."""
    index = torch.arange(partner.shape[0], device=partner.device)
    return take(partner, index ^ 1) == index ^ 1


def _steps(partner: Tensor) -> Tensor:
    """The end through which a chain enters its next segment, or the same end at a stop, (2S,)."""
    index = torch.arange(partner.shape[0], device=partner.device)
    return torch.where(_stops(partner), index, take(partner, index ^ 1))


def _to_the_stop(step: Tensor) -> tuple[Tensor, Tensor]:
    """Where the steps from each end lead in the end, and how many steps there are, (2S,) each."""
    ahead = (step != torch.arange(step.shape[0], device=step.device)).long()
    while True:  # 1, 2, 4, ... steps at a time
        before = step
        for _ in range(backend_of(step.device).doublings):
            ahead, step = ahead + take(ahead, step), take(step, step)
        if torch.equal(before, step):
            return step, ahead
