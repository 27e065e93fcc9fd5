"""Models as their users know them: without wrappers, left as they were, used by one at a time."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import is_dataclass
from functools import partial
from itertools import chain
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._device import DeviceContext

__all__ = [
    "EXCLUSIVE",
    "Wrapper",
    "any_mode",
    "dtype_of",
    "preserved",
    "private_copy",
    "unwrap",
    "widened",
]

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


def unwrap(model: nn.Module) -> nn.Module:
    """The module itself, without what ``torch.compile``, data parallelism or we put around it."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = model.module
        if isinstance(model, Wrapper):
            inner = model.inner
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def dtype_of(model: nn.Module) -> torch.dtype:
    """The floating-point type of a model's first parameter or buffer that has one."""
    with EXCLUSIVE:
        tensors = chain(model.parameters(), model.buffers())
        types = (tensor.dtype for tensor in tensors if tensor.is_floating_point())
        return next(types, torch.get_default_dtype())


# -- attributes ------------------------------------------------------------------------------------


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


# -- copies ----------------------------------------------------------------------------------------


def private_copy(model: nn.Module, tensor: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of a module with all submodules, whose tensors are made by the given function.

    It can be run while other threads use the model itself. Submodules, tensors, and the containers
    and bound methods among the attributes are copied. Other objects, which may be large (a dataset,
    a trainer), are shared with the model.
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
    """Copies nested attributes; what was copied before is found again by its id.

    copies: id -> the original, which must stay alive, and its copy.
    """

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
