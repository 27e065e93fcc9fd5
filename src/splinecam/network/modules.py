"""Piecewise-linear modules that torch does not have; ``partition`` knows all of them.

PiecewiseLinear   a function of one variable, given by its values at knots
PeriodicEncoding  the positional encoding of coordinates by piecewise-linear sines and cosines
Maxout            the largest of several affine functions
GroupSort         every group of features in ascending order
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, tau
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from splinecam.network.ops.register import Table, register_table

Extrapolate = Literal["linear", "constant", "periodic"]


class PiecewiseLinear(nn.Module):
    """A piecewise-linear function of one variable, applied to every entry of its input.

    knots: (K,) ascending; values: (K,) there, or (K, C) for C functions with common knots, which
    make (..., C) of (...). Outside the knots it goes on with the slopes at the ends, with the
    values at the ends, or from the start: the period is then ``knots[-1] - knots[0]``, the first
    and the last value must be equal, and the parameter ``values`` holds all but the last.

    >>> tent = PiecewiseLinear([-1.0, 0.0, 1.0], [0.0, 1.0, 0.0], extrapolate="constant")
    >>> tent(torch.tensor([-2.0, -0.25, 0.0, 0.5])).tolist()
    [0.0, 0.75, 1.0, 0.5]
    """

    knots: Tensor
    values: Tensor

    def __init__(
        self,
        knots: Tensor | Sequence[float],
        values: Tensor | Sequence[float] | Sequence[Sequence[float]],
        *,
        extrapolate: Extrapolate = "linear",
        trainable: bool = True,
    ) -> None:
        super().__init__()
        if extrapolate not in get_args(Extrapolate):
            choices = ", ".join(map(repr, get_args(Extrapolate)))
            raise ValueError(f"extrapolate is {extrapolate!r}: it must be one of {choices}")
        table = _copy(values)
        knots = _copy(knots).to(table.device)
        if knots.dim() != 1 or len(knots) < 2:
            raise ValueError(f"knots has shape {tuple(knots.shape)}: it must be (K,) with K >= 2")
        if not bool(knots.isfinite().all() and (knots[1:] > knots[:-1]).all()):
            raise ValueError(f"knots must be finite and strictly ascending: {knots.tolist()}")
        if table.dim() not in (1, 2) or table.shape[0] != knots.shape[0]:
            raise ValueError(
                f"values has shape {tuple(table.shape)}: it must be ({len(knots)},), one value "
                f"per knot, or ({len(knots)}, C) for C functions"
            )
        if not bool(table.isfinite().all()):
            raise ValueError("values must be finite")
        if extrapolate == "periodic":
            table = _closed(table)
        self.extrapolate = extrapolate
        self.register_buffer("knots", knots)
        if trainable:
            self.values = nn.Parameter(table)
        else:
            self.register_buffer("values", table)

    @property
    def table(self) -> Tensor:
        """The values at all knots, (K,) or (K, C)."""
        if self.extrapolate != "periodic":
            return self.values
        return torch.cat([self.values, self.values[:1]])

    def forward(self, x: Tensor) -> Tensor:
        """The function of every entry: (...) to (...), or to (..., C); in the type of x."""
        dtype = torch.promote_types(x.dtype, self.knots.dtype)
        knots, table = self.knots.to(dtype), self.table.to(dtype)
        z = x.to(dtype)
        if self.extrapolate == "constant":
            z = z.clamp(knots[0], knots[-1])
        elif self.extrapolate == "periodic":
            z = torch.remainder(z - knots[0], knots[-1] - knots[0]) + knots[0]
        piece = torch.bucketize(z.detach().contiguous(), knots[1:-1], right=True)
        share = (z - knots[piece]) / (knots[piece + 1] - knots[piece])
        if table.dim() == 2:
            share = share.unsqueeze(-1)
        # lerp starts from the nearer end: exact at both knots, and precise beyond them.
        result = torch.lerp(table[piece], table[piece + 1], share)
        return result.to(x.dtype) if x.is_floating_point() else result

    def extra_repr(self) -> str:
        functions = f", {self.values.shape[1]} functions" if self.values.dim() == 2 else ""
        low, high = float(self.knots[0]), float(self.knots[-1])
        return f"{len(self.knots)} knots from {low:g} to {high:g}{functions}, {self.extrapolate}"


def _copy(numbers: Tensor | Sequence[float] | Sequence[Sequence[float]]) -> Tensor:
    """A floating-point copy without a gradient."""
    tensor = torch.as_tensor(numbers).detach().clone()
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def _closed(table: Tensor) -> Tensor:
    """All values but the last, which must be the first one up to rounding."""
    rounding = 4 * torch.finfo(table.dtype).eps * table.abs().max()
    if bool(((table[0] - table[-1]).abs() > rounding).any()):
        raise ValueError(
            f"a periodic function must end as it begins: the first value is {table[0].tolist()}, "
            f"the last {table[-1].tolist()}"
        )
    return table[:-1].clone()


def _table_of(module: PiecewiseLinear) -> Table:
    """Where the slopes of a PiecewiseLinear change, for ``partition``."""
    knots, table = module.knots, module.table.reshape(len(module.knots), -1)
    slopes = (table[1:] - table[:-1]) / (knots[1:] - knots[:-1])[:, None]
    if module.extrapolate == "periodic":
        return Table(knots[:-1], torch.cat([slopes[-1:], slopes]), float(knots[-1] - knots[0]))
    ends = torch.zeros_like(slopes[:1]) if module.extrapolate == "constant" else None
    first, last = (slopes[:1], slopes[-1:]) if ends is None else (ends, ends)
    return Table(knots, torch.cat([first, slopes, last]))


register_table(PiecewiseLinear, _table_of)


class PeriodicEncoding(nn.Module):
    """The positional encoding (..., d) to (..., d (1 + 2 L)) of coordinates, piecewise linear.

    The blocks ``[x, psin(pi x), pcos(pi x), psin(2 pi x), ...]``, up to the frequency
    ``2^(L - 1) pi``, follow each other, each with all d coordinates; ``psin`` and ``pcos``
    interpolate sine and cosine linearly between ``pieces`` equally spaced knots per period.

    >>> encode = PeriodicEncoding(n_frequencies=5)
    >>> encode(torch.rand(8, 2)).shape
    torch.Size([8, 22])
    """

    scales: Tensor

    def __init__(
        self,
        n_frequencies: int,
        pieces: int = 5,
        *,
        include_input: bool = True,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if n_frequencies < 1:
            raise ValueError(f"n_frequencies is {n_frequencies}: it must be at least 1")
        if pieces < 3:
            raise ValueError(f"pieces is {pieces}: a period has at least 3")
        self.n_frequencies, self.pieces, self.include_input = n_frequencies, pieces, include_input
        dtype = dtype or torch.get_default_dtype()
        # A knot has the distance 1 from the next, so that all of them are exact in every type.
        knots = torch.arange(pieces + 1, dtype=torch.float64)
        angle = knots.remainder(pieces) * tau / pieces
        waves = torch.stack([angle.sin(), angle.cos()], 1)
        self.waves = PiecewiseLinear(
            knots.to(dtype), waves.to(dtype), extrapolate="periodic", trainable=False
        )
        scales = [2.0 ** (k - 1) * pieces for k in range(n_frequencies)]
        self.register_buffer("scales", torch.tensor(scales, dtype=dtype), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """The encoding of points (..., d)."""
        waves = self.waves(x.unsqueeze(-2) * self.scales.to(x.dtype).unsqueeze(-1))
        features = waves.transpose(-1, -2).flatten(-3)
        return torch.cat([x, features], -1) if self.include_input else features

    def extra_repr(self) -> str:
        rest = "" if self.include_input else ", include_input=False"
        return f"n_frequencies={self.n_frequencies}, pieces={self.pieces}{rest}"

    @torch.no_grad()
    def relu_form(self, low: float, high: float, dim: int) -> nn.Sequential:
        """Linear, ReLU and Linear that are this encoding for all points of ``[low, high]^dim``.

        >>> encode = PeriodicEncoding(2, dtype=torch.float64)
        >>> x = torch.rand(8, 2, dtype=torch.float64)
        >>> torch.allclose(encode.relu_form(0, 1, dim=2)(x), encode(x))
        True
        """
        if not low < high:
            raise ValueError(f"low = {low} must be less than high = {high}")
        finest = float(self.scales[-1])
        inner = [j / finest for j in range(floor(low * finest) + 1, ceil(high * finest))]
        at = torch.tensor([low, *inner, high], dtype=torch.float64)
        options: Any = {"include_input": self.include_input, "dtype": torch.float64}
        value = PeriodicEncoding(self.n_frequencies, self.pieces, **options)(at[:, None])
        slope = (value[1:] - value[:-1]) / (at[1:] - at[:-1])[:, None]
        bend = torch.cat([slope[:1], slope[1:] - slope[:-1]])  # at every knot but the last
        each = torch.eye(dim, dtype=torch.float64)
        units = nn.Linear(dim, dim * bend.shape[0]).to(self.scales)
        mix = nn.Linear(dim * bend.shape[0], dim * bend.shape[1]).to(self.scales)
        units.weight.copy_(torch.kron(each, torch.ones_like(bend[:, :1])))
        units.bias.copy_(-at[:-1].repeat(dim))
        mix.weight.copy_(torch.einsum("kf,ij->fijk", bend, each).reshape(mix.weight.shape))
        mix.bias.copy_(value[0].repeat_interleave(dim))
        return nn.Sequential(units, nn.ReLU(), mix)


class Maxout(nn.Module):
    """Linear functions (..., in_features) to (..., out_features), each the largest of ``pieces``.

    >>> Maxout(2, 8, pieces=3)(torch.rand(5, 2)).shape
    torch.Size([5, 8])
    """

    def __init__(self, in_features: int, out_features: int, pieces: int) -> None:
        super().__init__()
        if pieces < 1 or out_features < 1:
            raise ValueError(f"Maxout needs at least one unit of one piece, not {pieces=}")
        self.out_features, self.pieces = out_features, pieces
        self.linear = nn.Linear(in_features, out_features * pieces)

    def forward(self, x: Tensor) -> Tensor:
        """The largest of each unit's pieces."""
        return torch.unflatten(self.linear(x), -1, (self.out_features, self.pieces)).amax(-1)

    def extra_repr(self) -> str:
        return f"out_features={self.out_features}, pieces={self.pieces}"


class GroupSort(nn.Module):
    """Sorts every ``group_size`` neighbouring features of (..., n), in ascending order.

    >>> GroupSort()(torch.tensor([3.0, 1.0, 2.0, 4.0])).tolist()
    [1.0, 3.0, 2.0, 4.0]
    """

    def __init__(self, group_size: int = 2) -> None:
        super().__init__()
        if group_size < 1:
            raise ValueError(f"GroupSort needs groups of at least one feature, not {group_size}")
        self.group_size = group_size

    def forward(self, x: Tensor) -> Tensor:
        """The features, sorted group by group."""
        return torch.unflatten(x, -1, (-1, self.group_size)).sort(-1).values.flatten(-2)

    def extra_repr(self) -> str:
        return f"group_size={self.group_size}"
