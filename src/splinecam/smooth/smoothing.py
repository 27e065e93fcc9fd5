"""Replace a network's smooth functions so that the result is provably close, and partition it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows
from splinecam._util.tolerances import SAFETY
from splinecam.engine.run import Outcome
from splinecam.errors import LimitError, SplineCamError, option
from splinecam.geometry.domain import Domain, Frame
from splinecam.network.curves.tabulated import is_registered
from splinecam.network.program import Program
from splinecam.smooth.boundary_refinement import Bounded, Goal, refined
from splinecam.smooth.grid import SmoothCells, scattered
from splinecam.smooth.region_bounds import GOAL, Compared, Inside, outputs_at
from splinecam.smooth.tables import (
    MOST_PIECES,
    LayerSurvey,
    Survey,
    Tables,
    Tolerance,
    all_smooth,
    choose_tables,
    curves_of,
    first_scale,
    in_single,
    replaced,
    survey,
    tabulated_layers,
    with_influence,
    with_local_influence,
)

# Cells along the domain's longer side; the last number where bounds are not finite otherwise.
_FIRST, _COARSEST, _FINEST, _LAST = 2, 32, 64, 256
_PRODUCTS = 1 << 28  # multiplications on cells beyond which fewer cells are looked at first
_HELPS = 0.99  # of the bluntness, which smaller cells are to leave at most
_BLUNT = 1.7  # bounds on second derivatives so many times larger than these call for finer cells
_BEYOND = 2.0**16  # times what is allowed: errors that finer tables do not mend
_FILLED = 0.78, 0.87  # the share of the tolerance that errors at some points are to fill
_ROUNDED = 2.0**-5  # the share of the tolerance that rounding in single precision may be
_FEWEST, _POINTS = 1 << 8, 1 << 12
_MORE, _MANY = 8, 1 << 6  # times as many points are worth their time for so many of a unit
_PLENTY = 1 << 9  # pieces of a unit from which on it is asked where it has influence
_FEWER = 0.75  # of all pieces, which that is to leave at most
_SEARCHES = 5  # steps at most to find the scale of all errors
_ATTEMPTS = 10
_HOPEFUL = 1 - GOAL / 4  # the share of the tolerance up to which errors at vertices may be bounded
# Errors before regions are refined: so many times the tolerance, or this part of an output's range.
_COARSE, _ROUGH = 32.0, 2.0**-3
_LEAST = 2.0**-20
_STEP = 0.9  # of the scale, from one attempt to the next at most
_SAME = 0.25  # the same where as few pieces as before were chosen
_TOO_LARGE = (
    "Outputs of the network, or bounds on its derivatives, are too large for float64 somewhere on "
    "the domain. Choose a smaller domain."
)
_CONSTANT = (
    "Output {} of the network is constant on the domain, so that no error is a part of its range. "
    "Say how large the error may be, as in {}."
)

Run = Callable[[Program], Outcome]
"""Partitions the domain by a network without smooth layers."""
Note = Callable[[str, float], None]
"""Is told what is being done, and which share of it is new since the last call."""


@dataclass(frozen=True)
class Smoothed:
    """The partition of a replaced network, and how far the real one is from it.

    program: the replaced network; tables: in place of its smooth layers, by name; tolerance: (n,)
    the error that each output may have; bounds: (F, n) on each region; refined: whether some
    regions do not belong to the replaced network.
    """

    outcome: Outcome
    program: Program
    tables: dict[str, Tables]
    tolerance: Tensor
    bounds: Tensor
    refined: bool = False


def smoothed(
    real: Program,
    domain: Domain,
    tolerance: Tolerance,
    run: Run,
    *,
    undecided: float | None = None,
    max_regions: int | None = None,
    memory: int | None = None,
    note: Note = lambda what, share: None,
) -> Smoothed:
    """Partition a network with smooth layers into regions whose maps are within the tolerance.

    undecided: if given, regions are refined where their class is uncertain until that is at most
    this share of the domain; other regions may be further from the network than the tolerance.
    """
    close = _known_closely(real, domain)
    for program in dict.fromkeys([in_single(close), close, real]):
        found, allowed = _allowed(program, domain, tolerance, note)
        if _finite(found) and bool((found.rounding <= _ROUNDED * allowed).all()):
            break
    if not _finite(found):
        raise SplineCamError(_TOO_LARGE)
    note("choosing pieces", 0.0)
    if undecided is None:
        _check_rounding(found, allowed, tolerance)
        return _replaced(real, domain, found, allowed, run)
    extent = found.values.amax(0) - found.values.amin(0)
    rough = torch.maximum(_COARSE * allowed, _ROUGH * extent)
    coarse = _replaced(real, domain, found, rough, run)
    network = partial(outputs_at, real, domain)
    bounded = refined(
        Bounded(coarse.outcome.mesh, coarse.outcome.output, coarse.bounds),
        network,
        Inside(found.program, domain, found.bounds),
        Goal(allowed, undecided, max_regions=max_regions, memory=memory),
        len(real.layers),
    )
    outcome = replace(coarse.outcome, mesh=bounded.mesh, output=bounded.values)
    return replace(coarse, outcome=outcome, tolerance=allowed, bounds=bounded.bounds, refined=True)


def _known_closely(program: Program, domain: Domain) -> Program:
    """The program, with tables of its registered functions where there are any."""
    if not any(map(is_registered, curves_of(program))):
        return program
    grid = SmoothCells.of(domain, _first_resolution(program), program.device)
    return tabulated_layers(program, survey(program, domain, grid).layers)


def _check_rounding(found: Survey, allowed: Tensor, tolerance: Tolerance) -> None:
    """Stop if bounds on rounding alone are beyond what each output (n,) may be off."""
    if not all_smooth(found.program):
        return
    rounding = 2 * found.rounding
    worst = int((rounding / allowed).argmax())
    if bool(rounding[worst] <= allowed[worst]):
        return
    values, times = found.values[:, worst], float(rounding[worst] / allowed[worst])
    larger = f"choose a domain that is more than {times:.2g} times as large, or "
    advice = f"{larger if tolerance.relative else ''}allow a larger error."
    raise LimitError(
        f"Rounding is too much for {option('smooth', '')}, which allows output {worst} to be off "
        f"by {float(allowed[worst]):.2g}: float64 is only known to be off by less than "
        f"{float(rounding[worst]):.2g}, and on this domain the output changes by about "
        f"{float(values.max() - values.min()):.2g}. {advice[0].upper()}{advice[1:]}"
    )


def _allowed(
    program: Program, domain: Domain, tolerance: Tolerance, note: Note
) -> tuple[Survey, Tensor]:
    """A network on cells, and the error (n,) that each of its outputs may have."""
    found = _surveyed(program, domain, note)
    inner = found.values[found.bounds.grid.inner]  # cells at the border have centres outside
    more = outputs_at(program, domain, _on_lines(domain).to(program.device))
    values = torch.cat([inner, more])
    allowed, constant = tolerance.allowed(values)
    if bool(constant.any()):
        _require_constants(program, domain, found, allowed, constant)
    return replace(found, constant=constant), allowed


@torch.inference_mode()
def _require_constants(
    program: Program, domain: Domain, found: Survey, allowed: Tensor, constant: Tensor
) -> None:
    """Raise an error if constant outputs, (n,), are far from constant with coarse tables."""
    if not (all_smooth(program) and _finite(found)):  # units that are off hide errors of tables
        return
    extent = found.values.abs().amax(0).clamp(min=_LEAST)
    layers = with_influence(found, program, domain, torch.where(constant, extent, allowed))
    x = domain.embed(scattered(domain, _POINTS, program.device))
    coarse = replaced(program, choose_tables(layers, first_scale(layers)))
    off = as_rows(coarse(x) - program(x)).abs().amax(0)
    broken = (constant & (off > _BEYOND * allowed)).nonzero()[:, 0].tolist()
    if broken:
        raise SplineCamError(
            _CONSTANT.format(", ".join(map(str, broken)), option("smooth", "1e-3"))
        )


def _surveyed(program: Program, domain: Domain, note: Note) -> Survey:
    """Look at the network on cells that are small enough for bounds to be close."""
    resolution, before = _first_resolution(program), math.inf
    while True:
        grid = SmoothCells.of(domain, resolution, program.device)
        what = f"looking at {len(grid.kept):,} cells"
        note(what, 0.0)
        found = survey(program, domain, grid, partial(note, what))
        # Networks with kinks are bounded on regions, not on cells.
        enough = _BLUNT if all_smooth(program) else math.inf
        # Bounds that rounding makes large are as large on smaller cells.
        helps = not found.bluntness >= _HELPS * before or math.isinf(before)
        hopeless = not torch.isfinite(found.values).all()
        most = _FINEST if _finite(found) else _LAST
        if resolution >= most or found.bluntness < enough or not helps or hopeless:
            return found
        resolution, before = resolution * 2, found.bluntness


def _first_resolution(program: Program) -> int:
    """How many cells along the domain's longer side are looked at first."""
    resolution = _COARSEST
    while resolution > _FIRST and resolution**2 * sum(program.products) > _PRODUCTS:
        resolution //= 2
    return resolution


