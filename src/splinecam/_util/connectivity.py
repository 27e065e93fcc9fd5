"""Who hangs together: the components of a graph, cycles of a permutation, chains of segments."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import counts_of, offsets_of, take

__all__ = ["Chains", "chains", "components", "cycles", "long_cycles", "roots"]

_INT32 = 1 << 31  # members that fit in 32 bits, with which gathers are faster


def components(n: int, a: Tensor, b: Tensor) -> Tensor:
    """Label (n,) the connected components of the graph with edges a-b, 0, 1, ... by lowest node."""
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
    """The cycles of a permutation: offsets (F + 1,) and their members in order, (H,).

    Each begins with its lowest member. Made for short cycles: their members are walked along, but
    for a GPU, which would have to wait for every step.
    """
    if backend_of(following.device).asynchronous:
        return long_cycles(following)
    lowest, leader, cycle, offsets = _leaders(following)
    members = torch.empty_like(cycle)
    current, place = leader, offsets[:-1]
    while current.shape[0]:  # all cycles are walked at once
        members.index_copy_(0, place, current)
        current, place = take(following, current), place + 1
        going = (current != take(lowest, current)).nonzero()[:, 0]
        current, place = take(current, going), take(place, going)
    return offsets, members


def long_cycles(following: Tensor) -> tuple[Tensor, Tensor]:
    """What ``cycles`` gives, in as many rounds as the longest cycle's length has binary digits.

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
    """Of each member's cycle the lowest member (H,), these in order (F,), its rank, the offsets."""
    lowest = _lowest_ahead(following)
    index = torch.arange(following.shape[0], device=following.device)
    leader = (lowest == index).nonzero()[:, 0]
    rank = torch.empty_like(index)
    rank[leader] = torch.arange(leader.shape[0], device=index.device)
    cycle = take(rank, lowest)
    return lowest, leader, cycle, offsets_of(counts_of(cycle, leader.shape[0]))


def _lowest_ahead(following: Tensor) -> Tensor:
    """The lowest member that one comes by from each, itself included, (H,)."""
    index = torch.arange(following.shape[0], device=following.device)
    lowest, jump = (x.int() if x.shape[0] < _INT32 else x for x in (index, following))
    while True:  # the lowest member within 1, 2, 4, ... steps
        lower = lowest
        for _ in range(backend_of(following.device).doublings):
            lower, jump = torch.minimum(lower, take(lower, jump)), take(jump, jump)
        if torch.equal(lower, lowest):
            return lowest.long()
        lowest = lower


class Chains(NamedTuple):
    """C chains of S segments, in CSR form.

    offsets: (C + 1,); members: (S,) the segments in order along each chain; backward: (S,) whether
    each of them is passed from its end to its start; closed: (C,).
    """

    offsets: Tensor
    members: Tensor
    backward: Tensor
    closed: Tensor


def chains(ends: Tensor, label: Tensor) -> Chains:
    """Chain segments (S, 2) at the nodes where exactly two of one label (S,) meet.

    Chains are ordered by label, then by lowest segment, and have the direction of that segment;
    closed ones begin with it.

    >>> chains(torch.tensor([[0, 1], [2, 1], [2, 3]]), torch.zeros(3)).members
    tensor([0, 1, 2])
    """
    mate = _mates(ends, label)
    step = _steps(mate)
    index = torch.arange(ends.shape[0], device=ends.device)
    # Where one comes by when leaving through the end, and through the start.
    lowest = (_lowest_ahead(step) >> 1).view(-1, 2).amin(1)
    closed = torch.ones_like(index, dtype=torch.bool)
    closed[take(lowest, _stops(mate).nonzero()[:, 0] >> 1)] = False
    leader = (lowest == index).nonzero()[:, 0]
    leader = take(leader, torch.sort(take(label, leader), stable=True).indices)
    closed = take(closed, leader)
    opened = 2 * leader[closed]  # closed chains are opened where they begin
    both = torch.cat([opened, mate[opened]])
    mate[both] = both
    last, ahead = _to_the_stop(_steps(mate))
    forward = last[0::2] == take(last, 2 * lowest)
    place = torch.where(forward, ahead[1::2], ahead[0::2])
    chain = torch.empty_like(index)
    chain[leader] = torch.arange(leader.shape[0], device=index.device)
    chain = take(chain, lowest)
    offsets = offsets_of(counts_of(chain, leader.shape[0]))
    members = torch.empty_like(index)
    members[take(offsets, chain) + place] = index
    return Chains(offsets, members, take(~forward, members), closed)


def _mates(ends: Tensor, label: Tensor) -> Tensor:
    """The other end at a node that two ends of one label share, or the end itself, (2S,).

    End 2s is the start of segment s, end 2s + 1 its end.
    """
    kind = torch.unique(label, return_inverse=True)[1]
    nodes = int(ends.max()) + 1 if ends.shape[0] else 0
    key, order = torch.sort((kind[:, None] * nodes + ends).view(-1))
    same = torch.zeros(key.shape[0] + 1, dtype=torch.bool, device=key.device)
    same[1:-1] = key[1:] == key[:-1]  # each one and the one before it
    first = (same[1:-1] & ~same[:-2] & ~same[2:]).nonzero()[:, 0]
    mate = torch.arange(key.shape[0], device=key.device)
    mate[order[first]] = order[first + 1]
    mate[order[first + 1]] = order[first]
    return mate


def _stops(mate: Tensor) -> Tensor:
    """Whether one can not go on after entering a segment through each end, (2S,)."""
    index = torch.arange(mate.shape[0], device=mate.device)
    return take(mate, index ^ 1) == index ^ 1


def _steps(mate: Tensor) -> Tensor:
    """The end through which the next segment is entered; at a stop one stays, (2S,)."""
    index = torch.arange(mate.shape[0], device=mate.device)
    return torch.where(_stops(mate), index, take(mate, index ^ 1))


def _to_the_stop(step: Tensor) -> tuple[Tensor, Tensor]:
    """Where the steps from each end lead at last, and how many they are, (2S,) each."""
    ahead = (step != torch.arange(step.shape[0], device=step.device)).long()
    while True:  # 1, 2, 4, ... steps at a time
        before = step
        for _ in range(backend_of(step.device).doublings):
            ahead, step = ahead + take(ahead, step), take(step, step)
        if torch.equal(before, step):
            return step, ahead
