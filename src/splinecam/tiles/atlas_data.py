"""The data of an atlas, and what is read from them: tables, located and random inputs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, nn

from splinecam._util.arrays import take
from splinecam._util.files import opened
from splinecam._util.text import optional
from splinecam._util.tolerances import SAFETY, UV_ERROR
from splinecam.engine.affine_maps import AffineMaps, affine_maps
from splinecam.errors import SplineCamError
from splinecam.geometry.domain import Domain, Frame
from splinecam.geometry.point_location import Locator, signed_distances
from splinecam.geometry.subdivision import LazyMesh, Mesh, polygon_mesh
from splinecam.network.capture.models import Output
from splinecam.network.program import Program
from splinecam.partitions.exports import Columns, class_names, column_names, region_columns
from splinecam.partitions.partition import Partition
from splinecam.partitions.partition_files import dtype_named, output_read, wanted_read
from splinecam.questions.measures import table
from splinecam.questions.partition_data import (
    Attached,
    PartitionData,
    Unresolved,
    in_plane,
    names_of,
    region_numbers,
)
from splinecam.questions.sampling import NO_AREA, choose, points_inside, sample_count, uniform
from splinecam.questions.wanted import Wanted
from splinecam.stores.untrusted import damaged, inside, read_arrays, write_arrays
from splinecam.tiles import tile_files
from splinecam.tiles.manifest import FILE, Manifest
from splinecam.tiles.seams import SEAM_EDGES, SEAM_VERTICES


def tables(atlas: AtlasData, *, full: bool = False) -> Iterator[Any]:
    """Yield the table of each tile: a pandas DataFrame, or without pandas a dict of arrays.

    The columns are those of ``Partition.table``. The index of a DataFrame, ``region``, has the
    numbers of the regions in the atlas.

    full: as for ``Partition.table``.
    """
    atlas._require("a table of regions")
    for number, tile in enumerate(atlas.tiles()):
        rows = table(tile, full=full)
        if not isinstance(rows, dict):
            rows.index += int(atlas.first_region[number])
        yield rows


def export(atlas: AtlasData, path: str | os.PathLike[str], *, columns: Columns = "all") -> None:
    """Write one row per region to a Parquet file, a row group for each tile.

    One tile after the other is in memory. The number of the region in the atlas is a column of its
    own, ``region``; if the classes have names, ``class_name`` is a categorical column.

    path: the file, ``.parquet``, which appears when it is complete. columns: as for
    ``Partition.export``, by default all but ``piece``, as pieces reach across tiles.
    """
    if Path(path).suffix.lower() != ".parquet":
        raise ValueError(f"an atlas is exported as .parquet only, not as {Path(path).name!r}")
    pyarrow = optional("pyarrow", "A Parquet file", "parquet")
    parquet = optional("pyarrow.parquet", "A Parquet file", "parquet")
    if columns == "all":
        columns = [name for name in column_names(atlas.tile(0)) if name != "piece"]
    elif "piece" in columns:
        raise ValueError("there is no column 'piece' of an atlas: pieces reach across its tiles")
    writer = None
    with opened(path) as file:
        try:
            for number, tile in enumerate(atlas.tiles()):
                first = int(atlas.first_region[number])
                rows = {
                    "region": np.arange(first, first + len(tile)),
                    **region_columns(tile, columns),
                }
                made = pyarrow.table(rows)
                names = class_names(tile)
                if names is not None and "class" in rows:
                    named = pyarrow.DictionaryArray.from_arrays(
                        rows["class"].astype(np.int32), pyarrow.array(names)
                    )
                    place = made.column_names.index("class") + 1
                    made = made.add_column(place, "class_name", named)
                writer = writer or parquet.ParquetWriter(file, made.schema)
                writer.write_table(made)
        finally:
            if writer is not None:
                writer.close()


_FEW = 16  # points for which a tile's regions are looked through without a grid


def locate(atlas: AtlasData, x: Tensor) -> Tensor:
    """The region of each input (N, ...), (N,); -1 outside the domain or off its plane.

    The rules are those of ``Partition.locate``. A tile is read only if an input lies in its box.

    x: a batch of inputs (N, ...), a flat batch, or one input.
    """
    like = torch.zeros(0, dtype=torch.float64, device=atlas.device)
    uv, off = in_plane(atlas.domain, atlas.frame, x, like)
    slack = SAFETY * UV_ERROR
    found = torch.full(off.shape, -1, device=like.device)
    deepest = uv.new_full(off.shape, -torch.inf)
    for number, (left, low, right, high) in enumerate(atlas.boxes.tolist()):
        u, v = uv.unbind(1)
        near = (u >= left - slack) & (u <= right + slack) & (v >= low - slack) & (v <= high + slack)
        points = (near & ~off).nonzero()[:, 0]
        if points.shape[0]:
            mesh = atlas.tile(number).mesh
            region = _located(mesh, uv[points])
            points, region = points[region >= 0], region[region >= 0]
            depth = signed_distances(mesh, uv[points], region)
            # The lowest number comes first, so it wins among equally deep regions.
            better = depth > deepest[points]
            points = points[better]
            deepest[points] = depth[better]
            found[points] = region[better] + int(atlas.first_region[number])
    return found


def _located(mesh: Mesh, uv: Tensor) -> Tensor:
    """The face of each point (N, 2), -1 outside, (N,)."""
    if uv.shape[0] > _FEW:
        return Locator(mesh)(uv)
    # A grid of all faces takes longer to make than it saves.
    box, slack = mesh.boxes()[:, None], SAFETY * UV_ERROR
    near = ((box[..., :2] <= uv + slack) & (box[..., 2:] >= uv - slack)).all(2).any(1)
    faces = near.nonzero()[:, 0]
    if not faces.shape[0]:
        return torch.full(uv.shape[:1], -1, device=uv.device)
    face = Locator(mesh.select(faces)[0])(uv)
    return torch.where(face < 0, -1, faces[face.clamp(min=0)])


def sample(
    atlas: AtlasData,
    n: int,
    *,
    regions: Tensor | Sequence[int] | int | None = None,
    per_region: bool = False,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> Tensor:
    """Random inputs, uniform by area over the domain or over the chosen regions, (n, ...).

    A tile is read only if a region of it is chosen.

    n, regions, per_region, generator, dtype, device: as for ``Partition.sample``.
    """
    n = sample_count(n)
    chosen = None if regions is None else region_numbers(regions, len(atlas), atlas.device)
    count = len(atlas) if chosen is None else chosen.shape[0]
    chance = uniform((n * count if per_region else n, 4), generator, atlas.device)
    if chosen is None and not per_region:  # the regions cover the domain
        whole = polygon_mesh(atlas.frame.to_local(atlas.domain.corners.to(chance)))
        local = points_inside(whole, torch.zeros(n, dtype=torch.int64).to(chance.device), chance)
        return _inputs(atlas, local, dtype, device)
    if per_region:
        face = torch.arange(count, device=chance.device).repeat_interleave(n)
        face = face if chosen is None else take(chosen, face)
    else:
        assert chosen is not None
        weight = torch.empty(chosen.shape, dtype=torch.float64, device=chosen.device)
        for number, places, own in by_tile(atlas, chosen):
            weight[places] = take(atlas.tile(number).areas, own).clamp(min=0)
        if n and not float(weight.sum()) > 0:
            raise SplineCamError(NO_AREA)
        face = take(chosen, choose(weight, chance[:, 3]))
    local = chance.new_empty((face.shape[0], 2))
    for number, points, own in by_tile(atlas, face):
        local[points] = points_inside(atlas.tile(number).mesh, own, chance[points, :3])
    return _inputs(atlas, local, dtype, device)


def _inputs(
    atlas: AtlasData, local: Tensor, dtype: torch.dtype | None, device: str | torch.device | None
) -> Tensor:
    """The inputs (N, ...) at local coordinates (N, 2)."""
    return atlas.tile(0)._inputs(atlas.frame.to_plane(local), dtype=dtype, device=device)


def by_tile(atlas: AtlasData, regions: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield each tile that has some of the regions (N,): their places, and numbers in the tile."""
    tile = torch.searchsorted(atlas.first_region.to(regions.device), regions, right=True) - 1
    order = torch.argsort(tile, stable=True)
    number, count = torch.unique_consecutive(tile[order], return_counts=True)
    for each, places in zip(number.tolist(), torch.split(order, count.tolist()), strict=True):
        yield each, places, regions[places] - int(atlas.first_region[each])


