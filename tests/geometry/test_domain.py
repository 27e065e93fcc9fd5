"""Domains: constructors, the embedding, and one test for each way to get a domain wrong."""

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


def regular(k: int, radius: float = 1.0) -> torch.Tensor:
    angle = torch.arange(k, dtype=F64) * (2 * math.pi / k)
    return radius * torch.stack([angle.cos(), angle.sin()], 1)


def assert_sound(domain: Domain) -> None:
    """What every domain promises, whatever built it."""
    c = domain.corners
    assert domain.origin.dtype == domain.basis.dtype == c.dtype == F64
    assert domain.basis.shape == (2, domain.dim)
    torch.testing.assert_close(domain.basis @ domain.basis.T, torch.eye(2, dtype=F64))
    side, after = c.roll(-1, 0) - c, c.roll(-2, 0) - c.roll(-1, 0)
    assert bool((side[:, 0] * after[:, 1] - side[:, 1] * after[:, 0] > 0).all())
    assert domain.area > 0
    x = domain.embed(c)
    assert x.shape == (len(c), *domain.input_shape)
    uv, off = domain.project(x)
    # Far from the origin the coordinates' own rounding is all that may be lost.
    slack = 1e-14 * (domain.diameter + float(domain.origin.abs().max()) * math.sqrt(domain.dim))
    torch.testing.assert_close(uv, c, rtol=1e-12, atol=4 * slack)
    assert float(off.max()) <= 4 * slack


class TestBox:
    def test_plane_coordinates_are_inputs(self) -> None:
        domain = Domain.box(-1, 1)
        assert_sound(domain)
        uv = torch.tensor([[0.25, -0.5], [1.0, 1.0]], dtype=F64)
        assert torch.equal(domain.embed(uv), uv)
        assert domain.area == 4.0
        assert domain.diameter == pytest.approx(math.sqrt(8))
        assert repr(domain) == "Domain(4 corners, area 4, diameter 2.83, input shape (2,))"

    def test_pairs_and_shape(self) -> None:
        domain = Domain.box((0, -1), torch.tensor([2.0, 3.0]), input_shape=(1, 2))
        assert_sound(domain)
        assert domain.area == 8.0
        assert domain.embed(domain.corners).shape == (4, 1, 2)
        assert torch.equal(domain.center, torch.tensor([1.0, 1.0], dtype=F64))

    def test_numbers_keep_double_precision(self) -> None:
        assert float(Domain.box(-0.1, 0.1).corners[0, 0]) == -0.1

    @pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
    def test_scales(self, scale: float) -> None:
        domain = Domain.box(-scale, scale)
        assert_sound(domain)
        assert domain.area == pytest.approx(4 * scale**2, rel=1e-14)

    @pytest.mark.parametrize(
        ("lo", "hi", "message"),
        [
            (1, -1, "lo must be below hi"),
            ((0, 0), (1, 0), "on axis 1"),
            (0, float("nan"), "hi is nan"),
            ((0, 0), (1, float("inf")), r"hi\[1\] is inf"),
            ((0, 0, 0), 1, "one number or a pair"),
            ("a", 1, "not an array of numbers"),
            (0, 1 + 1j, "complex"),
        ],
    )
    def test_rejects(self, lo: object, hi: object, message: str) -> None:
        with pytest.raises(DomainError, match=message):
            Domain.box(lo, hi)

    def test_rejects_large_inputs(self) -> None:
        with pytest.raises(DomainError, match=r"Use Domain\.slice"):
            Domain.box(-1, 1, input_shape=(1, 28, 28))


