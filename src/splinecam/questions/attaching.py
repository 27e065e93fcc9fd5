"""Give a loaded partition its model back, if it is the one that was partitioned."""

from __future__ import annotations

import os
from math import prod

import torch
from torch import nn

from splinecam._util.arrays import as_rows
from splinecam._util.tolerances import EPS, SAFETY, VALUE_PRECISION
from splinecam.errors import SplineCamError
from splinecam.files.loading import loaded
from splinecam.network.capture import capture
from splinecam.network.capture.models import AsWritten, Lost, Output, check_output
from splinecam.network.model_files import instead_of
from splinecam.network.nonlinearities import SmoothScalar
from splinecam.network.program import Program
from splinecam.questions.partition_data import PartitionData
from splinecam.questions.wanted import Wanted
from splinecam.smooth.tables import replaced

_OTHER = "The model is not the one that was partitioned"
_COMPARED = 1000  # vertices at which a model is compared with a partition from a file


def attach(
    part: PartitionData, model: nn.Module | str | os.PathLike[str], *, output: Output = None
) -> None:
    """Give a loaded partition its model back; an error if the model is another one.

    model: the module, or the path of its file for ``load_model``. output: which of several
    outputs, by default the partitioned one.
    """
    check_output(output)
    output = part._chosen_output if output is None else output
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
        known = part._known.nonzero()[:, 0]
        some = known[:: max(1, len(known) // _COMPARED)]
        refined = part.smoothing is not None and part.smoothing.refined
        compared = real if refined else program  # refined regions have values of the model itself
        found = as_rows(compared(part.domain.embed(part.vertices[some])))
    off, values = (found - part._outputs[some]).abs(), part._outputs
    spread = values.amax(0) - values.amin(0) + EPS * values.abs().amax(0)
    limit = VALUE_PRECISION * spread.max() + SAFETY * part._value_error
    if refined:
        limit = limit + part._bound
    if part._wanted is not None:
        _require_answers(part, part._wanted, program)
    if bool((off > limit).any()):
        off_by = f"its outputs at the vertices differ by up to {float(off.max()):.3g}"
        raise SplineCamError(f"{_OTHER}: {off_by}. Were its weights changed since?")
    part._model, part._program, part._chosen_output = network, program, output


def _require_answers(part: PartitionData, wanted: Wanted, program: Program) -> None:
    """Raise an error unless a network has the answer of a partition at some vertices."""
    some = slice(None, None, max(1, part.mesh.num_vertices // _COMPARED))
    with torch.no_grad():
        found = as_rows(program(part.domain.embed(part.vertices[some])))
    # Elsewhere two outputs may be equal.
    settled = (part._corners_of(~part.undecided) & ~part._known)[some]
    if bool((wanted.labels(found) != wanted.labels(part._outputs[some]))[settled].any()):
        raise SplineCamError(f"{_OTHER}: it gives another answer about {wanted.words}.")


def _captured(part: PartitionData, network: nn.Module, output: Output) -> tuple[Program, Program]:
    """The network, and the one that was partitioned: with tables in place of smooth functions."""
    record, shape = part.smoothing, part.domain.input_shape
    device, smooth = part.mesh.uv.device, record is not None
    divided = part._undecided is not None or (record is not None and record.refined)
    for each in (network, AsWritten(network)):
        program = capture(each, shape, smooth=smooth, device=device, output=output)
        layers = tuple(layer.name for layer in program.layers)
        refinement = part.layers[len(layers) :] if divided else ()
        if not program.written or layers + refinement == part.layers:
            break
    outputs = prod(program.output_shape)
    if layers + refinement != part.layers or outputs != part._n_out:
        own = f"the partition has {part._n_out} and {part.layers}"
        raise SplineCamError(f"{_OTHER}: it has {outputs} outputs and the layers {layers}; {own}.")
    if record is None:
        return program, program
    found = {x.name: prod(x.shape) for x in program.layers if isinstance(x, SmoothScalar)}
    if found != {name: int(table.slope.shape[1]) for name, table in record.tables.items()}:
        own = f"the replaced layers are {tuple(record.tables)}"
        raise SplineCamError(f"{_OTHER}: it has the smooth layers {tuple(found)}; {own}.")
    return program, replaced(program, record.tables)