DOMAIN, QUESTION = "domain.npz", "question.npz"
_DOMAIN_ARRAYS = ("origin", "basis", "corners")


class Shared(NamedTuple):
    """What a tile shares: its numbers in the tile, ascending, and in the atlas, (S,) each."""

    local: Tensor
    shared: Tensor


class Tile(Partition):
    """A tile of an atlas: a partition of a part of the domain.

    Its maps are not on disk; they follow from the values at its vertices when they are first asked
    for. Without the network, very thin regions have less precise maps, as ``maps.error`` says.
    """

    def _maps_on(self, mesh: Mesh, values: Tensor) -> AffineMaps:
        given = mesh, values, self._value_error, self._program, self.domain, self._frame
        with torch.no_grad():
            return affine_maps(*given)


class AtlasData(Attached):
    """The data of an ``Atlas``, and the questions about single tiles."""

    _given_by: ClassVar[tuple[str, str]] = (
        "atlas",
        "sc.load(folder, model=model), or atlas.attach(model)",
    )
    _is_partial: ClassVar[bool] = False  # an atlas is computed to its end

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
        return sum(tile.edges for tile in self.manifest.tiles) - self.num_shared_edges

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

        Its regions are a part of the atlas; its ``domain`` and ``frame`` are those of the whole.
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
        """Yield all tiles in order; unless the caller keeps a tile, it is closed again."""
        return map(self.tile, range(self.num_tiles))

    def _open(self, number: int) -> Tile:
        entry, folder = self.manifest.tiles[number], self._tile_folder(number)
        units = tuple(int(self.layer_errors[name].shape[0]) for name in self.layers)
        sizes = entry.vertices, entry.edges, entry.regions
        outputs = int(self.value_error.shape[0])
        mesh = LazyMesh.of(sizes, partial(tile_files.read_field, folder, units, self._verify))
        values = tile_files.read_values(folder, entry.vertices, outputs, verify=self._verify)
        return Tile(
            domain=self.domain,
            mesh=mesh if self.device.type == "cpu" else mesh.to(self.device),
            _outputs=values.to(self.device),
            _value_error=self.value_error,
            _layer_errors=self.layer_errors,
            unresolved=_unresolved(self.manifest.unresolved + entry.unresolved),
            layers=self.layers,
            stripped=self.stripped,
            _dtype=self.dtype,
            _chosen_output=self.output,
            _wanted=self._wanted,
            _settled=None if self._wanted is None else ~self.complete[self._regions_of(number)],
        )

    def _regions_of(self, number: int) -> slice:
        return slice(*self.first_region[number : number + 2].tolist())

    @cached_property
    def complete(self) -> Tensor:
        """Which regions are linear regions of the network, (F,), as for a ``Partition``."""
        if self.manifest.identity.get("refine") is None:
            return torch.ones(len(self), dtype=torch.bool, device=self.device)
        settled = (
            tile_files.read_settled(self._tile_folder(k), tile.regions, verify=self._verify)
            for k, tile in enumerate(self.manifest.tiles)
        )
        return ~torch.cat(list(settled)).to(self.device)

    @cached_property
    def _wanted(self) -> Wanted | None:
        """The question that regions were divided for, None if all are complete."""
        if bool(self.complete.all()):
            return None
        path = self.folder / QUESTION
        try:
            arrays = read_arrays(path, None, tile_files.AGAIN)
            return wanted_read(self.manifest.identity["refine"], arrays)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise damaged(path, error, tile_files.AGAIN) from None

    def _require(self, what: str, wanted: Wanted | None = None) -> None:
        """Raise an error unless a question can be answered, or all regions are complete."""
        like: Any = self
        PartitionData._require(like, what, wanted)

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
        both = tile_files.read_array(folder, name, "i", verify=self._verify)
        limit = torch.tensor([end, shared_end])
        if both.ndim != 2 or both.shape[1] != 2 or bool(((both < 0) | (both >= limit)).any()):
            raise damaged(folder / f"{name}.npy", "it has an index out of range", tile_files.AGAIN)
        if bool((both[:, 0].diff() <= 0).any()):
            raise damaged(folder / f"{name}.npy", "its numbers do not ascend", tile_files.AGAIN)
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
        values, layers = tile_files.read_errors(self.folder / tile_files.ERRORS)
        if layers.keys() != set(self.layers):
            raise damaged(
                self.folder / tile_files.ERRORS, "it is about other layers", tile_files.AGAIN
            )
        try:
            names_of(self._names, values.shape[0])
        except ValueError as error:
            raise damaged(self.folder / FILE, error, tile_files.AGAIN) from None
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
        self._model, self._program = first._model, first._program
        self.output = first._chosen_output

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
    found = read_arrays(path, _DOMAIN_ARRAYS, tile_files.AGAIN)
    try:
        arrays = {name: torch.from_numpy(found[name]) for name in _DOMAIN_ARRAYS}
        return Domain(**arrays, input_shape=input_shape)
    except (TypeError, ValueError, RuntimeError) as error:
        raise damaged(path, error, tile_files.AGAIN) from None
