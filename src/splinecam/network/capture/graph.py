"""From a module to a flat graph of ATen calls by ``torch.export``; the module stays as it was."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator
from functools import cache
from io import StringIO
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn

from splinecam._util.backend import is_cuda
from splinecam.errors import CaptureError
from splinecam.network.capture.batches import export_any_batch, fixes_batch
from splinecam.network.capture.diagnosis import (
    first_line,
    known_cause,
    last_of_the_user,
    unknown_cause,
)
from splinecam.network.capture.known import known_values
from splinecam.network.capture.leaves import leaf_of
from splinecam.network.capture.lock import untouched
from splinecam.network.capture.shapes import dynamic_shapes
from splinecam.network.ops import Affine, Maximum, Piecewise, Sort, rule_of, target_name

__all__ = [
    "argument_names",
    "arguments_of",
    "defaults",
    "export_graph",
    "first_line",
    "location_of",
    "name_of",
    "needed_by",
]

_MAX_BATCH = 2**31
_CUDA_BATCH = 2**16 - 1  # normalisation takes another way beyond it, with the same result
_BLOCKS = ("wrap_with_set_grad_enabled", "wrap_with_autocast")
_CREATED = ("zeros", "ones", "full", "empty")
_FRESH = frozenset(
    {"aten.clone", "aten.lift_fresh_copy", "aten.cat", "aten.stack"}
    | {f"aten.{name}" for name in _CREATED}
    | {f"aten.{name}_like" for name in _CREATED}
    | {f"aten.new_{name}" for name in _CREATED}
)
# What errors say when a model turns a tensor into Python numbers.
_READS_VALUES = re.compile("data.dependent|unbacked|numpy|data pointer|is_nonzero|item", re.I)
_MAY_BE_VIEWS = frozenset({"aten.einsum", "aten.sum", "aten.nansum", "aten.mean"})


def _example(model: nn.Module, input_shape: tuple[int, ...]) -> Tensor:
    """Two points in the model's own type and on its own device."""
    tensors = [*model.parameters(), *model.buffers()]
    own = next((t for t in tensors if t.is_floating_point()), None)
    dtype = torch.get_default_dtype() if own is None else own.dtype
    device = torch.device("cpu") if own is None else own.device
    values = torch.linspace(-1, 1, 2 * prod(input_shape), dtype=torch.float64)
    return values.view(2, *input_shape).to(device=device, dtype=dtype)


def export_graph(model: nn.Module, input_shape: tuple[int, ...]) -> tuple[Any, bool]:
    """The model's exported program without in-place operations; the model stays as it was.

    The second result says whether the program is the same for any values of the weights, with which
    it may be used again.
    """
    with warnings.catch_warnings(), _quiet(), torch.no_grad(), untouched(model):
        warnings.simplefilter("ignore")
        x = _example(model, input_shape)
        try:
            exported, known = _export_known(model, x)
        except CaptureError:
            raise
        except Exception as error:
            exported = None
            if fixes_batch(error):
                exported = export_any_batch(model, x, _export, _functional)
            if fixes_batch(error) and exported is None:
                with known_values(model):
                    exported = export_any_batch(model, x, _export, _functional)
            if exported is not None:
                return exported, False
            if cause := known_cause(error, model, input_shape):
                raise CaptureError(cause) from None
            raise CaptureError(unknown_cause(error, input_shape)) from error
        exported = _functional(exported)
        return exported, not known and _depends_on_weights_alone(exported)


def _depends_on_weights_alone(exported: Any) -> bool:
    """Whether a program has no constants but weights, and changes none of them."""
    signature = exported.graph_signature
    inputs = {spec.kind.name for spec in signature.input_specs}
    outputs = {spec.kind.name for spec in signature.output_specs}
    weights = {"USER_INPUT", "PARAMETER", "BUFFER"}
    return inputs <= weights and outputs == {"USER_OUTPUT"}


def _functional(exported: Any) -> Any:
    """An exported program without blocks, in-place operations and ``vmap``."""
    _inline(exported.graph_module)
    if _make_functional(exported.graph) and not _maps_over_dimensions(exported.graph):
        return exported
    _drop_dropout(exported.graph)
    _rename_outputs(exported)
    exported.graph_module.recompile()
    try:
        return exported.run_decompositions({})
    except Exception as error:
        message = (
            f"the model's in-place operations cannot be undone: {first_line(error)}. Write "
            "them out of place: x = x + y for x += y"
        )
        raise CaptureError(message) from error


def _maps_over_dimensions(graph: fx.Graph) -> bool:
    """Whether a graph holds calls of ``torch.vmap``, which have to be written out."""
    return any(getattr(node.target, "__name__", "") == "_add_batch_dim" for node in graph.nodes)


def _export_known(model: nn.Module, x: Tensor) -> tuple[Any, bool]:
    """Export a model; one that reads values is given those of its parameters and buffers.

    The second result says whether it may have read any.
    """
    try:
        exported = _export(model, x)
        if not any(str(symbol).startswith("u") for symbol in exported.range_constraints):
            return exported, False
    except CaptureError:
        raise
    except Exception as first:
        try:
            with known_values(model):
                return _export(model, x), True
        except Exception as second:
            raise second if _READS_VALUES.search(str(first)) else first from None
    try:  # sizes or numbers that were not known
        with known_values(model):
            return _export(model, x), True
    except Exception:
        return exported, True


