"""The surface on which an output of a network has a value: the cells that it meets, and its faces.

The body is first divided by a coarse grid, as bounds on small cells are tight. Then the layers of
the network divide what is left, and at last the output itself does. The surface is what separates
negative cells from the others, so that it is closed, and faces are joined again across the grid.
What would take too much memory is divided along the grid, and goes on part by part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from splinecam._util.arrays import offsets_of, owners_of, take, take_rows
from splinecam._util.backend import is_cuda, release_memory
from splinecam._util.graphs import roots
from splinecam._util.progress import progress_bar, tell
from splinecam._util.tolerances import EPS, OVERLAY_SLACK, SAFETY
from splinecam.engine.activations import require_no_overflow
from splinecam.engine.plan import free_memory
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
_USUAL = 1 << 29  # bytes for a part on a CPU, which is no slower than more
_GROWTH = 64, 4  # of a front in its first layer and in a later one, until it is known


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
    that the cells and their values may take at a time; without it as many as are useful.
    """
    count = math.prod(program.output_shape)
    weight = torch.zeros(count, dtype=torch.float64, device=program.device)
    first, *second = [output] if isinstance(output, int) else output
    weight[first] += 1
    weight[second] -= 1
    solid = solid.to(program.device)
    middle, solid = solid.middle, solid.centred
    target = Target(weight, float(level))
    dropping = Dropping.of(program, target)
    front, planes = Front.of(program, solid, target), solid.corners[:0]
    for k in range(grid):
        if front.complex.num_cells:
            more = _planes(solid, k)
            front, _ = dropping.without_empty(_halved(front, solid, more, dropping))
            planes = torch.cat([planes, more])
    with progress_bar(front.complex.num_cells, "cell", progress) as bar:
        parts = list(_parts(front, solid, dropping, planes, memory, bar))
    extent = float((solid.corners.amax(0) - solid.corners.amin(0)).max())
    release_memory()
    found = _joined(parts, dropping.counts, OVERLAY_SLACK * extent)
    arrays: Any = {name: x.cpu() for name, x in vars(found).items() if isinstance(x, Tensor)}
    found, middle = replace(found, **arrays), middle.cpu()
    return replace(
        found,
        vertices=found.vertices + middle,
        bias=found.bias - found.gradients @ middle,
        unresolved=[(torch.tensor(place) + middle).tolist() for place in found.unresolved],
    )


def _parts(
    front: Front,
    solid: Solid,
    dropping: Dropping,
    planes: Tensor,
    memory: int | None,
    bar: tqdm[Any],
) -> Iterator[Pieces]:
    """The pieces of the surface in parts of the body, each of which fits into memory.

    A front that would grow too large is divided along a plane of the grid, and its halves go on one
    after the other. planes: see ``_halves``.
    """
    device = front.program.device
    usual = free_memory(device) if is_cuda(device) else _USUAL
    limit, bytes_each = usual if memory is None else memory, dict[int, float]()
    waiting, done = [(front, float(bar.total or 0))], 0.0
    while waiting:
        (part, share), own = waiting.pop(), dropping.afresh()
        while part.layer is not None and part.complex.num_cells:
            count, index = part.complex.num_cells, part.index
            expected = count * bytes_each.get(index, _GROWTH[index > 0] * part.memory / count)
            halves = _halves(part, planes) if expected > limit else None
            if halves is not None:
                rest = share * halves[1].complex.num_cells / count
                waiting.append((halves[1], rest))
                part, share = halves[0], share - rest
                continue
            try:
                part, used = _carried(part, own, memory)
            except (LimitError, torch.OutOfMemoryError):
                if expected > limit:
                    raise
                bytes_each[index] = 2 * limit / count  # so that it is divided
                continue
            bytes_each[index] = used / count
            layers, cells = len(part.program.layers), part.complex.num_cells
            tell(bar, f"layer {part.index} of {layers}, {cells:,} cells", 0)
        if part.complex.num_cells:
            yield _extracted(part, solid, own.counts)
        dropping.add(own.counts)
        done += share
        bar.update(round(done) - bar.n)


