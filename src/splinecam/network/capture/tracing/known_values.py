"""Values of parameters and buffers for code that reads them while ``torch.export`` follows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten

from splinecam.network.capture.tracing.flat_graph import SYMBOLIC

__all__ = ["known_values", "named_tensors"]

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

    ``torch.export`` runs a model on tensors without data, so that ``if self.flag:`` and
    ``self.shape.tolist()`` fail even where the tensor is a parameter or a buffer. In this context
    they give the values that the tensor has; what depends on the input remains unknown.
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
    """Parameters and buffers by name; one that several modules share has several names."""
    parameters = model.named_parameters(remove_duplicate=False)
    return dict((*parameters, *model.named_buffers(remove_duplicate=False)))


class _KnownValues(TorchFunctionMode):
    """Computes every function of known tensors a second time, with their values.

    pairs: id -> (tensor, its value). The tensors are held, so that no id is used twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pairs: dict[int, tuple[Tensor, Tensor]] = {}

    def start(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        """Begin a run of the model, in which these tensors have these values."""
        self.pairs = {}
        for tensor, value in pairs:
            self.pairs.setdefault(id(tensor), (tensor, _evaluate(torch.clone, (value,), {})))

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
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
    """The result of a function for real tensors, outside of the modes that follow the model.

    A function that fails or draws random numbers has no value; the random state is restored.
    """
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
