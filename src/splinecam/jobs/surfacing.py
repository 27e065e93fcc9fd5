"""The verb ``surface``: where an output of a network has a value in three dimensions."""

from __future__ import annotations

import os
from math import isfinite, prod
from operator import index
from typing import Any

import torch
from torch import nn

from splinecam._util.options import kind_of, memory_of
from splinecam.errors import CaptureError, DomainError
from splinecam.geometry.solids import Solid
from splinecam.network.nonlinearities import SmoothScalar
from splinecam.network.program import Program
from splinecam.partitions.captured import Captured, capture
from splinecam.questions.partition_data import counted
from splinecam.solid.extract import surface_data
from splinecam.solid.outputs import Output
from splinecam.solid.surface import Surface


def surface(
    model: nn.Module | Captured | str | os.PathLike[str],
    box: Solid,
    *,
    level: float = 0.0,
    output: Output = 0,
    memory: float | str | None = None,
    progress: bool = True,
) -> Surface:
    """The exact surface in a box on which an output of a network equals a level.

    In each linear region it is a flat polygon, and polygons of neighbouring regions share their
    vertices and edges, so that the surface is closed but for where it meets the sides of the box.
    It separates where the output is below the level from where it is not. What is left out on the
    way was proved to be empty, rounding included.

    model: any ``nn.Module`` of continuous piecewise-linear operations, in eval mode, a captured
    network, or the path of a file for ``load_model``. box: ``Domain.cube``, ``Domain.box3`` or
    ``Domain.tetrahedron``. level: the value. output: the index of the output among the numbers
    that the model returns, or a pair of indices, for the difference of two outputs: with level 0
    their tie. memory: the number of bytes that the cells may take, also as text such as ``"4GB"``;
    a ``LimitError`` says so beyond. progress: show a progress bar in interactive use.

    >>> from splinecam import Domain
    >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> tie = surface(model, Domain.cube(-1, 1), output=(0, 1), progress=False)
    >>> len(tie) >= 0
    True
    """
    if not isinstance(box, Solid):
        raise TypeError(
            f"box must be a body of three dimensions such as Domain.cube(-1, 1), not {kind_of(box)}"
        )
    if isinstance(level, str) or not hasattr(level, "__float__"):
        raise TypeError(f"level is {level!r}: give one number, and call surface for each level")
    level = float(level)
    if not isfinite(level):
        raise ValueError(f"level is {level}; give a finite number")
    shape, limit = box.input_shape, memory_of(memory)
    given = (
        model if isinstance(model, Captured) else capture(model, shape, device="cpu", smooth=True)
    )
    if given.input_shape != shape:
        raise DomainError(f"The box has inputs {shape}, and the network takes {given.input_shape}.")
    program = given.update().program.to("cpu")
    output = _output_of(program, output)
    smooth = [layer.name for layer in program.layers if isinstance(layer, SmoothScalar)]
    if smooth:
        raise CaptureError(
            f"layer {smooth[0]!r} is smooth, and surfaces are for piecewise-linear networks: "
            "replace it, for example by splinecam.nn.PiecewiseLinear."
        )
    with torch.inference_mode(False), torch.no_grad():
        data = surface_data(
            program, box, level=level, output=output, memory=limit, progress=progress
        )
    return Surface(data, box, given, level=level, output=output)


def _output_of(program: Program, output: Any) -> Output:
    """One index or a pair of indices of a network's outputs, checked."""
    count, several = prod(program.output_shape), isinstance(output, tuple | list)
    chosen = list(output) if several else [output]
    whole = all(hasattr(k, "__index__") and not isinstance(k, bool) for k in chosen)
    if len(chosen) not in (1, 2) or not whole:
        raise TypeError(f"output is {output!r}: give one index, or a pair of indices")
    first, *second = (index(k) for k in chosen)
    if not all(-count <= k < count for k in (first, *second)):
        raise IndexError(f"output is {output!r}, but the network has {counted(count, 'output')}")
    if second and (first - second[0]) % count == 0:
        raise ValueError(f"output is {output!r}: give two different outputs")
    return (first, second[0]) if second else first
