"""Small tables as aligned text, HTML, LaTeX or Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["TextTable", "harmless", "latex_text", "number_text"]

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
