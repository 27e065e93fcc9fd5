"""The verb ``surface``: where an output of a network has a value in three dimensions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import isfinite, prod
from operator import index
from typing import Any, get_args, overload

import torch
from torch import Tensor, nn

from splinecam._util.options import device_of, kind_of, memory_of
from splinecam.errors import CaptureError, DomainError
from splinecam.geometry.solids import Solid
from splinecam.network.nonlinearities import SmoothScalar
from splinecam.network.program import Program
from splinecam.partitions.captured import Captured, capture
from splinecam.questions.partition_data import counted
from splinecam.solid.extract import surface_data
from splinecam.solid.outputs import Margin, Output, Winner
from splinecam.solid.surface import Surface

Model = nn.Module | Captured | str | os.PathLike[str]
Levels = Sequence[float] | Tensor

_PIECES = (
    "Put pieces in place of smooth functions, as in splinecam.nn.PiecewiseLinear(at, function(at)) "
    "with knots at=torch.linspace(-6, 6, 49). Twice as many knots make a quarter of the error."
)


@overload
def surface(
    model: Model,
    box: Solid,
    *,
    level: float = 0.0,
    output: Output = 0,
    device: str | torch.device = "cpu",
    memory: float | str | None = None,
    progress: bool = True,
) -> Surface: ...
@overload
def surface(
    model: Model,
    box: Solid,
    *,
    level: Levels,
    output: Output = 0,
    device: str | torch.device = "cpu",
    memory: float | str | None = None,
    progress: bool = True,
) -> tuple[Surface, ...]: ...
@overload
def surface(
    model: Model,
    box: Solid,
    *,
    output: Winner,
    device: str | torch.device = "cpu",
    memory: float | str | None = None,
    progress: bool = True,
) -> tuple[Surface, ...]: ...
def surface(
    model: Model,
    box: Solid,
    *,
    level: float | Levels = 0.0,
    output: Output | Winner = 0,
    device: str | torch.device = "cpu",
    memory: float | str | None = None,
    progress: bool = True,
    smooth: object = None,
) -> Surface | tuple[Surface, ...]:
    """The exact surface in a box on which an output of a network equals a level.

    In each linear region it is a flat polygon, and polygons of neighbouring regions share their
    vertices and edges, so that the surface is closed but for where it meets the sides of the box.
    It separates where the output is below the level from where it is not. What is left out on the
    way was proved to be empty, rounding included.

    model: any ``nn.Module`` of continuous piecewise-linear operations, in eval mode, a captured
    network, or the path of a file for ``load_model``. box: ``Domain.cube``, ``Domain.box3``,
    ``Domain.tetrahedron`` or ``Domain.polytope``. level: the value; of several the result is a
    tuple with a surface for each. output: the index of the output among the numbers that the model
    returns, or a pair of indices, for the difference of two outputs: with level 0 their tie. With
    ``"argmax"`` the result is a tuple with the surface around each class, which is the part of the
    box where its output is the largest; with ``"argmin"`` the smallest output wins. device: where
    it is computed, such as ``"cuda"``; the result is on the CPU. memory: the number of bytes that
    the computation may take beside the result, also as text such as ``"4GB"``; a ``LimitError``
    says if even the smallest parts of the box need more. Parts are computed one after the other,
    and their faces joined. By default those together that need about half a gigabyte on a CPU, or
    most of what a GPU has free. progress: show a progress bar in
    interactive use. smooth: is for domains of two dimensions; here an error says what to do.

    >>> from splinecam import Domain
    >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> tie = surface(model, Domain.cube(-1, 1), output=(0, 1), progress=False)
    >>> len(tie) >= 0
    True
    """
    if smooth is not None:
        raise TypeError(f"smooth= is for domains of two dimensions: leave it out. {_PIECES}")
    levels, several = _levels_of(level)
    network, limit, place = exact_network(model, box), memory_of(memory), device_of(device)
    if isinstance(output, str):
        if levels != [0.0]:
            raise TypeError(f"level is for one output or two: leave it out with output={output!r}")
        wanted: list[tuple[Captured, float, Output]]
        wanted = [(each, 0.0, 0) for each in _around(network, output)]
    else:
        chosen = _output_of(network.program, output)
        wanted = [(network, each, chosen) for each in levels]
    found = []
    with torch.inference_mode(False), torch.no_grad():
        for given, value, number in wanted:
            which: Any = {"level": value, "output": number}
            options = {**which, "memory": limit, "progress": progress}
            data = surface_data(given.program.to(place), box, **options)
            found.append(Surface(data, box, given, **which))
    return tuple(found) if several or isinstance(output, str) else found[0]


def exact_network(model: Model, box: Solid) -> Captured:
    """The captured network, as it is now, of piecewise-linear operations on the inputs of a box."""
    if not isinstance(box, Solid):
        raise TypeError(
            f"box must be a body of three dimensions such as Domain.cube(-1, 1), not {kind_of(box)}"
        )
    shape = box.input_shape
    given = (
        model if isinstance(model, Captured) else capture(model, shape, device="cpu", smooth=True)
    )
    if given.input_shape != shape:
        raise DomainError(f"The box has inputs {shape}, and the network takes {given.input_shape}.")
    layers = given.update().program.layers
    smooth = [layer.name for layer in layers if isinstance(layer, SmoothScalar)]
    if smooth:
        raise CaptureError(
            f"layer {smooth[0]!r} is smooth, and in three dimensions smooth= cannot replace it. "
            f"{_PIECES}"
        )
    return given


def _around(network: Captured, kind: Winner) -> list[Captured]:
    """For each class the network that tells by how much it is behind the best of the others."""
    program, count = network.program, prod(network.program.output_shape)
    if kind not in get_args(Winner):
        raise TypeError(
            f"output is {kind!r}: give one index, or a pair of indices, or 'argmax' or 'argmin'"
        )
    if count < 2:
        raise ValueError(f"output={kind!r} compares outputs, but the network has only one")
    if program.stripped:
        raise CaptureError(
            f"output={kind!r} needs a network without its final {program.stripped}: leave it out, "
            "which changes no class."
        )
    margins = [Margin(network.output, k, kind) for k in range(count)]
    how: Any = {"device": "cpu", "smooth": network.smooth}
    return [capture(network.model, network.input_shape, output=each, **how) for each in margins]


def _levels_of(level: Any) -> tuple[list[float], bool]:
    """One level or several as a list, checked, and whether they were given as several."""
    several = isinstance(level, list | tuple) or getattr(level, "ndim", 0) > 0
    given = list(level) if several else [level]
    if not given or not all(hasattr(each, "__float__") for each in given):
        raise TypeError(f"level is {level!r}: give one number, or a list of numbers")
    levels = [float(each) for each in given]
    for each in levels:
        if not isfinite(each):
            raise ValueError(f"level is {each}; give a finite number")
    return levels, several


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
