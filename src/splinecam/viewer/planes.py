"""The plane of a pane, which is moved by its anchors, turned and shifted.

The anchors are three inputs in the plane. Each corner of the polygon keeps its weights between
them: dragging one anchor leaves the places of the other two as they are. Turns and shifts are
relative to the plane through the anchors: the same sliders always give the same plane.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from splinecam._util.options import as_float64
from splinecam._util.tolerances import PLANAR
from splinecam.errors import DomainError
from splinecam.geometry.domain import Domain

_FEW = 8  # inputs of at most 8 numbers are moved along their axes
_MOST = 3  # directions of larger inputs
_SAMPLES, _NUMBERS = 256, 1 << 24  # of data points that decide on directions
_THIN, _SMALL = 1e-6, 1e-9  # the triangle of the anchors: height by width, width by domain
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True)
class Direction:
    """A vector (D,) of length 1 orthogonal to a plane; reach: how far to shift the plane."""

    name: str
    vector: Tensor
    reach: float


@dataclass(frozen=True)
class Plane:
    """A domain with three anchors, and the directions that lead out of its plane."""

    base: Domain  # the domain before it is turned and shifted
    anchors: Tensor  # (3, 2) coordinates in the base
    weights: Tensor  # (k, 3) of the anchors at each corner
    directions: tuple[Direction, ...]
    turn: tuple[float, ...]  # a number for each direction
    shift: tuple[float, ...]  # a number for each direction
    points: Tensor | None = None  # the data points (N, D)

    @classmethod
    def of(cls, domain: Domain, *, anchors: Any = None, points: Any = None) -> Plane:
        """Return the plane of a domain; anchors: three inputs in it, by default three corners."""
        flat = None if points is None else as_float64(points, "points").reshape(-1, domain.dim)
        if anchors is None:
            count = len(domain.corners)
            chosen = (0, 1, 3) if count == 4 else (0, count // 3, 2 * count // 3)
            at = domain.corners[list(chosen)]
        else:
            at = _projected(domain, anchors)
        _require_triangle(at, domain)
        edges, offset = at[1:] - at[0], domain.corners - at[0]
        inner = torch.linalg.solve(edges.T, offset.T).T
        weights = torch.cat([1 - inner.sum(1, keepdim=True), inner], 1)
        return cls(domain, at, weights, (), (), (), flat)._with_directions()

    @property
    def domain(self) -> Domain:
        """The domain, turned and shifted."""
        if not any(self.turn) and not any(self.shift):
            return self.base
        center = self.base.center
        middle, rows = self.base.origin + center @ self.base.basis, list(self.base.basis)
        for k, direction in enumerate(self.directions):
            turn, row = self.turn[k], k % 2
            rows[row] = math.cos(turn) * rows[row] + math.sin(turn) * direction.vector
            middle = middle + self.shift[k] * direction.vector
        basis = torch.stack(rows)
        return replace(self.base, origin=middle - center @ basis, basis=basis)

    @property
    def inputs(self) -> Tensor:
        """The inputs (3, ...) at the anchors."""
        return self.domain.embed(self.anchors)

    def turned(self, turn: Sequence[float] = (), shift: Sequence[float] = ()) -> Plane:
        """Return the base turned by angles towards the directions, and shifted along them."""
        count = len(self.directions)
        for name, given in (("turn", turn), ("shift", shift)):
            if len(given) not in (0, count):
                raise DomainError(f"{name} has {len(given)} numbers for {count} directions.")
            if not all(map(math.isfinite, given)):
                raise DomainError(f"{name} has a number that is not finite.")
        still = (0.0,) * count
        return replace(self, turn=tuple(turn) or still, shift=tuple(shift) or still)

    def through(self, anchors: Sequence[Sequence[float] | int]) -> Plane:
        """Return the plane through three places of the present one, or numbered data points."""
        if len(anchors) != 3:
            raise DomainError(f"A plane has three anchors, not {len(anchors)}.")
        present, numbers = self.domain, [each for each in anchors if isinstance(each, int)]
        at = torch.stack([self._seen_at(each, present) for each in anchors])
        if not numbers or present.dim == 2:
            _require_triangle(at, present)
            return self._moved(present, at)
        x = present.embed(at).reshape(3, -1)
        for k, each in enumerate(anchors):
            if isinstance(each, int):
                x[k] = self._point(each)
        spanned = Domain.through(*x.reshape(3, *present.input_shape)).basis
        # The basis of the new plane that is nearest to the present one.
        u, _, v = torch.linalg.svd(present.basis @ spanned.T)
        basis = u @ v @ spanned
        origin = x.mean(0) - at.mean(0) @ basis
        return self._moved(replace(present, origin=origin, basis=basis), (x - origin) @ basis.T)

    def _moved(self, plane: Domain, at: Tensor) -> Plane:
        """Return the polygon around anchors (3, 2) in the plane of a domain."""
        moved = replace(self, base=replace(plane, corners=self.weights @ at), anchors=at)
        return moved if plane.basis is self.base.basis else moved._with_directions()

    def _seen_at(self, anchor: Sequence[float] | int, present: Domain) -> Tensor:
        """Return the place (2,) of an anchor in the present plane."""
        if isinstance(anchor, int):
            return present.project(self._point(anchor)[None])[0][0]
        place = torch.tensor([float(each) for each in anchor], dtype=torch.float64)
        if place.shape != (2,) or not bool(place.isfinite().all()):
            raise DomainError("An anchor is a place with two coordinates, or a data point.")
        return place

    def _point(self, number: int) -> Tensor:
        count = 0 if self.points is None else len(self.points)
        if self.points is None or not 0 <= number < count:
            raise DomainError(f"There is no data point {number}: there are {count:,}.")
        if not bool(self.points[number].isfinite().all()):
            raise DomainError(f"The data point {number} is not finite.")
        return self.points[number]

    def _with_directions(self) -> Plane:
        """Return the same plane, neither turned nor shifted, with new directions."""
        found = directions_of(self.base, self.points)
        still = (0.0,) * len(found)
        return replace(self, directions=found, turn=still, shift=still)


def directions_of(domain: Domain, points: Tensor | None = None) -> tuple[Direction, ...]:
    """Return orthonormal directions that lead out of the plane of a domain."""
    # They are the axes for inputs of few numbers; otherwise the directions in which data points
    # differ most from the plane, or random ones.
    if domain.dim == 2:
        return ()
    reach = domain.diameter / 2
    if domain.dim <= _FEW:
        found = []
        for axis, vector in sorted(_along_axes(domain.basis).items()):
            name = f"x{axis + 1}".translate(_SUBSCRIPTS)
            name = name if float(vector[axis]) > 1 - PLANAR else f"towards {name}"
            found.append(Direction(name, vector, reach))
        return tuple(found)
    finite = None if points is None else points[points.isfinite().all(1)]
    if finite is not None and len(finite):
        rows, along = _components(domain, finite)
        if len(rows):
            names = [f"component {k + 1}" for k in range(len(rows))]
            return tuple(map(Direction, names, rows, along))
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(_MOST, domain.dim, generator=generator, dtype=torch.float64)
    rows = _orthonormal(rows, domain.basis)
    return tuple(Direction(f"direction {k + 1}", row, reach) for k, row in enumerate(rows))


def _components(domain: Domain, points: Tensor) -> tuple[Tensor, list[float]]:
    """Return the directions in which points (N, D) differ most from a plane, and how far."""
    count = min(_SAMPLES, max(_MOST, _NUMBERS // domain.dim))
    some = points[:: -(-len(points) // count)]
    offset = some - domain.origin
    rest = offset - offset @ domain.basis.T @ domain.basis
    values, vectors = torch.linalg.eigh(rest @ rest.T)
    strength = values.flip(0)[:_MOST].clamp(min=0).sqrt()
    used = strength > _THIN * max(float(offset.abs().max()), domain.diameter)
    if not bool(used.any()):
        return points[:0], []
    rows = _orthonormal(vectors.flip(1)[:, :_MOST][:, used].T @ rest, domain.basis)
    return rows, (rest @ rows.T).abs().amax(0).tolist()


def _along_axes(basis: Tensor) -> dict[int, Tensor]:
    """Return orthonormal vectors by axis, along the axes that lead out of the plane the most."""
    rows, dim = [*basis], basis.shape[1]
    found: dict[int, Tensor] = {}
    while len(found) < dim - 2:
        frame = torch.stack(rows)
        rest = torch.eye(dim, dtype=torch.float64)
        for _ in range(2):  # the second pass removes what rounding left
            rest = rest - rest @ frame.T @ frame
        length = torch.linalg.vector_norm(rest, dim=1)
        axis = int((length > (1 - PLANAR) * length.max()).nonzero()[0, 0])
        found[axis] = rest[axis] / length[axis]
        rows.append(found[axis])
    return found


def _orthonormal(rows: Tensor, basis: Tensor) -> Tensor:
    """Return orthonormal rows, orthogonal to the basis of a plane, with the span of given rows."""
    frame = torch.linalg.qr(torch.cat([basis, rows]).T).Q.T[2:]
    same = (frame * rows).sum(1, keepdim=True) >= 0
    return torch.where(same, frame, -frame)


def _projected(domain: Domain, anchors: Any) -> Tensor:
    """Return the places (3, 2) of three inputs in the plane of a domain."""
    given = as_float64(anchors, "anchors")
    if given.ndim < 2 or len(given) != 3 or given[0].numel() != domain.dim:
        raise DomainError(
            f"anchors has shape {tuple(given.shape)}; give three inputs {domain.input_shape}."
        )
    at, off = domain.project(given.reshape(3, *domain.input_shape))
    size = float(given.abs().max()) + domain.diameter
    single = 4 * torch.finfo(torch.float32).eps * domain.dim**0.5  # inputs may be of float32
    if float(off.max()) > single * size:
        raise DomainError(
            f"The anchors are up to {float(off.max()):.3g} off the plane of the domain. Give three "
            "inputs that span it, such as the inputs of Domain.through."
        )
    return at


def _require_triangle(at: Tensor, domain: Domain) -> None:
    """Raise an error unless three places (3, 2) span a triangle."""
    first, second = at[1] - at[0], at[2] - at[0]
    area = float(first[0] * second[1] - first[1] * second[0])
    size = float(torch.pdist(at).max())
    if not abs(area) > _THIN * size**2:
        raise DomainError("The three anchors lie on one line: they span no plane.")
    if size < _SMALL * domain.diameter:
        raise DomainError("The three anchors are too close to each other.")
