"""Models as their users know them: without wrappers, and left as they were."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn

__all__ = ["untouched", "unwrap"]


def unwrap(model: nn.Module) -> nn.Module:
    """The module itself, without what ``torch.compile`` or data parallelism put around it."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def _contents(value: Any) -> Any:
    if isinstance(value, (dict, list, set)):
        return value.copy()
    return None


def _put_back(value: Any, contents: Any) -> None:
    if isinstance(value, dict):
        same = len(value) == len(contents) and all(
            k in contents and contents[k] is v for k, v in value.items()
        )
    elif isinstance(value, list):
        same = len(value) == len(contents) and all(
            a is b for a, b in zip(value, contents, strict=True)
        )
    else:
        same = value == contents
    if not same:
        value.clear()
        value.extend(contents) if isinstance(value, list) else value.update(contents)


@contextlib.contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Undo what running ``forward`` did to the attributes of the model and of its submodules."""
    saved = []
    for module in model.modules():
        state = module.__dict__
        inner = [(value, _contents(value)) for value in state.values()]
        saved.append((state, dict(state), [pair for pair in inner if pair[1] is not None]))
    try:
        yield
    finally:
        for state, copy, inner in saved:
            _put_back(state, copy)
            for value, contents in inner:
                _put_back(value, contents)