class TestPolygon:
    def test_clockwise_closed_with_extra_points(self) -> None:
        square = [[0, 0], [0, 1], [0, 2], [2, 2], [2, 0], [1, 0], [0, 0]]
        domain = Domain.polygon(square)
        assert_sound(domain)
        assert len(domain.corners) == 4
        assert domain.area == 4.0
        assert torch.equal(domain.corners[0], torch.zeros(2, dtype=F64))

    def test_kinds_of_input_agree(self) -> None:
        points = [[0.1, 0.2], [1.3, 0.1], [0.4, 1.7]]
        frozen = np.array(points)
        frozen.setflags(write=False)
        kinds = [
            points,
            tuple(map(tuple, points)),
            frozen,
            torch.tensor(points, dtype=F64, requires_grad=True),
            [torch.tensor(p, dtype=F64) for p in points],
            [np.array(p) for p in points],
            frozen[::-1],
        ]
        for kind in kinds:
            domain = Domain.polygon(kind)
            assert domain.area == pytest.approx(Domain.polygon(points).area, rel=1e-15)
            assert not domain.corners.requires_grad

    def test_integers_become_floats(self) -> None:
        assert Domain.polygon(np.array([[0, 0], [4, 0], [0, 4]])).area == 8.0

    def test_image_shaped(self) -> None:
        frame = torch.linalg.qr(torch.randn(48, 2, dtype=F64)).Q
        points = (regular(6, 3.0) @ frame.T + torch.randn(48, dtype=F64)).reshape(6, 3, 4, 4)
        domain = Domain.polygon(points)
        assert_sound(domain)
        assert domain.input_shape == (3, 4, 4)
        assert domain.area == pytest.approx(1.5 * math.sqrt(3) * 9)
        assert domain.diameter == pytest.approx(6.0)

    def test_float32_samples_are_planar_enough(self) -> None:
        a, b, c = torch.randn(3, 784, dtype=torch.float32).double()
        domain = Domain.polygon(torch.stack([a, b, b + c - a, c]))
        assert_sound(domain)
        assert len(domain.corners) == 4

    def test_does_not_share_memory(self) -> None:
        points = regular(5)
        domain = Domain.polygon(points)
        points.zero_()
        assert domain.area > 2

    @given(
        k=st.integers(3, 12),
        exponent=st.integers(-9, 9),
        shift=st.floats(-5, 5),
        dim=st.sampled_from([2, 3, 7, 100]),
        flip=st.booleans(),
    )
    def test_any_regular_polygon(
        self, k: int, exponent: int, shift: float, dim: int, flip: bool
    ) -> None:
        scale = 10.0**exponent
        generator = torch.Generator().manual_seed(k)
        frame = torch.linalg.qr(torch.randn(dim, 2, generator=generator, dtype=F64)).Q
        points = scale * (regular(k) @ frame.T + shift)
        domain = Domain.polygon(points.flip(0) if flip else points)
        assert_sound(domain)
        assert len(domain.corners) == k
        expected = 0.5 * k * math.sin(2 * math.pi / k) * scale**2
        assert domain.area == pytest.approx(expected, rel=1e-9)

    def test_straight_side_far_from_zero(self) -> None:
        t = torch.linspace(0, 1, 12, dtype=F64)[:, None]
        start, end = torch.tensor([[1e6 + 0.1, 3e5]]).double(), torch.tensor([[1e6 + 1.3, 3e5 + 1]])
        side = start + t * (end.double() - start)
        domain = Domain.polygon(torch.cat([side, torch.tensor([[1e6, 3e5 + 2.0]]).double()]))
        assert len(domain.corners) == 3

    @pytest.mark.parametrize("width", [1e-3, 1e-6, 1e-9])
    def test_slivers_are_kept(self, width: float) -> None:
        domain = Domain.polygon([[0, 0], [1, 0], [1, width], [0, width]])
        assert_sound(domain)
        assert domain.area == pytest.approx(width)

    @pytest.mark.parametrize(
        ("points", "message"),
        [
            ([[0, 0], [1, 0]], "2 point"),
            ([], "0 point"),
            ([1.0, 2.0, 3.0], "at least three"),
            ([[0], [1], [2]], "at least two numbers"),
            ([[0, 0], [1, 0], [2]], "same shape"),
            ([[0, 0], [1, 0], [0, float("nan")]], r"points\[2\]\[1\] is nan"),
            ([[0, 0], [1, 1], [2, 2], [3, 3]], "degenerate"),
            ([[1, 1], [1, 1], [1, 1]], "identical"),
            ([[0, 0], [1, 0], [0, 0], [1, 0]], "degenerate"),
            ([[0, 0], [2, 0], [0.5, 0.5], [0, 2]], "not convex at point 2"),
            ([[0, 0], [0, 2], [0.5, 0.5], [2, 0]], "not convex at point 2"),
            (
                [[0, 0], [1, 1], [1, 0], [0, 2]],
                r"from point 0 to 1 and from point 2 to 3 meet. In the order \[0, 2, 1, 3\]",
            ),
            ([[0, 0], [1, 1], [1, 0], [0, 1]], "crosses itself"),  # its area is zero
            ([[0, 0, 5], [1, 1, 5], [1, 0, 5], [0, 1, 5]], "crosses itself"),
            (
                [[0, 0], [4, 4], [4, 0], [0, 4], [2, 2.5]],
                "crosses itself: .* corners of a convex polygon in order",
            ),
            ([[0, 0], [1, 0], [0.5, 1e-14]], "degenerate"),
            ([[0, 0, 0], [1, 0, 0], [2, 0, 0]], "on one line"),
            ([[1, 2, 3], [1, 2, 3], [1, 2, 3]], "All 3 points are identical"),
            ([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 1e-6]], "not in one plane"),
        ],
    )
    def test_rejects(self, points: list[object], message: str) -> None:
        with pytest.raises(DomainError, match=message):
            Domain.polygon(points)

    def test_rejects_pentagram(self) -> None:
        message = r"crosses itself.*order \[0, 3, 1, 4, 2\]"
        with pytest.raises(DomainError, match=message):
            Domain.polygon(regular(5)[torch.tensor([0, 2, 4, 1, 3])])
        many = torch.arange(2001) * 1000 % 2001
        with pytest.raises(DomainError, match=r"crosses itself.*Sorted by their angle"):
            Domain.polygon(regular(2001)[many])

    def test_rejects_two_rounds(self) -> None:
        with pytest.raises(DomainError, match="more than once"):
            Domain.polygon(regular(5).repeat(2, 1))

    def test_rejects_what_rounding_swallows(self) -> None:
        with pytest.raises(DomainError, match="identical"):
            Domain.polygon(torch.full((3, 2), 1e20, dtype=F64) + regular(3))


