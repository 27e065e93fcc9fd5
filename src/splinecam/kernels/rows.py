"""What the loops over rows are given: tables, the lines of new rows, what is seen of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splinecam.births import Births, Kinks
from splinecam.kernels.library import LinesStruct, ProductStruct, SightStruct

__all__ = ["FusedOutput", "LineRows", "Product", "Sight"]


@dataclass(frozen=True)
class FusedOutput:
    """Few linear functions of positive parts: weight (m, n), bias (m,), and their values (V, m).

    They are found while the rows are in the cache, so that these need not be read once more.
    """

    weight: Tensor
    bias: Tensor
    values: Tensor


class Sight:
    """What the loops see of rows on the way: their range and signs, and few linear functions.

    least: (n,) up to where a value counts as zero; positive, negative: (V, W) words to be written.
    """

    def __init__(
        self, least: Tensor, positive: Tensor, negative: Tensor, fused: FusedOutput | None = None
    ) -> None:
        self.low = torch.full_like(least, torch.inf)
        self.high = torch.full_like(least, -torch.inf)
        self._held = (least, positive, negative, fused)
        self.struct: Any = SightStruct(
            units=least.shape[0],
            outputs=0 if fused is None else fused.weight.shape[0],
            least=least.data_ptr(),
            low=self.low.data_ptr(),
            high=self.high.data_ptr(),
            positive=positive.data_ptr(),
            negative=negative.data_ptr(),
        )
        if fused is not None:
            self.struct.weight = fused.weight.data_ptr()
            self.struct.bias = fused.bias.data_ptr()
            self.struct.output = fused.values.data_ptr()

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
class Product:
    """The affine image of the positive parts of rows z (V, n): columns (n, m), bias (m,).

    uv: (V, 2 or 3) where the vertices are, which decides the order in which they are taken.
    """

    z: Tensor
    uv: Tensor
    columns: Tensor
    bias: Tensor

    def struct(self) -> Any:
        """The structure of the library."""
        n, m = self.columns.shape
        return ProductStruct(
            rows=self.z.shape[0],
            units=n,
            width=m,
            z=self.z.data_ptr(),
            uv=self.uv.data_ptr(),
            uv_width=self.uv.shape[1],
            column=self.columns.data_ptr(),
            bias=self.bias.data_ptr(),
        )


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
            made.units = columns.shape[0]
        return made