def _on_lines(domain: Domain) -> Tensor:
    """Local points (N, 2) of a domain on its sides, and between its centre and its corners."""
    corners = Frame.of(domain).to_local(domain.corners)
    share = torch.linspace(0, 1, _COARSEST, dtype=corners.dtype)[:, None, None]
    ends = torch.cat([corners.roll(-1, 0), corners.mean(0).expand_as(corners)])
    return (corners.repeat(2, 1) * (1 - share) + ends * share).view(-1, 2)


def _finite(found: Survey) -> bool:
    """Whether the network, and the bounds on it, are not too large for their numbers."""
    bounds = found.bounds.forms[: math.prod(found.bounds.grid.counts), :6]
    return bool(torch.isfinite(found.values).all() & torch.isfinite(bounds).all())


def _replaced(real: Program, domain: Domain, found: Survey, allowed: Tensor, run: Run) -> Smoothed:
    """Partition the network with tables whose errors in the outputs are allowed."""
    layers, scale, tables = _scaled(real, domain, found, allowed)
    best, pieces = math.inf, 0
    for attempt in range(_ATTEMPTS):
        if attempt:
            tables = choose_tables(layers, scale)
        before, pieces = pieces, _all_pieces(tables)
        program = replaced(real, tables)
        outcome = run(program)
        network = partial(outputs_at, found.program, domain)
        inside = Inside(found.program, domain, found.bounds)
        compared = Compared(outcome.mesh, outcome.output, network, inside, allowed)
        excess = float((compared.errors.abs() / allowed).max()) + GOAL
        if not excess > _HOPEFUL + GOAL:  # also if it is no number
            # Maps follow from values at vertices, which are rounded.
            bounds = compared.region_bounds() + SAFETY * outcome.error
            excess = float((bounds / allowed).max())
            if math.isnan(excess):
                raise SplineCamError(_TOO_LARGE)
            if excess <= 1:
                return Smoothed(outcome, program, tables, allowed, bounds)
        best = min(best, excess)
        scale *= min(max(0.95 / excess, _LEAST), _STEP if pieces != before else _SAME)
    raise LimitError(
        f"The error stays {best:.3g} times as large as {option('smooth', '')} allows, with "
        f"{outcome.mesh.num_faces:,} regions in the last attempt. Allow a larger error, or choose "
        "a smaller domain."
    )


