"""Who hangs together: the components of a graph, and the cycles of a permutation."""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam.ragged import offsets_of, take

__all__ = ["components", "cycles"]

_INT32 = 1 << 31  # members that fit in 32 bits, with which gathers are faster


def components(n: int, a: Tensor, b: Tensor) -> Tensor:
    """Label (n,) the connected components of the graph with edges a-b, 0, 1, ... by lowest node."""
    root = torch.arange(n, device=a.device)
    while True:
        low = torch.minimum(root[a], root[b])
        hooked = root.scatter_reduce(0, root[a], low, "amin").scatter_reduce(
            0, root[b], low, "amin"
        )
        while not torch.equal(hooked, hooked[hooked]):
            hooked = hooked[hooked]
        if torch.equal(hooked, root):
            labels: Tensor = torch.unique(root, return_inverse=True)[1]
            return labels
        root = hooked


def cycles(following: Tensor) -> tuple[Tensor, Tensor]:
    """The cycles of a permutation: offsets (F + 1,) and their members in order, (H,)."""
    index = torch.arange(following.shape[0], device=following.device)
    lowest, jump = (x.int() if x.shape[0] < _INT32 else x for x in (index, following))
    while True:  # the lowest member within 1, 2, 4, ... steps
        lower = torch.minimum(lowest, take(lowest, jump))
        if torch.equal(lower, lowest):
            break
        lowest, jump = lower, take(jump, jump)
    lowest = lowest.long()
    leader = (lowest == index).nonzero()[:, 0]
    rank = torch.empty_like(index)
    rank[leader] = torch.arange(leader.shape[0], device=index.device)
    offsets = offsets_of(torch.bincount(take(rank, lowest), minlength=leader.shape[0]))
    members = torch.empty_like(index)
    current, place = leader, offsets[:-1]
    while current.shape[0]:  # all cycles are walked at once
        members.index_copy_(0, place, current)
        current, place = take(following, current), place + 1
        going = (current != take(lowest, current)).nonzero()[:, 0]
        current, place = take(current, going), take(place, going)
    return offsets, members
