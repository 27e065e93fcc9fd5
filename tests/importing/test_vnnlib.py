"""VNN-LIB files of both versions, against numbers that are known and a slow evaluation."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import splinecam as sc
from splinecam.errors import DomainError, FileError
from splinecam.files.formulas import Case

F64 = torch.float64


def declared(inputs: int, outputs: int) -> str:
    names = [f"X_{i}" for i in range(inputs)] + [f"Y_{i}" for i in range(outputs)]
    return "\n".join(f"(declare-const {name} Real)" for name in names) + "\n"


def network(inputs: str = "[5]", outputs: str = "[5]") -> str:
    tensors = f"(declare-input X float32 {inputs})\n  (declare-output Y float32 {outputs})"
    return f"(vnnlib-version <2.0>)\n(declare-network f\n  {tensors}\n)\n"


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def from_text(text: str) -> sc.Property:
        path = tmp_path / "prop.vnnlib"
        path.write_text(text)
        return sc.read_vnnlib(path)

    return from_text


# The normalised inputs and the unsafe outputs of the properties 1 to 4 of ACAS Xu: G. Katz et al.,
# Reluplex, CAV 2017, in the units of the networks.
ACAS_BOXES = {
    1: ([0.6, -0.5, -0.5, 0.45, -0.5], [0.679857769, 0.5, 0.5, 0.5, -0.45]),
    2: ([0.6, -0.5, -0.5, 0.45, -0.5], [0.679857769, 0.5, 0.5, 0.5, -0.45]),
    3: (
        [-0.303531156, -0.009549297, 0.493380324, 0.3, 0.3],
        [-0.298552812, 0.009549297, 0.5, 0.5, 0.5],
    ),
    4: (
        [-0.303531156, -0.009549297, 0.0, 0.318181818, 0.083333333],
        [-0.298552812, 0.009549297, 0.0, 0.5, 0.166666667],
    ),
}
ACAS_UNSAFE = {
    1: ["(>= Y_0 3.991125645861615)"],
    2: [f"(<= Y_{k} Y_0)" for k in range(1, 5)],  # clear of conflict is maximal
    3: [f"(<= Y_0 Y_{k})" for k in range(1, 5)],  # clear of conflict is minimal
    4: [f"(<= Y_0 Y_{k})" for k in range(1, 5)],
}


def acas_text(prop: int, version: int) -> str:
    lo, hi = ACAS_BOXES[prop]
    bounds = [
        f"(>= X_{i} {low}) (<= X_{i} {high})"
        for i, (low, high) in enumerate(zip(lo, hi, strict=True))
    ]
    body = [f"(assert (and {each}))" for each in bounds]
    body += [f"(assert {each})" for each in ACAS_UNSAFE[prop]]
    text = "\n".join(body)
    if version == 1:
        return declared(5, 5) + text
    for i in range(5):
        text = text.replace(f"X_{i}", f"X[0,0,0,{i}]").replace(f"Y_{i}", f"Y[0, {i}]")
    return network("[1,1,1,5]", "[1, 5]") + text


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("prop", [1, 2, 3, 4])
def test_acas_xu(prop: int, version: int, read: Any) -> None:
    found = read(acas_text(prop, version))
    lo, hi = ACAS_BOXES[prop]
    assert found.box[0].reshape(-1).tolist() == lo
    assert found.box[1].reshape(-1).tolist() == hi
    assert found.input_shape == ((5,) if version == 1 else (1, 1, 1, 5))
    assert found.output_shape == ((5,) if version == 1 else (1, 5))
    assert found.version == f"{version}.0"
    y = torch.tensor([[5.0, 1, 2, 3, 4], [0.0, 1, 2, 3, 4], [2.0, 1, 2, 3, 4], [3.9, 0, 1, 0, 1]])
    expected = {
        1: [True, False, False, False],
        2: [True, False, False, True],
        3: [False, True, False, False],
        4: [False, True, False, False],
    }
    assert found.condition(y).tolist() == expected[prop]
    assert len(found.condition) == 1
    A, b, strict, C, *_ = found.condition[0]
    assert A.shape == (len(ACAS_UNSAFE[prop]), 5)
    assert C is None
    assert not bool(strict.any())
    assert A.dtype == b.dtype == F64


def test_a_slice_of_its_box(read: Any) -> None:
    found = read(acas_text(3, 2))
    domain = sc.Domain.slice(found.box, axes=(0, 3))
    assert domain.input_shape == (1, 1, 1, 5)
    assert domain.corners.amin(0).tolist() == [-0.303531156, 0.3]


def test_compressed_files(tmp_path: Path) -> None:
    path = tmp_path / "prop.vnnlib.gz"
    path.write_bytes(gzip.compress(acas_text(2, 1).encode()))
    assert sc.read_vnnlib(str(path)).box[0].tolist() == ACAS_BOXES[2][0]
    renamed = path.rename(tmp_path / "prop.vnnlib")
    assert sc.read_vnnlib(renamed).source == "prop.vnnlib"


class TestNormalForm:
    def test_boxes_that_share_a_condition(self, read: Any) -> None:
        found = read(
            declared(2, 1)
            + "(assert (or (and (>= X_0 0) (<= X_0 1)) (and (>= X_0 2) (<= X_0 3))))"
            + "(assert (>= X_1 -1)) (assert (<= X_1 1)) (assert (or (<= Y_0 0) (and (>= Y_0 9))))"
        )
        assert [[lo.tolist(), hi.tolist()] for lo, hi in found.boxes] == [
            [[0, -1], [1, 1]],
            [[2, -1], [3, 1]],
        ]
        assert len(found.condition) == 2
        assert found.condition([[0.0], [1.0], [9.0]]).tolist() == [True, False, True]
        with pytest.raises(DomainError, match="has 2 boxes"):
            _ = found.box
        assert "2 boxes, unsafe: 2 conjunctions of 2 linear constraints" in repr(found)

    def test_boxes_with_conditions_of_their_own(self, read: Any) -> None:
        found = read(
            declared(1, 1)
            + """(assert (or
                (and (>= X_0 0) (<= X_0 1) (<= Y_0 -1))
                (and (>= X_0 0) (<= X_0 1) (>= Y_0 1))
                (and (>= X_0 5) (<= X_0 6) (>= Y_0 7))))"""
        )
        assert [len(case.condition) for case in found.cases] == [2, 1]
        with pytest.raises(DomainError, match=r"the conditions are in \.cases"):
            _ = found.condition
        x = torch.tensor([[0.5], [0.5], [0.5], [5.5], [5.5], [3.0]])
        y = torch.tensor([[-2.0], [0.0], [2.0], [2.0], [8.0], [8.0]])
        assert found.violated(x, y).tolist() == [True, False, True, False, True, False]
        assert repr(found).endswith("2 boxes, 2 conditions)")

    def test_arithmetic(self, read: Any) -> None:
        found = read(
            network("[3]", "[]")
            + """(assert (<= (* -2.0 X[0]) 3.0)) (assert (<= (- X[0]) (+ 1 0.5)))
            (assert (>= 7 (+ X[0] 5.0 X[0]))) (assert (== X [1] 0.1)) (assert (<= (- X[2] X[2]) 0))
            (assert (< (+ (* 0.1 X[2]) (* X[2] (- 0.2)) (/ Y 4)) (- 1 Y 0.5)))"""
        )
        lo, hi = found.box
        assert lo.tolist() == [-1.5, 0.1, -torch.inf]
        assert hi.tolist() == [1.0, 0.1, torch.inf]
        A, b, strict, C, *_ = found.condition[0]
        assert A.tolist() == [[1.25]]
        assert b.tolist() == [0.5]
        assert strict.tolist() == [True]
        assert C is not None
        assert C.tolist() == [[0.0, 0.0, -0.1]]
        with pytest.raises(DomainError, match="about inputs, too"):
            found.condition([[0.0]])
        assert found.condition([[0.4], [0.3]], [[0, 0, 0], [0, 0, 0]]).tolist() == [False, True]

    def test_numbers_are_the_nearest_doubles(self, read: Any) -> None:
        text = declared(1, 1) + "(assert (<= (* 3 X_0) 0.3)) (assert (>= (* 3 X_0) 0.3))"
        assert float(read(text).box[0]) == 0.1  # while 0.3 / 3 is rounded to another one
        text = declared(1, 1) + "(assert (>= X_0 -1.5e-3)) (assert (<= X_0 +1E2))"
        assert [float(each) for each in read(text).box] == [-0.0015, 100.0]

    def test_equations_and_their_opposite(self, read: Any) -> None:
        found = read(network("[1]", "[2]") + "(assert (== Y[0] Y[1]))")
        assert found.condition([[1.0, 1.0], [1.0, 2.0]]).tolist() == [True, False]
        found = read(network("[1]", "[2]") + "(assert (!= Y[0] Y[1]))")
        assert found.condition([[1.0, 1.0], [1.0, 2.0]]).tolist() == [False, True]
        assert all(bool(each.strict.all()) for each in found.condition)

    def test_constants(self, read: Any) -> None:
        found = read(declared(1, 1) + "(assert (<= 1 2))")
        assert found.condition([[0.0]]).tolist() == [True]
        assert found.box[0].tolist() == [-torch.inf]
        found = read(declared(1, 1) + "(assert (<= 2 1))")
        assert found.condition([[0.0]]).tolist() == [False]
        found = read(declared(1, 1) + "(assert (or (< 1 1) (>= Y_0 1)))")
        assert found.condition([[0.0], [1.0]]).tolist() == [False, True]

    def test_an_empty_box(self, read: Any) -> None:
        found = read(declared(1, 1) + "(assert (<= X_0 0)) (assert (>= X_0 1))")
        assert found.boxes == ()
        assert found.violated([[0.5]], [[0.0]]).tolist() == [False]
        with pytest.raises(DomainError, match="has 0 boxes"):
            _ = found.box
        assert "0 boxes" in repr(found)

    def test_wide_files_stay_small(self, read: Any) -> None:
        bounds = "".join(f"(assert (and (>= X_{i} 0) (<= X_{i} 1)))\n" for i in range(3000))
        worse = "".join(f"(and (>= Y_{k} Y_0))" for k in range(1, 100))
        found = read(declared(3000, 100) + bounds + f"(assert (or {worse}))")
        assert found.box[1].tolist() == [1.0] * 3000
        assert len(found.condition) == 99
        assert found.condition.A.shape == (99, 100)

    def test_blocks_of_outputs(self, read: Any) -> None:
        worse = "".join(f"(>= Y_{k} Y_0)" for k in range(1, 100))
        condition = read(declared(1, 100) + f"(assert (or {worse}))").condition
        y = torch.randn(50_000, 100)
        assert torch.equal(condition(y), y[:, 1:].amax(1) >= y[:, 0])
        assert condition(y[:0]).shape == (0,)
        with pytest.raises(DomainError, match=r"shape \(3, 7\); give a batch .* of 100 numbers"):
            condition(torch.zeros(3, 7))


formulas = st.recursive(
    st.tuples(
        st.sampled_from(["<=", ">=", "<", ">", "==", "!="]),
        st.sampled_from(["X_0", "X_1", "Y_0", "Y_1", "(+ X_0 Y_1)", "(- Y_0 (* 2 Y_1))"]),
        st.sampled_from(["-1", "0", "1.0", "Y_0", "X_1"]),
    ).map(lambda parts: f"({' '.join(parts)})"),
    lambda inner: st.tuples(
        st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3)
    ).map(lambda parts: f"({parts[0]} {' '.join(parts[1])})"),
    max_leaves=8,
)


def evaluated(text: str, values: dict[str, float]) -> bool:
    """The value of a formula, found by translation to Python."""
    words = text.replace("(", " ( ").replace(")", " ) ").split()

    def expression() -> Any:
        word = words.pop(0)
        if word != "(":
            return values[word] if word in values else float(word)
        operator, parts = words.pop(0), []
        while words[0] != ")":
            parts.append(expression())
        words.pop(0)
        a, b = parts[0], parts[-1]
        return {
            "and": lambda: all(parts), "or": lambda: any(parts), "+": lambda: a + b,
            "-": lambda: a - b, "*": lambda: a * b, "<=": lambda: a <= b, ">=": lambda: a >= b,
            "<": lambda: a < b, ">": lambda: a > b, "==": lambda: a == b, "!=": lambda: a != b,
        }[operator]()  # fmt: skip

    return bool(expression())


@given(formula=formulas)
def test_any_formula(formula: str, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.vnnlib"
    path.write_text(declared(2, 2) + f"(assert {formula})")
    found = sc.read_vnnlib(path)
    # Strict bounds of inputs are closed, so that inputs are not at bounds.
    x = torch.cartesian_prod(*[torch.tensor([-1.5, 0.5, 1.5], dtype=F64)] * 2)
    y = torch.cartesian_prod(*[torch.tensor([-2.0, -1.0, 0.0, 1.0, 1.5], dtype=F64)] * 2)
    x, y = x.repeat_interleave(len(y), 0), y.repeat(len(x), 1)
    names = ("X_0", "X_1", "Y_0", "Y_1")
    rows = torch.cat([x, y], 1).tolist()
    expected = [evaluated(formula, dict(zip(names, row, strict=True))) for row in rows]
    assert found.violated(x, y).tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: no inputs are declared"),
        ("(declare-const X_0 Real", "line 1, column 1: this parenthesis is never closed"),
        (declared(1, 1) + "(assert (<= X_0 1)))", r"line 3, column 20: '\)' closes nothing"),
        (declared(1, 1) + "(assert (<= X_7 1))", "line 3, column 13: 'X_7' is not declared here"),
        (declared(1, 1) + f"(assert\n (<= X_0\n (* {'X_0 ' * 13})))", "line 5, column 2: a prod"),
        (declared(1, 1) + "(assert (<= X_0 1 2))", "compares two terms, and here are 3"),
        (declared(1, 1) + "(assert (<= (<= X_0 1) 2))", "takes numbers and variables"),
        (declared(1, 1) + "(assert (and X_0 (<= X_0 1)))", "'and' joins comparisons"),
        (declared(1, 1) + "(assert (and))", "'and' joins nothing"),
        (declared(1, 1) + "(assert)", "one formula, and here are 0"),
        (declared(1, 1) + "(assert (=> (<= X_0 1) (<= Y_0 1)))", "'=>' is no operator: expected"),
        (declared(1, 1) + "(assert (X_0 < 1))", "'X_0' is no operator"),
        (declared(1, 1) + "(assert ())", "the parentheses are empty"),
        (declared(1, 1) + "(assert ((<= X_0 1)))", "expected an operator after"),
        (declared(1, 1) + "(assert (<= (/ X_0 0) 1))", "divided by numbers other than 0"),
        (declared(1, 1) + "(assert (<= X_0 1e999))", "1e999 is beyond the range of float64"),
        (declared(1, 1) + "(assert (<= (* 1e300 1e300 Y_0) 1))", "beyond the range of float64"),
        (declared(1, 1) + "(assert (<= X_0 nan))", "'nan' is not declared"),
        (declared(1, 1) + "<= X_0 1", "line 3, column 1: '<=' is outside of all parentheses"),
        (declared(1, 1) + "(<= X_0 1)", r"column 1: expected \(assert \(<= X_0 1\)\)"),
        (declared(1, 1) + "(frobnicate)", "'frobnicate' is no command: expected assert, declare"),
        (declared(1, 1) + "(assert (and (assert (<= X_0 1))))", "'assert' belongs to the top"),
        (declared(2, 1).replace("X_1", "X_5"), "2 variables X_i are declared, but X_1 is not"),
        (declared(1, 1) * 2, "line 3, column 1: X_0 is declared twice"),
        ("(declare-const Z_0 Real)", "expected the declaration of X_0"),
        ("(declare-const X_0 Int)", "expected the declaration of X_0"),
        ("(vnnlib-version <3.0>)", "versions 1 and 2 are known"),
        (network() + "(assert (<= X[5] 1))", r"'X\[5\]' is no element of X, of shape \(5,\)"),
        (network() + "(assert (<= X[0,0] 1))", "is no element of X"),
        (network() + "(assert (<= Z[0] 1))", "declared are X, Y"),
        (network() + network()[23:], "one input and one output"),
        ("(vnnlib-version <2.0>)(declare-network f)", "expected a network"),
        ("(declare-input X Real [5])", "'declare-input' is no command"),
        (network("[99999999,99999999]"), "too large"),
        (network("[0]"), "too large, or empty"),
        (network("five"), "expected a tensor such as"),
        (network().replace("(declare-output", "(declare-hidden H Real [2] \"a\")(declare-output"),
         "'declare-hidden' is about more than the inputs and outputs of networks"),
        (network("[5]) (declare-input Z Real [5]"), "networks with one input and one output"),
    ],
)  # fmt: skip
def test_errors_name_the_place(text: str, message: str, read: Any) -> None:
    with pytest.raises(FileError, match=message):
        read(text)


def two_networks(equations: str = "(assert (== A[0] C[0]))\n(assert (== C[1] A[1]))") -> str:
    return f"""(vnnlib-version <2.0>)