class TestThrough:
    def test_frame(self) -> None:
        a, b, c = torch.randn(3, 1, 5, 6, dtype=F64)
        domain = Domain.through(a, b, c, margin=0.1)
        assert_sound(domain)
        uv, off = domain.project(torch.stack([a, b, c]))
        assert float(off.max()) < 1e-13
        assert float(uv[0].abs().max()) < 1e-14
        assert float(uv[1, 0]) == pytest.approx(float((b - a).norm()))
        assert abs(float(uv[1, 1])) < 1e-14
        assert float(uv[2, 1]) > 0
        extent = (uv.amax(0) - uv.amin(0)).max()
        assert domain.area == pytest.approx(float(1.2 * extent) ** 2)
        assert domain.input_shape == (1, 5, 6)

    def test_tight_rectangle(self) -> None:
        a, b, c = [0.0, 0, 0], [4.0, 0, 0], [1.0, 0, 1]
        domain = Domain.through(a, b, c, margin=0.25, shape="tight")
        assert_sound(domain)
        expected = torch.tensor([[-1, -0.25], [5, -0.25], [5, 1.25], [-1, 1.25]], dtype=F64)
        torch.testing.assert_close(domain.corners, expected)

    @pytest.mark.parametrize("scale", [1e-9, 1e9])
    def test_scales(self, scale: float) -> None:
        samples = torch.randn(3, 20, dtype=F64)
        small = Domain.through(*samples)
        scaled = Domain.through(*(samples * scale))
        assert_sound(scaled)
        assert scaled.area == pytest.approx(small.area * scale**2)

    def test_nearly_collinear_samples_still_span_a_plane(self) -> None:
        a, d, e = torch.randn(3, 50, dtype=F64)
        domain = Domain.through(a, a + d, a + 2 * d + 1e-9 * e, shape="tight")
        assert_sound(domain)

    def test_rejects(self) -> None:
        a, b, c = torch.randn(3, 4, dtype=F64)
        with pytest.raises(DomainError, match="a and b are identical"):
            Domain.through(a, a, c)
        with pytest.raises(DomainError, match="on one line"):
            Domain.through(a, b, a)
        with pytest.raises(DomainError, match="on one line"):
            Domain.through(a, b, 3 * b - 2 * a)
        with pytest.raises(DomainError, match="identical"):
            Domain.through(a, a, a)
        with pytest.raises(DomainError, match=r"differ in shape: a \(4,\), b \(2, 2\)"):
            Domain.through(a, b.reshape(2, 2), c)
        with pytest.raises(DomainError, match=r"margin is -0\.1"):
            Domain.through(a, b, c, margin=-0.1)
        with pytest.raises(DomainError, match='choose "square" or "tight"'):
            Domain.through(a, b, c, shape="round")  # type: ignore[arg-type]
        with pytest.raises(DomainError, match="finite"):
            Domain.through(a, b, c * math.inf)


