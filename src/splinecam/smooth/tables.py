"""Tables of smooth functions: the error that is allowed, where pieces are spent, and knots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import max_pool1d, pad

from splinecam._util.arrays import as_rows
from splinecam._util.backend import backend_of
from splinecam.geometry.domain import Domain, Frame
from splinecam.kernels.kernel import kernel_for
from splinecam.network.curves.curve import Curve
from splinecam.network.curves.tabulated import is_registered, tabulated
from splinecam.network.nonlinearities import Nonlinearity, PiecewiseScalar, SmoothScalar
from splinecam.network.program import Program
from splinecam.network.values import Operation
from splinecam.smooth.following import follow
from splinecam.smooth.grid import CellBounds, SmoothCells, scattered
from splinecam.smooth.layer_bounds import Followed, norm

_LEAST = 2.0**-36  # of the largest output: what is left of a percentage where outputs are constant


@dataclass(frozen=True)
class Tolerance:
    """An error that is the same for all outputs, or relative to the range of each."""

    error: float
    relative: bool = False

    def allowed(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The error that each output may have, (n,), given outputs (N, n) all over the domain.

        The second says which outputs are constant, so that a part of their range means nothing.
        """
        if not self.relative:
            return torch.full_like(values[0], self.error), torch.zeros_like(values[0]).bool()
        extent = values.amax(0) - values.amin(0)
        least = _LEAST * values.abs().amax(0) + torch.finfo(values.dtype).tiny
        return torch.maximum(self.error * extent, least), extent <= least


def tolerance_of(smooth: float | str) -> Tolerance:
    """The tolerance that callers mean: a positive number, or text such as "1%".

    >>> tolerance_of("1%")
    Tolerance(error=0.01, relative=True)
    """
    relative = isinstance(smooth, str) and smooth.strip().endswith("%")
    try:
        error = float(str(smooth).strip().rstrip("%")) if relative else float(smooth)
    except (TypeError, ValueError):
        error = 0.0
    if isinstance(smooth, bool) or not 0 < error < float("inf"):
        raise ValueError(
            f"smooth is {smooth!r}: give the error that outputs may have as a positive number, "
            'such as 1e-3, or relative to their range, such as "1%"'
        )
    return Tolerance(error / 100 if relative else error, relative)


_SAMPLES = 1 << 14  # points at which the density of knots is known
MOST_PIECES = 1 << 14  # of a unit, and a few at kinks
_TINY = 2.0**-500
_UNEVEN = 0.6180339887498949  # steps that fill the numbers from 0 to 1 evenly
_MARGIN = 2.0**-7  # of a unit's range, by which its table is wider


@dataclass(frozen=True)
class Tables:
    """A continuous piecewise-linear function for each of n units.

    levels: (K, n) knots between pieces, ascending, with ``inf`` in the last places of a unit with
    fewer; start, value, slope: (K + 1, n) of every piece where it begins, and how steep it is. The
    pieces after a unit's last are copies of it. pieces: (n,) how many there are.
    """

    levels: Tensor
    start: Tensor
    value: Tensor
    slope: Tensor
    pieces: Tensor

    def to(self, device: torch.device) -> Tables:
        """The same on a device."""
        return Tables(*(tensor.to(device) for tensor in vars(self).values()))


def piecewise_linear(
    z: Tensor, levels: Tensor, start: Tensor, value: Tensor, slope: Tensor
) -> Tensor:
    """Functions of one variable each, given by their pieces, at z (B, *shape)."""
    columns = z.reshape(z.shape[0], -1).T.contiguous()
    piece = torch.searchsorted(levels.T.contiguous(), columns)
    found = columns - start.T.gather(1, piece)
    found *= slope.T.gather(1, piece)
    found += value.T.gather(1, piece)
    return found.T.reshape(z.shape)


