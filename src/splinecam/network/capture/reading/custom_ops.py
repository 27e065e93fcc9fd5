"""Registered modules and operators as steps and layers, once it is checked that they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from splinecam._util.tolerances import EPS
from splinecam.errors import option
from splinecam.network.capture.reading.graph_builder import GraphBuilder, NodeCall, has_size
from splinecam.network.capture.reading.probe import SLACK, WEIGHT
from splinecam.network.capture.reading.scalar_functions import add_curve
from splinecam.network.capture.reading.stages import refs
from splinecam.network.capture.tracing.diagnosis import first_line
from splinecam.network.capture.tracing.opaque_modules import as_columns, opaque_module_of
from splinecam.network.curves.curve import RegisteredCurve
from splinecam.network.nonlinearities import CustomNonlinearity, PiecewiseScalar
from splinecam.network.ops.bounds import Bound, measured_bound
from splinecam.network.ops.nonlinear import MIXES
from splinecam.network.ops.register import CustomOp, Table, rule_of_operator
from splinecam.network.ops.registry import OPTION, AffineRule, target_name
from splinecam.network.program import Step
from splinecam.network.values import Operation, Ref, resolve

_CURVE_SCALES = (0.01, 0.3, 4.0, 64.0)  # how far from zero points lie
_NEAR = 8.0  # up to which all must be finite
_POINTS = 2048  # on each scale
_ROUNDING = 2.0**10 * EPS  # of a value, relative to the values around it

TensorFunction = Callable[[Tensor], Tensor]


class Problem(Exception):
    """The reason why a registration does not hold."""


@contextmanager
def _explaining(what: str) -> Iterator[None]:
    """Within this context, any error is a Problem; what: it says before the error's message."""
    try:
        yield
    except Exception as error:
        raise Problem(f"{what}: {first_line(error)}") from error


def check_curve(curve: RegisteredCurve, run: TensorFunction, x: Tensor) -> None:
    """Raise a Problem unless ``run``, on such as x (B, ...), applies the curve within its bound."""
    _check_entries(curve, run, x)
    z = _points().to(x.device)
    with _explaining("registered with curvature=, it needs a derivative by autograd"):
        value, slope = curve.value(z), curve.slope(z)
    low, high = z[:-1], z[1:]
    what = "its curvature= cannot be computed for tensors of the ends of intervals"
    with _explaining(f"{what}, {tuple(low.shape)} each"):
        limit = curve.curvature_bound(low, high)
    if bool((limit < 0).any()):
        raise Problem("its curvature= is negative: give a bound on the modulus")
    width = high - low
    finite = value.isfinite() & slope.isfinite()
    known = finite[1:] & finite[:-1] & limit.isfinite()
    if not bool(known[low.abs() <= _NEAR].all()):
        where = float(low[(low.abs() <= _NEAR) & ~known][0])
        raise Problem(
            f"it has no bound near {where:.4g}: its value, its slope or its curvature= is not "
            "finite there. A function whose second derivative is not bounded cannot be replaced"
        )
    turn = (slope[1:] - slope[:-1]).abs()
    slack = 2.0**14 * EPS * (slope.abs()[1:] + slope.abs()[:-1] + 1)
    excess = turn - limit * width - slack
    if bool((known & (excess > 0)).any()):
        i = int(torch.where(known, excess / width, -torch.inf).argmax())
        raise Problem(
            f"its second derivative is {float(turn[i] / width[i]):.6g} near {float(low[i]):.4g}, "
            f"larger than curvature={float(limit[i]):.6g}: give a bound that holds everywhere"
        )
    size = torch.maximum(value[1:].abs(), value[:-1].abs())
    rounding = _ROUNDING * (size + z.abs()[1:] * slope.abs()[1:] + width)
    off = (value[1:] - value[:-1] - slope[:-1] * width).abs() - limit * width.square() / 2
    if bool((known & (off > rounding)).any()):
        i = int(torch.where(known, off - rounding, -torch.inf).argmax())
        raise Problem(
            f"between {float(low[i]):.6g} and {float(high[i]):.6g} it changes by "
            f"{float((value[i + 1] - value[i]).abs()):.3g}, more than its slope "
            f"{float(slope[i]):.3g} and curvature={float(limit[i]):.3g} allow: it jumps or bends "
            "there, or the bound is too small"
        )


