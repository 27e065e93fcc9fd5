"""Convex polygons in a plane, and the embedding of that plane in a model's input space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from splinecam._util.points import as_float64, as_tensor, finite, pair, points_of
from splinecam._util.tolerances import DEGENERATE, EPS, PLANAR
from splinecam.errors import DomainError
from splinecam.geometry.convex import convex_corners, cross, fan, require_resolved, require_size

__all__ = ["Domain"]


@dataclass(frozen=True, eq=False, repr=False)
class Domain:
    """A convex polygon in the plane ``x = origin + uv @ basis`` of a model's input space.

    ``origin: (D,)``, ``basis: (2, D)`` with orthonormal rows, ``corners: (k, 2)`` plane
    coordinates, counter-clockwise and strictly convex; D is the product of ``input_shape``.

    >>> Domain.box(-1, 1)
    Domain(4 corners, area 4, diameter 2.83, input shape (2,))
    """

    origin: Tensor
    basis: Tensor
    corners: Tensor
    input_shape: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_shape", tuple(int(n) for n in self.input_shape))
        for name in ("origin", "basis", "corners"):
            object.__setattr__(self, name, finite(getattr(self, name), name))
        D = math.prod(self.input_shape)
        for name, shape in (("origin", (D,)), ("basis", (2, D))):
            if tuple(getattr(self, name).shape) != shape:
                raise DomainError(
                    f"{name} has shape {tuple(getattr(self, name).shape)}, but input shape "
                    f"{self.input_shape} needs {shape}. Build domains with Domain.box, polygon, "
                    "through or around."
                )
        gram = self.basis @ self.basis.T - torch.eye(2, dtype=torch.float64)
        if float(gram.abs().max()) > PLANAR:
            raise DomainError(
                "The rows of basis are not orthonormal. Use Domain.polygon, which finds an "
                "orthonormal basis for points in input space."
            )
        if self.corners.ndim != 2 or self.corners.shape[1] != 2:
            raise DomainError(
                f"corners has shape {tuple(self.corners.shape)}, expected (k, 2) plane "
                "coordinates. For points in input space use Domain.polygon."
            )
        magnitude = float(self.origin.abs().max())
        object.__setattr__(self, "corners", convex_corners(self.corners, magnitude))

    # -- constructors ---------------------------------------------------------------------------

    @classmethod
    def box(cls, lo: Any, hi: Any, *, input_shape: Sequence[int] | None = None) -> Domain:
        """The axis-aligned rectangle from ``lo`` to ``hi`` for 2-D inputs.

        Plane coordinates equal inputs.

        lo, hi: opposite corners, as pairs, or as numbers for both axes. input_shape: the shape of
        one input, which holds two numbers, by default ``(2,)``.

        >>> Domain.box((0, 0), (2, 1)).area
        2.0
        """
        shape = (2,) if input_shape is None else tuple(input_shape)
        if math.prod(shape) != 2:
            raise DomainError(
                f"Domain.box is for inputs of two numbers, but input_shape is {shape}. Use "
                "Domain.around, through or polygon to choose a plane in a larger input space."
            )
        low, high = pair(lo, "lo"), pair(hi, "hi")
        for axis in range(2):
            if not float(low[axis]) < float(high[axis]):
                raise DomainError(
                    f"lo must be below hi on both axes, but on axis {axis} lo is "
                    f"{float(low[axis]):g} and hi is {float(high[axis]):g}."
                )
        return _plane2(_rectangle(low, high), shape)

    @classmethod
    def polygon(cls, points: Any) -> Domain:
        """The convex polygon with the given corners, which lie in one plane of the input space.

        points: ``(k, *input_shape)``, the corners in order, in either orientation.

        A repeated closing point and points on a straight side are dropped. For inputs of two
        numbers plane coordinates equal inputs; otherwise the first corner is their origin and
        the u axis points to the corner farthest from it.

        >>> Domain.polygon([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).area
        0.5
        """
        x, shape = points_of(points)
        if math.prod(shape) == 2:
            return _plane2(x, shape)
        basis = _plane_basis(x)
        uv = (x - x[0]) @ basis.T
        _require_planar(x, x[0] + uv @ basis)
        return cls(x[0], basis, uv, shape)

    @classmethod
    def through(
        cls,
        a: Any,
        b: Any,
        c: Any,
        *,
        margin: float = 0.2,
        shape: Literal["square", "tight"] = "square",
    ) -> Domain:
        """A rectangle around three samples, in the plane through them.

        ``a`` is the origin of the plane coordinates and ``b`` lies on the positive u axis.

        a, b, c: single samples, of the model's input shape. margin: the fraction of the samples'
        extent added on each side. shape: ``"square"`` has the larger extent on both axes,
        ``"tight"`` each axis its own.

        >>> Domain.through([0., 0, 0], [1, 0, 0], [0, 1, 0], margin=0.0).area
        1.0
        """
        if not (math.isfinite(margin) and margin >= 0):
            raise DomainError(f"margin is {margin}; give a finite number that is at least 0.")
        if shape not in ("square", "tight"):
            raise DomainError(f'shape is {shape!r}; choose "square" or "tight".')
        samples = {"a": as_tensor(a, "a"), "b": as_tensor(b, "b"), "c": as_tensor(c, "c")}
        if len({t.shape for t in samples.values()}) > 1:
            shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in samples.items())
            raise DomainError(
                f"The three samples differ in shape: {shapes}. Give three single samples of the "
                "model's input shape, without a batch dimension."
            )
        x, input_shape = points_of(torch.stack(list(samples.values())))
        basis = _frame(x)
        uv = (x - x[0]) @ basis.T
        lo, hi = uv.amin(0), uv.amax(0)
        half = (hi - lo) * (0.5 + margin)
        if shape == "square":
            half = half.max().expand(2)
        require_size(2 * float(half.max()))
        mid = (lo + hi) / 2
        return cls(x[0], basis, _rectangle(mid - half, mid + half), input_shape)

    @classmethod
    def around(cls, x: Any, *, side: float, seed: int = 0) -> Domain:
        """The square of the given ``side`` centred on the single input ``x``, randomly oriented.

        x: one input, the origin of the plane coordinates. side: length of a side. seed: which
        random orientation; for inputs of two numbers the square is axis-aligned.

        >>> Domain.around([0.0] * 5, side=2.0, seed=3).area
        4.0
        """
        if not (math.isfinite(side) and side > 0):
            raise DomainError(f"side is {side}; give a finite number above 0.")
        center = finite(as_tensor(x, "x"), "x")
        input_shape = tuple(center.shape)
        D = center.numel()
        if D < 2:
            raise DomainError(
                f"x has {D} number(s), but a plane needs inputs of at least two numbers."
            )
        half = torch.full((2,), side / 2, dtype=torch.float64)
        flat = center.reshape(-1)
        basis = torch.eye(2, dtype=torch.float64)
        if D > 2:
            generator = torch.Generator().manual_seed(seed)
            frame = torch.randn(D, 2, generator=generator, dtype=torch.float64)
            basis = torch.linalg.qr(frame).Q.T.contiguous()
        return cls(flat, basis, _rectangle(-half, half), input_shape)

    # -- the plane and the input space -----------------------------------------------------------

    def embed(self, uv: Tensor) -> Tensor:
        """The float64 inputs ``(N, *input_shape)`` at plane coordinates ``uv: (N, 2)``."""
        uv = torch.as_tensor(uv).to(torch.float64)
        if uv.ndim != 2 or uv.shape[1] != 2:
            raise DomainError(
                f"uv has shape {tuple(uv.shape)}; embed takes plane coordinates (N, 2)."
            )
        x = uv @ self.basis.to(uv.device) + self.origin.to(uv.device)
        return x.reshape(uv.shape[0], *self.input_shape)

    def project(self, x: Any) -> tuple[Tensor, Tensor]:
        """Plane coordinates ``(N, 2)`` of inputs and their distances ``(N,)`` off the plane.

        ``x`` is a batch ``(N, *input_shape)``, a flat batch ``(N, D)``, or one input (N = 1).

        >>> Domain.box(-1, 1).project([[0.5, 0.25]])
        (tensor([[0.5000, 0.2500]], dtype=torch.float64), tensor([0.], dtype=torch.float64))
        """
        points = as_float64(x, "x")
        shape, D = tuple(points.shape), self.dim
        if shape in (self.input_shape, (D,)) or shape[1:] in (self.input_shape, (D,)):
            offset = points.reshape(-1, D) - self.origin.to(points.device)
        else:
            raise DomainError(
                f"x has shape {shape}, expected one input {self.input_shape} or a batch "
                f"(N, {', '.join(map(str, self.input_shape))})."
            )
        basis = self.basis.to(points.device)
        uv = offset @ basis.T
        return uv, torch.linalg.vector_norm(offset - uv @ basis, dim=1)

    def zoom(self, factor: float, *, at: Any = None) -> Domain:
        """The polygon ``factor`` times smaller, in the same plane, with the same coordinates.

        factor: how many times smaller; below 1 it becomes larger. at: plane coordinates of the
        new centre, by default the old one.

        >>> Domain.box(0, 8).zoom(4, at=(1, 3)).corners.tolist()
        [[0.0, 2.0], [2.0, 2.0], [2.0, 4.0], [0.0, 4.0]]
        """
        if not (math.isfinite(factor) and factor > 0):
            raise DomainError(f"factor is {factor}; give a finite number above 0.")
        middle = self.center if at is None else pair(at, "at")
        require_size(self.diameter / factor)
        return replace(self, corners=middle + (self.corners - self.center) / factor)

    @property
    def dim(self) -> int:
        """D, the number of entries of one input."""
        return math.prod(self.input_shape)

    @property
    def area(self) -> float:
        """The polygon's area in the plane."""
        return float(cross(*fan(self.corners)).sum()) / 2

    @cached_property
    def diameter(self) -> float:
        """The largest distance between two corners."""
        return float(torch.pdist(self.corners).max())

    @cached_property
    def center(self) -> Tensor:
        """The polygon's centroid ``(2,)`` in plane coordinates."""
        p, q = fan(self.corners)
        weight = cross(p, q)
        return self.corners[0] + (weight[:, None] * (p + q)).sum(0) / (3 * weight.sum())

    def __eq__(self, other: object) -> bool:
        """Whether two domains are the same polygon in the same plane, with equal coordinates."""
        return isinstance(other, Domain) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        """A key of the domain, whichever corner comes first, and with 0.0 for -0.0."""
        first = min(range(len(self.corners)), key=self.corners.tolist().__getitem__)
        arrays = (self.origin, self.basis, self.corners.roll(-first, 0))
        return self.input_shape, *((array + 0.0).numpy().tobytes() for array in arrays)

    def _repr_html_(self) -> str:
        """The picture and the sizes that notebooks show."""
        from splinecam.plot.notebook import domain_card

        return domain_card(self)

    def __repr__(self) -> str:
        return (
            f"Domain({len(self.corners)} corners, area {self.area:.3g}, "
            f"diameter {self.diameter:.3g}, input shape {self.input_shape})"
        )


# -- geometry ------------------------------------------------------------------------------------


def _plane2(corners: Tensor, shape: tuple[int, ...]) -> Domain:
    """A domain in an input space of two numbers, where plane coordinates are the inputs."""
    zero, eye = torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    return Domain(zero, eye, corners, shape)


def _rectangle(lo: Tensor, hi: Tensor) -> Tensor:
    """Corners ``(4, 2)``, counter-clockwise from ``lo``."""
    return torch.stack([lo, torch.stack([hi[0], lo[1]]), hi, torch.stack([lo[0], hi[1]])])


def _frame(x: Tensor) -> Tensor:
    """Orthonormal rows ``(2, D)``: along ``x[1] - x[0]``, and from that line towards ``x[2]``."""
    d1, d2 = x[1] - x[0], x[2] - x[0]
    scale = max(float(d1.abs().max()), float(d2.abs().max()))
    require_resolved(x, scale)
    n1 = float(torch.linalg.vector_norm(d1 / scale))
    if n1 <= DEGENERATE:
        raise DomainError("The samples a and b are identical. Give three that span a plane.")
    u = d1 / (scale * n1)
    rest = d2 / scale
    # The second pass removes what rounding left of u in the difference.
    v = rest - (rest @ u) * u
    v = v - (v @ u) * u
    n2 = float(torch.linalg.vector_norm(v))
    if n2 <= DEGENERATE:
        raise DomainError("The samples a, b and c lie on one line. Give three that span a plane.")
    return torch.stack([u, v / n2])


def _plane_basis(x: Tensor) -> Tensor:
    """Orthonormal rows ``(2, D)`` that span the plane of points ``x: (k, D)``.

    The plane contains the first point, the one farthest from it, and the one farthest from the line
    through both.
    """
    rays = x - x[0]
    scale = float(rays.abs().max())
    require_resolved(x, scale)
    rays = rays / scale
    far = int(torch.linalg.vector_norm(rays, dim=1).argmax())
    u = rays[far] / torch.linalg.vector_norm(rays[far])
    off = torch.linalg.vector_norm(rays - (rays @ u)[:, None] * u, dim=1)
    if float(off.max()) <= DEGENERATE:
        raise DomainError(f"All {len(x)} points lie on one line. Give three that span a plane.")
    return _frame(torch.stack([x[0], x[far], x[int(off.argmax())]]))


def _require_planar(x: Tensor, flat: Tensor) -> None:
    """Raise an error if points ``x: (k, D)`` differ from their projections ``flat``."""
    off = torch.linalg.vector_norm(x - flat, dim=1)
    extent = float(torch.linalg.vector_norm(x - x[0], dim=1).max())
    worst = int(off.argmax())
    rounding = EPS * math.sqrt(x.shape[1]) * float(x.abs().max())
    if float(off[worst]) > PLANAR * extent + 4 * rounding:
        raise DomainError(
            f"The points are not in one plane: point {worst} is {float(off[worst]):.3g} off the "
            f"plane of the others (extent {extent:.3g}). Use Domain.through for a plane through "
            "three samples, or project the points first."
        )
