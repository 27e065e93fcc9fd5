"""Random networks, many of them degenerate: the fast partition has the exact oracle's cells."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import exact_boundaries
import splinecam
import splinecam.testing.oracle
from checks import ATOL, assert_exact
from splinecam.geometry.domain import Domain
from splinecam.testing import assert_same_cells, assert_valid, exact_partition
from strategies import (
    ImageNet,
    Net,
    boxes,
    domains,
    examples,
    image_nets,
    maxima_nets,
    nets,
    planes,
)


def fast(model: nn.Module, domain: Domain) -> Any:
    return splinecam.partition(model, domain, device="cpu", progress=False)


@examples(80)
@given(nets(), domains())
def test_same_cells_as_the_oracle(net: Net, domain: Domain) -> None:
    assert_exact(net.module(), domain)


@examples(40)
@given(nets(depth=1, width=16), boxes())
def test_same_cells_in_one_wide_layer(net: Net, domain: Domain) -> None:
    assert_exact(net.module(), domain)


@examples(20)
@given(st.data())
def test_same_cells_on_a_plane_in_input_space(data: st.DataObject) -> None:
    inputs = data.draw(st.integers(3, 6))
    assert_exact(data.draw(nets(inputs=inputs, width=5)).module(), data.draw(planes(inputs)))


@examples(40)
@given(maxima_nets(), domains())
def test_same_cells_with_maxima_and_sorted_groups(net: Net, domain: Domain) -> None:
    assert_exact(net.module(), domain)


@examples(40)
@given(image_nets(), domains())
def test_same_cells_with_max_pooling_of_images(net: ImageNet, domain: Domain) -> None:
    assert_exact(net.module(), domain)


# --------------------------------------------------------------------------------- transforms


def moved_net(net: Net, to: Tensor, shift: Tensor) -> Net:
    """The network of ``y = to @ x + shift`` that does at y what ``net`` does at x."""
    first = net.layers[0]
    back = torch.linalg.inv(to)
    weight = torch.tensor(first.weight, dtype=torch.float64) @ back
    bias = torch.tensor(first.bias, dtype=torch.float64) - weight @ shift
    moved = replace(first, weight=tuple(map(tuple, weight.tolist())), bias=tuple(bias.tolist()))
    return Net((moved, *net.layers[1:]))


def moved_back(part: Any, domain: Domain, to: Tensor, shift: Tensor) -> Any:
    """The partition of the moved network, in the coordinates before."""
    return SimpleNamespace(
        domain=domain,
        vertices=(part.vertices - shift) @ torch.linalg.inv(to).T,
        mesh=part.mesh,
        _face_vertices=part._face_vertices,
        weight=part.weight @ to,
        bias=part.bias + part.weight @ shift,
        areas=part.areas / torch.linalg.det(to).abs(),
    )


def rotation(degrees: float) -> Tensor:
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


EYE = torch.eye(2, dtype=torch.float64)
MOVES = {
    "quarter turn": (rotation(90).round(), (0.0, 0.0)),
    "turn by 33 degrees": (rotation(33), (0.0, 0.0)),
    "scale by 1e-9": (EYE * 1e-9, (0.0, 0.0)),
    "scale by 1e9": (EYE * 1e9, (0.0, 0.0)),
    "shift": (EYE, (100.0, -37.0)),
    "stretch": (torch.tensor([[1.0, 0.0], [0.0, 64.0]], dtype=torch.float64), (0.0, 0.0)),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", MOVES)
@examples(20)
@given(net=st.one_of(nets(depth=2), maxima_nets(depth=2)), domain=domains())
def test_moving_the_plane_moves_the_cells(name: str, net: Net, domain: Domain) -> None:
    to, shift = MOVES[name][0], torch.tensor(MOVES[name][1], dtype=torch.float64)
    net = Net((replace(net.layers[0], skip=False), *net.layers[1:]))
    moved = fast(moved_net(net, to, shift).module(), Domain.polygon(domain.corners @ to.T + shift))
    exact = exact_partition(net.module(), domain)
    assert not moved.unresolved
    assert_valid(moved)
    assert_same_cells(moved_back(moved, domain, to, shift), exact, atol=ATOL)


def permuted(net: Net, order: list[int]) -> Net:
    """The network with the units of its first layer in another order."""
    first, second, *rest = net.layers
    keep = [i for i in order if i < len(first.bias)]
    before = replace(
        first,
        weight=tuple(first.weight[i] for i in keep),
        bias=tuple(first.bias[i] for i in keep),
    )
    weight = tuple(tuple(row[i] for i in keep) for row in second.weight)
    return Net((before, replace(second, weight=weight), *rest))


@examples(15)
@given(nets(depth=2), domains(), st.permutations(range(6)))
def test_permuting_units_keeps_the_cells(net: Net, domain: Domain, order: list[int]) -> None:
    first, second, *rest = net.layers
    net = Net((replace(first, skip=False), replace(second, skip=False), *rest))
    exact = exact_partition(net.module(), domain)
    assert_same_cells(fast(permuted(net, order).module(), domain), exact, atol=ATOL)


@examples(20)
@given(st.one_of(nets(depth=2), maxima_nets(depth=2)), boxes(), st.sampled_from([0.5, 0.25, 1 / 3]))
def test_tiles_of_the_domain_add_up(net: Net, box: Domain, ratio: float) -> None:
    model = net.module()
    whole = fast(model, box)
    low, high = box.corners.min(0).values, box.corners.max(0).values
    middle = low + ratio * (high - low)
    areas = torch.zeros_like(whole.areas)
    for x0, x1 in ((low[0], middle[0]), (middle[0], high[0])):
        for y0, y1 in ((low[1], middle[1]), (middle[1], high[1])):
            tile = fast(model, Domain.box((x0, y0), (x1, y1)))
            home = whole.locate(box.embed(tile.centroids))
            assert (home >= 0).all()
            areas.index_add_(0, home, tile.areas)
            # The tile's cells lie in the whole's, so their maps are the same.
            assert torch.allclose(tile.weight, whole.weight[home], rtol=0, atol=slack(whole.weight))
    assert torch.allclose(areas, whole.areas, rtol=0, atol=ATOL * float(box.area))


def slack(weight: Tensor) -> float:
    return ATOL * (1 + float(weight.abs().max()))


def test_the_oracle_is_not_the_fast_path() -> None:
    """A property test proves nothing if both sides are one program."""
    files = list(Path(splinecam.testing.oracle.__file__).parent.glob("*.py"))
    files.append(Path(exact_boundaries.__file__))
    imports = {
        line.split()[1]
        for file in files
        for line in file.read_text().splitlines()
        if line.startswith(("import splinecam", "from splinecam"))
    }
    assert len(files) >= 4
    assert "splinecam.testing.oracle.steps" in imports
    others = {name for name in imports if not name.startswith("splinecam.testing.oracle")}
    assert others <= {"splinecam.geometry.domain", "splinecam.errors"}