def _export(model: nn.Module, x: Tensor) -> Any:
    """Export for a batch of any size, or for the sizes for which CUDA has one kernel."""
    # Before anything is tried: looked up in an except clause, it would first have to be imported.
    from torch._dynamo.exc import UserError

    def export(most: int) -> Any:
        shapes = dynamic_shapes(model, most)
        return torch.export.export(model, (x,), dynamic_shapes=shapes, strict=False)

    try:
        return export(_MAX_BATCH)
    except UserError:
        if not is_cuda(x.device):
            raise
        return export(_CUDA_BATCH)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch from telling of an error, in its logs or on stderr, that we report ourselves."""
    known = logging.root.manager.loggerDict
    loggers = [known[name] for name in list(known) if name.partition(".")[0] == "torch"]
    handlers = {handler for logger in loggers for handler in getattr(logger, "handlers", ())}

    def silent(record: logging.LogRecord) -> bool:
        return record.levelno < logging.WARNING  # what is below was asked for, with TORCH_LOGS

    for handler in handlers:
        handler.addFilter(silent)
    try:
        with contextlib.redirect_stderr(StringIO()):
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(silent)


def _is_fresh(node: Any) -> bool:
    """Whether a node's result shares no memory with anything else."""
    if not isinstance(node, fx.Node) or node.op != "call_function":
        return False
    name, rule = target_name(node.target), rule_of(node.target)
    if name in _MAY_BE_VIEWS:
        return False
    if isinstance(rule, Affine):
        return name in _FRESH or not (rule.exact or rule.reshapes or rule.identity)
    return name in _FRESH or isinstance(rule, (Piecewise, Maximum, Sort))


def _inline(module: fx.GraphModule) -> None:
    """Put the graphs of ``enable_grad`` and ``autocast`` blocks in place of the calls to them."""
    graph = module.graph
    for node in list(graph.nodes):
        if getattr(node.target, "__name__", "") not in _BLOCKS:
            continue
        at = next(i for i, item in enumerate(node.args) if _is_graph(module, item))
        inner: fx.GraphModule = getattr(module, node.args[at].target)
        _inline(inner)
        inputs, copies = iter(node.args[at + 1 :]), {}
        with graph.inserting_before(node):
            for part in inner.graph.nodes:
                if part.op == "placeholder":
                    copies[part] = next(inputs)
                elif part.op != "output":
                    copies[part] = graph.node_copy(part, copies.__getitem__)
                else:
                    results = [copies[result] for result in part.args[0]]
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
        graph.erase_node(node)


def _is_graph(module: fx.GraphModule, item: Any) -> bool:
    found = isinstance(item, fx.Node) and item.op == "get_attr"
    return found and isinstance(getattr(module, str(item.target), None), fx.GraphModule)


def _drop_dropout(graph: fx.Graph) -> None:
    """Replace dropout in eval mode by its input: eager mode returns that very tensor."""
    for node in list(graph.nodes):
        dropout = node.op == "call_function" and "dropout" in target_name(node.target)
        if dropout and arguments_of(node).get("train") is False:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _rename_outputs(exported: Any) -> None:
    """Make the signature name the nodes that are the outputs now."""
    outputs = next(node for node in exported.graph.nodes if node.op == "output").args[0]
    for spec, node in zip(exported.graph_signature.output_specs, outputs, strict=True):
        if isinstance(node, fx.Node):
            spec.arg = type(spec.arg)(name=node.name)


def _make_functional(graph: fx.Graph) -> bool:
    """Replace in-place calls on values that nothing else sees; False if others remain."""
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.is_mutable:
            continue
        base: Any = node.args[0] if node.args else None
        packet = getattr(torch.ops.aten, str(schema.name).removeprefix("aten::")[:-1], None)
        overload = getattr(packet, schema.overload_name or "default", None)
        if not _is_fresh(base) or len(base.users) != 1 or overload is None:
            return False
        node.target = overload
    return True


def name_of(node: fx.Node) -> tuple[str, bool]:
    """A node's readable name, and whether it is the name of one of torch's own modules."""
    node = node.meta.get("written_for", node)
    path, kind = "", ""
    for key, entry in (node.meta.get("nn_module_stack") or {}).items():
        if not str(key).startswith("_empty"):
            path, kind = entry[0], entry[1] if isinstance(entry[1], str) else _qualified(entry[1])
    path = re.sub(r"@\d+", "", path) if "@" in path else path
    leaf = leaf_of(node)
    if leaf is not None:
        return path or leaf.kind, True
    op = target_name(node.target).rpartition(".")[2].strip("_")
    op = op.removesuffix("_with_indices")  # functionalisation calls every pool so
    own = path != "" and kind.startswith("torch.nn.modules.") and ".container." not in kind
    return (path, True) if own else (f"{path}.{op}" if path else op, False)


def _qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def location_of(node: fx.Node) -> str:
    """Where the call stands in the user's code: ``net.py:31``, or nothing."""
    stack = node.meta.get("stack_trace") or ""
    return last_of_the_user(re.findall(r'File "([^"]+)", line (\d+)', stack))


def argument_names(node: fx.Node) -> tuple[str, ...]:
    """The names of a call's arguments in its schema, in order."""
    return _arguments(node.target)[0]


def defaults(node: fx.Node) -> dict[str, Any]:
    """The default values of a call's arguments."""
    return _arguments(node.target)[1]


@cache
def _arguments(target: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of the arguments of an operation, and their default values."""
    schema = getattr(target, "_schema", None)
    arguments = schema.arguments if schema else ()
    default = {a.name: a.default_value for a in arguments if a.has_default_value()}
    return tuple(argument.name for argument in arguments), default


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """A call's arguments by name, with the defaults filled in."""
    return (
        defaults(node)
        | dict(zip(argument_names(node), node.args, strict=False))
        | dict(node.kwargs)
    )


def needed_by(output: fx.Node) -> set[fx.Node]:
    """The nodes that the output depends on."""
    seen, waiting = {output}, [output]
    while waiting:
        for node in waiting.pop().all_input_nodes:
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return seen
