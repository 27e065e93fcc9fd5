"""Why a model cannot be exported, and a way for models that read the size of their batch.

Python's ``len`` and ``int`` give plain numbers, and ``torch.export`` cannot see that they depend on
the batch. A model with ``view(len(x), -1)`` is exported for two sizes of the batch.
The two graphs must be the same call by call, except for whole numbers that are in proportion to the
size of the batch. These numbers, and the shapes of all values, are then written with the symbol of
a batch of any size. What the numbers are used for is checked later, as for any other graph.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
import sysconfig
import traceback
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from splinecam.errors import CaptureError, option
from splinecam.network.capture.tracing.flat_graph import FlatGraph
from splinecam.network.layer_graph import ENTRYWISE_LAYERS

SIZES = (3, 5)


def fixes_batch(error: Exception) -> bool:
    """Whether a model could not be exported because it takes the batch for a plain number."""
    text = str(error)
    return "batch" in text and ("specialize" in text or "Constraints violated" in text)


def generalise(first: Any, second: Any, example: Tensor) -> None:
    """Rewrite the first of two programs, for ``SIZES``, for a batch of the example's symbol."""
    _require_alike(first.constants.keys() == second.constants.keys())
    for key, value in first.constants.items():  # forward may make constants for the batch
        _require_alike(not isinstance(value, Tensor) or torch.equal(value, second.constants[key]))
    nodes = list(first.graph.nodes), list(second.graph.nodes)
    _require_alike(len(nodes[0]) == len(nodes[1]))
    twins: dict[fx.Node, fx.Node] = {}
    for node, twin in zip(*nodes, strict=True):
        _require_alike(node.op == twin.op != "get_attr")
        _require_alike(node.op != "call_function" or node.target is twin.target)
        twins[node] = twin
        args, kwargs = (
            _merged(item, other, example, twins)
            for item, other in ((node.args, twin.args), (node.kwargs, twin.kwargs))
        )
        if node.op != "output":  # its results are nodes
            node.args, node.kwargs = args, kwargs
            value, other = node.meta.get("val"), twin.meta.get("val")
            node.meta["val"] = _merged(value, other, example, twins)


def _require_alike(alike: bool) -> None:
    if not alike:
        raise ValueError("the graphs for two sizes of the batch differ in more than these sizes")


def _merged(item: Any, other: Any, example: Tensor, twins: dict[fx.Node, fx.Node]) -> Any:
    """An argument, or a value without data, for a batch of any size, from those for two sizes."""
    if isinstance(item, (list, tuple)):
        _require_alike(isinstance(other, (list, tuple)) and len(item) == len(other))
        parts = [_merged(*pair, example, twins) for pair in zip(item, other, strict=True)]
        return parts if isinstance(item, list) else tuple(parts)
    if isinstance(item, dict):
        _require_alike(item.keys() == other.keys())
        return {key: _merged(part, other[key], example, twins) for key, part in item.items()}
    if isinstance(item, fx.Node):
        _require_alike(twins.get(item) is other)
        return item
    if isinstance(item, Tensor):
        shape = _merged(list(item.shape), list(other.shape), example, twins)
        return example.new_empty(shape, dtype=item.dtype, device=item.device)
    if type(item) is int and type(other) is int and item != other:
        each, rest = divmod(item, SIZES[0])
        _require_alike(rest == 0 and each * SIZES[1] == other)
        return each * example.shape[0]
    _require_alike(type(item) is type(other) and (item == other or item is other))
    return item


_REGISTER = "If the part that does so is piecewise linear, splinecam.register_op can describe it"
_FIT = "Give a domain whose points have the shape that the model was made for"
_FLOAT = "Rounding is discontinuous: partition the float model, before it is quantised"
_SPACE = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
_WIDTHS = ("in_features", "in_channels", "num_features")  # what layers call their number of inputs
_OWN_FILES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[3]), "<")


