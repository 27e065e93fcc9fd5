"""A curve near another one of which little is known but a bound on its second derivative."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS
from splinecam.network.curves.curve import Curve, RegisteredCurve, Scaled

_CELLS, _BLOCK = 1 << 17, 1 << 4  # cells of a table, and how many of them are bounded together
_BLOCKS = _CELLS // _BLOCK
_SLACK = 2.0**-20  # of a block, by which intervals are wider, so that rounding is covered
_ROUNDING = 2.0**10 * EPS  # of a function of the user, twice and more
_ROUGH = 2.5  # times the bound on second derivatives: what rounding, or jumps, may make of them


@dataclass(frozen=True, eq=False)
class TabulatedCurve(Curve):
    """A cubic function on each cell of a table, with values and slopes of a function at its ends.

    The second derivatives of cubic functions are known everywhere, those of ``base`` are not. On a
    cell of width h the two differ by at most h^2 / 16 times the sum of their largest second
    derivatives, which is in ``off``. Beyond the table both are the same.

    first, width: of the cells; terms: (3, N) slope, second and third derivative where each begins;
    ranges: (2, ...) for each order the least and the largest derivative on 1, 2, 4, ... blocks of
    cells, from each block on; errors: rounding of slopes and of second derivatives.
    """

    base: Curve
    first: float
    width: float
    terms: Tensor
    ranges: tuple[Tensor, ...]
    errors: tuple[float, float]

    @property
    def _noise(self) -> tuple[float, float]:
        return self.errors

    def slope_rounding(self, slope: Tensor) -> Tensor:
        return self.base.slope_rounding(slope) + self.errors[0]

    def derivative(self, order: int, z: Tensor) -> Tensor:
        """That of the cubic functions; but values are those of the base."""
        if order == 0:
            return self.base.value(z)
        cell = ((z - self.first) / self.width).long().clamp(0, _CELLS - 1)
        x = z - (self.first + self.width * cell)
        slope, second, third = self.terms[:, cell.reshape(-1)].view(3, *z.shape)
        found = slope + x * (second + x * third / 2) if order == 1 else second + x * third
        beyond = self._beyond(z, z)
        return torch.where(beyond, self.base.derivative(order, z), found) if beyond.any() else found

    def extent(self, order: int, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        begin, end = (
            ((each - self.first) / (self.width * _BLOCK) + off).clamp(0, _BLOCKS - 1)
            for each, off in ((low, -_SLACK), (high, _SLACK))
        )
        begin, end = (each.nan_to_num(0.0).long() for each in (begin, end))
        size = torch.log2((end - begin + 1).to(low)).long()
        places = (size * _BLOCKS + each for each in (begin, end + 1 - (1 << size)))
        first, last = (self.ranges[order][:, each.reshape(-1)] for each in places)
        least = torch.minimum(first[0], last[0]).view(low.shape)
        most = torch.maximum(first[1], last[1]).view(low.shape)
        beyond = self._beyond(low, high)
        if bool(beyond.any()):
            lower, upper = self.base.extent(order, low, high)
            least = torch.where(beyond, torch.minimum(lower, least), least)
            most = torch.where(beyond, torch.maximum(upper, most), most)
        return least, most

    def _beyond(self, low: Tensor, high: Tensor) -> Tensor:
        """Which intervals leave the table, or are none."""
        return ~((low >= self.first) & (high <= self.first + self.width * _CELLS))


def is_registered(curve: Curve) -> bool:
    """Whether little is known of a function, because it is the user's."""
    return isinstance(curve.base if isinstance(curve, Scaled) else curve, RegisteredCurve)


def tabulated(curve: Curve, low: Tensor, high: Tensor) -> Curve:
    """A function near a registered one that is known closely between two levels and around."""
    first, width = float(low - (high - low) / 16), float(high - low) / _CELLS * (9 / 8)
    if not 0 < width < torch.inf:
        return curve  # as it is also where it is too large or too rough
    z = first + width * torch.arange(_CELLS + 1, dtype=torch.float64, device=low.device)
    value, slope, h = curve.value(z), curve.slope(z), z[1:] - z[:-1]
    rise, turn = (value[1:] - value[:-1]) / h - slope[:-1], slope[1:] - slope[:-1]
    second, third = (6 * rise - 2 * turn) / h, (6 * turn - 12 * rise) / h.square()
    ends = torch.stack([second, second + third * h])
    bent, steep, large = (float(each.abs().max()) for each in (ends, slope, value))
    limit = float(curve.curvature_bound(z[:-1], z[1:]).max())
    if not bent <= _ROUGH * limit or not max(steep, large) < torch.inf:
        return curve
    error = 2**5 * EPS * (large / width + steep) / width
    off = (limit + bent + error) * width**2 / 15 + _ROUNDING * (large + steep * width)
    slopes, values = (torch.stack([each[:-1], each[1:]]) for each in (slope, value))
    ranges = (
        _ranges(values, (steep + bent * width) * width + off),
        _ranges(slopes, bent * width),
        _ranges(ends, 0.0),
    )
    terms = torch.stack([slope[:-1], second, third])
    errors = width * error + 2**3 * EPS * steep, error
    return TabulatedCurve(
        curve.name, curve, first, width, terms, ranges, errors, rounding=curve.rounding, off=off
    )


def _ranges(ends: Tensor, beyond: float) -> Tensor:
    """The least and the largest of cells on blocks, by ends (2, N) and what is beyond them."""
    both = ends.view(2, _BLOCKS, _BLOCK)
    found = [torch.stack([-both.amin((0, 2)), both.amax((0, 2))]) + beyond]
    step = 1
    while step < _BLOCKS:
        ahead = torch.cat([found[-1][:, step:], found[-1][:, -1:].expand(-1, step)], 1)
        found.append(torch.maximum(found[-1], ahead))
        step *= 2
    return torch.cat(found, 1) * found[0].new_tensor([[-1.0], [1.0]])
