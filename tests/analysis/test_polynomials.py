"""Conditions with products of inputs and outputs: against exact fractions, areas and samples."""

from __future__ import annotations

import gzip
import math
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.text import Text
from torch import nn

import splinecam as sc
from exact_polynomials import exact_minimum, least, on_cell, random_term
from refinement_cases import BOX, random_network
from splinecam.errors import FileError, SplineCamError
from splinecam.files.formulas import Formula
from splinecam.partitions.partition_files import wanted_read
from splinecam.questions.wanted import Wanted
from splinecam.testing import exact_partition
from splinecam.testing.oracle.cells import ExactCell

F64 = torch.float64
Point = tuple[Fraction, Fraction]
x, y, z = sc.input(0), sc.input(1), sc.output(0)


def relu(half: float = 1.0) -> sc.Partition:
    domain = sc.Domain.box(-half, half)
    return sc.partition(nn.ReLU().double(), domain, device="cpu", progress=False)


def mlp(*sizes: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [layer for n, m in pairwise(sizes) for layer in (nn.Linear(n, m).double(), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


@pytest.mark.few(8)
@pytest.mark.parametrize("seed", range(40))
def test_verdicts_on_polygons_agree_with_fractions(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    angle = torch.rand(3 + seed % 4, generator=generator, dtype=F64).sort().values * 2 * torch.pi
    points = torch.stack([angle.cos(), (0.01 if seed % 5 == 0 else 1.0) * angle.sin()], 1)
    model = nn.Linear(2, 1).double()
    domain = sc.Domain.polygon(points.tolist())
    part = sc.partition(model, domain, device="cpu", progress=False)
    term = random_term([x, y], generator)
    cell = ExactCell(
        tuple((Fraction(u), Fraction(v)) for u, v in domain.corners.tolist()),
        (),
        ((Fraction(0), Fraction(0)),),
        (Fraction(0),),
    )
    lowest = least(on_cell(cell, term), cell.vertices)
    exact = [domain.basis.flatten().tolist(), domain.origin.flatten().tolist()]
    assert exact == [[1, 0, 0, 1], [0, 0]]
    # Rounded to float64, the least value may be a little above zero, which exact arithmetic sees.
    limit = term - lowest
    met = lowest + Fraction(float(limit._term.get(None, Fraction(0)))) - term._term[None]
    assert part.check(limit <= 0).status in ("unresolved", *["holds"] * (met > 0))
    for shift, status in ((1e-9, "holds"), (-1e-9, "violated")):
        found = part.check(term - lowest + Fraction(shift) <= 0)
        assert found.status == status, (term, float(lowest))
        if status == "violated":
            assert found.witness is not None
    assert part.check(term - lowest < -1e-9).status == "holds"


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(16))
def test_verdicts_of_networks_agree_with_fractions(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    model = mlp(2, 5, 4, 2, seed=seed)
    domain = sc.Domain.box(-1.5, 1.5)
    part = sc.partition(model, domain, device="cpu", progress=False)
    term = random_term([x, y, sc.output(0), sc.output(1)], generator)
    lowest = exact_minimum(exact_partition(model, domain), term)
    for shift, status in ((1e-7, "holds"), (-1e-7, "violated")):
        limit = term - lowest + Fraction(shift)
        assert part.check(limit <= 0).status == status
        assert sc.check(model, domain, limit <= 0, progress=False).status == status
    found = part.check(term - lowest <= 0.5)
    assert found.witness is not None
    assert found.witness.confirmed


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_areas_agree_with_samples(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    model = mlp(2, 6, 6, 2, seed=seed)
    part = sc.partition(model, sc.Domain.box(-1.5, 1.5), device="cpu", progress=False)
    variables = [x, y, sc.output(0), sc.output(1)]
    one, other = (random_term(variables, generator) <= 0.5 for _ in range(2))
    points = part.sample(200_000, dtype=F64)
    with torch.no_grad():
        outputs = model(points)
    for formula in (one, one & other, one | (other & (z <= 0.1))):
        found = part.preimage(formula)
        share = float(found.condition(outputs, points).double().mean())
        assert found.share == pytest.approx(share, abs=5e-3)
        assert found.undecided_area <= 1e-6 * part.domain.area
        total = found.area + found.undecided_area + found.outside_area
        assert total == pytest.approx(part.domain.area, rel=1e-11)
        assert found.cover.area == pytest.approx(found.area, abs=2e-3)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("formula", "area"),
    [
        (x * x + y * y <= 0.5, math.pi / 2),
        ((x * x + y * y <= 0.5) & (x >= 0), math.pi / 4),
        ((x * x + y * y < 0.5) | (y > 0), math.pi / 4 + 2),
        (x * y >= 0.25, 2 * (0.75 - 0.25 * math.log(4))),
        (z * sc.output(1) >= 0.25, 0.75 - 0.25 * math.log(4)),
        (y >= x**2, 4 / 3),
        (x**2 <= 0.25, 2.0),
        ((x + 1) ** 2 - x**2 <= 2 * y + 1, 2.0),  # linear in disguise
        (x**4 + 2 * x**2 * y**2 + y**4 <= 0.25, math.pi / 2),
        (x * x + y * y != 0.3, 4.0),
        ((2 * x - y) * (x - 2 * y) / 4 <= 0, 1.0),
    ],
)
def test_areas_of_known_shapes(formula: Formula, area: float) -> None:
    found = relu().preimage(formula)
    assert found.certain_area <= area * (1 + 1e-12)
    assert area <= (found.area + found.undecided_area) * (1 + 1e-12)
    assert found.undecided_area <= 1e-6
    assert found.witnesses(3)[0].confirmed


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("formula", "status"),
    [
        (x * x + y * y <= 0, "unresolved"),  # at a point
        ((x - y) ** 2 <= 0, "unresolved"),  # on a line
        (x * x + y * y == 0.5, "unresolved"),  # on a curve
        (x * x + y * y <= -1e-12, "holds"),
        ((x - 0.3) ** 2 + (y + 0.7) ** 2 <= 1e-12, "violated"),
        ((x - 1) * (y - 1) < 0, "unresolved"),  # on the border of the domain
        (x * y >= 1 + 1e-10, "holds"),
        ((x * y > 1e-9) & (x * y <= -1e-9), "holds"),
        ((x * y > 0) & (x * y <= 0), "holds"),  # whatever rounding does
        ((x**6 + y**6 <= -1e-6), "holds"),
        ((x**2 + y**2 >= 2.0001) | (z * z < -0.001), "holds"),
    ],
)
def test_limits_that_are_just_met(formula: Formula, status: str) -> None:
    found = relu().check(formula)
    assert found.status == status
    assert (found.witness is None) == (status == "holds")


def test_small_sets_have_areas_of_their_own_precision() -> None:
    found = relu().preimage(x * x + y * y <= 1e-8)
    assert found.area == pytest.approx(math.pi * 1e-8, rel=1e-6)
    assert found.undecided_area <= 1e-6 * found.area


@pytest.mark.parametrize("scale", [1e-6, 1e5])
def test_units_of_inputs_do_not_matter(scale: float) -> None:
    part = relu(scale)
    found = part.preimage((x / scale) ** 2 + (y / scale) ** 2 <= 0.5)
    assert found.share == pytest.approx(math.pi / 8, rel=1e-7)
    tilted = part.preimage((x / scale + 1e9) * (y / scale) <= 0)
    assert tilted.share == pytest.approx(0.5, abs=1e-6)


def test_a_slice_of_more_inputs_in_single_precision() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    box = (torch.full((4,), -1.0), torch.full((4,), 1.0))
    domain = sc.Domain.slice(box, axes=(1, 3), at=torch.full((4,), 0.5))
    formula = sc.input(0) * sc.input(3) + sc.output(1) * sc.output(0) <= sc.input(1) ** 2
    part = sc.partition(model, domain, device="cpu", progress=False)
    found, points = part.check(formula), part.sample(100_000)
    with torch.no_grad():
        share = float(found.preimage.condition(model(points), points).double().mean())
    assert found.share == pytest.approx(share, abs=0.01)
    assert found.witness is not None
    assert found.witness.confirmed


def test_wide_inputs_stay_small() -> None:
    D = 100_000
    model = nn.Sequential(nn.Linear(D, 4), nn.ReLU(), nn.Linear(4, 1))
    points = torch.zeros(3, D)
    points[1, 7], points[2, -1] = 1.0, 1.0
    domain = sc.Domain.through(*points)
    part = sc.partition(model, domain, device="cpu", progress=False)
    product = sc.input(7) * sc.input(D - 1)
    assert part.check(product >= 10).status == "holds"
    found = part.check(product >= 0.1)
    assert found.status == "violated"
    assert found.witness is not None
    assert found.witness.confirmed


def test_smooth_networks_have_bounds_as_well() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    domain = sc.Domain.box(-1, 1)
    formula = sc.output(0) * sc.output(1) >= x * x - 0.2
    part = sc.partition(model, domain, smooth=1e-3, device="cpu", progress=False)
    found, points = part.preimage(formula), part.sample(100_000, dtype=F64)
    with torch.no_grad():
        share = float(found.condition(model(points), points).double().mean())
    assert found.certain_area / 4 <= share + 5e-3
    assert share - 5e-3 <= (found.certain_area + found.undecided_area) / 4
    assert 1e-6 < found.undecided_area < 0.1


def test_refined_partitions_and_counterexamples() -> None:
    model, domain = mlp(2, 112, 112, 1, seed=1), sc.Domain.box(-1, 1)
    formula = (z * x <= -0.02) & (z >= 0.05)
    whole = sc.partition(model, domain, device="cpu", progress=False).check(formula)
    found = sc.check(model, domain, formula, device="cpu", progress=False)
    assert found.area == pytest.approx(whole.area, rel=1e-6)
    quick = sc.check(model, domain, formula, device="cpu", progress=False, verdict_only=True)
    assert not quick.divided
    assert quick.witness is not None
    assert quick.witness.confirmed


def test_networks_without_a_certificate_are_left_open() -> None:
    _, model, n = random_network(9008)
    part = sc.partition(model, BOX, device="cpu", progress=False)
    k = 9008 % n
    at = float(part.values[:, k].max())
    found = part.check(((sc.output(k) - at) * (x + 0.1) <= 0) & (sc.output(k) >= at))
    assert found.status == "unresolved"


def test_files_of_partitions_know_the_question() -> None:
    formula = (z * x <= -0.02) & (z >= 0.12)
    asked = Wanted("condition", condition=formula.condition(2, 1))
    about, tensors = asked.written()
    again = wanted_read(about, {name: tensor.numpy() for name, tensor in tensors.items()})
    for one in (asked, again):
        assert one.is_about(formula.condition(2, 1))
        assert not one.is_about(((z * x <= -0.03) & (z >= 0.12)).condition(2, 1))
        assert not one.covers(Wanted("condition", condition=(z >= 0.12).condition(2, 1)))
        assert not one.covers(Wanted("condition", condition=(z * z >= 0.12).condition(2, 1)))
        assert one.covers(Wanted("condition", condition=(x * y >= 0.12).condition(2, 1)))


@pytest.mark.slow
def test_the_border_of_a_part_is_curved() -> None:
    found = relu().check(x * x + y * y <= 0.5)
    assert repr(found).startswith("PropertyCheck(violated on 39.3 % of the domain, area 1.571")
    assert repr(found.preimage).startswith("Preimage(area 1.57079")
    ax = found.plot()
    assert ax.patches
    outline = [line for line in ax.collections if line.get_zorder() == 3.2][-1]
    assert len(outline.get_segments()) == len(found.preimage.rim.ends)
    away = found.preimage.rim.ends.norm(dim=2) - 0.5**0.5
    assert away.abs().max() < 0.01
    assert found.preimage.rim.share < 2e-4
    words = [text.get_text() for text in ax.figure.findobj(Text)]
    assert "unsafe" in words
    assert "undecided" not in words
    for ask in (lambda: found.preimage.outline, found.preimage.polygons, found.preimage.rings):
        with pytest.raises(SplineCamError, match="curved"):
            ask()
    with pytest.raises(SplineCamError, match="linear"):
        _ = relu().preimage(x <= 0).cover


def test_certificates_are_about_linear_conditions(tmp_path: Path) -> None:
    with pytest.raises(SplineCamError, match="linear"):
        relu().check(x * x <= 0.5, certificate=tmp_path / "some.cert")


def test_formulas_of_ones_own() -> None:
    half = sc.Domain.box(-1, 1)
    assert sc.check(nn.ReLU(), half, 3 - z <= 2.5, progress=False).area == pytest.approx(1.0)
    assert sc.check(nn.ReLU(), half, (x < 0) | (y > 0), progress=False).area == pytest.approx(3.0)
    assert repr(1 - x * y / 2) == "-0.5*input(0)*input(1) + 1"
    nothing = relu().check((x - x) > 1)
    assert nothing.status == "holds"
    assert relu().check((x - x) <= 1).share == 1.0
    for wrong in (lambda: bool(x <= 1), lambda: 0 <= x <= 1):
        with pytest.raises(TypeError, match="join conditions by &"):
            wrong()
    for mistake in (lambda: x + "1", lambda: x <= None, lambda: x / y, lambda: (x <= 1) & True):
        with pytest.raises(TypeError):
            mistake()
    with pytest.raises(ValueError, match="power"):
        _ = x**0.5
    with pytest.raises(ValueError, match="at most 12"):
        _ = x**13
    for beyond_all in (math.inf, math.nan):
        with pytest.raises(ValueError, match="finite"):
            _ = x * beyond_all
    for index in (-1, 1.5, True):
        with pytest.raises(ValueError, match="counted from 0"):
            sc.input(index)  # type: ignore[arg-type]
    for beyond in (sc.input(2) * x <= 1, sc.output(2) >= 0):
        with pytest.raises(SplineCamError, match="the network has 2"):
            relu().check(beyond)


V1 = """(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
"""
V2 = """(vnnlib-version <2.0>)
(declare-network f (declare-input X real [1,2]) (declare-output Y real [1,2]))
"""
INPUTS = "(assert (and (>= {0} -1) (<= {0} 1) (>= {1} -1) (<= {1} 1)))\n"


@pytest.mark.parametrize("version", [1, 2])
def test_files_with_products(version: int, tmp_path: Path) -> None:
    names = (
        ["X_0", "X_1", "Y_0", "Y_1"] if version == 1 else ["X[0,0]", "X[0,1]", "Y[0,0]", "Y[0,1]"]
    )
    a, b, c, d = names
    text = (V1 if version == 1 else V2) + INPUTS.format(a, b)
    text += f"(assert (>= (* 2.0 {a}) (* {b} {b})))\n"
    text += f"(assert (or (and (!= {c} 0.0) (<= (* {c} {d}) 0.25) (>= {a} 0)) (> (* {b} {c}) 9)))"
    file = tmp_path / "file.vnnlib.gz"
    file.write_bytes(gzip.compress(text.encode()))
    prop = sc.read_vnnlib(file)
    assert len(prop.cases) == 1
    assert "polynomial constraints on outputs and inputs" in repr(prop)
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).double()
    model[0].weight.data, model[0].bias.data = torch.eye(2, dtype=F64), torch.zeros(2, dtype=F64)
    found = sc.check(model, prop.box, prop, device="cpu", progress=False)
    points = found.preimage.partition.sample(400_000, dtype=F64)
    with torch.no_grad():
        share = float(
            prop.violated(
                points.view(-1, *prop.input_shape), model(points).view(-1, *prop.output_shape)
            )
            .double()
            .mean()
        )
    assert found.share == pytest.approx(share, abs=3e-3)
    met = 0.5 ** (1 / 3)  # where y^2 / 2 = 1 / 4 y
    above = 0.25 + 0.25 * math.log(4 * met) - 1 / 12
    assert found.area == pytest.approx(above + 1 - 1 / 6, abs=1e-6)


def test_files_with_a_degree_that_is_too_high(tmp_path: Path) -> None:
    file = tmp_path / "file.vnnlib"
    file.write_text(V1 + f"(assert (<= (* {'X_0 ' * 13}) 1))")
    with pytest.raises(FileError, match="line 5, column 13: a product of 13 variables is not read"):
        sc.read_vnnlib(file)
    power = f"(* {'(+ X_0 X_1 Y_0 Y_1 1) ' * 6})"
    file.write_text(V1 + f"(assert (<= (* {power} {power}) 1))")
    with pytest.raises(FileError, match="more than 10,000 terms"):
        sc.read_vnnlib(file)


def conditions(part: sc.Partition, formula: Any) -> sc.OutputCondition:
    return part.preimage(formula).condition


def test_boxes_come_on_top_of_products() -> None:
    part = relu()
    condition = conditions(part, (x * y >= 0.25) | (z * x >= 0.9))
    case = sc.results.PropertyCase(torch.tensor([0.0, -1.0]), torch.tensor([1.0, 0.5]), condition)
    found = part.check(case)
    assert found.covered == pytest.approx(0.375)
    points = part.sample(200_000, dtype=F64)
    inside = (points[:, 0] >= 0) & (points[:, 1] <= 0.5)
    share = float((condition(points.relu(), points) & inside).double().mean())
    assert found.share == pytest.approx(share, abs=5e-3)
    again = sc.OutputCondition(
        *(getattr(condition, name) for name in ("A", "b", "strict", "C", "start", "Q", "factors"))
    )
    assert part.preimage(list(again)).area == pytest.approx(part.preimage(condition).area)
    with pytest.raises(SplineCamError, match="share `factors`"):
        part.preimage([*condition, *conditions(part, x * x <= 1)])


@pytest.mark.parametrize("slope", [1.0, 0.3, -0.7])
def test_points_at_which_limits_meet_are_decided_exactly(slope: float) -> None:
    """Rounding cannot tell the limits apart where the border of the domain meets z = 0."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[slope, 0.1], [-slope, -0.1]]))
        model[0].bias.copy_(torch.tensor([-1.1, 1.1]) * slope)
        model[2].weight.copy_(torch.tensor([[1.0, -1.0]]))
        model[2].bias.zero_()
    domain = sc.Domain.polygon([[0.5, -1], [2, -1], [2, 0], [0.5, 0]])
    part = sc.partition(model, domain, device="cpu", progress=False)
    near = (-y <= 0.1 * z) & (2 * x * z <= y * y)
    assert part.check((z > 0) & near).status == "holds"
    met = part.check((z >= 0) & near)  # at the point itself
    assert met.status == "unresolved"
    assert met.undecided_area < 1e-15
    assert part.check((z >= 0) & near & (y < 0)).status == "holds"
    assert part.check((z != 0) & near & (z >= 0) & (z * z > 0)).status == "holds"
    assert part.check((z >= 0) & near & (x * z >= -1e-9)).status == "unresolved"
    assert part.check((-y <= 0.1 * z + 1e-6) & (2 * x * z <= y * y)).status == "violated"
