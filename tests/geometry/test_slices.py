"""Slices of boxes: the polygon lies in the box and in the plane, and nothing of it is missing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from splinecam.errors import DomainError
from splinecam.geometry.domain import Domain

F64 = torch.float64
CUBE = ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])


def assert_in_box(domain: Domain, lo: torch.Tensor, hi: torch.Tensor, ulps: float = 64) -> None:
    """All corners lie in the box, up to the rounding of coordinates."""
    x = domain.embed(domain.corners).reshape(len(domain.corners), -1)
    size = torch.maximum(lo.abs(), hi.abs()).max() + domain.diameter
    slack = ulps * 2.0**-52 * float(size)
    assert float((lo.reshape(-1) - x).max()) <= slack
    assert float((x - hi.reshape(-1)).max()) <= slack


def dense_area(domain: Domain, lo: torch.Tensor, hi: torch.Tensor, count: int = 400) -> float:
    """The area of the plane's points in the box, by a grid over more than the polygon."""
    low, high = domain.corners.amin(0), domain.corners.amax(0)
    middle, half = (low + high) / 2, (high - low) * 0.75
    steps = (torch.arange(count, dtype=F64) + 0.5) / count * 2 - 1
    u, v = torch.meshgrid(middle[0] + steps * half[0], middle[1] + steps * half[1], indexing="ij")
    x = domain.embed(torch.stack([u.reshape(-1), v.reshape(-1)], 1)).reshape(count * count, -1)
    inside = ((x >= lo.reshape(-1)) & (x <= hi.reshape(-1))).all(1)
    return float(inside.double().mean() * 4 * half[0] * half[1])


class TestAxes:
    def test_plane_coordinates_are_the_features(self) -> None:
        lo, hi = torch.tensor([0.6, -0.5, -0.5, 0.45, -0.5]), torch.tensor([0.7, 0.5, 0.5, 0.5, 0])
        at = torch.tensor([0.65, 0.0, 0.1, 0.46, -0.25])
        domain = Domain.slice((lo, hi), axes=(1, 3), at=at)
        assert domain.origin.tolist() == [at[0], 0.0, at[2], 0.0, at[4]]
        assert domain.corners.tolist() == [
            [lo[1], lo[3]], [hi[1], lo[3]], [hi[1], hi[3]], [lo[1], hi[3]],
        ]  # fmt: skip
        x = domain.embed(domain.corners)
        assert torch.equal(x[:, [1, 3]], domain.corners)
        assert torch.equal(x[:, [0, 2, 4]], at.double()[[0, 2, 4]].expand(4, 3))
        uv, off = domain.project(at)
        assert uv.tolist() == [[float(at[1]), float(at[3])]]
        assert float(off) == 0.0

    def test_the_centre_is_the_default(self) -> None:
        domain = Domain.slice(([0.0, 0, 2, 7], [1.0, 1, 6, 7]))
        assert domain.origin.tolist() == [0, 0, 4, 7]

    def test_of_two_numbers_it_is_the_box(self) -> None:
        lo, hi = (-1.0, 2.0), (3.0, 5.0)
        assert Domain.slice((lo, hi)) == Domain.box(lo, hi)
        turned = Domain.slice((lo, hi), axes=(1, 0))
        assert turned.embed([[2.5, -0.5]]).tolist() == [[-0.5, 2.5]]

    def test_axes_in_many_forms(self) -> None:
        lo, hi = torch.zeros(2, 3), torch.ones(2, 3)
        expected = Domain.slice((lo, hi), axes=(1, 5))
        forms = [
            (-5, -1),
            [1, 5],
            np.array([1, 5]),
            torch.tensor([1, 5]),
            ((0, 1), (1, 2)),
            ((0, -2), (-1, -1)),
            (np.int32(1), (1, 2)),
        ]
        assert all(Domain.slice((lo, hi), axes=form) == expected for form in forms)
        assert expected.input_shape == (2, 3)
        assert Domain.slice((0, 1), axes=(1, 5), input_shape=(2, 3)) == expected
        assert Domain.slice((lo.reshape(-1), 1), axes=(1, 5), input_shape=(2, 3)) == expected
        assert Domain.slice(torch.stack([lo, hi]), axes=(1, 5)) == expected
        assert Domain.slice((lo, hi), (1, 5), at=[0.5] * 6) == expected

    def test_the_callers_arrays_are_left_alone(self) -> None:
        at = torch.full((3,), 0.5, dtype=F64)
        Domain.slice(CUBE, at=at)
        assert at.tolist() == [0.5] * 3

    def test_only_what_is_sliced_needs_finite_bounds(self) -> None:
        inf = math.inf
        domain = Domain.slice(([0.0, 0.0, -inf], [1.0, 1.0, inf]), at=[0.0, 0.0, 9.0])
        assert domain.origin.tolist() == [0.0, 0.0, 9.0]
        with pytest.raises(DomainError, match=r"x\[2\] is nan there .*Give at"):
            Domain.slice(([0.0, 0.0, -inf], [1.0, 1.0, inf]))
        with pytest.raises(DomainError, match=r"unbounded.* bounds of x\[1\] are 0 to inf"):
            Domain.slice(([0.0, 0.0, 0.0], [1.0, inf, 1.0]))


