"""The head of every store: its format, its identity, and why another store is refused.

Sweeps, grids, atlases and watched runs begin with the same entries: the name and the version of the
format, and the identity, which are facts about what was computed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from math import isclose
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from splinecam._util import versions
from splinecam._util.files import replaced
from splinecam.errors import FileError
from splinecam.geometry.domain import Domain
from splinecam.network.capture import capture
from splinecam.network.capture.models import Output, unwrap
from splinecam.stores.untrusted import check_entries, check_sum, inside, open_plain, parse, seal

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

    The digest tells two versions of a function apart: it changes with the code, and with numbers,
    texts and tuples from around it. It does not depend on what the function calls, nor on lists and
    dicts around it, which the function may change.

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
    """The instructions, names and constants of a function, without places in files."""
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

    The outputs at the corners of a domain tell what the weights do not, such as another activation
    or other code of ``forward``. They are compared up to rounding, which depends on the machine.

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


# -- the head of a store --------------------------------------------------------------------------


class Format(NamedTuple):
    """A kind of store: its name and version in files, what it is in words, and what to do."""

    name: str
    version: int
    noun: str
    remedy: str


RESULTS = Format("splinecam results", versions.RESULTS, "results", "Choose another folder.")
_AGAIN = "Remove the folder of the atlas, and compute it again."
ATLAS = Format("splinecam atlas", versions.ATLAS, "an atlas", _AGAIN)
RUN = Format("splinecam run", versions.RUN, "a run", "Record the run again in another folder.")
_CLOSE = 1e-9  # relative to the largest output: how exactly outputs of one model agree

# How a store may differ from the wanted one; other facts are called by their names.
_WORDS = {
    "kind": "of another kind",
    "weights": "for a model with other weights",
    "layers": "for a model with other layers",
    "outputs": "for a model that computes something else",
    "output": "for another output of the model (output=)",
    "domain": "for another domain",
    "groups": "for other groups of domains",
    "side": "with squares of another size (radius=)",
    "reduce": "of another function (reduce=)",
    "statistics": "with other statistics (statistics=)",
    "smooth": "of another accuracy (smooth=, refine=, undecided=)",
    "refine": "for another question (refine=)",
    "splinecam": "of another version of SplineCam",
}


def with_head(form: Format, entries: Mapping[str, Any]) -> dict[str, Any]:
    """The head of a store: its format, and entries with its ``identity``."""
    return {"format": form.name, "version": form.version, **entries}


def read_head(content: bytes, path: Path, form: Format) -> dict[str, Any]:
    """The entries of a sealed head beside format and version, with a dict ``identity``.

    A ``FileError`` says if it is the head of something else. path: of the file with this content.
    """
    found = parse(content, path, form.remedy)
    if (what := found.pop("format", "something else")) != form.name:
        raise FileError(
            f"{path} is not the head of {form.noun}: it holds {what}. Choose another folder."
        )
    version = found.pop("version", None)
    if version != form.version:
        newer = isinstance(version, int) and version > form.version
        remedy = "Install a newer splinecam to read it." if newer else form.remedy
        raise FileError(
            f"{path} has version {version} of the format; this SplineCam reads version "
            f"{form.version}. {remedy}"
        )
    check_sum(content, path, form.remedy)
    check_entries(found, {"identity": dict[str, Any]}, path, form.remedy, others=True)
    return found


def read_manifest(path: Path, form: Format) -> dict[str, Any] | None:
    """The entries of the head in a file, as ``read_head`` gives them; None if there is no file."""
    try:
        with open_plain(path) as file:
            return read_head(file.read(), path, form)
    except FileNotFoundError:
        return None


def write_manifest(path: Path, form: Format, entries: Mapping[str, Any]) -> None:
    """Write a head to a file, which appears only when it is complete."""
    with replaced(inside(path.parent, path.name)) as file:
        file.write(seal(with_head(form, entries)))


def check_identity(
    folder: Path, form: Format, there: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    """Raise a ``FileError`` that says what differs if a folder holds another store."""
    wanted = json.loads(json.dumps(wanted))
    for name in dict.fromkeys((*wanted, *there)):
        if not _same(wanted.get(name), there.get(name)):
            what = _WORDS.get(name, f"with another {name}")
            if name == "splinecam":
                what += f" ({there.get(name)}, and this is {wanted.get(name)})"
            raise FileError(f"{folder} holds {form.noun} {what}. Choose another folder.")


def library_version() -> str:
    """The version of SplineCam, from the package, which this module must not import."""
    return str(sys.modules["splinecam"].__version__)


def _same(a: Any, b: Any) -> bool:
    """Whether two facts are equal, lists of fractions only up to rounding."""
    lists = isinstance(a, list) and isinstance(b, list)
    if not lists or not all(isinstance(value, float) for value in (*a, *b)):
        return bool(a == b)
    near = _CLOSE * max(map(abs, (*a, *b)), default=0.0)
    pairs = zip(a, b, strict=False)
    return len(a) == len(b) and all(isclose(*pair, rel_tol=0, abs_tol=near) for pair in pairs)
