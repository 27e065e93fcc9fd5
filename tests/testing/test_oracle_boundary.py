"""Decision boundaries, level sets and class areas against the exact oracle."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import splinecam as sc
from exact_boundaries import (
    ExactClasses,
    ExactSegment,
    exact_boundary,
    exact_classes,
    exact_level_set,
)
from splinecam.geometry.domain import Domain
from splinecam.questions.curves import Curves
from splinecam.testing import ExactPartition, exact_partition
from strategies import Layer, Net, boxes, domains, examples, layers, maxima_nets, nets

TOL = 1e-10  # of the domain's diameter, or of its area


def fast(model: nn.Module, domain: Domain) -> sc.Partition:
    return sc.partition(model, domain, device="cpu", progress=False)


# ----------------------------------------------------------------------------- the comparison


def distances(points: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """From points (N, 2) to segments (M, 2, 2), (N, M)."""
    start, along = ends[:, 0], ends[:, 1] - ends[:, 0]
    square = (along**2).sum(1)
    offset = points[:, None] - start
    t = (offset * along).sum(2)
    t = np.divide(t, square, out=np.zeros_like(t), where=square > 0).clip(0, 1)
    return np.hypot(*np.moveaxis(offset - t[:, :, None] * along, 2, 0))


def between(ends: np.ndarray, t: float) -> np.ndarray:
    return ends[:, 0] + t * (ends[:, 1] - ends[:, 0])


def exact_ends(segments: list[ExactSegment]) -> np.ndarray:
    return np.array([(s.start, s.end) for s in segments], dtype=float).reshape(-1, 2, 2)


@dataclass(frozen=True)
class Move:
    """Networks are compared after ``y = to @ x + shift`` in the plane and with larger outputs."""

    to: Tensor
    shift: Tensor
    factor: float = 1.0

    def model(self, net: Net) -> nn.Module:
        changed = list(net.layers)
        weight = torch.tensor(changed[0].weight, dtype=torch.float64) @ torch.linalg.inv(self.to)
        bias = torch.tensor(changed[0].bias, dtype=torch.float64) - weight @ self.shift
        changed[0] = _with(changed[0], weight, bias)
        weight = torch.tensor(changed[-1].weight, dtype=torch.float64) * self.factor
        bias = torch.tensor(changed[-1].bias, dtype=torch.float64) * self.factor
        changed[-1] = _with(changed[-1], weight, bias)
        return Net(tuple(changed)).module()

    def domain(self, domain: Domain) -> Domain:
        return Domain.polygon(domain.corners @ self.to.T + self.shift)

    def back(self, points: Tensor) -> Tensor:
        return (points - self.shift) @ torch.linalg.inv(self.to).T


def _with(layer: Layer, weight: Tensor, bias: Tensor) -> Layer:
    rows = tuple(tuple(row) for row in weight.tolist())
    return replace(layer, weight=rows, bias=tuple(bias.tolist()))


STAY = Move(torch.eye(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))


def differences(
    curves: Any,
    exact: list[ExactSegment],
    labels: np.ndarray,
    sides: np.ndarray,
    *,
    tol: float,
    move: Move = STAY,
) -> list[str]:
    """Where curves differ from the exact ones: labels (S, 2) and sides (S, 2), as the oracle's."""
    ends = move.back(curves.ends).numpy()
    size = np.hypot(*(ends[:, 1] - ends[:, 0]).T)
    true = exact_ends(exact)
    wrong = []
    if not (curves.lengths > 0).all():
        wrong.append(f"{int((size <= 0).sum())} segments of length zero")
    unique = {tuple(sorted(s)) for s in curves.segments.tolist()}
    if len(unique) < len(curves):
        wrong.append(f"{len(curves) - len(unique)} segments twice")
    wanted = sum(s.length for s in exact)
    if not abs(size.sum() - wanted) <= tol * (1 + len(exact) + len(size)):
        wrong.append(f"length {size.sum():.17g} instead of {wanted:.17g}")
    if len(ends) == 0 or len(true) == 0:
        return wrong
    for t in (0.0, 0.5, 1.0):
        off = distances(between(ends, t), true).min(1)
        wrong += [
            f"segment {ends[i].tolist()} at {t} is {off[i]:.3g} off"
            for i in np.flatnonzero(off > tol)
        ]
    for t in (0.0, 0.29, 0.5, 0.83, 1.0):
        off = distances(between(true, t), ends).min(1)
        wrong += [
            f"{exact[i]} at {t} is missing, by {off[i]:.3g}" for i in np.flatnonzero(off > tol)
        ]
    wrong += region_differences(curves)
    return wrong + label_differences(ends, exact, labels, sides, tol)


