"""What the loops over rows are given: tables, the lines of new rows, what is seen of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splinecam.geometry.interpolation import Births, Kinks
from splinecam.kernels.library import LinesStruct, SightStruct

__all__ = ["LineRows", "Sight"]


class Sight:
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
    def nothing(cls) -> Sight:
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
    births: Births
    kinks: Kinks | None = None
    columns: Tensor | None = None

    def struct(self) -> Any:
        """The structure of the library."""
        births, kinks, columns = self.births, self.kinks, self.columns
        made: Any = LinesStruct(
            first=self.first,
            count=births.count,
            p=births.p.data_ptr(),
            q=births.q.data_ptr(),
            t=births.t.data_ptr(),
        )
        if kinks is not None and columns is not None:
            made.lines, made.entries = kinks.offsets.shape[0] - 1, kinks.count
            made.line, made.offset = kinks.line.data_ptr(), kinks.offsets.data_ptr()
            made.place, made.unit = kinks.t.data_ptr(), kinks.unit.data_ptr()
            made.bend, made.column = kinks.bend.data_ptr(), columns.data_ptr()
            made.at, made.units = kinks.place.data_ptr(), columns.shape[0]
        return made
