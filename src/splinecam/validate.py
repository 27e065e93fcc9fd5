"""Prove a partition: its structure by integers and areas, its maps against the real model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from splinecam.errors import ValidationError
from splinecam.locate import signed_distances
from splinecam.meshcheck import Check, check_mesh
from splinecam.predicates import (
    EPS,
    JACOBIAN_PRECISION,
    SAFETY,
    UNRESOLVED_REACH,
    UV_ERROR,
    VALUE_PRECISION,
)
from splinecam.ragged import owners_of, take_rows
from splinecam.reference import CannotRun, Forward, own_gradient, run_real

if TYPE_CHECKING:
    from splinecam._partition import Partition
    from splinecam.mesh import Mesh

__all__ = ["Check", "Report", "check_mesh", "validate"]

_JACOBIAN_SAMPLES = 64
_JACOBIAN_OUTPUTS = 16
_BATCH = 1 << 24  # numbers in one batch of inputs to the real model


@dataclass(frozen=True, repr=False)
class Report:
    """All checks of a partition, with the number of regions the real model was asked about.

    excused: regions next to places that the partition itself reports as unresolved.
    """

    checks: tuple[Check, ...]
    regions: int
    sampled: int
    excused: int = 0

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def __repr__(self) -> str:
        passed = sum(check.ok for check in self.checks)
        return f"Report({passed} of {len(self.checks)} checks passed, {self.regions:,} regions)"

    def __str__(self) -> str:
        head = f"{self.regions:,} regions, {self.sampled:,} compared with the model"
        if self.excused:
            head += f", {self.excused:,} at unresolved places excused"
        return "\n".join([head, *map(str, self.checks)])


def validate(part: Partition, *, samples: int = 2000, seed: int = 0) -> Report:
    """Check the structure, and the maps against the real model on so many of the regions.

    Returns a report of the checks; raises ``ValidationError`` with those that failed. A private
    copy of the model runs in float64; a model that cannot be run so is compared in its own
    precision, and the names of these checks say so.
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    with torch.inference_mode(False):
        return _validate(part, samples, seed)


def _validate(part: Partition, samples: int, seed: int) -> Report:
    trusted = ~_unresolved(part)
    checks = check_mesh(part.mesh, float(part.domain.area) / part.frame.scale**2, trusted)
    sampled, excused = 0, int((~trusted).sum())
    if all(check.ok for check in checks) and bool(trusted.any()):
        generator = torch.Generator().manual_seed(seed)
        chosen = _sample_regions(part, trusted, samples, generator)
        points = [
            part.frame.to_local(part.centroids[chosen]),
            _interior_points(part.mesh, chosen, generator),
        ]
        checks += _check_located(part, [*points, _domain_points(part, samples, generator)])
        switches, decided = _switches(part, points)
        checks.append(Check("regions inside which a unit switches", switches, 0))
        if part.unresolved:  # what is blurred there may reach farther than the place itself
            excused += int((~decided).sum())
            chosen, points = chosen[decided], [uv[decided] for uv in points]
        sampled = int(chosen.shape[0])
        if sampled:
            checks += _check_model(part, chosen, points, generator)
    report = Report(tuple(checks), len(part), sampled, excused)
    if not report.ok:
        failed = "\n".join(f"  {check}" for check in checks if not check.ok)
        hint = ""
        if sampled and not any("switches" in check.name and not check.ok for check in checks):
            hint = "\nIf the model was changed since (weights, train mode), partition it again."
        raise ValidationError(f"{part!r} is not valid:\n{failed}{hint}")
    return report


