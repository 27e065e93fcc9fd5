"""The surface on which an output of a network has a value: the cells that it meets, and its faces.

The body is first divided by a coarse grid, as bounds on small cells are tight. Then the layers of
the network divide what is left, and at last the output itself does. The surface is what separates
negative cells from the others, so that it is closed, and faces are joined again across the grid.
Where memory is scarce, some cells of the grid go through the network at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from splinecam._util.arrays import offsets_of, owners_of, take, take_rows
from splinecam._util.graphs import roots
from splinecam._util.progress import progress_bar, tell
from splinecam._util.tolerances import EPS, OVERLAY_SLACK, SAFETY
from splinecam.engine.activations import require_no_overflow
from splinecam.errors import LimitError
from splinecam.geometry.solids import Solid
from splinecam.network.program import Program
from splinecam.solid.complex import AUXILIARY, SIDE, Complex
from splinecam.solid.data import SurfaceData
from splinecam.solid.dropping import Dropping, extremes
from splinecam.solid.faces import FlatFaces
from splinecam.solid.fits import affine_maps, means, widest
from splinecam.solid.front import Front, Target
from splinecam.solid.outputs import Output

_HALVINGS = 3  # of the body along each axis
_WARP = 0.05 * (5**0.5 - 2)
_SURFACE = 1 << 40  # the layer of the faces of the surface
_FEWER = 8  # by which the number of cells is divided that may take too much memory


class Pieces(NamedTuple):
    """Pieces of the faces of a surface, from a part of the body.

    faces: the pieces; gradient: (P, 3) and bias: (P,) of the target on the cells from which they
    come; width: (P,) of these cells; places: (N, 3) what is unresolved; error: of the target.
    """

    faces: FlatFaces
    gradient: Tensor
    bias: Tensor
    width: Tensor
    places: Tensor
    error: float


def surface_data(
    program: Program,
    solid: Solid,
    *,
    level: float = 0.0,
    output: Output = 0,
    grid: int = _HALVINGS,
    memory: int | None = None,
    progress: bool = False,
) -> SurfaceData:
    """The surface on which an output, or the difference of two, has a value.

    grid: how often the body is halved along each axis, before the network divides it; memory: bytes
    that the cells and their values may take at a time.
    """
    weight = torch.zeros(program.output_shape, dtype=torch.float64).reshape(-1)
    first, *second = [output] if isinstance(output, int) else output
    weight[first] += 1
    weight[second] -= 1
    solid = solid.to(program.device)
    middle, solid = solid.middle, solid.centred
    target = Target(weight, float(level))
    dropping = Dropping.of(program, target)
    front = Front.of(program, solid, target)
    for k in range(grid):
        if front.complex.num_cells:
            front, _ = dropping.without_empty(_halved(front, solid, k, dropping))
    with progress_bar(front.complex.num_cells, "cell", progress) as bar:
        parts = list(_parts(front, solid, dropping, memory, bar))
    extent = float((solid.corners.amax(0) - solid.corners.amin(0)).max())
    found = _joined(parts, dropping.counts, OVERLAY_SLACK * extent)
    found = replace(
        found,
        vertices=found.vertices + middle,
        bias=found.bias - found.gradients @ middle,
        unresolved=[(torch.tensor(place) + middle).tolist() for place in found.unresolved],
    )
    arrays: Any = {name: x.cpu() for name, x in vars(found).items() if isinstance(x, Tensor)}
    return replace(found, **arrays)


def _parts(
    front: Front, solid: Solid, dropping: Dropping, memory: int | None, bar: tqdm[Any]
) -> Iterator[Pieces]:
    """The pieces in some cells of the grid at a time, as many as memory allows."""
    count = front.complex.num_cells
    # What is too large is found late, when most of the time for it is spent.
    size, begin, cells = count if memory is None else count // _FEWER + 1, 0, torch.arange(count)
    while begin < count:
        size = min(size, count - begin)
        part, _ = front.select((cells >= begin) & (cells < begin + size))
        own = dropping.afresh()
        try:
            done, used = _carried(part, own, memory, bar)
        except (LimitError, torch.OutOfMemoryError):
            if size == 1:
                raise
            size = max(1, size // _FEWER)
            continue
        if done.complex.num_cells:
            yield _extracted(done, solid, own.counts)
        dropping.add(own.counts)
        begin += size
        bar.update(size)
        if memory is not None and begin < count:
            size = max(1, min(2 * size, int(size * memory / (2 * used))))


def _carried(
    front: Front, dropping: Dropping, memory: int | None, bar: tqdm[Any]
) -> tuple[Front, int]:
    """A front after all layers, and the most bytes that it took."""
    used, count = 1, len(front.program.layers)
    while front.layer is not None and front.complex.num_cells:
        front = front.carried(dropping)
        used = max(used, front.require_room(memory, "The surface"))
        front, _ = dropping.without_empty(front)
        tell(bar, f"layer {front.index} of {count}, {front.complex.num_cells:,} cells", 0)
    return front, used


def _halved(front: Front, solid: Solid, halvings: int, dropping: Dropping) -> Front:
    """The front with all cells of a grid halved along each axis."""
    low, high = solid.corners.amin(0), solid.corners.amax(0)
    steps = (2 * torch.arange(2**halvings, dtype=torch.float64) + 1) / 2 ** (halvings + 1)
    # Borders of linear regions often lie at simple fractions. The grid does not.
    steps += _WARP * steps * (1 - steps)
    places = low + (high - low) * steps[:, None]  # (K, 3)
    z = (front.complex.uvw[:, None] - places).flatten(1)
    tolerance = (SAFETY * EPS) * torch.maximum(low.abs(), high.abs()).repeat(len(steps))
    label = torch.zeros(len(tolerance), dtype=torch.int64)
    return front.divided(z, tolerance, label, AUXILIARY, dropping)


def _joined(parts: Sequence[Pieces], counts: Counter[str], reach: float) -> SurfaceData:
    """The surface of the pieces in all parts.

    reach: the distance up to which vertices on the seams of parts are the same.
    """
    report = {**counts, "rounding": max((part.error for part in parts), default=0.0)}
    report = {"flat cells": 0, "uncut cells": 0, **report}
    if not parts:
        none, index = torch.zeros((0, 3), dtype=torch.float64), torch.zeros(0, dtype=torch.int64)
        arrays = none, offsets_of(index), index, index.int(), none, none[:, 0], index
        return SurfaceData(*arrays, report, [])
    pieces = FlatFaces.together([part.faces for part in parts], reach)
    places = torch.cat([pieces.lacking(), *(part.places for part in parts)])
    faces = pieces.joined()
    gradient, bias, width = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("gradient", "bias", "width")
    )
    best = widest(width, faces.group)
    vertices, face_vertices = torch.unique(faces.start, return_inverse=True)
    return SurfaceData(
        faces.uvw[vertices],
        faces.offsets,
        face_vertices,
        faces.layer.int(),
        gradient[best],
        bias[best],
        torch.arange(len(best)),
        report,
        torch.unique(places, dim=0).tolist(),
    )


def _extracted(front: Front, solid: Solid, counts: Counter[str]) -> Pieces:
    """The pieces of the surface between negative cells and others."""
    target, before, known = front.target, front.complex, front.complex.num_vertices
    assert target is not None
    error = target.error(front.bounds[front.program.output_name])
    require_no_overflow({}, torch.tensor([error], dtype=torch.float64))
    tolerance = torch.tensor([SAFETY * error], dtype=torch.float64)
    f = torch.where(front.f.abs() <= tolerance, 0.0, front.f)
    cut = before.cut(f[:, None], tolerance, torch.zeros(1, dtype=torch.int64), _SURFACE)
    whole, made = cut.complex, cut.made
    f = torch.cat([f, f.new_zeros(whole.num_vertices - known)])
    offsets, corners = whole.cell_corners()
    low, high = extremes(take(f, corners), offsets)
    below = -low > high
    flat = (low == 0) & (high == 0)
    beside = whole.beside()
    inner = (beside >= 0).all(1)
    sides = take(below, beside.clamp(min=0).view(-1)).view(-1, 2)
    face = (inner & (sides[:, 0] != sides[:, 1])).nonzero()[:, 0]
    counts["flat cells"], counts["uncut cells"] = int(flat.sum()), made.uncut.shape[0]
    counts["kept"] = before.num_cells
    # An output that is zero up to rounding in the whole body hides where it is zero.
    hidden = not counts["dropped"] and 0 < float(front.f.abs().max()) <= float(tolerance)
    places = [*front.uncut, solid.corners.mean(0, keepdim=True)[: int(hidden)]]
    places += [
        means(whole.uvw, offsets, corners, made.uncut),
        _touched(whole, f, take(flat, beside.amax(1))),
    ]
    doubtful = flat
    if counts["flat cells"]:
        noise = torch.cat([front.f.abs(), f[known:]])
        doubtful = flat & (extremes(take(noise, corners), offsets)[1] > 0)
    if bool(doubtful.any()):
        centres = means(whole.uvw, offsets, corners, _one_of_each(doubtful, beside[inner]))
        # Vertices on borders have the rounding of their neighbours, centres have none of it.
        places.append(centres[target.of(front.program(solid.to_input(centres))) != 0])
    # The piece below has the network's map, as the one above may be flat.
    cell = made.parent[torch.where(sides[face, 0], beside[face, 0], beside[face, 1])]
    faces = FlatFaces.of(_relabelled(whole, face), face, ~sides[face, 0])
    return Pieces(faces, *_maps(front, solid, cell), torch.cat(places), error)


def _touched(whole: Complex, f: Tensor, flat: Tensor) -> Tensor:
    """The middle of a face on each side of the body that the surface touches, (N, 3).

    Where f is zero up to rounding on a side and not inside, the surface may be inside or outside.
    flat: (F,) whether it is zero inside.
    """
    outer = (whole.arrays.face_layer == SIDE).nonzero()[:, 0]
    rows, sizes = take_rows(whole.arrays.face_offsets, outer)
    vertices, offsets = take(whole.corner_vertices(), rows), offsets_of(sizes)
    far = extremes(take(f, vertices).abs(), offsets)[1] > 0
    touched = (~far & ~take(flat, outer)).nonzero()[:, 0]
    sides, place = torch.unique(take(whole.arrays.face_unit, outer[touched]), return_inverse=True)
    first = torch.zeros_like(sides).scatter_(0, place, touched)
    return means(whole.uvw, offsets, vertices, first)


def _one_of_each(chosen: Tensor, beside: Tensor) -> Tensor:
    """The first cell of each connected part of the chosen cells (C,); beside: (N, 2) neighbours."""
    pairs = beside[take(chosen, beside.reshape(-1)).view(-1, 2).all(1)]
    root = roots(chosen.shape[0], *pairs.unbind(1))
    first: Tensor = torch.unique(root[chosen])
    return first


def _relabelled(whole: Complex, face: Tensor) -> Complex:
    """The complex with the layers of edges that faces of the surface have from other faces there.

    Where the surface is a border of regions, it has old faces, in which later layers drew edges.
    Where it goes through an old edge, the faces there may be no borders of regions.
    """
    arrays = whole.arrays
    surface = torch.zeros(whole.num_faces, dtype=torch.bool)
    surface[face] = True
    owner = owners_of(arrays.face_offsets.diff(), arrays.corners.shape[0])
    other = ~surface[owner]
    none = torch.full_like(arrays.edge_layer, AUXILIARY - 1)
    edge, layers = (arrays.corners >> 1)[other], arrays.face_layer[owner[other]]
    layers = torch.where(layers == SIDE, _SURFACE, layers)  # ahead of all others
    found = none.scatter_reduce_(0, edge, layers, "amax")
    layer = torch.where(found < AUXILIARY, arrays.edge_layer, found)
    layer = torch.where(found == _SURFACE, SIDE, layer)
    return replace(whole, arrays=arrays._replace(edge_layer=layer))


def _maps(front: Front, solid: Solid, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients (P, 3) and offsets (P,) of the target on cells (P,), and their widths."""
    target, whole = front.target, front.complex
    assert target is not None
    offsets, corners = whole.cell_corners()
    rows, sizes = take_rows(offsets, cell)
    error = target.error(front.bounds[front.program.output_name])
    points = whole.uvw, front.f[:, None] + target.level, error

    def slopes(centre: Tensor) -> Tensor:
        return target.weight @ front.slopes(solid, centre)[:, None]

    every = torch.arange(len(cell))
    cells = offsets_of(sizes), corners[rows]
    gradient, bias, width, _ = affine_maps(points, cells, every, slopes)
    return gradient[:, 0], bias[:, 0], width
