"""Docstrings and signatures as the reader of the site needs them."""

from __future__ import annotations

import inspect
import re
from typing import Any

from sphinx.application import Sphinx

# Classes that are made by the user's own hand; all others come as results, without a signature.
MADE_BY_HAND = ("Domain", "PiecewiseLinear", "PeriodicEncoding", "Maxout", "GroupSort")

# "edges: (N,) ..." at the start of a line or of a sentence: a parameter or a field.
NAMES = re.compile(r"(?:^|(?<=[;.)] ))((?:[a-z]\w*)(?:, [a-z]\w*)*):(?= |$)")


def signature(
    app: Sphinx, what: str, name: str, obj: object, options: Any, given: str, returns: str
) -> tuple[str, str] | None:
    """Called by autodoc for every object."""
    if what == "class" and inspect.isclass(obj) and obj.__name__ not in MADE_BY_HAND:
        return "", returns
    return None


def docstring(
    app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]
) -> None:
    """Called by autodoc for every docstring: names of parameters and fields in bold."""
    lines[:] = [
        line if line.startswith((" ", ">>>", "...", "-")) else NAMES.sub(_bold, line)
        for line in lines
    ]


def _bold(match: re.Match[str]) -> str:
    return ", ".join(f"**{name}**" for name in match[1].split(", ")) + ":"


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
