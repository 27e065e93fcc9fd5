"""The partitions of paths and of many segments: breakpoints, pieces, and questions about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from splinecam._util.arrays import Views, blocks_of, take
from splinecam._util.options import as_float64
from splinecam._util.text import pandas_if_installed
from splinecam._util.tolerances import JACOBIAN_PRECISION, SAFETY, SLOPE_PRECISION
from splinecam.engine.affine_maps import directional_derivative
from splinecam.geometry.checks import Check
from splinecam.geometry.paths import Path, SegmentBatch
from splinecam.network.program import Program
from splinecam.questions.measures import MOST_OUTPUTS, largest_outputs
from splinecam.questions.partition_data import counted, names_of
from splinecam.questions.pieces import (
    Decisions,
    Pieces,
    decisions,
    gradient_blocks,
    mean_gradients,
    output_number,
    piece_inputs,
    rows_in_pass,
)
from splinecam.questions.validate import (
    CannotRun,
    Forward,
    Report,
    accepted,
    compared,
    value_limit,
    with_final,
    worst_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class UnresolvedPosition(NamedTuple):
    """A position on a path that float64 could not settle, the layer, and the reason."""

    t: float
    layer: str
    reason: str


def table(part: PathPartition) -> Any:
    """One row per piece: a pandas DataFrame, or without pandas a dict of numpy arrays (M,).

    Columns: ``begin`` and ``end`` (positions), ``length``, ``units`` (how many switch where the
    piece begins), ``class`` (the largest output in the middle; of one output 1 above 0, else 0)
    and, of up to 16 outputs, the values at the begin and the slopes per unit of length:
    ``output_0``, ``slope_0``, ...

    >>> import splinecam as sc
    >>> line = sc.Domain.segment([-1.0], [3.0])
    >>> rows = sc.along(torch.nn.ReLU(), line, progress=False).table()
    >>> [float(slope) for slope in rows["slope_0"]]
    [0.0, 1.0]
    """
    switched = torch.bincount(part.switches.point, minlength=len(part) + 1)
    columns = {
        "begin": part.t[:-1],
        "end": part.t[1:],
        "length": part.lengths,
        "units": switched[:-1],
        "class": largest_outputs((part.values[1:] + part.values[:-1]) / 2),
    }
    if part.values.shape[1] <= MOST_OUTPUTS:
        columns |= {f"output_{k}": x for k, x in enumerate(part.values[:-1].unbind(1))}
        columns |= {f"slope_{k}": x for k, x in enumerate(part.slopes.unbind(1))}
    arrays = {name: column.cpu().numpy().copy() for name, column in columns.items()}
    pandas = pandas_if_installed()
    return arrays if pandas is None else pandas.DataFrame(arrays).rename_axis("piece")


@dataclass(frozen=True, eq=False, repr=False)
class Switches:
    """Units that are on other pieces before and after a point of a path, (N,) each, in order.

    point, layer: the numbers of the point and of the layer; unit: the flat index of the unit, or
    the group of a maximum; before, after: the pieces of the unit, or the winners of the group, see
    ``part.patterns``. layers: the names of the layers.
    """

    point: Tensor
    layer: Tensor
    unit: Tensor
    before: Tensor
    after: Tensor
    layers: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.point.shape[0])

    def at(self, point: int) -> list[tuple[str, int]]:
        """The units that switch at a point, each as the name of its layer and its index.

        point: its number among the points of the path.
        """
        chosen = (self.point == point).nonzero()[:, 0]
        rows = zip(self.layer[chosen].tolist(), self.unit[chosen].tolist(), strict=True)
        return [(self.layers[layer], unit) for layer, unit in rows]

    def __repr__(self) -> str:
        return f"Switches({counted(len(self), 'unit')} in {len(self.layers)} layers)"


def find_switches(pieces: Pieces) -> Switches:
    """The units whose pieces differ in the middle of neighbouring pieces of one path."""
    segment, t = piece_inputs(pieces)
    program, errors = pieces.program, pieces.errors[1]
    names = tuple(layer.name for layer in program.layers)
    found = [(segment[:0],) * 5]
    step = max(2, rows_in_pass(program))
    with torch.no_grad():
        for start in range(0, max(1, t.shape[0] - 1), step):
            rows = slice(start, start + step + 1)  # blocks share a piece
            x = pieces.inputs(segment[rows], t[rows])
            for number, (layer, z) in enumerate(program.walk(x)):
                state = layer.pieces(z, take(errors[layer.name], segment[rows]))
                point, unit = (state[1:] != state[:-1]).nonzero(as_tuple=True)
                before, after = (state[point + side, unit].long() for side in (0, 1))
                index = torch.full_like(point, number)
                found.append((point + start + 1, index, unit, before, after))
    columns = [torch.cat(column) for column in zip(*found, strict=True)]
    order = torch.sort(columns[0], stable=True).indices
    point, index, unit, before, after = (take(column, order) for column in columns)
    return Switches(point, index, unit, before, after, names)


_BLOCK = 1 << 22  # points of segments whose outputs are compared at a time
_SLOPES = 64  # pieces on which slopes are compared with autograd


class PathReport(Report):
    """All checks of a path, and how many pieces were compared with the real model."""

    @property
    def pieces(self) -> int:
        """The number of pieces."""
        return self.regions

    def _extent(self) -> str:
        return f"{self.sampled:,} of {self.pieces:,} pieces compared with the model"


def validate(part: PathPartition, *, samples: int = 1000, seed: int = 0) -> PathReport:
    """Check the order of the points, and the pieces against the real model.

    Returns a report of the checks, or raises a ``ValidationError`` with those that failed. Outputs
    are compared with the model in float64 at the points and inside the pieces, and slopes with its
    gradients. No unit may switch inside a piece.

    samples: how many pieces are compared at most; seed: determines which.

    >>> import splinecam as sc
    >>> line = sc.Domain.segment([-1.0, -2.0], [3.0, 1.0])
    >>> sc.along(torch.nn.ReLU(), line, progress=False).validate()
    PathReport(5 of 5 checks passed, 3 of 3 pieces compared with the model)
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    generator = torch.Generator().manual_seed(seed)
    order = float((part.t.diff() <= 0).sum()) + abs(float(part.t[0])) + abs(1 - float(part.t[-1]))
    checks = [Check("points that are out of order", order, 0)]
    chosen = torch.randperm(len(part), generator=generator)[:samples].sort().values
    chosen = chosen.to(part.t.device)
    with torch.inference_mode(False):
        checks += [_check_switches(part.pieces, chosen), *_check_model(part, chosen)]
    report = PathReport(tuple(checks), len(part), int(chosen.shape[0]))
    return report if part.unresolved else accepted(report, part)


