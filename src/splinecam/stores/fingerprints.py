"""Fingerprints of domains, weights and functions: equal for equal ones only."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from splinecam.geometry.domain import Domain

__all__ = ["DIGEST", "domain_digest", "function_name", "weights_digest"]

DIGEST = 16  # bytes of the digest of a domain

_PLAIN = (int, float, complex, str, bytes, bool, type(None))


def domain_digest(domain: Domain) -> bytes:
    """A digest of a domain, the same for equal domains only.

    >>> domain_digest(Domain.box(-1, 1)) == domain_digest(Domain.box(-1, 1))
    True
    """
    digest = hashlib.blake2b(repr(domain.input_shape).encode(), digest_size=DIGEST)
    for array in (domain.origin, domain.basis, domain.corners):
        digest.update(array.detach().cpu().numpy().tobytes())
    return digest.digest()


def weights_digest(state: Mapping[str, Any]) -> str:
    """A digest of the tensors of a state dict with their names, types and shapes.

    >>> layer = torch.nn.Linear(2, 3)
    >>> before = weights_digest(layer.state_dict())
    >>> _ = layer.bias.data.add_(1.0)
    >>> weights_digest(layer.state_dict()) == before
    False
    """
    digest = hashlib.blake2b(digest_size=DIGEST)
    for name in sorted(state):
        value = state[name]
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            flat = value.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()


def function_name(function: Callable[..., Any] | None) -> str | None:
    """The name of a function, with a digest of its code where that is known.

    The digest changes if the code does, or a number, a text or a tuple that it takes from around
    it, so that the results of two versions of a function are told apart. What a function calls, and
    lists and dicts around it, which it may change itself, are not part of it.

    >>> function_name(len)
    'builtins.len'
    >>> function_name(lambda part: 1) == function_name(lambda part: 2)
    False
    """
    if function is None:
        return None
    if isinstance(function, partial):
        given = ", ".join(map(_text, (*function.args, *sorted(function.keywords.items()))))
        return f"{function_name(function.func)}({given})"
    kind = function if hasattr(function, "__qualname__") else type(function)
    # A script has another name in the processes that it starts.
    module = "__main__" if kind.__module__ == "__mp_main__" else kind.__module__
    name = f"{module}.{kind.__qualname__}"
    code = getattr(function, "__code__", None)
    if code is None:
        return name if kind is function else f"{name}({_text(vars(function))})"
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    cells = [type(x) if isinstance(x, MutableMapping | list | set) else x for x in cells]
    around = [*cells, *(getattr(function, "__defaults__", None) or ())]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    content = repr((_code(code), [_text(value) for value in around], version))
    return f"{name} {hashlib.blake2b(content.encode(), digest_size=8).hexdigest()}"


def _code(code: CodeType) -> tuple[Any, ...]:
    """What a function does: its instructions, names and constants, without places in files."""
    constants = [_code(x) if isinstance(x, CodeType) else _text(x) for x in code.co_consts]
    return code.co_code, code.co_names, constants


def _text(value: Any) -> str:
    """A value as text without addresses in memory, which differ from run to run."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, frozenset | set):
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_text(k)}: {_text(v)}' for k, v in value.items())}}}"
    if callable(value) and not isinstance(value, torch.nn.Module):
        return str(function_name(value))
    return f"{type(value).__module__}.{type(value).__qualname__}"
