"""Read the text of a VNN-LIB file, of version 1 or 2, into declared variables and formulas.

Version 1 is the subset of SMT-LIB that VNN-COMP has used since 2020, with a constant ``X_i`` for
each input and ``Y_i`` for each output. Version 2 declares networks with tensors; its grammar is in
the VNN-LIB standard (https://www.vnnlib.org, https://github.com/VNNLIB/VNNLIB-Standard).

Files hold millions of comparisons of two words, such as ``(<= X_12 0.5)``. Each of them is one
token here, which takes a fraction of the time: "bounded" if the second word is a number, else
"compared". The group "asserted" is there if nothing else is asserted with it.

Expressions are evaluated when their parentheses close: no tree is built, and deep nesting costs no
recursion.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from math import isfinite, prod
from typing import Any, NamedTuple, NoReturn

from splinecam.errors import FileError
from splinecam.files.formulas import (
    Bound,
    Formula,
    Term,
    add,
    compare,
    conjunction,
    disjunction,
    multiply,
)

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


_DEEPEST = 10_000  # parentheses within each other
_LARGEST = 1 << 24  # numbers of an input or output
_NUMBER = re.compile(NUMBER)
_CONSTANT = re.compile(r"([XY])_(\d{1,9})")
_SIZES = r"((?:\d{1,9}(?:,\d{1,9})*)?)"
_INDEXED = re.compile(rf"([A-Za-z]\w*)(?:\[{_SIZES}\])?")
_TENSOR = re.compile(rf"([A-Za-z]\w*) [A-Za-z]\w* \[{_SIZES}\]")
_EQUATION = re.compile(r"\(\s*assert\s*\(\s*==?\s+([^\s()]+)\s+([^\s()]+)\s*\)\s*\)")
_IGNORED = ("set-logic", "set-info", "set-option", "check-sat", "get-model", "exit")
_COMPARISONS = ("<=", ">=", "<", ">", "=", "==", "!=")
_TOP = ("assert", "declare-const", "declare-fun", "vnnlib-version", "declare-network", *_IGNORED)


@dataclass
class Query:
    """What a file declares and asserts."""

    version: str = "1.0"
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    networks: tuple[str, ...] = ()
    asserted: list[Formula | Bound] = field(default_factory=list)


class _Tensor(NamedTuple):
    """The input or output of a network; start: its place among the outputs of all networks."""

    is_input: bool
    shape: tuple[int, ...]
    start: int


@dataclass(slots=True)
class _Frame:
    """An expression whose parentheses are open: its place, its first word, and what follows."""

    place: int
    head: str | None = None
    parts: list[Any] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


class PropertyReader:
    """Reads the declarations and assertions of a text; source: the name of its file, for errors."""

    def __init__(self, text: str, source: str) -> None:
        self._text, self._source = text, source
        self._query = Query()
        self._open: list[_Frame] = []
        self._variables: dict[str, int] = {}
        self._tensors: dict[str, _Tensor] = {}
        self._equal: set[tuple[str, int]] = set()  # inputs that are equal to those of the first
        self._counts = {"X": 0, "Y": 0}
        self._declared: dict[str, int] = {}  # the place of each declaration
        self._commands: dict[str, Callable[[_Frame], None]] = {
            "assert": self._assert,
            "declare-const": self._declare_constant,
            "declare-fun": self._declare_constant,
            "vnnlib-version": self._version,
            "declare-network": self._network,
            "declare-input": self._tensor,
            "declare-output": self._tensor,
        }

    def read(self) -> Query:
        """What the text declares and asserts."""
        for token in _TOKEN.finditer(self._text):
            kind = token.lastgroup or ""
            place = token.start(kind)
            if kind in ("bounded", "compared"):
                self._compared(token, kind)
            elif kind in ("word", "string", "index"):
                self._word(token[kind], place)
            elif kind == "open":
                if len(self._open) >= _DEEPEST:
                    self._fail(place, f"parentheses are nested more than {_DEEPEST:,} deep")
                self._open.append(_Frame(place))
            elif kind == "close":
                self._close(place)
            elif kind == "end":
                break
            else:
                self._fail(place, f"{token[0].strip()[:20]!r} is not expected here")
        if self._open:
            self._fail(self._open[-1].place, "this parenthesis is never closed")
        return self._finish()

    # -- the structure -----------------------------------------------------------------------------

    def _fail(self, place: int, problem: str) -> NoReturn:
        line = self._text.count("\n", 0, place) + 1
        column = place - self._text.rfind("\n", 0, place)
        raise FileError(f"{self._source}, line {line}, column {column}: {problem}.")

    def _word(self, word: str, place: int) -> None:
        if not self._open:
            self._fail(place, f"{word[:40]!r} is outside of all parentheses, expected '('")
        frame = self._open[-1]
        if frame.head is None:
            if frame.parts:
                self._fail(place, "expected an operator after '('")
            frame.head = word
            if len(self._open) == 1 and word not in _TOP:
                self._fail(place, f"{word[:40]!r} is no command: expected {', '.join(_TOP[:5])}")
        elif word[0] == "[" and frame.parts and not frame.head.startswith("declare"):
            if not isinstance(frame.parts[-1], str):
                self._fail(place, "expected the name of a variable before the index")
            frame.parts[-1] += word
        else:
            self._push(word, place)

    def _push(self, value: Any, place: int) -> None:
        frame = self._open[-1]
        frame.parts.append(value)
        frame.places.append(place)

    def _close(self, place: int) -> None:
        if not self._open:
            self._fail(place, "')' closes nothing")
        frame = self._open.pop()
        if frame.head is None:
            if frame.parts:
                self._fail(frame.place, "expected an operator after '('")
            if not self._open or self._open[-1].head != "declare-fun":
                self._fail(frame.place, "the parentheses are empty")
            return
        try:
            value = self._value(frame)
        except OverflowError:
            self._fail(frame.place, "a number is beyond the range of float64")
        except ValueError as error:
            self._fail(frame.place, str(error))
        if value is not None:
            self._push(value, frame.place)

    def _value(self, frame: _Frame) -> Any:
        """The term or formula of an expression; None for a command, which is carried out."""
        head = frame.head or ""
        if head in ("+", "-", "*", "/"):
            return self._arithmetic(head, frame)
        if head in _COMPARISONS:
            if len(frame.parts) != 2:
                raise ValueError(f"{head!r} compares two terms, and here are {len(frame.parts)}")
            left, right = (self._term(frame, k) for k in range(2))
            return compare(head, left, right)
        if head in ("and", "or"):
            formulas = self._formulas(frame)
            if not formulas:
                raise ValueError(f"{head!r} joins nothing")
            return conjunction(formulas) if head == "and" else disjunction(formulas)
        self._command(head, frame)
        return None

    # -- terms and formulas ------------------------------------------------------------------------

    def _compared(self, token: re.Match[str], kind: str) -> None:
        """Take over a comparison of two words, with the ``assert`` around it if there is one."""
        formula = self._short(token, kind)
        if token["asserted"]:
            if self._open:
                self._fail(token.start("asserted"), "'assert' belongs to the top level of a file")
            self._query.asserted.append(formula)
        else:
            if not self._open:
                self._fail(token.start("start"), f"expected (assert {token[0].strip()[:40]})")
            self._push(formula, token.start("start"))

    def _short(self, token: re.Match[str], kind: str) -> Formula | Bound:
        """The formula of a comparison of two words."""
        sign, left, right = token["sign"], token["left"], token[kind]
        variable = self._variables.get(left)
        if kind == "bounded" and variable is not None:
            return variable, sign, self._float(right, token.start(kind))
        places = [token.start("left"), token.start(kind)]
        if kind == "bounded" and not _NUMBER.fullmatch(left):
            return self._variable(left, places[0]), sign, self._float(right, places[1])
        frame = _Frame(token.start("start"), sign, [left, right], places)
        return compare(sign, self._term(frame, 0), self._term(frame, 1))

    def _arithmetic(self, head: str, frame: _Frame) -> Term:
        terms = [self._term(frame, k) for k in range(len(frame.parts))]
        if not terms or (head == "/" and len(terms) != 2):
            raise ValueError(f"{head!r} has {len(terms)} operands")
        if head == "-" and len(terms) == 1:
            return add(terms, [-1])
        if head in ("+", "-"):
            return add(terms, [1, *[1 if head == "+" else -1] * (len(terms) - 1)])
        if head == "/":
            divisor = terms[1].pop(None, Fraction(0))
            if any(terms[1].values()) or not divisor:
                raise ValueError("terms can be divided by numbers other than 0 only")
            terms[1] = {None: 1 / divisor}
        return multiply(terms)

    def _term(self, frame: _Frame, k: int) -> Term:
        part, place = frame.parts[k], frame.places[k]
        if isinstance(part, dict):
            return part
        if not isinstance(part, str):
            self._fail(place, f"{frame.head!r} takes numbers and variables, and this is a formula")
        if not _NUMBER.fullmatch(part):
            return {self._variable(part, place): Fraction(1)}
        value, exponent = self._float(part, place), re.search(r"[eE]([-+]?\d+)", part)
        # Beyond these sizes an exact number takes more memory than it is worth.
        if len(part) > 1000 or (exponent and (len(exponent[1]) > 4 or abs(int(exponent[1])) > 400)):
            return {None: Fraction(value)}
        return {None: Fraction(Decimal(part))}

    def _formulas(self, frame: _Frame) -> list[Formula | Bound]:
        for part, place in zip(frame.parts, frame.places, strict=True):
            if not isinstance(part, (tuple, Formula)):
                self._fail(place, f"{frame.head!r} joins comparisons, and this is none")
        return frame.parts

    def _float(self, word: str, place: int) -> float:
        value = float(word)
        if not isfinite(value):
            self._fail(place, f"the number {word[:40]} is beyond the range of float64")
        return value

    def _variable(self, word: str, place: int) -> int:
        """A variable; in version 2 it is an element of a declared tensor."""
        if word in self._variables:
            return self._variables[word]
        try:
            name, flat = self._element(word)
        except ValueError as error:
            self._fail(place, str(error))
        tensor, first = self._tensors[name], next(iter(self._tensors))
        if tensor.is_input and name != first and (name, flat) not in self._equal:
            same = f"(assert (== {first}{word.removeprefix(name)} {word}))"
            self._fail(
                place, f"networks with different inputs cannot be read: expected {same[:80]}"
            )
        self._variables[word] = flat if tensor.is_input else ~(tensor.start + flat)
        return self._variables[word]

    def _element(self, word: str) -> tuple[str, int]:
        """The tensor of an element such as ``X[0,1]``, and its place there."""
        match = _INDEXED.fullmatch(re.sub(r"\s", "", word))
        if match is None or match[1] not in self._tensors:
            known = ", ".join(sorted([*self._tensors, *self._variables])[:6]) or "none"
            raise ValueError(f"{word[:40]!r} is not declared here; declared are {known}")
        shape = self._tensors[match[1]].shape
        index = [int(each) for each in match[2].split(",")] if match[2] else []
        if len(index) != len(shape) or any(i >= n for i, n in zip(index, shape, strict=True)):
            raise ValueError(f"{word[:40]!r} is no element of {match[1]}, of shape {shape}")
        flat = 0
        for i, n in zip(index, shape, strict=True):
            flat = flat * n + i
        return match[1], flat

    # -- commands ----------------------------------------------------------------------------------

    def _command(self, head: str, frame: _Frame) -> None:
        if head in _TOP and self._open:
            raise ValueError(f"{head!r} belongs to the top level of a file")
        if head in self._commands:
            self._commands[head](frame)
        elif head in ("isomorphic-to", "equal-to") and self._inside_network():
            return  # it says which file a network comes from
        elif head == "declare-hidden":
            raise ValueError(f"{head!r} is about more than the inputs and outputs of networks")
        elif head not in _IGNORED:
            raise ValueError(f"{head[:40]!r} is no operator: expected <=, >=, and, or, +, -, *")

    def _assert(self, frame: _Frame) -> None:
        if len(frame.parts) != 1:
            raise ValueError(f"'assert' has one formula, and here are {len(frame.parts)}")
        self._query.asserted += self._formulas(frame)

    def _declare_constant(self, frame: _Frame) -> None:
        name = frame.parts[0] if frame.parts and isinstance(frame.parts[0], str) else ""
        found = _CONSTANT.fullmatch(name)
        if found is None or frame.parts[1:] != ["Real"]:
            raise ValueError("expected the declaration of X_0, X_1, ... or Y_0, Y_1, ... as Real")
        if name in self._variables:
            raise ValueError(f"{name} is declared twice")
        index = int(found[2])
        self._variables[name] = index if found[1] == "X" else ~index
        self._counts[found[1]] += 1
        self._declared[name] = frame.place

    def _version(self, frame: _Frame) -> None:
        word = frame.parts[0] if len(frame.parts) == 1 else None
        found = re.fullmatch(r"<?(\d+\.\d+)>?", word) if isinstance(word, str) else None
        if found is None or found[1].split(".")[0] not in ("1", "2"):
            raise ValueError("expected a version such as <2.0>; versions 1 and 2 are known")
        self._query.version = found[1]

    def _tensor(self, frame: _Frame) -> None:
        if not self._inside_network():
            raise ValueError(f"{frame.head!r} belongs into 'declare-network'")
        words = [re.sub(r"\s", "", part) for part in frame.parts if isinstance(part, str)]
        found = _TENSOR.fullmatch(" ".join(words))
        if found is None:
            raise ValueError(f"expected a tensor such as ({frame.head} X float32 [1,5])")
        shape = tuple(int(size) for size in found[2].split(",")) if found[2] else ()
        if not all(0 < size <= _LARGEST for size in shape) or prod(shape) > _LARGEST:
            raise ValueError(f"tensors of shape {found[2]} are too large, or empty")
        is_input, query = frame.head == "declare-input", self._query
        own = [*self._tensors.values()][2 * len(query.networks) :]
        if found[1] in self._tensors or any(each.is_input == is_input for each in own):
            raise ValueError("only networks with one input and one output can be read")
        start = 0 if is_input else prod(query.outputs) if query.networks else 0
        self._tensors[found[1]] = _Tensor(is_input, shape, start)
        if is_input and query.networks and (shape or (1,)) != query.inputs:
            raise ValueError("only networks with inputs of the same shape can be read")
        if is_input:
            query.inputs = shape or (1,)
        else:
            query.outputs = (start + prod(shape),) if query.networks else shape or (1,)

    def _inside_network(self) -> bool:
        return bool(self._open) and self._open[-1].head == "declare-network"

    def _network(self, frame: _Frame) -> None:
        count = len(self._query.networks)
        if len(self._tensors) != 2 * count + 2 or not isinstance(frame.parts[0], str):
            raise ValueError("expected a network with one 'declare-input' and 'declare-output'")
        self._query.networks += (frame.parts[0],)
        if not count:
            return
        first = next(iter(self._tensors))
        for match in _EQUATION.finditer(self._text, frame.place):
            with suppress(ValueError):
                (a, i), (b, j) = (self._element(match[k]) for k in (1, 2))
                if i == j and first in (a, b):
                    self._equal |= {(a, i), (b, j)}

    def _finish(self) -> Query:
        """Check that the declarations are complete."""
        query = self._query
        if self._tensors:
            return query
        for letter, count in self._counts.items():
            missing = [i for i in range(count) if f"{letter}_{i}" not in self._declared]
            if missing:
                last = next(name for name in reversed(self._declared) if name[0] == letter)
                known = f"{count} variables {letter}_i are declared"
                self._fail(self._declared[last], f"{known}, but {letter}_{missing[0]} is not")
        if not self._counts["X"]:
            self._fail(0, "no inputs are declared")
        query.inputs, query.outputs = (self._counts["X"],), (self._counts["Y"],)
        return query
