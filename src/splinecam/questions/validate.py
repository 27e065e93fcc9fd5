"""Validation: the structure of a partition by itself, and its maps against the real model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from splinecam._util.arrays import owners_of, take_rows
from splinecam._util.progress import progress_bar
from splinecam._util.tolerances import EPS, SAFETY, UNRESOLVED_REACH, UV_ERROR
from splinecam.errors import ValidationError
from splinecam.geometry.checks import Check, check_mesh
from splinecam.geometry.point_location import signed_distances
from splinecam.questions.model_checks import Sites, check_model, switches
from splinecam.questions.partition_data import PartitionData

if TYPE_CHECKING:
    from splinecam.geometry.subdivision import Mesh


# Points at which the model is run by default: as many as there are vertices, within these limits.
_LEAST, _MOST = 1000, 4000
_LOCATED = 2000  # random points of the domain that are located
_BATCH = 1 << 24  # distances in a block


@dataclass(frozen=True, repr=False)
class Report:
    """All checks of a partition, and how much of it was compared with the real model.

    checks: the checks; regions: the number of regions; sampled: the number of regions whose maps
    were compared; excused: the number of regions next to places that the partition reports as
    unresolved; points: the number of points at which the maps were compared.
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
        return (
            f"{type(self).__name__}({passed} of {len(self.checks)} checks passed, {self._extent()})"
        )

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

    Returns a report of the checks, or raises a ``ValidationError`` with those that failed. A
    private copy of the model runs in float64. A model that cannot run in float64 is compared in its
    own precision, and the names of these checks say so. If smooth functions of the model were
    replaced, maps are compared with the replaced network, and with the model within their bounds.

    By default the model is run at as many points as the partition has vertices, but at least at
    1,000 and at most at 4,000. For a large network whose partition has fewer vertices, this takes
    several times as long as the partition.

    samples: compare this many regions instead, at two points each. thorough: compare every region,
    and slopes output by output. seed: determines the random regions and points. progress: show a
    progress bar in interactive use.
    """
    if samples is not None and samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    if samples is not None and thorough:
        raise ValueError("give either samples, or thorough=True for all regions")
    with torch.inference_mode(False):
        report = _report(part, samples, thorough, torch.Generator().manual_seed(seed), progress)
    return accepted(report, part)


def accepted(report: Report, part: object) -> Report:
    """The report; a ``ValidationError`` with the checks that failed, if any did.

    part: what was checked.
    """
    if not report.ok:
        failed = [check for check in report.checks if not check.ok]
        listed = "\n".join(f"  {check}" for check in failed)
        hint = ""
        if report.sampled and not any("switches" in check.name for check in failed):
            hint = "\nIf the model was changed since (weights, train mode), partition it again."
        raise ValidationError(f"{part!r} is not valid:\n{listed}{hint}")
    return report


def _report(
    part: PartitionData,
    samples: int | None,
    thorough: bool,
    generator: torch.Generator,
    progress: bool,
) -> Report:
    trusted = ~near_unresolved(part)
    excused = int((~trusted).sum())
    checks = check_mesh(part.mesh, float(part.domain.area) / part._frame.scale**2, trusted)
    if not all(check.ok for check in checks) or not bool(trusted.any()):
        return Report(tuple(checks), len(part), 0, excused)
    sites, located = _sites(part, trusted, samples, thorough, generator)
    evaluations = 4 * sites.faces.shape[0] + sites.around.shape[0]
    with progress_bar(evaluations, "point", progress) as bar:
        switched, decided = switches(part, sites, bar.update)
        checks += [*located, Check("regions inside which a unit switches", switched, 0)]
        if part.unresolved:  # the uncertainty may reach farther than the place itself
            excused += int((~decided).sum())
            sites = sites.only(decided)
        sampled = int(sites.faces.shape[0])
        if sampled:
            checks += check_model(part, sites, thorough, generator, bar.update)
    points = sum(faces.shape[0] for faces, _ in sites.groups().values())
    return Report(tuple(checks), len(part), sampled, excused, points)


def near_unresolved(part: PartitionData) -> Tensor:
    """Whether each region has a vertex at a place that is reported as unresolved, (F,)."""
    mesh = part.mesh
    if not part.unresolved:
        return torch.zeros(mesh.num_faces, dtype=torch.bool, device=mesh.uv.device)
    near = torch.zeros(mesh.num_vertices, dtype=torch.bool, device=mesh.uv.device)
    places = sorted({item.place for item in part.unresolved})
    local = part._frame.to_local(torch.tensor(places, dtype=torch.float64).view(-1, 2)).to(mesh.uv)
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
    """The places where the model is compared, and checks that ``locate`` finds them."""
    points = min(_MOST, max(_LEAST, part.mesh.num_vertices))
    most = len(part) if thorough else points // 2 if samples is None else samples
    faces = chosen_regions(part, trusted, most, generator)
    more = max(0, _LEAST - 2 * faces.shape[0]) if samples is None else 0
    centroids = part._frame.to_local(part.centroids[faces])
    interior = interior_points(part.mesh, faces, generator)
    anywhere = _domain_points(part, _LOCATED, generator)
    checks, found = _check_located(part, torch.cat([anywhere, centroids, interior]))
    inside = (found[:more] >= 0).nonzero()[:, 0]
    inside = inside[trusted[found[inside]]]
    return Sites(faces, centroids, interior, anywhere[inside], found[inside]), checks


def _domain_points(part: PartitionData, count: int, generator: torch.Generator) -> Tensor:
    """Random points of the domain in local coordinates, (count, 2)."""
    corners = part._frame.to_local(part.domain.corners.to(part.mesh.uv))
    share = torch.rand((count, corners.shape[0]), generator=generator, dtype=torch.float64)
    share = -share.clamp(min=EPS).log()
    return (share / share.sum(1, keepdim=True)).to(corners) @ corners


def _check_located(part: PartitionData, uv: Tensor) -> tuple[list[Check], Tensor]:
    """Check that ``locate`` finds a region that holds each point; also returns the regions."""
    found = part._locator(uv)
    some = (found >= 0).nonzero()[:, 0]
    depth = signed_distances(part.mesh, uv[some], found[some])
    off = float(-depth.clamp(max=0).min()) if some.shape[0] else 0.0
    checks = [
        Check("points of the domain that locate finds in no region", len(uv) - len(some), 0),
        Check("distance of points from the region that locate finds", off, SAFETY * UV_ERROR),
    ]
    return checks, found


def chosen_regions(
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


def interior_points(mesh: Mesh, faces: Tensor, generator: torch.Generator) -> Tensor:
    """One random point inside each face, (N, 2): a random convex combination of its corners."""
    entries, counts = take_rows(mesh.offsets, faces)
    owner = owners_of(counts)
    share = torch.rand(owner.shape[0], generator=generator, dtype=torch.float64).to(mesh.uv.device)
    share = share + 1 / SAFETY  # keep away from the border
    total = share.new_zeros(faces.shape[0]).index_add_(0, owner, share)
    vertex = mesh.edges.view(-1)[mesh.corners[entries]]
    points = mesh.uv.new_zeros((faces.shape[0], 2))
    points.index_add_(0, owner, mesh.uv[vertex] * (share / total[owner])[:, None])
    return points