class TestAround:
    def test_seed_decides_the_plane(self) -> None:
        x = torch.randn(3, 8, 8)
        first, again = (Domain.around(x, side=2.0, seed=5) for _ in range(2))
        other = Domain.around(x, side=2.0, seed=6)
        assert_sound(first)
        assert torch.equal(first.basis, again.basis)
        assert not torch.allclose(first.basis, other.basis)
        assert first.area == 4.0
        torch.testing.assert_close(first.embed(torch.zeros(1, 2)), x[None].double())

    def test_leaves_the_global_generator_alone(self) -> None:
        before = torch.get_rng_state()
        Domain.around(torch.zeros(9), side=1.0)
        assert torch.equal(before, torch.get_rng_state())

    def test_two_numbers_are_axis_aligned(self) -> None:
        domain = Domain.around([3.0, 4.0], side=1e-9, seed=7)
        assert torch.equal(domain.basis, torch.eye(2, dtype=F64))
        assert domain.area == pytest.approx(1e-18)

    @pytest.mark.parametrize("side", [0.0, -1.0, math.nan, math.inf])
    def test_rejects_side(self, side: float) -> None:
        with pytest.raises(DomainError, match="side is"):
            Domain.around(torch.zeros(4), side=side)

    def test_rejects_one_number(self) -> None:
        with pytest.raises(DomainError, match="at least two numbers"):
            Domain.around([1.0], side=1.0)


