"""Read the text of a VNN-LIB file, of version 1 or 2, into declared variables and formulas.

Version 1 is the subset of SMT-LIB that VNN-COMP has used since 2020, with a constant ``X_i`` for
each input and ``Y_i`` for each output. Version 2 declares networks with tensors; its grammar is in
the VNN-LIB standard (https://www.vnnlib.org, https://github.com/VNNLIB/VNNLIB-Standard).

Files hold millions of declarations and comparisons, such as ``(<= X_12 0.5)``. Many of them in a
row are one token here, which takes a fraction of the time: "declared"; "limits" if the second word
of each is a number, and "asserted" if nothing else is asserted with it; "inside" and "boxed" for
many of these that may be about inputs. A comparison of two words is "compared".

Expressions are evaluated when their parentheses close: no tree is built, and deep nesting costs no
recursion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from math import isfinite, prod
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

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
_LIMIT = rf"\(\s*+(<=|>=|<|>)\s++({_WORD})\s++({NUMBER})\s*+\)"
_USUAL = r"_(?:0|[1-9][0-9]{0,8})"  # after the letter of a variable
_ELEMENT = rf"(?:X{_USUAL}|[A-Za-z]\w*+\[\d{{1,9}}+(?:,\d{{1,9}}+)*+\])"
_BOUND = rf"\(\s*+[<>]=?+\s++{_ELEMENT}\s++{NUMBER}\s*+\)\s*+"
_DECLARATION = rf"\(\s*+declare-const\s++([XY]{_USUAL})\s++Real\s*+\)"
_ROW, _MANY = "{1,4096}+", "{64,4096}+"  # so many of them are a token
_TOKEN = re.compile(
    rf"""(?:\s++|;[^\n]*+)*+(?:
    (?P<boxed>(?a:\(\s*+assert\s*+{_BOUND}\)\s*+){_MANY})
    |(?P<inside>(?a:{_BOUND}){_MANY})
    |(?P<asserted>(?:\(\s*+assert\s*+{_LIMIT}\s*+\)\s*+){_ROW})
    |(?P<limits>(?:{_LIMIT}\s*+){_ROW})
    |(?P<declared>(?:{_DECLARATION}\s*+){_ROW})
    |(?:(?P<alone>\()\s*+assert\s*+)?+
        (?P<start>\()\s*+(?P<sign><=|>=|<|>)\s++(?P<left>{_WORD})\s++
        (?P<compared>{_WORD})\s*+\)
        (?(alone)\s*+\))
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
_ALONE = ("boxed", "asserted")
_LIMITS, _DECLARATIONS = re.compile(_LIMIT), re.compile(_DECLARATION)
_SHORT = 2_000  # characters of declarations that are read one by one
_DEEPEST = 10_000  # parentheses within each other
_LARGEST = 1 << 24  # numbers of an input or output
_NUMBER = re.compile(NUMBER)
_CONSTANT, _PLAIN = re.compile(r"[XY]_\d{1,9}"), re.compile(f"[XY]{_USUAL}")
_DIGITS = bytes(k if k in b"0123456789" else 32 for k in range(256))  # others are blanks
_BLANK = bytes(32 if k in b"\t\n\v\f\r()<>=,]" else k for k in range(256))
_HEAD = re.compile(r"X_(?=\d+\s)|(\w+)\[")  # of a variable
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
    # Bounds that are asserted, too: of which inputs, whether from above, and the numbers.
    bounds: list[tuple[NDArray[Any], ...]] = field(default_factory=list)


class _Variables(dict[str, int]):
    """Numbers of variables by their names; those with usual names may be in ``declared`` only."""

    def __init__(self) -> None:
        self.declared: set[int] = set()

    def __contains__(self, name: object) -> bool:
        plain = _PLAIN.fullmatch(str(name))
        return super().__contains__(name) or (plain and _number(plain[0])) in self.declared

    def __missing__(self, name: str) -> int:
        if name not in self:
            raise KeyError(name)
        return self.setdefault(name, _number(name))

    def names(self) -> set[str]:
        return {*self, *(f"X_{k}" if k >= 0 else f"Y_{~k}" for k in self.declared)}

    def numbers(self) -> list[int]:
        """The numbers of all variables of version 1."""
        others = [number for name, number in self.items() if not _PLAIN.fullmatch(name)]
        return [*self.declared, *others]


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
        self._variables = _Variables()
        self._tensors: dict[str, _Tensor] = {}
        self._equal: set[tuple[str, int]] = set()  # inputs that are equal to those of the first
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
            if kind in ("boxed", "inside") and self._boxed(token[kind], place, kind):
                continue
            if kind in ("boxed", "inside", "asserted", "limits"):
                self._add(self._bounds(token, kind), place, alone=kind in _ALONE)
            elif kind == "declared":
                self._declarations(token)
            elif kind == "compared":
                self._compared(token)
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

    def _add(self, formulas: Sequence[Formula | Bound], place: int, *, alone: bool) -> None:
        """Take over comparisons; alone: each of them is all that is asserted."""
        if alone:
            if self._open:
                self._fail(place, "'assert' belongs to the top level of a file")
            self._query.asserted += formulas
            return
        if not self._open:
            comparison = self._text[place : self._text.index(")", place) + 1]
            self._fail(place, f"expected (assert {comparison[:40]})")
        self._open[-1].parts += formulas
        self._open[-1].places += [place] * len(formulas)

    def _boxed(self, text: str, place: int, kind: str) -> bool:
        """Take over bounds of inputs that are asserted, if nothing is unusual about them."""
        head, around = _HEAD.search(text), [frame.head for frame in self._open]
        if around != ([] if kind in _ALONE else ["assert", "and"]):
            return False
        if head is None or head[1] not in (None, *[*self._tensors][:1]):
            return False
        tensor = self._tensors[head[1]] if head[1] else _Tensor(True, (_LARGEST,), 0)
        with suppress(ValueError):
            upper, numbers = _table(text, head[0], len(tensor.shape))
            inputs = np.ravel_multi_index([*numbers[:-1].astype(np.int64)], tensor.shape)
            known = head[1] or self._variables.declared.issuperset(inputs.tolist())
            if tensor.is_input and known and np.isfinite(numbers[-1]).all():
                self._query.bounds.append((inputs, upper, numbers[-1].copy()))
                if around:
                    self._push(Formula(), place)
                return True
        return False

    def _bounds(self, token: re.Match[str], kind: str) -> Sequence[Formula | Bound]:
        """The formulas of comparisons with numbers, as one where all of them hold."""
        words, each = _words(token[kind]), 4 if kind in _ALONE else 3
        signs, names, numbers = (words[k::each] for k in range(each - 3, each))
        with suppress(KeyError, ValueError):  # a name is not known yet, or has blanks
            values = [*map(float, numbers)]
            known = [*map(self._variables.__getitem__, names)]
            if all(map(isfinite, values)):
                bounds = zip(known, signs, values, strict=True)
                joined = kind in _ALONE or (self._open and self._open[-1].head == "and")
                return [conjunction(bounds)] if joined else [*bounds]
        return [self._bounded(each) for each in _LIMITS.finditer(self._text, *token.span(kind))]

    def _bounded(self, match: re.Match[str]) -> Formula | Bound:
        """The formula of one comparison with a number, whose variable may not be known yet."""
        sign, left, right = match.groups()
        if not _NUMBER.fullmatch(left):
            return self._variable(left, match.start(2)), sign, self._float(right, match.start(3))
        return self._comparison(sign, [left, right], [match.start(2), match.start(3)])

    def _compared(self, token: re.Match[str]) -> None:
        """Take over a comparison of two words, with the ``assert`` around it if there is one."""
        alone = token["alone"] is not None
        names = "left", "compared"
        formula = self._comparison(
            token["sign"], list(token.group(*names)), [*map(token.start, names)]
        )
        self._add([formula], token.start("alone" if alone else "start"), alone=alone)

    def _comparison(self, sign: str, words: list[Any], places: list[int]) -> Formula:
        frame = _Frame(places[0], sign, words, places)
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
        if not {*map(type, frame.parts)} <= {tuple, Formula}:
            wrong = next(k for k, part in enumerate(frame.parts) if isinstance(part, (str, dict)))
            self._fail(frame.places[wrong], f"{frame.head!r} joins comparisons, and this is none")
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
            known = ", ".join(sorted([*self._tensors, *self._variables.names()])[:6]) or "none"
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
        if not _CONSTANT.fullmatch(name) or frame.parts[1:] != ["Real"]:
            raise ValueError("expected the declaration of X_0, X_1, ... or Y_0, Y_1, ... as Real")
        self._declare(name, frame.place)

    def _declarations(self, token: re.Match[str]) -> None:
        """Declare variables, one after the other."""
        text, known = token["declared"], self._variables.declared
        if len(text) > _SHORT and not self._open:
            letters = np.frombuffer(text.encode(), np.uint8)
            outputs = letters[(letters == ord("X")) | (letters == ord("Y"))] == ord("Y")
            numbers = np.fromstring(letters.tobytes().translate(_DIGITS), np.int64, sep=" ")
            more = {*np.where(outputs, ~numbers, numbers).tolist()}
            if len(more) == len(numbers) and known.isdisjoint(more):
                known |= more
                return
        for match in _DECLARATIONS.finditer(self._text, *token.span("declared")):
            if self._open:
                self._fail(match.start(), "'declare-const' belongs to the top level of a file")
            self._declare(match[1], match.start())

    def _declare(self, name: str, place: int) -> None:
        if name in self._variables:
            self._fail(place, f"{name} is declared twice")
        self._variables[name] = number = _number(name)
        if _PLAIN.fullmatch(name):
            self._variables.declared.add(number)

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
        numbers = self._variables.numbers()
        inputs, outputs = [n for n in numbers if n >= 0], [~n for n in numbers if n < 0]
        for letter, known in (("X", inputs), ("Y", outputs)):
            missing = set(range(len(known))).difference(known)
            if missing:
                what = f"{len(known)} variables {letter}_i are declared"
                declared = re.finditer(rf"\(\s*declare-\w+\s+{letter}_\d+\s", self._text)
                place = max((match.start() for match in declared), default=0)
                self._fail(place, f"{what}, but {letter}_{min(missing)} is not")
        if not inputs:
            self._fail(0, "no inputs are declared")
        query.inputs, query.outputs = (len(inputs),), (len(outputs),)
        return query


def _words(text: str) -> list[str]:
    """The words of a text outside and inside of parentheses."""
    return text.replace("(", " ").replace(")", " ").split()


def _table(text: str, head: str, width: int) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Which bounds are upper ones, and their indices and numbers ``(width + 1, N)``.

    head: what is before the indices. A ``ValueError``: it is not always that, or not so many.
    """
    code, start = np.frombuffer(text.encode(), np.uint8), f" {head}".encode()
    signs = np.flatnonzero((code == ord("<")) | (code == ord(">")))
    words, count = code.tobytes().translate(_BLANK), len(signs)
    brackets = count if head.endswith("[") else 0
    usual = (words.count(start), words.count(b"[")) == (count, brackets)
    commas = np.cumsum(code == ord(","))[signs]
    if not usual or (commas != np.arange(count) * (width - 1)).any():
        raise ValueError("the bounds are of several tensors")
    numbers = np.fromstring(words.replace(start, b" ").replace(b"assert", b""), sep=" ")
    return code[signs] == ord("<"), numbers.reshape(count, width + 1).T


def _number(name: str) -> int:
    """The variable that is called ``X_i`` or ``Y_i``."""
    return int(name[2:]) if name[0] == "X" else ~int(name[2:])