def _check_switches(pieces: Pieces, chosen: Tensor) -> Check:
    """A check that no unit is on different pieces at two points inside one piece of the path."""
    switched, program = 0, pieces.program
    ends = [piece_inputs(pieces, share) for share in (0.25, 0.75)]
    with torch.no_grad():
        for some in torch.split(chosen, rows_in_pass(program)):
            walks = [program.walk(pieces.inputs(segment[some], t[some])) for segment, t in ends]
            apart = torch.zeros_like(some, dtype=torch.bool)
            for (layer, a), (_, b) in zip(*walks, strict=True):
                error = SAFETY * take(pieces.errors[1][layer.name], ends[0][0][some])
                apart |= layer.apart(a, b, error).any(1)
            switched += int(apart.sum())
    return Check("pieces inside which a unit switches", switched, 0)


def _check_model(part: PathPartition, chosen: Tensor) -> list[Check]:
    """Checks of outputs and slopes against the real model."""
    checks, obstacle = compared(
        part,
        (part.pieces.model, part.pieces.output, part.pieces.dtype),
        part.t.device,
        lambda forward, dtype: _check_values(forward, part, chosen, dtype),
        lambda forward: [_check_slopes(forward, part, chosen[:_SLOPES])],
    )
    if obstacle is not None:
        checks.append(Check(f"slopes not compared: {obstacle}", 0, 0))
    return checks


