"""How the calls that the user has taught become steps and cuts: leaf modules, custom operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from splinecam.network.capture.constants import has_size
from splinecam.network.capture.custom_op_check import Problem, try_out
from splinecam.network.capture.differences import differentiable
from splinecam.network.capture.graph_builder import GraphBuilder
from splinecam.network.capture.leaves import Leaf, as_columns, leaf_of
from splinecam.network.capture.staging import refs
from splinecam.network.nonlinearities import CustomNonlinearity, Operation, PiecewiseScalar
from splinecam.network.ops import Affine, Bound, target_name
from splinecam.network.ops.measure import measured_bound
from splinecam.network.ops.register import CustomOp, Table, taught_operator
from splinecam.network.ops.rejected import MIXES
from splinecam.network.program import Step
from splinecam.network.values import Ref, resolve

__all__ = ["add_taught", "taught_of"]

_ONE = (
    "a registered operator takes one activation, makes one tensor of it, and its other arguments "
    "do not depend on the input or on the size of the batch"
)


@dataclass(frozen=True)
class _Call:
    """A call of something taught, by functions ``run(x, constants)``.

    kind: what is called. x: the activation. constants: all else that the functions need, in any
    nesting of tensors, so that they can be moved to another device.
    """

    kind: str
    x: Ref
    constants: Any
    value: Callable[..., Tensor]
    cuts: Callable[..., Tensor] | None = None
    table: Table | None = None

    def step(self, name: str, run: Callable[..., Tensor]) -> Step:
        """An affine function of x as a step; its coefficients are not known, but measured."""
        rule = Affine(data=("input",), bound=partial(_measured, run))
        names = ("input", "constants")
        return Step(name, run, (self.x, self.constants), {}, names, rule, (("add", "plain"), {}))


def _measured(run: Callable[..., Tensor], call: dict[str, Any]) -> Bound:
    return measured_bound(lambda x: run(x, call["constants"]), call["input"])


def taught_of(node: fx.Node) -> CustomOp | None:
    """What was registered for the module or the operator that a node calls."""
    leaf = leaf_of(node)
    return taught_operator(node.target) if leaf is None else leaf.rule


def add_taught(
    draft: GraphBuilder,
    node: fx.Node,
    rule: CustomOp,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> str | None:
    """A step or a cut from what was registered; the answer is a reason against it."""
    leaf = leaf_of(node)
    if leaf is not None:
        call: _Call | None = _leaf_call(leaf, args[0], draft.device)
    else:
        call = _operator_call(draft, node.target, rule, args, kwargs)
    if call is None or not isinstance(node.meta["val"], Tensor):
        return _ONE
    rows, result_rows = draft.rows[call.x.name], draft.batch.rows(node.meta["val"])
    if result_rows is None:
        return MIXES
    if call.table is not None:
        _add_table(draft, node, call, call.table)
        return None
    if not (rows.plain and result_rows.plain):
        return "the first dimension of its input and of its output must be the batch"
    try:
        _add_tried(draft, node, call)
    except Problem as problem:
        return str(problem)
    return None


def _leaf_call(leaf: Leaf, x: Ref, device: torch.device) -> _Call:
    state = leaf.on(device)
    cuts = None if leaf.rule.cuts is None else leaf.cuts
    return _Call(leaf.kind, x, state, leaf.value, cuts, leaf.table(state))


_HERE = object()  # stands for the activation in an operator's arguments


def _operator_call(
    draft: GraphBuilder, target: Any, rule: CustomOp, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Call | None:
    """The call of a custom operator, if it has one variable."""
    x = next(ref for ref in refs((args, kwargs)) if draft.is_active(ref))

    def marked(item: Any) -> Any:
        return _HERE if isinstance(item, Ref) and item == x else item

    constants = (tuple(map(marked, args)), tuple((k, marked(v)) for k, v in kwargs.items()))
    if next(refs(constants), None) is not None or has_size(constants):
        return None
    cuts = None if rule.cuts is None else partial(_call_flat, rule.cuts)
    return _Call(target_name(target), x, constants, partial(_call, target), cuts)


def _call(run: Callable[..., Tensor], x: Tensor, constants: Any) -> Tensor:
    args, kwargs = constants
    filled = [x if item is _HERE else item for item in args]
    return run(*filled, **{key: x if item is _HERE else item for key, item in kwargs})


def _call_flat(run: Callable[..., Tensor], x: Tensor, constants: Any) -> Tensor:
    return as_columns(_call(run, x, constants))


def _add_tried(draft: GraphBuilder, node: fx.Node, call: _Call) -> None:
    """A step, or a cut by the functions that were given, if they keep what they promise."""
    shape = tuple(draft.shape_of(call.x, 1)[1:])
    constants = resolve(call.constants, {}, 1, draft.device)
    value = partial(_filled, call.value, constants)
    cuts = None if call.cuts is None else partial(_filled, call.cuts, constants)
    try_out(value, cuts, shape, draft.device)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(1, *shape, generator=generator, dtype=torch.float64).to(draft.device)
    run = differentiable(call.value, call.cuts, x, constants)
    draft.note(node)
    if call.cuts is None or cuts is None:
        draft.body.append(call.step(node.name, run))
        return
    source = call.step(f"{node.name}.cuts", differentiable(call.cuts, None, x, constants))
    draft.add_value(source.name, node, None)
    draft.body.append(source)
    draft.body.append(
        CustomNonlinearity(
            name=draft.cut_name(node),
            target=call.kind,
            source=source.name,
            argument=call.x.name,
            result=node.name,
            shape=tuple(cuts(x).shape[1:]),
            operation=Operation(run, (Operation.VARIABLE, call.constants), {}),
        )
    )


def _filled(run: Callable[..., Tensor], constants: Any, x: Tensor) -> Tensor:
    return run(x, constants)


def _add_table(draft: GraphBuilder, node: fx.Node, call: _Call, table: Table) -> None:
    """A cut by functions of one variable; where no slope changes there is no knot."""
    bent = (table.slopes[1:] != table.slopes[:-1]).any(1)
    several = table.slopes.shape[1] > 1
    slopes = table.slopes.abs().amax(1) if several else table.slopes[:, 0]
    levels, slopes = table.knots[bent], torch.cat([slopes[:1], slopes[1:][bent]])
    rows = draft.rows[call.x.name]
    shape = rows.out(levels.new_zeros(()).expand(draft.shape_of(call.x, 1))).shape[1:]
    draft.note(node)
    draft.body.append(
        PiecewiseScalar(
            name=draft.cut_name(node),
            target=call.kind,
            source=call.x.name,
            argument=call.x.name,
            result=node.name,
            shape=tuple(shape),
            operation=Operation(call.value, (Operation.VARIABLE, call.constants), {}, rows, rows),
            levels=levels[:, None].expand(-1, shape.numel()),
            slopes=slopes[:, None].expand(-1, shape.numel()),
            exact=False,
            period=table.period if len(levels) else None,
        )
    )