def tables_of(
    curve: Curve, low: Tensor, high: Tensor, tolerance: Tensor, local: Local | None = None
) -> Tables:
    """Tables of a function on intervals [low, high] that are off by about tolerance, (n,) each.

    A chord over a width h is off by |f''| h^2 / 8 in the middle, so knots are as dense as the root
    of |f''|. It is shifted by two thirds of that, after which it is off by 0 on average: errors of
    many units cancel in sums better than if each had its least maximum, half of that.
    local: where units have influence; elsewhere tables may be off by more.
    """
    given = curve, low, high, tolerance
    knots = _knots(*given) if local is None else _local_knots(*given, local)
    pieces = torch.isfinite(knots).sum(0) - 1
    last = pieces.view(1, -1)
    filled = torch.where(torch.isfinite(knots), knots, knots.gather(0, last))
    exact = curve.value(filled)
    middle = curve.value((filled[1:] + filled[:-1]) / 2)
    deviation = middle - (exact[1:] + exact[:-1]) / 2
    place = torch.arange(len(knots), device=low.device)[:, None]
    deviation = torch.where(place[:-1] < last, deviation, deviation.gather(0, last - 1))
    ends = deviation[:1], deviation.gather(0, last - 1)
    around = torch.cat([ends[0], deviation]) + torch.cat([deviation, ends[1]])
    values = exact + around / 3
    rise = values[1:] - values[:-1]
    width = filled[1:] - filled[:-1]
    within = place[:-1] < last
    slope = torch.where(within, rise / torch.where(within, width, 1.0), 0.0)
    own = torch.minimum(place[:-1], last - 1)
    inner = torch.where(place[1:-1] < last, knots[1:-1], torch.inf)
    start, value, slope = (each.gather(0, own) for each in (filled[:-1], values[:-1], slope))
    return Tables(inner.contiguous(), start, value, slope, pieces)


def _knots(curve: Curve, low: Tensor, high: Tensor, tolerance: Tensor) -> Tensor:
    """Ends of pieces of equal error, ascending and ``inf`` after that, (K + 1, n).

    The first and the last are a little beyond low and high.
    """
    width = high - low
    # Where units have no influence, any error is allowed, but functions may be steep far outside.
    off = 4 * tolerance / curve.slope_bound(low, high).clamp(min=2)
    margin = _MARGIN * width + torch.minimum(off, width)
    margin = torch.maximum(margin, 2.0**-20 * torch.maximum(low.abs(), high.abs()) + 2.0**-40)
    # Knots in the middle of all ranges would make lines that meet in the middle of the domain.
    more = torch.arange(len(low), device=low.device) * _UNEVEN % 1
    low = _if_finite(curve, low, low - margin)
    high = _if_finite(curve, high, high + (1 + more) * margin)
    first, last = float(low.min()), float(high.max())
    z = torch.linspace(first, last, _SAMPLES, dtype=low.dtype, device=low.device)
    density = curve.curvature(z).abs().sqrt()
    amount = torch.cumulative_trapezoid(density, z)
    amount = torch.cat([amount.new_zeros(1), amount])
    begin, end = (_interpolate(each, z, amount) for each in (low, high))
    pieces = torch.ceil((end - begin) / (4 * tolerance.clamp(min=_TINY).sqrt()))
    pieces = pieces.clamp(1, MOST_PIECES)
    least = 2.0**-20 * (float(amount[-1]) + _TINY) / (last - first)
    amount = amount + least * (z - first)  # it has an inverse
    begin, end = (_interpolate(each, z, amount) for each in (low, high))
    place = torch.arange(int(pieces.max()) + 1, device=low.device)[:, None]
    inside = _interpolate((begin + (end - begin) * place / pieces).flatten(), amount, z)
    return _between(curve, low, high, pieces, inside.view(-1, len(low)))


def _if_finite(curve: Curve, end: Tensor, wider: Tensor) -> Tensor:
    """Ends of wider intervals, but where functions are too large there, as exp soon is."""
    return torch.where(torch.isfinite(curve.value(wider)), wider, end)


