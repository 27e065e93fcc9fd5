"""Properties in VNN-LIB files, the format of the competition of verifiers (VNN-COMP)."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from splinecam._util.files import reason_of
from splinecam._util.unpacking import TEXT, most_bytes, refused
from splinecam.errors import FileError
from splinecam.files.formulas import Case, Row, condition_of_rows, conjunction, product
from splinecam.files.properties import OutputCondition, Property, PropertyCase
from splinecam.files.vnnlib_reader import PropertyReader, Query

_LONGEST = 1 << 30  # characters of a file
_ENTRIES = 1 << 27  # of all boxes
_GZIP = b"\x1f\x8b"


def read_vnnlib(path: str | os.PathLike[str]) -> Property:
    """The property in a VNN-LIB file: its boxes of inputs, and the unsafe outputs.

    Both versions of the syntax are read, with variables ``X_0`` and ``Y_0`` (1.0) or with tensors
    ``X[0,1]`` (2.0, of networks with one input and one output), plain or compressed by gzip.
    Several networks must have the same input, and their outputs follow each other, as those of
    ``sc.nn.Both``. Constraints may be polynomials. Numbers become the nearest float64 numbers,
    and an equation becomes two inequalities. An error names what is not read.

    path: a ``.vnnlib`` or ``.vnnlib.gz`` file.

    >>> import tempfile
    >>> text = '''
    ... (declare-const X_0 Real)
    ... (declare-const X_1 Real)
    ... (declare-const Y_0 Real)
    ... (assert (and (>= X_0 -1) (<= X_0 1) (>= X_1 0) (<= X_1 0.5)))
    ... (assert (or (<= Y_0 -2) (>= Y_0 2)))  ; unsafe
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "small.vnnlib")
    ...     count = file.write_text(text)
    ...     prop = read_vnnlib(file)
    >>> prop
    Property(small.vnnlib: inputs (2,), outputs (1,), 1 box, unsafe: 2 conjunctions of 2 linear \
constraints on outputs)
    >>> prop.box
    (tensor([-1.,  0.], dtype=torch.float64), tensor([1.0000, 0.5000], dtype=torch.float64))
    >>> prop.condition([[0.0], [3.0]])
    tensor([False,  True])
    """
    source = Path(path)
    return _property(PropertyReader(_text(source), str(source)).read(), source.name)


def _text(path: Path) -> str:
    """The text of a file, which may be compressed."""
    try:
        with path.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
        size = path.stat().st_size
        most = min(_LONGEST, most_bytes(size, TEXT)) if packed else _LONGEST
        with gzip.open(path, "rb") if packed else path.open("rb") as content:
            found = content.read(most + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(f"{path} is damaged: it cannot be unpacked ({error}).") from error
    except FileNotFoundError as error:
        raise FileError(f"There is no file {path}.") from error
    except OSError as error:
        raise FileError(f"{path} cannot be read: {reason_of(error)}.") from error
    if len(found) > most < _LONGEST:
        raise refused(path, size, f"If you trust it, unpack it first: gunzip --keep {path}")
    if len(found) > _LONGEST:
        raise FileError(f"{path} is too large: a property may have {_LONGEST:,} characters.")
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        what = f"byte {error.start:,} is no text (UTF-8)"
        raise FileError(f"{path} is not a VNN-LIB file: {what}.") from error


def _property(query: Query, source: str) -> Property:
    """The boxes and conditions of a query."""
    whole = conjunction(query.asserted)
    size = prod(query.inputs)
    low, high = _bounds([whole.common], size)
    for inputs, upper, values in query.bounds:
        np.minimum.at(high[0].numpy(), inputs[upper], values[upper])
        np.maximum.at(low[0].numpy(), inputs[~upper], values[~upper])
    boxed = bool(low.isfinite().all() and high.isfinite().all())
    outputs, others = list[list[Case]](), list[list[Case]]()
    for choice in whole.choices:
        if boxed and any(each.relates_inputs for each in choice):
            outputs.append([each.unboxed for each in choice])  # a condition within the box
        else:
            (outputs if all(each.about_outputs for each in choice) else others).append(choice)
    try:
        unsafe = product([[Case(rows=whole.common.rows)], *outputs])
        joint = product(others)
    except ValueError as error:
        raise FileError(f"{source} cannot be read: {error}.") from error
    if len(joint) * size > _ENTRIES:
        raise FileError(f"{source} has {len(joint):,} boxes of {size:,} inputs, which is too much.")
    lo, hi = _bounds(joint, size)
    lo, hi = torch.maximum(lo, low) + 0.0, torch.minimum(hi, high) + 0.0  # 0.0 for -0.0
    groups: dict[bytes, list[int]] = {}
    for k, inside in enumerate((lo <= hi).all(1).tolist()):
        if inside:
            groups.setdefault(lo[k].numpy().tobytes() + hi[k].numpy().tobytes(), []).append(k)
    conditions: dict[tuple[tuple[Row, ...], ...], OutputCondition] = {}
    cases = []
    for members in groups.values():
        key = tuple(tuple(joint[k].rows) for k in members)
        if key not in conditions:
            rows = [[*each.rows, *more] for more in key for each in unsafe]
            try:
                conditions[key] = condition_of_rows(rows, size, prod(query.outputs))
            except ValueError as error:
                raise FileError(f"{source} cannot be read: {error}.") from error
        low, high = (each[members[0]].reshape(query.inputs) for each in (lo, hi))
        cases.append(PropertyCase(low, high, conditions[key]))
    about = query.inputs, query.outputs, query.version, source, query.networks
    return Property(tuple(cases), *about)


def _bounds(cases: Sequence[Case], size: int) -> tuple[Tensor, Tensor]:
    """The bounds ``(N, D)`` of the inputs of N cases."""
    found = []
    for sides, unbounded in (
        ([case.lower for case in cases], -torch.inf),
        ([case.upper for case in cases], torch.inf),
    ):
        table = torch.full((len(sides), size), unbounded, dtype=torch.float64)
        places = [k * size + variable for k, side in enumerate(sides) for variable in side]
        values = [value for side in sides for value in side.values()]
        table.view(-1).numpy()[np.array(places, np.int64)] = values
        found.append(table)
    return found[0], found[1]
