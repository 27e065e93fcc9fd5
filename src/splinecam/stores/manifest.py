"""The manifest of a store: fingerprints of what was computed, and why a store is refused."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn

from splinecam._util.files import replaced
from splinecam.errors import FileError
from splinecam.geometry.domain import Domain
from splinecam.network.capture import capture
from splinecam.network.capture.models import Output, unwrap
from splinecam.stores.untrusted import Format, inside, open_plain, seal, unseal

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


_OUTPUTS = 256  # outputs that are compared, at most


def model_facts(
    model: nn.Module, domain: Domain, output: Output, *, smooth: bool = False
) -> dict[str, Any]:
    """A digest of the weights of a model, its layers, and some of its outputs.

    The outputs, at the corners of a domain, tell what the weights do not: another activation, or
    other code of ``forward``. They are compared up to rounding, which depends on the machine.

    smooth: whether the model may have smooth functions.

    >>> facts = model_facts(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), Domain.box(-1, 1), None)
    >>> facts["layers"], len(facts["outputs"])
    (['1'], 12)
    """
    with torch.inference_mode(False), torch.no_grad():
        program = capture(model, domain.input_shape, output=output, smooth=smooth)
        found = program(domain.embed(domain.corners).cpu()).double().flatten()
    some = found[:: max(1, found.shape[0] // _OUTPUTS)]
    return {
        "weights": weights_digest(unwrap(model).state_dict()),
        "layers": [layer.name for layer in program.layers],
        "outputs": some.tolist(),
        "output": output_name(output),
    }


def output_name(output: Output) -> Any:
    """The selected output of a model as JSON, a function by its name."""
    return function_name(output) if callable(output) else output


FORMAT = Format("splinecam results", 2, "a manifest of results", "Choose another folder.")
_FILE = "manifest.json"
_CLOSE = 1e-9  # relative to the largest output: how exactly outputs of one model agree

# What differs, in words; other entries of a manifest are called by their names.
_WORDS = {
    "kind": "results of another kind",
    "weights": "results for a model with other weights",
    "layers": "results for a model with other layers",
    "outputs": "results for a model that computes something else",
    "output": "results for another output of the model (output=)",
    "reduce": "results of another function (reduce=)",
    "statistics": "other statistics (statistics=)",
    "smooth": "results of another accuracy (smooth=, refine=, undecided=)",
    "groups": "results for other groups of domains",
}


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder; None if it has none. An error if the folder is something else."""
    path = folder / _FILE
    try:
        with open_plain(path) as file:
            return unseal(file.read(), path, FORMAT)
    except FileNotFoundError:
        return None


def write_manifest(folder: Path, about: Mapping[str, Any]) -> None:
    """Write a manifest, which appears only when it is complete."""
    head = {"format": FORMAT.name, "version": FORMAT.version, "splinecam": _library_version()}
    with replaced(inside(folder, _FILE)) as file:
        file.write(seal({**head, **about}, indent=1))


def check_manifest(folder: Path, there: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Raise an error that says what differs if a folder has a manifest of other results."""
    if there.get("splinecam") != _library_version():
        raise FileError(
            f"{folder} was written by SplineCam {there.get('splinecam')}, and this is "
            f"{_library_version()}, whose results may differ. Use that version, or choose another "
            "folder."
        )
    wanted = json.loads(json.dumps(about))
    for name in (*about, *(name for name in there if name in _WORDS and name not in about)):
        if not same_entry(wanted.get(name), there.get(name)):
            what = _WORDS.get(name, f"results with another {name}")
            raise FileError(f"{folder} holds {what}. Choose another folder.")


def _library_version() -> str:
    """The version of SplineCam, from the package, whose modules this one must not import."""
    return str(sys.modules["splinecam"].__version__)


def same_entry(a: Any, b: Any) -> bool:
    """Whether two entries of manifests are equal; numbers with a fraction only up to rounding."""
    if isinstance(a, list) and isinstance(b, list) and _floats(a) and _floats(b):
        size = max(map(abs, (*a, *b)), default=0.0)
        return len(a) == len(b) and all(
            math.isclose(x, y, rel_tol=0, abs_tol=_CLOSE * size) for x, y in zip(a, b, strict=True)
        )
    return bool(a == b)


def _floats(values: Sequence[Any]) -> bool:
    return all(isinstance(value, float) for value in values)