(declare-network f (declare-input A real [2]) (declare-output B real [1]))
(declare-network g (isomorphic-to f) (declare-input C real [2]) (declare-output D real [1,2]))
(assert (and (>= A[0] -1) (<= A[0] 1) (>= A[1] -1) (<= C[1] 1)))
{equations}
(assert (> D[0,1] (+ B[0] 0.5)))
"""


LONG = 5_000  # variables, declared and bounded in several blocks of the reader


def _long() -> list[str]:
    lines = [f"(declare-const X_{i} Real)" for i in range(LONG)] + ["(declare-const Y_0 Real)"]
    lines += [f"(assert (>= X_{i} -{i}.5))" for i in range(LONG)]
    lines += [f"(assert (<= X_{i} {i}e-3)) ; once more: ()" for i in range(LONG)]
    limits = " ".join(f"(<= X_{i} 1) (>= X_{i} -7e3)" for i in range(LONG))
    return [*lines, f"(assert (and {limits} (>= Y_0 2.5) (<= X_2 1e-9)))", "(assert (<= X_4 -1))"]


def test_long_files(read: Any) -> None:
    low, high = read("\n".join(_long())).box
    place = torch.arange(LONG, dtype=torch.float64)
    wanted = (place / 1000).clamp(max=1)
    wanted[2], wanted[4] = 1e-9, -1
    assert torch.equal(low, -place - 0.5)
    assert torch.equal(high, wanted)


@pytest.mark.parametrize(
    ("row", "text", "message"),
    [
        (4_700, "(declare-const X_3 Real)", "line 4701, column 1: X_3 is declared twice"),
        (9_000, "(assert (<= X_5001 1))", "line 9001, column 13: 'X_5001' is not declared"),
        (9_001, "(assert (<= X_1 1e999))", "line 9002, column 17: the number 1e999 is beyond"),
    ],
)
def test_errors_in_long_files_name_the_place(row: int, text: str, message: str, read: Any) -> None:
    lines = _long()
    lines[row] = text
    with pytest.raises(FileError, match=message):
        read("\n".join(lines))


NUMBERS = ["1.", ".5", "+3e2", "-0", "-2.2250738585072011e-308", "4.9e-324", "9007199254740993"]
NUMBERS += ["0.1000000000000000055511151231257827", "123456789012345678901234567890e-30"]
NUMBERS += ["7E+2", "1e-400"]


@pytest.mark.parametrize("name", ["X_{}", "X[{}]", "X_1[{}]", "assert0[{}]"])
@pytest.mark.parametrize(
    "around", [("(assert ", ")\n", "", ""), ("", "\n\t", "(assert (and ", "))")]
)
def test_numbers_of_many_bounds(name: str, around: tuple[str, ...], read: Any) -> None:
    words = [NUMBERS[k % len(NUMBERS)] for k in range(150)]
    before, after, start, end = around
    rows = [f"( <= {name.format(k)} {word}\n)" for k, word in enumerate(words)]
    rows += [f"(>\t{name.format(k)} -1e3)" for k in range(150)]
    tensor = name.split("[")[0]
    head = network("[150]", "[1]").replace("X", tensor) if "[" in name else declared(150, 1)
    low, high = read(head + start + "".join(before + row + after for row in rows) + end).box
    assert low.eq(-1000).all()
    assert high.tolist() == [*map(float, words)]


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ("(assert (<= X_007 1))", "line 252, column 13: 'X_007' is not declared"),
        ("(assert (<= X_151 1))", "line 252, column 13: 'X_151' is not declared"),
        ("(assert (<= X_1[3] 1))", r"line 252, column 13: 'X_1\[3\]' is not declared"),
        ("(assert (<= X_1e2 1))", "line 252, column 13: 'X_1e2' is not declared"),
        ("(assert (<= X_1 1e400))", "line 252, column 17: the number 1e400 is beyond"),
        ("(assert (and (<= X_1 2)) (<= X_1 2))", "line 252, column 1: 'assert' has one formula"),
    ],
)
def test_one_odd_bound_among_many(odd: str, message: str, read: Any) -> None:
    rows = [f"(assert (<= X_{k} 1))" for k in range(100)]
    with pytest.raises(FileError, match=message):
        read("\n".join([declared(150, 1).strip(), *rows, odd, *rows]))


def test_many_bounds_of_several_tensors(read: Any) -> None:
    rows = "(assert (<= X[0,1] 1))\n" * 70
    with pytest.raises(FileError, match=r"'X\[3\]' is no element of X, of shape \(1, 4\)"):
        read(network("[1,4]") + rows + "(assert (<= X[3] 1))\n(assert (<= X[0,1,2] 1))")
    with pytest.raises(FileError, match="no element of X"):
        read(network("[1,4]") + rows + "(assert (<= X[0,4] 1))")
    given = "(assert (>= X[0,{0}] 0)) (assert (<= X[0,{0}] 1))"
    box = "".join(given.format(k) for k in range(4))
    found = read(
        network("[1,4]") + rows + "(assert (<= Y[0] 2)) (assert (<= X[0,2] .5))" * 70 + box
    )
    assert found.box[1].tolist() == [[1.0, 1.0, 0.5, 1.0]]
    assert len(found.condition) == 1


def test_properties_of_two_networks(read: Any) -> None:
    prop = read(two_networks())
    assert prop.networks == ("f", "g")
    assert (prop.input_shape, prop.output_shape) == ((2,), (3,))
    assert "of networks f, g" in repr(prop)
    assert prop.box[1].tolist() == [1, 1]
    f, g = nn.Linear(2, 1).double(), nn.Linear(2, 2).double()
    with torch.no_grad():
        for layer in (f, g):
            layer.weight.zero_()
            layer.bias.zero_()
        g.weight[1, 0] = 1
    part = sc.partition(sc.nn.Both(f, g), sc.Domain.slice(prop.box, axes=(0, 1)), progress=False)
    assert part.check(prop.cases[0]).share == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (two_networks("(assert (== A[0] C[0]))"),
         r"line 4, .*expected \(assert \(== A\[1\] C\[1\]\)\)"),
        (two_networks("(assert (== A[0] C[1]))\n(assert (== A[1] C[0]))"), "different inputs"),
        (two_networks().replace("C real [2]", "C real [3]"), "inputs of the same shape"),
        (two_networks().replace("isomorphic-to f", "unlike f"), "'unlike' is no operator"),
    ],
)  # fmt: skip
def test_two_networks_must_have_the_same_input(text: str, message: str, read: Any) -> None:
    with pytest.raises(FileError, match=message):
        read(text)


class TestHostileFiles:
    def test_deep_nesting(self, read: Any) -> None:
        with pytest.raises(
            FileError, match="line 2, column 10008: parentheses are nested more than 10,000"
        ):
            read(declared(1, 1).replace("\n", " ", 1) + "(assert " + "(" * 100_000)
        deep = "(+ X_0 " * 5000 + "1" + ")" * 5000
        assert read(declared(1, 1) + f"(assert (<= {deep} 5001))").box[1].tolist() == [1.0]
        many = "(or (and (<= Y_0 1) " * 2000 + "(<= Y_0 0)" + "))" * 2000
        assert len(read(declared(1, 1) + f"(assert {many})").condition) == 1

    def test_exponential_formulas(self, read: Any) -> None:
        choices = "(or (<= X_0 0) (>= X_0 1) (>= Y_0 1))" * 40
        for text in (f"(assert (or (<= Y_0 0) (and {choices})))", f"(assert (and {choices}))"):
            with pytest.raises(FileError, match="split the property into several files"):
                read(declared(1, 1) + text)

    def test_gigantic_numbers(self, read: Any) -> None:
        bound = "(assert (<= (+ X_0 1e-99999999) 1))"
        assert read(declared(1, 1) + bound).box[1].tolist() == [1.0]
        factors = "(assert (<= (* " + "1e-300 " * 2000 + "Y_0) 1))"
        with pytest.raises(FileError, match="grows far beyond the range of float64"):
            read(declared(1, 1) + factors)
        with pytest.raises(FileError, match="expected the declaration"):
            read("(declare-const X_99999999999999999999 Real)")
        with pytest.raises(FileError, match="but X_0 is not"):
            read("(declare-const X_999999999 Real)")

    def test_gigantic_conditions(self, read: Any) -> None:
        rows = "(assert (<= (+ X[0] Y[0]) 1))" * 200
        with pytest.raises(FileError, match=r"200 constraints on .* is too much"):
            read(network("[1000000]", "[1]") + rows)

    def test_damaged_files(self, tmp_path: Path) -> None:
        path = tmp_path / "prop.vnnlib.gz"
        path.write_bytes(gzip.compress(acas_text(1, 1).encode())[:-20])
        with pytest.raises(FileError, match="damaged: it cannot be unpacked"):
            sc.read_vnnlib(path)
        path.write_bytes(b"\x93NUMPY\xff\xfe")
        with pytest.raises(FileError, match="not a VNN-LIB file: byte 0 is no text"):
            sc.read_vnnlib(path)
        with pytest.raises(FileError, match="There is no file"):
            sc.read_vnnlib(tmp_path / "missing.vnnlib")
        with pytest.raises(FileError, match="cannot be read: it is a folder"):
            sc.read_vnnlib(tmp_path)


def test_smt_commands_around_it(read: Any) -> None:
    found = read(
        "; a comment (with parentheses\n(set-logic QF_LRA)\n(declare-fun X_0 () Real)\n"
        "(declare-fun Y_0 () Real)(assert(<= X_0 1 ))(assert (= Y_0 2))\n(check-sat)"
    )
    assert found.box[1].tolist() == [1.0]
    assert found.condition([[2.0], [3.0]]).tolist() == [True, False]


def test_cases_that_are_about_outputs() -> None:
    assert Case().about_outputs
    assert not Case(lower={0: 1.0}).about_outputs


def test_conditions_of_ones_own() -> None:
    condition = sc.OutputCondition.of(
        [([[1.0, 0.0]], [0.0]), ([[0.0, 1.0], [0.0, -1.0]], [2.0, -1.0])]
    )
    assert [len(each.b) for each in condition] == [1, 2]
    assert condition([[-1.0, 9.0], [1.0, 1.5], [1.0, 3.0]]).tolist() == [True, True, False]
    assert repr(condition) == "OutputCondition(2 conjunctions of 3 linear constraints on outputs)"
    assert condition([[float("nan"), 5.0]]).tolist() == [False]
    with pytest.raises(IndexError):
        condition[2]