def _check_values(
    forward: Forward, part: PathPartition, chosen: Tensor, dtype: torch.dtype
) -> list[Check]:
    """Checks of outputs at the points, and in the middle of the pieces."""
    pieces, begin = part.pieces, part.pieces.before[chosen]
    values, t = pieces.breaks.values, pieces.breaks.t
    limit, rows = value_limit(values, part.value_error, dtype), 4 * rows_in_pass(part.program)
    middle = [x[chosen] for x in piece_inputs(pieces)]
    sites = {
        "the points": (pieces.segment[begin], t[begin], values[begin]),
        "the middle of pieces": (*middle, torch.lerp(values[begin], values[begin + 1], 0.5)),
    }

    def off(own: Tensor, at: Tensor, said: Tensor) -> Tensor:
        return forward(pieces.inputs(own, at)) - with_final(part.program, said)

    return [
        Check(f"outputs against the model at {name}", worst_of(rows, off, *columns), limit)
        for name, columns in sites.items()
    ]


def _check_slopes(forward: Forward, part: PathPartition, chosen: Tensor) -> Check:
    """A check of the slopes of a sum of all outputs with random signs."""
    if part.program.final is not None:
        return Check("slopes not compared, as the final function was left out", 0, 0)
    pieces = part.pieces
    segment, t = (x[chosen] for x in piece_inputs(pieces))
    outputs = part.values.shape[1]
    signs = torch.randint(2, (outputs,), generator=torch.Generator().manual_seed(0))
    signs = (2.0 * signs - 1).to(part.values)
    steepest = float(part.slopes.abs().max()) or 1.0
    noise = SAFETY * float(part.value_error.max())
    limit = (JACOBIAN_PRECISION * steepest + noise) * outputs**0.5
    try:
        with torch.enable_grad():
            x = pieces.inputs(segment, t).requires_grad_()
            (made,) = torch.autograd.grad((forward(x) @ signs).sum(), x, materialize_grads=True)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, CannotRun):
        return Check("slopes not compared, as the model has no gradient", 0, 0)
    along = (made.reshape(chosen.shape[0], -1) * part._directions[segment]).sum(1)
    off = (along - part.slopes[chosen] @ signs).abs().max()
    return Check("slopes against autograd", float(off.nan_to_num(nan=torch.inf)), limit)


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
        place = f"at t = {self.t:.6g}, distance {self.distance:.6g}"
        return f"DecisionChange({self.before!r} -> {self.after!r} {place})"


@dataclass(frozen=True)
class Piece:
    """A view of one piece, on which the output is ``value + slope * (length from its begin)``."""

    partition: PathPartition
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


