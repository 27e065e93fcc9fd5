"""Text for people: amounts, suggestions, missing packages and tables; loads nothing large."""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import Any

from splinecam.errors import SplineCamError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_AMOUNT = re.compile(r"(\d+\.?\d*|\.\d+)(e\+?\d{1,3})?\s*([kmgt]?i?)", re.IGNORECASE)


def amount_of(text: str) -> int | None:
    """The whole number above 0 that a text such as "2.5k" means, or None if it means none.

    >>> amount_of("1e6"), amount_of("2.5k"), amount_of("2M"), amount_of("0.5"), amount_of("many")
    (1000000, 2500, 2000000, None, None)
    """
    written = _AMOUNT.fullmatch(text.strip())
    unit = None if written is None else _UNITS.get(written[3].lower())
    if written is None or unit is None:
        return None
    found = Decimal(written[1] + (written[2] or "")) * unit
    whole = 1 <= found < 2**63 and found == found.to_integral_value()
    return int(found) if whole else None


def bytes_of(text: str) -> int | None:
    """The number of bytes that a text means, or None; GB is 10**9 bytes, GiB 2**30.

    >>> bytes_of("4GB"), bytes_of("4 GiB"), bytes_of("2e9"), bytes_of("large")
    (4000000000, 4294967296, 2000000000, None)
    """
    return amount_of(text.strip().lower().removesuffix("b"))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question about the nearest of the known names, with a blank before it, or nothing.

    >>> did_you_mean("--slcie", ["--slice", "--side"]), did_you_mean("x", ["--slice"])
    (' Did you mean --slice?', '')
    """
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return f" Did you mean {by_lower[near[0]]}?" if near else ""


def no_attribute(place: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error that a place has no such attribute, which asks about the nearest one.

    >>> no_attribute("stats", "nr", ["NR"])
    AttributeError("stats has no attribute 'nr'. Did you mean NR?")
    """
    message = f"{place} has no attribute {name!r}.{did_you_mean(name, known)}"
    # Without an object, Python does not ask a second time; notebooks do not ask at all.
    return AttributeError(message.rstrip("."), name=name, obj=None)


_log = logging.getLogger("splinecam")

# Packages whose modules have another name.
_PACKAGES = {"PIL": "pillow", "skimage": "scikit-image", "sklearn": "scikit-learn"}
_PACKAGES |= {"splinecam_paper": "splinecam-paper"}
# Packages that only a clone of the repository has.
_IN_A_CLONE = {"splinecam-paper": "pip install -e paper -c constraints.txt, in a clone"}


def how_to_install(extra: str) -> str:
    """Return the commands that install an extra, from the package index and from a clone.

    >>> how_to_install("plot")
    "pip install 'splinecam[plot]', or in a clone: pip install -e '.[plot]' -c constraints.txt"
    """
    return (
        f"pip install 'splinecam[{extra}]', or in a clone: "
        f"pip install -e '.[{extra}]' -c constraints.txt"
    )


def missing(library: str, purpose: str, extra: str | None = None) -> SplineCamError:
    """Return the error that a library is not installed; for the arguments see ``optional``."""
    verb = "are" if " and " in library else "is"
    command = _IN_A_CLONE.get(library, f"pip install {library}")
    command = command if extra is None else how_to_install(extra)
    return SplineCamError(f"{purpose} needs {library}, which {verb} not installed. Run: {command}")


def optional(module: str, purpose: str, extra: str | None = None) -> Any:
    """Import a module; if it is missing, an error says what to install.

    purpose: what needs the module; the message begins with it. extra: the extra that installs the
    module, if there is one.

    >>> optional("json", "Reading", "plot").dumps([1])
    '[1]'
    >>> optional("nowhere.things", "Dreaming", "dreams")
    Traceback (most recent call last):
    splinecam.errors.SplineCamError: Dreaming needs nowhere, which is not installed. Run: ...
    """
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise missing(_PACKAGES.get(name, name), purpose, extra) from error


def pandas_if_installed() -> Any:
    """Return pandas, or None with one line in the log: tables are then plain dicts of columns."""
    try:
        return import_module("pandas")
    except ImportError:
        _say_that_tables_are_dicts()
        return None


@cache
def _say_that_tables_are_dicts() -> None:
    _log.warning(
        "Tables are dicts of columns, as pandas is not installed. For a DataFrame run: %s",
        how_to_install("table"),
    )


