"""Checks of a partition of a body: its cells by themselves, and its maps against the model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import (
    as_rows,
    counts_of,
    following,
    offsets_of,
    owners_of,
    take,
    take_rows,
)
from splinecam._util.tolerances import (
    EPS,
    JACOBIAN_PRECISION,
    PLANAR,
    SAFETY,
    UNRESOLVED_REACH,
    VALUE_PRECISION,
)
from splinecam.geometry.checks import Check
from splinecam.network.capture.models import dtype_of
from splinecam.questions.validate import Forward, Report, accepted, compared, with_final
from splinecam.solid.complex import SIDE
from splinecam.solid.fits import affine_fits, means


def validate(part: Any, *, samples: int, seed: int) -> Report:
    """The report of ``SolidPartition.validate``."""
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    generator = torch.Generator().manual_seed(seed)
    offsets, corners = part.complex.cell_corners()
    size = float((part.box.corners - part.box.corners[0]).norm(dim=1).max())
    reach = SAFETY * EPS * float(part.box.corners.abs().max())  # how far rounding moves vertices
    chosen = torch.randperm(part.complex.num_cells, generator=generator)[:samples].sort().values
    checks = [*_mesh_checks(part, size, reach), _convex(part, chosen, size, reach)]
    rows, counts = take_rows(offsets, chosen)
    own, owner = corners[rows], owners_of(counts, rows.shape[0])
    width = affine_fits(part.vertices, part.values, offsets, corners)[2]
    wide = take(width, chosen) > UNRESOLVED_REACH * size + 2 * reach
    share = torch.rand(len(own), generator=generator, dtype=torch.float64).clamp(min=EPS).log()
    total = share.new_zeros(len(chosen)).index_add_(0, owner, share)
    inside = share.new_zeros((len(chosen), 3))
    inside.index_add_(0, owner, part.vertices[own] * (share / total[owner])[:, None])
    checks += _model_checks(part, chosen, inside, wide, reach)
    checks.append(_pattern_check(part, offsets, corners))
    points = len(chosen) + min(part.complex.num_vertices, samples)
    return accepted(Report(tuple(checks), len(part), int(wide.sum()), 0, points), part)


def _mesh_checks(part: Any, size: float, reach: float) -> list[Check]:
    """Checks that the cells are closed and fill the body."""
    whole, arrays = part.complex, part.complex.arrays
    beside = whole.beside()
    one = (beside < 0).any(1)
    lone = one != (arrays.face_layer == SIDE)
    normals, heights = part.box.planes
    rows, sizes = take_rows(arrays.face_offsets, one.nonzero()[:, 0])
    off = (part.vertices[part.face_vertices[rows]] @ normals.T - heights).abs()
    owner = owners_of(sizes, rows.shape[0])[:, None].expand_as(off)
    far = off.new_zeros((len(sizes), off.shape[1])).scatter_reduce_(0, owner, off, "amax").amin(1)
    # Each edge of a cell has one of its faces on either side.
    face, cells = arrays.sides >> 1, owners_of(arrays.cell_offsets.diff(), len(arrays.sides))
    rows, sizes = take_rows(arrays.face_offsets, face)
    owner, half = owners_of(sizes, len(rows)), arrays.corners[rows]
    edges = cells[owner] * arrays.edges.shape[0] + (half >> 1)
    way = (half & 1) ^ (arrays.sides & 1)[owner]
    used = torch.unique(edges, return_inverse=True)[1]
    torn = (counts_of(2 * used + way, 2 * int(used.max()) + 2) != 1).sum()
    vertices, faces = whole.cell_corners()[0].diff(), arrays.cell_offsets.diff()
    sides = counts_of(cells[owner], whole.num_cells) // 2
    lost = abs(part.volume - part.box.volume) / part.box.volume
    least = float(part.cell_volumes.min()) / part.box.volume
    return [
        Check("faces with one cell that are on no side of the body", int(lone.sum()), 0),
        Check(
            "distance of the outer faces from the sides", float(far.max()), size * PLANAR + reach
        ),
        Check("edges of cells without a face on either side", int(torn), 0),
        Check("cells with V - E + F other than 2", int((vertices - sides + faces != 2).sum()), 0),
        Check("volume that is missing, relative", lost, VALUE_PRECISION + 8 * reach / size),
        Check("volume of cells that are inside out, relative", max(-least, 0.0), VALUE_PRECISION),
    ]


def _convex(part: Any, chosen: Tensor, size: float, reach: float) -> Check:
    """A check that no corner of some cells lies beyond one of their faces."""
    arrays, points = part.complex.arrays, part.vertices
    rows, counts = take_rows(arrays.cell_offsets, chosen)
    side, cell = arrays.sides[rows], owners_of(counts, rows.shape[0])
    first = points[part.face_vertices[take(arrays.face_offsets, side >> 1)]]
    rows, sizes = take_rows(arrays.face_offsets, side >> 1)
    owner = owners_of(sizes, rows.shape[0])
    at = points[part.face_vertices[rows]] - first[owner]
    area = points.new_zeros((len(side), 3))  # of each face, times its normal
    turns = torch.linalg.cross(at, at[following(offsets_of(sizes), len(at))])
    area.index_add_(0, owner, turns * (1 - 2 * (side & 1))[owner, None])
    long = area.new_zeros(len(side)).scatter_reduce_(0, owner, at.norm(dim=1), "amax")
    offsets, corners = part.complex.cell_corners()
    rows, counts = take_rows(offsets, chosen[cell])
    owner = owners_of(counts, rows.shape[0])
    height = ((points[corners[rows]] - first[owner]) * area[owner]).sum(1)
    rounding = 2 * (SAFETY * EPS * size + reach)
    allowed = (PLANAR * size + rounding) * area.norm(dim=1) + rounding * size * long
    return Check("corners beyond a face of their cell", int((height > allowed[owner]).sum()), 0)


def _model_checks(
    part: Any, chosen: Tensor, inside: Tensor, wide: Tensor, reach: float
) -> list[Check]:
    """Checks of outputs and slopes against the real model."""
    network, region = part.network, take(part.region, chosen)
    gradient, bias = take(part.gradients, region), take(part.bias, region)
    order = torch.arange(part.complex.num_vertices)[:: 1 + part.complex.num_vertices // len(chosen)]
    steepest = float(gradient.abs().max())
    scale = max(float(part.values.abs().max()), steepest * float(part.box.corners.abs().max()))

    def mapped(uvw: Tensor) -> Tensor:
        values = (gradient @ uvw[:, :, None])[..., 0] + bias
        return with_final(network.program, values)

    def values(forward: Forward, dtype: torch.dtype) -> list[Check]:
        size = VALUE_PRECISION * scale + SAFETY * part.rounding
        limit = size * torch.finfo(dtype).eps / EPS + 2 * reach * steepest
        real = [as_rows(forward(part.box.to_input(x))) for x in (part.vertices[order], inside)]
        ours = with_final(network.program, part.values[order]), mapped(inside)
        names = "vertices", "random points of cells"
        found = [_largest(x - y) for x, y in zip(real, ours, strict=True)]
        return [
            Check(f"outputs at {name}", worst, limit)
            for name, worst in zip(names, found, strict=True)
        ]

    def slopes(forward: Forward) -> list[Check]:
        weight = torch.linspace(1, 2, bias.shape[1], dtype=torch.float64)
        with torch.enable_grad():
            uvw = inside.clone().requires_grad_()
            found = [
                torch.autograd.grad((y @ weight).sum(), uvw, materialize_grads=True)[0]
                for y in (as_rows(forward(part.box.to_input(uvw))), mapped(uvw))
            ]
        limit = JACOBIAN_PRECISION * steepest * float(weight.sum())
        worst = _largest((found[0] - found[1])[wide])
        return [Check("slopes against autograd", worst, limit)]

    options = network.model, network.output, dtype_of(network.model)
    with torch.inference_mode(False):
        return compared(part, options, part.vertices.device, values, slopes)[0]


def _largest(off: Tensor) -> float:
    return float(off.abs().max().nan_to_num(nan=torch.inf)) if off.numel() else 0.0


def _pattern_check(part: Any, offsets: Tensor, corners: Tensor) -> Check:
    """A check that no two regions have the same pieces of all units, but for thin ones."""
    centre = means(part.vertices, offsets, corners, part.widest[~part.thin])
    program, parts = part.network.program, []
    with torch.no_grad():
        for some in torch.split(centre, 1 << 14) if program.layers else ():
            walk = program.walk(part.box.to_input(some))
            parts.append(torch.cat([layer.pieces(z).to(torch.int32) for layer, z in walk], 1))
    same = len(centre) - 1
    if parts and parts[0].shape[1]:
        same = len(centre) - torch.unique(torch.cat(parts), dim=0).shape[0]
    return Check("regions with the pieces of another region", same, 0)
