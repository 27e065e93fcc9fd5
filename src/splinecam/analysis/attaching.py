"""A partition from a file gets its model back, which is compared with what the file holds."""

from __future__ import annotations

import os
from math import prod
from typing import Any

import torch
from torch import nn

from splinecam._util.tolerances import EPS, SAFETY, VALUE_PRECISION
from splinecam.analysis.partition_data import PartitionData
from splinecam.errors import SplineCamError
from splinecam.importing.loading import loaded
from splinecam.network.capture import capture
from splinecam.network.capture.outputs import Lost, Output, check_output
from splinecam.network.model_files import instead_of
from splinecam.network.program import Program
from splinecam.network.smooth_scalar import SmoothScalar
from splinecam.smooth.replacing import replaced

__all__ = ["attach"]

_COMPARED = 1000  # vertices at which a model is compared with a partition from a file


def attach(
    part: PartitionData, model: nn.Module | str | os.PathLike[str], *, output: Output = None
) -> None:
    """Give a loaded partition its model back; an error if the model is another one.

    model: the module, or the path of its file for ``load_model``. output: which of several
    outputs, by default the one that was partitioned.
    """
    check_output(output)
    output = part.output if output is None else output
    if isinstance(output, Lost):
        raise SplineCamError(
            f"The partition is of an output that the function {output.name} selects, and files "
            "hold no functions. Give the function again: output=..., along with the model."
        )
    network = loaded(model)
    if not isinstance(network, nn.Module):
        raise TypeError(f"model must be an nn.Module, not {instead_of(model)}")
    with torch.inference_mode(False), torch.no_grad():
        real, program = _captured(part, network, output)
        some = slice(None, None, max(1, part.mesh.num_vertices // _COMPARED))
        refined = part.smoothing is not None and part.smoothing.refined
        compared = real if refined else program  # refined regions have values of the model itself
        found = compared(part.domain.embed(part.vertices[some])).flatten(1)
    off = (found - part.values[some]).abs()
    spread = part.values.amax(0) - part.values.amin(0) + EPS * part.values.abs().amax(0)
    limit = VALUE_PRECISION * spread.max() + SAFETY * part.value_error
    if refined:
        limit = limit + part.bound
    if bool((off > limit).any()):
        raise SplineCamError(
            "The model is not the one that was partitioned: its outputs at the vertices differ "
            f"by up to {float(off.max()):.3g}. Were its weights changed since?"
        )
    part._model, part._program, part.output = network, program, output


def _captured(part: PartitionData, network: nn.Module, output: Output) -> tuple[Program, Program]:
    """The network, and as it was partitioned: with tables in place of smooth functions."""
    record, shape = part.smoothing, part.domain.input_shape
    how: dict[str, Any] = {"device": part.mesh.uv.device, "output": output}
    program = capture(network, shape, smooth=record is not None, **how)
    layers = tuple(layer.name for layer in program.layers)
    refinement = part.layers[len(layers) :] if record is not None and record.refined else ()
    outputs = prod(program.output_shape)
    if layers + refinement != part.layers or outputs != part.values.shape[1]:
        raise SplineCamError(
            f"The model is not the one that was partitioned: it has {outputs} outputs "
            f"and the layers {layers}; the partition has {part.values.shape[1]} and "
            f"{part.layers}."
        )
    if record is None:
        return program, program
    found = {x.name: prod(x.shape) for x in program.layers if isinstance(x, SmoothScalar)}
    if found != {name: int(table.slope.shape[1]) for name, table in record.tables.items()}:
        raise SplineCamError(
            "The model is not the one that was partitioned: it has the smooth layers "
            f"{tuple(found)}; those that were replaced are {tuple(record.tables)}."
        )
    return program, replaced(program, record.tables)
