"""Models as users know them: without wrappers, left as they were, and which output is meant."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from itertools import chain
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._device import DeviceContext

from splinecam.errors import CaptureError, option

EXCLUSIVE = threading.RLock()
"""The lock of whoever exports, copies or runs a model.

``torch.export`` changes the model, and settings of the whole process, while it runs.
"""

_LISTS = (list, set, deque)
_DICTS = (dict, OrderedDict, defaultdict)


def any_mode() -> bool:
    """Whether torch is in a mode that may change results; a default device does not count."""
    functions = range(torch._C._len_torch_function_stack())
    others = [i for i in functions if type(torch._C._get_function_stack_at(i)) is not DeviceContext]
    dispatch = torch._C._len_torch_dispatch_stack()
    return bool(others) or dispatch > 0 or torch._C._is_any_autocast_enabled()


class Wrapper(nn.Module):
    """A module of ours that computes what another one does, by which it is represented."""

    inner: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        """The outputs at inputs (B, ...)."""
        result: Tensor = self.inner(x)
        return result


class AsWritten(Wrapper):
    """A model of which every ReLU is a layer, also where ReLUs only write maxima or minima.

    Otherwise ``a + relu(b - a)`` is read as the maximum of a and b, if it is exactly that. The
    outputs are the same. Pass this module, or what ``capture`` makes of it, in place of the model.

    model: any ``nn.Module`` that ``partition`` takes.

    >>> pair = nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False)
    >>> _ = pair[0].weight.data.copy_(torch.tensor([[1.0], [-1.0]])), pair[2].weight.data.fill_(1)
    >>> model = nn.Sequential(*pair)  # the modulus, as relu(x) + relu(-x)
    >>> AsWritten(model)(torch.tensor([[-3.0]])).item()
    3.0
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.inner, self.training = model, model.training


def unwrap(model: nn.Module) -> nn.Module:
    """The module itself, without what ``torch.compile``, data parallelism or we put around it."""
    return list(unwrapped(model))[-1]


def unwrapped(model: nn.Module) -> Iterator[nn.Module]:
    """Yield a module, what it is put around, and so on."""
    while True:
        yield model
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = model.module
        if isinstance(model, Wrapper):
            inner = model.inner
        if not isinstance(inner, nn.Module):
            return
        model = inner


def dtype_of(model: nn.Module) -> torch.dtype:
    """The floating-point type of a model's first parameter or buffer that has one."""
    with EXCLUSIVE:
        tensors = chain(model.parameters(), model.buffers())
        types = (tensor.dtype for tensor in tensors if tensor.is_floating_point())
        return next(types, torch.get_default_dtype())


@contextlib.contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
    """Undo what running ``forward`` does to the attributes of the model and of its submodules."""
    containers = [
        (value, value.copy())
        for module in model.modules()
        for value in (module.__dict__, *module.__dict__.values())
        if isinstance(value, (dict, list, set))
    ]
    try:
        yield
    finally:
        for value, contents in containers:
            _restore(value, contents)


def _restore(value: Any, contents: Any) -> None:
    same = len(value) == len(contents)
    if isinstance(value, dict):
        same = same and all(k in contents and contents[k] is v for k, v in value.items())
    elif isinstance(value, list):
        same = same and all(a is b for a, b in zip(value, contents, strict=True))
    else:
        same = value == contents
    if not same:
        value.clear()
        value.extend(contents) if isinstance(value, list) else value.update(contents)