def refuse(model: nn.Module) -> None:
    """Raise a ``CaptureError`` for a model that cannot be exported, whatever its input."""
    if isinstance(model, torch.jit.ScriptModule):
        raise CaptureError("the model is a ScriptModule: pass the nn.Module it was made from")
    if type(model).forward is nn.Module.forward and "forward" not in vars(model):
        raise CaptureError(f"{type(model).__name__} has no forward method: it cannot be called")
    lazy = {
        f"{name!r} ({type(module).__name__})" if name else type(module).__name__: None
        for name, module in model.named_modules()
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False))
        if torch.nn.parameter.is_lazy(tensor)
    }
    if lazy:
        raise CaptureError(
            f"the model has lazy layers whose weights have no shape yet: {_some(list(lazy))}. "
            "Run it on one batch first: model(x)"
        )
    empty = [n for n, t in (*model.named_parameters(), *model.named_buffers()) if t.is_meta]
    if empty:
        raise CaptureError(
            f"the model's weights have no values, as they are on the meta device: {_some(empty)}. "
            "Make it on another device, and load its weights"
        )


def refuse_batch(graph: FlatGraph, input_shape: tuple[int, ...]) -> None:
    """Raise a ``CaptureError`` for several inputs that linear layers would take for a batch."""
    calls = {node.target for node in graph.nodes if node.op == "call_function"}
    linear = torch.ops.aten.linear.default
    if math.prod(input_shape[:-1]) > 1 and {linear} < calls <= {linear, *ENTRYWISE_LAYERS.values()}:
        raise CaptureError(
            f"the model treats each row of an input of shape {input_shape} on its own. "
            f"{_batch_hint(input_shape)}. If it is one input, end the model with nn.Flatten()"
        )


def known_cause(error: Exception, model: nn.Module, input_shape: tuple[int, ...]) -> str | None:
    """Why a model cannot be exported for inputs of that shape, if that is understood."""
    return (
        _arguments(error, model)
        or _layer(error, model, input_shape)
        or quantised(model)
        or _scripted(model)
        or _known(error)
    )


def unknown_cause(error: Exception, input_shape: tuple[int, ...]) -> str:
    """What went wrong when a model was run, and for which shape."""
    line = re.sub(r"\bs\d+\b", "batch", first_line(error).removesuffix("."))  # as torch calls it
    hint = ""
    if not isinstance(error, RuntimeError):  # which is what torch raises for a wrong shape
        line = f"{type(error).__name__}: {line}"
        hint = ". Its forward is given one tensor; wrap a model that takes something else"
    elif input_shape == (2,):
        hint = f". {_plane()}"
    elif input_shape[:1] == (1,):
        hint = ". Samples of a domain carry no batch dimension"
    return f"{_cannot_run(input_shape)}: {line}{_place(error)}{hint}"


def first_line(error: Exception) -> str:
    """The first line of an error's message, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= 240 else text[:240] + " ..."


def _arguments(error: Exception, model: nn.Module) -> str | None:
    """The message for a model whose forward does not take one tensor."""
    if not isinstance(error, TypeError):
        return None
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return None
    with contextlib.suppress(TypeError):
        signature.bind(None)
        return None
    names = list(signature.parameters)
    code = getattr(inspect.unwrap(type(model).forward), "__code__", None)
    place = "" if code is None else user_line([(code.co_filename, code.co_firstlineno)])
    where = f" at {place}" if place else ""
    count = "no argument" if not names else f"{len(names)} arguments"
    return (
        "the model cannot be called with one input: "
        f"{type(model).__name__}.forward({', '.join(names)}){where} takes {count}. "
        f"{_wrapper(signature)}"
    )


def _wrapper(signature: inspect.Signature) -> str:
    """A module around one with several inputs, as code that can be copied."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty and parameter.kind not in kinds
    ]
    if len(needed) < 2:
        return "Wrap it in a module whose forward takes one tensor."
    first, *others = needed
    fixed = ", ".join(others)
    own = ", ".join(f"self.{name}" for name in others)
    passed = ", ".join(f"{name}=self.{name}" for name in others)
    return f"""Wrap it in a module that fixes {fixed}:

    class OneInput(nn.Module):
        def __init__(self, model, {fixed}):
            super().__init__()
            self.model, {own} = model, {fixed}

        def forward(self, {first}):
            return self.model({first}, {passed})
"""


