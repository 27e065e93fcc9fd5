"""Certificates: what is written passes the checker, and nothing that was changed does."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
import splinecam_check as checker
from certificate_changes import changed, text_of
from refinement_cases import random_network
from splinecam.errors import SplineCamError
from splinecam.testing import Abs, Residual, exact_partition

BOX = sc.Domain.box(-1, 1)
CONVOLUTION = nn.Sequential(
    nn.Linear(2, 16), nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2),
    nn.Flatten(), nn.LeakyReLU(0.1), nn.Linear(8, 3),
)  # fmt: skip
NETWORKS = {
    "relu": nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)),
    "hardtanh": nn.Sequential(nn.Linear(2, 6), nn.Hardtanh(-0.3, 0.4), nn.Linear(6, 1)),
    "prelu": nn.Sequential(nn.Linear(2, 4), nn.PReLU(4), nn.Linear(4, 4), nn.ReLU6()),
    "convolution": CONVOLUTION,
    "skip": nn.Sequential(nn.Linear(2, 5), Residual(nn.Sequential(nn.Linear(5, 5), Abs()))),
    "no biases": nn.Sequential(
        nn.Linear(2, 5, bias=False), nn.ReLU(), nn.Linear(5, 5, bias=False), nn.ReLU()
    ),
    "input": nn.Sequential(nn.ReLU(), nn.Linear(2, 3), nn.ReLU()),
    "affine": nn.Sequential(nn.Linear(2, 2)),
}


def drawn(model: nn.Module, seed: int) -> nn.Module:
    """The model with other weights, which are large enough to cut the domain often."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model


def certified(model: nn.Module, path: Path, **options: Any) -> list[str]:
    part = sc.partition(model, BOX, progress=False)
    written = part.certify(path, **options)
    with path.open() as file:
        proved = checker.check(file)
    assert f"regions {written.regions} " in proved
    return proved


EXPORTED = ("convolution", "skip")  # torch takes seconds to begin with these


@pytest.mark.few(7)
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        pytest.param(name, seed, marks=[pytest.mark.slow] * (name in EXPORTED))
        for seed in range(3)
        for name in NETWORKS
    ],
)
def test_a_certificate_proves_the_partition_of_the_oracle(
    name: str, seed: int, tmp_path: Path
) -> None:
    model = drawn(NETWORKS[name], seed)
    cells = exact_partition(model, BOX).cells
    proved = certified(model, tmp_path / "x.cert", exact=True)
    assert f"regions {len({cell.pattern for cell in cells})} " in proved
    assert not any(line.startswith("except") for line in proved)
    largest = [max(cell.value(p)[0] for p in cell.vertices) for cell in cells]
    assert f"largest 0 {float(max(largest))}" in proved


def test_a_normalised_network_has_a_certificate(tmp_path: Path) -> None:
    norm = nn.BatchNorm1d(6).eval()
    model = drawn(nn.Sequential(nn.Linear(2, 6), norm, nn.Hardtanh(), nn.Linear(6, 2)), 0)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    nn.init.uniform_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    part = sc.partition(model, BOX, progress=False)
    proved = certified(model, tmp_path / "x.cert", exact=True)
    assert f"regions {len(part)} " in proved
    assert f"largest 0 {float(part.values[:, 0].max()):.8f}"[:16] in proved[3]


def test_areas_of_classes_are_exact_fractions(tmp_path: Path) -> None:
    certified(nn.ReLU(), tmp_path / "x.cert")
    claims = next(line for line in lines_of(tmp_path / "x.cert") if "claims" in line)["claims"]
    areas = next(claim["areas"] for claim in claims if claim["claim"] == "areas")
    assert [checker.number(low) for low, _ in areas] == [Fraction(5, 2), Fraction(3, 2)]


def nearly_united(gap: float) -> nn.Sequential:
    """Three lines that enclose a tiny triangle."""
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        model[0].bias.copy_(torch.tensor([0.0, 0.0, gap]))
    return model


