"""The manifest of an atlas: what it is of, its tiles, and what is still to be computed.

It is one JSON file, which is replaced as a whole when a tile is complete. A tile exists only if the
manifest lists it, whatever files there are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from splinecam.errors import FileError
from splinecam.partitions.partition_files import dtype_named, output_read
from splinecam.stores.manifest import ATLAS, read_manifest, write_manifest
from splinecam.stores.untrusted import check_entries, damaged, inside
from splinecam.tiles.tile_files import AGAIN

FILE = "atlas.json"
_LISTS: dict[str, Any] = {"tiles": list[dict[str, Any]], "pending": list[tuple[int, int]] | None}
_ABOUT: dict[str, Any] = {
    "input_shape": list[int],
    "layers": list[str],
    "stripped": str | None,
    "dtype": str,
    "output": Any,
    "names": list[str] | None,
}
Place = tuple[tuple[float, float], str, str]


@dataclass(frozen=True)
class TileEntry:
    """A tile: its folder, its numbers of vertices, edges and regions, and its box."""

    folder: str
    vertices: int
    edges: int
    regions: int
    box: tuple[float, float, float, float]  # the smallest u and v and the largest u and v
    unresolved: list[Place] = field(default_factory=list)  # places that float64 could not settle
    strip: int = 0  # regions of the strip, less its artificial edges, until the atlas is complete


@dataclass
class Manifest:
    """Everything about an atlas but its arrays."""

    identity: dict[str, Any]  # facts of the model and the domain
    about: dict[str, Any]  # the input shape, layers, names and the like
    tiles: list[TileEntry] = field(default_factory=list)  # those that are complete
    pending: list[list[int]] | None = None  # faces of the coarse mesh that are left, the next last
    unresolved: list[Place] = field(default_factory=list)  # of the coarse mesh
    parts: int = 0  # between artificial lines, if they divide the domain
    seams: dict[str, int] = field(default_factory=dict)  # how much tiles have in common
    complete: bool = False  # whether the atlas can be opened

    def write(self, folder: Path) -> None:
        """Replace the manifest in a folder."""
        write_manifest(folder / FILE, ATLAS, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest in a folder; a ``FileError`` says what is wrong with it."""
        path = folder / FILE
        found = read_manifest(path, ATLAS)
        if found is None:
            raise FileError(
                f"{folder} is a folder, not a partition saved by SplineCam, and there is no atlas, "
                f"run or grid in it: {FILE} is missing."
            )
        check_entries(found, {**get_type_hints(cls), **_LISTS}, path, AGAIN)
        for entry in found["tiles"]:
            check_entries(entry, get_type_hints(TileEntry), path, AGAIN)
        check_entries(found["about"], _ABOUT, path, AGAIN)
        tiles = [TileEntry(**entry) for entry in found.pop("tiles")]
        manifest = cls(**found, tiles=tiles)
        manifest._check_numbers(path)
        return manifest

    def _check_numbers(self, path: Path) -> None:
        """Raise a ``FileError`` unless numbers of tiles and seams are possible."""
        for tile in self.tiles:
            inside(path.parent, "tiles", tile.folder)
            if tile.box[0] > tile.box[2] or tile.box[1] > tile.box[3]:
                raise damaged(path, f"a tile in the box {tile.box}", AGAIN)
        if len({tile.folder for tile in self.tiles}) < len(self.tiles):
            raise damaged(path, "two tiles have one folder", AGAIN)
        vertices, edges = (sum(getattr(x, n) for x in self.tiles) for n in ("vertices", "edges"))
        most = {"vertices": vertices, "edges": edges, "ends": vertices}
        if self.seams and self.seams.keys() != most.keys():
            raise damaged(path, f"'seams' is {self.seams}", AGAIN)
        if any(number > most[name] for name, number in self.seams.items()):
            raise damaged(path, "there are more vertices or edges on seams than in tiles", AGAIN)
        if self.complete and not (self.tiles and all(tile.regions for tile in self.tiles)):
            raise damaged(path, "a tile without regions", AGAIN)
        try:
            dtype_named(self.about["dtype"])
            output_read(self.about["output"])
        except (ValueError, KeyError, AttributeError) as error:
            raise damaged(path, error, AGAIN) from None
