"""What is known of a model from when it was last captured, kept as long as the model lives.

A model that is captured again has the same graph, unless its fingerprint has changed; only its
weights are other ones. Nothing that is kept holds the model, or is copied or pickled with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from splinecam.network.capture.flat import FlatGraph
from splinecam.network.capture.template import Template

__all__ = ["Kept", "forget", "keep", "kept"]

_MOST = 4  # of one model: input shapes, devices and outputs


@dataclass(frozen=True)
class Kept:
    """A capture of a model.

    fingerprint: of what the graph depends on. content: the program without its weights or, where
    more depends on them, the graph to be read again. leaves: the numbers of registered modules.
    """

    fingerprint: list[Any]
    content: Template | FlatGraph
    leaves: tuple[int, ...] = ()


_MODELS: Any = WeakIdKeyDictionary()  # model -> key -> Kept; used under the lock EXCLUSIVE


def kept(model: nn.Module, key: Any) -> Kept | None:
    """What was kept under a key, if anything."""
    found: Kept | None = _MODELS.get(model, {}).get(key)
    return found


def keep(model: nn.Module, key: Any, capture: Kept) -> None:
    """Keep a capture under a key; of several the latest ones."""
    captures = _MODELS.setdefault(model, {})
    captures.pop(key, None)
    captures[key] = capture
    while len(captures) > _MOST:
        del captures[next(iter(captures))]


def forget(model: nn.Module | None = None) -> None:
    """Forget what is kept of a model, or of all models."""
    if model is None:
        _MODELS.clear()
    else:
        _MODELS.pop(model, None)