def test_what_float64_united_is_left_out_or_split(tmp_path: Path) -> None:
    model, path = nearly_united(-1e-17), tmp_path / "x.cert"
    part = sc.partition(model, BOX, progress=False)
    assert len(part) == 6
    written = part.certify(path)
    assert written.regions == 6
    assert torch.tensor(written.left_out).abs().max() < 1e-15
    with path.open() as file:
        digest, *_, places = checker.check(file)
        assert places.startswith("except an area of 4.99999")
    written = part.certify(path, exact=True)
    assert (written.regions, written.left_out) == (7, ())
    with path.open() as file:
        assert [digest, "regions 7 "] == checker.check(file)[:2]


@pytest.mark.parametrize("limit", [0.5, -1.5, -1.0])
def test_a_property_is_proved_to_hold_or_to_fail(limit: float, tmp_path: Path) -> None:
    path, unsafe = tmp_path / "x.cert", [([[1.0, 1.0]], [limit])]
    part = sc.partition(nn.Linear(2, 2), BOX, progress=False)
    part.model.load_state_dict({"weight": torch.eye(2) / 2, "bias": torch.zeros(2)})
    part = sc.partition(part.model, BOX, progress=False)
    status = part.check(unsafe, certificate=path).status
    with path.open() as file:
        proved = checker.check(file)
    # y0 + y1 is -1 at one corner: equality, which float64 does not decide.
    assert status == {0.5: "violated", -1.5: "holds", -1.0: "unresolved"}[limit]
    assert any(line.startswith("holds" if limit < -1 else "fails") for line in proved)


class Sorting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sort(-1).values


@pytest.mark.parametrize("model", [Sorting(), random_network(9008)[1]], ids=["sorts", "no knots"])
def test_a_layer_that_cannot_be_written_is_named(model: nn.Module, tmp_path: Path) -> None:
    part = sc.partition(model, BOX, progress=False)
    with pytest.raises(SplineCamError, match="cannot be written in a certificate"):
        part.certify(tmp_path / "x.cert")


# -- changed certificates are rejected --------------------------------------------------------


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("certificates") / "x.cert"
    certified(drawn(NETWORKS["relu"], 1), path)
    return lines_of(path)


def test_the_file_passes_as_it_is(written: list[dict[str, Any]]) -> None:
    assert len(checker.check(text_of(written))) == 5


@pytest.mark.parametrize("seed", range(60))
def test_a_changed_certificate_is_rejected(seed: int, written: list[dict[str, Any]]) -> None:
    kind, text = changed(written, random.Random(seed))
    with pytest.raises((ValueError, LookupError, TypeError, ArithmeticError, AttributeError)):
        assert checker.check(text) == kind


