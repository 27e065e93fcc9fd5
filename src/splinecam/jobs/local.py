"""The verb ``local_complexity``: how often units switch in small balls, for networks of any size.

The signs at both ends of a segment, by forward passes in float32, tell which units switch along it
at least once. Exact segments on a random share of them say how many more switches there are: nearly
none, so that few exact segments are enough for a precise mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor

from splinecam._util.options import as_float64, device_of, positive, require_finite
from splinecam._util.progress import progress_bar
from splinecam.engine.along_segments import run_segments
from splinecam.engine.end_signs import EndCounts, count_at_ends
from splinecam.engine.plan import free_memory
from splinecam.engine.short_segments import along_short_segments
from splinecam.errors import CaptureError, DomainError, UnsupportedOpError
from splinecam.geometry.ball_lines import BallLines
from splinecam.geometry.domain import Domain
from splinecam.jobs.sweep import sweep
from splinecam.network.capture import capture
from splinecam.network.nonlinearities import SmoothScalar
from splinecam.network.program import Program
from splinecam.partitions.request import Model, Options, Request
from splinecam.questions.local_complexity import CONFIDENCE, LocalComplexity, Sample

_FEWEST = 8  # exact segments, unless there are fewer
_GROWTH = 1.5  # of their number, as long as the interval is too wide
_FIRST_LOOK = 0.8  # the share of the risk for the first interval; later ones share the rest


def local_complexity(
    model: Model,
    x: Any,
    radius: Any,
    *,
    directions: int | Any = 12,
    seed: int = 0,
    precision: float = 0.01,
    exact: bool = False,
    chords: bool = False,
    plane: bool = False,
    **options: Unpack[Options],
) -> LocalComplexity:
    """How often units switch along random diameters of balls around samples, with an error bar.

    Forward passes of the differences from the centre, in float32, show which units are on other
    sides at both ends of a diameter: each switches at least once. Some diameters, drawn at random,
    are divided exactly. They correct the mean for units that leave their side and come back, and
    give a 99 % interval. A maximum whose winner changes counts as a switch, and smooth units count
    none; a network with smooth functions has lower bounds, but no exact diameters.

    model, options: as for ``along``; ``memory`` limits the size of batches. x: the samples, ``(N,
    *input_shape)``. radius: of the balls, one number or one for each sample. directions: how many
    random diameters, orthonormal as far as there are so many dimensions, or directions ``(d,
    *input_shape)``. seed: of all that is random. precision: how far the mean may be off, relative
    to it (or to one switch, if it is less): diameters are divided until half the interval is no
    more. exact: divide all diameters. chords: take chords on uniformly random lines in place of
    diameters, for the density. plane: also count the regions of a square with the side ``2 *
    radius`` around each sample, in a random plane.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(9, 20), nn.ReLU(), nn.Linear(20, 2))
    >>> found = local_complexity(model, torch.randn(40, 9), radius=0.5, progress=False)
    >>> found.mean().within(0.01)
    True
    """
    request = Request.of("local_complexity", model, options)
    if request.smooth is not None:
        raise TypeError("smooth= is for sc.partition: smooth units count no switches here")
    positive(precision, "precision")
    lines, shape = _lines(x, radius, directions, seed, chords=chords)
    with torch.inference_mode(False), torch.no_grad():
        program = _captured(request, shape)
        memory = free_memory(program.device) if request.memory is None else request.memory
        steps = len(lines) * (2 if plane else 1)
        with progress_bar(steps, "sample", request.progress) as bar:
            ends = count_at_ends(program, lines, memory=memory, report=bar.update)
            known = Exact.none(program)
            risk = 1 - CONFIDENCE
            if not any(isinstance(layer, SmoothScalar) for layer in program.layers):
                goal = 0.0 if exact else precision
                expected = ends.ends.sum(-1).flatten()
                divide = partial(_divided, request, program, lines, expected)
                known, risk = corrected(ends, divide, known, goal, seed)
            regions = _regions(request, lines, shape, seed) if plane else None
            bar.update(steps - len(lines))
    units = torch.tensor([math.prod(layer.shape) for layer in program.layers])
    names = tuple(layer.name for layer in program.layers)
    counts = ends.lower, ends.ends, ends.open, ends.points
    return LocalComplexity(names, units, lines, *counts, *known, risk=risk, regions=regions)


def _lines(
    x: Any, radius: Any, directions: Any, seed: int, *, chords: bool
) -> tuple[BallLines, tuple[int, ...]]:
    """The segments that the arguments of a call ask for, and the shape of one input."""
    given = require_finite(as_float64(x, "x"), "x").cpu()
    if given.ndim < 2 or not given.numel():
        raise DomainError(
            f"x has shape {tuple(given.shape)}: give samples (N, *input_shape), and x[None] of one"
        )
    N, shape = given.shape[0], tuple(given.shape[1:])
    sizes = require_finite(as_float64(radius, "radius"), "radius").cpu()
    if sizes.numel() not in (1, N) or not bool((sizes > 0).all()):
        raise DomainError(f"radius must be one number above 0, or {N} of them, one for each sample")
    sizes = sizes.reshape(-1).expand(N).clone()
    if isinstance(directions, Integral) and not isinstance(directions, bool):
        if directions < 1:
            raise ValueError(f"directions must be at least 1, not {directions}")
        count = int(directions)
        return BallLines.random(given.flatten(1), sizes, count, seed, chords=chords), shape
    ways = require_finite(as_float64(directions, "directions"), "directions").cpu()
    if tuple(ways.shape[1:]) != shape or not bool(ways.flatten(1).any(1).all()):
        raise DomainError(
            f"directions has shape {tuple(ways.shape)}: give a number, or directions "
            f"(d, {', '.join(map(str, shape))}) that are not zero"
        )
    if chords:
        raise TypeError("chords= draws its own directions: give their number")
    return BallLines.random(given.flatten(1), sizes, ways.flatten(1), seed, chords=False), shape


def _captured(request: Request, shape: tuple[int, ...]) -> Program:
    """The network; smooth functions of one variable may be among its layers."""
    device = device_of(request.device)
    try:
        return request.captured(shape, device)
    except UnsupportedOpError as error:
        try:
            return capture(request.model, shape, device=device, output=request.output, smooth=True)
        except UnsupportedOpError:
            raise error from None
    except CaptureError as error:
        hint = f"the samples in x have the shape {shape}; a single sample is x[None]"
        raise CaptureError(f"{error}. Here {hint}.") from None


class Exact(NamedTuple):
    """Segments that are known exactly; see ``LocalComplexity``."""

    chosen: Tensor
    switches: Tensor
    breakpoints: Tensor
    first: Tensor

    @classmethod
    def none(cls, program: Program) -> Exact:
        none = torch.zeros(0, dtype=torch.int64)
        return cls(none, none.new_zeros((0, len(program.layers))), none, torch.zeros(0, 2).double())


def corrected(
    ends: EndCounts, divide: Callable[[Tensor], Exact], none: Exact, precision: float, seed: int
) -> tuple[Exact, float]:
    """Exact segments, as many as the precision needs, and the risk that an interval may take.

    divide: finds some segments exactly; none: what it gives for no segment.
    """
    cheap, least = (part.sum(-1).flatten().double() for part in (ends.ends, ends.lower))
    T, known = cheap.shape[0], none
    order = torch.randperm(T, generator=torch.Generator().manual_seed(seed))
    doubt = float((cheap - least).mean())
    for count, risk in _looks(float(cheap.mean()), doubt, precision, T):
        more = divide(order[known.chosen.shape[0] : count])
        known = Exact(*(torch.cat(pair) for pair in zip(known, more, strict=True)))
        sample = Sample(cheap, least, known.chosen, known.switches.sum(1).double())
        if count == T or sample.mean(risk).within(precision):
            break
    return known, risk


def _looks(mean: float, doubt: float, precision: float, T: int) -> Iterator[tuple[int, float]]:
    """Yield numbers of exact segments, and the risk of the interval that is looked at then.

    The first number is enough if no difference is found, see ``Sample.mean``; doubt: how much less
    the mean may be as far as the ends tell. Each look takes a part of the whole risk, so that it
    does not matter which of them is the last one.
    """
    risk = (1 - CONFIDENCE) * _FIRST_LOOK
    if not precision:
        yield T, 1 - CONFIDENCE
        return
    width = 2 * precision * max(1.0, mean)
    least = 2 * math.log(2 / risk) / max(width - doubt, 2 * width / 3)
    count, left = max(_FEWEST, math.ceil(1 / (1 / least + 1 / T))), (1 - CONFIDENCE) - risk
    while count < T:
        yield count, risk
        count, risk = math.ceil(_GROWTH * count), left / 2
        left -= risk
    yield T, risk


def _divided(
    request: Request, program: Program, lines: BallLines, expected: Tensor, chosen: Tensor
) -> Exact:
    """Divide some segments exactly; expected: (T,) about how many breakpoints each of all has."""
    owner, place = chosen // lines.count, chosen % lines.count
    ends = [lines.ends(k[None]) for k in owner]
    first, last = (
        torch.stack([pair[side][0, int(k)] for pair, k in zip(ends, place, strict=True)])
        for side in (0, 1)
    )
    memory = free_memory(program.device) if request.memory is None else request.memory
    limits: Any = {"memory": memory, "max_points": request.max_regions}
    segment, t, switches, left = along_short_segments(
        program, first, last, expected[chosen], **limits
    )
    again = left.nonzero()[:, 0]
    if len(again):
        breaks = run_segments(program, first[again], last[again], switches=True, **limits)
        assert breaks.switches is not None
        inner, kept = ((breaks.t > 0) & (breaks.t < 1)).cpu(), ~left[segment]
        own = again.repeat_interleave(breaks.offsets.diff().cpu() - 2)
        segment, t = torch.cat([segment[kept], own]), torch.cat([t[kept], breaks.t.cpu()[inner]])
        switches[again] = breaks.switches.cpu()
    away = 2 * t - 1
    length = torch.linalg.vector_norm(last - first, dim=1) / 2
    distances = torch.full((2, len(chosen)), torch.inf, dtype=torch.float64)
    for side, sign in enumerate((1, -1)):
        far = torch.where(sign * away > 0, away.abs(), torch.inf)
        distances[side].scatter_reduce_(0, segment, far, "amin")
    counts = torch.bincount(segment, minlength=len(chosen))
    return Exact(chosen, switches, counts, distances.T * length[:, None])


def _regions(request: Request, lines: BallLines, shape: tuple[int, ...], seed: int) -> Tensor:
    """The number of regions of the square around each sample."""
    sides = zip(lines.centers.view(-1, *shape), (2 * lines.radius).tolist(), strict=True)
    squares = [Domain.around(x, side=side, seed=seed + k) for k, (x, side) in enumerate(sides)]
    options: Any = {"output": request.output, "device": request.device, "progress": False}
    options |= {"memory": request.memory, "max_regions": request.max_regions}
    return torch.tensor(sweep(request.model, squares, reduce=len, **options))