def region_differences(curves: Any) -> list[str]:
    """Segments that do not lie in the regions left and right of them."""
    part, middle = curves.partition, curves.ends.mean(1)
    d = curves.ends[:, 1] - curves.ends[:, 0]
    slack = 1e-10 * float(part.domain.diameter)
    wrong = []
    for k, (left, right) in enumerate(curves.regions.tolist()):
        for place, region in enumerate((left, right)):
            if region < 0:
                continue
            corners = part.vertices[
                part._face_vertices[part.mesh.offsets[region] : part.mesh.offsets[region + 1]]
            ]
            along = corners.roll(-1, 0) - corners
            offset = middle[k] - corners
            depth = (along[:, 0] * offset[:, 1] - along[:, 1] * offset[:, 0]) / along.norm(dim=1)
            side = corners.mean(0) - middle[k]
            turn = float(d[k, 0] * side[1] - d[k, 1] * side[0]) * (1 - 2 * place)
            if float(depth.min()) < -slack or (left != right and turn <= 0):
                wrong.append(f"segment {curves.ends[k].tolist()} is not beside region {region}")
    return wrong


def label_differences(
    ends: np.ndarray, exact: list[ExactSegment], labels: np.ndarray, sides: np.ndarray, tol: float
) -> list[str]:
    """Segments of which no exact one at the same place has the same label, sides and direction."""
    true = exact_ends(exact)
    along, path = ends[:, 1] - ends[:, 0], true[:, 1] - true[:, 0]
    middle = between(ends, 0.5)
    # Shorter ones have no direction that could be trusted.
    clear = np.hypot(*along.T) > 1e4 * tol
    near = distances(middle, true) <= tol
    names = np.array([s.label for s in exact])
    beside = np.array([s.sides for s in exact])
    same = near & (names[None] == labels[:, None]).all(2)
    dot = along @ path.T
    forward = (beside[None] == sides[:, None]).all(2) & (dot > 0)
    back = (beside[None, :, ::-1] == sides[:, None]).all(2) & (dot < 0)
    ok = (same & (forward | back)).any(1)
    return [
        f"segment {ends[i].tolist()} has label {labels[i].tolist()} and sides {sides[i].tolist()}, "
        f"not those of {[exact[j] for j in np.flatnonzero(near[i])]}"
        for i in np.flatnonzero(clear & ~ok)
    ]


def signs_of(curves: Any) -> np.ndarray:
    """The oracle's sides of a level set: from the outputs beside each segment."""
    part = curves.partition
    region = curves.regions
    beside = torch.zeros_like(region)
    for k in (0, 1):
        inside = region[:, k] >= 0
        d = (curves.ends[inside, 1] - curves.ends[inside, 0]) * (0.5 - k) * 2
        normal = torch.stack([-d[:, 1], d[:, 0]], 1)
        weight = part.weight[region[inside, k], curves.output]
        scale = weight.norm(dim=1) * normal.norm(dim=1)
        slope = (weight * normal).sum(1)
        flat = weight.norm(dim=1) <= 1e-9 * part.weight.abs().max()
        beside[inside, k] = torch.where(flat | (slope.abs() < 1e-9 * scale), 0, slope.sign()).long()
    return beside.numpy()


def boundary_differences(
    part: Any, exact: ExactPartition, kind: str, level: float = 0.0, move: Move = STAY
) -> list[str]:
    tol = TOL * float(exact.domain.diameter)
    found = part.decision_boundary(kind=kind, level=level * move.factor)
    true = exact_boundary(exact, kind=kind, level=level)
    wrong = differences(found, true, found.classes.numpy(), found.sides.numpy(), tol=tol, move=move)
    wrong += polyline_differences(found)
    if found.unresolved:
        wrong.append(f"{len(found.unresolved)} unresolved: {found.unresolved[:2]}")
    return [f"{kind}, level {level}: {text}" for text in wrong]


def level_differences(
    part: Any, exact: ExactPartition, levels: list[float], output: int, move: Move = STAY
) -> list[str]:
    tol = TOL * float(exact.domain.diameter)
    found = part.level_set([level * move.factor for level in levels], output=output)
    true = exact_level_set(exact, levels, output=output)
    labels = found.label[:, None].expand(-1, 2).numpy()
    wrong = differences(found, true, labels, signs_of(found), tol=tol, move=move)
    wrong += polyline_differences(found)
    if found.unresolved:
        wrong.append(f"{len(found.unresolved)} unresolved: {found.unresolved[:2]}")
    return [f"levels {levels} of output {output}: {text}" for text in wrong]