def test_the_checker_is_one_file_that_runs_alone(tmp_path: Path) -> None:
    certified(nn.ReLU(), tmp_path / "x.cert")
    source = Path(checker.__file__)
    assert len(source.read_text().splitlines()) <= 300
    assert "import splinecam" not in source.read_text()
    alone = tmp_path / "alone.py"
    alone.write_text(source.read_text())
    command = [sys.executable, "-I", "-S", alone, tmp_path / "x.cert"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "proved regions 4" in done.stdout
    (tmp_path / "x.cert").write_text("{}\n")
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert 'refused at line 1: ValueError("a line has other keys' in failed.stderr
    assert failed.stderr.count("\n") == 1


# -- files of an adversary --------------------------------------------------------------------

SQUARE = [["-1", "-1"], ["1", "-1"], ["1", "1"], ["-1", "1"]]
HEAD = {"certificate": 1, "domain": SQUARE, "inputs": [["1", "0", "0"], ["0", "1", "0"]]}
RELU = {"units": [0], "function": [["0"], ["0", "1"], "0"]}  # of u alone: the number 2
LEFT = {"cell": ["0"], "sides": [[0], [0, 0, 0], [2], [3]]}
RIGHT = {"cell": ["1"], "sides": [[0], [1], [2], [0, 0, 0]]}
WHOLE = {"sides": [[0], [1], [2], [3]]}


def assert_refused(lines: list[Any], why: str | None = None) -> None:
    text = [x if isinstance(x, str) else json.dumps(x) + "\n" for x in lines]
    with pytest.raises((ValueError, LookupError, TypeError), match=why):
        checker.check(text)


def judged(claims: list[Any], *cells: Any, network: Any = (HEAD, RELU), out: Any = (2,)) -> Any:
    """The lines of a file that a prover wrote by hand, with the digest that fits."""
    claimed = {"network": "", "outputs": list(out), "claims": claims}
    return [json.loads(x) for x in text_of([*network, claimed, *cells])]


def regions(number: int) -> list[Any]:
    return [{"claim": "regions", "number": number}]


def proved(lines: list[Any]) -> list[str]:
    return checker.check([json.dumps(line) + "\n" for line in lines])


def test_the_files_written_by_hand_pass_without_an_attack() -> None:
    lines = judged(regions(2), LEFT, RIGHT)
    assert proved(lines)[1:] == ["regions 2 "]


@pytest.mark.parametrize("name", ["-1", "-2", "2", "3"])
def test_a_piece_that_a_unit_does_not_have_is_refused(name: str) -> None:
    # Python counts from the end of a list below zero: -1 was the last piece, which asked nothing.
    assert_refused(judged(regions(1), {"cell": [[name]], **WHOLE}))
    largest = {"max": [[0, 1]]}
    first = {"cell": [[name]], "sides": [[0], [1], [0, 0, 0]]}
    assert_refused(judged(regions(2), first, {"cell": ["1"], "sides": []}, network=(HEAD, largest)))


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_a_file_that_claims_nothing_is_refused(kept: int) -> None:
    assert_refused(judged([], LEFT, RIGHT)[:kept], "nothing is claimed")


def test_the_network_is_read_once() -> None:
    # Rows after the inputs were computed once for each line of claims.
    rows = {"affine": [["0", 0, "1"]]}
    lines = judged([], network=(HEAD, rows, RELU))
    assert_refused([*lines, *judged(regions(2), LEFT, RIGHT)[2:]])
    assert_refused([*judged(regions(2)), *judged(regions(2), LEFT, RIGHT)[2:]])


@pytest.mark.parametrize(
    "line",
    [
        '{"affine": [["0", 0, "1"]], "affine": [["1"]]}\n',  # a reader may see the first
        {"affine": [["1"]], "max": [[0, 1]]},
        {"max": [[0, 1]], "smallest": "no"},
        {"units": [0], "function": [["0"], ["0", "1"], "0", "0"]},
        {"units": [0], "function": [["0"], ["0", "1"], "0"], "smallest": True},
        {"note": "nothing"},
        {"cell": ["0"], "sides": []},
        "\n",
        "[]\n",
    ],
)
def test_a_line_that_can_be_read_in_two_ways_is_refused(line: Any) -> None:
    network = [x if isinstance(x, str) else json.dumps(x) + "\n" for x in (HEAD, line)]
    digest = checker.sha256("".join([*network, "[0]"]).encode()).hexdigest()
    below = {"cell": ["0"], "sides": [[0], [1], [0, 0, 1]]}
    above = {"cell": ["1"], "sides": [[2], [3], [0, 0, 0]]}
    smaller = {"cell": ["0"], "sides": above["sides"][:2] + below["sides"][2:]}
    larger = {"cell": ["1"], "sides": below["sides"][:2] + above["sides"][2:]}
    for cells in ([{"cell": [], **WHOLE}], [LEFT, RIGHT], [below, above], [smaller, larger]):
        claimed = {"network": digest, "outputs": [0], "claims": regions(len(cells))}
        assert_refused([*network, claimed, *cells])


def test_smallest_is_what_it_says() -> None:
    for smallest, digit in ((False, "1"), (True, "0")):
        network = HEAD, {"max": [[0, 1]], "smallest": smallest}
        above = {"cell": [digit], "sides": [[2], [3], [0, 0, 1 - int(digit)]]}
        below = {"cell": ["01"[digit < "1"]], "sides": [[0], [1], [0, 0, int(digit)]]}
        cells = sorted([above, below], key=lambda line: line["cell"])
        assert proved(judged(regions(2), *cells, network=network))[1:] == ["regions 2 "]


def test_what_is_printed_is_what_was_checked() -> None:
    words = "\nproved regions 1000"
    network = HEAD, RELU, {"affine": [["2", 2, "-1"], ["-2", 2, "1"]]}  # 2 - y and y - 2
    holds = {"claim": "holds", "unsafe": [[[4, 0]]], "output": words, "value": words}
    lines = judged([holds], LEFT, RIGHT, network=network)
    assert proved(lines)[1:] == ["holds [[[4, 0]]]"]
    fails = {"claim": "fails", "unsafe": [[[3, 1]]], "cell": 1, "point": ["1/2", "0"]}
    lines = judged([fails | {"output": words}], LEFT, RIGHT, network=network)
    assert proved(lines)[1:] == ["fails [[[3, 1]]] at (0.5, 0.0)"]


def test_only_a_one_makes_an_unsafe_number_strict() -> None:
    # y is 0 in the left half, which is unsafe unless numbers have to be above 0; y > 1 is nowhere.
    for strict in (0, 2, "0", "1", None):
        holds = {"claim": "holds", "unsafe": [[[3, strict]]]}
        network = HEAD, RELU, {"affine": [["-1", 2, "1"]]}
        assert_refused(judged([holds], LEFT, RIGHT, network=network))
        network = HEAD, RELU, {"affine": [["-1", 2, "1"]]}
        proved(judged([holds | {"unsafe": [[[3, 1]]]}], LEFT, RIGHT, network=network))


def test_a_property_has_to_hold_everywhere() -> None:
    # The violation is in the polygon that is left out.
    holds = {"claim": "holds", "unsafe": [[[2, 1]]]}
    right = {"except": [["0", "-1"], ["1", "-1"], ["1", "1"], ["0", "1"]]}
    assert_refused(judged([holds], right, LEFT), "everywhere")
    assert_refused(judged([holds], {"except": SQUARE}), "everywhere")
    words = proved(judged(regions(1), right, LEFT))
    assert words[2].startswith("except an area of 2.0 in [(0.0, -1.0),")


@pytest.mark.parametrize(
    "corners",
    [
        SQUARE[::-1],
        [SQUARE[0], SQUARE[2], SQUARE[1], SQUARE[3]],
        SQUARE * 2,
        SQUARE[:2],
        [*SQUARE[:2], ["1", "0"], *SQUARE[2:]],
        [*SQUARE[:3], ["0", "0"]],
        [["0", "3"], ["-2", "-3"], ["3", "1"], ["-3", "1"], ["2", "-3"]],
    ],
)
def test_a_domain_is_a_convex_polygon_that_runs_left(corners: Any) -> None:
    head = HEAD | {"domain": corners}
    cell = {"cell": [], "sides": [[k] for k in range(len(corners))]}
    assert_refused(judged(regions(1), cell, network=(head,), out=(0,)))


@pytest.mark.parametrize(
    "cells",
    [
        [LEFT],
        [LEFT, RIGHT, RIGHT],
        [LEFT, LEFT, RIGHT],
        [RIGHT, LEFT],
        [LEFT | {"sides": LEFT["sides"][::-1]}, RIGHT],
        [LEFT | {"sides": LEFT["sides"] * 2}, RIGHT],
        [LEFT | {"sides": LEFT["sides"][:2]}, RIGHT],
        [LEFT | {"sides": []}, RIGHT],
        [LEFT | {"sides": [[0], [2], [0, 0, 0], [3]]}, RIGHT],
        [LEFT | {"cell": [], "sides": WHOLE["sides"]}],
        [LEFT | {"cell": ["00"]}, RIGHT],
        [LEFT | {"cell": ["0", "0"]}, RIGHT],
        [{"except": SQUARE}, LEFT, RIGHT],
        [{"except": SQUARE}, {"except": SQUARE[::-1]}, LEFT],
    ],
)
def test_cells_that_are_no_cover_are_refused(cells: Any) -> None:
    for n in range(4):
        assert_refused(judged(regions(n), *cells))


@pytest.mark.parametrize("again", [[0, 2], [2, 0], [2, 2]])
def test_ties_on_whole_cells_give_no_cell_two_patterns(again: list[int]) -> None:
    # The numbers 0 and 2 are u both, so that either may win; the first has to.
    network = HEAD, {"affine": [["0", 0, "1"], ["0", 0, "1"]]}, {"max": [again]}
    first = {"cell": ["0"], **WHOLE}
    network = HEAD, {"affine": [["0", 0, "1"], ["0", 0, "1"]]}, {"max": [[3, 2]]}
    assert proved(judged(regions(1), first, network=network, out=(4,)))
    assert_refused(judged(regions(1), {"cell": ["1"], **WHOLE}, network=network, out=(4,)))
    flat = HEAD, {"affine": [["0"]]}, {"units": [2], "function": [["0", "0"], ["0", "1", "2"], "0"]}
    assert proved(judged(regions(1), first, network=flat, out=(3,)))
    for other in "12":
        assert_refused(judged(regions(1), {"cell": [other], **WHOLE}, network=flat, out=(3,)))


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "1.e400", "1/0", "1/-2", "1/3", "", "0.5", 1, 1.5, None]
)
def test_what_is_no_binary_fraction_is_no_number(text: Any) -> None:
    for place in range(3):
        rows = [["1", "0", "0"], ["0", "1", "0"]]
        rows[0][place] = text
        lines = judged(
            regions(1), {"cell": [], **WHOLE}, network=(HEAD | {"inputs": rows},), out=(0,)
        )
        text_lines = [json.dumps(line) + "\n" for line in lines]
        with pytest.raises((ValueError, TypeError, AttributeError, ZeroDivisionError)):
            checker.check(text_lines)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 10**400, None, "2"])