class TestDirections:
    def test_hexagon_of_a_cube(self) -> None:
        domain = Domain.slice(CUBE, axes=([1, -1, 0], [1, 1, -2]))
        assert len(domain.corners) == 6
        assert domain.area == pytest.approx(0.75 * math.sqrt(3))
        assert domain.origin.tolist() == [0.5, 0.5, 0.5]
        side = domain.corners - domain.corners.roll(1, 0)
        torch.testing.assert_close(side.norm(dim=1), torch.full((6,), 0.5**0.5, dtype=F64))

    def test_triangle_quadrilateral_and_touching(self) -> None:
        axes = ([1, -1, 0], [0, 1, -1])
        assert len(Domain.slice(CUBE, axes=axes, at=[0.1, 0.1, 0.1]).corners) == 3
        assert len(Domain.slice(CUBE, axes=([1, 1, 0], 2)).corners) == 4
        with pytest.raises(DomainError, match="does not meet the inside of the box"):
            Domain.slice(CUBE, axes=axes, at=[0.0, 0.0, 0.0])

    def test_at_may_lie_outside_if_the_plane_meets_the_box(self) -> None:
        near = Domain.slice(CUBE, axes=([1, 2, 0], [0, 1, 3]))
        away = Domain.slice(CUBE, axes=([1, 2, 0], [0, 1, 3]), at=[10.5, 20.5, 0.5])
        assert away.area == pytest.approx(near.area)
        assert_in_box(away, torch.zeros(3), torch.ones(3))

    def test_repeated_and_parallel_bounds(self) -> None:
        domain = Domain.slice((0, 1), axes=([1.0] * 50, [1.0] * 25 + [-1.0] * 25), input_shape=50)
        assert len(domain.corners) == 4
        assert domain.area == pytest.approx(25.0)

    def test_images(self) -> None:
        generator = torch.Generator().manual_seed(0)
        lo = torch.rand(3, 32, 32, generator=generator, dtype=F64) - 1
        hi = lo + torch.rand(3, 32, 32, generator=generator, dtype=F64)
        axes = torch.randn(2, 3, 32, 32, generator=generator)
        domain = Domain.slice((lo, hi), axes=axes)
        assert domain.input_shape == (3, 32, 32)
        assert_in_box(domain, lo, hi)

    @given(
        dim=st.integers(2, 7),
        seed=st.integers(0, 2**31),
        flat=st.booleans(),
        exponent=st.sampled_from([-9, 0, 9]),
    )
    def test_any_plane_through_the_box(
        self, dim: int, seed: int, flat: bool, exponent: int
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        scale = 10.0**exponent
        lo = torch.randn(dim, generator=generator, dtype=F64) * scale
        hi = lo + torch.rand(dim, generator=generator, dtype=F64).clamp(min=0.05) * scale
        axes = torch.randint(-2, 3, (2, dim), generator=generator).double()
        axes[0, 0], axes[1, 0], axes[1, 1] = 1.0, 0.0, 1.0
        if flat and dim > 2:  # a feature that is fixed
            hi[-1], axes[:, -1] = lo[-1], 0.0
        inside = torch.rand(dim, generator=generator, dtype=F64) * 0.9 + 0.05
        at = lo + inside * (hi - lo)
        domain = Domain.slice((lo, hi), axes=axes, at=at)
        assert_in_box(domain, lo, hi)
        _, off = domain.project(at + axes[0] * scale - 2 * axes[1] * scale)
        assert float(off) <= 1e-14 * float(at.abs().max() + 20 * scale)
        assert dense_area(domain, lo, hi) == pytest.approx(domain.area, rel=0.03)
        order = torch.randperm(dim, generator=generator)
        permuted = Domain.slice((lo[order], hi[order]), axes=axes[:, order], at=at[order])
        assert permuted.area == pytest.approx(domain.area, rel=1e-9)


@pytest.mark.parametrize("flat", [False, True])
def test_takes_its_shape_from_the_input_that_it_goes_through(flat: bool) -> None:
    image = torch.rand(1, 4, 4)
    box = (torch.zeros(16), torch.ones(16)) if flat else (0, 1)
    domain = Domain.slice(box, axes=((0, 0, 1), (0, 2, 3)), at=image)
    assert domain.input_shape == (1, 4, 4)
    assert domain == Domain.slice((0, 1), axes=(1, 11), at=image, input_shape=(1, 4, 4))
    assert Domain.slice((0, 1), axes=(0, 3), at=[0.5] * 5).input_shape == (5,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"box": (0, 1)}, "single numbers. Give at, which is an input, or say which shape"),
        ({"box": CUBE, "at": [[0.5] * 3]}, r"at has shape \(1, 3\), but inputs have shape \(3,\)"),
        ({"box": 3}, r"give \(lo, hi\)"),
        ({"box": np.zeros((5, 2))}, r"a row for each feature: give box\.T"),
        ({"box": ([0, 0, 0], [1, 1])}, r"lo has shape \(3,\), but hi has shape \(2,\)"),
        ({"box": ([0], [1])}, "two numbers"),
        ({"box": CUBE, "input_shape": (2, 2)}, r"shape \(3,\), but input_shape is \(2, 2\)"),
        ({"box": ([0, 0, 0], [1, -1, 1])}, r"empty: the bounds of x\[1\] are 0 to -1"),
        ({"box": ([0, 0, 0], [1, 0, 1])}, r"degenerate: x\[1\] is 0 in all of the box"),
        ({"box": CUBE, "at": [0, 0, 2]}, r"misses the box: x\[2\] is 2 in at, .*bounds 0 to 1"),
        ({"box": CUBE, "at": [0, 0]}, r"at has shape \(2,\)"),
        ({"box": CUBE, "at": [0, 0, math.nan]}, "finite input"),
        ({"box": CUBE, "axes": (0, 0)}, "parallel"),
        ({"box": CUBE, "axes": (0, 3)}, "indices are 0 to 2"),
        ({"box": CUBE, "axes": 0}, "two axes"),
        ({"box": CUBE, "axes": (0, 1, 2)}, "two axes"),
        ({"box": CUBE, "axes": ([0, 0, 0], [1, 0, 0])}, "first direction of axes is zero"),
        ({"box": CUBE, "axes": ([1, 2, 0], [2, 4, 0])}, "parallel"),
        ({"box": CUBE, "axes": ([1, 0], [0, 1])}, r"direction of shape \(2,\)"),
        ({"box": ([-1e308] * 3, [1e308] * 3)}, "wider than"),
        (
            {"box": (torch.zeros(2, 2), torch.ones(2, 2)), "at": [[0, 0], [0, -1]]},
            r"x\[1, 1\] is -1 in at",
        ),
        ({"box": CUBE, "axes": ([1, 1, 0], 2), "at": [2, -1.5, 0]}, "does not meet"),
    ],
)
def test_rejects(options: dict[str, object], message: str) -> None:
    with pytest.raises(DomainError, match=message):
        Domain.slice(**options)  # type: ignore[arg-type]
