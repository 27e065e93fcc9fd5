"""Groups of units whose maximum is taken: windows of a max-pool, pieces of a maxout unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod

import torch
from torch import Tensor

__all__ = ["Groups"]

_INT8 = 1 << 7


@dataclass(frozen=True, eq=False)
class Groups:
    """G groups of R units each, of which the largest wins.

    members: (G, R) the units; shape: the groups as the result arranges them. ids: gives for units
    (B, n) a number of the winner of each group, (B, *shape), if that is faster than a comparison.
    some: whether they are a selection of groups, and so hardly regular.
    """

    members: Tensor
    shape: tuple[int, ...]
    ids: Callable[[Tensor], Tensor] | None = None
    some: bool = False

    def winners(self, z: Tensor, slack: Tensor) -> Tensor:
        """A number for the largest unit of each group, (B, G); the first within slack (G,)."""
        if self.ids is not None:
            return self.ids(z).view(-1, self.count)
        columns, slack = list(self.columns(z)), slack.view(self.shape)
        best = reduce(torch.maximum, columns) - slack
        size = len(columns)
        kind = torch.int8 if size < _INT8 else torch.int16
        first = torch.full_like(best, size - 1, dtype=kind)
        for r in range(size - 2, -1, -1):
            first.masked_fill_(columns[r] >= best, r)
        return first.view(-1, self.count)

    def columns(self, z: Tensor) -> Iterator[Tensor]:
        """The first members of all groups of units z (B, n), then the second, ...: (B, *shape).

        In most pools a window's k-th member is always at the same distance from its first: then a
        view of z is enough.
        """
        for r, (start, steps) in enumerate(self._strides):
            if start < 0 or not z.is_contiguous():
                yield z.index_select(1, self.members[:, r]).view(-1, *self.shape)
            else:
                size, step = (z.shape[0], *self.shape), (z.shape[1], *steps)
                yield z.as_strided(size, step, z.storage_offset() + start)

    @cached_property
    def _strides(self) -> list[tuple[int, tuple[int, ...]]]:
        """The first unit of each column and the strides to the next; first is -1 if they vary."""
        if self.some:
            return [(-1, ())] * self.members.shape[1]
        found = []
        table = self.members.view(*self.shape, self.members.shape[1]).cpu()
        for column in table.unbind(-1):
            start = int(column[(0,) * column.dim()])
            expected, steps = torch.tensor(start), []
            for dim, size in enumerate(self.shape):
                step = int(column.movedim(dim, 0)[-1].flatten()[0]) - start
                steps.append(step // max(1, size - 1))
                expected = expected[..., None] + torch.arange(size) * steps[-1]
            regular = min(steps, default=0) >= 0 and torch.equal(expected, column)
            found.append((start if regular else -1, tuple(steps)))
        return found

    def select(self, chosen: Tensor) -> Groups:
        """Only some of the groups, (N,)."""
        return Groups(self.members[chosen], (int(chosen.shape[0]),), some=True)

    @property
    def count(self) -> int:
        return prod(self.shape)
