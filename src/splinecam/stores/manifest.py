"""The manifest of a store: what its results have in common, and why a store is refused."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from splinecam._util.files import replaced
from splinecam.errors import FileError
from splinecam.stores.untrusted import Format, inside, open_plain, seal, unseal

__all__ = ["FORMAT", "check_manifest", "read_manifest", "same_entry", "write_manifest"]

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
