"""The pieces of a path as a table."""

from __future__ import annotations

from typing import Any

import torch

from splinecam._util.optional import pandas_if_installed
from splinecam.analysis.measures import MOST_OUTPUTS, largest_outputs
from splinecam.analysis.path_data import PathData

__all__ = ["table"]


def table(part: PathData) -> Any:
    """One row per piece: a pandas DataFrame, or without pandas a dict of numpy arrays (M,).

    Columns: ``begin`` and ``end`` (positions), ``length``, ``units`` (how many switch where the
    piece begins), ``class`` (the largest output in the middle; of one output 1 above 0, else 0)
    and, of up to 16 outputs, the values at the begin and the slopes per unit of length:
    ``output_0``, ``slope_0``, ...

    >>> import splinecam as sc
    >>> line = sc.Domain.segment([-1.0], [3.0])
    >>> rows = sc.partition(torch.nn.ReLU(), line, progress=False).table()
    >>> [float(slope) for slope in rows["slope_0"]]
    [0.0, 1.0]
    """
    switched = torch.bincount(part.switches.point, minlength=len(part) + 1)
    columns = {
        "begin": part.t[:-1],
        "end": part.t[1:],
        "length": part.lengths,
        "units": switched[:-1],
        "class": largest_outputs((part.values[1:] + part.values[:-1]) / 2),
    }
    if part.values.shape[1] <= MOST_OUTPUTS:
        columns |= {f"output_{k}": x for k, x in enumerate(part.values[:-1].unbind(1))}
        columns |= {f"slope_{k}": x for k, x in enumerate(part.slopes.unbind(1))}
    arrays = {name: column.cpu().numpy().copy() for name, column in columns.items()}
    pandas = pandas_if_installed()
    return arrays if pandas is None else pandas.DataFrame(arrays).rename_axis("piece")
