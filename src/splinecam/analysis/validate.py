"""Prove a partition: its structure by integers and areas, its maps against the real model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from splinecam._util.csr import owners_of, take_rows
from splinecam._util.progress import progress_bar
from splinecam._util.tolerances import EPS, SAFETY, UNRESOLVED_REACH, UV_ERROR
from splinecam.analysis.model_checks import Sites, check_model, switches
from splinecam.analysis.partition_data import PartitionData
from splinecam.errors import ValidationError
from splinecam.geometry.checks import Check, check_mesh
from splinecam.geometry.point_location import signed_distances

if TYPE_CHECKING:
    from splinecam.geometry.subdivision import Mesh

__all__ = ["Check", "Report", "check_mesh", "validate"]

# Points at which the model is run by default: as many as the partition has vertices, where it was
# evaluated as well, within these limits.
_LEAST, _MOST = 1000, 4000
_LOCATED = 2000  # random points of the domain that are located
_BATCH = 1 << 24  # distances computed in one go


@dataclass(frozen=True, repr=False)
class Report:
    """All checks of a partition, and how much of it was compared with the real model.

    regions: how many there are; sampled: of how many the maps were compared, at how many points;
    excused: regions next to places that the partition itself reports as unresolved.
    """

    checks: tuple[Check, ...]
    regions: int
    sampled: int
    excused: int = 0
    points: int = 0

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def __repr__(self) -> str:
        passed = sum(check.ok for check in self.checks)
        return f"Report({passed} of {len(self.checks)} checks passed, {self._extent()})"

    def __str__(self) -> str:
        return "\n".join([self._extent(), *map(str, self.checks)])

    def _extent(self) -> str:
        text = (
            f"{self.sampled:,} of {self.regions:,} region{'s' * (self.regions != 1)} compared with "
            f"the model at {self.points:,} points"
        )
        return f"{text}, {self.excused:,} at unresolved places excused" if self.excused else text


def validate(
    part: PartitionData,
    *,
    samples: int | None = None,
    thorough: bool = False,
    seed: int = 0,
    progress: bool = True,
) -> Report:
    """Check the structure of all regions, and the maps of some of them against the real model.

    Returns a report of the checks; raises ``ValidationError`` with those that failed. A private
    copy of the model runs in float64; a model that cannot be run so is compared in its own
    precision, and the names of these checks say so.

    By default the model is run at as many points as the partition has vertices, but at 1,000 at
    least and 4,000 at most. For a large network with fewer vertices than that, this takes several
    times as long as the partition.

    samples: compare this many regions instead, at two points each. thorough: compare every region,
    and slopes output by output. seed: which random regions and points. progress: show a bar, in
    interactive use only.
    """
    if samples is not None and samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    if samples is not None and thorough:
        raise ValueError("give either samples, or thorough=True for all regions")
    with torch.inference_mode(False):
        return _validate(part, samples, thorough, seed, progress)


def _validate(
    part: PartitionData, samples: int | None, thorough: bool, seed: int, progress: bool
) -> Report:
    trusted = ~_unresolved(part)
    checks = check_mesh(part.mesh, float(part.domain.area) / part.frame.scale**2, trusted)
    sampled, points, excused = 0, 0, int((~trusted).sum())
    if all(check.ok for check in checks) and bool(trusted.any()):
        generator = torch.Generator().manual_seed(seed)
        sites, located = _sites(part, trusted, samples, thorough, generator)
        checks += located
        evaluations = 4 * sites.faces.shape[0] + sites.around.shape[0]
        with progress_bar(evaluations, "point", progress) as bar:
            switched, decided = switches(part, sites, bar.update)
            checks.append(Check("regions inside which a unit switches", switched, 0))
            if part.unresolved:  # what is blurred there may reach farther than the place itself
                excused += int((~decided).sum())
                sites = sites.only(decided)
            sampled = int(sites.faces.shape[0])
            points = sum(faces.shape[0] for faces, _ in sites.groups().values())
            if sampled:
                checks += check_model(part, sites, thorough, generator, bar.update)
    report = Report(tuple(checks), len(part), sampled, excused, points)
    if not report.ok:
        failed = "\n".join(f"  {check}" for check in checks if not check.ok)
        hint = ""
        if sampled and not any("switches" in check.name and not check.ok for check in checks):
            hint = "\nIf the model was changed since (weights, train mode), partition it again."
        raise ValidationError(f"{part!r} is not valid:\n{failed}{hint}")
    return report


def _unresolved(part: PartitionData) -> Tensor:
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


def _sites(
    part: PartitionData,
    trusted: Tensor,
    samples: int | None,
    thorough: bool,
    generator: torch.Generator,
) -> tuple[Sites, list[Check]]:
    """Where to compare with the model, and whether ``locate`` finds these places."""
    points = min(_MOST, max(_LEAST, part.mesh.num_vertices))
    most = len(part) if thorough else points // 2 if samples is None else samples
    faces = _sample_regions(part, trusted, most, generator)
    more = max(0, _LEAST - 2 * faces.shape[0]) if samples is None else 0
    centroids = part.frame.to_local(part.centroids[faces])
    interior = _interior_points(part.mesh, faces, generator)
    anywhere = _domain_points(part, _LOCATED, generator)
    checks, found = _check_located(part, torch.cat([anywhere, centroids, interior]))
    inside = (found[:more] >= 0).nonzero()[:, 0]
    inside = inside[trusted[found[inside]]]
    return Sites(faces, centroids, interior, anywhere[inside], found[inside]), checks


def _domain_points(part: PartitionData, count: int, generator: torch.Generator) -> Tensor:
    """Random points anywhere in the domain, in the engine's coordinates, (count, 2)."""
    corners = part.frame.to_local(part.domain.corners.to(part.mesh.uv))
    share = torch.rand((count, corners.shape[0]), generator=generator, dtype=torch.float64)
    share = -share.clamp(min=EPS).log()
    return (share / share.sum(1, keepdim=True)).to(corners) @ corners


def _check_located(part: PartitionData, uv: Tensor) -> tuple[list[Check], Tensor]:
    """Whether ``locate`` finds a region for every point, and one that holds it; the regions."""
    found = part._locator(uv)
    some = (found >= 0).nonzero()[:, 0]
    depth = signed_distances(part.mesh, uv[some], found[some])
    off = float(-depth.clamp(max=0).min()) if some.shape[0] else 0.0
    checks = [
        Check("points of the domain that locate finds in no region", len(uv) - len(some), 0),
        Check("distance of points from the region that locate finds", off, SAFETY * UV_ERROR),
    ]
    return checks, found


def _sample_regions(
    part: PartitionData, trusted: Tensor, samples: int, generator: torch.Generator
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
