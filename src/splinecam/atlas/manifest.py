"""The manifest of an atlas: what it is of, its tiles, and what is still to be computed.

It is one JSON file, which is replaced as a whole when a tile is complete. A tile that is not in it
does not exist, whatever files there are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from splinecam._util.files import reason_of, replaced
from splinecam.atlas.tile_files import AGAIN
from splinecam.errors import FileError
from splinecam.stores.manifest import same_entry

__all__ = ["FILE", "Manifest", "TileEntry"]

FILE = "atlas.json"
_FORMAT, _VERSION = "splinecam atlas", 1

# What differs, in words.
_WORDS = {
    "weights": "a model with other weights",
    "layers": "a model with other layers",
    "domain": "another domain",
    "output": "another output of the model (output=)",
    "outputs": "a model that computes something else",
}


@dataclass(frozen=True)
class TileEntry:
    """A tile: its folder, its numbers of vertices, edges and regions, and its box.

    box: the smallest u and v and the largest u and v, in local coordinates. unresolved: places that
    float64 could not settle, as (u, v) of the plane, layer, and reason. strip: until the atlas is
    complete, the regions that are kept apart because they touch artificial edges, less the number
    of these edges.
    """

    folder: str
    vertices: int
    edges: int
    regions: int
    box: tuple[float, float, float, float]
    unresolved: list[Any] = field(default_factory=list)
    strip: int = 0


@dataclass
class Manifest:
    """Everything about an atlas but its arrays.

    identity: what it is of, see ``check``. about: the domain's input shape, layers, names and the
    like. tiles: those that are complete. pending: ranges of faces of the coarse mesh that are still
    to be computed, the next one last; None before the coarse mesh is made. unresolved: of the
    coarse mesh. parts: into how many the domain is divided by artificial lines, if it is. seams:
    the numbers of vertices and edges that tiles have in common, once they are known.
    complete: whether the atlas can be opened.
    """

    identity: dict[str, Any]
    about: dict[str, Any]
    tiles: list[TileEntry] = field(default_factory=list)
    pending: list[list[int]] | None = None
    unresolved: list[Any] = field(default_factory=list)
    parts: int = 0
    seams: dict[str, int] = field(default_factory=dict)
    complete: bool = False

    def write(self, folder: Path) -> None:
        """Replace the manifest in a folder."""
        head = {"format": _FORMAT, "version": _VERSION}
        text = json.dumps(head | asdict(self))
        with replaced(folder / FILE) as file:
            file.write(text.encode())

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest in a folder; a ``FileError`` says what is wrong with it."""
        path = folder / FILE
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise FileError(
                f"{folder} is a folder, not a partition saved by SplineCam, and there is no atlas "
                f"in it: {FILE} is missing."
            ) from None
        except OSError as error:
            raise FileError(f"{path} cannot be read: {reason_of(error)}.") from None
        except ValueError as error:
            raise FileError(f"{path} is damaged ({error}). {AGAIN}") from None
        if not isinstance(found, dict) or found.pop("format", None) != _FORMAT:
            raise FileError(f"{folder} is not an atlas of SplineCam (sc.partition(..., store=)).")
        version = found.pop("version", None)
        if version != _VERSION:
            raise FileError(
                f"{folder} has version {version} of the format of an atlas; this SplineCam reads "
                f"version {_VERSION}. Compute the atlas again in another folder."
            )
        try:
            tiles = [TileEntry(**entry) for entry in found.pop("tiles")]
            return cls(**found, tiles=tiles)
        except (TypeError, KeyError) as error:
            raise FileError(f"{path} is damaged ({error}). {AGAIN}") from None

    def check(self, folder: Path, identity: Mapping[str, Any]) -> None:
        """Raise a ``FileError`` unless the atlas is of the same model and domain."""
        for name, wanted in identity.items():
            if not same_entry(self.identity.get(name), wanted):
                raise FileError(
                    f"The atlas in {folder} is of {_WORDS[name]}. Choose another folder, or remove "
                    "this one."
                )
