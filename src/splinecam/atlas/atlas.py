"""The class ``Atlas``, which binds the questions about a partition on disk as methods."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from splinecam._util.views import Views
from splinecam.analysis.regions import Region
from splinecam.atlas import class_regions as classes
from splinecam.atlas import curves, locating, sampling
from splinecam.atlas import stats as _stats
from splinecam.atlas import tables as _tables
from splinecam.atlas import validating as _validating
from splinecam.atlas.atlas_data import AtlasData
from splinecam.atlas.manifest import Manifest
from splinecam.errors import FileError

__all__ = ["Atlas", "open_atlas"]


class Atlas(AtlasData, Views[Region]):
    """A partition on disk: a polygon divided into tiles, each of which is a ``Partition``.

    Every region is in exactly one tile. The regions of tile k are numbered from
    ``first_region[k]`` on. Vertices and edges on the seams between tiles are in each of these
    tiles, bit for bit the same; ``shared_vertices`` and ``shared_edges`` tell which they are.
    Nothing is read before it is asked for.

    An atlas is a sequence of regions: ``atlas[i]``, ``for region in atlas``. A region belongs to
    its tile, so that its ``index`` and ``neighbours`` are numbers of the tile.

    >>> import splinecam as sc, tempfile
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     atlas = sc.partition(net, sc.Domain.box(-1, 1), store=folder, progress=False)
    ...     again = sc.load(folder)
    >>> len(again) == len(atlas) == sum(tile.regions for tile in atlas.manifest.tiles)
    True
    """

    _noun = "region"

    def _view(self, index: int) -> Region:
        tile, own = self.find(index)
        return self.tile(tile)[own]

    def __iter__(self) -> Iterator[Region]:
        """Yield the regions tile by tile, so that each tile is opened once."""
        for tile in self.tiles():
            yield from tile

    def __contains__(self, region: object) -> bool:
        return isinstance(region, Region) and any(
            region.partition is tile for tile in self._opened.values()
        )

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """The number of a region in the atlas; a ``ValueError`` if it belongs to another one."""
        number = next(
            (
                int(self.first_region[k]) + value.index
                for k, tile in self._opened.items()
                if isinstance(value, Region) and value.partition is tile
            ),
            -1,
        )
        if number not in range(*slice(start, stop).indices(len(self))):
            raise ValueError(f"{value!r} is not among these regions")
        return number

    def count(self, value: Any) -> int:
        """1 if a region belongs to this atlas, else 0."""
        return int(value in self)

    # Each of these questions is a function of an atlas, in a module of its own.

    stats = _stats.stats
    class_regions = classes.class_regions
    locate = locating.locate
    sample = sampling.sample
    decision_boundary = curves.decision_boundary
    level_set = curves.level_set
    tables = _tables.tables
    to_parquet = _tables.to_parquet
    validate = _validating.validate


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
