"""Docstrings and signatures as the reader of the site needs them: parameters as lists.

A docstring of this project describes parameters, or the fields of a class, in sentences that begin
with a name and a colon: ``model: any nn.Module. memory: bytes to stay within.`` Such a description
ends where the next one begins, or with its paragraph. On the site they become one list before the
examples, with the types of the signature; the signature itself is shown without types. Parameters
that have no sentence of their own are described by ``parameters.COMMON``. Docstrings with sections
as in numpydoc are read as such.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from docutils import nodes
from parameters import COMMON
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.environment import BuildEnvironment
from sphinx.ext import intersphinx
from sphinx.ext.napoleon import Config, NumpyDocstring
from sphinx.pycode import ModuleAnalyzer

# Classes that only the library makes have no signature; these are made by the user.
MADE_BY_HAND = {"Domain", "Smooth", "Max", "Min", "Residual"}
MADE_BY_HAND |= {"PiecewiseLinear", "PeriodicEncoding", "Maxout", "GroupSort"}

# Functions of which the signature is shown, and not the overloads.
ONE_SIGNATURE = (("splinecam.jobs.partitioning", "along"), ("splinecam.jobs.sweep", "sweep"))

# "edges: (N,) ..." at the start of a paragraph or of a sentence: a parameter or a field.
NAMES = re.compile(r"(?:^|(?<=[;.)] ))((?:[a-z]\w*|[A-Z])(?:, [a-z]\w*)*):(?= |$)")
ROUTINES = ("function", "method")

# Types as the code writes them, and as the inventories of other projects name them.
TYPES = {
    "Tensor": "torch.Tensor",
    "nn.Module": "torch.nn.Module",
    "torch.nn.modules.module.Module": "torch.nn.Module",
    "torch.nn.modules.container.Sequential": "torch.nn.Sequential",
    "np.ndarray": "numpy.ndarray",
    "Axes": "matplotlib.axes.Axes",
    "Axes3D": "mpl_toolkits.mplot3d.axes3d.Axes3D",
    "Figure": "matplotlib.figure.Figure",
    "SubFigure": "matplotlib.figure.SubFigure",
    "BinaryIO": "typing.BinaryIO",
    "Any": "typing.Any",
    "Self": "typing.Self",
    "Literal": "typing.Literal",
    "Fraction": "fractions.Fraction",
    "Callable": "collections.abc.Callable",
    "Iterable": "collections.abc.Iterable",
    "Iterator": "collections.abc.Iterator",
    "Mapping": "collections.abc.Mapping",
    "Sequence": "collections.abc.Sequence",
}


@dataclass(frozen=True)
class Description:
    """What a docstring says of some names, in one line of text."""

    names: tuple[str, ...]
    text: str


def signature(
    app: Sphinx, what: str, name: str, obj: object, options: Any, given: str, returns: str
) -> tuple[str, str] | None:
    """Called by autodoc for every object: no types of parameters, which the list has."""
    if what == "class" and not made_by_hand(obj):
        return "", returns
    if given:
        shown = [each.replace(annotation=each.empty) for each in parameters_of(what, name, obj)]
        # The first one of a method is gone, so that a slash after it would be left over.
        return str(inspect.Signature(_called_by_name(shown))), returns
    return None


def made_by_hand(obj: object) -> bool:
    """Whether users call a class to make an object."""
    return inspect.isclass(obj) and obj.__name__ in MADE_BY_HAND


def _called_by_name(parameters: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    positional = inspect.Parameter.POSITIONAL_ONLY
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [each.replace(kind=either) if each.kind is positional else each for each in parameters]


def parameters_of(what: str, name: str, obj: Any) -> list[inspect.Parameter]:
    """The parameters that a caller gives: not the object of a method."""
    try:
        found = list(inspect.signature(obj).parameters.values())
    except (TypeError, ValueError):
        return []
    bound = what == "method" and inspect.isfunction(obj) and not is_static(name)
    return found[1:] if bound else found


def is_static(name: str) -> bool:
    """Whether the method of a full name, such as ``splinecam.Domain.segment``, has no object."""
    module, _, rest = name.partition(".")
    home: Any = sys.modules.get(module)
    *path, last = rest.split(".")
    for part in path:
        home = getattr(home, part, None)
    return isinstance(inspect.getattr_static(home, last, None), staticmethod)


def docstring(
    app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]
) -> None:
    """Called by autodoc for every docstring: parameters and fields become lists."""
    if "Parameters" in lines and any(re.fullmatch("-{3,}", line) for line in lines):
        config = Config(napoleon_use_rtype=False)
        lines[:] = NumpyDocstring(lines, config, app, what, name, obj, options).lines()
        return
    if what in ROUTINES or what == "exception" or made_by_hand(obj):
        listed = {each.name: each for each in parameters_of(what, name, obj)}
        text, found = described(lines, set(listed))
        fields = list(parameter_fields(name, listed, found))
    elif what == "class":
        text, found = described(lines, None)
        fields = list(entries(found))
    else:
        return
    where = next((k for k, line in enumerate(text) if line.startswith(">>>")), len(text))
    lines[:] = [*text[:where], "", *fields, "", *text[where:]]


def described(lines: list[str], known: set[str] | None) -> tuple[list[str], list[Description]]:
    """The lines without descriptions of names, and these; known: the only names there are."""
    rest: list[str] = []
    found: list[Description] = []
    for block in paragraphs(lines):
        if block[0].startswith((" ", ">>>", "...", "-", "..", ":", "*", "|")):
            rest += [*block, ""]
            continue
        text = " ".join(block)
        marks = [
            mark
            for mark in NAMES.finditer(text)
            if known is None or known.issuperset(mark[1].split(", "))
        ]
        if not marks:
            rest += [*block, ""]
            continue
        if marks[0].start():
            rest += [text[: marks[0].start()].rstrip(), ""]
        ends = [mark.start() for mark in marks[1:]] + [len(text)]
        for mark, end in zip(marks, ends, strict=True):
            told = text[mark.end() : end].strip().rstrip(";.")
            found.append(Description(tuple(mark[1].split(", ")), told))
    return rest, found


def paragraphs(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lines that stand together."""
    block: list[str] = []
    for line in lines:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def entries(found: Iterable[Description]) -> Iterator[str]:
    """Fields of a class; names that share a description refer to the first of them."""
    for each in found:
        first, *others = each.names
        yield f":ivar {first}: {each.text}"
        yield from (f":ivar {name}: see ``{first}``" for name in others)


