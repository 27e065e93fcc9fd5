"""The class ``Atlas``, which binds the questions about a partition on disk as methods."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from splinecam._util.arrays import Views
from splinecam._util.options import limit_of
from splinecam.errors import FileError
from splinecam.questions.partition_data import Region
from splinecam.tiles import atlas_data, curves, extracting, pictures, validating
from splinecam.tiles import stats as _stats
from splinecam.tiles.atlas_data import AtlasData
from splinecam.tiles.manifest import Manifest

if TYPE_CHECKING:
    from splinecam.viewer.viewer import Viewer


_VIEWED = 200_000  # regions that a viewer shows at a time


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
    ...     atlas = sc.atlas(net, sc.Domain.box(-1, 1), folder, progress=False)
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
        found = (
            int(self.first_region[k]) + value.index
            for k, tile in self._opened.items()
            if isinstance(value, Region) and value.partition is tile
        )
        number = next(found, -1)
        if number not in range(*slice(start, stop).indices(len(self))):
            raise ValueError(f"{value!r} is not among these regions")
        return number

    def count(self, value: Any) -> int:
        """1 if a region belongs to this atlas, else 0."""
        return int(value in self)

    # Each of these questions is a function of an atlas, in a module of its own.

    stats = _stats.stats
    class_regions = curves.class_regions
    locate = atlas_data.locate
    window = extracting.window
    plot = pictures.plot
    sample = atlas_data.sample
    decision_boundary = curves.decision_boundary
    level_set = curves.level_set
    tables = atlas_data.tables
    export = atlas_data.export
    validate = validating.validate

    def view(
        self,
        *,
        window: Sequence[float] | None = None,
        max_regions: float = _VIEWED,
        state: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Viewer:
        """Open a viewer, as ``sc.view`` does.

        With its model, an atlas that is too large to be shown is computed as far as one looks.
        Without, the viewer shows the regions in a window.

        window: the rectangle (u0, v0, u1, v1) of the plane whose regions are shown; without a model
        by default as large a part around the middle as max_regions allows. max_regions, state,
        options: those of ``sc.view``.
        """
        from splinecam.viewer.viewer import view

        largest = limit_of("max_regions", max_regions) or _VIEWED
        if window is None and (len(self) <= largest or self._model is not None):
            return view(self, max_regions=max_regions, state=state, **options)
        box = extracting.middle_window(self, largest) if window is None else window
        u0, v0, u1, v1 = extracting.checked_box(box)
        camera = {"center": ((u0 + u1) / 2, (v0 + v1) / 2), "width": u1 - u0}
        return view(
            self.window(box), max_regions=max_regions, state=camera | dict(state or {}), **options
        )


def open_atlas(
    folder: str | os.PathLike[str], device: torch.device, *, verify: bool = True
) -> Atlas:
    """The atlas in a folder; a ``FileError`` if there is none, or it is not complete."""
    path = Path(folder)
    manifest = Manifest.read(path)
    if not manifest.complete:
        raise FileError(
            f"The atlas in {path} is not complete: {len(manifest.tiles):,} tiles are done. Call "
            "sc.atlas again, which computes the others."
        )
    return Atlas(path, manifest, device, verify=verify)
