"""Docstrings and signatures as the reader of the site needs them."""

from __future__ import annotations

import inspect
import re
from typing import Any

from sphinx.application import Sphinx

# Classes that only the library makes have no signature; these are made by the user.
MADE_BY_HAND = {"Domain", "Max", "Min", "Residual"}
MADE_BY_HAND |= {"PiecewiseLinear", "PeriodicEncoding", "Maxout", "GroupSort"}

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
    known = set(inspect.signature(obj).parameters) if inspect.isfunction(obj) else None

    def bold(match: re.Match[str]) -> str:
        names = match[1].split(", ")
        if known is not None and not known.issuperset(names):
            return match[0]
        return ", ".join(f"**{name}**" for name in names) + ":"

    lines[:] = [
        line if line.startswith((" ", ">>>", "...", "-")) else NAMES.sub(bold, line)
        for line in lines
    ]


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