def _unresolved(part: Partition) -> Tensor:
    """Regions with a corner at a place that the partition reports as unresolved, (F,)."""
    mesh = part.mesh
    if not part.unresolved:
        return torch.zeros(mesh.num_faces, dtype=torch.bool, device=mesh.uv.device)
    near = torch.zeros(mesh.num_vertices, dtype=torch.bool, device=mesh.uv.device)
    places = sorted({item.place for item in part.unresolved})
    local = part.frame.to_local(torch.tensor(places, dtype=torch.float64).view(-1, 2)).to(mesh.uv)
    for place in torch.split(local, max(1, _BATCH // mesh.num_vertices)):
        near |= (torch.cdist(mesh.uv, place) <= UNRESOLVED_REACH).any(1)
    return mesh.sums(near[mesh.corner_vertices()].long()) > 0


# -- places -----------------------------------------------------------------------------------


def _domain_points(part: Partition, count: int, generator: torch.Generator) -> Tensor:
    """Random points anywhere in the domain, in the engine's coordinates, (count, 2)."""
    corners = part.frame.to_local(part.domain.corners.to(part.mesh.uv))
    share = torch.rand((count, corners.shape[0]), generator=generator, dtype=torch.float64)
    share = -share.clamp(min=EPS).log()
    return (share / share.sum(1, keepdim=True)).to(corners) @ corners


def _check_located(part: Partition, points: list[Tensor]) -> list[Check]:
    """Whether ``locate`` finds a region for every point, and one that holds the point."""
    uv = torch.cat(points)
    found = part._locator(uv)
    some = (found >= 0).nonzero()[:, 0]
    depth = signed_distances(part.mesh, uv[some], found[some])
    off = float(-depth.clamp(max=0).min()) if some.shape[0] else 0.0
    return [
        Check("points of the domain that locate finds in no region", len(uv) - len(some), 0),
        Check("distance of points from the region that locate finds", off, SAFETY * UV_ERROR),
    ]


# -- the real model ---------------------------------------------------------------------------


def _sample_regions(
    part: Partition, trusted: Tensor, samples: int, generator: torch.Generator
) -> Tensor:
    """All trusted regions, or the largest, the smallest and random ones."""
    faces = trusted.nonzero()[:, 0]
    F = faces.shape[0]
    if samples >= F:
        return faces
    order = torch.argsort(part.areas[faces]).cpu()
    extremes = torch.cat([order[: samples // 8], order[F - samples // 8 :]])
    others = torch.randperm(F, generator=generator)[: samples - 2 * (samples // 8)]
    chosen: Tensor = torch.unique(torch.cat([extremes, others]))
    return faces[chosen.to(faces.device)]


def _interior_points(mesh: Mesh, faces: Tensor, generator: torch.Generator) -> Tensor:
    """One random point inside each face, (N, 2): a random convex combination of its corners."""
    entries, counts = take_rows(mesh.offsets, faces)
    owner = owners_of(counts)
    share = torch.rand(owner.shape[0], generator=generator, dtype=torch.float64).to(mesh.uv.device)
    share = share + 1 / SAFETY  # stay away from the border
    total = share.new_zeros(faces.shape[0]).index_add_(0, owner, share)
    vertex = mesh.edges.view(-1)[mesh.corners[entries]]
    points = mesh.uv.new_zeros((faces.shape[0], 2))
    points.index_add_(0, owner, mesh.uv[vertex] * (share / total[owner])[:, None])
    return points


def _check_model(
    part: Partition, faces: Tensor, points: list[Tensor], generator: torch.Generator
) -> list[Check]:
    """Maps and slopes against the real model at the centroids and at random interior points.

    The model is run in float64, and if that is not possible in its own precision.
    """
    options = (part.model, part.output, part.dtype)
    try:
        with run_real(*options, wide=True, device=part.mesh.uv.device) as forward:
            checks = _check_values(forward, part, faces, points, torch.float64)
            return [*checks, _check_slopes(forward, part, faces, points[1], generator)]
    except CannotRun as error:
        obstacle = error
    try:
        with run_real(*options, wide=False, device=part.mesh.uv.device) as forward:
            checks = _check_values(forward, part, faces, points, part.dtype)
    except CannotRun as error:
        raise ValidationError(f"{part!r}: the model cannot be run: {error}") from error
    own = str(part.dtype).removeprefix("torch.")
    reason = f"slopes not compared, as the model runs in {own} only ({obstacle})"
    return [*checks, Check(reason, 0, 0)]


def _check_values(
    forward: Forward, part: Partition, faces: Tensor, points: list[Tensor], dtype: torch.dtype
) -> list[Check]:
    """Maps against the real model, which is run in the given precision."""
    scale = float(part.values.abs().max()) or 1.0
    spread = float(part.values.amax(0).sub(part.values.amin(0)).max())
    coarse = torch.finfo(dtype).eps / EPS  # 1 in float64
    noise = SAFETY * float(part.value_error.max()) * coarse
    limit = VALUE_PRECISION * max(spread, EPS * scale) + noise
    where = "" if dtype == torch.float64 else f" in {str(dtype).removeprefix('torch.')}"
    return [
        Check(
            f"map against the model at {what}{where}",
            float((_predict(part, faces, uv) - _evaluate(forward, part, uv)).abs().max()),
            limit,
        )
        for what, uv in zip(("centroids", "random interior points"), points, strict=True)
    ]


def _check_slopes(
    forward: Forward, part: Partition, faces: Tensor, uv: Tensor, generator: torch.Generator
) -> Check:
    """Slopes against those of the real model at some of the points (N, 2)."""
    steepest = float(part.maps.weight.abs().max()) or 1.0
    limit = JACOBIAN_PRECISION * steepest + SAFETY * float(part.value_error.max())
    some = torch.randperm(faces.shape[0], generator=generator)[:_JACOBIAN_SAMPLES]
    some = some.to(faces.device)
    outputs = torch.randperm(part.values.shape[1], generator=generator)[:_JACOBIAN_OUTPUTS]
    try:
        worst, own = _slope_error(forward, part, faces[some], uv[some], outputs.tolist())
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, CannotRun):  # of an operator or a module that has no gradient
        return Check("slopes not compared, as the model has no gradient", 0, 0)
    if own and worst > limit:
        return Check("slopes not compared, as the model defines a gradient of its own", 0, 0)
    return Check("slopes against autograd", worst, limit)


def _predict(part: Partition, faces: Tensor, uv: Tensor) -> Tensor:
    """What the regions' maps say of the model's output at local points, (N, n_out)."""
    maps = part.maps
    shift = (uv - maps.anchor[faces])[:, :, None]
    output = maps.value[faces] + (maps.weight[faces] @ shift).squeeze(2)
    if part.program.final is None:
        return output
    shaped = output.view(-1, *part.program.output_shape)
    return part.program.final(shaped).reshape(output.shape)


def _evaluate(forward: Forward, part: Partition, uv: Tensor) -> Tensor:
    """Outputs of the real model at local points, (N, n_out)."""
    step = max(1, _BATCH // max(1, part.domain.dim))
    with torch.no_grad():
        blocks = [part.domain.embed(part.frame.to_plane(block)) for block in torch.split(uv, step)]
        return torch.cat([forward(x) for x in blocks])


def _slope_error(
    forward: Forward, part: Partition, faces: Tensor, uv: Tensor, outputs: list[int]
) -> tuple[float, bool]:
    """Largest difference of slopes along the frame's axes, both by back-propagation.

    Also whether the model says itself what its gradient is.
    """

    def slopes(y: Tensor, at: Tensor) -> Tensor:
        rows = [
            torch.autograd.grad(y[:, k].sum(), at, retain_graph=True, materialize_grads=True)[0]
            for k in outputs
        ]
        return torch.stack([row.reshape(uv.shape[0], -1) for row in rows], 1)

    with torch.enable_grad():
        x = part.domain.embed(part.frame.to_plane(uv)).requires_grad_()
        y = forward(x)
        actual = slopes(y, x) @ part.domain.basis.to(uv).T * part.frame.scale
        at = uv.clone().requires_grad_()
        worst = float((slopes(_predict(part, faces, at), at) - actual).abs().max())
        return worst, own_gradient(y)


def _switches(part: Partition, points: list[Tensor]) -> tuple[int, Tensor]:
    """Regions with a unit on one piece at one of two interior points and on another at the other.

    Also, (N,), whether rounding leaves no doubt about the pieces at both points.
    """
    count = points[0].shape[0]
    switched = torch.zeros(count, dtype=torch.bool, device=points[0].device)
    decided = ~switched
    blind = 2 * SAFETY if part.unresolved else 1.0
    step = max(1, _BATCH // max(1, part.domain.dim) // 4)
    for start in range(0, count, step):
        rows = slice(start, start + step)
        walks = (
            part.program.walk(part.domain.embed(part.frame.to_plane(uv[rows]))) for uv in points
        )
        with torch.no_grad():
            for (cut, a), (_, b) in zip(*walks, strict=True):
                near = part.cut_errors[cut.name]
                far = blind * near
                switched[rows] |= cut.apart(a, b, far).any(1)
                clear = cut.decided(a, near, far).all(1) & cut.decided(b, near, far).all(1)
                decided[rows] &= clear
    return int(switched.sum()), decided
