"""The class ``Atlas``, which binds the questions about a partition on disk as methods."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from splinecam.atlas import curves
from splinecam.atlas.atlas_data import AtlasData
from splinecam.atlas.manifest import Manifest
from splinecam.errors import FileError

__all__ = ["Atlas", "open_atlas"]


class Atlas(AtlasData):
    """A partition on disk: a polygon divided into tiles, each of which is a ``Partition``.

    Every region is in exactly one tile. The regions of tile k are numbered from
    ``first_region[k]`` on. Vertices and edges on the seams between tiles are in each of these
    tiles, bit for bit the same; ``shared_vertices`` and ``shared_edges`` tell which they are.
    Nothing is read before it is asked for.

    >>> import splinecam as sc, tempfile
    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     atlas = sc.partition(net, Domain.box(-1, 1), store=f"{folder}/atlas", progress=False)
    ...     again = sc.load(f"{folder}/atlas")
    >>> len(again) == len(atlas) == sum(tile.regions for tile in atlas.manifest.tiles)
    True
    """

    decision_boundary = curves.decision_boundary
    level_set = curves.level_set


def open_atlas(folder: str | os.PathLike[str], device: torch.device) -> Atlas:
    """The atlas in a folder; a ``FileError`` if there is none, or it is not complete."""
    path = Path(folder)
    manifest = Manifest.read(path)
    if not manifest.complete:
        raise FileError(
            f"The atlas in {path} is not complete: {len(manifest.tiles):,} tiles are done. Call "
            "sc.partition(..., store=) again, which computes the others."
        )
    return Atlas(path, manifest, device)