def test_a_number_of_regions_that_is_none_is_refused(number: Any) -> None:
    assert_refused(judged(regions(number), LEFT, RIGHT))


def test_an_overlap_does_not_make_up_for_a_hole() -> None:
    # The right half is missing, and the left half is there twice: the areas add up.
    again = {"cell": ["1"], "sides": LEFT["sides"]}
    assert_refused(judged(regions(2), LEFT, again), "not on its piece")
    # A polygon that runs right takes away what another one adds.
    left = [["-1", "-1"], ["0", "-1"], ["0", "1"], ["-1", "1"]]
    right = [["0", "-1"], ["1", "-1"], ["1", "1"], ["0", "1"]]
    for more in (left, left[::-1], right[::-1]):
        assert_refused(judged(regions(1), {"except": more}, LEFT), "not covered once")
    assert_refused(judged(regions(1), LEFT | {"sides": WHOLE["sides"]}), "not on its piece")


def test_a_side_is_not_that_of_the_domain_by_its_name() -> None:
    for k in range(4):  # the side where the unit vanishes, under the name of one of the domain's
        sides = [[k] if side == [0, 0, 0] else side for side in LEFT["sides"]]
        assert_refused(judged(regions(2), LEFT | {"sides": sides}, RIGHT))


def test_the_certificate_of_another_network_names_another_network() -> None:
    other = HEAD, RELU | {"function": [["0"], ["0", "2"], "0"]}
    ours, theirs = (judged(regions(2), LEFT, RIGHT, network=n) for n in ((HEAD, RELU), other))
    assert proved(ours)[0] != proved(theirs)[0]
    assert_refused([*theirs[:2], *ours[2:]], "another digest")
