"""A bounding volume hierarchy: a tree of boxes that finds what is near many points at once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from splinecam._util.arrays import take
from splinecam._util.tolerances import EPS, SAFETY

_FAN = 8  # boxes in a larger box
_PAIRS = 1 << 15  # pairs of a point and a group of boxes in a block
_BITS = {2: 31, 3: 20}  # of each coordinate in a Morton code, by the number of coordinates
_INTERLEAVE = {
    2: (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ),
    3: (
        (32, 0x001F00000000FFFF),
        (16, 0x001F0000FF0000FF),
        (8, 0x100F00F00F00F00F),
        (4, 0x10C30C30C30C30C3),
        (2, 0x1249249249249249),
    ),
}


class BoxTree:
    """M items with bounding boxes, ordered along a Morton curve; every eight have a larger box.

    low, high: (M, d) corners of the boxes in two or three dimensions. order, codes: (M,) the items
    along the curve and their Morton codes. levels: from the top down to the items, (G, 2d, 8)
    groups of eight boxes each, with rows for the smallest and for the largest coordinates.
    """

    def __init__(self, low: Tensor, high: Tensor) -> None:
        middle = low / 2 + high / 2
        self.dim = low.shape[1]
        self.origin, extent = low.new_zeros(self.dim), low.new_ones(())
        if low.shape[0]:
            self.origin = middle.amin(0)
            extent = (high.amax(0) - low.amin(0)).amax()
        self.cell = torch.where(extent > 0, extent, 1.0) / (1 << _BITS[self.dim])
        self.codes, self.order = torch.sort(self._code(middle))
        # By rounding, a computed nearest point may lie outside the box of its segment.
        slack = SAFETY * EPS * extent
        self.levels = _levels(take(low, self.order) - slack, take(high, self.order) + slack)

    def __len__(self) -> int:
        return int(self.order.shape[0])

    def _code(self, points: Tensor) -> Tensor:
        """The Morton codes of points (N, d): the bits of their coordinates in turns, (N,)."""
        most = (1 << _BITS[self.dim]) - 1
        place = ((points - self.origin) / self.cell).nan_to_num().clamp(0, most).long()
        for shift, mask in _INTERLEAVE[self.dim]:
            place = (place | (place << shift)) & mask
        return (place << torch.arange(self.dim, device=place.device)).sum(1)

    def sorted(self, points: Tensor) -> Tensor:
        """The order of points (N, d) along the curve, so that neighbours meet the same boxes."""
        return torch.argsort(self._code(points))

    def guesses(self, points: Tensor, count: int) -> Tensor:
        """The items next to each point (N, d) on the curve, which may be near it, (N, count)."""
        place = torch.searchsorted(self.codes, self._code(points)) - count // 2
        around = place[:, None] + torch.arange(count, device=place.device)
        return self.order[around.clamp(0, len(self) - 1)]

    def walk(
        self, points: Tensor, reach: Tensor, *, inside: Tensor | None = None, nearest: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield pairs (point, item) of points (N, d) and items whose box is within their reach.

        reach: (N,) squared; the caller may lower it between pairs. inside: (N,) is increased by
        the numbers of items whose boxes are entirely within reach, and these are not yielded.
        nearest: only the nearest item is wanted, so that the reach shrinks to any box within it.
        """
        index = torch.arange(points.shape[0], device=points.device)
        stack = [(0, point, torch.zeros_like(point)) for point in torch.split(index, _PAIRS)]
        while stack and len(self):
            level, point, group = stack.pop()
            boxes, at = take(self.levels[level], group), take(points, point)[:, :, None]
            below, above = boxes[:, : self.dim] - at, at - boxes[:, self.dim :]  # (N, d, 8)
            near = _squares(below.maximum(above).clamp_(min=0)) * (1 - SAFETY * EPS)
            far = _squares(below.minimum(above))
            if nearest:
                reach.scatter_reduce_(0, point, far.amin(1), "amin")
            bound = take(reach, point)[:, None]
            keep = near <= bound
            if inside is not None:
                full = keep & (far <= bound)
                sizes = torch.where(full, self._sizes(level, group), 0).sum(1)
                inside.index_add_(0, point, sizes)
                keep &= ~full
            pair, child = keep.nonzero().unbind(1)
            point, node = take(point, pair), _FAN * take(group, pair) + child
            if level + 1 == len(self.levels):
                yield point, take(self.order, node)
            else:
                pieces = zip(torch.split(point, _PAIRS), torch.split(node, _PAIRS), strict=True)
                stack += [(level + 1, *piece) for piece in pieces]

    def _sizes(self, level: int, group: Tensor) -> Tensor:
        """The numbers of items in eight boxes each, (N, 8)."""
        width = _FAN ** (len(self.levels) - 1 - level)
        first = width * (_FAN * group[:, None] + torch.arange(_FAN, device=group.device))
        return torch.clamp(len(self) - first, 0, width)


def _squares(gap: Tensor) -> Tensor:
    """The squared lengths of (N, d, 8) vectors, (N, 8)."""
    found = gap[:, 0].square() + gap[:, 1].square()
    return found if gap.shape[1] == 2 else found + gap[:, 2].square()


def _levels(low: Tensor, high: Tensor) -> list[Tensor]:
    """Groups of eight boxes, groups of eight boxes around these, and so on, the top first."""
    levels: list[Tensor] = []
    dim = low.shape[1]
    while not levels or low.shape[0] > 1:
        missing = -low.shape[0] % _FAN
        low = pad(low, (0, 0, 0, missing), value=torch.inf).view(-1, _FAN, dim)
        high = pad(high, (0, 0, 0, missing), value=-torch.inf).view(-1, _FAN, dim)
        levels.append(torch.cat([low, high], 2).transpose(1, 2).contiguous())
        low, high = low.amin(1), high.amax(1)
    return levels[::-1]
