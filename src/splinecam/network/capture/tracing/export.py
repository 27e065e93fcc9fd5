"""The graph of a model by ``torch.export``, even if the model reads the values of its weights."""

from __future__ import annotations

import contextlib
import inspect
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten

from splinecam._util.backend import is_cuda
from splinecam.errors import CaptureError
from splinecam.network.capture.models import preserved
from splinecam.network.capture.tracing import diagnosis
from splinecam.network.capture.tracing.flat_graph import SYMBOLIC, Batch, FlatGraph, arguments_of
from splinecam.network.ops import registry as ops
from splinecam.network.ops.registry import rule_of, target_name

# Functions whose results leave torch: Python numbers, lists and arrays.
_READS = frozenset(
    {"__array__", "__bool__", "__complex__", "__contains__", "__float__", "__index__", "__int__"}
    | {"__format__", "allclose", "equal", "is_nonzero", "item", "numpy", "tolist"}
)
# Functions that make tensors of Python numbers.
_MAKES = frozenset(
    {"arange", "as_tensor", "eye", "full", "linspace", "ones", "scalar_tensor", "tensor", "zeros"}
)
# Functions that take sizes and dimensions as separate arguments, or as tuples of them.
_SIZED = frozenset({"expand", "permute", "repeat", "reshape", "tile", "unflatten", "view"})
_FAILED = object()