class TestFit:
    def test_two_features_give_a_box(self) -> None:
        x = torch.tensor([[1.0, -20.0], [3.0, 0.0], [2.0, 20.0]])
        domain = Domain.fit(x)
        assert torch.equal(domain.basis, torch.eye(2, dtype=F64))
        expected = [[0.8, -24], [3.2, -24], [3.2, 24], [0.8, 24]]
        torch.testing.assert_close(domain.corners, torch.tensor(expected, dtype=F64))
        assert Domain.fit(x, margin=0.0).area == 80.0

    def test_more_features_give_the_principal_plane(self) -> None:
        torch.manual_seed(0)
        turn = torch.linalg.qr(torch.randn(6, 6, dtype=F64)).Q
        spread = torch.tensor([0.1, 5.0, 0.1, 2.0, 0.1, 0.1], dtype=F64)
        x = (torch.randn(400, 6, dtype=F64) * spread) @ turn.T + 100
        domain = Domain.fit(x.reshape(400, 2, 3), margin=0.25)
        assert_sound(domain)
        assert domain.input_shape == (2, 3)
        torch.testing.assert_close(domain.origin, x.mean(0))
        uv, off = domain.project(x)
        # No other plane is nearer to the data, as the singular values tell.
        values = torch.linalg.svdvals(x - x.mean(0))
        torch.testing.assert_close(uv.square().sum(0), values[:2].square())
        assert float(off.square().sum()) == pytest.approx(float(values[2:].square().sum()))
        low, high = uv.amin(0), uv.amax(0)
        torch.testing.assert_close(domain.corners[0], low - (high - low) / 4)
        torch.testing.assert_close(domain.corners[2], high + (high - low) / 4)

    def test_more_features_than_data(self) -> None:
        x = torch.rand(5, 3, 8, 8)
        domain = Domain.fit(x)
        assert_sound(domain)
        values = torch.linalg.svdvals((x - x.mean(0)).reshape(5, -1).double())
        uv, _ = domain.project(x)
        torch.testing.assert_close(uv.square().sum(0), values[:2].square(), rtol=1e-5, atol=0)
        assert domain == Domain.fit(x)

    def test_directions_of_very_different_spread(self) -> None:
        x = torch.rand(20, 3, dtype=F64) * torch.tensor([1.0, 1e-9, 0.0], dtype=F64)
        basis = Domain.fit(x).basis
        assert torch.allclose(basis.abs(), torch.eye(3, dtype=F64)[:2], atol=1e-8)

    def test_a_feature_that_is_constant(self) -> None:
        domain = Domain.fit([[0.0, 5.0], [10.0, 5.0]], margin=0.1)
        assert domain.corners.tolist() == [[-1.0, 4.0], [11.0, 4.0], [11.0, 6.0], [-1.0, 6.0]]
        fixed = Domain.fit(torch.cat([torch.rand(9, 2), torch.ones(9, 3)], 1))
        assert float(fixed.basis[:, 2:].abs().max()) < 1e-12

    @pytest.mark.parametrize(
        ("x", "message"),
        [
            ([[1.0, 2.0]], r"shape \(1, 2\): give a batch .* For a single input use Domain.around"),
            ([1.0, 2.0, 3.0], "give a batch"),
            (torch.zeros(0, 5), "give a batch"),
            (torch.rand(9, 1), "each of two numbers or more"),
            (torch.ones(9, 5), "All 9 points are identical"),
            (torch.arange(9.0)[:, None] * torch.ones(5), r"lie on one line.*Domain.from_two"),
            (torch.arange(9.0)[:, None] * torch.linspace(0, 1, 5) + 0.3e6, "lie on one line"),
            (torch.rand(2, 5), "lie on one line"),
            ([[0.0, 1.0], [math.nan, 2.0]], r"x\[1\]\[0\] is nan"),
            ("data.npy", "not an array of numbers"),
        ],
    )
    def test_rejects(self, x: object, message: str) -> None:
        with pytest.raises(DomainError, match=message):
            Domain.fit(x)

    def test_rejects_margins(self) -> None:
        with pytest.raises(DomainError, match="margin is -1"):
            Domain.fit(torch.rand(9, 4), margin=-1)
        with pytest.raises(DomainError, match="same in all data: give a margin above 0"):
            Domain.fit([[0.0, 5.0], [10.0, 5.0]], margin=0)


class TestPlane:
    def test_project_shapes_and_distance(self) -> None:
        domain = Domain.through([0.0, 0, 0], [1.0, 0, 0], [0.0, 1, 0])
        uv, off = domain.project([0.5, 0.25, -2.0])
        torch.testing.assert_close(uv, torch.tensor([[0.5, 0.25]], dtype=F64))
        assert float(off[0]) == pytest.approx(2.0)
        images = Domain.around(torch.zeros(1, 4, 4), side=1.0)
        for shape in [(1, 4, 4), (16,), (7, 1, 4, 4), (7, 16)]:
            uv, off = images.project(torch.zeros(shape))
            assert len(uv) == len(off) == (7 if shape[0] == 7 else 1)

    def test_rejects_wrong_shapes(self) -> None:
        domain = Domain.box(-1, 1)
        with pytest.raises(DomainError, match="expected one input"):
            domain.project(torch.zeros(4, 3))
        with pytest.raises(DomainError, match="embed takes plane coordinates"):
            domain.embed(torch.zeros(2))

    def test_direct_construction_is_checked(self) -> None:
        corners = regular(4)
        with pytest.raises(DomainError, match="not orthonormal"):
            Domain(torch.zeros(2), 2 * torch.eye(2), corners, (2,))
        with pytest.raises(DomainError, match=r"needs \(2, 3\)"):
            Domain(torch.zeros(3), torch.eye(2), corners, (3,))
        with pytest.raises(DomainError, match="expected \\(k, 2\\)"):
            Domain(torch.zeros(3), torch.eye(2, 3), torch.zeros(4, 3), (3,))

    def test_center_of_a_triangle(self) -> None:
        domain = Domain.polygon([[0, 0], [3, 0], [0, 3]])
        torch.testing.assert_close(domain.center, torch.ones(2, dtype=F64))