def quantised(model: nn.Module) -> str | None:
    """The message for a model with layers that round, or that prepare for rounding, or None."""
    names = [name for name, module in model.named_modules() if _rounds(module)]
    inside = tuple(f"{name}." for name in names)
    # The weights of a layer are constants: only what is done to activations stands in the way.
    outer = [n for n in names if not n.startswith(inside) and "weight_fake_quant" not in n]
    if not outer:
        return None
    found = []
    for name in outer:
        module = model.get_submodule(name)
        shown = str(module).partition("(")[0]  # quantised layers print names of their own
        found.append(f"{name!r} ({shown if shown.isidentifier() else type(module).__name__})")
    return f"the model is quantised, or prepared for it: {_some(found)}. {_FLOAT}"


def _rounds(module: nn.Module) -> bool:
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(module).__mro__}
    return any(
        re.match(r"torch(\.ao)?\.nn\.(\w+\.)?quantized\.|torchao\.", kind)
        or kind.endswith((".FakeQuantizeBase", ".ObserverBase"))
        for kind in kinds
    )


def _scripted(model: nn.Module) -> str | None:
    names = [n for n, m in model.named_modules() if isinstance(m, torch.jit.ScriptModule)]
    found = [f"{name!r}" for name in names if name.rpartition(".")[0] not in names]
    if not found:
        return None
    return (
        f"parts of the model are ScriptModules, which torch.export cannot follow: {_some(found)}. "
        "Put the nn.Module that each was made from in its place"
    )


def _layer(error: Exception, model: nn.Module, input_shape: tuple[int, ...]) -> str | None:
    """Which layer raised an error because its input is not what it takes, with both numbers."""
    names = {id(module): name for name, module in model.named_modules()}
    calls = [call for call in _calls(error) if id(call[0]) in names]
    if not calls:
        return None
    layer, given = calls[-1]
    name = names[id(layer)]
    what = f"{f'layer {name!r}' if name else 'the model'} ({type(layer).__name__})"
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        return (
            f"{what} takes whole numbers, which have no linear regions. Partition the part of the "
            f"model that comes after it{_place(error)}"
        )
    sizes: tuple[Any, ...] = tuple(given.shape) if isinstance(given, Tensor) else ()
    sizes = ("batch", *input_shape) if sizes[1:] == input_shape else sizes
    shape = tuple(re.sub(r"\bs\d+\b", "batch", str(size)) for size in sizes)
    mismatch = _mismatch(layer, shape)
    if mismatch is None:
        return None
    remedy = _remedy(layer, shape[1:], input_shape)
    return f"{_cannot_run(input_shape)}: {what} {mismatch}{_place(error)}. {remedy}"


def _cannot_run(input_shape: tuple[int, ...]) -> str:
    shape = ", ".join(map(str, ("batch", *input_shape)))
    where = f"where {input_shape} is the domain's input shape"
    return f"the model cannot be run on an input of shape ({shape}), {where}"


def _calls(error: Exception) -> list[tuple[nn.Module, Any]]:
    """The modules that were being called when an error was raised, each with its input."""
    calls = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        names = (*code.co_varnames[: code.co_argcount], "", "")
        module, given = (frame.f_locals.get(name) for name in names[:2])
        if code.co_name in ("forward", "_conv_forward") and isinstance(module, nn.Module):
            calls.append((module, given))
    return calls


def _mismatch(layer: nn.Module, shape: tuple[str, ...]) -> str | None:
    """What a layer takes and what it is given, if these differ."""
    width = next((getattr(layer, name) for name in _WIDTHS if hasattr(layer, name)), None)
    if not shape or not isinstance(width, int):
        return None
    if isinstance(layer, nn.Linear):
        takes, given = f"takes {width} numbers in the last dimension", shape[-1]
    else:
        spatial = _spatial(layer)
        if spatial is not None and len(shape) != 2 + spatial:
            form = ", ".join(("batch", str(width), *_SPACE[spatial]))
            return f"takes inputs of shape ({form}), but gets ({', '.join(shape)})"
        takes, given = f"takes {width} channels", shape[1] if len(shape) > 1 else ""
    if given == str(width):
        return None
    return f"{takes}, but gets {given}, in an input of shape ({', '.join(shape)})"


