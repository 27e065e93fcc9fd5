"""A partition from a file gets its model back, which is compared with what the file holds."""

from __future__ import annotations

import os

import torch
from torch import nn

from splinecam._util.tolerances import EPS, SAFETY, VALUE_PRECISION
from splinecam.analysis.partition_data import PartitionData
from splinecam.errors import SplineCamError
from splinecam.importing.loading import loaded
from splinecam.network.capture import capture
from splinecam.network.capture.outputs import Lost, Output, check_output
from splinecam.network.model_files import instead_of

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
        device = part.mesh.uv.device
        program = capture(network, part.domain.input_shape, device=device, output=output)
        layers = tuple(layer.name for layer in program.layers)
        some = slice(None, None, max(1, part.mesh.num_vertices // _COMPARED))
        found = program(part.domain.embed(part.vertices[some])).flatten(1)
    if layers != part.layers or found.shape[1] != part.values.shape[1]:
        raise SplineCamError(
            f"The model is not the one that was partitioned: it has {found.shape[1]} outputs "
            f"and the layers {layers}; the partition has {part.values.shape[1]} and "
            f"{part.layers}."
        )
    spread = part.values.amax(0) - part.values.amin(0) + EPS * part.values.abs().amax(0)
    off = (found - part.values[some]).abs()
    if bool((off > VALUE_PRECISION * spread.max() + SAFETY * part.value_error).any()):
        raise SplineCamError(
            "The model is not the one that was partitioned: its outputs at the vertices differ "
            f"by up to {float(off.max()):.3g}. Were its weights changed since?"
        )
    part._model, part._program, part.output = network, program, output