def test_domain_below_the_resolution_of_its_inputs():
    with pytest.raises(DomainError, match=r"too small for float64 around inputs of size 1e\+06"):
        Domain.around([1e6, 1e6], side=1e-9)
    assert Domain.around([1e6, 1e6], side=1e-5).area == pytest.approx(1e-10)


def test_zoom_keeps_the_plane_and_its_coordinates() -> None:
    domain = Domain.around(torch.arange(6.0).view(2, 3), side=4.0, seed=1)
    closer = domain.zoom(8, at=(1.0, -0.5))
    assert closer.input_shape == domain.input_shape
    assert torch.equal(closer.basis, domain.basis)
    assert torch.equal(closer.origin, domain.origin)
    assert closer.area == pytest.approx(domain.area / 64)
    assert closer.center.tolist() == pytest.approx([1.0, -0.5])
    assert domain.zoom(2).center.tolist() == pytest.approx(domain.center.tolist())
    for factor in (0, -1, float("inf"), float("nan")):
        with pytest.raises(DomainError, match="factor"):
            domain.zoom(factor)
    with pytest.raises(DomainError, match="at has 3 numbers"):
        domain.zoom(2, at=(1, 2, 3))


TOO_LARGE = {
    "box": lambda: Domain.box(-1e300, 1e300),
    "wide box": lambda: Domain.box(0, (1e300, 1)),
    "box of infinite width": lambda: Domain.box(-1e308, 1e308),
    "through": lambda: Domain.through([0.0, 0, 0], [1e300, 0, 0], [0, 1e300, 0]),
    "through, differences": lambda: Domain.through([-1e308, 0], [1e308, 0], [0, 1e308]),
    "margin": lambda: Domain.through([0.0, 0, 0], [1, 0, 0], [0, 1, 0], margin=1e300),
    "infinite margin": lambda: Domain.through([0.0, 0], [10, 0], [0, 10], margin=1e308),
    "around": lambda: Domain.around([0.0, 0.0, 0.0], side=1e300),
    "polygon": lambda: Domain.polygon([[0.0, 0], [1e300, 0], [0, 1e300]]),
    "polygon in space": lambda: Domain.polygon([[0.0, 0, 0], [1e300, 0, 0], [0, 1e300, 0]]),
    "polygon, differences": lambda: Domain.polygon([[-1e308, 0, 0], [1e308, 0, 0], [0, 1e308, 0]]),
    "zoom": lambda: Domain.box(-1, 1).zoom(1e-200),
    "infinite zoom": lambda: Domain.box(-1e9, 1e9).zoom(1e-300),
}
TOO_SMALL = {
    "box": lambda: Domain.box(0, 1e-320),
    "box of a subnormal area": lambda: Domain.box(-1e-160, 1e-160),
    "through": lambda: Domain.through([0.0, 0, 0], [1e-320, 0, 0], [0, 1e-320, 0]),
    "around": lambda: Domain.around([0.0, 0.0, 0.0], side=1e-320),
    "polygon": lambda: Domain.polygon([[0.0, 0], [1e-320, 0], [0, 1e-320]]),
    "polygon in space": lambda: Domain.polygon([[0.0, 0, 0], [1e-320, 0, 0], [0, 1e-320, 0]]),
    "zoom": lambda: Domain.box(-1, 1).zoom(1e200),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_rejects_areas_that_overflow(name: str) -> None:
    with pytest.raises(DomainError, match=r"too large: it is \S+.*widths of 1e-140 to 1e\+150"):
        TOO_LARGE[name]()


@pytest.mark.parametrize("name", TOO_SMALL)
def test_rejects_areas_that_underflow(name: str) -> None:
    with pytest.raises(DomainError, match=r"too small: it is \S+.*widths of 1e-140 to 1e\+150"):
        TOO_SMALL[name]()


def test_rejects_a_subnormal_side() -> None:
    with pytest.raises(DomainError, match="degenerate"):
        Domain.box(0, (1e-320, 1))


@pytest.mark.parametrize("side", [1e-139, 1e149])
def test_the_largest_and_the_smallest_domains_have_finite_areas(side: float) -> None:
    domain = Domain.box(0, (side, side * 1e-11))
    assert_sound(domain)
    assert domain.area == pytest.approx(side * side * 1e-11)
