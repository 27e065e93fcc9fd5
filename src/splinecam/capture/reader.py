"""From an ``nn.Module`` to a program of affine stages and piecewise-linear cuts."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from splinecam.capture.constants import (
    Sized,
    UnevenRows,
    constant_call,
    filled,
    has_size,
    part_of,
    parts_of,
)
from splinecam.capture.graph import (
    argument_names,
    arguments_of,
    defaults,
    export_graph,
    final_of,
    first_line,
    location_of,
    name_of,
    needed_by,
    terminal_of,
    unwrap,
)
from splinecam.capture.knots import spread_knots
from splinecam.capture.probe import probe
from splinecam.capture.shapes import Batch
from splinecam.capture.staging import make_stages, refs
from splinecam.cuts import Cut, KnotCut, Operation
from splinecam.errors import CaptureError, OffendingOp, SplineCamError, UnsupportedOpError
from splinecam.ops import (
    CREATORS,
    Affine,
    Piecewise,
    Rejected,
    Terminal,
    role_of,
    rule_of,
    target_name,
)
from splinecam.ops.rejected import MAXIMA, MIXES, PRODUCT, RANDOM, SPELLINGS
from splinecam.program import Program, Step
from splinecam.values import DEVICE, Ref, Rows, resolve

__all__ = ["capture"]


def capture(
    model: nn.Module, input_shape: tuple[int, ...], *, device: torch.device | str = "cpu"
) -> Program:
    """Turn a piecewise-linear model into a :class:`Program`; the model is left as it was.

    ``input_shape`` is the shape of one input, without the batch.
    """
    input_shape = tuple(int(size) for size in input_shape)
    exported = export_graph(unwrap(model), input_shape)
    reader = _Reader(exported, torch.device(device))
    try:
        with torch.no_grad():
            program = reader.read(input_shape)
            probe(program, reader.rows, reader.describe)
    except SplineCamError:
        raise
    except Exception as error:
        message = f"the model's graph cannot be run in float64: {first_line(error)}"
        raise CaptureError(message) from error
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
        self.origin: dict[str, fx.Node] = {}
        self.offending: list[OffendingOp] = []
        self.masks: set[str] = set()  # values that are not numbers: results of rejected ops
        self.names: dict[str, int] = {}
        self.stripped: str | None = None
        self.final: Callable[[Tensor], Tensor] | None = None

    def read(self, input_shape: tuple[int, ...]) -> Program:
        graph = self.exported.graph
        x, output = self._ends()
        needed = needed_by(output)
        last, self.stripped = terminal_of(output, needed) or (None, None)
        for node in graph.nodes:
            if node.op == "get_attr":
                self.values[node] = None  # the graph of a branch: its caller is rejected
            if node.op != "call_function" or node not in needed:
                continue
            if last is not None and node is last:
                value = self._template(node.args[0])
                self.values[node] = value if isinstance(node.meta["val"], Tensor) else (value,)
                self.final = final_of(node)
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
            stages=make_stages(self.body, self.sized.steps, self.rows, result.name),
            stripped=self.stripped,
            final=self.final,
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
        ends = zip(signature.output_specs, list(nodes.values())[-1].args[0], strict=True)
        outputs = [node for spec, node in ends if spec.kind.name == "USER_OUTPUT"]
        if len(inputs) != 1:
            raise CaptureError(f"the model has {len(inputs)} inputs: it must have one tensor")
        if len(outputs) != 1:
            raise CaptureError(
                f"the model returns {len(outputs)} values: it must return one tensor. "
                "Wrap it in a module that returns the one to be explained."
            )
        x, output = inputs[0], outputs[0]
        self.batch = Batch(x)
        self.sized = Sized(self.batch, self.device)
        self.values[x] = Ref(x.name)
        self.rows[x.name] = Rows()
        if not isinstance(output, fx.Node) or not isinstance(output.meta.get("val"), Tensor):
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

    # --- one node

    def _node(self, node: fx.Node) -> None:
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            self.values[node] = self._number(node, value)
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

    def _number(self, node: fx.Node, value: Any) -> Any:
        """A number that depends on the batch or, like ``weight.max().item()``, on constants."""
        source: Any = node.args[0] if node.args else None
        tensor = self.values.get(source)
        if self.batch.unknown(value) and isinstance(tensor, Tensor) and tensor.numel() == 1:
            self.batch.known[value.node.expr] = tensor.item()
        return self.batch.size(value)

    def _count_masked(self, node: fx.Node, call: dict[str, Any]) -> None:
        """Indexing by a constant mask: the number of entries it picks is a constant too."""
        masks = [item for item in call.get("indices") or () if _is_mask(item)]
        unknown = self.batch.unknown(node.meta["val"]) if masks else ()
        if len(masks) == 1 and len(unknown) == 1:
            self.batch.known[next(iter(unknown))] = int(masks[0].sum())

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
        run = partial(constant_call, node.target)
        if any(True for _ in refs((args, kwargs))) or has_size((args, kwargs)):
            self.origin[node.name] = node
            self.values[node] = self.sized.add(node, run, args, kwargs)
            return
        args = resolve(args, {}, 1, self.device)
        kwargs = {key: resolve(item, {}, 1, self.device) for key, item in kwargs.items()}
        self.values[node] = run(*args, **kwargs)

    def _created(self, node: fx.Node) -> None:
        """``zeros_like(x)`` and its kind: a constant in the shape of an activation."""
        arguments, value = arguments_of(node), node.meta["val"]
        name = target_name(node.target)
        fill = arguments.get("fill_value", arguments.get("value", 1 if "ones" in name else 0))
        dtype = torch.float64 if value.is_floating_point() else value.dtype
        args = (self.batch.shape(value), self._template(fill), dtype, DEVICE)
        self.origin[node.name] = node
        self.values[node] = self.sized.add(node, filled, args, {})

    # --- activations

    def _active(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        rule, names = rule_of(node.target), argument_names(node)
        call = defaults(node) | dict(zip(names, args, strict=False)) | kwargs
        self._count_masked(node, call)
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
            if not isinstance(node.target, torch._ops.OpOverload):
                return "control flow that depends on the input is not supported"
            random = torch.Tag.nondeterministic_seeded in node.target.tags
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
            empty = result is None or any(type(n) is int and n == 0 for n in result.shape)
            if not empty and self.batch.rows(result) is None:
                return MIXES
        return None

    def _note(self, node: fx.Node) -> None:
        """Remember where the batch is in each of a node's results."""
        self.values[node] = parts_of(node)
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
            used = {user.args[1] for user in node.users if user.users}
            for i, ref in enumerate(self.values[node]):
                if i in used:
                    self.body.append(part_of(ref, node, i, _PART))

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
            args = tuple(self.sized.one_row(item) for item in args)
            kwargs = {key: self.sized.one_row(item) for key, item in kwargs.items()}
            call = {key: self.sized.one_row(item) for key, item in call.items()}
        except UnevenRows:
            return MIXES
        rows = self.batch.rows(node.meta["val"])
        if rows is None:
            return MIXES
        shape = self.batch.shape_at(node.meta["val"], 1)
        z = torch.zeros(shape, dtype=torch.float64, device=self.device)
        constant = next((call.get(name) for name in rule.source if name != source), None)
        knots = rule.knots(call | {source: z, "constant": constant})
        if isinstance(knots, str):
            return knots
        ref = self._expanded(node, call[source])
        levels, slopes = spread_knots(knots, shape, rows, self.device)
        self._note(node)
        self.body.append(
            KnotCut(
                name=self._cut_name(node),
                target=target_name(node.target),
                source=ref.name,
                argument=ref.name,
                result=node.name,
                shape=tuple(rows.out(z).shape[1:]),
                operation=Operation(
                    rule.run or node.target,  # type: ignore[arg-type]
                    tuple(Operation.VARIABLE if isinstance(a, Ref) else a for a in args),
                    {k: Operation.VARIABLE if isinstance(a, Ref) else a for k, a in kwargs.items()},
                    rows,
                    rows,
                ),
                levels=levels,
                slopes=slopes,
                exact=rule.exact,
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
        self.rows[name] = self.batch.rows(node.meta["val"]) or Rows()
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
        """What an error says of the node that made a value."""
        node = self.origin[name.removesuffix(".rows")]
        target = target_name(node.target)
        target = SPELLINGS.get(target, target)
        return OffendingOp(name_of(node)[0], target, location_of(node), reason)

    def _reject(self, node: fx.Node, reason: str | None) -> None:
        """Note an offending node and go on as if it were allowed, to find the others too."""
        self._note(node)
        self.origin[node.name] = node
        if reason is not None:
            self.offending.append(self.describe(node.name, reason))


_PART = Affine(exact=True)


def _is_mask(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.bool


def _floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
