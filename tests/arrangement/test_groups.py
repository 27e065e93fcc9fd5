"""Groups: members picked by strides or by table are the same, and so are the winners."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from splinecam._util.tolerances import EPS
from splinecam.arrangement.envelope import CandidateFaces, Groups, find_candidates
from splinecam.geometry.domain import Domain
from splinecam.geometry.subdivision import polygon_mesh
from splinecam.network.capture import capture
from splinecam.network.nonlinearities import MaxNonlinearity

POOLS = {
    "plain": (nn.MaxPool2d(2), (3, 8, 6), True),
    "overlapping": (nn.MaxPool2d(3, stride=2), (2, 9, 7), True),
    "dilated": (nn.MaxPool2d(2, stride=3, dilation=2), (2, 9, 9), True),
    "padded": (nn.MaxPool2d(3, stride=2, padding=1), (3, 8, 8), False),
    "ceil": (nn.MaxPool2d(2, ceil_mode=True), (1, 5, 5), False),
    "line": (nn.MaxPool1d(3, stride=1), (2, 9), True),
    "solid": (nn.MaxPool3d(2), (1, 4, 4, 4), True),
    "large": (nn.MaxPool2d(4), (2, 9, 9), True),
}


def layer_of(pool: nn.Module, shape: tuple[int, ...]) -> MaxNonlinearity:
    layer = capture(pool, shape).layers[0]
    assert isinstance(layer, MaxNonlinearity)
    return layer


@pytest.mark.parametrize("name", POOLS)
def test_columns_are_the_members(name: str) -> None:
    pool, shape, regular = POOLS[name]
    layer = layer_of(pool, shape)
    z = torch.randn(5, *shape, dtype=torch.float64)
    columns = torch.stack(list(layer.groups.columns(z.flatten(1))), -1)
    assert torch.equal(columns.flatten(1, -2), z.flatten(1)[:, layer.members])
    assert all(start >= 0 for start, _ in layer.groups._strides) == regular
    part = z.flatten(1)[1:4]  # rows in the middle of a larger tensor
    assert torch.equal(torch.stack(list(layer.groups.columns(part)), -1), columns[1:4])


@pytest.mark.parametrize("name", POOLS)
def test_the_cut_computes_the_pool(name: str) -> None:
    pool, shape, _ = POOLS[name]
    z = torch.randn(5, *shape, dtype=torch.float64) - 3
    assert torch.equal(layer_of(pool, shape).apply(z), pool(z))


@pytest.mark.parametrize("name", POOLS)
def test_winners_differ_exactly_where_the_largest_members_differ(name: str) -> None:
    pool, shape, _ = POOLS[name]
    layer = layer_of(pool, shape)
    z = torch.randn(6, *shape, dtype=torch.float64).flatten(1)
    slack = torch.zeros(layer.groups.count, dtype=torch.float64)
    winner = layer.groups.winners(z, slack)
    unit = layer.members.gather(1, z[:, layer.members].argmax(2).T).T
    assert torch.equal(winner[1:] != winner[:-1], unit[1:] != unit[:-1])


def test_members_within_the_slack_are_equal_to_the_largest() -> None:
    groups = Groups(torch.tensor([[0, 1, 2]]), (1,))
    z = torch.tensor([[1.0, 1.5, 2.0], [0.0, 1.5, 2.0]], dtype=torch.float64)
    assert groups.winners(z, torch.tensor([1.0], dtype=torch.float64)).tolist() == [[0], [1]]


def test_selected_groups_keep_their_members() -> None:
    groups = Groups(torch.arange(12).view(6, 2), (2, 3)).select(torch.tensor([4, 1]))
    assert groups.count == 2
    assert groups.members.tolist() == [[8, 9], [2, 3]]


def test_only_groups_whose_winner_may_change_are_looked_at() -> None:
    mesh = polygon_mesh(Domain.box(-1, 1).corners)
    u = mesh.uv[:, 0]
    still, off = torch.zeros_like(u), torch.full_like(u, EPS)
    columns = [u, -u, still, still, u, u + 3, still, off, u + 5, off]
    z = torch.stack(columns, 1)
    groups = Groups(torch.tensor([[0, 1, 2], [2, 3, 3], [4, 5, 6], [6, 7, 2], [0, 8, 9]]), (5,))
    asked = []

    class Spy(Groups):
        def select(self, chosen: Tensor) -> Groups:
            asked.append(chosen.tolist())
            return super().select(chosen)

    spy = Spy(groups.members, groups.shape)
    found = find_candidates(mesh, z, spy, torch.full((10,), EPS), z.amin(0), z.amax(0))
    assert asked == [[0]], "dead units, clear winners and units equal to rounding are left out"
    assert found.group.tolist() == [0]
    assert found.units.tolist() == [[0, 1, 2]]


def test_candidates_with_fewer_units() -> None:
    units = torch.tensor([[7, 2, 7], [4, 2, 9]])
    few, used = CandidateFaces(torch.arange(2), torch.arange(2), units).renumbered(11)
    assert used.tolist() == [2, 4, 7, 9]
    assert torch.equal(used[few.units], units)
