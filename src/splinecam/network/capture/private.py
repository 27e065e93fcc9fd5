"""A copy of a model that can be run while other threads use the model itself."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from copy import copy
from dataclasses import is_dataclass
from functools import partial
from itertools import chain
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["EXCLUSIVE", "dtype_of", "private_copy", "widened"]

# torch.export changes the model, and settings of the whole process, while it runs. Whoever exports
# a model, copies one or runs one holds this lock, so that threads take turns.
EXCLUSIVE = threading.RLock()

_LISTS = (list, set, deque)
_DICTS = (dict, OrderedDict, defaultdict)


def private_copy(model: nn.Module, tensor: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of a module with all submodules, whose tensors are made by the given function.

    Submodules, tensors, and the containers and bound methods among the attributes are copied.
    Other objects are shared with the model: they may be large (a dataset, a trainer).
    """
    with EXCLUSIVE:
        made: nn.Module = _Copier(tensor)(model)
        return made


def dtype_of(model: nn.Module) -> torch.dtype:
    """The floating-point type of a model's first parameter or buffer that has one."""
    with EXCLUSIVE:
        tensors = chain(model.parameters(), model.buffers())
        types = (tensor.dtype for tensor in tensors if tensor.is_floating_point())
        return next(types, torch.get_default_dtype())


def widened(tensor: Tensor) -> Tensor:
    """A copy of a tensor in float64, or complex128; whole numbers keep their type."""
    dtype = tensor.dtype
    if dtype.is_complex:
        dtype = torch.complex128
    elif dtype.is_floating_point:
        dtype = torch.float64
    return tensor.detach().to(dtype, copy=True)


class _Copier:
    """Copies nested attributes; what was copied before is found again by its id."""

    def __init__(self, tensor: Callable[[Tensor], Tensor]) -> None:
        self.tensor = tensor
        self.made: dict[int, tuple[Any, Any]] = {}  # with the original, which must stay alive

    def __call__(self, value: Any) -> Any:
        if id(value) in self.made:
            return self.made[id(value)][1]
        if isinstance(value, Tensor):
            return self._note(value, self._tensor(value))
        if isinstance(value, nn.Module):
            return self._filled(value, object.__new__(type(value)))
        if isinstance(value, SimpleNamespace) or (
            is_dataclass(value) and hasattr(value, "__dict__")
        ):
            return value if isinstance(value, type) else self._filled(value, copy(value))
        if type(value) in _DICTS:
            new = self._note(value, copy(value))
            new.update({key: self(item) for key, item in list(value.items())})
            return new
        if type(value) in _LISTS:
            new = self._note(value, copy(value))
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

    def _note(self, value: Any, new: Any) -> Any:
        self.made[id(value)] = (value, new)
        return new

    def _filled(self, value: Any, new: Any) -> Any:
        """The attributes of one object copied to another, which stands for it."""
        self._note(value, new)
        new.__dict__.update({name: self(item) for name, item in list(vars(value).items())})
        return new

    def _tensor(self, value: Tensor) -> Tensor:
        new = self.tensor(value)
        return nn.Parameter(new, requires_grad=False) if isinstance(value, nn.Parameter) else new
