from __future__ import annotations

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS, SAFETY, cluster


def points(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def run(s: Tensor, error: Tensor, line: list[int] | None = None) -> list[list[int]]:
    lines = torch.zeros(len(s), dtype=torch.long) if line is None else torch.tensor(line)
    group, best, _ = cluster(lines, s, error)
    assert torch.equal(group[best], torch.arange(len(best)))
    return [(group == g).nonzero()[:, 0].tolist() for g in range(len(best))]


def test_distant_points_stay_apart():
    assert run(points(0.1, 0.2, 0.3), points(EPS, EPS, EPS)) == [[0], [1], [2]]


def test_equal_points_of_one_line_unite_and_those_of_two_lines_do_not():
    s, error = points(0.5, 0.5, 0.5), points(EPS, EPS, EPS)
    assert run(s, error) == [[0, 1, 2]]
    assert run(s, error, [0, 0, 1]) == [[0, 1], [2]]


def test_a_badly_known_point_joins_the_nearest_and_never_glues_two():
    wide = 1e-3
    s = points(0.500, 0.5004, 0.501)
    assert run(s, points(EPS, wide, EPS)) == [[0, 1], [2]]
    s = points(0.500, 0.5006, 0.501)
    assert run(s, points(EPS, wide, EPS)) == [[0], [1, 2]]


def test_many_badly_known_points_gather_around_the_well_known_one():
    s = points(0.4999, 0.49995, 0.5, 0.50003, 0.5001)
    error = points(1e-4, 1e-4, EPS, 1e-4, 1e-4)
    assert run(s, error) == [[0, 1, 2, 3, 4]]
    _, best, _ = cluster(torch.zeros(5, dtype=torch.long), s, error)
    assert best.tolist() == [2]


def test_a_long_chain_does_not_collapse_into_one_point():
    error = torch.full((100,), 1e-6, dtype=torch.float64)
    s = torch.arange(100, dtype=torch.float64) * 1.5 * SAFETY * 1e-6
    groups = run(s, error)
    assert len(groups) > 20
    assert max(len(g) for g in groups) < 8


def test_a_union_beyond_rounding_is_doubtful_and_one_within_is_not():
    error = points(EPS, EPS)
    line = torch.zeros(2, dtype=torch.long)
    assert not cluster(line, points(0.5, 0.5 + EPS), error)[2].any()
    assert cluster(line, points(0.5, 0.5 + 4 * EPS), error)[2].tolist() == [False, True]


def test_points_that_drift_together_stay_apart() -> None:
    line, s = torch.zeros(3, dtype=torch.long), points(0.5, 0.5 + 2**10 * EPS, 0.9)
    error = points(EPS, EPS, EPS)
    apart = cluster(line, s, error, points(2**12 * EPS, 2**12 * EPS, 0.0))
    assert apart[0].tolist() == [0, 1, 2]
    crossed = cluster(line, s, error, points(2**12 * EPS, -(2**12) * EPS, 0.0))
    assert crossed[0].tolist() == [0, 0, 1]
    assert not crossed[2].any()