def _check_entries(curve: RegisteredCurve, run: TensorFunction, x: Tensor) -> None:
    """Raise a Problem unless every entry of a result is the same function of its own entry."""
    what = "registered with curvature=, it is run on tensors of any shape in float64, which fails"
    with _explaining(what):
        whole, alone = run(x), curve.value(x)
    if whole.shape != x.shape or bool(((whole - alone).abs() > SLACK * alone.abs().max()).any()):
        raise Problem(
            "registered with curvature=, it must apply the same function of one variable to every "
            "entry, without regard to the others"
        )


def _points() -> Tensor:
    """Points on several scales, in order."""
    generator = torch.Generator().manual_seed(0)
    some = [
        scale * (2 * torch.rand(_POINTS, generator=generator, dtype=torch.float64) - 1)
        for scale in _CURVE_SCALES
    ]
    whole = torch.arange(-_NEAR, _NEAR + 1, dtype=torch.float64)  # where many functions change
    points: Tensor = torch.unique(torch.cat([*some, whole]))
    return points


_SCALES = (0.125, 1.0, 1.0, 8.0, 64.0)  # how far from zero the ends of the lines are
_PIECES = 512  # at most so many pieces of a line are looked at,
_NUMBERS = 1 << 22  # or fewer, so that their points hold no more numbers
_SHORT = 2.0**-20  # pieces shorter than this, relative to the line, prove nothing
_PLACES = (0.0625, 0.375, 0.9375)  # where in a piece the operation is evaluated

_AFFINE = (
    "registered with affine=True, but is not affine",
    "If it bends along straight lines, register it with cuts=",
)
_WITH_BORDERS = (
    "not affine between the zeros of its cuts function",
    "Add the missing borders to cuts; if it is smooth, it has no linear regions",
)


def _at(line: Tensor, t: Tensor) -> Tensor:
    """The points of a line between two inputs, (2, ...), at the positions t."""
    t = t.view(-1, *[1] * (line.dim() - 1))
    return (1 - t) * line[:1] + t * line[1:]


def _place(line: Tensor, t: Tensor) -> str:
    """A point of a line, for a message."""
    x = _at(line, t.reshape(1)).flatten()
    numbers = ", ".join(f"{number:.4g}" for number in x[:4].tolist())
    return f"x = [{numbers}{', ...' if x.numel() > 4 else ''}]"


