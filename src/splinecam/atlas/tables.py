"""The table of an atlas: a row per region, tile after tile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from splinecam._util.files import opened
from splinecam._util.optional import optional
from splinecam.analysis.measures import table
from splinecam.atlas.atlas_data import AtlasData
from splinecam.io.region_columns import Columns, class_names, column_names, region_columns

__all__ = ["tables", "to_parquet"]


def tables(atlas: AtlasData, *, full: bool = False) -> Iterator[Any]:
    """Yield the table of each tile: a pandas DataFrame, or without pandas a dict of arrays.

    The columns are those of ``Partition.table``. The index of a DataFrame, ``region``, has the
    numbers of the regions in the atlas.

    full: as for ``Partition.table``.
    """
    for number, tile in enumerate(atlas.tiles()):
        rows = table(tile, full=full)
        if not isinstance(rows, dict):
            rows.index += int(atlas.first_region[number])
        yield rows


def to_parquet(
    atlas: AtlasData, path: str | os.PathLike[str] | BinaryIO, *, columns: Columns = "all"
) -> None:
    """Write one row per region to a Parquet file, a row group for each tile.

    One tile after the other is in memory. The number of the region in the atlas is a column of its
    own, ``region``; if the classes have names, ``class_name`` is a categorical column.

    path: the file, conventionally ``.parquet``, which appears when it is complete. columns: as for
    ``Partition.to_parquet``, by default all but ``piece``, as pieces reach across tiles.
    """
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
