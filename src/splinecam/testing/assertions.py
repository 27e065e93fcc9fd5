"""Checks of a partition against itself, the real model, and the exact oracle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from splinecam._util.tolerances import EPS
from splinecam.testing.oracle.cells import ExactCell, ExactPartition

if TYPE_CHECKING:
    from splinecam.partitions.partition import Partition


# How far rounding may move a line, in units of EPS domain diameters.
_NOISE = 64


def assert_valid(part: Partition) -> None:
    """Raise unless the partition passes its own ``validate()``."""
    part.validate()


def polygons(part: Partition) -> list[np.ndarray]:
    """Return the corners of every region, (k, 2) each, counter-clockwise."""
    corners = part.vertices.cpu().numpy()[part._face_vertices.cpu().numpy()]
    return np.split(corners, part.mesh.offsets.cpu().numpy()[1:-1])


def assert_same_cells(
    part: Partition, exact: ExactPartition, *, atol: float, resolution: float = 0.0
) -> None:
    """Raise unless a partition has exactly the oracle's cells: none lost, none invented.

    Corners on a straight side do not count.

    atol: how far corners may be off, in diameters of the domain. They may be farther off where
    lines meet at a small angle, as rounding moves their crossing. Outputs and slopes may be off by
    this share of the terms in their sums. resolution: narrower cells, in diameters, need no partner
    on the other side.
    """
    faces = polygons(part)
    diameter = float(part.domain.diameter)
    small = resolution * diameter
    noise = _NOISE * EPS * diameter
    face_of = _matched(faces, exact, small)
    wrong = []
    for index, face in sorted(face_of.items()):
        cell = exact.cells[index]
        reasons = _differences(faces[face], cell, atol * diameter, noise)
        area, true = float(part.areas[face]), float(cell.area)
        if not abs(area - true) <= atol * diameter * _perimeter(faces[face]):
            reasons.append(f"area {area:.17g} instead of {true:.17g}")
        weight, bias = part.weight[face].cpu().numpy(), part.bias[face].cpu().numpy()
        reasons += _map_differences(weight, bias, cell, exact, atol)
        if reasons:
            wrong.append(f"region {face}, exact cell {index} {cell}: " + "; ".join(reasons))
    total, true = float(part.areas.sum()), float(exact.area)
    if not abs(total - true) <= atol * true:
        wrong.append(f"the areas sum to {total:.17g} instead of {true:.17g}")
    _raise_if(wrong, len(faces), len(exact))


def _matched(faces: Sequence[np.ndarray], exact: ExactPartition, small: float) -> dict[int, int]:
    """Return the region of every exact cell that is not too small to have one."""
    located = _located(faces, exact.cells)
    wide = [cell.width >= small for cell in exact.cells]
    owner: dict[int, int] = {}
    wrong = []
    # Wide cells first: a region belongs to a narrow cell only if no wide one lies in it.
    for index in sorted(range(len(exact.cells)), key=lambda i: not wide[i]):
        face = located[index]
        if face not in owner:
            owner[face] = index
        elif wide[index]:
            other = f"{owner[face]} {exact.cells[owner[face]]}"
            wrong.append(f"exact cells {index} {exact.cells[index]} and {other} share one region")
    for face, polygon in enumerate(faces):
        # Relative to a corner, so that small polygons far from the origin keep their digits.
        x, y = (polygon - polygon[0]).T
        doubled = float(x @ np.roll(y, -1) - y @ np.roll(x, -1))
        narrow = doubled < small * _perimeter(polygon)
        if face not in owner and not narrow:
            u, v = polygon.mean(0)
            wrong.append(f"region {face} around ({u:.17g}, {v:.17g}) is no exact cell")
    _raise_if(wrong, len(faces), len(exact))
    return {index: face for face, index in owner.items() if wide[index]}


def _located(faces: Sequence[np.ndarray], cells: Sequence[ExactCell]) -> list[int]:
    """Return for every exact cell the region in which its centre lies deepest."""
    starts = np.concatenate(faces)
    ends = np.concatenate([np.roll(face, -1, axis=0) for face in faces])
    offsets = np.cumsum([0, *map(len, faces)])[:-1]
    along = ends - starts
    length = np.hypot(along[:, 0], along[:, 1])
    along = np.divide(along, length[:, None], out=np.zeros_like(along), where=length[:, None] > 0)
    located = []
    for cell in cells:
        to = np.array(cell.center, dtype=float) - starts
        depth = along[:, 0] * to[:, 1] - along[:, 1] * to[:, 0]
        located.append(int(np.minimum.reduceat(depth, offsets).argmax()))
    return located


def _differences(polygon: np.ndarray, cell: ExactCell, slack: float, noise: float) -> list[str]:
    """List missing true corners, and other corners off the true border."""
    corners = np.array(cell.vertices, dtype=float)
    along = np.roll(corners, -1, axis=0) - corners
    square = (along**2).sum(1)  # zero where corners differ by less than floats can
    reach = slack + noise / _sines(cell)
    reasons = []
    for corner, limit in zip(corners, reach, strict=True):
        distance = np.hypot(*(polygon - corner).T).min()
        if not distance <= limit:
            reasons.append(f"no corner at {_place(corner)}, the next is {distance:.3g} away")
    for point in polygon:
        t = ((point - corners) * along).sum(1)
        t = np.divide(t, square, out=np.zeros_like(t), where=square > 0).clip(0, 1)
        distance = np.hypot(*(point - corners - t[:, None] * along).T).min()
        if not distance <= slack and not (np.hypot(*(point - corners).T) <= reach).any():
            reasons.append(f"corner {_place(point)} is {distance:.3g} off the true border")
    return reasons


def _sines(cell: ExactCell) -> np.ndarray:
    """Return the sine of the angle at every corner, from exact differences."""
    count = len(cell.vertices)
    sides = []
    for (a, b), (c, d) in ((cell.vertices[i - 1], cell.vertices[i]) for i in range(count)):
        length = math.hypot(c - a, d - b)
        sides.append((float(c - a) / length, float(d - b) / length))
    x, y = np.array(sides).T
    sines: np.ndarray = np.abs(x * np.roll(y, -1) - y * np.roll(x, -1)).clip(EPS)
    return sines


def _map_differences(
    weight: np.ndarray, bias: np.ndarray, cell: ExactCell, exact: ExactPartition, atol: float
) -> list[str]:
    """List faults of the affine map of a region: of its slopes, and of its values at corners."""
    true = np.array(cell.weight, dtype=float).reshape(-1, 2)
    if weight.shape != true.shape or bias.shape != (len(true),):
        return [f"weight {weight.shape} and bias {bias.shape} for {len(true)} outputs"]
    reasons = []
    off = np.abs(weight - true).max(1)
    if not (off <= atol * exact.slope).all():
        reasons.append(f"weight {weight.tolist()} instead of {true.tolist()}, {off.max():.3g} off")
    for vertex in cell.vertices:
        wanted = np.array(cell.value(vertex), dtype=float)
        off = np.abs(weight @ np.array(vertex, dtype=float) + bias - wanted)
        if not (off <= atol * exact.magnitude).all():
            reasons.append(f"output {off.max():.3g} off at {_place(vertex)}")
    return reasons


def _raise_if(wrong: list[str], regions: int, cells: int, *, shown: int = 8) -> None:
    if wrong:
        heading = f"{regions} regions for {cells} exact cells, {len(wrong)} differences"
        rest = [f"and {len(wrong) - shown} more"] if len(wrong) > shown else []
        raise AssertionError("\n  ".join([heading, *wrong[:shown], *rest]))


def _place(point: Sequence[object] | np.ndarray) -> str:
    u, v = (float(x) for x in point)  # type: ignore[arg-type]
    return f"({u:.17g}, {v:.17g})"


def _perimeter(polygon: np.ndarray) -> float:
    return sum(math.dist(p, q) for p, q in zip(polygon, np.roll(polygon, -1, axis=0), strict=True))