def check_custom_op(run: TensorFunction, borders: TensorFunction | None, x: Tensor) -> None:
    """Raise a Problem unless ``run`` is affine and continuous between the zeros of ``borders``."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        for scale in _SCALES:
            ends = torch.randn(2, *x.shape[1:], generator=generator, dtype=torch.float64)
            line = (scale * ends).to(x.device)
            values = _check_rows("it", run, line)
            t = line.new_zeros(0) if borders is None else _crossings(borders, line)
            numbers = max(line[0].numel(), values[0].numel())
            _check_pieces(run, line, _pieces(t, numbers, generator), borders is not None)


def _check_rows(what: str, run: TensorFunction, line: Tensor) -> Tensor:
    """The values at the ends and between them, if every point has its own, and always the same."""
    x = _at(line, line.new_tensor([0, WEIGHT, 1]))
    with _explaining(f"{what} cannot be run on a tensor {tuple(x.shape)} of float64"):
        values = run(x)
    if not isinstance(values, Tensor) or values.dim() == 0 or values.shape[0] != x.shape[0]:
        raise Problem(f"{what} must give one tensor, with the batch in its first dimension")
    if not values.is_floating_point():
        raise Problem(f"{what} must give floating-point numbers, not {values.dtype}")
    if not bool(values.isfinite().all()):
        raise Problem(
            f"{what} gives values that are not finite, near {_place(line, x.new_zeros(1))}"
        )
    if not _agree(run(x), values):
        raise Problem(f"{what} gives different values for the same input: call model.eval()")
    if not _agree(torch.cat([run(row) for row in torch.split(x, 1)]), values):
        raise Problem(f"{what} mixes the points of the batch: every row must depend on its own row")
    return values


def _agree(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a - b).abs() <= SLACK * b.abs().max()).all())


def _crossings(borders: TensorFunction, line: Tensor) -> Tensor:
    """Where on a line the functions vanish, in order; they must be affine."""
    first, between, last = _check_rows("its cuts function", borders, line).flatten(1)
    if not _agree(between, (1 - WEIGHT) * first + WEIGHT * last):
        raise Problem(
            "its cuts function is not affine in x: give the functions whose zeros are the "
            f"borders, such as x - knot; see {_place(line, line.new_zeros(1))}"
        )
    t = first / (first - last)
    crossings: Tensor = t[(t > 0) & (t < 1)].sort().values
    return crossings


def _pieces(t: Tensor, numbers: int, generator: torch.Generator) -> Tensor:
    """The ends of pieces of a line, (N, 2); only some if a point has many ``numbers``."""
    ends = torch.cat([t.new_zeros(1), t, t.new_ones(1)])
    most = max(8, min(_PIECES, _NUMBERS // max(1, numbers)))
    if ends.shape[0] > most:
        skip = int(torch.randint(ends.shape[0] - most, (1,), generator=generator))
        ends = ends[skip : skip + most]
    pieces = torch.stack([ends[:-1], ends[1:]], 1)
    return pieces[pieces[:, 1] - pieces[:, 0] > _SHORT]


def _check_pieces(run: TensorFunction, line: Tensor, pieces: Tensor, has_borders: bool) -> None:
    """Raise a Problem unless it is affine on every piece, and equal on both sides of a border."""
    if not pieces.shape[0]:
        return
    begin, length = pieces[:, :1], pieces[:, 1:] - pieces[:, :1]
    places = torch.tensor(_PLACES, dtype=torch.float64, device=pieces.device)
    t = begin + length * places
    values = run(_at(line, t.flatten())).reshape(*t.shape, -1)
    low, middle, high = values.unbind(1)
    share = (places[1] - places[0]) / (places[2] - places[0])
    limit = SLACK * values.abs().max()
    deviation = (torch.lerp(low, high, share) - middle).abs().amax(1)
    if bool((deviation > limit).any()):
        where = _place(line, t[int(deviation.argmax()), 1])
        size = float(deviation.max() / values.abs().max())
        what, remedy = _WITH_BORDERS if has_borders else _AFFINE
        raise Problem(
            f"it is {what}, as near {where}: it is off by {size:.1g} of its values. {remedy}; "
            "if it computes in float32, let it use the type of its input"
        )
    slope = (high - low) / (places[2] - places[0])
    start, end = low - places[0] * slope, high + (1 - places[2]) * slope
    jump = (start[1:] - end[:-1]).abs().amax(1) * (pieces[1:, 0] == pieces[:-1, 1])
    if bool((jump > 2 * limit).any()):
        where = _place(line, pieces[1:, 0][int(jump.argmax())])
        raise Problem(
            f"it is not continuous: it jumps at a border, at {where}, by {float(jump.max()):.3g}"
        )


_ONE = (
    "a registered operator takes one activation, makes one tensor of it, and its other arguments "
    "do not depend on the input or on the size of the batch"
)
_SLACK = 2**26 * EPS  # a wrong derivative is off by its own size, a difference by some rounding
_INSIDE = 0.9  # how much of the way to the next border is used

Function = Callable[..., Tensor]


@dataclass(frozen=True)
class _Call:
    """A call of something registered, by functions ``run(x, constants)``."""

    kind: str
    x: Ref  # the activation
    constants: Any  # all else, in any nesting of tensors, which can be moved to another device
    value: Function
    borders: Function | None = None
    table: Table | None = None
    curvature: Function | None = None

    def step(self, name: str, run: Function) -> Step:
        """An affine function of x as a step; its coefficients are not known, but measured."""
        rule = AffineRule(data=("input",), bound=partial(_measured, run), measured=True)
        names = ("input", "constants")
        return Step(name, run, (self.x, self.constants), {}, names, rule, (("add", "plain"), {}))


def _measured(run: Function, call: dict[str, Any]) -> Bound:
    return measured_bound(lambda x: run(x, call["constants"]), call["input"])


def custom_op_of(node: fx.Node) -> CustomOp | None:
    """What was registered for the module or the operator that a node calls."""
    module = opaque_module_of(node)
    return rule_of_operator(node.target) if module is None else module.rule


def add_custom(builder: GraphBuilder, call: NodeCall) -> str | None:
    """Add a step or a layer from what was registered, or say why it cannot be added."""
    node, module = call.node, opaque_module_of(call.node)
    found: _Call | None
    if module is None:
        found = _operator_call(builder, call)
    else:
        state = module.on(builder.device)
        borders = None if module.rule.cuts is None else module.borders
        curvature = None if module.rule.curvature is None else module.curvature
        given = (module.kind, call.args[0], state, module.value, borders)
        found = _Call(*given, module.table(state), curvature)
    if found is None or not isinstance(node.meta["val"], Tensor):
        return _ONE
    rows, result_rows = builder.rows[found.x.name], builder.batch.rows(node.meta["val"])
    if result_rows is None:
        return MIXES
    if found.curvature is not None and not builder.smooth:
        return f"it is registered as smooth: {option(OPTION)}"
    if found.table is not None:
        _add_table(builder, node, found, found.table)
        return None
    if not (rows.plain and result_rows.plain):
        return "the first dimension of its input and of its output must be the batch"
    try:
        if found.curvature is not None:
            return _add_smooth(builder, node, found, found.curvature)
        _add_checked(builder, node, found)
    except Problem as problem:
        return str(problem)
    return None


_HERE = ...  # stands for the activation in an operator's arguments, also once it is pickled


def _operator_call(builder: GraphBuilder, call: NodeCall) -> _Call | None:
    """The call of a custom operator, if it has one variable."""
    x = next(ref for ref in refs((call.args, call.kwargs)) if builder.is_active(ref))

    def marked(item: Any) -> Any:
        return _HERE if isinstance(item, Ref) and item == x else item

    named = tuple((key, marked(item)) for key, item in call.kwargs.items())
    constants = (tuple(map(marked, call.args)), named)
    if next(refs(constants), None) is not None or has_size(constants):
        return None
    target: Any = call.node.target
    cuts, limit = call.rule.cuts, call.rule.curvature
    borders = None if cuts is None else lambda x, others: as_columns(_call(cuts, x, others))
    curvature = None if limit is None else partial(_call_limit, limit)
    value = partial(_call, target)
    return _Call(target_name(target), x, constants, value, borders, curvature=curvature)


def _call(run: Function, x: Tensor, constants: Any) -> Tensor:
    args, kwargs = constants
    given = [x if item is _HERE else item for item in args]
    return run(*given, **{key: x if item is _HERE else item for key, item in kwargs})


def _call_limit(limit: Any, low: Tensor, high: Tensor, constants: Any) -> Any:
    """A bound on the second derivative; it is given the other arguments of the operator too."""
    args, kwargs = constants
    others = [item for item in args if item is not _HERE]
    named = {key: item for key, item in kwargs if item is not _HERE}
    return limit(low, high, *others, **named) if callable(limit) else limit


def _add_checked(builder: GraphBuilder, node: fx.Node, call: _Call) -> None:
    """Add a step, or a layer by the functions that were given, if they do what they promise."""
    x = _random(builder, call.x, 1, seed=2)
    constants = resolve(call.constants, {}, 1, builder.device)

    def bound_to_constants(run: Function) -> Callable[[Tensor], Tensor]:
        return lambda x: run(x, constants)

    borders = None if call.borders is None else bound_to_constants(call.borders)
    check_custom_op(bound_to_constants(call.value), borders, x)
    run = _differentiable(call.value, call.borders, x, constants)
    builder.add_results(node)
    if call.borders is None or borders is None:
        builder.body.append(call.step(node.name, run))
        return
    source = call.step(f"{node.name}.borders", _differentiable(call.borders, None, x, constants))
    builder.add_value(source.name, node, None)
    builder.body.append(source)
    operation = Operation(run, (Operation.VARIABLE, call.constants), {})
    fields = {"argument": call.x.name, "shape": tuple(borders(x).shape[1:]), "target": call.kind}
    builder.add_layer(CustomNonlinearity, node, operation, source.name, **fields)


def _add_smooth(
    builder: GraphBuilder, node: fx.Node, call: _Call, curvature: Function
) -> str | None:
    """Add a smooth function of one variable, if its bound holds."""
    constants = resolve(call.constants, {}, 1, builder.device)
    curve = RegisteredCurve(call.kind, call.value, curvature, constants)
    x = _random(builder, call.x, 3, seed=0)
    check_curve(curve, lambda x: call.value(x, constants), x)
    return add_curve(builder, node, curve, call.x)


def _random(builder: GraphBuilder, ref: Ref, rows: int, *, seed: int) -> Tensor:
    """Random numbers in the shape of a value for so many points."""
    shape, generator = builder.shape_of(ref, 1)[1:], torch.Generator().manual_seed(seed)
    return torch.randn(rows, *shape, generator=generator, dtype=torch.float64).to(builder.device)


def _add_table(builder: GraphBuilder, node: fx.Node, call: _Call, table: Table) -> None:
    """Add functions of one variable; where no slope changes there is no knot."""
    bent = (table.slopes[1:] != table.slopes[:-1]).any(1)
    several = table.slopes.shape[1] > 1
    slopes = table.slopes.abs().amax(1) if several else table.slopes[:, 0]
    levels, slopes = table.knots[bent], torch.cat([slopes[:1], slopes[1:][bent]])
    rows, count = builder.rows[call.x.name], builder.unit_shape(call.x).numel()
    operation = Operation(call.value, (Operation.VARIABLE, call.constants), {}, rows, rows)
    fields = {
        "levels": levels[:, None].expand(-1, count),
        "slopes": slopes[:, None].expand(-1, count),
        "exact": False,
        "period": table.period if len(levels) else None,
    }
    builder.add_results(node)
    builder.add_layer(PiecewiseScalar, node, operation, call.x.name, target=call.kind, **fields)


def _differentiable(
    value: Function, borders: Function | None, x: Tensor, constants: Any
) -> Function:
    """The function ``value(x, constants)``, with differences if its derivative at x is wrong."""
    generator = torch.Generator().manual_seed(1)
    along = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.device)
    expected = _slope(value, borders, x, along, constants)
    try:
        found = torch.func.jvp(lambda x: value(x, constants), (x,), (along,))[1]
    except Exception:
        found = torch.full_like(expected, torch.inf)
    if bool(((found - expected).abs() <= _SLACK * expected.abs().max()).all()):
        return value
    return partial(_apply, value, borders)


def _apply(value: Function, borders: Function | None, x: Tensor, constants: Any) -> Tensor:
    result: Tensor = _Differences.apply(x, value, borders, constants)  # type: ignore[no-untyped-call]
    return result


class _Differences(torch.autograd.Function):
    """A function whose forward derivative is a difference."""

    @staticmethod
    def forward(x: Tensor, value: Function, borders: Function | None, constants: Any) -> Tensor:
        return value(x, constants)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.value, ctx.borders, ctx.constants = inputs
        ctx.save_for_forward(x)

    @staticmethod
    def jvp(ctx: Any, along: Tensor, *rest: Any) -> Tensor:
        (x,) = ctx.saved_tensors
        # On tensors without tangents: what leaves torch cannot read the others.
        value = partial(_apply, ctx.value, None)
        borders = None if ctx.borders is None else partial(_apply, ctx.borders, None)
        return _slope(value, borders, x, along, ctx.constants)


def _slope(
    value: Function, borders: Function | None, x: Tensor, along: Tensor, constants: Any
) -> Tensor:
    """The derivative at x, (B, ...), along directions (B, ...), from two points of its piece."""
    ahead = behind = torch.ones(x.shape[0], dtype=torch.float64, device=x.device)
    if borders is not None:
        at = borders(x, constants)
        root = at / (at - borders(x + along, constants))
        ahead = _INSIDE * torch.where(root >= 0, root, torch.inf).amin(1).clamp(max=1)
        behind = _INSIDE * torch.where(root < 0, -root, torch.inf).amin(1).clamp(max=1)

    def moved(by: Tensor) -> Tensor:
        return value(x + by.view(-1, *[1] * (x.dim() - 1)) * along, constants)

    change = moved(ahead) - moved(-behind)
    return change / (ahead + behind).view(-1, *[1] * (change.dim() - 1))