def class_differences(
    part: Any, exact: ExactPartition, kind: str, level: float = 0.0, move: Move = STAY
) -> list[str]:
    tol = TOL * float(exact.area)
    found = part.class_regions(kind=kind, level=level * move.factor)
    true = exact_classes(exact, kind=kind, level=level)
    scale = abs(float(torch.linalg.det(move.to)))
    wrong = []
    for k, (area, wanted) in enumerate(
        zip((found.areas / scale).tolist(), true.areas, strict=True)
    ):
        if not abs(area - float(wanted)) <= tol:
            wrong.append(f"class {k} has {area:.17g} instead of {float(wanted):.17g}")
        pieces = sum(piece.area for piece in found.polygons(k)) / scale
        if not abs(pieces - area) <= tol:
            wrong.append(f"the polygons of class {k} have {pieces:.17g} instead of {area:.17g}")
    tied = found.tied_area / scale
    if not abs(tied - float(true.tied)) <= tol:
        wrong.append(f"tied area {tied:.17g} instead of {float(true.tied):.17g}")
    boundary = part.decision_boundary(kind=kind, level=level * move.factor)
    apart = (boundary.sides[:, 0] != boundary.sides[:, 1]) & (boundary.sides >= 0).all(1)
    wanted_length = float(boundary.lengths[apart].sum())
    if not abs(found.boundary_length() - wanted_length) <= TOL * (1e-20 + wanted_length):
        wrong.append(
            f"boundary length {found.boundary_length():.17g} instead of {wanted_length:.17g}"
        )
    return [f"{kind}, level {level}: {text}" for text in wrong]


def polyline_differences(curves: Curves) -> list[str]:
    """Lines that do not hang together, or end where they go on; segments in no line or in two."""
    lines = curves.polylines
    wrong = []
    seen = sorted(i for line in lines for i in line.segments.tolist())
    if seen != list(range(len(curves))):
        wrong.append("the polylines do not have every segment once")
    degree: dict[tuple[int, int], int] = {}
    for label, ends in zip(curves.label.tolist(), curves.segments.tolist(), strict=True):
        for end in ends:
            degree[label, end] = degree.get((label, end), 0) + 1
    for line in lines:
        points = line.lines.points[
            line.lines.offsets[line.index] : line.lines.offsets[line.index + 1]
        ].tolist()
        hops = list(
            zip(points, [*points[1:], points[0]] if line.closed else points[1:], strict=False)
        )
        mine = [tuple(curves.segments[i].tolist()) for i in line.segments.tolist()]
        if [tuple(sorted(h)) for h in hops] != [tuple(sorted(m)) for m in mine]:
            wrong.append(f"{line} is not its segments in order")
        if {int(curves.label[i]) for i in line.segments.tolist()} != {line.label}:
            wrong.append(f"{line} has segments of other labels")
        inner = points if line.closed else points[1:-1]
        if not line.closed:
            ends = points[0], points[-1]
            loose = [p for p in ends if degree[line.label, p] == 2]
            wrong += [f"{line} ends where two segments meet"] * len(loose)
        bad = [p for p in inner if degree[line.label, p] != 2]
        if bad and not (line.closed and len(bad) == 1):
            wrong.append(f"{line} runs through a junction")
    if not abs(float(lines.lengths.sum()) - curves.length) <= 1e-12 * (1 + curves.length):
        wrong.append("the lengths of the polylines are not those of the segments")
    return wrong


def all_differences(
    part: Any, exact: ExactPartition, levels: list[float], move: Move = STAY
) -> list[str]:
    """Everything that the oracle says of a network, by everything that is asked."""
    outputs = part.values.shape[1]
    wrong = []
    for level in levels if outputs == 1 else [0.0]:
        for kind in ("argmax",) if outputs == 1 else ("argmax", "argmin"):
            wrong += boundary_differences(part, exact, kind, level, move)
            wrong += class_differences(part, exact, kind, level, move)
    wrong += boundary_differences(part, exact, "pairwise", move=move)
    for output in range(outputs):
        wrong += level_differences(part, exact, levels, output, move)
    return wrong


def assert_exact(net: Net, domain: Domain, levels: list[float], move: Move = STAY) -> None:
    part = fast(move.model(net), move.domain(domain))
    wrong = all_differences(part, exact_partition(net.module(), domain), levels, move)
    assert not wrong, "\n".join(wrong[:8])


# ------------------------------------------------------------------- the oracle, known by hand


