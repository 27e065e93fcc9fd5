"""The one tensor of a model's result that is partitioned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from splinecam.errors import CaptureError

__all__ = ["Lost", "Output", "check_output", "one_output", "selected"]


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
    if callable(output):
        chosen = _applied(output, result)
    elif output is None:
        chosen = result
    else:
        chosen = _entry(result, output)
    tensors = list({id(tensor): tensor for tensor in _tensors(chosen, set())}.values())
    if len(tensors) == 1:
        return tensors[0]
    subject = "the model returns" if output is None else f"output={_name(output)} gives"
    if not tensors:
        if output is None:
            raise CaptureError(f"the model must return a tensor, not {_described(result)}")
        raise CaptureError(f"{subject} no tensor, but {_described(chosen)}")
    raise CaptureError(f"{subject} {_described(chosen)}: choose one with {_advice(chosen, output)}")


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


# -- one entry ------------------------------------------------------------------------------------


def _entry(result: Any, output: int | str) -> Any:
    entries = _entries(result)
    if entries is None:
        raise CaptureError(
            f"there is no output {output!r}, as the model returns {_described(result)}: "
            "leave output= out"
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


# -- words ----------------------------------------------------------------------------------------


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
        return f"output={first!r}"
    return "output=, a function of the model's result that returns one tensor"
