"""From an ``nn.Module`` to a program of affine stages and piecewise-linear cuts."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from splinecam.errors import CaptureError, OffendingOp, UnsupportedOpError
from splinecam.graph import (
    argument_names,
    arguments_of,
    defaults,
    export_graph,
    location_of,
    name_of,
    needed_by,
    unwrap,
)
from splinecam.knots import spread_knots
from splinecam.ops import (
    CREATORS,
    Affine,
    Bound,
    Piecewise,
    Rejected,
    Terminal,
    role_of,
    rule_of,
    target_name,
)
from splinecam.ops.rejected import MAXIMA, PRODUCT, RANDOM
from splinecam.probe import probe
from splinecam.program import DEVICE, Cut, Program, Ref, Rows, Size, Stage, Step, resolve
from splinecam.shapes import Batch
from splinecam.staging import make_stages, refs

__all__ = ["Bound", "Cut", "Program", "Stage", "capture"]

MIXES = "it mixes the points of the batch"


def capture(
    model: nn.Module, input_shape: tuple[int, ...], *, device: torch.device | str = "cpu"
) -> Program:
    """Turn a piecewise-linear model into a :class:`Program`; the model is left as it was.

    ``input_shape`` is the shape of one input, without the batch.
    """
    input_shape = tuple(int(size) for size in input_shape)
    exported = export_graph(unwrap(model), input_shape)
    with torch.no_grad():
        reader = _Reader(exported, torch.device(device))
        program = reader.read(input_shape)
        probe(program, reader.rows, reader.describe)
    return program


class _Reader:
    """Reads the graph once, in order: folds constants, sorts nodes into steps and cuts.

    ``values`` maps each node to what stands for it in a step's arguments: a Ref to a value of the
    running program, a Size, or a constant.
    """

    def __init__(self, exported: Any, device: torch.device) -> None:
        self.exported = exported
        self.device = device
        self.values: dict[fx.Node, Any] = {}
        self.rows: dict[str, Rows] = {}  # of the values that depend on the input
        self.body: list[Step | Cut] = []
        self.sized: dict[str, Step] = {}  # constants that depend on the size of the batch
        self.origin: dict[str, fx.Node] = {}
        self.offending: list[OffendingOp] = []
        self.masks: set[str] = set()  # values that are not numbers: results of rejected ops
        self.names: dict[str, int] = {}
        self.stripped: str | None = None

    def read(self, input_shape: tuple[int, ...]) -> Program:
        graph = self.exported.graph
        x, output = self._ends()
        last = self._terminal(output, x)
        needed = needed_by(output)
        for node in graph.nodes:
            if node.op != "call_function" or node not in needed:
                continue
            if node is last:
                self.values[node] = self.values[node.args[0]]
            else:
                self._node(node)
        if self.offending:
            raise UnsupportedOpError(self.offending)
        result = self.values[output]
        if not (isinstance(result, Ref) and result.name in self.rows):
            raise CaptureError("the model's output does not depend on its input")
        if not self.rows[result.name].plain:
            raise CaptureError("the first dimension of the model's output is not the batch")
        return Program(
            input_shape=input_shape,
            output_shape=tuple(self.batch.shape_at(output.meta["val"], 1)[1:]),
            input_name=x.name,
            output_name=result.name,
            stages=make_stages(self.body, self.sized, self.rows, result.name),
            stripped=self.stripped,
            device=self.device,
        )

    # --- the two ends of the graph

    def _ends(self) -> tuple[fx.Node, fx.Node]:
        """Fill in parameters, buffers and constants; find the input and the output."""
        signature = self.exported.graph_signature
        nodes = {node.name: node for node in self.exported.graph.nodes}
        inputs = []
        for spec in signature.input_specs:
            node = nodes[spec.arg.name]
            if spec.kind.name == "USER_INPUT":
                inputs.append(node)
            else:
                self.values[node] = self._constant(spec.target)
        outputs = [spec.arg for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT"]
        if len(inputs) != 1:
            raise CaptureError(f"the model has {len(inputs)} inputs: it must have one tensor")
        if len(outputs) != 1 or getattr(outputs[0], "name", None) not in nodes:
            raise CaptureError(
                f"the model returns {len(outputs)} values: it must return one tensor. "
                "Wrap it in a module that returns the one to be explained."
            )
        x, output = inputs[0], nodes[outputs[0].name]
        self.batch = Batch(x)
        self.values[x] = Ref(x.name)
        self.rows[x.name] = Rows()
        if not isinstance(output.meta.get("val"), Tensor):
            raise CaptureError("the model must return a tensor")
        return x, output

    def _constant(self, target: str) -> Any:
        """A parameter, a buffer or a constant of the model: a copy on the program's device."""
        found = self.exported.state_dict.get(target)
        if found is None:
            found = self.exported.constants.get(target)
        if not isinstance(found, Tensor):
            return found
        dtype = torch.float64 if found.is_floating_point() else found.dtype
        return found.detach().to(device=self.device, dtype=dtype, copy=True)

    def _terminal(self, output: fx.Node, x: fx.Node) -> fx.Node | None:
        """The softmax or sigmoid that makes the output, seen through changes of shape."""
        node, moved = output, False
        while node.op == "call_function" and len(node.users) == 1:
            rule = rule_of(node.target)
            if isinstance(rule, Terminal):
                dim = arguments_of(node).get("dim")
                over_batch = dim is not None and dim % node.args[0].meta["val"].dim() == 0
                if over_batch or (moved and not rule.elementwise):
                    return None
                self.stripped = rule.label
                return node
            if node.target is operator.getitem and node.args[1] == 0:
                node = node.args[0]
            elif isinstance(rule, Affine) and (rule.identity or rule.reshapes):
                moved = moved or rule.reshapes
                node = node.args[0]
            else:
                return None
        return None

    # --- one node

    def _node(self, node: fx.Node) -> None:
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            self.values[node] = self.batch.size(value)
            return
        if isinstance(value, (int, float, bool)):
            self.values[node] = value
            return
        args = tuple(self._template(item) for item in node.args)
        kwargs = {key: self._template(item) for key, item in node.kwargs.items()}
        if node.target is operator.getitem and isinstance(args[0], tuple):
            self.values[node] = args[0][args[1]]
            return
        if any(ref.name in self.rows for ref in refs((args, kwargs))):
            if target_name(node.target) in CREATORS:
                self._created(node)
            else:
                self._active(node, args, kwargs)
        else:
            self._folded(node, args, kwargs)

    def _template(self, item: Any) -> Any:
        if isinstance(item, fx.Node):
            if item not in self.values:
                raise CaptureError(f"the graph holds a value that cannot be read: {item.name}")
            return self.values[item]
        if isinstance(item, torch.SymInt):
            return self.batch.size(item)
        if isinstance(item, torch.device):
            return DEVICE
        if isinstance(item, torch.dtype):
            return torch.float64 if item.is_floating_point else item
        if isinstance(item, (list, tuple)):
            parts = [self._template(part) for part in item]
            return parts if isinstance(item, list) else tuple(parts)
        return item

    # --- constants

    def _folded(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A node that does not depend on the input: computed now, or once the batch is known."""
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            arguments = arguments_of(node)
            if not (arguments.get("train") is False or arguments.get("training") is False):
                self._reject(node, RANDOM)
                return
        run = partial(_constant_call, node.target)
        if any(True for _ in refs((args, kwargs))) or _has_size((args, kwargs)):
            self._add_sized(node, run, args, kwargs)
            return
        args = resolve(args, {}, 1, self.device)
        kwargs = {key: resolve(item, {}, 1, self.device) for key, item in kwargs.items()}
        self.values[node] = run(*args, **kwargs)

    def _created(self, node: fx.Node) -> None:
        """``zeros_like(x)`` and its kind: a constant in the shape of an activation."""
        arguments, value = arguments_of(node), node.meta["val"]
        name = target_name(node.target)
        fill = self._template(arguments.get("fill_value", 1 if "ones" in name else 0))
        dtype = torch.float64 if value.is_floating_point() else value.dtype
        kwargs = {"dtype": dtype, "device": DEVICE}
        self._add_sized(node, torch.full, (self.batch.shape(value), fill), kwargs)

    def _add_sized(
        self, node: fx.Node, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.sized[node.name] = Step(node.name, run, args, kwargs, (), None, ((), {}))
        self.origin[node.name] = node
        value = node.meta["val"]
        self.values[node] = Ref(node.name) if isinstance(value, Tensor) else self._parts(node)

    def _sized_value(self, name: str, batch: int) -> Any:
        step = self.sized[name]
        env = {
            ref.name: self._sized_value(ref.name, batch) for ref in refs((step.args, step.kwargs))
        }
        return step.call(env, batch, self.device)

    def _one_row(self, item: Any) -> Any:
        """A constant that has a batch dimension as one row, where all its rows are equal."""
        if not (isinstance(item, Ref) and item.name in self.sized):
            return item
        rows = self.batch.rows(self.origin[item.name].meta["val"])
        value = self._sized_value(item.name, 2)
        if rows is None or not isinstance(value, Tensor):
            raise ValueError(MIXES)
        first, second = rows.out(value)
        if not torch.equal(first, second):
            raise ValueError(MIXES)
        return rows.back(first[None])

    # --- activations

    def _active(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        rule, names = rule_of(node.target), argument_names(node)
        call = defaults(node) | dict(zip(names, args, strict=False)) | kwargs
        mask = any(ref.name in self.masks for ref in refs((args, kwargs)))
        reason = self._reason(node, rule, call)
        if reason is None and isinstance(rule, Affine):
            self._affine(node, rule, args, kwargs, names)
        elif reason is None and isinstance(rule, Piecewise):
            reason = self._piecewise(node, rule, args, kwargs, call)
        if reason is not None:
            self._reject(node, None if mask else reason)

    def _reason(self, node: fx.Node, rule: Any, call: dict[str, Any]) -> str | None:
        """Why this call cannot be part of a piecewise-linear network, or None."""
        if rule is None:
            random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
            return RANDOM if random else "there is no rule for this operation"
        if isinstance(rule, (Rejected, Terminal)):
            return rule.reason
        if isinstance(rule, Piecewise):
            active = [name for name, item in call.items() if self._is_active(item)]
            if len(active) > 1:
                return MAXIMA
            return None if active[0] in rule.source else f"its {active[0]} depends on the input"
        known = (*rule.data, *rule.product, *rule.shape_only)
        for name, item in call.items():
            if self._is_active(item) and name not in known:
                if name in rule.factor:
                    return "it divides by an activation"
                return f"its {name} depends on the input"
        factors = [r for name in rule.product for r in refs(call.get(name)) if r.name in self.rows]
        if len(factors) > 1:
            return PRODUCT
        if rule.identity and not _floating(node.meta["val"]):
            return "a conversion to whole numbers is discontinuous"
        reason = rule.check(call) if rule.check else None
        return reason or self._mixes(node, rule, call)

    def _is_active(self, item: Any) -> bool:
        return any(ref.name in self.rows for ref in refs(item))

    def _mixes(self, node: fx.Node, rule: Affine, call: dict[str, Any]) -> str | None:
        first = next(n for n in node.all_input_nodes if self._is_active(self.values[n]))
        value = first.meta["val"]
        value = value[0] if isinstance(value, (list, tuple)) else value
        rows = self.batch.rows(value)
        for name in rule.dims:
            dims = call.get(name)
            dims = [dims] if isinstance(dims, int) else dims or []
            if rows is not None and rows.dim in [dim % value.dim() for dim in dims]:
                return MIXES
        results = node.meta["val"]
        for result in results if isinstance(results, (list, tuple)) else [results]:
            if result is not None and result.numel() != 0 and self.batch.rows(result) is None:
                return MIXES
        return None

    def _parts(self, node: fx.Node) -> Any:
        """A Ref, or a tuple of them for a node with several results."""
        value = node.meta["val"]
        if isinstance(value, Tensor):
            return Ref(node.name)
        return tuple(Ref(f"{node.name}.{i}") for i in range(len(value)))

    def _note(self, node: fx.Node) -> None:
        """Remember where the batch is in each of a node's results."""
        self.values[node] = self._parts(node)
        value = node.meta["val"]
        values = [value] if isinstance(value, Tensor) else value
        for ref, part in zip(refs(self.values[node]), values, strict=True):
            rows = self.batch.rows(part) if isinstance(part, Tensor) else None
            self.rows[ref.name] = rows or Rows()
            self.origin[ref.name] = node
            if not _floating(part):
                self.masks.add(ref.name)

    def _affine(
        self,
        node: fx.Node,
        rule: Affine,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        names: tuple[str, ...],
    ) -> None:
        if rule.identity:
            self.values[node] = args[0]
            return
        run: Any = rule.run or node.target
        if rule.reshapes or rule.shape_only:
            shape = self.batch.shape(node.meta["val"])
            run = torch.reshape if rule.reshapes else torch.Tensor.expand
            args, kwargs, names = (args[0], shape), {}, (names[0], "size")
        roles = (
            tuple(role_of(rule, name) for name in names[: len(args)]),
            {key: role_of(rule, key) for key in kwargs},
        )
        self._note(node)
        self.body.append(Step(node.name, run, args, kwargs, names, rule, roles))
        self.origin[node.name] = node
        if isinstance(self.values[node], tuple):
            for i, ref in enumerate(self.values[node]):
                part = Step(
                    ref.name,
                    operator.getitem,
                    (Ref(node.name), i),
                    {},
                    (),
                    _PART,
                    (("plain", "plain"), {}),
                )
                self.body.append(part)

    def _piecewise(
        self,
        node: fx.Node,
        rule: Piecewise,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        call: dict[str, Any],
    ) -> str | None:
        source = next(name for name in rule.source if self._is_active(call.get(name)))
        try:
            args = tuple(self._one_row(item) for item in args)
            kwargs = {key: self._one_row(item) for key, item in kwargs.items()}
            call = {key: self._one_row(item) for key, item in call.items()}
        except ValueError as error:
            return str(error)
        rows = self.batch.rows(node.meta["val"])
        if rows is None:
            return MIXES
        shape = self.batch.shape_at(node.meta["val"], 1)
        z = torch.zeros(shape, dtype=torch.float64, device=self.device)
        constant = next(
            (call[name] for name in rule.source if name != source and name in call), None
        )
        knots = rule.knots(call | {source: z, "constant": constant})
        if isinstance(knots, str):
            return knots
        ref = self._expanded(node, call[source])
        levels, slopes = spread_knots(knots, shape, rows, self.device)
        self._note(node)
        self.body.append(
            Cut(
                name=self._cut_name(node),
                target=target_name(node.target),
                source=ref.name,
                result=node.name,
                shape=tuple(rows.out(z).shape[1:]),
                levels=levels,
                slopes=slopes,
                run=node.target,  # type: ignore[arg-type]
                args=tuple(Cut.VARIABLE if isinstance(a, Ref) else a for a in args),
                kwargs={k: Cut.VARIABLE if isinstance(a, Ref) else a for k, a in kwargs.items()},
                rows=rows,
            )
        )
        return None

    def _expanded(self, node: fx.Node, ref: Ref) -> Ref:
        """The cut's variable in the shape of its result, which a constant may have widened."""
        shape = self.batch.shape(node.meta["val"])
        before = next(n for n in node.all_input_nodes if self.values[n] == ref)
        if self.batch.shape_at(before.meta["val"], 3) == self.batch.shape_at(node.meta["val"], 3):
            return ref
        name = f"{ref.name}.wide.{node.name}"
        self.rows[name] = self.rows[ref.name]
        self.body.append(
            Step(name, torch.Tensor.expand, (ref, shape), {}, (), _PART, (("add", "plain"), {}))
        )
        self.origin[name] = node
        return Ref(name)

    # --- names and reasons

    def _cut_name(self, node: fx.Node) -> str:
        name, module = name_of(node)
        count = self.names[name] = self.names.get(name, 0) + 1
        if count == 1:
            return name
        return f"{name}#{count}" if module else f"{name}_{count - 1}"

    def describe(self, name: str, reason: str) -> OffendingOp:
        node = self.origin[name]
        return OffendingOp(name_of(node)[0], target_name(node.target), location_of(node), reason)

    def _reject(self, node: fx.Node, reason: str | None) -> None:
        """Note an offending node and go on as if it were allowed, to find the others too."""
        self._note(node)
        self.origin[node.name] = node
        if reason is not None:
            self.offending.append(self.describe(node.name, reason))


_PART = Affine(exact=True)


def _floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _has_size(item: Any) -> bool:
    if isinstance(item, dict):
        item = list(item.values())
    if isinstance(item, (list, tuple)):
        return any(_has_size(part) for part in item)
    return isinstance(item, Size)


def _constant_call(target: Any, *args: Any, **kwargs: Any) -> Any:
    """A call without activations, its result in float64; what is left empty is zero."""
    value = target(*args, **kwargs)
    empty = target_name(target) in ("aten.empty", "aten.new_empty", "aten.empty_strided")
    return _wide(torch.zeros_like(value) if empty else value)


def _wide(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to(torch.float64) if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return tuple(_wide(item) for item in value)
    return value