def _scaled(
    real: Program, domain: Domain, found: Survey, allowed: Tensor
) -> tuple[dict[str, LayerSurvey], float, dict[str, Tables]]:
    """The smooth layers, how large the errors of their tables may be, and such tables."""
    layers = with_influence(found, real, domain, allowed)
    scale, tables, shares = _scale(layers, real, domain, allowed, found)
    pieces, worst = _most_pieces(tables), int(shares.argmax())
    filled = float(shares[worst])
    too_many = filled > 1 and pieces >= MOST_PIECES
    if too_many and found.constant is not None and bool(found.constant[worst]):
        raise SplineCamError(_CONSTANT.format(worst, option("smooth", "1e-3")))
    if pieces > _PLENTY:
        local = with_local_influence(layers, real, domain, allowed)
        other, fewer, less = _scale(local, real, domain, allowed, found)
        share = _all_pieces(fewer) / _all_pieces(tables)
        if share < _FEWER or (too_many and float(less.max()) <= 1):
            return local, other, fewer
    if not too_many:
        return layers, scale, tables
    raise LimitError(
        f"With {MOST_PIECES:,} pieces of a function outputs are still off by {filled:.2g} times "
        "what smooth= allows. Allow a larger error, or choose a smaller domain."
    )


def _all_pieces(tables: dict[str, Tables]) -> int:
    return sum(int(table.pieces.sum()) for table in tables.values())


def _most_pieces(tables: dict[str, Tables]) -> int:
    return max(int(table.pieces.max()) for table in tables.values())


@torch.inference_mode()
def _scale(
    layers: dict[str, LayerSurvey], real: Program, domain: Domain, allowed: Tensor, found: Survey
) -> tuple[float, dict[str, Tables], Tensor]:
    """How large the errors of tables may be, from those of the outputs at some points; tables.

    Returns also the largest share of what each output may be off, (n,).
    """
    points = max(_FEWEST, min(_POINTS, 4 * _PRODUCTS // max(1, sum(real.products))))

    def values_at(points: int) -> tuple[Tensor, Tensor]:
        x = domain.embed(scattered(domain, points, real.device))
        return x, as_rows(found.program(x))

    def shares_at(x: Tensor, values: Tensor, tables: dict[str, Tables]) -> Tensor:
        off = as_rows(replaced(real, tables)(x)).sub_(values)
        return (off.abs_() / allowed).amax(0)

    tables_at = cache(partial(choose_tables, layers))
    scale, largest = first_scale(layers), 0.0
    known, (least, most) = values_at(points), _FILLED
    for _ in range(_SEARCHES):
        tables = tables_at(scale)
        shares = shares_at(*known, tables)
        filled = float(shares.max())
        if filled <= most:
            largest = max(largest, scale)
            if filled >= least:
                break
        scale *= (least + most) / 2 / max(filled, _LEAST)
    if points == _POINTS and _most_pieces(tables) > _MANY:  # an attempt costs more than points
        scale = largest or scale
        shares = shares_at(*values_at(_MORE * points), tables_at(scale))
        largest = scale * min(1.0, least / max(float(shares.max()), _LEAST))
    scale = largest or scale
    return scale, tables_at(scale), shares