def parameter_fields(
    of: str, listed: dict[str, inspect.Parameter], found: list[Description]
) -> Iterator[str]:
    """A field for every parameter of a function, in the order of the signature, and its type."""
    stars = {inspect.Parameter.VAR_POSITIONAL: r"\*", inspect.Parameter.VAR_KEYWORD: r"\*\*"}
    told = {name: each for each in found for name in each.names}
    for name, parameter in listed.items():
        shown = stars.get(parameter.kind, "") + name
        text = common(of, name)
        if name in told:
            first = told[name].names[0]
            text = told[name].text if name == first else f"see ``{first}``"
        yield f":param {shown}: {text}".rstrip()
        kind = parameter.annotation
        if kind is not parameter.empty:
            kind = kind if isinstance(kind, str) else inspect.formatannotation(kind)
            yield f":type {shown}: {kind}"


def common(function: str, parameter: str) -> str:
    """What a parameter means that the docstring does not describe, if that is known."""
    *_, home, name = ("", *function.split("."))
    keys = (f"{home}.{name}.{parameter}", f"{name}.{parameter}", parameter)
    return next((COMMON[key] for key in keys if key in COMMON), "")


def type_of_others(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.TextElement
) -> nodes.reference | None:
    """Called by Sphinx for a name that it does not know: perhaps a type by its short name."""
    full = TYPES.get(node.get("reftarget", ""))
    if full is None:
        return None
    node["reftarget"] = full
    return intersphinx.missing_reference(app, env, node, contnode)


def hide_overloads(app: Sphinx) -> None:
    """Show the signature of a function with many overloads, which type checkers need, once.

    What it returns is said in its description.
    """
    for module, name in ONE_SIGNATURE:
        analyzer = ModuleAnalyzer.for_module(module)
        analyzer.analyze()
        analyzer.overloads.pop(name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", hide_overloads)
    for each in PyObject.doc_field_types:
        if each.name == "variable":
            each.label = "Attributes"
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", docstring)
    app.connect("missing-reference", type_of_others, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
