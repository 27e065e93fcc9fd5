"""The structures and functions of C and CUDA sources, read from the sources themselves."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["code_of", "declare", "source_of", "structures"]

_TYPES: dict[str, Any] = {
    "double": ctypes.c_double,
    "int": ctypes.c_int,
    "int64_t": ctypes.c_int64,
    "i64": ctypes.c_int64,
    "void": None,
}


def source_of(name: str) -> Path:
    """The path of a source file of this package."""
    return Path(__file__).with_name(name)


@cache
def structures(source: str) -> dict[str, Any]:
    """The structures that a source defines, by name; ``real`` names their arrays of float64.

    >>> list(structures("kernel.h"))[0], structures("kernel.h")["sc_mesh"].width.size
    ('sc_mesh', 8)
    """
    found = re.findall(r"typedef struct \{([^}]*)\} (\w+);", code_of(source))
    return {name: _structure(name, body) for body, name in found}


def declare(library: Any, header: str) -> None:
    """Declare the types of the functions that a header exports."""
    exported = re.findall(r"SC_EXPORT ([\w ]+?[ *])(\w+)\(([^)]*)\);", code_of(header))
    for result, name, arguments in exported:
        function = getattr(library, name)
        function.restype = _type_of(result)
        function.argtypes = [_type_of(x) for x in arguments.split(",") if x != "void"]


def code_of(source: str) -> str:
    """The text of a source without comments, with the headers of this package in their places."""
    text = re.sub(r"/\*.*?\*/", "", source_of(source).read_text(), flags=re.DOTALL)
    return re.sub(r'#include "(\w+\.h)"', lambda header: code_of(header[1]), text)


def _structure(name: str, body: str) -> type[ctypes.Structure]:
    fields: dict[str, Any] = {}
    real = set()
    for line in filter(None, map(str.strip, body.split(";"))):
        first, *others = line.split(",")
        kind = first.replace("*", " ").rsplit(maxsplit=1)[0]
        for declared in (first, *(f"{kind} {other}" for other in others)):
            field = re.split(r"[\s*]+", declared)[-1]
            fields[field] = _type_of(declared)
            if kind.endswith("double") and "*" in declared:
                real.add(field)
    members = {"_fields_": list(fields.items()), "real": frozenset(real)}
    return type(name, (ctypes.Structure,), members)


def _type_of(declaration: str) -> Any:
    """The type of a declaration such as ``const double *uv``: pointers are addresses."""
    words = declaration.replace("const ", "").split()
    return ctypes.c_void_p if "*" in declaration else _TYPES[words[0]]