def private_copy(model: nn.Module, tensor: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of a module with all submodules, whose tensors are made by the given function.

    It can be run while other threads use the model. Objects beside submodules, tensors,
    containers and bound methods, which may be large (a dataset, a trainer), are shared with the
    model.
    """
    with EXCLUSIVE:
        copied: nn.Module = _Copier(tensor)(model)
        return copied


def widened(tensor: Tensor, device: torch.device | None = None) -> Tensor:
    """A copy of a tensor in float64, or complex128; whole numbers keep their type."""
    dtype = tensor.dtype
    if dtype.is_floating_point:
        dtype = torch.float64
    elif dtype.is_complex:
        dtype = torch.complex128
    return tensor.detach().to(device, dtype, copy=True)


class _Copier:
    """Copies nested attributes; copies: id -> the original, which must stay alive, and its copy."""

    def __init__(self, tensor: Callable[[Tensor], Tensor]) -> None:
        self.tensor = tensor
        self.copies: dict[int, tuple[Any, Any]] = {}

    def __call__(self, value: Any) -> Any:
        if id(value) in self.copies:
            return self.copies[id(value)][1]
        if isinstance(value, Tensor):
            new: Any = self.tensor(value)
            if isinstance(value, nn.Parameter):
                new = nn.Parameter(new, requires_grad=False)
            return self._add(value, new)
        if isinstance(value, nn.Module):
            return self._with_attributes(value, object.__new__(type(value)))
        if isinstance(value, SimpleNamespace) or (
            is_dataclass(value) and hasattr(value, "__dict__")
        ):
            return value if isinstance(value, type) else self._with_attributes(value, copy(value))
        if type(value) in _DICTS:
            new = self._add(value, copy(value))
            new.update({key: self(item) for key, item in list(value.items())})
            return new
        if type(value) in _LISTS:
            new = self._add(value, copy(value))
            new.clear()
            new.update(map(self, value)) if isinstance(new, set) else new.extend(map(self, value))
            return new
        if isinstance(value, tuple):
            parts = [self(item) for item in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if isinstance(value, MethodType):
            return MethodType(value.__func__, self(value.__self__))
        if type(value) is partial:
            return partial(self(value.func), *map(self, value.args), **self(value.keywords))
        return value

    def _add(self, value: Any, new: Any) -> Any:
        self.copies[id(value)] = (value, new)
        return new

    def _with_attributes(self, value: Any, new: Any) -> Any:
        self._add(value, new)
        new.__dict__.update({name: self(item) for name, item in list(vars(value).items())})
        return new


@dataclass(frozen=True)
class Lost:
    """Stands for a function that selected the output, and that a file does not hold."""

    name: str

    def __call__(self, result: Any) -> Any:
        raise CaptureError(f"the function {self.name} that selects the output is not known")


Output = int | str | Callable[[Any], Any] | None

# What a model returns that has no entries, among it the numbers of torch.export.
_SINGLE = (Tensor, str, int, float, type(None), torch.SymInt, torch.SymFloat, torch.SymBool)

_MISUSE = (KeyError, IndexError, AttributeError, TypeError)


def check_output(output: object) -> None:
    """Raise a ``TypeError`` for what cannot select one of several outputs."""
    kind = isinstance(output, (int, str)) and not isinstance(output, bool)
    if not (output is None or kind or callable(output)):
        raise TypeError(
            "output must be an index, a name, a function of the model's result, or None, "
            f"not {output!r}"
        )


def selected(result: Any, output: Output) -> Tensor:
    """The tensor that ``output`` selects from what a model returns.

    output: an index into a tuple or a list, a key of a dict, the name of a field, or a function of
    the whole result; None stands for the only tensor there is. A ``CaptureError`` says what there
    is to choose from.

    >>> selected({"logits": torch.ones(3, 2), "aux": torch.zeros(3, 5)}, "logits").shape
    torch.Size([3, 2])
    """
    chosen = result
    if output is not None:
        chosen = _applied(output, result) if callable(output) else _entry(result, output)
    tensors = list({id(tensor): tensor for tensor in _tensors(chosen, set())}.values())
    if len(tensors) == 1:
        return tensors[0]
    if not tensors and output is None:
        raise CaptureError(f"the model must return a tensor, not {_described(result)}")
    gives = "" if output is None else f"{option('output', _name(output), flag='--result')} gives"
    if not tensors:
        raise CaptureError(f"{gives} no tensor, but {_described(chosen)}")
    what = f"{gives or 'the model returns'} {_described(chosen)}"
    raise CaptureError(f"{what}: choose one with {_advice(chosen, output)}")


@contextmanager
def one_output(model: nn.Module, output: Output) -> Iterator[None]:
    """Within this context, a call of the model returns the selected tensor alone."""

    def select(module: nn.Module, args: Any, result: Any) -> Tensor:
        return selected(result, output)

    handle = model.register_forward_hook(select)
    try:
        yield
    finally:
        handle.remove()


def _entry(result: Any, output: int | str) -> Any:
    entries = _entries(result)
    if entries is None:
        raise CaptureError(
            f"there is no output {output!r}, as the model returns {_described(result)}: "
            f"leave {option('output', '', flag='--result')} out"
        )
    if isinstance(output, int) and output not in entries:
        values = list(entries.values())
        if -len(values) <= output < len(values):
            return values[output]
    if output not in entries:
        raise CaptureError(
            f"there is no output {output!r}: the model returns {_described(result)}. "
            f"Choose one with {_advice(result, None)}"
        )
    return entries[output]


def _applied(output: Callable[[Any], Any], result: Any) -> Any:
    try:
        return output(result)
    except _MISUSE as error:
        raise CaptureError(
            f"output={_name(output)} cannot be applied to what the model returns, "
            f"{_described(result)}: {type(error).__name__}: {error}"
        ) from error


def _entries(result: Any) -> dict[Any, Any] | None:
    """What a result consists of, by key, index or name; None if it is a single thing."""
    if isinstance(result, _SINGLE):
        return None
    if isinstance(result, Mapping):
        return dict(result.items())
    if isinstance(result, (tuple, list)):
        return dict(zip(getattr(result, "_fields", range(len(result))), result, strict=True))
    if is_dataclass(result):
        return {field.name: getattr(result, field.name) for field in fields(result)}
    return {name: item for name, item in getattr(result, "__dict__", {}).items() if name[0] != "_"}


def _tensors(result: Any, seen: set[int]) -> Iterator[Tensor]:
    """All tensors of a nested result."""
    if isinstance(result, Tensor):
        yield result
    elif id(result) not in seen:
        seen.add(id(result))
        for item in (_entries(result) or {}).values():
            yield from _tensors(item, seen)


def _described(result: Any) -> str:
    """A result in words, with the shapes of its tensors: ``a dict with the keys 'a' (B, 3)``."""
    entries = _entries(result)
    if entries is None:
        return f"a tensor {_shape(result)}" if isinstance(result, Tensor) else _kind(result)
    parts = [
        f"{key!r} {_shape(item) if isinstance(item, Tensor) else f'({_kind(item)})'}"
        for key, item in entries.items()
        if item is not None
    ]
    listed = " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]])) or "nothing"
    if isinstance(result, Mapping):
        return f"{_kind(result)} with the keys {listed}"
    if isinstance(result, (tuple, list)) and not hasattr(result, "_fields"):
        return f"{_kind(result)} of {len(result)} values, {listed}"
    return f"{_kind(result)} with the fields {listed}"


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def _shape(tensor: Tensor) -> str:
    sizes = ["B" if isinstance(size, torch.SymInt) else str(size) for size in tensor.shape]
    return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"


def _name(output: Output) -> str:
    return str(getattr(output, "__name__", repr(output))) if callable(output) else repr(output)


def _advice(result: Any, output: Output) -> str:
    """What to write to select the first tensor."""
    if output is not None:
        return "a function of the model's result, which returns one tensor"
    entries = _entries(result) or {}
    first = next((key for key, item in entries.items() if isinstance(item, Tensor)), None)
    if isinstance(first, (int, str)):
        return option("output", repr(first), flag="--result")
    return "output=, a function of the model's result that returns one tensor"