def net(*layers: Layer) -> Net:
    return Net(layers)


FOLD = Layer(((1.0, 0.0), (-1.0, 0.0)), (0.0, 0.0))  # relu(x), relu(-x)
BOX = Domain.box(-1, 1)


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (net(FOLD, Layer(((0.0, 0.0), (-1.0, -1.0)), (0.0, 0.0), "none")), [((0, 1), (0, 0), 2.0)]),
        (net(FOLD, Layer(((0.0, 0.0), (0.0, 1.0)), (0.0, 0.0), "none")), [((0, 1), (1, 0), 2.0)]),
        (net(FOLD, Layer(((0.0, 1.0), (0.0, 0.0)), (0.0, 0.0), "none")), [((0, 1), (0, 0), 2.0)]),
        (net(Layer(((1.0, 0.0), (0.0, 0.0)), (1.0, 0.0), "none")), [((0, 1), (0, -1), 2.0)]),
        (net(Layer(((1.0, 2.0), (1.0, 2.0)), (0.0, 0.0), "none")), []),
        (net(Layer(((1.0, 0.0),), (0.0,), "none")), [((0, 1), (1, 0), 2.0)]),
    ],
    ids=["touches", "area below", "area above", "on the border", "equal", "one output"],
)
def test_known_boundaries(model: Net, found: list[Any]) -> None:
    exact = exact_partition(model.module(), BOX)
    for kind in ("argmax", "pairwise"):
        pieces = exact_boundary(exact, kind=kind)
        seen = [(s.label, tuple(sorted(s.sides, reverse=True)), s.length) for s in pieces]
        assert seen == found
    assert not boundary_differences(fast(model.module(), BOX), exact, "argmax")


def test_known_areas() -> None:
    exact = exact_partition(
        net(Layer(((1.0, 0.0), (-1.0, 0.0)), (-0.5, -0.5))).module(), Domain.box(-1, 1)
    )
    assert exact_classes(exact) == ExactClasses((Fraction(3), Fraction(1)), Fraction(2))
    assert exact_classes(exact, kind="argmin") == ExactClasses(
        (Fraction(3), Fraction(1)), Fraction(2)
    )


def test_known_level_sets() -> None:
    fold = net(FOLD, Layer(((1.0, 1.0),), (0.0,), "none"))  # |x|
    pieces = exact_level_set(exact_partition(fold.module(), BOX), [0.5, 0.0, 1.0])
    places = sorted((s.label[0], float(s.start[0]), s.sides) for s in pieces)
    assert [place[:2] for place in places] == [(0, 0.0), (1, -0.5), (1, 0.5), (2, -1.0), (2, 1.0)]
    assert [place[2] for place in places[:3]] == [(1, 1), (1, -1), (1, -1)]
    assert sum(s.length for s in pieces) == 10.0


def test_the_comparison_sees_every_error() -> None:
    model = net(FOLD, Layer(((2.0, 1.0), (-1.0, 3.0), (0.5, 0.0)), (0.0, 0.25, 0.5), "none"))
    part, exact = fast(model.module(), BOX), exact_partition(model.module(), BOX)
    found, true = part.decision_boundary(), exact_boundary(exact)
    labels, sides = found.classes.numpy(), found.sides.numpy()
    assert len(found) > 1
    assert not differences(found, true, labels, sides, tol=TOL)
    less = found.select(torch.arange(len(found)) > 0)
    assert differences(less, true, labels[1:], sides[1:], tol=TOL)
    assert differences(found, true[1:], labels, sides, tol=TOL)
    assert differences(found, true, labels[:, ::-1], sides, tol=TOL)
    assert differences(found, true, labels, sides[:, ::-1], tol=TOL)
    assert differences(replace(found, points=found.points + 1e-9), true, labels, sides, tol=TOL)
    turned = replace(found, regions=found.regions.roll(1, 0))
    assert differences(turned, true, labels, sides, tol=TOL)


# ---------------------------------------------------------------------------- random networks


@st.composite
def heads(draw: st.DrawFn) -> Net:
    """Up to five outputs, among them equal and constant ones, often after a last activation."""
    body = draw(nets(depth=2)).layers[:-1]
    act = draw(st.sampled_from(["none", "relu", "abs", "hardtanh"]))
    return Net((*body, draw(layers(len(body[-1].bias), draw(st.integers(1, 5)), act))))


LEVELS = [0.0, 1.0, -0.5, 0.3125]


@examples(18)
@given(nets(), domains())
def test_as_the_oracle(net: Net, domain: Domain) -> None:
    assert_exact(net, domain, LEVELS)


