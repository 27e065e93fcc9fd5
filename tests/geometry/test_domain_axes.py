"""The axes that users give are kept: polygons, two samples, discs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from splinecam.errors import DomainError
from splinecam.geometry.domain import Domain

F64 = torch.float64
SQUARE = torch.tensor([[5.0, 1, 1], [5, 3, 1], [5, 3, 4], [5, 1, 4]], dtype=F64)


class TestPolygon:
    def test_u_is_along_the_first_side(self) -> None:
        domain = Domain.polygon(SQUARE)
        assert domain.basis.tolist() == [[0, 1, 0], [0, 0, 1]]
        assert domain.origin.tolist() == SQUARE[0].tolist()
        assert domain.corners.tolist() == [[0, 0], [2, 0], [2, 3], [0, 3]]

    def test_either_orientation_has_v_inside(self) -> None:
        domain = Domain.polygon(SQUARE[[0, 3, 2, 1]])
        assert domain.basis.tolist() == [[0, 0, 1], [0, 1, 0]]
        assert float(domain.corners.min()) == 0.0

    def test_repeated_and_collinear_points_at_the_start(self) -> None:
        start = SQUARE[:1] + torch.tensor([[0.0], [1e-3], [0.5], [1.5]]) * torch.tensor([0.0, 1, 0])
        points = torch.cat([SQUARE[:1], SQUARE[:1], start, SQUARE[1:], SQUARE[:1]])
        domain = Domain.polygon(points)
        assert domain == Domain.polygon(SQUARE)
        middle = Domain.polygon(torch.cat([points[4:5], SQUARE[1:], SQUARE[:1]]))
        assert middle.basis.tolist() == [[0, 1, 0], [0, 0, 1]]

    @pytest.mark.parametrize("length", [1e-2, 1e-5, 1e-8, 1e-11])
    def test_short_first_sides(self, length: float) -> None:
        generator = torch.Generator().manual_seed(3)
        frame = torch.linalg.qr(torch.randn(40, 2, generator=generator, dtype=F64)).Q.T
        flat = torch.tensor([[0, 0], [length, length], [1, 3], [-1, 2]], dtype=F64)
        x = flat @ frame + torch.randn(40, generator=generator, dtype=F64)
        domain = Domain.polygon(x)
        u = domain.basis[0] @ frame.T
        torch.testing.assert_close(
            u, torch.full((2,), 0.5**0.5, dtype=F64), atol=1e-13 / length, rtol=0
        )
        _, off = domain.project(x)
        assert float(off.max()) < 1e-13

    def test_a_basis(self) -> None:
        domain = Domain.polygon(SQUARE, basis=(1, 2))
        assert domain.corners.tolist() == [[1, 1], [3, 1], [3, 4], [1, 4]]
        assert domain.origin.tolist() == [5, 0, 0]
        assert domain == Domain.slice(([5, 1, 1], [5, 3, 4]), axes=(1, 2))
        turned = Domain.polygon(SQUARE, basis=([0, 0, 2], [0, -1, 1]))
        assert turned.basis.tolist() == [[0, 0, 1], [0, -1, 0]]
        assert turned.area == 6.0
        flat = SQUARE[:, 1:]
        assert Domain.polygon(flat, basis=(0, 1)) == Domain.polygon(flat)
        rotated = Domain.polygon(flat, basis=([1, 1], [-1, 1]))
        torch.testing.assert_close(rotated.embed(rotated.corners), flat)

    def test_a_basis_of_another_plane(self) -> None:
        with pytest.raises(DomainError, match="not in a plane along basis: point 2 is 3 off"):
            Domain.polygon(SQUARE, basis=(0, 1))
        with pytest.raises(DomainError, match="two directions of basis are parallel"):
            Domain.polygon(SQUARE, basis=(1, 1))
        with pytest.raises(DomainError, match="basis is 3; give two axes"):
            Domain.polygon(SQUARE, basis=3)


class TestEquality:
    @given(
        start=st.integers(0, 4),
        flip=st.booleans(),
        closed=st.booleans(),
        dim=st.sampled_from([2, 3, 6]),
        kind=st.sampled_from(["list", "float32", "array", "rows"]),
    )
    def test_the_same_polygon(
        self, start: int, flip: bool, closed: bool, dim: int, kind: str
    ) -> None:
        flat = torch.tensor([[0, 0], [4, 0], [5, 2], [2, 4], [-1, 2]], dtype=F64)
        points = torch.zeros(5, dim, dtype=F64)
        points[:, [0, dim - 1]] = flat
        points[:, 1 : dim - 1] = 0.5
        basis = None if dim == 2 else (0, dim - 1)
        expected = Domain.polygon(points, basis=basis)
        given = points.roll(start, 0)
        given = given.flip(0) if flip else given
        given = torch.cat([given, given[:1]]) if closed else given
        given = torch.where(given == 0, -0.0, given)
        forms = {
            "list": given.tolist(),
            "float32": given.float(),
            "array": given.numpy(),
            "rows": list(given),
        }
        domain = Domain.polygon(forms[kind], basis=basis)
        assert domain == expected
        assert hash(domain) == hash(expected)

    def test_any_basis(self) -> None:
        generator = torch.Generator().manual_seed(1)
        frame = torch.linalg.qr(torch.randn(30, 2, generator=generator, dtype=F64)).Q.T
        flat = torch.tensor([[0, 0], [4, 0], [5, 2], [2, 4]], dtype=F64)
        x = flat @ frame + torch.randn(30, generator=generator, dtype=F64)
        domains = {
            Domain.polygon(
                torch.cat([x, x[:1]]).roll(k, 0) if k == 1 else x.roll(k, 0), basis=frame
            )
            for k in range(4)
        }
        assert len(domains) == 1

    def test_closing_point_without_a_basis(self) -> None:
        x = torch.randn(3, 17, dtype=F64)
        assert Domain.polygon(x) == Domain.polygon(torch.cat([x, x[:1]]))

    def test_constructors_twice(self) -> None:
        a, b = torch.randn(2, 4, 5)
        for make in (
            lambda: Domain.from_two(a, b, seed=3),
            lambda: Domain.disc(a, 0.5, seed=3),
            lambda: Domain.slice((a.minimum(b), a.maximum(b)), axes=(3, (0, 1))),
        ):
            assert make() == make()
            assert hash(make()) == hash(make())


class TestFromTwo:
    def test_frame(self) -> None:
        a, b = torch.randn(2, 1, 5, 6, dtype=F64)
        domain = Domain.from_two(a, b, margin=0.1, seed=2)
        uv, off = domain.project(torch.stack([a, b]))
        length = float((b - a).norm())
        torch.testing.assert_close(uv, torch.tensor([[0, 0], [length, 0]], dtype=F64))
        assert float(off.max()) < 1e-13
        assert domain.area == pytest.approx((1.2 * length) ** 2)
        assert domain.input_shape == (1, 5, 6)
        torch.testing.assert_close(domain.center, uv.mean(0))
        other = Domain.from_two(a, b, margin=0.1, seed=3)
        assert torch.equal(domain.basis[0], other.basis[0])
        assert not torch.allclose(domain.basis[1], other.basis[1])

    def test_direction_and_tight(self) -> None:
        a, b = [0.0, 0.0, 0.0], [4.0, 0.0, 0.0]
        domain = Domain.from_two(a, b, direction=[3.0, 0.0, 2.0], margin=0.25, shape="tight")
        assert domain.basis.tolist() == [[1, 0, 0], [0, 0, 1]]
        assert domain.corners.tolist() == [[-1, -1], [5, -1], [5, 1], [-1, 1]]
        assert Domain.from_two(a, b, direction=2, margin=0.25, shape="tight") == domain

    def test_two_numbers(self) -> None:
        domain = Domain.from_two([1.0, 1.0], [1.0, 3.0], margin=0.0, seed=5)
        assert domain.basis.tolist() == [[0, 1], [-1, 0]]
        assert domain.area == 4.0

    def test_rejects(self) -> None:
        a, b = torch.randn(2, 4, dtype=F64)
        with pytest.raises(DomainError, match="a and b are identical"):
            Domain.from_two(a, a)
        with pytest.raises(DomainError, match=r"two samples differ in shape: a \(4,\), b \(3,\)"):
            Domain.from_two(a, b[:3])
        for parallel in (3 * (a - b), torch.zeros(4)):
            with pytest.raises(DomainError, match="direction is zero or parallel"):
                Domain.from_two(a, b, direction=parallel)
        with pytest.raises(DomainError, match="no height"):
            Domain.from_two(a, b, margin=0.0, shape="tight")
        with pytest.raises(DomainError, match=r"margin is -1"):
            Domain.from_two(a, b, margin=-1)
        with pytest.raises(DomainError, match="at least two numbers"):
            Domain.from_two([1.0], [2.0])
        with pytest.raises(DomainError, match="too large"):
            Domain.from_two([-1e308, 0, 0], [1e308, 0, 0])


class TestDisc:
    @pytest.mark.parametrize("corners", [3, 4, 64, 1000])
    def test_area_and_corners(self, corners: int) -> None:
        domain = Domain.disc(torch.randn(2, 7), 2.0, corners, seed=1)
        assert len(domain.corners) == corners
        assert domain.area == pytest.approx(corners / 2 * math.sin(2 * math.pi / corners) * 4)
        torch.testing.assert_close(
            domain.corners.norm(dim=1), torch.full((corners,), 2.0, dtype=F64)
        )
        assert domain.input_shape == (2, 7)

    def test_planes(self) -> None:
        x = torch.randn(9, dtype=F64)
        domain = Domain.disc(x, 1e-6, basis=(2, 4))
        assert domain.origin.tolist() == x.tolist()
        assert domain.basis.nonzero().tolist() == [[0, 2], [1, 4]]
        assert torch.equal(
            Domain.disc(x, 1.0, seed=4).basis, Domain.around(x, side=1.0, seed=4).basis
        )
        assert torch.equal(Domain.disc([0.0, 1.0], 1.0, seed=4).basis, torch.eye(2, dtype=F64))

    def test_rejects(self) -> None:
        for radius in (0.0, -1.0, math.nan, math.inf):
            with pytest.raises(DomainError, match="radius is"):
                Domain.disc([0.0, 0.0], radius)
        for corners in (2, 0, 6.5):
            with pytest.raises(DomainError, match="at least three"):
                Domain.disc([0.0, 0.0], 1.0, corners)  # type: ignore[arg-type]
        with pytest.raises(DomainError, match="at least two numbers"):
            Domain.disc([0.0], 1.0)
