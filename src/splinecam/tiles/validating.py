"""Validate an atlas: each tile by itself, the seams between tiles, and the whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from splinecam._util.progress import progress_bar
from splinecam.geometry.checks import Check, check_area, check_border, check_tile
from splinecam.questions import validate as _validate
from splinecam.tiles.atlas_data import AtlasData
from splinecam.tiles.extracting import selected

_SAMPLED = 2000  # regions that are compared with the model by default
_LEAST = 4  # of them in each tile


def validate(
    atlas: AtlasData,
    *,
    samples: int | None = None,
    thorough: bool = False,
    seed: int = 0,
    progress: bool = True,
) -> _validate.Report:
    """Check the structure of all regions, and the maps of some of them against the real model.

    One tile after the other is in memory. All tiles are checked like a partition, and then that
    they fit together: each edge on a seam is in two tiles, one on each side, its vertices are the
    same bit for bit, the border is one cycle, areas add up to that of the domain, and
    V - E + F = 1. Returns a report of the checks, or raises a ``ValidationError`` with those that
    failed.

    samples: compare this many regions, by default 2,000, and at least 4 of each tile, at two points
    each. thorough: compare every region. seed: determines the random regions and points. progress:
    show a progress bar in interactive use.
    """
    if samples is not None and samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    if samples is not None and thorough:
        raise ValueError("give either samples, or thorough=True for all regions")
    wanted = len(atlas) if thorough else _SAMPLED if samples is None else samples
    generator = torch.Generator().manual_seed(seed)
    _ = atlas._network  # without it there is nothing to compare with
    checking = _Checking(atlas)
    with torch.inference_mode(False), progress_bar(atlas.num_tiles, "tile", progress) as bar:
        for number in range(atlas.num_tiles):
            checking.structure(number)
            if checking.ok:
                checking.compare(number, wanted, thorough, generator)
            bar.update(1)
        if checking.ok:
            checking.whole()
    checks, counts = tuple(checking.checks.values()), (checking.sampled, checking.excused)
    return _validate.accepted(_validate.Report(checks, len(atlas), *counts, checking.points), atlas)


@dataclass
class _Checking:
    """The checks of an atlas so far, by name, and what is needed to check the whole."""

    atlas: AtlasData
    checks: dict[str, Check] = field(default_factory=dict)
    area: float = 0.0
    sampled: int = 0
    excused: int = 0
    points: int = 0
    first_vertex: int = 0
    border: list[Tensor] = field(default_factory=list)  # (B, 2) edges of the domain
    edges: list[Tensor] = field(default_factory=list)  # (P, 4) on seams: number, ends, side
    vertices: list[Tensor] = field(default_factory=list)  # (S, 3 + n_out): number, uv, values

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks.values())

    def structure(self, number: int) -> None:
        """Check a tile by itself, and remember what it has in common with others."""
        tile, vertices = self.atlas.tile(number), self.atlas.shared_vertices(number)
        edges, mesh = self.atlas.shared_edges(number), tile.mesh
        seam = torch.zeros(mesh.num_edges, dtype=torch.bool, device=mesh.uv.device)
        seam[edges.local] = True
        trusted = ~_validate.near_unresolved(tile)
        checks, area, border = check_tile(mesh, seam, trusted)
        self._add(checks)
        if border is None:
            return
        first = self.atlas.num_shared_vertices + self.first_vertex
        ids = first + torch.arange(mesh.num_vertices, device=mesh.uv.device)
        ids[vertices.local] = vertices.shared
        self.first_vertex += mesh.num_vertices
        self.area += area
        self.excused += int((~trusted).sum())
        self.border.append(ids[border])
        side = (tile._edge_faces[edges.local, 1] >= 0).long()
        ends = ids[mesh.edges[edges.local]]
        self.edges.append(torch.cat([edges.shared[:, None], ends, side[:, None]], 1))
        there = [vertices.shared[:, None].to(mesh.uv), mesh.uv[vertices.local]]
        self.vertices.append(torch.cat([*there, tile._outputs[vertices.local]], 1))

    def compare(self, number: int, wanted: int, thorough: bool, generator: torch.Generator) -> None:
        """Compare regions of a tile with the real model."""
        tile = self.atlas.tile(number)
        trusted = ~_validate.near_unresolved(tile)
        if not bool(trusted.any()):
            return
        most = max(_LEAST, round(wanted * len(tile) / len(self.atlas)))
        settled = _validate.chosen_regions(tile, trusted & ~tile.complete, most, generator)
        if tile._wanted is not None and settled.shape[0]:
            self._add(_validate.check_claims(tile, tile._wanted, settled, generator))
        chosen = _validate.chosen_regions(tile, trusted & tile.complete, most, generator)
        if not chosen.shape[0]:
            return
        tile = selected(tile, chosen)
        faces = torch.arange(len(tile), device=tile.mesh.uv.device)
        _, centroids = tile.mesh.areas_and_centroids()
        interior = _validate.interior_points(tile.mesh, faces, generator)
        sites = _validate.Sites(faces, centroids, interior, centroids[:0], faces[:0])
        switched, decided = _validate.switches(tile, sites, lambda count: None)
        self._add([Check("regions inside which a unit switches", switched, 0)])
        if tile.unresolved:
            self.excused += int((~decided).sum())
            sites = sites.only(decided)
        self.sampled += int(sites.faces.shape[0])
        self.points += sum(faces.shape[0] for faces, _ in sites.groups().values())
        if sites.faces.shape[0]:
            self._add(_validate.check_model(tile, sites, thorough, generator, lambda count: None))

    def whole(self) -> None:
        """Check that the tiles fit together."""
        atlas, domain = self.atlas, self.atlas.domain
        edges, vertices = torch.cat(self.edges), torch.cat(self.vertices)
        sides = torch.unique(edges, dim=0)
        count = torch.bincount(edges[:, 0], minlength=atlas.num_shared_edges)
        alike = torch.unique(edges[:, :3], dim=0).shape[0] == atlas.num_shared_edges
        apart = int((count != 2).sum()) + abs(sides.shape[0] - edges.shape[0]) + int(not alike)
        different = torch.unique(vertices, dim=0).shape[0] - atlas.num_shared_vertices
        euler = atlas.num_vertices - atlas.num_edges + len(atlas) - 1
        self._add(
            [
                Check("edges on seams that are not in two tiles, on either side", apart, 0),
                Check("vertices on seams that differ between tiles", abs(different), 0),
                check_border(torch.cat(self.border)),
                Check("|V - E + F - 1|", abs(euler), 0),
                check_area(self.area, float(domain.area) / atlas.frame.scale**2),
            ]
        )

    def _add(self, checks: Iterable[Check]) -> None:
        """Add checks of a tile: of exact ones the violations add up, of others the worst counts."""
        for check in checks:
            known = self.checks.get(check.name)
            if known is None:
                self.checks[check.name] = check
            elif check.limit == 0:
                self.checks[check.name] = Check(check.name, known.worst + check.worst, 0)
            elif check.worst / check.limit > known.worst / known.limit:
                self.checks[check.name] = check