# The characters that LaTeX interprets, and how they are written.
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
)
# The characters that begin code, links, pictures and emphasis in Markdown, or end a cell.
_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\|`*[]!"})
# Commands to terminals, letters that change the direction of others, and broken ones.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def latex_text(text: str) -> str:
    r"""Text as LaTeX source.

    >>> latex_text("width_1 (%)")
    'width\\_1 (\\%)'
    """
    return text.translate(_LATEX)


_LEFT = "text-align:left"
_LINE = 80  # characters


def number_text(value: float) -> str:
    """A number as text: integers in full, others with four digits.

    >>> number_text(12345), number_text(0.123456)
    ('12,345', '0.1235')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def harmless(text: str) -> str:
    r"""A text without commands to a terminal, which names of files and layers may hold.

    >>> print(harmless("a\x1b[2J"))
    a\x1b[2J
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


@dataclass(frozen=True)
class TextTable:
    """A table with a title, column heads, and rows of a label and cells."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, list[str]]]

    def text(self, wide: int) -> str:
        """Aligned lines of at most 80 characters, if one column fits; others follow below.

        wide: the characters of the column of labels.

        >>> print(TextTable("Size", ("mean", "max"), [("a", ["1", "2"])]).text(64))
        Size                                                                 mean
          a                                                                     1
        <BLANKLINE>
        Size                                                                  max
          a                                                                     2
        """
        lines = [(self.title, list(self.columns)), *((f"  {k}", cells) for k, cells in self.rows)]
        cell = max(8, *(len(x) for _, cells in lines for x in cells)) if self.columns else 12
        columns = max(1, len(self.columns))
        count = -(-columns // max(1, (_LINE - wide) // (cell + 1)))
        most = -(-columns // count)  # as many columns in each block
        blocks = [
            "\n".join(
                (f"{label:<{wide}}" + "".join(f"{x:>{cell + 1}}" for x in some)).rstrip()
                for label, cells in lines
                if (some := cells[first : first + most]) or not first
            )
            for first in range(0, columns, most)
        ]
        return "\n\n".join(blocks)

    def html(self) -> str:
        """A table element without colours and fonts of its own."""

        def row(tag: str, label: str, cells: Sequence[str]) -> str:
            inner = "".join(f"<{tag}>{html.escape(x)}</{tag}>" for x in cells)
            return f"<tr><th style='{_LEFT}'>{html.escape(label)}</th>{inner}</tr>"

        body = "".join(row("td", label, cells) for label, cells in self.rows)
        return f"<table>{row('th', self.title, self.columns)}{body}</table>"

    def latex(self) -> str:
        r"""A ``tabular`` environment with the rules of the package booktabs.

        >>> print(TextTable("", ("a_1",), [("NR", ["4"])]).latex())
        \begin{tabular}{lr}
        \toprule
         & a\_1 \\
        \midrule
        NR & 4 \\
        \bottomrule
        \end{tabular}
        """
        head, *rows = (
            " & ".join(latex_text(_one_line(x)) for x in (label, *cells)) + r" \\"
            for label, cells in ((self.title, self.columns), *self.rows)
        )
        begin = rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}"
        rules = [begin, r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
        return "\n".join([*rules, r"\end{tabular}"])

    def markdown(self) -> str:
        r"""A table in GitHub's Markdown, with aligned columns.

        >>> print(TextTable("", ("a|b",), [("NR", ["4"])]).markdown())
        |    | a\|b |
        |:---|-----:|
        | NR |    4 |
        """
        lines = [
            [_one_line(html.escape(x, quote=False)).translate(_MARKDOWN) for x in (label, *cells)]
            for label, cells in ((self.title, self.columns), *self.rows)
        ]
        wide = [max(2, *map(len, column)) for column in zip(*lines, strict=True)]
        rule = "|".join([f":{'-' * (wide[0] + 1)}", *(f"{'-' * (w + 1)}:" for w in wide[1:])])
        head, *rows = (
            " | ".join([f"{label:<{wide[0]}}", *map(str.rjust, cells, wide[1:])])
            for label, *cells in lines
        )
        return "\n".join([f"| {head} |", f"|{rule}|", *(f"| {row} |" for row in rows)])


def _one_line(text: str) -> str:
    return " ".join(text.split())
