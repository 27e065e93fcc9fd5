"""The types of options: functions from a word of the command line to its value."""

from __future__ import annotations

import ast
import math
import re
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from splinecam._util.amounts import amount_of, bytes_of

__all__ = [
    "amount",
    "argument",
    "axis",
    "bytes_of_memory",
    "count",
    "device",
    "error_bound",
    "inches",
    "index_or_name",
    "not_negative",
    "number",
    "numbers",
    "numbers_or_file",
    "port",
    "positive",
    "resolution",
    "shape",
    "share",
    "without_exponents",
]

_LEAST_MEMORY = 10**6
_SMALLEST, _LARGEST = 0.5, 100.0  # inches
_FINEST = 2400  # dots per inch
_NEGATIVE = re.compile(r"-(\d+\.?\d*|\.\d+)(e[-+]?\d{1,3})?(,.*)?", re.IGNORECASE)


def without_exponents(words: Iterable[str]) -> Iterator[str]:
    """Yield the words with negative numbers as argparse knows them: -1e3 and -1,1 are no options.

    >>> list(without_exponents(["--box", "-1e3", "-2.5,1", "--level", "-1E-2"]))
    ['--box', '-1000', '-2.5', '1', '--level', '-0.01']
    """
    for word in words:
        if not _NEGATIVE.fullmatch(word):
            yield word
            continue
        for part in word.split(","):
            yield format(Decimal(part), "f") if _NEGATIVE.fullmatch(part) else part


def _require(valid: bool, message: str) -> None:
    if not valid:
        raise ArgumentTypeError(message)


def number(word: str) -> float:
    """A finite number."""
    try:
        found = float(word)
    except ValueError:
        found = math.nan
    _require(math.isfinite(found), f"{word!r} is not a finite number")
    return found


def numbers(word: str) -> list[float]:
    """One number, or several with commas between them."""
    try:
        return [number(part) for part in word.split(",")]
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{error}; MODEL goes before --box") from None


def numbers_or_file(word: str) -> list[float] | Path:
    """One number or several with commas between them, or else the name of a file."""
    try:
        return [number(part) for part in word.split(",")]
    except ArgumentTypeError:
        return Path(word)


def axis(word: str) -> int | tuple[int, ...]:
    """The index of a feature: a number, or numbers with commas, one for each dimension."""
    whole = re.fullmatch(r"-?\d+(,-?\d+)*", word) is not None
    _require(whole, f"{word!r} is not the index of a feature, such as 0 or 0,3,5")
    index = tuple(map(int, word.split(",")))
    return index if len(index) > 1 else index[0]


def positive(word: str) -> float:
    """A number above 0."""
    _require(number(word) > 0, f"{word!r} is not a number above 0")
    return number(word)


def not_negative(word: str) -> float:
    """A number that is at least 0."""
    _require(number(word) >= 0, f"{word!r} is below 0")
    return number(word)


def share(word: str) -> float:
    """A number between 0 and 1."""
    _require(0 < number(word) < 1, f"{word!r} is not a number between 0 and 1, such as 1e-3")
    return number(word)


def error_bound(word: str) -> float | str:
    """An error that outputs may have: a number above 0, or text such as ``1%``.

    >>> error_bound("1e-3"), error_bound("0.5%")
    (0.001, '0.5%')
    """
    relative = word.endswith("%")
    found = positive(word.removesuffix("%"))
    return f"{found:g}%" if relative else found


def inches(word: str) -> float:
    """The width of a picture."""
    fits = _SMALLEST <= number(word) <= _LARGEST
    _require(fits, f"{word!r} is not a width of {_SMALLEST} to {_LARGEST:g} inches")
    return number(word)


def count(word: str) -> int:
    """A whole number above 0."""
    _require(word.isdecimal() and int(word) > 0, f"{word!r} is not a whole number above 0")
    return int(word)


def port(word: str) -> int:
    """A port of this machine, 0 for one that is free."""
    _require(word.isdecimal() and int(word) < 1 << 16, f"{word!r} is not a port, 0 to 65535")
    return int(word)


def resolution(word: str) -> int:
    """Dots per inch."""
    _require(count(word) <= _FINEST, f"{word!r} is too fine: at most {_FINEST} dots per inch")
    return int(word)


def amount(word: str) -> int:
    """A whole number, which may be written 1e6, 2k or 2M."""
    found = amount_of(word) or 0
    _require(found > 0, f"{word!r} is not a whole number above 0, such as 500000 or 1e6")
    return found


def bytes_of_memory(word: str) -> int:
    """A number of bytes, which may be written 2e9, 2G, 2GB or 2GiB."""
    found = bytes_of(word) or 0
    _require(found >= _LEAST_MEMORY, f"{word!r} is not an amount of memory, such as 500MB or 2GB")
    return found


def shape(word: str) -> tuple[int, ...]:
    """Numbers with commas, or with ``x`` between them."""
    sizes = word.strip("()").replace("x", ",").replace(" ", "").rstrip(",").split(",")
    whole = all(size.isdecimal() and int(size) for size in sizes)
    _require(whole, f"{word!r} is not a shape such as 2 or 1,28,28")
    return tuple(map(int, sizes))


def argument(word: str) -> tuple[str, Any]:
    """``width=64``: a name, and a Python literal or else a plain word."""
    name, equals, value = word.partition("=")
    _require(bool(equals) and name.isidentifier(), f"{word!r} is not NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def device(word: str) -> str:
    """The name of a device, whether it is there or not."""
    known = re.fullmatch(r"auto|cpu|cuda(:\d+)?", word)
    _require(known is not None, f"{word!r} is not auto, cpu or cuda")
    return word


def index_or_name(word: str) -> int | str:
    """The index of an output, or its name."""
    return int(word) if re.fullmatch(r"-?\d+", word) else word