def _between(curve: Curve, low: Tensor, high: Tensor, pieces: Tensor, inside: Tensor) -> Tensor:
    """Knots from low to high, given where they are in between, and those at kinks."""
    place = torch.arange(len(inside), device=low.device)[:, None]
    knots = torch.where(place < pieces, inside, torch.where(place == pieces, high, torch.inf))
    knots[0] = low
    for level, _ in curve.kinks:  # they must be knots
        within = (low < level) & (level < high)
        knots = torch.cat([knots, torch.where(within, level, torch.inf)[None]])
    knots = knots.sort(0).values
    same = torch.zeros_like(knots, dtype=torch.bool)
    same[1:] = knots[1:] <= knots[:-1]
    if bool((same & torch.isfinite(knots)).any()):
        knots = torch.where(same, torch.inf, knots).sort(0).values
    return knots[: int(torch.isfinite(knots).sum(0).max())]


def _interpolate(x: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """A function given by its values (N,) at ascending knots (N,), at points (K,); or n of each."""
    right = torch.searchsorted(knots, x.contiguous()).clamp(1, knots.shape[-1] - 1)
    both = right - 1, right
    x0, x1, y0, y1 = (each.gather(-1, end) for each in (knots, values) for end in both)
    share = ((x - x0) / (x1 - x0).clamp(min=_TINY**2)).clamp(0, 1)
    return y0 + share * (y1 - y0)


Local = tuple[Tensor, Tensor]
"""Ascending arguments of each unit, (n, P), and the share of its largest influence around each."""
_AROUND = 1 << 5  # arguments before and after each that count as around it
_ROUNDS, _FINER = 4, 1 << 10  # so often grids are made finer, by so many points
_GENTLE = 2.0**-4  # of the change of a result, by how much its error may change


def _local_knots(
    curve: Curve, low: Tensor, high: Tensor, tolerance: Tensor, local: Local
) -> Tensor:
    """``_knots`` where tables may be off by more if a unit has less influence than elsewhere.

    Large errors of results beside those with much influence would take the ones for the others, so
    errors change gently. Knots may be dense in a tiny part of a range, so grids are made finer
    there again and again.
    """
    z, share = local
    around = min(_AROUND, z.shape[1] - 1)
    low = torch.maximum(low, 2 * z[:, 0] - z[:, around])  # bounds on ranges may be far outside
    high = torch.minimum(high, 2 * z[:, -1] - z[:, -1 - around])
    low, high = (
        _if_finite(curve, end, end + sign * (2.0**-20 * end.abs() + 2.0**-40))
        for end, sign in ((low, -1), (high, 1))
    )
    base = torch.cat([low[:, None], z, high[:, None]], 1).sort(1).values
    least = tolerance[:, None].clamp(min=_TINY)
    errors = least / pad(share[None], (1, 1), "replicate")[0]
    moved = pad(_GENTLE * curve.value(base).diff(dim=1).abs().cumsum(1), (1, 0))
    errors = (errors - moved).cummin(1).values + moved
    errors = (errors + moved).flip(1).cummin(1).values.flip(1) - moved
    errors = torch.maximum(torch.minimum(errors[:, 1:], errors[:, :-1]), least)
    grid = base
    for turn in range(_ROUNDS + 1):
        width = grid.diff(dim=1)
        own = torch.searchsorted(base, grid[:, 1:] - width / 2).clamp(1, errors.shape[1]) - 1
        bent = curve.curvature_bound(grid[:, :-1], grid[:, 1:]) / errors.gather(1, own)
        amount = pad((bent.sqrt() * width / 4).cumsum(1), (1, 0))  # of pieces up to each point
        total = amount[:, -1:]
        pieces = total.ceil().clamp(1, MOST_PIECES)
        if turn < _ROUNDS:
            pieces = torch.full_like(total, _FINER)
        amount = amount + 2.0**-20 * (total + _TINY) * (grid - base[:, :1]) / (high - low)[:, None]
        place = torch.arange(int(pieces.max()) + 1, device=low.device)
        inside = _interpolate(amount[:, -1:] * place / pieces, amount, grid)
        grid = torch.cat([grid, inside], 1).sort(1).values
    return _between(curve, low, high, pieces[:, 0], inside.T)


_POINTS = 1 << 10  # at which derivatives are taken
_OUTPUTS = 16  # of so many outputs at most


@dataclass(frozen=True)
class LayerSurvey:
    """The units of one smooth layer, (n,) each.

    low, high: their range on the domain; length: the mean of the root of |f''| times the length of
    the gradient, to which the length of their lines is proportional; influence: the largest
    derivative of an output by the unit's result, relative to the error that the output may have;
    local: where it is as large, if that is known.
    """

    layer: SmoothScalar
    low: Tensor
    high: Tensor
    length: Tensor
    influence: Tensor
    local: Local | None = None


@dataclass(frozen=True)
class Survey:
    """A network on the cells of a grid.

    program: the network, with its rounding; layers: the smooth ones by name; values: (C, n) the
    outputs at the centres; bounds: on the outputs of the cells, close ones if there are no kinks.
    bluntness: how many times larger than second derivatives at the centres bounds on them are.
    rounding: (n,) how far values of the outputs are from those of functions with these derivatives.
    constant: (n,) of which outputs a percentage means nothing.
    """

    program: Program
    layers: dict[str, LayerSurvey]
    values: Tensor
    bounds: CellBounds
    bluntness: float
    rounding: Tensor
    constant: Tensor | None = None


def curves_of(program: Program) -> list[Curve]:
    """The functions of all smooth layers."""
    return [layer.curve for layer in program.layers if isinstance(layer, SmoothScalar)]


def all_smooth(program: Program) -> bool:
    """Whether no layer of a network has kinks."""
    layers = program.layers
    return all(isinstance(layer, SmoothScalar) and not layer.curve.kinks for layer in layers)


def survey(
    program: Program,
    domain: Domain,
    grid: SmoothCells,
    note: Callable[[float], None] = lambda share: None,
) -> Survey:
    """Look at a network on the cells of a grid.

    note: is told which share of the work has been done since the last call.
    """
    layers: dict[str, LayerSurvey] = {}
    boxes = grid.boxes

    def visit(layer: Nonlinearity, argument: Followed, reach: Tensor) -> None:
        if isinstance(layer, SmoothScalar):
            layers[layer.name] = _look(layer, argument, reach, len(boxes), layers.get(layer.name))
        note(len(reach) / len(boxes) / len(program.layers))

    found = follow(program, domain, boxes, visit=visit)
    bounds, exact = found.curvature.amax(), norm(found.seconds).amax()
    bluntness = float(bounds / (exact + torch.finfo(exact.dtype).tiny))
    cells = CellBounds.of(grid, found)
    rounding = as_rows(found.rounding).amax(0)
    return Survey(program, layers, as_rows(found.value), cells, bluntness, rounding)


def _look(
    layer: SmoothScalar, argument: Followed, reach: Tensor, count: int, known: LayerSurvey | None
) -> LayerSurvey:
    """A smooth layer on some of so many cells, and on those that are known already."""
    z = argument.value
    low, high = as_rows(z - reach).amin(0), as_rows(z + reach).amax(0)
    density = argument.length * layer.curve.curvature(z).abs().sqrt()
    length = as_rows(density).sum(0) / count
    if known is not None:
        low, high = torch.minimum(known.low, low), torch.maximum(known.high, high)
        length = known.length + length
    return LayerSurvey(layer, low, high, length, torch.zeros_like(length))


def with_influence(
    found: Survey, program: Program, domain: Domain, tolerance: Tensor
) -> dict[str, LayerSurvey]:
    """The smooth layers with the influence of their units, from derivatives at some centres.

    tolerance: (n_out,) the error that each output may have.
    """
    points = Frame.of(domain).to_plane(found.bounds.grid.boxes.center)
    points = points[:: max(1, len(points) // _POINTS)]
    influence = _influence(program, domain, points, tolerance)
    # Behind units that are off everywhere nothing has influence, but coarse tables switch them on.
    hidden = [name for name, each in influence.items() if not bool(each.any())]
    if hidden:
        through = _influence(program, domain, points, tolerance, straight=True)
        influence |= {name: _SMALL * through[name] for name in hidden}
    return {name: replace(layer, influence=influence[name]) for name, layer in found.layers.items()}


def with_local_influence(
    layers: Mapping[str, LayerSurvey], program: Program, domain: Domain, tolerance: Tensor
) -> dict[str, LayerSurvey]:
    """The same layers with the influence of their units around each of their arguments."""
    points, found = scattered(domain, 4 * _POINTS, program.device), {}
    block = next(_slopes(program, domain, points, tolerance))  # the first points are even too
    for name, (z, slope) in block.items():
        z, order = z.T.contiguous().sort(1)
        near = max_pool1d(slope.T.gather(1, order), 2 * _AROUND + 1, 1, _AROUND)
        most = near.amax(1, keepdim=True)
        local = z, torch.where(most > 0, near / most, 1.0)
        found[name] = replace(layers[name], local=local)
    return found


def _influence(
    program: Program, domain: Domain, points: Tensor, tolerance: Tensor, straight: bool = False
) -> dict[str, Tensor]:
    """The influence of the units of each smooth layer, see ``LayerSurvey`` and ``_results``."""
    influence: dict[str, Tensor] = {}
    for block in _slopes(program, domain, points, tolerance, straight):
        for name, (_, slope) in block.items():
            largest = slope.amax(0)
            influence[name] = torch.maximum(influence.get(name, largest), largest)
    return influence


def _slopes(
    program: Program, domain: Domain, points: Tensor, tolerance: Tensor, straight: bool = False
) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """Arguments of each smooth layer at points of the plane, and influence there, (B, n) each."""
    step = max(1, backend_of(program.device).traced_activations * 8 // max(program.widths))
    for some in torch.split(points, step):
        with torch.inference_mode(False), torch.enable_grad():
            output, arguments, results = _results(program, domain.embed(some.clone()), straight)
            largest = [torch.zeros_like(each) for each in results]
            for column in _columns(as_rows(output) / tolerance.clone()):
                slopes = torch.autograd.grad(
                    column.sum(), results, retain_graph=True, materialize_grads=True
                )
                largest = [torch.maximum(a, b.abs()) for a, b in zip(largest, slopes, strict=True)]
        pairs = zip(arguments.items(), largest, strict=True)
        yield {name: (as_rows(z), as_rows(each)) for (name, z), each in pairs}


def _columns(outputs: Tensor) -> tuple[Tensor, ...]:
    """Outputs of which the derivatives are taken: all, or as many sums with random signs."""
    if outputs.shape[1] <= _OUTPUTS:
        return outputs.unbind(1)
    generator = torch.Generator().manual_seed(0)
    signs = torch.randn((outputs.shape[1], _OUTPUTS), generator=generator).sign()
    return (outputs @ signs.to(outputs)).unbind(1)


def _results(
    program: Program, x: Tensor, straight: bool
) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
    """The output, and the argument and the result of each smooth layer, with derivatives.

    straight: whether every function of one variable counts as steeper by one.
    """
    live, arguments, results = {program.input_name: x.clone()}, {}, []
    for index, stage in enumerate(program.stages):
        live = program.advance(index, live)
        layer = stage.layer
        if layer is None:
            continue
        argument = live[layer.argument]
        live[layer.result] = layer.apply(argument)
        if straight and isinstance(layer, SmoothScalar | PiecewiseScalar):
            live[layer.result] = live[layer.result] + (argument - argument.detach())
        if isinstance(layer, SmoothScalar):
            if not live[layer.result].requires_grad:
                live[layer.result].requires_grad_()
            arguments[layer.name] = argument.detach()
            results.append(live[layer.result])
    return live[program.output_name], arguments, results


_LEAST_WEIGHT = 2.0**-100
# Lines would be fewest with 2/3 and 2/3 if errors never cancelled, and with 2/5 and 4/5 if they
# were independent. These are the best of what was tried on trained and random networks.
_LENGTH, _INFLUENCE = 2 / 5, 2 / 3
_SMALL = 2.0**-7  # of the mean: what a unit without lines, or without influence, counts as


def choose_tables(layers: Mapping[str, LayerSurvey], scale: float) -> dict[str, Tables]:
    """Tables for all smooth layers, whose errors add up to about ``scale`` times the tolerance.

    Of all errors that have a given effect on the outputs, these make few lines: a unit with many
    lines may be off more, and one with much influence less.
    """
    errors = _errors(layers)
    return {
        name: tables_of(found.layer.curve, found.low, found.high, scale * errors[name], found.local)
        for name, found in layers.items()
    }


def _errors(layers: Mapping[str, LayerSurvey]) -> dict[str, Tensor]:
    """How large the errors of units should be relative to each other, (n,) for each layer."""
    found = {}
    longest = max(float(each.length.mean()) for each in layers.values())
    for name, each in layers.items():
        # A layer may be bent only between the centres of cells.
        short = max(_SMALL * float(each.length.mean()), _SMALL**2 * longest, _LEAST_WEIGHT)
        influence = each.influence + _SMALL * each.influence.mean() + _LEAST_WEIGHT
        found[name] = (each.length + short).pow(_LENGTH) / influence.pow(_INFLUENCE)
    return found


def first_scale(layers: Mapping[str, LayerSurvey]) -> float:
    """A scale for which the outputs are off by about the tolerance, if errors have random signs."""
    errors = _errors(layers)
    sums = [(errors[name] * layers[name].influence).square().sum() for name in layers]
    return float(torch.stack(sums).sum().sqrt().clamp(min=_LEAST_WEIGHT) ** -1)


def replaced(program: Program, tables: Mapping[str, Tables]) -> Program:
    """The program with tables in place of its smooth layers."""
    return _with_layers(program, lambda layer: _table_layer(layer, tables[layer.name]))


def in_single(program: Program) -> Program:
    """A program of smooth layers with values in single precision, where that is much faster."""

    def faster(layer: SmoothScalar) -> SmoothScalar:
        return replace(layer, single=layer.curve.single_noise is not None)

    fast = any(curve.single_noise is not None for curve in curves_of(program))
    return _with_layers(program, faster) if fast and all_smooth(program) else program


def tabulated_layers(program: Program, layers: Mapping[str, LayerSurvey]) -> Program:
    """The program with functions that are known closely in place of registered ones."""

    def known(layer: SmoothScalar) -> SmoothScalar:
        if not is_registered(layer.curve):
            return layer
        found = layers[layer.name]
        return replace(layer, curve=tabulated(layer.curve, found.low.min(), found.high.max()))

    return _with_layers(program, known)


def _with_layers(program: Program, other: Callable[[SmoothScalar], Nonlinearity]) -> Program:
    """The program with other layers in place of its smooth ones."""
    stages = []
    for stage in program.stages:
        if isinstance(stage.layer, SmoothScalar):
            stage = replace(stage, layer=other(stage.layer))
        stages.append(stage)
    return program.with_constants(tuple(stages))


@dataclass(frozen=True, eq=False, kw_only=True)
class _TableScalar(PiecewiseScalar):
    """Tables in place of a smooth layer, which compiled loops look up where there are any."""

    def apply(self, argument: Tensor, out: Tensor | None = None) -> Tensor:
        numbers = out is not None or argument.is_inference()  # nobody asks for derivatives
        kernel = kernel_for(argument.device) if numbers and argument.is_contiguous() else None
        if kernel is None:
            return self.operation(argument)
        out = torch.empty_like(argument) if out is None else out
        kernel.table_values(argument, self.operation.args[1:], out)
        return out


def _table_layer(layer: SmoothScalar, tables: Tables) -> PiecewiseScalar:
    args = (Operation.VARIABLE, tables.levels, tables.start, tables.value, tables.slope)
    kept = {each.name: getattr(layer, each.name) for each in fields(Nonlinearity)}
    kept["operation"] = Operation(piecewise_linear, args, {})
    return _TableScalar(**kept, levels=tables.levels, slopes=tables.slope, exact=False)
