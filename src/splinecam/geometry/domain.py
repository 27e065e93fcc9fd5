"""Convex polygons in a plane, and the embedding of that plane in a model's input space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from splinecam._util import options
from splinecam._util.tolerances import PLANAR
from splinecam.errors import DomainError, option
from splinecam.geometry import paths, planes, solids
from splinecam.geometry.convex import convex_corners, cross, fan, require_resolved, require_size


@dataclass(frozen=True)
class Frame:
    """Coordinates in which the domain is centred and spans about [-1, 1].

    plane = center + scale * local; the scale is a power of two, so that scaling does not round.
    """

    center: Tensor
    scale: float

    @classmethod
    def of(cls, domain: Domain) -> Frame:
        return cls(domain.center, 2.0 ** math.ceil(math.log2(domain.diameter / 2)))

    def to_plane(self, local: Tensor) -> Tensor:
        """Plane coordinates (N, 2) of local ones."""
        return self.center.to(local) + self.scale * local

    def to_local(self, plane: Tensor) -> Tensor:
        """Local coordinates (N, 2) of plane ones."""
        return (plane - self.center.to(plane)) / self.scale


def rectangle(lo: Tensor, hi: Tensor) -> Tensor:
    """Corners ``(4, 2)``, counter-clockwise from ``lo``."""
    return torch.stack([lo, torch.stack([hi[0], lo[1]]), hi, torch.stack([lo[0], hi[1]])])


def rectangle_around(uv: Tensor, *, margin: float, shape: str) -> Tensor:
    """The corners ``(4, 2)`` of a rectangle around samples ``uv: (k, 2)``.

    margin: the fraction of the samples' extent added on each side. shape: ``"square"`` has the
    larger extent on both axes, ``"tight"`` each axis its own; on an axis on which the samples have
    no extent only the margin of the other.
    """
    if not (math.isfinite(margin) and margin >= 0):
        raise DomainError(f"margin is {margin}; give a finite number that is at least 0.")
    if shape not in ("square", "tight"):
        raise DomainError(f'shape is {shape!r}; choose "square" or "tight".')
    lo, hi = uv.amin(0), uv.amax(0)
    extent = hi - lo
    half = extent * (0.5 + margin)
    if shape == "square":
        half = half.max().expand(2)
    else:
        half = torch.where(extent == 0, extent.max() * margin, half)
    require_size(2 * float(half.max()))
    if float(half.min()) == 0:
        raise DomainError('The rectangle has no height: give a margin, or shape="square".')
    mid = (lo + hi) / 2
    return rectangle(mid - half, mid + half)


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
            object.__setattr__(self, name, options.finite(getattr(self, name), name))
        D = math.prod(self.input_shape)
        for name, shape in (("origin", (D,)), ("basis", (2, D))):
            if tuple(getattr(self, name).shape) != shape:
                raise DomainError(
                    f"{name} has shape {tuple(getattr(self, name).shape)}, but input shape "
                    f"{self.input_shape} needs {shape}. Build domains with "
                    f"{option('Domain.box')}, {option('polygon')}, {option('through')} or "
                    f"{option('around')}."
                )
        gram = self.basis @ self.basis.T - torch.eye(2, dtype=torch.float64)
        if float(gram.abs().max()) > PLANAR:
            raise DomainError(
                f"The rows of basis are not orthonormal. Use {option('Domain.polygon')}, which "
                "finds an orthonormal basis for points in input space."
            )
        if self.corners.ndim != 2 or self.corners.shape[1] != 2:
            raise DomainError(
                f"corners has shape {tuple(self.corners.shape)}, expected (k, 2) plane "
                f"coordinates. For points in input space use {option('Domain.polygon')}."
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
            sized = option(
                f"input_shape is {shape}", flag=f"--input-shape is {', '.join(map(str, shape))}"
            )
            raise DomainError(
                f"{option('Domain.box')} is for inputs of two numbers, but "
                f"{sized}. Use {option('Domain.slice')}, "
                f"{option('around')}, {option('through')} or {option('polygon')} to choose a plane "
                "in a larger space."
            )
        low, high = options.pair(lo, "lo"), options.pair(hi, "hi")
        for axis in range(2):
            if not float(low[axis]) < float(high[axis]):
                raise DomainError(
                    f"lo must be below hi on both axes, but on axis {axis} lo is "
                    f"{float(low[axis]):g} and hi is {float(high[axis]):g}."
                )
        return _plane2(rectangle(low, high), shape)

    @classmethod
    def slice(
        cls, box: Any, axes: Any = (0, 1), at: Any = None, *, input_shape: Any = None
    ) -> Domain:
        """The polygon in which a plane meets an axis-aligned box of any number of features.

        For two axes of the input the slice is a rectangle, and its plane coordinates are the two
        features themselves. For two directions it is the convex polygon of the plane inside the
        box; ``at`` is then the origin of the plane coordinates, u is along the first direction,
        and v along what of the second is orthogonal to it.

        box: ``(lo, hi)``, two arrays of the input shape, or numbers for all features; the box of
        ``read_vnnlib``. axes: two indices, flat or tuples into the input shape, or two directions
        of the input shape. at: an input that gives all other features their values, by default
        the centre of the box. input_shape: the shape of one input, by default that of the bounds,
        or if they are numbers or flat, that of ``at``.

        >>> lo, hi = [0.0, -1.0, 0.0, 5.0], [1.0, 1.0, 2.0, 5.0]
        >>> domain = Domain.slice((lo, hi), axes=(0, 2), at=[0.5, 0.25, 1.0, 5.0])
        >>> domain.corners.tolist()
        [[0.0, 0.0], [1.0, 0.0], [1.0, 2.0], [0.0, 2.0]]
        >>> domain.embed([[0.5, 1.5]]).tolist()
        [[0.5, 0.25, 1.5, 5.0]]
        >>> Domain.slice((0, 1), axes=([1, -1, 0], [1, 1, -2]), input_shape=3)  # a hexagon
        Domain(6 corners, area 1.3, diameter 1.41, input shape (3,))
        """
        shape = (input_shape,) if isinstance(input_shape, int) else input_shape
        inside = planes.box_of(box, shape, at)
        point, (first, second) = inside.fixed(at), planes.two_of(axes, "axes")
        flat = [planes.axis_of(each, inside.shape, option("axes")) for each in (first, second)]
        basis = planes.frame_along((first, second), inside.shape, "axes")
        if None not in flat:
            point[flat] = 0.0
        return cls(point, basis, planes.box_slice(inside, point, basis), inside.shape)

    @classmethod
    def polygon(cls, points: Any, *, basis: Any = None) -> Domain:
        """The convex polygon with the given corners, which lie in one plane of the input space.

        For inputs of two numbers plane coordinates equal inputs. Otherwise the first corner is
        their origin, the u axis points along the first side, and v into the polygon. With a
        basis, plane coordinates are the inner products of inputs with its vectors, whichever
        corner comes first: two features themselves for ``basis=(0, 1)``.

        points: ``(k, *input_shape)``, the corners in order, in either orientation; a repeated
        closing point and points on a straight side are dropped. basis: two directions that span
        the plane, of the input shape, or indices of axes; the second one is made orthogonal to
        the first.

        >>> Domain.polygon([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).area
        0.5
        >>> square = [[5.0, 1.0, 1.0], [5.0, 2.0, 1.0], [5.0, 2.0, 2.0], [5.0, 1.0, 2.0]]
        >>> Domain.polygon(square, basis=(1, 2)).corners.tolist()
        [[1.0, 1.0], [2.0, 1.0], [2.0, 2.0], [1.0, 2.0]]
        """
        x, shape = options.points_of(points)
        if math.prod(shape) == 2 and basis is None:
            return _plane2(x, shape)
        if basis is None:
            frame, origin = planes.polygon_frame(x), x[0]
        else:
            frame = planes.frame_along(planes.two_of(basis, "basis"), shape, "basis")
            # The same point whichever comes first, so that equal polygons have equal origins.
            start = x[min(range(len(x)), key=x.tolist().__getitem__)]
            origin = start - (frame @ start) @ frame
        # One by one, as the rounding of a product of matrices may depend on the number of rows.
        uv = torch.stack([frame @ (each - origin) for each in x])
        planes.require_planar(x, origin + uv @ frame, by_basis=basis is not None)
        return cls(origin, frame, uv, shape)

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
        x, input_shape = options.samples_of(a=a, b=b, c=c)
        basis = planes.frame_through(x)
        corners = rectangle_around((x - x[0]) @ basis.T, margin=margin, shape=shape)
        return cls(x[0], basis, corners, input_shape)

    @classmethod
    def from_two(
        cls,
        a: Any,
        b: Any,
        *,
        direction: Any = None,
        seed: int = 0,
        margin: float = 0.2,
        shape: Literal["square", "tight"] = "square",
    ) -> Domain:
        """A rectangle around two samples, in a plane through them.

        ``a`` is the origin of the plane coordinates, and ``b`` lies on the positive u axis.

        a, b: single samples, of the model's input shape. direction: another direction of the
        plane, of the input shape or the index of an axis, of which v is the part orthogonal to
        ``b - a``; by default random. seed: which random direction; for inputs of two numbers v is
        u turned to the left. margin: the fraction of the samples' distance added on each side.
        shape: ``"square"`` is as high as it is wide, ``"tight"`` reaches above and below the
        samples only by the margin.

        >>> Domain.from_two([0.0] * 5, [3.0, 4.0, 0, 0, 0], margin=0.1).area
        36.0
        """
        x, input_shape = options.samples_of(a=a, b=b)
        if direction is not None:
            direction = planes.direction_of(direction, input_shape, "direction")
        basis = planes.frame_beside(x[1] - x[0], direction, seed)
        uv = torch.zeros(2, 2, dtype=torch.float64)
        uv[1, 0] = torch.linalg.vector_norm(x[1] - x[0])
        corners = rectangle_around(uv, margin=margin, shape=shape)
        return cls(x[0], basis, corners, input_shape)

    @classmethod
    def around(cls, x: Any, *, side: float, seed: int = 0) -> Domain:
        """The square of the given ``side`` centred on the single input ``x``, randomly oriented.

        x: one input, the origin of the plane coordinates. side: length of a side. seed: which
        random orientation; for inputs of two numbers the square is axis-aligned.

        >>> Domain.around([0.0] * 5, side=2.0, seed=3).area
        4.0
        """
        options.positive(side, "side")
        center, input_shape = options.single_of(x)
        half = torch.full((2,), side / 2, dtype=torch.float64)
        basis = planes.random_frame(center.numel(), seed)
        return cls(center, basis, rectangle(-half, half), input_shape)

    @classmethod
    def fit(cls, x: Any, *, margin: float = 0.1) -> Domain:
        """The rectangle around data: for two features a box, for more in their principal plane.

        The principal plane goes through the mean of the data, which is the origin of its
        coordinates, along the two directions in which they vary most: u is along the first one,
        v along the second. The rectangle covers the projections of all data.

        x: a batch of inputs, ``(N, *input_shape)``. margin: the fraction of the extent of the data
        added on each side.

        >>> Domain.fit([[0.0, 1.0], [2.0, 1.5], [1.0, 2.0]], margin=0.5).corners.tolist()
        [[-1.0, 0.5], [3.0, 0.5], [3.0, 2.5], [-1.0, 2.5]]
        >>> Domain.fit([[0.0, 0, 5], [4, 0, 5], [2, 1, 5], [2, -1, 5]], margin=0).basis.tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        """
        points, shape = options.batch_of(x)
        extent = points.amax(0) - points.amin(0)
        require_resolved(points, float(extent.max()))
        if len(extent) > 2:
            origin = points.mean(0)
            basis = planes.principal_frame(points, origin)
            corners = rectangle_around((points - origin) @ basis.T, margin=margin, shape="tight")
            return cls(origin, basis, corners, shape)
        if margin == 0 and float(extent.min()) == 0:
            raise DomainError("One feature is the same in all data: give a margin above 0.")
        return _plane2(rectangle_around(points, margin=margin, shape="tight"), shape)

    @classmethod
    def disc(
        cls, x: Any, radius: float, corners: int = 64, *, seed: int = 0, basis: Any = None
    ) -> Domain:
        """The regular polygon around the single input ``x`` whose corners have distance ``radius``.

        The polygon is inscribed in the disc: its area is ``corners / 2 * sin(2 pi / corners)``
        times the squared radius, with 64 corners 0.16 % less than that of the disc.

        x: one input, the origin of the plane coordinates. radius: the distance of the corners
        from it. corners: how many. seed: which random plane; for inputs of two numbers u and v
        are the axes. basis: two directions of the plane in place of a random one, of the input
        shape or indices of axes; the second one is made orthogonal to the first.

        >>> Domain.disc([0.0, 0.0], 1.0)
        Domain(64 corners, area 3.14, diameter 2, input shape (2,))
        """
        options.positive(radius, "radius")
        if not (isinstance(corners, int) and corners >= 3):
            raise DomainError(f"corners is {corners!r}; a polygon has at least three.")
        center, input_shape = options.single_of(x)
        frame = planes.random_frame(center.numel(), seed)
        if basis is not None:
            frame = planes.frame_along(planes.two_of(basis, "basis"), input_shape, "basis")
        angle = torch.arange(corners, dtype=torch.float64) * (2 * math.pi / corners)
        ring = radius * torch.stack([angle.cos(), angle.sin()], 1)
        return cls(center, frame, ring, input_shape)

    # Domains of one dimension are classes of their own.
    segment = staticmethod(paths.segment)
    path = staticmethod(paths.path)
    segments = staticmethod(paths.segments)

    # And those of three dimensions.
    cube = staticmethod(solids.cube)
    box3 = staticmethod(solids.box3)
    tetrahedron = staticmethod(solids.tetrahedron)
    polytope = staticmethod(solids.polytope)

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
        points = options.as_float64(x, "x")
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
        options.positive(factor, "factor")
        middle = self.center if at is None else options.pair(at, "at")
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


def _plane2(corners: Tensor, shape: tuple[int, ...]) -> Domain:
    """A domain in an input space of two numbers, where plane coordinates are the inputs."""
    zero, eye = torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    return Domain(zero, eye, corners, shape)
