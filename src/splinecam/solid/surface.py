"""The surface on which an output of a network has a value, in a box of three dimensions."""

from __future__ import annotations

from typing import Any

from splinecam.partitions.captured import Captured
from splinecam.solid.data import SurfaceData
from splinecam.solid.outputs import Output


class Surface:
    """The arrays of a surface, with what it is the surface of."""

    def __init__(
        self,
        data: SurfaceData,
        box: Any,
        network: Captured,
        *,
        level: float = 0.0,
        output: Output = 0,
    ) -> None:
        self.data, self.box, self.network, self.level, self.output = (
            *(data, box, network),
            *(float(level), output),
        )

    def __len__(self) -> int:
        return int(self.data.face_offsets.shape[0]) - 1
