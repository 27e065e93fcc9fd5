"""The table of regions as a Parquet file."""

from __future__ import annotations

import os
from typing import BinaryIO

import numpy as np

from splinecam._util.files import opened
from splinecam._util.optional import optional
from splinecam.analysis.partition_data import PartitionData
from splinecam.io.region_columns import Columns, class_names, region_columns

__all__ = ["to_parquet"]


def to_parquet(
    part: PartitionData, path: str | os.PathLike[str] | BinaryIO, *, columns: Columns = "all"
) -> None:
    """Write one row per region to a Parquet file, which appears when it is complete.

    The number of the region is a column of its own, ``region``, for programs that know no index;
    if the classes have names, ``class_name`` is a categorical column.

    path: the file, conventionally ``.parquet``. columns: as for ``to_geojson``, by default all.

    >>> import io, pandas, splinecam as sc, torch
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> file = io.BytesIO()
    >>> part.to_parquet(file, columns=["area", "layer"])
    >>> pandas.read_parquet(file).columns.tolist()
    ['region', 'area', 'layer']
    """
    pyarrow = optional("pyarrow", "A Parquet file", "parquet")
    parquet = optional("pyarrow.parquet", "A Parquet file", "parquet")
    rows = {"region": np.arange(len(part)), **region_columns(part, columns)}
    table = pyarrow.table(rows)
    names = class_names(part)
    if names is not None and "class" in rows:
        named = pyarrow.DictionaryArray.from_arrays(
            rows["class"].astype(np.int32), pyarrow.array(names)
        )
        table = table.add_column(table.column_names.index("class") + 1, "class_name", named)
    with opened(path) as file:
        parquet.write_table(table, file)