@examples(18)
@given(heads(), boxes())
def test_as_the_oracle_with_equal_and_dead_outputs(net: Net, domain: Domain) -> None:
    assert_exact(net, domain, LEVELS)


@examples(10)
@given(maxima_nets(depth=2), domains())
def test_as_the_oracle_with_maxima(net: Net, domain: Domain) -> None:
    assert_exact(net, domain, LEVELS)


def turned(degrees: float, scale: float = 1.0) -> Tensor:
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return scale * torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


MOVES = {
    "turn": Move(turned(33), torch.zeros(2, dtype=torch.float64), 1 / 3),
    "shrink": Move(turned(0, 1e-6), torch.zeros(2, dtype=torch.float64), 1e6),
    "grow": Move(turned(71, 1e6), torch.zeros(2, dtype=torch.float64), 1e-12),
    "shift": Move(turned(0), torch.tensor([100.0, -37.0], dtype=torch.float64)),
}


@pytest.mark.parametrize("name", MOVES)
@examples(6)
@given(net=nets(depth=2), domain=domains())
def test_moved_and_scaled_as_the_oracle(name: str, net: Net, domain: Domain) -> None:
    plain = Net(tuple(replace(layer, skip=False) for layer in net.layers))
    assert_exact(plain, domain, LEVELS, MOVES[name])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2)])
def test_a_point_at_which_many_outputs_tie(order: tuple[int, ...]) -> None:
    rows = [(1.0, 0.0), (0.0, 1.0), (-1.0, -1.0)]
    assert_exact(net(Layer(tuple(rows[k] for k in order), (0.0,) * 3, "none")), BOX, [0.0, 1.0])


@pytest.mark.parametrize("lead", [0.5, 5.0])
def test_outputs_that_never_tie(lead: float) -> None:
    """Their ranges meet, or not even these."""
    apart = net(Layer(((1.0, 0.0), (1.0, 0.0)), (lead, 0.0), "none"))
    assert_exact(apart, BOX, [0.0, 10.0])


# ------------------------------------------------------------- ties that rounding may have made


ULP = 2.0**-52
CLOSE = {
    "equal but for 16 ulp": net(Layer(((0.0, 0.0), (0.0, 0.0)), (1.0, 1 + 16 * ULP), "none")),
    "touching but for 16 ulp": net(
        FOLD, Layer(((0.0, 0.0), (-1.0, -1.0)), (1 + 16 * ULP, 1.0), "none")
    ),
    "equal on an area but for 16 ulp": net(
        Layer(((1.0, 0.0), (1.0, 0.0)), (-0.5, -0.25)),
        Layer(((1.0, 0.0), (0.0, 1.0)), (1.0, 1 + 16 * ULP), "none"),
    ),
}


@pytest.mark.parametrize("name", CLOSE)
def test_a_tie_that_rounding_does_not_explain_is_reported(name: str) -> None:
    model = CLOSE[name].module()
    part, exact = fast(model, BOX), exact_partition(model, BOX)
    wrong = boundary_differences(part, exact, "argmax") + class_differences(part, exact, "argmax")
    assert not wrong or part.unresolved or part.decision_boundary().unresolved


@examples(10)
@given(heads(), boxes(), st.integers(0, 2**20))
def test_almost_degenerate_outputs_have_sound_classes(net: Net, domain: Domain, seed: int) -> None:
    """Biases off by 1e-8 to 1e-17: every class wins where it is said to, up to rounding."""
    generator = torch.Generator().manual_seed(seed)
    *body, last = net.layers
    noise = 10 ** -(8 + 9 * torch.rand(len(last.bias), generator=generator, dtype=torch.float64))
    shaken = replace(
        last, bias=tuple(b + d for b, d in zip(last.bias, noise.tolist(), strict=True))
    )
    model = Net((*body, shaken)).module()
    part = fast(model, domain)
    found, boundary = part.class_regions(), part.decision_boundary()
    assert float(found.areas.sum()) == pytest.approx(float(domain.area), rel=1e-12)
    assert not polyline_differences(boundary)
    with torch.no_grad():
        y = model(found.cell_corners)
    y = torch.cat([torch.zeros_like(y), y], 1) if y.shape[1] == 1 else y
    counts = found.cell_offsets.diff()
    own = found.cell_class.repeat_interleave(counts)
    lost = y.amax(1) - y.gather(1, own[:, None])[:, 0]
    assert float(lost.max()) <= 1e-13 * (
        1 + float(part.values.abs().max()) + float(part.weight.abs().max())
    )