def _carried(front: Front, dropping: Dropping, memory: int | None) -> tuple[Front, int]:
    """A front after its layer, and the bytes that it took; what fails is not counted."""
    own = dropping.afresh()
    grown = front.carried(own)
    grown.require_room(memory, "The surface")
    left, _ = own.without_empty(grown)
    dropping.add(own.counts)
    return left, grown.memory


def _halves(front: Front, planes: Tensor) -> tuple[Front, Front] | None:
    """The cells on both sides of the plane of the grid that divides them best, None if none does.

    planes: (K, 3) places along each axis, which no cell reaches across.
    """
    whole = front.complex
    every = torch.arange(whole.num_cells, device=planes.device)
    centres = means(whole.uvw, *whole.cell_corners(), every)
    sides = (centres[:, None] < planes).flatten(1)
    off = (2 * sides.sum(0) - whole.num_cells).abs()
    if not len(off) or int(off.amin()) == whole.num_cells:
        return None
    side = sides[:, off.argmin()]
    return front.select(side)[0], front.select(~side)[0]


def _planes(solid: Solid, halvings: int) -> Tensor:
    """Where cells that were halved so often are halved again, (K, 3) along each axis."""
    low, high = solid.corners.amin(0), solid.corners.amax(0)
    steps = torch.arange(2**halvings, dtype=torch.float64, device=low.device)
    steps = (2 * steps[:, None] + 1) / 2 ** (halvings + 1)
    # Borders of linear regions often lie at simple fractions. The grid does not.
    return torch.lerp(low, high, steps + _WARP * steps * (1 - steps))


def _halved(front: Front, solid: Solid, planes: Tensor, dropping: Dropping) -> Front:
    """The front with all cells halved along each axis, at planes (K, 3)."""
    z = (front.complex.uvw[:, None] - planes).flatten(1)
    most = solid.corners.abs().amax(0)
    tolerance = (SAFETY * EPS) * most.repeat(len(planes))
    label = torch.zeros_like(tolerance, dtype=torch.int64)
    return front.divided(z, tolerance, label, AUXILIARY, dropping)


def _joined(parts: Sequence[Pieces], counts: Counter[str], reach: float) -> SurfaceData:
    """The surface of the pieces in all parts.

    reach: the distance up to which vertices on the seams of parts are the same.
    """
    report = {**counts, "rounding": max((part.error for part in parts), default=0.0)}
    report = {"flat cells": 0, "uncut cells": 0, **report}
    if not parts:
        none = torch.zeros((0, 3), dtype=torch.float64, device="cpu")
        index = none.new_zeros(0, dtype=torch.int64)
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
        torch.arange(len(best), device=best.device),
        report,
        torch.unique(places, dim=0).tolist(),
    )


def _extracted(front: Front, solid: Solid, counts: Counter[str]) -> Pieces:
    """The pieces of the surface between negative cells and others."""
    target, before, known = front.target, front.complex, front.complex.num_vertices
    assert target is not None
    error = target.error(front.bounds[front.program.output_name])
    require_no_overflow({}, front.f.new_tensor([error]))
    tolerance = front.f.new_tensor([SAFETY * error])
    f = torch.where(front.f.abs() <= tolerance, 0.0, front.f)
    cut = before.cut(
        f[:, None], tolerance, torch.zeros_like(tolerance, dtype=torch.int64), _SURFACE
    )
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
    surface = torch.zeros_like(arrays.face_layer, dtype=torch.bool)
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

    every = torch.arange(len(cell), device=cell.device)
    cells = offsets_of(sizes), corners[rows]
    gradient, bias, width, _ = affine_maps(points, cells, every, slopes)
    return gradient[:, 0], bias[:, 0], width
