from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.kernels.kernel import kernel_for
from splinecam.network.capture import capture
from splinecam.solid.dropping import Dropping, _unchanged
from splinecam.solid.front import Front, Target

SIZES = (3, 16, 33, 2), (3, 40, 16, 16, 2)
BOXES = [
    sc.Domain.cube(-1, 1),
    sc.Domain.tetrahedron([0.0, 0, 0], [2, 0, 0], [0.5, 2, 0], [0.3, 0.2, 1.7]),
    sc.Domain.box3((1e6, -1, -1e-6), (1e6 + 1, 1, 1e-6)),
]


def dropped(front: Front, dropping: Dropping) -> Tensor:
    """The cells (C,) that bounds leave out, and no signs at the corners."""
    every = torch.ones(front.complex.num_cells, dtype=torch.bool)
    return ~dropping._reached(front, every, *front.complex.cell_corners(), 0.0)


@pytest.mark.few(2)
@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("level", [0.02, -0.1])
def test_no_point_of_a_cell_that_is_left_out_is_on_the_other_side(
    box: sc.Domain, sizes: tuple[int, ...], level: float
) -> None:
    torch.manual_seed(len(sizes))
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    every = [x for layer in layers for x in (layer, nn.ReLU())]
    model = nn.Sequential(*every[:-1]).double()
    program, target = capture(model, (3,)), Target(torch.tensor([1.0, -1.0]).double(), level)
    dropping = Dropping.of(program, target)
    assert dropping.chain is not None
    plain = Dropping(kernel_for(torch.device("cpu")), None, Counter())
    front = Front.of(program, box.centred, target)
    while front.layer is not None:
        out = dropped(front, dropping)
        # Other bounds of the same kind leave out about the same cells.
        assert int((dropped(front, plain) ^ out).sum()) <= 3 + len(out) // 20
        offsets, corners = front.complex.cell_corners()
        for cell in out.nonzero()[:, 0].tolist()[:50]:
            at = front.complex.uvw[corners[offsets[cell] : offsets[cell + 1]]]
            weight = torch.rand((200, len(at)), dtype=torch.float64) ** 4
            f = target.of(program(box.centred.to_input(weight @ at / weight.sum(1, keepdim=True))))
            assert bool((f > 0).all()) or bool((f < 0).all())
        front = front.carried()
        assert int(out.sum()) > 0 or len(out) < 100


def test_cells_that_a_cut_left_whole() -> None:
    parent = torch.tensor([0, 1, 1, 2, 4, 4, 4, 5])
    assert _unchanged(parent).tolist() == [True, False, False, True, False, False, False, True]
    assert _unchanged(parent[:0]).tolist() == []


def test_only_pieces_are_left_out_after_a_cut() -> None:
    program, target = capture(nn.Linear(3, 1).double(), (3,)), Target(torch.ones(1).double(), 99.0)
    dropping, front = Dropping.of(program, target), Front.of(program, BOXES[0].centred, target)
    dropping = replace(dropping, chain=None)
    assert dropping.without_empty(front, torch.tensor([0]))[0].complex.num_cells == 1
    assert dropping.without_empty(front)[0].complex.num_cells == 0