def _spatial(layer: nn.Module) -> int | None:
    """How many dimensions a layer takes beside the batch and the channels, if that is fixed."""
    found = re.search(r"(Conv|ConvTranspose|BatchNorm|InstanceNorm)([123])d", type(layer).__name__)
    return None if found is None or found[0] == "BatchNorm1d" else int(found[2])


def _remedy(layer: nn.Module, given: tuple[str, ...], input_shape: tuple[int, ...]) -> str:
    """What to do about an input of that shape, which a layer does not take."""
    direct = given == tuple(map(str, input_shape))
    several, width = len(input_shape) > 1, getattr(layer, "in_features", None)
    if direct and several and width == math.prod(input_shape):
        return (
            f"Put nn.Flatten() before it, or give the domain points of shape ({width},): "
            "x.flatten()"
        )
    spatial = _spatial(layer)
    images = direct and spatial is not None and len(input_shape) == 2 + spatial
    if images or (several and width == math.prod(input_shape[1:])):
        return _batch_hint(input_shape)
    if not direct:
        return f"{_FIT}; if they have, its layers do not fit together"
    return _plane() if input_shape == (2,) else _FIT


def _plane() -> str:
    """What to do about a model that takes more than two numbers."""
    return (
        f"For more inputs than two use {option('Domain.slice')}, which shows two of them, or "
        f"{option('Domain.through')} or {option('around')}"
    )


def _batch_hint(input_shape: tuple[int, ...]) -> str:
    """What to do about a batch of inputs that a domain takes for one input."""
    count, *shape = input_shape
    return (
        f"The domain was given what looks like a batch: {count} input{'s' * (count != 1)} of shape "
        f"{tuple(shape)}. Samples of a domain carry no batch dimension: give one of them, x[0]"
    )


def _known(error: Exception) -> str | None:
    """Why a model cannot be exported, as far as torch's message tells."""
    text, line, at = str(error), first_line(error).removesuffix("."), _place(error)
    if "fake_quantize" in text or "quantized::" in text:
        return f"the model quantises its activations{at}. {_FLOAT}"
    if "does not require grad" in text:
        return (
            f"the model computes a derivative by autograd{at}: that of a piecewise-linear function "
            "is discontinuous, and torch.export does not follow it"
        )
    if "data-dependent" in text or "data dependent" in text:
        return (
            f"the model's control flow depends on the values of its input{at}, "
            f"so it has no fixed graph: {line}. {_REGISTER}"
        )
    if fixes_batch(error):
        return (
            "the model fixes the size of its batch or mixes the points of the batch: it must "
            "accept any number of points in dimension 0 and treat each on its own. A loop over "
            "the points, such as [f(row) for row in x], can be written as torch.vmap(f)(x)"
        )
    if "numpy" in line or "tensor subclasses" in line:
        return f"the model leaves torch on the way{at}: {line}. {_REGISTER}"
    return None


def _place(error: Exception) -> str:
    """Where in the user's code an error was raised, in brackets."""
    frames = traceback.extract_tb(error.__traceback__)
    place = user_line([(frame.filename, frame.lineno) for frame in frames])
    return f" (at {place})" if place else ""


def user_line(frames: list[tuple[str, Any]]) -> str:
    """The last line that is neither torch's nor Python's nor ours: ``net.py:31``, or nothing."""
    library = sysconfig.get_path("stdlib")
    for path, line in reversed(frames):
        installed = "site-packages" in path or "dist-packages" in path
        if not path.startswith(_OWN_FILES) and (installed or not path.startswith(library)):
            return f"{Path(path).name}:{line}"
    return ""


def _some(names: list[str], most: int = 4) -> str:
    """The first few of some names, and how many there are beyond them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
