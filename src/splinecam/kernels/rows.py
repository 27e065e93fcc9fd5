"""What the loops over rows are given: tables, the lines of new rows, what is seen of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splinecam.geometry.interpolation import Breakpoints, InterpolatedVertices
from splinecam.kernels.library import LinesStruct, SightStruct

__all__ = ["LineRows", "SignRange"]


class SignRange:
    """What the loops see of rows on the way: their range and signs.

    least: (n,) up to where a value counts as zero; positive, negative: (V, W) words to be written.
    """

    def __init__(self, least: Tensor, positive: Tensor, negative: Tensor) -> None:
        self.low = torch.full_like(least, torch.inf)
        self.high = torch.full_like(least, -torch.inf)
        self._held = (least, positive, negative)
        arrays = (least, self.low, self.high, positive, negative)
        self.struct: Any = SightStruct(least.shape[0], *(array.data_ptr() for array in arrays))

    @classmethod
    def nothing(cls) -> SignRange:
        """A sight that looks at nothing."""
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

    columns: (n, m) what becomes of single units; without slope changes (None) nothing is taken off.
    """

    first: int
    interpolated: InterpolatedVertices
    breakpoints: Breakpoints | None = None
    columns: Tensor | None = None

    def struct(self) -> Any:
        """The structure of the library."""
        interpolated, breakpoints, columns = self.interpolated, self.breakpoints, self.columns
        made: Any = LinesStruct(
            first=self.first,
            count=interpolated.count,
            p=interpolated.p.data_ptr(),
            q=interpolated.q.data_ptr(),
            t=interpolated.t.data_ptr(),
        )
        if breakpoints is not None and columns is not None:
            made.lines, made.entries = breakpoints.offsets.shape[0] - 1, breakpoints.count
            made.line, made.offset = breakpoints.line.data_ptr(), breakpoints.offsets.data_ptr()
            made.place, made.unit = breakpoints.t.data_ptr(), breakpoints.unit.data_ptr()
            made.bend, made.column = breakpoints.bend.data_ptr(), columns.data_ptr()
            made.at, made.units = breakpoints.place.data_ptr(), columns.shape[0]
        return made
