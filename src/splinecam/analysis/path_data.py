"""The data of a path that is divided into pieces: its points, and the outputs at them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from splinecam._util.csr import take
from splinecam._util.points import as_float64
from splinecam._util.tolerances import SAFETY, SLOPE_PRECISION
from splinecam.analysis.class_names import names_of
from splinecam.analysis.path_switches import Switches, find_switches
from splinecam.analysis.pieces import Pieces, piece_inputs
from splinecam.engine.affine_maps import directional_derivative
from splinecam.geometry.paths import Path
from splinecam.network.program import Program

__all__ = ["PathData", "UnresolvedPosition"]


class UnresolvedPosition(NamedTuple):
    """A position on a path that float64 could not settle, the layer, and the reason."""

    t: float
    layer: str
    reason: str


class PathData:
    """A path divided at the points where a unit of the network switches; see ``PathPartition``."""

    def __init__(self, path: Path, pieces: Pieces, names: Sequence[str] | None = None) -> None:
        self.path, self.pieces = path, pieces
        breaks = pieces.breaks
        corners = path.corners.to(breaks.t.device)
        segment = pieces.segment
        t = torch.lerp(take(corners, segment), take(corners[1:], segment), breaks.t)
        # The last point of a segment is the first one of the next.
        kept = torch.ones_like(t, dtype=torch.bool)
        kept[breaks.offsets[1:-1]] = False
        self.t, self.values = t[kept], breaks.values[kept]
        self._corner = (breaks.t == 1)[kept]
        self.layers = tuple(layer.name for layer in pieces.program.layers)
        self.stripped = pieces.program.stripped
        self.unresolved = tuple(
            UnresolvedPosition(at, doubt.layer, doubt.reason)
            for doubt in breaks.doubts
            for at in torch.lerp(
                corners[doubt.segment], corners[doubt.segment + 1], doubt.t
            ).tolist()
        )
        self.names = names

    def __len__(self) -> int:
        return int(self.t.shape[0]) - 1

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the classes, or None; assign a list of names, or None, to change them."""
        return self._names

    @names.setter
    def names(self, names: Sequence[str] | None) -> None:
        self._names = names_of(names, self.values.shape[1])

    @property
    def model(self) -> nn.Module:
        """The model."""
        return self.pieces.model

    @property
    def program(self) -> Program:
        """The captured network."""
        return self.pieces.program

    @property
    def value_error(self) -> Tensor:
        """The rounding error of the outputs, (n_out,)."""
        return self.pieces.errors[0].amax(0)

    @property
    def layer_errors(self) -> dict[str, Tensor]:
        """The rounding errors of the units of each layer, (n,)."""
        return {name: error.amax(0) for name, error in self.pieces.errors[1].items()}

    # -- points and pieces ----------------------------------------------------------------------

    @cached_property
    def breakpoints(self) -> Tensor:
        """The positions at which a unit switches, (B,), without the ends of the path."""
        inner = torch.ones_like(self.t, dtype=torch.bool)
        inner[0] = inner[-1] = False
        if len(self.path.points) > 2:  # a unit may switch at a corner of the path, or none
            inner &= ~self._corner
            inner[self.switches.point] = True
        return self.t[inner]

    @property
    def lengths(self) -> Tensor:
        """The length of each piece in input space, (M,)."""
        size = self.path.lengths.to(self.t.device)
        part = self.pieces
        return part.breaks.t.diff()[part.before] * size[take(part.segment, part.before)]

    @cached_property
    def slopes(self) -> Tensor:
        """The derivative of the outputs per unit of length on each piece, (M, n_out)."""
        length = self.lengths
        slopes = self.values.diff(dim=0) / length[:, None]
        noise = float(self.value_error.max()) / length
        size = slopes.abs().amax(1)
        known = size[size > SAFETY * noise]
        steepest = float(known.max()) if known.shape[0] else 0.0
        short = (noise > SLOPE_PRECISION * steepest).nonzero()[:, 0]
        if short.shape[0] and steepest > 0:  # differences of values say too little
            pieces, (segment, t) = self.pieces, piece_inputs(self.pieces)
            way = (pieces.ends - pieces.starts) / self.path.lengths.to(self.t.device)[:, None]
            x = pieces.inputs(segment[short], t[short])
            slopes[short] = directional_derivative(self.program, x, way[segment[short]])
        return slopes

    def at(self, t: Any) -> Tensor:
        """The outputs at positions t (N,), from the affine maps of the pieces: (N, n_out).

        >>> import splinecam as sc
        >>> line = sc.Domain.segment([-1.0], [1.0])
        >>> sc.partition(nn.ReLU(), line, progress=False).at([0.25, 0.75]).tolist()
        [[0.0], [0.5]]
        """
        at = as_float64(t, "t").to(self.t.device)
        if at.ndim != 1 or not bool(((at >= 0) & (at <= 1)).all()):
            raise ValueError("t must be positions (N,) from 0 to 1")
        piece = torch.searchsorted(self.t[1:-1].contiguous(), at, right=True)
        begin, end = self.t[piece], self.t[piece + 1]
        share = (at - begin) / (end - begin)
        return torch.lerp(self.values[piece], self.values[piece + 1], share[:, None])

    def inputs(self, t: Any = None) -> Tensor:
        """The inputs at positions t (N,), by default at all points: ``(N, *input_shape)``."""
        return self.path.embed(self.t if t is None else t)

    @cached_property
    def switches(self) -> Switches:
        """The units that switch, and the points at which they do; see ``Switches``."""
        return find_switches(self.pieces)
