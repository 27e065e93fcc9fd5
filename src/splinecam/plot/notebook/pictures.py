"""Small pictures of partitions and curves as arrays of pixels.

The cell at each point of a grid is found as for ``part.plot``. The outputs at the point follow from
those at the corners of the cell, so that nothing is computed for cells without a point.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from splinecam._util.csr import owners_of, take_rows
from splinecam._util.tolerances import EPS
from splinecam.analysis.boundary import LevelSet
from splinecam.analysis.curves import Curves
from splinecam.analysis.neurons import NeuronCurves
from splinecam.analysis.partition_data import PartitionData
from splinecam.geometry.subdivision import Mesh, polygon_mesh
from splinecam.plot.arrays import Bools, Floats, Ints, Pixels, Singles, to_numpy
from splinecam.plot.palette import CLASSES, INK, PAPER, class_palette, paler, rgb
from splinecam.plot.raster import Cells, Grid
from splinecam.plot.regions import default_color

__all__ = ["Picture", "curves_picture", "partition_picture"]

_SIDE, _FINE = 440, 2  # pixels of the longer side, and points per pixel and axis
_MANY = 200_000  # regions above which a pixel has one point
_NUMBERS = 2_000_000  # outputs computed for a picture, at most; more are on a coarser grid
_LINE, _BOUNDARY = 0.6, 0.9  # opacity of lines where there are few
_CROWDED = 0.2  # share of the picture above which lines are fainter
_GREY, _BORDER = "#7d838b", 0.9  # of the border, which is seen on light and dark pages
_BALANCE = 0.1  # two colours are used if the shorter side of the level is more than this share


@dataclass(frozen=True)
class Picture:
    """Pixels (h, w, 4) from the top, and the classes that are seen, if colours are classes."""

    pixels: Pixels
    classes: tuple[int, ...] = ()


def partition_picture(part: PartitionData, *, edges: bool = True, level: float = 0.0) -> Picture:
    """The regions, coloured by class or by their single output."""
    with torch.no_grad():
        fine = _FINE if len(part) < _MANY else 1
        grid = _grid(part.mesh, fine)
        owner = _owners(part.mesh, grid)
        step = max(_FINE, int(np.ceil((owner.size * part.values.shape[1] / _NUMBERS) ** 0.5)))
        some = slice(step // 2, None, step)  # the points for which outputs are computed
        coarse = owner[some, some]
        values = _values(part, coarse, grid.x()[some], grid.y(0, grid.rows)[some])
    ink = _faded(_borders(owner), _LINE) if edges else np.zeros(owner.shape, np.float32)
    seen: list[int] = []
    if default_color(part) == "class":
        winner, light = _class_colors(values, level)
        seen = np.unique(winner[coarse >= 0]).tolist()
        if step == _FINE:
            lines = _borders(np.where(owner >= 0, _spread(winner, step, owner.shape), -1))
            ink = np.maximum(ink, _faded(lines, _BOUNDARY))
    else:
        light = _output_colors(values[..., 0], coarse >= 0, level)
    light = _spread(light, step, owner.shape)
    light += ink[..., None] * (rgb(INK) - light)
    return Picture(_reduced(light, owner >= 0, fine), tuple(seen))


def curves_picture(curves: Curves) -> Picture:
    """Curves on white paper of the shape of the domain."""
    with torch.no_grad():
        part = curves.partition
        paper = polygon_mesh(part.frame.to_local(part.domain.corners).cpu())
        grid = _grid(paper, _FINE)
        inside = _owners(paper, grid) >= 0
        ends = to_numpy(curves.local_ends)
        color, palette = _curve_colors(curves)
    kind = np.full(inside.shape, -1)
    for column, row, segment in _points_along(ends, grid):
        kind[row, column] = color[segment]
    if (kind >= 0).mean() < _CROWDED:
        kind = _wider(_wider(kind))
    ink = _faded(kind >= 0, _BOUNDARY)[..., None]
    white = np.asarray(rgb(PAPER), np.float32)
    light = white + ink * (np.asarray(palette, np.float32)[np.maximum(kind, 0)] - white)
    return Picture(_reduced(light, inside, _FINE))


def _grid(mesh: Mesh, fine: int) -> Grid:
    """The points of a mesh's picture, with so many per pixel and axis."""
    low, high = mesh.uv.amin(0).tolist(), mesh.uv.amax(0).tolist()
    extent = np.subtract(high, low)
    pixels = np.maximum(1, np.round(_SIDE * extent / extent.max())).astype(int)
    columns, rows = (fine * pixels).tolist()
    step = extent / (columns, rows)
    return Grid(low[0] + step[0] / 2, low[1] + step[1] / 2, step[0], step[1], columns, rows)


