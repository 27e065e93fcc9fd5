"""Rows of tables for the compiled loops: new rows on lines, and the signs and range of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splinecam.geometry.interpolation import Breakpoints, InterpolatedVertices
from splinecam.kernels.library import LinesStruct, SignRangeStruct

__all__ = ["LineRows", "SignRange"]


class SignRange:
    """Accumulates the range and the signs of the rows that the compiled loops pass.

    tolerance: (n,) moduli up to which values count as zero; positive, negative: (V, W) words that
    the loops write.
    """

    def __init__(self, tolerance: Tensor, positive: Tensor, negative: Tensor) -> None:
        self.low = torch.full_like(tolerance, torch.inf)
        self.high = torch.full_like(tolerance, -torch.inf)
        self._held = (tolerance, positive, negative)
        arrays = (tolerance, self.low, self.high, positive, negative)
        addresses = (array.data_ptr() for array in arrays)
        self.struct: Any = SignRangeStruct(tolerance.shape[0], *addresses)

    @classmethod
    def nothing(cls) -> SignRange:
        """An accumulator of no units."""
        empty = torch.empty(0, dtype=torch.float64)
        return cls(empty, *torch.empty((2, 0, 0), dtype=torch.int64))

    def range(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest value of each unit so far, (n,) each."""
        return self.low, self.high

    def zeros(self) -> bool:
        """Whether any value counted as zero."""
        return bool(self.struct.zeros)


@dataclass(frozen=True)
class LineRows:
    """New rows from ``first`` on: points of lines between older rows, less their slope changes.

    columns: (n, m) the row that each unit is multiplied with. Without breakpoints (None) nothing is
    subtracted.
    """

    first: int
    interpolated: InterpolatedVertices
    breakpoints: Breakpoints | None = None
    columns: Tensor | None = None

    def struct(self) -> Any:
        """The structure of the library."""
        interpolated, breakpoints, columns = self.interpolated, self.breakpoints, self.columns
        arrays = {"p": interpolated.p, "q": interpolated.q, "t": interpolated.t}
        sizes = {"first": self.first, "count": interpolated.count}
        if breakpoints is not None and columns is not None:
            sizes["lines"] = breakpoints.offsets.shape[0] - 1
            sizes |= {"breakpoints": breakpoints.count, "units": columns.shape[0]}
            arrays |= {"line": breakpoints.line, "offset": breakpoints.offsets}
            arrays |= {"breakpoint": breakpoints.place, "breakpoint_t": breakpoints.t}
            arrays |= {"unit": breakpoints.unit, "slope_change": breakpoints.slope_change}
            arrays["column"] = columns
        return LinesStruct(**sizes, **{name: array.data_ptr() for name, array in arrays.items()})
