"""Results as arrays and JSON, without pickle: a store runs no code of whoever wrote it.

A list of results is JSON in which ``{"array": 3}`` stands for the array ``array_3``. Floats keep
all their bits. Dicts whose keys are not texts, tuples and tensors are marked as such.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["VALUES", "Codec", "decode", "encode"]

Arrays = Mapping[str, NDArray[Any]]

_RESULTS = "results"


def encode(results: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """The arrays of a file that holds the results.

    Numbers, texts, None, arrays, tensors, and tuples, lists and dicts of them can be encoded; a
    ``TypeError`` says which result is something else.

    >>> decode(encode([{"NR": 4, "ARV": 0.5}, (1, None)]))
    [{'NR': 4, 'ARV': 0.5}, (1, None)]
    """
    arrays: dict[str, NDArray[Any]] = {}
    lines = [_plain(result, arrays) for result in results]
    text = json.dumps(lines, separators=(",", ":"))
    return {_RESULTS: np.frombuffer(text.encode(), np.uint8), **arrays}


def decode(arrays: Arrays) -> list[Any]:
    """The results in the arrays of a file."""
    return [_restored(line, arrays) for line in json.loads(arrays[_RESULTS].tobytes())]


@dataclass(frozen=True)
class Codec:
    """How results are kept in files.

    encode: the arrays of a file from a list of results; decode: the results from the arrays; size:
    the bytes of a result, so that not too many are collected before they are written.
    """

    encode: Callable[[Sequence[Any]], dict[str, NDArray[Any]]]
    decode: Callable[[Arrays], list[Any]]
    size: Callable[[Any], int]


VALUES = Codec(encode, decode, lambda result: 0)
"""Results that are numbers, texts and arrays."""


def _plain(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """A value as JSON, whose arrays are added to the others."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return float(value) if isinstance(value, float) else int(value)
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcUS":
        return _kept(value, "array", arrays)
    if isinstance(value, Tensor):
        return _kept(value.detach().cpu().numpy(), "tensor", arrays)
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and not _marked(value):
            return {key: _plain(item, arrays) for key, item in value.items()}
        return {"dict": [[_plain(k, arrays), _plain(v, arrays)] for k, v in value.items()]}
    if isinstance(value, tuple | list):
        items = [_plain(item, arrays) for item in value]
        return {"tuple": items} if isinstance(value, tuple) else items
    raise TypeError(
        f"a store cannot keep {type(value).__qualname__}: let reduce return numbers, texts, "
        "arrays, or tuples, lists and dicts of them"
    )


_MARKS = ("array", "tensor", "tuple", "dict")


def _marked(value: Mapping[str, Any]) -> bool:
    """Whether a dict looks like a mark."""
    return len(value) == 1 and next(iter(value)) in _MARKS


def _kept(array: NDArray[Any], kind: str, arrays: dict[str, NDArray[Any]]) -> dict[str, int]:
    number = len(arrays)
    arrays[f"array_{number}"] = array
    return {kind: number}


def _restored(value: Any, arrays: Arrays) -> Any:
    """The value that JSON stands for."""
    if isinstance(value, list):
        return [_restored(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if not _marked(value):
        return {key: _restored(item, arrays) for key, item in value.items()}
    ((kind, inner),) = value.items()
    if kind == "tuple":
        return tuple(_restored(item, arrays) for item in inner)
    if kind == "dict":
        return {_restored(k, arrays): _restored(v, arrays) for k, v in inner}
    array = arrays[f"array_{inner}"]
    return torch.from_numpy(array) if kind == "tensor" else array
