"""Tokens of s-expressions: parentheses, words, indices in brackets, comments left out.

Files of properties hold millions of comparisons of two words, such as ``(<= X_12 0.5)``. Each of
them is one token here, so that they are read in a fraction of the time: "bounded" if the second
word is a number, else "compared". The group "asserted" is there if it is all that is asserted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["NUMBER", "place_of", "tokens"]

NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?\d++)?+"
_WORD = r"""[^\s()\[\]";<>=]++(?:\[[^\]()";]*+\])?+"""
_TOKEN = re.compile(
    rf"""(?:\s++|;[^\n]*+)*+(?:
    (?:(?P<asserted>\()\s*+assert\s*+)?+
    (?P<start>\()\s*+(?P<sign><=|>=|<|>)\s++(?P<left>{_WORD})\s++
        (?:(?P<bounded>{NUMBER})|(?P<compared>{_WORD}))\s*+\)
        (?(asserted)\s*+\))
    |(?P<open>\()
    |(?P<close>\))
    |(?P<string>"[^"]*+")
    |(?P<index>\[[^\]()";]*+\])
    |(?P<word>[^\s()\[\]";]++)
    |(?P<end>\Z)
    |(?P<unknown>.)
    )""",
    re.VERBOSE,
)


def tokens(text: str) -> Iterator[re.Match[str]]:
    r"""Yield the tokens of a text; ``lastgroup`` tells the kind of each.

    >>> [token.lastgroup for token in tokens("(assert ; bounds\n (and (<= X_0 1) (<= X_0 X_1)))")]
    ['open', 'word', 'open', 'word', 'bounded', 'compared', 'close', 'close', 'end']
    >>> [token["asserted"] for token in tokens("(assert (<= X_0 1))(<= X_0 1)")]
    ['(', None, None]
    """
    return _TOKEN.finditer(text)


def place_of(text: str, position: int) -> str:
    r"""A position of a text in words.

    >>> place_of("(a\n (b))", 4)
    'line 2, column 2'
    """
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - text.rfind(chr(10), 0, position)}"