class PathPartition(Views[Piece]):
    """A path divided at the points where a unit of the network switches.

    Between two neighbouring points the network is affine. A path partition is a sequence of its
    pieces: ``part[i]``, ``for piece in part``. Positions ``t`` are shares of the path's length.

    path: the path; t: (P,) the positions of its points, ascending from 0 to 1: the breakpoints, and
    the inputs through which the path was laid; values: (P, n_out) the outputs there; complete: (M,)
    which pieces are divided as far as the network is, all without ``refine``; value_error: (n_out,)
    their rounding error; layer_errors: the rounding errors of the units of each layer;
    unresolved: positions that float64 could not settle, usually none; layers: the names of the
    non-linearities.

    >>> import splinecam as sc
    >>> net = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
    >>> part = sc.along(net, sc.Domain.segment([-1.0, 2.0], [3.0, -2.0]), progress=False)
    >>> part
    PathPartition(3 pieces, 2 breakpoints, length 5.657, 2 outputs)
    >>> part.t.tolist(), part.values.tolist()
    ([0.0, 0.25, 0.5, 1.0], [[0.0, 2.0], [0.0, 1.0], [1.0, 0.0], [3.0, 0.0]])
    """

    _noun = "piece"

    def __init__(self, path: Path, pieces: Pieces, names: Sequence[str] | None = None) -> None:
        self.path, self.pieces = path, pieces
        breaks = pieces.breaks
        t = self._positions(pieces.segment, breaks.t)
        # The last point of a segment is the first one of the next.
        kept = torch.ones_like(t, dtype=torch.bool)
        kept[breaks.offsets[1:-1]] = False
        self.t, self.values = t[kept], breaks.values[kept]
        self._corner, self.complete = (breaks.t == 1)[kept], pieces.complete
        self.layers = tuple(layer.name for layer in pieces.program.layers)
        self.stripped = pieces.program.stripped
        self.unresolved = tuple(
            UnresolvedPosition(at, doubt.layer, doubt.reason)
            for doubt in breaks.doubts
            for at in self._positions(doubt.segment, doubt.t).tolist()
        )
        self.names = names

    def _positions(self, segment: Tensor, t: Tensor) -> Tensor:
        """The positions on the path of positions t on its segments, (N,) each."""
        corners = self.path.corners.to(t.device)
        return torch.lerp(take(corners, segment), take(corners[1:], segment), t)

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

    @cached_property
    def breakpoints(self) -> Tensor:
        """The positions at which a unit switches, (B,), without the ends of the path."""
        self.pieces.require("all breakpoints")
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
        self.pieces.require("slopes")
        length = self.lengths
        slopes = self.values.diff(dim=0) / length[:, None]
        noise = float(self.value_error.max()) / length
        size = slopes.abs().amax(1)
        known = size[size > SAFETY * noise]
        steepest = float(known.max()) if known.shape[0] else 0.0
        short = (noise > SLOPE_PRECISION * steepest).nonzero()[:, 0]
        if short.shape[0] and steepest > 0:  # differences of values say too little
            segment, t = (x[short] for x in piece_inputs(self.pieces))
            x, way = self.pieces.inputs(segment, t), self._directions[segment]
            slopes[short] = directional_derivative(self.program, x, way)
        return slopes

    @cached_property
    def _directions(self) -> Tensor:
        """The direction of each segment, of length 1, (S, D)."""
        way = self.pieces.ends - self.pieces.starts
        return way / self.path.lengths.to(self.t.device)[:, None]

    def at(self, t: Any) -> Tensor:
        """The outputs at positions t (N,), from the affine maps of the pieces: (N, n_out).

        t: positions from 0 to 1.

        >>> import splinecam as sc
        >>> line = sc.Domain.segment([-1.0], [1.0])
        >>> sc.along(nn.ReLU(), line, progress=False).at([0.25, 0.75]).tolist()
        [[0.0], [0.5]]
        """
        self.pieces.require("outputs between points")
        at = as_float64(t, "t").to(self.t.device)
        if at.ndim != 1 or not bool(((at >= 0) & (at <= 1)).all()):
            raise ValueError("t must be positions (N,) from 0 to 1")
        piece = torch.searchsorted(self.t[1:-1].contiguous(), at, right=True)
        begin, end = self.t[piece], self.t[piece + 1]
        share = (at - begin) / (end - begin)
        return torch.lerp(self.values[piece], self.values[piece + 1], share[:, None])

    def inputs(self, t: Any = None) -> Tensor:
        """The inputs at positions t (N,), by default at all points: ``(N, *input_shape)``.

        t: positions from 0 to 1.
        """
        return self.path.embed(self.t if t is None else t)

    @cached_property
    def switches(self) -> Switches:
        """The units that switch, and the points at which they do; see ``Switches``."""
        return find_switches(self.pieces)

    def _view(self, index: int) -> Piece:
        return Piece(self, index)

    def gradients(self, output: Any = None) -> Tensor:
        """The gradient of an output in input space on each piece, ``(M, *input_shape)``.

        output: its number, or the name of its class; needed if there are several.
        """
        number = output_number(output, self.names, self.values.shape[1])
        return torch.cat([made for _, made in gradient_blocks(self.pieces, number)])

    def integrated_gradients(self, output: Any = None) -> Tensor:
        """Exact integrated gradients along the path, of the shape of an input.

        The integral of each entry of the gradient along the path is a finite sum, as the gradient
        is constant on every piece. The result adds up to the difference of the outputs at the ends.

        output: its number, or the name of its class; needed if there are several.

        >>> import splinecam as sc
        >>> line = sc.Domain.segment([-1.0, 2.0], [3.0, -2.0])
        >>> part = sc.along(torch.nn.ReLU(), line, progress=False)
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
        self.pieces.require("the total variation")
        varied = self.values.diff(dim=0).abs().sum(0)
        if output is None:
            return varied
        return varied[output_number(output, self.names, self.values.shape[1])]

    def decisions(self, level: float = 0.0) -> Decisions:
        """The classes along the path, as intervals: ``begin`` (K,) and ``label`` (K,).

        The class is the largest output; of one output it is 1 above the level, else 0.
        """
        found = decisions(self.pieces, level)
        begin = self._positions(found.segment, found.begin)
        kept = torch.ones_like(found.label, dtype=torch.bool)
        kept[1:] = found.label[1:] != found.label[:-1]
        return Decisions(torch.zeros_like(found.segment)[kept], begin[kept], found.label[kept])

    def first_change(self, level: float = 0.0) -> DecisionChange | None:
        """The first change of the class along the path, or None if there is none.

        >>> import splinecam as sc
        >>> line = sc.Domain.segment([-1.0, 2.0], [3.0, -2.0])
        >>> net = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
        >>> sc.along(net, line, names=["right", "up"], progress=False).first_change()
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

    table = table
    validate = validate

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the outputs along the path.

        ax: where to draw. options: see ``splinecam.plot.plot_path``.
        """
        from splinecam.plot import plot_path

        self.pieces.require("a picture")
        return plot_path(self, ax=ax, **options)

    def __repr__(self) -> str:
        more = f"{int(self.complete.sum()):,} of them complete"
        if self.pieces.wanted is None:
            more = counted(self.breakpoints.shape[0], "breakpoint")
        parts = counted(len(self), "piece"), more
        outputs = counted(self.values.shape[1], "output")
        return f"PathPartition({', '.join(parts)}, length {self.path.length:.4g}, {outputs})"


@dataclass(frozen=True)
class FirstChanges:
    """The first change of the class along each of S segments, (S,) each.

    t: its position, infinite where the class does not change; distance: from the start of the
    segment; before, after: the classes, both the same where there is no change.
    """

    t: Tensor
    distance: Tensor
    before: Tensor
    after: Tensor

    def __repr__(self) -> str:
        changed = int(self.t.isfinite().sum())
        return f"FirstChanges(in {changed:,} of {self.t.shape[0]:,} segments)"


class SegmentPartitions(Views[PathPartition]):
    """Many segments, each divided at the points where a unit of the network switches.

    The points of all segments lie one after the other in flat arrays. ``parts[i]`` is the
    ``PathPartition`` of one segment.

    segments: the segments; offsets: (S + 1,) where the points of each segment begin; t: (P,) their
    positions, from 0 to 1 on each segment; values: (P, n_out) the outputs there; value_error:
    (n_out,) a bound on their rounding errors along all segments; layers: the names of the
    non-linearities.

    >>> import splinecam as sc
    >>> segments = sc.Domain.segments([0.0, 0.0], [[1.0, 1.0], [-1.0, 1.0]])
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> parts = sc.along(net, segments, progress=False)
    >>> parts.counts.shape, parts.integrated_gradients().shape
    (torch.Size([2]), torch.Size([2, 2]))
    """

    _noun = "segment"

    def __init__(
        self, segments: SegmentBatch, pieces: Pieces, names: Sequence[str] | None = None
    ) -> None:
        self.segments, self.pieces = segments, pieces
        breaks = pieces.breaks
        self.offsets, self.t, self.values = breaks.offsets, breaks.t, breaks.values
        self.value_error, self.layer_errors = breaks.error, breaks.layer_errors
        self.layers = tuple(layer.name for layer in pieces.program.layers)
        self.names = names_of(names, self.values.shape[1])

    def __len__(self) -> int:
        return len(self.segments)

    def _view(self, index: int) -> PathPartition:
        return PathPartition(self.segments[index], self._part(index, index + 1), self.names)

    def _part(self, begin: int, end: int) -> Pieces:
        """The pieces of some consecutive segments."""
        first, last = self.offsets[[begin, end]].tolist()
        doubts = []
        for doubt in self.pieces.breaks.doubts:
            mine = (doubt.segment >= begin) & (doubt.segment < end)
            if bool(mine.any()):
                doubts.append(replace(doubt, segment=doubt.segment[mine] - begin, t=doubt.t[mine]))
        offsets, points = self.offsets[begin : end + 1] - first, slice(first, last)
        return self.pieces.cut_out(slice(begin, end), offsets, points, doubts)

    def _blocks(self) -> Iterator[tuple[int, Pieces]]:
        """Yield runs of segments that need little memory, each with the number of its first."""
        for begin, end in blocks_of(self.offsets.diff().cpu(), _BLOCK):
            yield begin, self._part(begin, end)

    @property
    def counts(self) -> Tensor:
        """The number of pieces of each segment, (S,)."""
        self.pieces.require("the numbers of pieces")
        return self.offsets.diff() - 1

    @property
    def unresolved(self) -> int:
        """How many positions float64 could not settle, usually none; ``parts[i]`` tells where."""
        return sum(int(doubt.t.shape[0]) for doubt in self.pieces.breaks.doubts)

    def integrated_gradients(self, output: Any = None) -> Tensor:
        """Exact integrated gradients along each segment, ``(S, *input_shape)``.

        output: its number, or the name of its class; needed if there are several.
        """
        number = output_number(output, self.names, self.values.shape[1])
        found = [
            mean_gradients(part, number, begin) * (part.ends - part.starts)
            for begin, part in self._blocks()
        ]
        return torch.cat(found).view(-1, *self.segments.input_shape)

    def total_variation(self, output: Any = None) -> Tensor:
        """How much the outputs change along each segment in all, up and down: (S, n_out).

        output: the number or the name of one output, for which the result is (S,).
        """
        self.pieces.require("the total variation")
        columns = slice(None)
        if output is not None:
            number = output_number(output, self.names, self.values.shape[1])
            columns = slice(number, number + 1)
        found = []
        for _, part in self._blocks():
            change = part.breaks.values[:, columns].diff(dim=0).abs_()
            change[part.breaks.offsets[1:-1] - 1] = 0.0  # from one segment to the next
            total = change.new_zeros((len(part.starts), change.shape[1]))
            found.append(total.index_add_(0, part.segment[:-1], change))
        varied = torch.cat(found)
        return varied if output is None else varied[:, 0]

    def decisions(self, level: float = 0.0) -> Decisions:
        """The classes along all segments, as intervals; see ``Decisions``."""
        found = []
        for begin, part in self._blocks():
            one = decisions(part, level)
            found.append((one.segment + begin, one.begin, one.label))
        return Decisions(*(torch.cat(column) for column in zip(*found, strict=True)))

    def first_changes(self, level: float = 0.0) -> FirstChanges:
        """The first change of the class along each segment.

        The class is the largest output; of one output it is 1 above the level, else 0.
        """
        found = self.decisions(level)
        is_first = torch.ones_like(found.segment, dtype=torch.bool)
        is_first[1:] = found.segment[1:] != found.segment[:-1]
        first = is_first.nonzero()[:, 0]
        before = take(found.label, first)
        after, t = before.clone(), torch.full_like(self.pieces.starts[:, 0], torch.inf)
        second = (first + 1).clamp(max=found.label.shape[0] - 1)
        changed = (~take(is_first, second) & (second > first)).nonzero()[:, 0]
        t[changed] = found.begin[second[changed]]
        after[changed] = found.label[second[changed]]
        return FirstChanges(t, t * self.segments.lengths.to(t.device), before, after)

    def __repr__(self) -> str:
        pieces = int(self.t.shape[0]) - len(self)
        return f"SegmentPartitions({counted(len(self), 'segment')}, {pieces:,} pieces)"
