from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from handmade import curves_of, plane
from splinecam._util.graphs import chains
from splinecam.questions.curves import Curves
from strategies import examples

SQUARE = [[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [0.0, 1.0]]


# -- chains --------------------------------------------------------------------------------------


def walked(
    ends: list[tuple[int, int]], label: list[int]
) -> list[tuple[list[int], list[bool], bool]]:
    """Chains by walking: (segments, which are passed backward, closed), in order."""
    meeting: dict[tuple[int, int], list[int]] = {}
    for s, pair in enumerate(ends):
        for node in pair:
            meeting.setdefault((label[s], node), []).append(s)

    def walk(start: int, backward: bool) -> tuple[list[int], list[bool]]:
        line, turned = [start], [backward]
        while True:
            s, back = line[-1], turned[-1]
            node = ends[s][0 if back else 1]
            here = meeting[label[s], node]
            if len(here) != 2 or here[0] == here[1]:
                return line, turned
            other = here[1] if here[0] == s else here[0]
            if other == start:
                return line, turned
            line.append(other)
            turned.append(ends[other][0] != node)

    done: set[int] = set()
    found = []
    for s in sorted(range(len(ends)), key=lambda s: (label[s], s)):
        if s in done:
            continue
        ahead, turned = walk(s, False)
        behind, passed = walk(s, True)
        last = ends[ahead[-1]][0 if turned[-1] else 1]
        circle = last == ends[s][0] and len(meeting[label[s], last]) == 2
        if not circle:
            ahead = behind[:0:-1] + ahead
            turned = [not back for back in passed[:0:-1]] + turned
        done.update(ahead)
        found.append((ahead, turned, circle))
    return found


def listed(
    ends: list[tuple[int, int]], label: list[int]
) -> list[tuple[list[int], list[bool], bool]]:
    found = chains(torch.tensor(ends).view(-1, 2).long(), torch.tensor(label).long())
    starts, closed = found.offsets.tolist(), found.closed.tolist()
    return [
        (found.members[a:b].tolist(), found.backward[a:b].tolist(), circle)
        for a, b, circle in zip(starts[:-1], starts[1:], closed, strict=True)
    ]


@examples(300)
@given(
    st.integers(1, 12).flatmap(
        lambda nodes: st.lists(
            st.tuples(st.integers(0, nodes), st.integers(0, nodes), st.sampled_from([-3, 0, 7])),
            max_size=20,
        )
    )
)
def test_chains_are_those_of_a_walk(segments: list[tuple[int, int, int]]):
    ends, label = [(a, b) for a, b, _ in segments], [kind for _, _, kind in segments]
    assert listed(ends, label) == walked(ends, label)


@examples(100)
@given(st.permutations(range(9)), st.booleans(), st.integers(0, 2**9))
def test_chains_of_a_line_in_any_order(order: list[int], circle: bool, flips: int):
    nodes = [*range(9), 0] if circle else list(range(10))
    ends = [(nodes[i], nodes[i + 1]) for i in order]
    ends = [(b, a) if flips >> s & 1 else (a, b) for s, (a, b) in enumerate(ends)]
    found = listed(ends, [0] * 9)
    assert found == walked(ends, [0] * 9)
    assert [(len(members), closed) for members, _, closed in found] == [(9, circle)]


@pytest.mark.parametrize("circle", [False, True])
def test_a_chain_may_be_very_long(circle: bool):
    n = 100_000
    node = torch.randperm(n + 1)
    ends = torch.stack([node[:-1], torch.cat([node[1:-1], node[:1] if circle else node[-1:]])], 1)
    mixed = torch.randperm(n)
    found = chains(ends[mixed], torch.zeros(n))
    assert found.closed.tolist() == [circle]
    assert not found.backward.any()
    first = int(mixed[found.members[0]])
    assert torch.equal(mixed[found.members], (torch.arange(n) + first) % n)
    assert first == (int(mixed[0]) if circle else 0)


# -- polylines -------------------------------------------------------------------------------------


def test_a_closed_line_does_not_repeat_its_first_point():
    curves = curves_of(SQUARE, [[2, 3], [1, 2], [0, 1], [3, 0]])
    (line,) = curves.polylines
    assert line.closed
    assert line.points.tolist() == [SQUARE[i] for i in (2, 3, 0, 1)]
    assert line.segments.tolist() == [0, 3, 2, 1]
    assert line.length == curves.length == 6
    assert (line.label, line.key) == (0, 0)


def test_a_line_has_the_direction_of_its_lowest_segment():
    curves = curves_of(SQUARE, [[2, 1], [2, 3], [0, 1]])
    (line,) = curves.polylines
    assert not line.closed
    assert line.points.tolist() == [SQUARE[i] for i in (3, 2, 1, 0)]
    assert line.segments.tolist() == [1, 0, 2]


def test_lines_end_where_three_segments_meet():
    curves = curves_of([*SQUARE, [1.0, 3.0]], [[0, 1], [1, 2], [1, 3], [3, 4]])
    assert [line.segments.tolist() for line in curves.polylines] == [[0], [1], [2, 3]]
    assert [line.length for line in curves.polylines] == curves.polylines.lengths.tolist()
    assert float(curves.polylines.lengths.sum()) == pytest.approx(curves.length)


def test_labels_do_not_mix():
    curves = curves_of(SQUARE, [[0, 1], [1, 2], [2, 3]], [4, 1, 4])
    assert [line.key for line in curves.polylines] == [1, 4, 4]
    assert [line.segments.tolist() for line in curves.polylines] == [[1], [0], [2]]


def test_two_segments_between_two_points_are_a_closed_line():
    (line,) = curves_of(SQUARE, [[0, 1], [0, 1]]).polylines
    assert line.closed
    assert line.points.tolist() == SQUARE[:2]


def test_a_loop_and_its_tail():
    curves = curves_of(SQUARE, [[3, 0], [0, 1], [1, 2], [2, 0]])
    assert [line.segments.tolist() for line in curves.polylines] == [[0], [1, 2, 3]]
    # The loop begins and ends at a point where three meet, so it is a line with two ends.
    assert [line.closed for line in curves.polylines] == [False, False]
    assert curves.polylines[1].points.tolist() == [SQUARE[i] for i in (0, 1, 2, 0)]


def test_no_segments_no_lines():
    curves = curves_of(SQUARE, [])
    assert len(curves) == len(curves.polylines) == 0
    assert list(curves.polylines) == []
    assert curves.length == 0
    assert repr(curves) == "Curves(0 segments, 0 polylines, length 0)"


def test_lines_are_a_sequence_of_views():
    lines = curves_of(SQUARE, [[0, 1], [2, 3]]).polylines
    assert lines[-1].points.tolist() == SQUARE[2:]
    assert [line.index for line in lines[::-1]] == [1, 0]
    assert repr(lines) == "Polylines(2, 0 of them closed)"
    assert repr(lines[torch.tensor(1)]) == "Polyline(0, open, 1 segment, length 2)"
    assert lines.segment_offsets.tolist() == [0, 1, 2]
    for index in (2, -3):
        with pytest.raises(IndexError, match=f"polyline {index} of 2"):
            lines[index]


# -- curves ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Coloured(Curves):
    """A subclass with a row per segment and a plain field."""

    colour: Tensor
    name: str

    def key(self, label: int) -> str:
        return f"{self.name} {label}"

    def _summary(self) -> str:
        return f"{self.name}: {super()._summary()}"


@pytest.mark.parametrize(
    "chosen", [torch.tensor([2, 0]), torch.tensor([True, False, True])], ids=["index", "mask"]
)
def test_select_takes_rows_of_everything_but_points(chosen: Tensor):
    plain = curves_of(SQUARE, [[0, 1], [1, 2], [2, 3]], [5, 6, 7])
    curves = Coloured(**vars(plain), colour=torch.tensor([10, 20, 30]), name="ink")
    assert curves.lengths.tolist() == [2, 1, 2]
    part = curves.select(chosen)
    assert type(part) is Coloured
    assert part.points is curves.points
    assert part.colour.tolist() == curves.colour[chosen].tolist()
    assert part.label.tolist() == curves.label[chosen].tolist()
    assert part.lengths.tolist() == [2, 2]
    assert part.name == "ink"
    assert part.polylines[0].key == "ink 5"
    assert repr(part) == "Coloured(ink: 2 segments, 2 polylines, length 4)"


def test_curves_say_what_they_are():
    square = curves_of(SQUARE, [[0, 1], [1, 2], [2, 3], [3, 0]])
    assert repr(square) == "Curves(4 segments, 1 polyline, length 6)"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_gives_the_same_lines():
    part = plane()
    ends = torch.randint(0, 600, (500, 2))
    cpu = curves_of(torch.randn(600, 2), ends, torch.randint(0, 3, (500,)), part=part)
    gpu = Curves(part, *(t.cuda() for t in (cpu.points, cpu.segments, cpu.regions, cpu.label)))
    for name in ("offsets", "points", "segments", "closed", "label"):
        assert torch.equal(getattr(cpu.polylines, name), getattr(gpu.polylines, name).cpu())