def _owners(mesh: Mesh, grid: Grid) -> Ints:
    """The cell of each point, (rows, columns) from below, -1 outside."""
    return np.concatenate([owner for _, _, owner in Cells.of(mesh, grid).bands(grid)])


def _values(part: PartitionData, owner: Ints, x: Floats, y: Floats) -> Floats:
    """The outputs (rows, columns, n) at points of a grid, in the coordinates of the mesh."""
    regions, place = np.unique(np.maximum(owner, 0), return_inverse=True)
    fit = _fitted(part, torch.from_numpy(regions).to(part.mesh.uv.device))
    middle, mean, slope = map(to_numpy, fit)
    place = place.reshape(owner.shape)
    found: Floats = mean[place]
    found += slope[place, 0] * (x - middle[place, 0])[..., None]
    found += slope[place, 1] * (y[:, None] - middle[place, 1])[..., None]
    return found


def _fitted(part: PartitionData, regions: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Affine functions through the outputs at the corners of some regions (R,).

    The mean of the corners (R, 2), the outputs there (R, n), and their slopes (R, 2, n); of a
    region that is too thin for a slope, that along it.
    """
    mesh = part.mesh
    entries, count = take_rows(mesh.offsets, regions)
    vertex = mesh.edges.view(-1)[mesh.corners[entries]]
    which = owners_of(count)

    def total(values: torch.Tensor) -> torch.Tensor:
        zero = values.new_zeros((len(regions), *values.shape[1:]))
        return zero.index_add_(0, which, values)

    uv, z = mesh.uv[vertex], part.values[vertex]
    middle, mean = total(uv) / count[:, None], total(z) / count[:, None]
    p, q = uv - middle[which], z - mean[which]
    square = total(p[:, :, None] * p[:, None, :])
    moment = torch.stack([total(p[:, k : k + 1] * q) for k in range(2)], 1)
    size = square.diagonal(dim1=1, dim2=2).sum(1)
    slack = EPS**0.5 * size + torch.finfo(torch.float64).tiny
    square = square + slack[:, None, None] * torch.eye(2).to(square)
    return middle, mean, torch.linalg.solve(square, moment)


def _class_colors(values: Floats, level: float) -> tuple[Ints, Floats]:
    """The largest output at each point, and its colour, paler where it leads by little."""
    if values.shape[-1] == 1:
        lead = values[..., 0] - level
        winner, lead = (lead > 0).astype(np.int64), np.abs(lead)
    else:
        winner = values.argmax(-1)
        two = np.partition(values, -2, -1)
        lead = two[..., -1] - two[..., -2]
    return winner, paler(winner, lead, float(np.median(lead)))


def _output_colors(values: Floats, inside: Bools, level: float) -> Floats:
    """Two colours on both sides of the level, or one where it is on one side."""
    low, high = np.quantile(values[inside], (0.01, 0.99)) if inside.any() else (0.0, 1.0)
    below, above = level - low, high - level
    if min(below, above) > _BALANCE * max(below, above):
        reach = max(below, above)
        ends, place = (CLASSES[0], PAPER, CLASSES[1]), (values - level) / (2 * reach) + 0.5
    else:
        ends, place = (CLASSES[0], "#7fc4c9", "#fbf7d8"), (values - low) / (high - low or 1.0)
    stops = np.array([rgb(end) for end in ends])
    at = np.linspace(0, 1, len(stops))
    return np.stack([np.interp(place, at, channel) for channel in stops.T], -1)


def _curve_colors(curves: Curves) -> tuple[Ints, Floats]:
    """The number of each segment's colour (S,), and the colours."""
    if isinstance(curves, LevelSet) and len(curves.levels) > 1:
        share = np.linspace(0, 1, len(curves.levels))[:, None]
        shades = rgb(CLASSES[0]) + share * (rgb(CLASSES[4]) - rgb(CLASSES[0]))
        return curves.label.cpu().numpy(), shades
    if isinstance(curves, NeuronCurves):
        return curves.layer.cpu().numpy(), class_palette(len(curves.partition.layers))
    return np.zeros(len(curves), np.int64), rgb(INK)[None]


def _borders(kind: Ints) -> Bools:
    """The points next to another kind; what is outside, -1, has no border."""
    found = np.zeros(kind.shape, bool)
    for kinds, marks in ((kind, found), (kind.T, found.T)):
        differ = (kinds[1:] != kinds[:-1]) & (kinds[1:] >= 0) & (kinds[:-1] >= 0)
        marks[1:] |= differ
        marks[:-1] |= differ
    return found


def _wider(kind: Ints) -> Ints:
    """Every point of a kind, at or above 0, with its four neighbours."""
    found = kind.copy()
    for kinds, wide in ((kind, found), (kind.T, found.T)):
        np.maximum(wide[1:], kinds[:-1], out=wide[1:])
        np.maximum(wide[:-1], kinds[1:], out=wide[:-1])
    return found


def _faded(lines: Bools, share: float) -> Singles:
    """The strength of lines, less where they take up much of the picture."""
    share *= min(1.0, _CROWDED / (float(lines.mean()) or 1.0))
    return lines * np.float32(share)


def _spread(values: Any, step: int, shape: tuple[int, ...]) -> Any:
    """Values of a coarse grid for all points of a finer one, in an array of its own."""
    return values.repeat(step, 0).repeat(step, 1)[: shape[0], : shape[1]].copy()


def _points_along(ends: Floats, grid: Grid) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Columns, rows and segments of points along segments (S, 2, 2), a few at a time."""
    place = (ends - (grid.left, grid.low)) / (grid.step, grid.rise)
    reach = np.abs(place[:, 1] - place[:, 0]).max(1)
    for some in np.array_split(np.arange(len(ends)), 1 + int(reach.sum()) // (1 << 22)):
        count = np.ceil(reach[some]).astype(np.int64) + 1
        segment = np.repeat(some, count)
        t = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        t = t / np.maximum(1, np.repeat(count - 1, count))
        point = place[segment, 0] + t[:, None] * (place[segment, 1] - place[segment, 0])
        column, row = np.round(point).astype(np.int64).T
        column, row = np.clip(column, 0, grid.columns - 1), np.clip(row, 0, grid.rows - 1)
        yield column, row, segment


def _reduced(light: Floats, inside: Bools, fine: int) -> Pixels:
    """The pixels (h, w, 4) from the top, each the mean of a few points; clear outside."""
    outside = np.pad(np.where(inside, -1, 0), 2)
    rim = (_wider(_wider(outside))[2:-2, 2:-2] >= 0) & inside
    light = light + (_BORDER * rim)[..., None] * (rgb(_GREY) - light)
    pixels = np.zeros((inside.shape[0] // fine, inside.shape[1] // fine, 4), np.float32)
    for i in range(fine):
        for j in range(fine):
            some = inside[i::fine, j::fine]
            pixels[..., :3] += light[i::fine, j::fine] * some[..., None]
            pixels[..., 3] += some
    pixels[..., :3] /= np.maximum(pixels[..., 3:], 1)
    pixels[..., 3] /= fine**2
    return np.asarray(255 * np.clip(pixels[::-1], 0, 1) + 0.5, np.uint8)
