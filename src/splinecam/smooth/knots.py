"""Tables of smooth functions: knots where the curvature is, and errors that average to zero."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.network.curves import Curve

__all__ = ["Tables", "tables_of"]

_SAMPLES = 1 << 14  # points at which the density of knots is known
_MOST = 1 << 14  # pieces of a unit
_TINY = 2.0**-500
_UNEVEN = 0.6180339887498949  # steps that fill the numbers from 0 to 1 evenly
_MARGIN = 2.0**-7  # of a unit's range, by which its table is wider


@dataclass(frozen=True)
class Tables:
    """A continuous piecewise-linear function for each of n units.

    levels: (K, n) knots between pieces, ascending, with ``inf`` in the last places of a unit with
    fewer; start, value, slope: (K + 1, n) of every piece where it begins, and how steep it is. The
    pieces after a unit's last are copies of it. pieces: (n,) how many there are.
    """

    levels: Tensor
    start: Tensor
    value: Tensor
    slope: Tensor
    pieces: Tensor

    def to(self, device: torch.device) -> Tables:
        """The same on a device."""
        return Tables(*(tensor.to(device) for tensor in vars(self).values()))


def piecewise_linear(
    z: Tensor, levels: Tensor, start: Tensor, value: Tensor, slope: Tensor
) -> Tensor:
    """Functions of one variable each, given by their pieces, at z (B, *shape)."""
    columns = z.reshape(z.shape[0], -1).T.contiguous()
    piece = torch.searchsorted(levels.T.contiguous(), columns)
    found = columns - start.T.gather(1, piece)
    found *= slope.T.gather(1, piece)
    found += value.T.gather(1, piece)
    return found.T.reshape(z.shape)


def tables_of(curve: Curve, low: Tensor, high: Tensor, tolerance: Tensor) -> Tables:
    """Tables of a function on intervals [low, high] that are off by about tolerance, (n,) each.

    A chord over a width h is off by |f''| h^2 / 8 in the middle, so knots are as dense as the root
    of |f''|. It is shifted by two thirds of that, after which it is off by 0 on average: errors of
    many units cancel in sums better than if each had its least maximum, half of that.
    """
    width = high - low
    # Where units have no influence, any error is allowed, but functions may be steep far outside.
    margin = _MARGIN * width + torch.minimum(2 * tolerance, width)
    margin = torch.maximum(margin, 2.0**-20 * torch.maximum(low.abs(), high.abs()) + 2.0**-40)
    # Knots in the middle of all ranges would make lines that meet in the middle of the domain.
    more = torch.arange(len(low), device=low.device) * _UNEVEN % 1
    low, high = (
        torch.where(torch.isfinite(curve.value(wider)), wider, end)  # exp is soon too large
        for end, wider in ((low, low - margin), (high, high + (1 + more) * margin))
    )
    knots = _knots(curve, low, high, tolerance)
    pieces = torch.isfinite(knots).sum(0) - 1
    last = pieces.view(1, -1)
    filled = torch.where(torch.isfinite(knots), knots, high)
    exact = curve.value(filled)
    middle = curve.value((filled[1:] + filled[:-1]) / 2)
    deviation = middle - (exact[1:] + exact[:-1]) / 2
    place = torch.arange(len(knots), device=low.device)[:, None]
    deviation = torch.where(place[:-1] < last, deviation, deviation.gather(0, last - 1))
    ends = deviation[:1], deviation.gather(0, last - 1)
    around = torch.cat([ends[0], deviation]) + torch.cat([deviation, ends[1]])
    values = exact + around / 3
    rise = values[1:] - values[:-1]
    width = filled[1:] - filled[:-1]
    within = place[:-1] < last
    slope = torch.where(within, rise / torch.where(within, width, 1.0), 0.0)
    own = torch.minimum(place[:-1], last - 1)
    inner = torch.where(place[1:-1] < last, knots[1:-1], torch.inf)
    return Tables(
        inner.contiguous(),
        filled[:-1].gather(0, own),
        values[:-1].gather(0, own),
        slope.gather(0, own),
        pieces,
    )


def _knots(curve: Curve, low: Tensor, high: Tensor, tolerance: Tensor) -> Tensor:
    """Ends of pieces of equal error, from low to high and ``inf`` after that, (K + 1, n)."""
    first, last = float(low.min()), float(high.max())
    z = torch.linspace(first, last, _SAMPLES, dtype=low.dtype, device=low.device)
    density = curve.curvature(z).abs().sqrt()
    amount = torch.cumulative_trapezoid(density, z)
    amount = torch.cat([amount.new_zeros(1), amount])
    begin, end = (_interpolate(each, z, amount) for each in (low, high))
    pieces = torch.ceil((end - begin) / (4 * tolerance.clamp(min=_TINY).sqrt())).clamp(1, _MOST)
    least = 2.0**-20 * (float(amount[-1]) + _TINY) / (last - first)
    amount = amount + least * (z - first)  # it has an inverse
    begin, end = (_interpolate(each, z, amount) for each in (low, high))
    place = torch.arange(int(pieces.max()) + 1, device=low.device)[:, None]
    inside = _interpolate(begin + (end - begin) * place / pieces, amount, z)
    knots = torch.where(place < pieces, inside, torch.where(place == pieces, high, torch.inf))
    knots[0] = low
    for level, _ in curve.kinks:  # they must be knots
        within = (low < level) & (level < high)
        knots = torch.cat([knots, torch.where(within, level, torch.inf)[None]])
    knots = knots.sort(0).values
    same = torch.zeros_like(knots, dtype=torch.bool)
    same[1:] = knots[1:] <= knots[:-1]
    if bool((same & torch.isfinite(knots)).any()):
        knots = torch.where(same, torch.inf, knots).sort(0).values
    return knots[: int(torch.isfinite(knots).sum(0).max())]


def _interpolate(x: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """A function given by its values (N,) at ascending knots (N,), at any points."""
    right = torch.searchsorted(knots, x.contiguous()).clamp(1, len(knots) - 1)
    x0, x1, y0, y1 = knots[right - 1], knots[right], values[right - 1], values[right]
    share = ((x - x0) / (x1 - x0)).clamp(0, 1)
    return y0 + share * (y1 - y0)
