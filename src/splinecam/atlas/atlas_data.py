"""The data of an atlas: a partition that stays on disk as tiles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, nn

from splinecam._partition import Partition
from splinecam.analysis.attached import Attached
from splinecam.analysis.class_names import names_of
from splinecam.analysis.partition_data import Unresolved
from splinecam.atlas.completing import SEAM_EDGES, SEAM_VERTICES
from splinecam.atlas.manifest import FILE, Manifest
from splinecam.atlas.rounding_errors import ERRORS, read_errors
from splinecam.atlas.tile_files import AGAIN, StoredMesh, TileCounts, read_array, read_values
from splinecam.engine.affine_maps import AffineMaps, affine_maps
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame
from splinecam.io.partition_files import dtype_named, output_read
from splinecam.network.capture.outputs import Output
from splinecam.network.program import Program
from splinecam.stores.untrusted import damaged, inside, read_arrays, write_arrays

__all__ = ["AtlasData", "Shared", "Tile", "read_domain", "write_domain"]

DOMAIN = "domain.npz"
_DOMAIN_ARRAYS = ("origin", "basis", "corners")


class Shared(NamedTuple):
    """What a tile shares: its own numbers, ascending, and those of the atlas, (S,) each."""

    local: Tensor
    shared: Tensor


class Tile(Partition):
    """A tile of an atlas: a partition of a part of the domain.

    Its maps are not on disk; they follow from the values at its vertices when they are first asked
    for. Without the network, those of very thin regions are less precise, as ``maps.error`` says.
    """

    @cached_property
    def maps(self) -> AffineMaps:
        """The affine maps in local coordinates, each relative to a point inside its region."""
        given = self.mesh, self.values, self.value_error, self._program, self.domain, self.frame
        with torch.no_grad():
            return affine_maps(*given)


class AtlasData(Attached):
    """A partition on disk: a polygon divided into tiles, each of which is a ``Partition``.

    Every region is in exactly one tile. The regions of tile k are numbered from
    ``first_region[k]`` on. Vertices and edges on the seams between tiles are in each of these
    tiles, bit for bit the same; ``shared_vertices`` and ``shared_edges`` tell which they are.
    Nothing is read before it is asked for.
    """

    _absent: ClassVar[str] = (
        "This needs the network, and the atlas was loaded without it. Give the same model: "
        "sc.load(folder, model=model), or atlas.attach(model)."
    )

    def __init__(
        self, folder: Path, manifest: Manifest, device: torch.device, *, verify: bool = True
    ) -> None:
        self.folder, self.manifest, self.device, self._verify = folder, manifest, device, verify
        about = manifest.about
        self.layers: tuple[str, ...] = tuple(about["layers"])
        self.stripped: str | None = about["stripped"]
        self.dtype: torch.dtype = dtype_named(about["dtype"])
        self.output: Output = output_read(about["output"])
        self._names: tuple[str, ...] | None = about["names"] and tuple(about["names"])
        self._model: nn.Module | None = None
        self._program: Program | None = None
        self._opened: WeakValueDictionary[int, Tile] = WeakValueDictionary()

    # -- numbers ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self.first_region[-1])

    @cached_property
    def first_region(self) -> Tensor:
        """The number of each tile's first region, and last the number of all regions, (K + 1,)."""
        counts = [tile.regions for tile in self.manifest.tiles]
        return torch.from_numpy(np.cumsum([0, *counts], dtype=np.int64))

    @property
    def num_tiles(self) -> int:
        return len(self.manifest.tiles)

    @property
    def num_vertices(self) -> int:
        """The number of vertices; those on seams count once."""
        seams = self.manifest.seams
        twice = seams.get("ends", 0) - seams.get("vertices", 0)
        return sum(tile.vertices for tile in self.manifest.tiles) - twice

    @property
    def num_edges(self) -> int:
        """The number of edges; those on seams count once."""
        twice = self.num_shared_edges
        return sum(tile.edges for tile in self.manifest.tiles) - twice

    @property
    def num_shared_vertices(self) -> int:
        """The number of vertices on seams."""
        return self.manifest.seams.get("vertices", 0)

    @property
    def num_shared_edges(self) -> int:
        """The number of edges on seams; each is in two tiles."""
        return self.manifest.seams.get("edges", 0)

    @property
    def boxes(self) -> Tensor:
        """The smallest u and v and the largest u and v of each tile, in local coordinates, (K, 4).

        ``frame`` converts them to the plane.
        """
        return torch.tensor([tile.box for tile in self.manifest.tiles], dtype=torch.float64)

    @property
    def nbytes(self) -> int:
        """The number of bytes on disk."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    # -- tiles --------------------------------------------------------------------------------

    def tile(self, number: int) -> Tile:
        """A tile as a partition, whose arrays are mapped into memory when they are used.

        Its ``domain`` and ``frame`` are those of the whole atlas, of which its regions are a part.
        On a seam, ``edge_faces`` has -1 on the side of the other tile.
        """
        if not -self.num_tiles <= number < self.num_tiles:
            raise IndexError(f"tile {number} of {self.num_tiles:,}, numbered from 0")
        number %= self.num_tiles
        found = self._opened.get(number)
        if found is None:
            found = self._opened[number] = self._open(number)
        if found._model is not self._model:
            found._model, found._program = self._model, self._program
        found.names = self.names
        return found

    def tiles(self) -> Iterator[Tile]:
        """Yield all tiles in order; one that is not kept is closed again."""
        return map(self.tile, range(self.num_tiles))

    def _open(self, number: int) -> Tile:
        entry, folder = self.manifest.tiles[number], self._tile_folder(number)
        units = tuple(int(self.layer_errors[name].shape[0]) for name in self.layers)
        counts = TileCounts(entry.vertices, entry.edges, entry.regions, units)
        outputs = int(self.value_error.shape[0])
        mesh = StoredMesh.of(folder, counts, verify=self._verify)
        values = read_values(folder, counts.vertices, outputs, verify=self._verify)
        return Tile(
            domain=self.domain,
            mesh=mesh if self.device.type == "cpu" else mesh.to(self.device),
            values=values.to(self.device),
            value_error=self.value_error,
            layer_errors=self.layer_errors,
            unresolved=_unresolved(self.manifest.unresolved + entry.unresolved),
            layers=self.layers,
            stripped=self.stripped,
            dtype=self.dtype,
            output=self.output,
        )

    def find(self, region: int) -> tuple[int, int]:
        """The tile of a region of the atlas, and the region's number in that tile."""
        if not -len(self) <= region < len(self):
            raise IndexError(f"the atlas has {len(self):,} regions, numbered from 0")
        region %= len(self)
        tile = int(torch.searchsorted(self.first_region, region, right=True)) - 1
        return tile, region - int(self.first_region[tile])

    # -- seams --------------------------------------------------------------------------------

    def shared_vertices(self, number: int) -> Shared:
        """The vertices of a tile on seams, with their numbers among all vertices on seams."""
        vertices = self.manifest.tiles[number].vertices
        return self._shared(number, SEAM_VERTICES, vertices, self.num_shared_vertices)

    def shared_edges(self, number: int) -> Shared:
        """The edges of a tile on seams, with their numbers among all edges on seams.

        An edge has the same direction in both tiles.
        """
        edges = self.manifest.tiles[number].edges
        return self._shared(number, SEAM_EDGES, edges, self.num_shared_edges)

    def _shared(self, number: int, name: str, end: int, shared_end: int) -> Shared:
        """The pairs in a file; end, shared_end: above the numbers in the tile and on the seams."""
        if self.num_tiles == 1:
            none = torch.zeros(0, dtype=torch.int64)
            return Shared(none, none)
        folder = self._tile_folder(number % self.num_tiles)
        both = read_array(folder, name, "i", verify=self._verify)
        limit = torch.tensor([end, shared_end])
        if both.ndim != 2 or both.shape[1] != 2 or bool(((both < 0) | (both >= limit)).any()):
            raise damaged(folder / f"{name}.npy", "it has an index out of range", AGAIN)
        if bool((both[:, 0].diff() <= 0).any()):
            raise damaged(folder / f"{name}.npy", "its numbers do not ascend", AGAIN)
        return Shared(*both.to(self.device).unbind(1))

    def _tile_folder(self, number: int) -> Path:
        return inside(self.folder, "tiles", self.manifest.tiles[number].folder)

    # -- what all tiles have in common --------------------------------------------------------

    @cached_property
    def domain(self) -> Domain:
        """The polygon."""
        return read_domain(self.folder, tuple(self.manifest.about["input_shape"]))

    @cached_property
    def frame(self) -> Frame:
        """The local coordinates of all tiles' ``mesh`` and ``maps``."""
        return Frame.of(self.domain)

    @cached_property
    def _errors(self) -> tuple[Tensor, dict[str, Tensor]]:
        values, layers = read_errors(self.folder / ERRORS)
        if layers.keys() != set(self.layers):
            raise damaged(self.folder / ERRORS, "it is about other layers", AGAIN)
        try:
            names_of(self._names, values.shape[0])
        except ValueError as error:
            raise damaged(self.folder / FILE, error, AGAIN) from None
        return values.to(self.device), {k: error.to(self.device) for k, error in layers.items()}

    @property
    def value_error(self) -> Tensor:
        """The rounding error of the output, (n_out,)."""
        return self._errors[0]

    @property
    def layer_errors(self) -> dict[str, Tensor]:
        """The rounding errors of the units of each layer."""
        return self._errors[1]

    @cached_property
    def unresolved(self) -> tuple[Unresolved, ...]:
        """Places that float64 could not settle, usually none."""
        found = self.manifest.unresolved + [
            each for tile in self.manifest.tiles for each in tile.unresolved
        ]
        return _unresolved(found)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the classes, or None; assign a list of names, or None, to change them."""
        return self._names

    @names.setter
    def names(self, names: tuple[str, ...] | list[str] | None) -> None:
        first = self._open(0)
        first.names = names  # which checks them
        self._names = first.names

    @property
    def areas(self) -> Tensor:
        """Area of each region, (F,), computed tile by tile."""
        return torch.cat([tile.areas for tile in self.tiles()])

    # -- the network --------------------------------------------------------------------------

    def attach(self, model: nn.Module | str | os.PathLike[str], *, output: Output = None) -> None:
        """Give a loaded atlas its model back; an error if the model is another one.

        It is compared at vertices of the first tile. model, output: as for ``Partition.attach``.
        """
        first = self._open(0)
        first.attach(model, output=output)
        self._model, self._program, self.output = first._model, first._program, first.output

    def __repr__(self) -> str:
        parts = [
            f"{len(self):,} region{'s' * (len(self) != 1)}",
            f"{self.num_edges:,} edges",
            f"{self.num_tiles:,} tile{'s' * (self.num_tiles != 1)}",
            f"{len(self.layers)} layer{'s' * (len(self.layers) != 1)}",
        ]
        if self.unresolved:
            parts.append(f"{len(self.unresolved):,} unresolved places")
        if self._model is None:
            parts.append("without its model")
        return f"Atlas({', '.join(parts)}, in {self.folder})"


def _unresolved(listed: list[Any]) -> tuple[Unresolved, ...]:
    """Places as the manifest lists them."""
    return tuple(Unresolved((u, v), layer, reason) for (u, v), layer, reason in listed)


def write_domain(folder: Path, domain: Domain) -> None:
    """Write the arrays of a domain."""
    arrays = {name: getattr(domain, name).cpu().numpy() for name in _DOMAIN_ARRAYS}
    write_arrays(folder / DOMAIN, arrays)


def read_domain(folder: Path, input_shape: tuple[int, ...]) -> Domain:
    """The domain in a folder."""
    path = folder / DOMAIN
    found = read_arrays(path, _DOMAIN_ARRAYS, AGAIN)
    try:
        arrays = {name: torch.from_numpy(found[name]) for name in _DOMAIN_ARRAYS}
        return Domain(**arrays, input_shape=input_shape)
    except (TypeError, ValueError, RuntimeError) as error:
        raise damaged(path, error, AGAIN) from None
