"""The partition of a path: breakpoints, pieces, and the questions that can be asked about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from splinecam._util.views import Views
from splinecam.analysis import path_checks, path_tables
from splinecam.analysis.path_data import PathData
from splinecam.analysis.path_switches import piece_gradients
from splinecam.analysis.pieces import Decisions, decisions, mean_gradients, output_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DecisionChange", "PathPartition", "Piece"]


@dataclass(frozen=True)
class DecisionChange:
    """Where the class changes along a path.

    t: the position; distance: the length of the path up to it; input: the input there; before,
    after: the classes on both sides, by name if there are names.
    """

    t: float
    distance: float
    input: Tensor
    before: int | str
    after: int | str

    def __repr__(self) -> str:
        return (
            f"DecisionChange({self.before!r} -> {self.after!r} at t = {self.t:.6g}, "
            f"distance {self.distance:.6g})"
        )


@dataclass(frozen=True)
class Piece:
    """A view of one piece, on which the output is ``value + slope * (length from its begin)``."""

    partition: PathData
    index: int

    @property
    def begin(self) -> float:
        """The position at which the piece begins."""
        return float(self.partition.t[self.index])

    @property
    def end(self) -> float:
        """The position at which the piece ends."""
        return float(self.partition.t[self.index + 1])

    @property
    def length(self) -> float:
        """The length of the piece in input space."""
        return float(self.partition.lengths[self.index])

    @property
    def values(self) -> Tensor:
        """The outputs at both ends, (2, n_out)."""
        return self.partition.values[self.index : self.index + 2]

    @property
    def slope(self) -> Tensor:
        """The derivative of the outputs along the path, per unit of length, (n_out,)."""
        return self.partition.slopes[self.index]

    def __repr__(self) -> str:
        return f"Piece({self.index}: t from {self.begin:.6g} to {self.end:.6g})"


class PathPartition(PathData, Views[Piece]):
    """A path divided at the points where a unit of the network switches.

    Between two neighbouring points the network is affine. A path partition is a sequence of its
    pieces: ``part[i]``, ``for piece in part``. Positions ``t`` are shares of the path's length.

    path: the path; t: (P,) the positions of its points, ascending from 0 to 1: the breakpoints, and
    the inputs through which the path was laid; values: (P, n_out) the outputs there; value_error:
    (n_out,) their rounding error; layer_errors: those of the units of each layer; unresolved:
    positions that float64 could not settle, usually none; layers: names of the non-linearities.

    >>> import splinecam as sc
    >>> net = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
    >>> part = sc.partition(net, sc.Domain.segment([-1.0, 2.0], [3.0, -2.0]), progress=False)
    >>> part
    PathPartition(3 pieces, 2 breakpoints, length 5.657, 2 outputs)
    >>> part.t.tolist(), part.values.tolist()
    ([0.0, 0.25, 0.5, 1.0], [[0.0, 2.0], [0.0, 1.0], [1.0, 0.0], [3.0, 0.0]])
    """

    _noun = "piece"

    def _view(self, index: int) -> Piece:
        return Piece(self, index)

    def gradients(self, output: Any = None) -> Tensor:
        """The gradient of an output in input space on each piece, ``(M, *input_shape)``.

        output: its number, or the name of its class; needed if there are several.
        """
        number = output_number(output, self.names, self.values.shape[1])
        return piece_gradients(self.pieces, number)

    def integrated_gradients(self, output: Any = None) -> Tensor:
        """Exact integrated gradients along the path, of the shape of an input.

        The integral of each entry of the gradient along the path is a finite sum, as the gradient
        is constant on every piece. The result adds up to the difference of the outputs at the ends.

        output: its number, or the name of its class; needed if there are several.

        >>> import splinecam as sc
        >>> line = sc.Domain.segment([-1.0, 2.0], [3.0, -2.0])
        >>> part = sc.partition(torch.nn.ReLU(), line, progress=False)
        >>> part.integrated_gradients(output=0).tolist()
        [3.0, 0.0]
        """
        number = output_number(output, self.names, self.values.shape[1])
        pieces = self.pieces
        whole = (mean_gradients(pieces, number) * (pieces.ends - pieces.starts)).sum(0)
        return whole.view(self.path.input_shape)

    def total_variation(self, output: Any = None) -> Tensor:
        """How much the outputs change along the path in all, up and down: (n_out,).

        output: the number or the name of one output, for which the result is a single number.
        """
        varied = self.values.diff(dim=0).abs().sum(0)
        if output is None:
            return varied
        return varied[output_number(output, self.names, self.values.shape[1])]

    def decisions(self, level: float = 0.0) -> Decisions:
        """The classes along the path, as intervals: ``begin`` (K,) and ``label`` (K,).

        The class is the largest output; of one output it is 1 above the level, else 0.
        """
        found = decisions(self.pieces, level)
        corners = self.path.corners.to(self.t.device)
        begin = torch.lerp(corners[found.segment], corners[found.segment + 1], found.begin)
        kept = torch.ones_like(found.label, dtype=torch.bool)
        kept[1:] = found.label[1:] != found.label[:-1]
        return Decisions(torch.zeros_like(found.segment)[kept], begin[kept], found.label[kept])

    def first_change(self, level: float = 0.0) -> DecisionChange | None:
        """The first change of the class along the path, or None if there is none.

        >>> import splinecam as sc
        >>> line = sc.Domain.segment([-1.0, 2.0], [3.0, -2.0])
        >>> net = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
        >>> sc.partition(net, line, names=["right", "up"], progress=False).first_change()
        DecisionChange('up' -> 'right' at t = 0.375, distance 2.12132)
        """
        found = self.decisions(level)
        if found.label.shape[0] < 2:
            return None
        t = float(found.begin[1])
        before, after = (
            label if self.names is None else self.names[label] for label in found.label[:2].tolist()
        )
        x = self.path.embed([t])[0]
        return DecisionChange(t, t * self.path.length, x, before, after)

    table = path_tables.table
    validate = path_checks.validate

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the outputs along the path.

        ax: where to draw. options: see ``splinecam.plot.plot_path``.
        """
        from splinecam.plot import plot_path

        return plot_path(self, ax=ax, **options)

    def __repr__(self) -> str:
        pieces, breaks, outputs = len(self), self.breakpoints.shape[0], self.values.shape[1]
        return (
            f"PathPartition({pieces:,} piece{'s' * (pieces != 1)}, "
            f"{breaks:,} breakpoint{'s' * (breaks != 1)}, length {self.path.length:.4g}, "
            f"{outputs:,} output{'s' * (outputs != 1)})"
        )