@contextmanager
def known_values(model: nn.Module) -> Iterator[None]:
    """Let a model read the values of its own tensors while it is exported.

    ``torch.export`` runs a model on tensors without data, so that ``if self.flag:`` fails even
    where the flag is a buffer. In this context it has its value; what depends on the input
    stays unknown.
    """
    values = {name: tensor.detach().clone() for name, tensor in named_tensors(model).items()}
    mode = _KnownValues()

    def begin(module: nn.Module, *_: Any) -> None:
        mode.start([(tensor, values[name]) for name, tensor in named_tensors(module).items()])

    handle = model.register_forward_pre_hook(begin, prepend=True)
    try:
        with mode:
            yield
    finally:
        handle.remove()


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; a shared tensor has several names."""
    parameters = model.named_parameters(remove_duplicate=False)
    return dict((*parameters, *model.named_buffers(remove_duplicate=False)))


class _KnownValues(TorchFunctionMode):
    """Computes functions of known tensors again with their values; pairs: id -> (tensor, value)."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: dict[int, tuple[Tensor, Tensor]] = {}

    def start(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        """Begin a run of the model, in which these tensors have these values."""
        self.pairs = {}
        for tensor, value in pairs:
            self.pairs.setdefault(id(tensor), (tensor, _evaluate(torch.clone, (value,), {})))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        flat, spec = tree_flatten((args, kwargs))
        tensors = [item for item in flat if isinstance(item, Tensor)]
        known = [tensor for tensor in tensors if id(tensor) in self.pairs]
        name = getattr(func, "__name__", "")
        if not known and name not in _MAKES:
            return func(*args, **kwargs)
        if len(known) < len(tensors) or any(map(_symbolic, flat)):
            if known and _writes(name, kwargs):
                self._forget(known)
            if name in _SIZED:
                args, kwargs = tree_unflatten([self._size(item) for item in flat], spec)
            return func(*args, **kwargs)
        values = [self.pairs[id(i)][1] if isinstance(i, Tensor) else i for i in flat]
        found = _evaluate(func, *tree_unflatten(values, spec))
        if found is _FAILED:
            self._forget(known)
            return func(*args, **kwargs)
        if name in _READS:
            return found
        result = func(*args, **kwargs)
        if any(_symbolic(size) for t in _tensors_in(result) for size in t.shape):
            result = found  # how many entries there are depends on the values, which are known
        tensors, values = _tensors_in(result), _tensors_in(found)
        if len(tensors) == len(values):
            self.pairs |= {id(t): (t, value) for t, value in zip(tensors, values, strict=True)}
        return result

    def _size(self, item: Any) -> Any:
        """A known tensor of one whole number as this number; everything else as it is."""
        value = self.pairs[id(item)][1] if id(item) in self.pairs else None
        whole = value is not None and value.dim() == 0 and not value.is_floating_point()
        return _evaluate(Tensor.item, (value,), {}) if whole else item

    def _forget(self, known: list[Tensor]) -> None:
        """Drop all tensors that share memory with tensors to which unknown values are written."""
        places = {_address(self.pairs[id(tensor)][1]) for tensor in known}
        self.pairs = {k: pair for k, pair in self.pairs.items() if _address(pair[1]) not in places}


def _evaluate(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of a function for real tensors; none if it fails or draws random numbers."""
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        state = torch.get_rng_state()
        try:
            found = func(*args, **kwargs)
        except Exception:
            return _FAILED
        if torch.equal(torch.get_rng_state(), state):
            return found
        torch.set_rng_state(state)
        return _FAILED


def _tensors_in(value: Any) -> list[Any]:
    return [item for item in tree_flatten(value)[0] if isinstance(item, Tensor)]


def _symbolic(item: Any) -> bool:
    """Whether a number, or one of a slice, is not known while the model is followed."""
    if isinstance(item, slice):
        return any(map(_symbolic, (item.start, item.stop, item.step)))
    return type(item) in SYMBOLIC


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _writes(name: str, kwargs: dict[str, Any]) -> bool:
    """Whether a function may write to its arguments: ``add_``, ``x[i] = y``, ``x += y``."""
    in_place = name.endswith("_") and not name.endswith("__")
    augmented = name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")
    return in_place or augmented or name == "__setitem__" or kwargs.get("out") is not None


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
_MAY_BE_VIEWS = frozenset({"aten.einsum", "aten.sum", "aten.nansum", "aten.mean"})
# What errors say when a model turns a tensor into Python numbers.
_READS_VALUES = re.compile("data.dependent|unbacked|numpy|data pointer|is_nonzero|item", re.I)


def export_graph(model: nn.Module, input_shape: tuple[int, ...]) -> tuple[FlatGraph, bool]:
    """The graph without in-place operations, and whether it is the same for any weights."""
    with warnings.catch_warnings(), _quiet(), torch.no_grad(), preserved(model):
        warnings.simplefilter("ignore")
        exported, reusable = _exported(model, _example(model, input_shape))
        return _flattened(exported), reusable


def _exported(model: nn.Module, x: Tensor) -> tuple[Any, bool]:
    input_shape = tuple(x.shape[1:])
    try:
        exported, read_values = _export_known(model, x)
    except CaptureError:
        raise
    except Exception as error:
        if diagnosis.fixes_batch(error):
            exported = _export_any_batch(model, x)
            if exported is None:
                with known_values(model):
                    exported = _export_any_batch(model, x)
            if exported is not None:
                return exported, False
        if cause := diagnosis.known_cause(error, model, input_shape):
            raise CaptureError(cause) from None
        raise CaptureError(diagnosis.unknown_cause(error, input_shape)) from error
    exported = _functional(exported)
    # The graph may be used again if it has no constants but weights, and changes none of them.
    signature = exported.graph_signature
    inputs = {spec.kind.name for spec in signature.input_specs}
    outputs = {spec.kind.name for spec in signature.output_specs}
    plain = inputs <= {"USER_INPUT", "PARAMETER", "BUFFER"} and outputs == {"USER_OUTPUT"}
    return exported, not read_values and plain


def _example(model: nn.Module, input_shape: tuple[int, ...]) -> Tensor:
    """Two points in the model's own type and on its own device."""
    tensors = [*model.parameters(), *model.buffers()]
    own = next((t for t in tensors if t.is_floating_point()), None)
    dtype = torch.get_default_dtype() if own is None else own.dtype
    device = torch.device("cpu") if own is None else own.device
    values = torch.linspace(-1, 1, 2 * prod(input_shape), dtype=torch.float64)
    return values.view(2, *input_shape).to(device=device, dtype=dtype)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch from logging an error, or writing it to stderr, that SplineCam reports itself."""
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


def _export_known(model: nn.Module, x: Tensor) -> tuple[Any, bool]:
    """Export a model, and say whether it may have read values of its parameters and buffers."""
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
    """Export for a batch of any size, or of any size for which CUDA has one kernel."""
    # Before anything is tried: looked up in an except clause, it would first have to be imported.
    from torch._dynamo.exc import UserError

    # A forward that begins with *args, like that of AveragedModel, has its input in a tuple.
    first = next(iter(inspect.signature(model.forward).parameters.values()), None)
    nested = first is not None and first.kind is first.VAR_POSITIONAL

    def export(most: int) -> Any:
        shapes: Any = ({0: torch.export.Dim("batch", max=most)},)
        shapes = (shapes,) if nested else shapes
        return torch.export.export(model, (x,), dynamic_shapes=shapes, strict=False)

    try:
        return export(_MAX_BATCH)
    except UserError:
        if not is_cuda(x.device):
            raise
        return export(_CUDA_BATCH)


def _export_any_batch(model: nn.Module, x: Tensor) -> Any:
    """The program for a batch of any size, made from those for two sizes; None if they differ."""
    try:
        symbolic = _export(nn.Identity(), x).graph.nodes
        (example,) = (node.meta["val"] for node in symbolic if node.op == "placeholder")
        batches = [(x[torch.arange(size) % 2],) for size in diagnosis.SIZES]
        exported = [torch.export.export(model, batch, strict=False) for batch in batches]
        first, second = map(_functional, exported)
        diagnosis.generalise(first, second, example)
    except CaptureError:
        raise
    except Exception:  # the first attempt to export the model has the better reason
        return None
    return first


def _functional(exported: Any) -> Any:
    """An exported program without blocks, in-place operations and ``vmap``."""
    graph = exported.graph
    _inline(exported.graph_module)
    maps = any(getattr(node.target, "__name__", "") == "_add_batch_dim" for node in graph.nodes)
    if _make_functional(graph) and not maps:
        return exported
    for node in list(graph.nodes):  # dropout in eval mode is its input, as eager mode returns it
        dropout = node.op == "call_function" and "dropout" in target_name(node.target)
        if dropout and arguments_of(node).get("train") is False:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    outputs = next(node for node in graph.nodes if node.op == "output").args[0]
    for spec, node in zip(exported.graph_signature.output_specs, outputs, strict=True):
        if isinstance(node, fx.Node):  # the signature names the nodes that are the outputs now
            spec.arg = type(spec.arg)(name=node.name)
    exported.graph_module.recompile()
    try:
        return exported.run_decompositions({})
    except Exception as error:
        raise CaptureError(
            f"the model's in-place operations cannot be undone: {diagnosis.first_line(error)}. "
            "Write them out of place: x = x + y for x += y"
        ) from error


def _inline(module: fx.GraphModule) -> None:
    """Put the graphs of ``enable_grad`` and ``autocast`` blocks in place of the calls to them."""
    graph = module.graph
    for node in list(graph.nodes):
        if getattr(node.target, "__name__", "") not in _BLOCKS:
            continue
        graphs = [(i, x) for i, x in enumerate(node.args) if getattr(x, "op", "") == "get_attr"]
        at, inner = next((i, getattr(module, x.target)) for i, x in graphs)
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


def _make_functional(graph: fx.Graph) -> bool:
    """Replace in-place calls on values that nothing else reads; False if others remain."""
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


def _is_fresh(node: Any) -> bool:
    """Whether a node's result shares no memory with anything else."""
    if not isinstance(node, fx.Node) or node.op != "call_function":
        return False
    name, rule = target_name(node.target), rule_of(node.target)
    if name in _MAY_BE_VIEWS:
        return False
    if isinstance(rule, ops.AffineRule):
        return name in _FRESH or not (rule.exact or rule.reshapes or rule.identity)
    return name in _FRESH or isinstance(rule, (ops.PiecewiseRule, ops.MaximumRule, ops.SortRule))


def _flattened(exported: Any) -> FlatGraph:
    nodes = {node.name: node for node in exported.graph.nodes}
    signature = exported.graph_signature
    inputs, constants = [], {}
    for spec in signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            inputs.append(nodes[spec.arg.name])
        else:
            found = exported.state_dict.get(spec.target)
            found = exported.constants.get(spec.target) if found is None else found
            constants[nodes[spec.arg.name]] = (str(spec.target), found)
    results: Any = list(nodes.values())[-1].args[0]
    specs = zip(signature.output_specs, results, strict=True)
    outputs = [node for spec, node in specs if spec.kind.name == "USER_OUTPUT"]
    if len(inputs) != 1:
        raise CaptureError(f"the model has {len(inputs)} inputs: it must have one tensor")
    if len(outputs) != 1:
        raise CaptureError(
            f"the model returns {len(outputs)} values: it must return one tensor. "
            "Wrap it in a module that returns the one to be explained."
        )
    if not isinstance(outputs[0], fx.Node) or not isinstance(outputs[0].meta.get("val"), Tensor):
        raise CaptureError("the model must return a tensor")
    return FlatGraph(list(nodes.values()), inputs[0], outputs[0], constants, Batch(inputs[0]))
