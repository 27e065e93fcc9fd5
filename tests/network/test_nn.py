"""The library's own modules: their values, and the partitions of networks with them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.nn import GroupSort, Maxout, PeriodicEncoding, PiecewiseLinear
from splinecam.testing import assert_same_cells, exact_partition

F64 = torch.float64
KNOTS = torch.tensor([-1.0, -0.25, 0.5, 2.0], dtype=F64)
VALUES = torch.tensor([0.3, -1.0, 0.75, 0.3], dtype=F64)


def regions(model: nn.Module, low: float = -2, high: float = 2) -> int:
    part = sc.partition(model, sc.Domain.box(low, high), progress=False)
    assert part.validate().ok
    assert not part.unresolved
    return len(part)


# --- PiecewiseLinear


@pytest.mark.parametrize("extrapolate", ["linear", "constant", "periodic"])
def test_values_between_and_beyond_the_knots(extrapolate: str):
    module = PiecewiseLinear(KNOTS, VALUES, extrapolate=extrapolate)
    x = torch.linspace(-7, 9, 1001, dtype=F64)
    inside = np.interp(x, KNOTS, VALUES, period=3.0 if extrapolate == "periodic" else None)
    expected = torch.from_numpy(inside)
    if extrapolate == "linear":
        below, above = x < KNOTS[0], x > KNOTS[-1]
        expected[below] = 0.3 - 1.3 / 0.75 * (x[below] + 1)
        expected[above] = 0.3 - 0.3 * (x[above] - 2)
    torch.testing.assert_close(module(x).detach(), expected)


@pytest.mark.parametrize("extrapolate", ["linear", "constant", "periodic"])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_exact_at_the_knots_and_continuous(extrapolate: str, dtype: torch.dtype):
    torch.manual_seed(0)
    knots = torch.rand(20, dtype=dtype).sort().values
    values = torch.randn(20, 3, dtype=dtype)
    values[-1] = values[0]
    module = PiecewiseLinear(knots, values, extrapolate=extrapolate, trainable=False)
    assert torch.equal(module(knots), values)
    for side in (-math.inf, math.inf):
        near = torch.nextafter(knots, torch.tensor(side, dtype=dtype))
        torch.testing.assert_close(module(near), values, atol=1e-3, rtol=0)


def test_periodic_far_away():
    module = PiecewiseLinear(
        torch.arange(6, dtype=F64), [0.0, 1, 2, 4, 8, 0], extrapolate="periodic"
    )
    x = torch.tensor([0.5, 2.75, 4.0], dtype=F64)
    for turns in (1, -1, 10**9, -(10**12)):
        assert torch.equal(module(x + 5 * turns), module(x))


def test_a_table_of_functions():
    module = PiecewiseLinear(KNOTS, torch.stack([VALUES, 2 * VALUES], 1))
    x = torch.randn(3, 4, dtype=F64)
    one = PiecewiseLinear(KNOTS, VALUES)(x)
    assert module(x).shape == (3, 4, 2)
    torch.testing.assert_close(module(x), torch.stack([one, 2 * one], -1))


@pytest.mark.parametrize("extrapolate", ["linear", "constant", "periodic"])
def test_gradients(extrapolate: str):
    module = PiecewiseLinear(KNOTS, VALUES, extrapolate=extrapolate)
    x = torch.linspace(-3.1, 4.1, 12, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(module, (x,))
    module(x).square().sum().backward()
    assert module.values.grad is not None
    assert module.values.grad.abs().min() > 0


def test_a_periodic_function_stays_closed_in_training():
    module = PiecewiseLinear(KNOTS, VALUES, extrapolate="periodic")
    with torch.no_grad():
        module.values.add_(torch.randn(3))
    assert torch.equal(module.table[0], module.table[-1])
    assert torch.equal(module(KNOTS[:1]), module(KNOTS[-1:]))


def test_types():
    module = PiecewiseLinear([0, 1, 3], [0, 1, 0])
    assert module.values.dtype == torch.float32
    assert module(torch.tensor([2])).tolist() == [0.5]
    assert module(torch.tensor([0.5], dtype=F64)).dtype == F64
    assert module(torch.tensor([0.5], dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert module.double()(torch.tensor([0.5])).dtype == torch.float32
    assert module(torch.tensor([math.nan])).isnan().all()
    assert module(torch.empty(0, 2)).shape == (0, 2)
    assert module(torch.rand(3, 2).T).shape == (2, 3)


def test_trainable_and_repr():
    assert [name for name, _ in PiecewiseLinear(KNOTS, VALUES).named_parameters()] == ["values"]
    fixed = PiecewiseLinear(KNOTS, VALUES[:, None], trainable=False, extrapolate="periodic")
    assert not list(fixed.parameters())
    assert set(fixed.state_dict()) == {"knots", "values"}
    assert repr(fixed) == "PiecewiseLinear(4 knots from -1 to 2, 1 functions, periodic)"


@pytest.mark.parametrize(
    ("knots", "values", "options", "message"),
    [
        ([0.0], [1.0], {}, r"\(K,\) with K >= 2"),
        ([[0.0, 1.0]], [1.0, 2.0], {}, r"\(K,\) with K >= 2"),
        ([0.0, 0.0], [1.0, 2.0], {}, "strictly ascending"),
        ([0.0, math.inf], [1.0, 2.0], {}, "finite"),
        ([0.0, 1.0], [1.0, math.nan], {}, "values must be finite"),
        ([0.0, 1.0], [1.0, 2.0, 3.0], {}, r"shape \(3,\): it must be \(2,\)"),
        ([0.0, 1.0], [1.0, 2.0], {"extrapolate": "periodic"}, "end as it begins"),
        ([0.0, 1.0], [1.0, 2.0], {"extrapolate": "zero"}, "one of 'linear', 'constant'"),
    ],
)
def test_wrong_arguments(knots: list, values: list, options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        PiecewiseLinear(knots, values, **options)


@pytest.mark.parametrize(
    ("extrapolate", "count"),
    # Inside (-4, 4): the knots -0.25 and 0.5; the ends too; those and all copies.
    [("linear", 3), ("constant", 5), ("periodic", 9)],
)
def test_partition_of_a_table(extrapolate: str, count: int):
    table = torch.stack([VALUES, VALUES], 1)
    table[1] += 1
    module = PiecewiseLinear(KNOTS, table, extrapolate=extrapolate)
    assert regions(nn.Sequential(module, nn.Flatten()), -4, 4) == count**2


def test_knots_without_a_bend_are_no_borders():
    identity = PiecewiseLinear([-1.0, 0.0, 0.5, 1.0], [-1.0, 0.0, 0.5, 1.0])
    assert regions(identity) == 1
    constant = PiecewiseLinear([0.0, 0.5, 1.0], [2.0, 2.0, 2.0], extrapolate="periodic")
    assert regions(nn.Sequential(nn.Linear(2, 3), constant, nn.ReLU())) == 1
    # One of the two functions bends at 0.
    table = PiecewiseLinear([-1.0, 0.0, 1.0], [[-1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    assert regions(nn.Sequential(table, nn.Flatten())) == 4


def test_more_knots_than_a_byte_counts():
    knots = torch.linspace(-1, 1, 301, dtype=F64)
    module = PiecewiseLinear(knots, torch.randn(301, dtype=F64))
    part = sc.partition(nn.Sequential(module, nn.Linear(2, 1).double()), sc.Domain.box(-1, 1))
    assert part.validate(samples=200).ok
    assert len(part) == 300**2


def test_a_table_like_hardtanh():
    torch.manual_seed(0)
    first, last = nn.Linear(2, 8), nn.Linear(8, 2)
    table = PiecewiseLinear([-1.0, 1.0], [-1.0, 1.0], extrapolate="constant")
    count = regions(nn.Sequential(first, table, last))
    assert count == regions(nn.Sequential(first, nn.Hardtanh(), last)) > 10


def test_the_batch_may_be_anywhere():
    class Transposed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = PiecewiseLinear([-1.0, 0.0, 1.0], [[1.0, 0.5], [0.0, 0.0], [1.0, 2.0]])

        def forward(self, x: Tensor) -> Tensor:
            wide = self.table(x.T).movedim(1, 0).flatten(1)
            return wide + self.table(x.reshape(-1, 1)).reshape(-1, 4)

    assert regions(Transposed()) == 4


# --- PeriodicEncoding


def test_layout_of_the_encoding():
    encode = PeriodicEncoding(3, pieces=4, dtype=F64)
    x = torch.tensor([[0.5, -1.0, 0.25]], dtype=F64)  # knots of sine and cosine in four pieces
    blocks = [x]
    for k in range(3):
        blocks += [torch.sin(2**k * torch.pi * x), torch.cos(2**k * torch.pi * x)]
    blocks[1][0, 2] = blocks[2][0, 2] = 0.5  # 0.25 lies between two knots of the lowest frequency
    torch.testing.assert_close(encode(x), torch.cat(blocks, 1), atol=1e-15, rtol=0)
    bare = PeriodicEncoding(3, pieces=4, include_input=False, dtype=F64)
    torch.testing.assert_close(bare(x), encode(x)[:, 3:])
    assert encode(torch.rand(5, 7, 2)).shape == (5, 7, 14)
    assert not list(encode.parameters())


def test_more_pieces_come_closer_to_sine():
    x = torch.rand(1000, 1, dtype=F64)
    for pieces in (5, 50, 500):
        waves = PeriodicEncoding(1, pieces, include_input=False, dtype=F64)(x)
        exact = torch.cat([torch.sin(torch.pi * x), torch.cos(torch.pi * x)], 1)
        assert (waves - exact).abs().max() <= (torch.pi / pieces) ** 2 / 2


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.3, 2.17)])
@pytest.mark.parametrize("include_input", [True, False])
def test_relu_form_is_the_encoding(low: float, high: float, include_input: bool):
    encode = PeriodicEncoding(4, include_input=include_input, dtype=F64)
    form = encode.relu_form(low, high, dim=3)
    x = low + (high - low) * torch.rand(200, 3, dtype=F64)
    torch.testing.assert_close(form(x), encode(x), atol=1e-11, rtol=0)
    with pytest.raises(ValueError, match="must be less than"):
        encode.relu_form(high, low, dim=3)


def test_the_encoding_has_the_cells_of_its_relu_form():
    torch.manual_seed(0)
    encode = PeriodicEncoding(2, dtype=F64)
    head = nn.Sequential(nn.Linear(10, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    domain = sc.Domain.polygon([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    part = sc.partition(nn.Sequential(encode, *head), domain, progress=False)
    assert part.validate().ok
    assert part.layers == ("0.waves", "2")
    form = nn.Sequential(*encode.relu_form(-1, 1, dim=2), *head)
    assert_same_cells(part, exact_partition(form, domain), atol=1e-11)


def test_wrong_encodings():
    with pytest.raises(ValueError, match="at least 1"):
        PeriodicEncoding(0)
    with pytest.raises(ValueError, match="at least 3"):
        PeriodicEncoding(2, pieces=2)


@pytest.mark.parametrize("at", [0.0, 1e3, -1e9])
def test_the_encoding_far_away(at: float):
    encode = PeriodicEncoding(3, dtype=F64)
    # Five knots in [0, 0.5) of the highest frequency, one of them at 0.
    assert regions(encode, at, at + 0.5) == 25


# --- the small ones


def test_maxout():
    torch.manual_seed(0)
    module = Maxout(2, 4, pieces=3)
    x = torch.randn(5, 2)
    every = module.linear(x).view(5, 4, 3)
    assert torch.equal(module(x), every.max(2).values)
    assert regions(module) > 4


def test_group_sort():
    module = GroupSort(3)
    assert module(torch.tensor([[3.0, 1, 2, 0, 9, 4]])).tolist() == [[1, 2, 3, 0, 4, 9]]
    assert repr(module) == "GroupSort(group_size=3)"
    assert regions(GroupSort()) == 2


def test_two_networks_with_outputs_of_different_sizes() -> None:
    a = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3), nn.Softmax(1))
    b = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    both = sc.nn.Both(sc.nn.Both(a, b), nn.Linear(2, 2)).double()
    part = sc.partition(both, sc.Domain.box(-2, 2), progress=False)
    part.validate()
    y = both(part.vertices)
    assert y.shape == part.values.shape == (part.vertices.shape[0], 6)
    assert torch.allclose(part.values[:, 3:], y[:, 3:])
    assert torch.allclose(part.values[:, :3].softmax(1), y[:, :3])
