"""How calls of what the user has registered become steps and layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from splinecam._util.tolerances import EPS
from splinecam.network.capture.reading.constants import has_size
from splinecam.network.capture.reading.curve_check import check_curve
from splinecam.network.capture.reading.custom_op_check import Problem, check_custom_op
from splinecam.network.capture.reading.graph_builder import GraphBuilder, NodeCall
from splinecam.network.capture.reading.smooth_functions import add_curve
from splinecam.network.capture.reading.stages import refs
from splinecam.network.capture.tracing.opaque_modules import (
    OpaqueModule,
    as_columns,
    opaque_module_of,
)
from splinecam.network.curves.taught import TaughtCurve
from splinecam.network.nonlinearities import CustomNonlinearity, Operation, PiecewiseScalar
from splinecam.network.ops import OPTION, Affine, Bound, target_name
from splinecam.network.ops.bounds import measured_bound
from splinecam.network.ops.register import CustomOp, Table, rule_of_operator
from splinecam.network.ops.rejected import MIXES
from splinecam.network.program import Step
from splinecam.network.values import Ref, resolve

__all__ = ["add_custom", "custom_op_of"]

_ONE = (
    "a registered operator takes one activation, makes one tensor of it, and its other arguments "
    "do not depend on the input or on the size of the batch"
)
_SLACK = 2**26 * EPS  # a wrong derivative is off by its own size, a difference by some rounding
_INSIDE = 0.9  # how much of the way to the next border is used

Function = Callable[..., Tensor]


@dataclass(frozen=True)
class _Call:
    """A call of something registered, by functions ``run(x, constants)``.

    kind: what is called. x: the activation. constants: all else that the functions need, in any
    nesting of tensors, so that they can be moved to another device. borders: the functions whose
    zeros are the borders of the pieces.
    """

    kind: str
    x: Ref
    constants: Any
    value: Function
    borders: Function | None = None
    table: Table | None = None
    curvature: Function | None = None

    def step(self, name: str, run: Function) -> Step:
        """An affine function of x as a step; its coefficients are not known, but measured."""
        rule = Affine(data=("input",), bound=partial(_measured, run), measured=True)
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
    if module is not None:
        found: _Call | None = _module_call(module, call.args[0], builder.device)
    else:
        found = _operator_call(builder, call)
    if found is None or not isinstance(node.meta["val"], Tensor):
        return _ONE
    rows, result_rows = builder.rows[found.x.name], builder.batch.rows(node.meta["val"])
    if result_rows is None:
        return MIXES
    if found.curvature is not None and not builder.smooth:
        return f"it is registered as smooth: {OPTION}"
    if found.table is not None:
        _add_table(builder, node, found, found.table)
        return None
    if not (rows.plain and result_rows.plain):
        return "the first dimension of its input and of its output must be the batch"
    try:
        if found.curvature is not None:
            return _add_taught(builder, node, found, found.curvature)
        _add_checked(builder, node, found)
    except Problem as problem:
        return str(problem)
    return None


def _module_call(module: OpaqueModule, x: Ref, device: torch.device) -> _Call:
    state = module.on(device)
    borders = None if module.rule.cuts is None else module.borders
    curvature = None if module.rule.curvature is None else module.curvature
    return _Call(module.kind, x, state, module.value, borders, module.table(state), curvature)


_HERE = object()  # stands for the activation in an operator's arguments


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
    borders = call.rule.cuts
    columns = None if borders is None else partial(_call_columns, borders)
    limit = call.rule.curvature
    curvature = None if limit is None else partial(_call_limit, limit)
    value = partial(_call, target)
    return _Call(target_name(target), x, constants, value, columns, curvature=curvature)


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


def _call_columns(run: Function, x: Tensor, constants: Any) -> Tensor:
    return as_columns(_call(run, x, constants))


def _add_checked(builder: GraphBuilder, node: fx.Node, call: _Call) -> None:
    """Add a step, or a layer by the functions that were given, if they do what they promise."""
    shape = tuple(builder.shape_of(call.x, 1)[1:])
    constants = resolve(call.constants, {}, 1, builder.device)

    def bound_to_constants(run: Function) -> Callable[[Tensor], Tensor]:
        return lambda x: run(x, constants)

    borders = None if call.borders is None else bound_to_constants(call.borders)
    check_custom_op(bound_to_constants(call.value), borders, shape, builder.device)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(1, *shape, generator=generator, dtype=torch.float64).to(builder.device)
    run = _differentiable(call.value, call.borders, x, constants)
    builder.add_results(node)
    if call.borders is None or borders is None:
        builder.body.append(call.step(node.name, run))
        return
    source = call.step(f"{node.name}.borders", _differentiable(call.borders, None, x, constants))
    builder.add_value(source.name, node, None)
    builder.body.append(source)
    builder.add_layer(
        CustomNonlinearity,
        node,
        Operation(run, (Operation.VARIABLE, call.constants), {}),
        target=call.kind,
        source=source.name,
        argument=call.x.name,
        result=node.name,
        shape=borders(x).shape[1:],
    )


def _add_taught(
    builder: GraphBuilder, node: fx.Node, call: _Call, curvature: Function
) -> str | None:
    """Add a smooth function of one variable, if its bound holds."""
    constants = resolve(call.constants, {}, 1, builder.device)
    curve = TaughtCurve(call.kind, call.value, curvature, constants)
    shape = tuple(builder.shape_of(call.x, 1)[1:])
    check_curve(curve, lambda x: call.value(x, constants), shape, builder.device)
    return add_curve(builder, node, curve, call.x)


def _add_table(builder: GraphBuilder, node: fx.Node, call: _Call, table: Table) -> None:
    """Add functions of one variable; where no slope changes there is no knot."""
    bent = (table.slopes[1:] != table.slopes[:-1]).any(1)
    several = table.slopes.shape[1] > 1
    slopes = table.slopes.abs().amax(1) if several else table.slopes[:, 0]
    levels, slopes = table.knots[bent], torch.cat([slopes[:1], slopes[1:][bent]])
    rows, shape = builder.rows[call.x.name], builder.unit_shape(call.x)[1:]
    builder.add_results(node)
    builder.add_layer(
        PiecewiseScalar,
        node,
        Operation(call.value, (Operation.VARIABLE, call.constants), {}, rows, rows),
        target=call.kind,
        source=call.x.name,
        result=node.name,
        shape=shape,
        levels=levels[:, None].expand(-1, shape.numel()),
        slopes=slopes[:, None].expand(-1, shape.numel()),
        exact=False,
        period=table.period if len(levels) else None,
    )


# -- derivatives by differences --------------------------------------------------------------------


def _differentiable(
    value: Function, borders: Function | None, x: Tensor, constants: Any
) -> Function:
    """The function ``value(x, constants)``, with differences for derivatives if it has none.

    It is affine between the zeros of ``borders``. Custom operators have no forward derivative, and
    that of a module which leaves torch on the way is wrong: it is checked at x, (B, ...).
    """
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
