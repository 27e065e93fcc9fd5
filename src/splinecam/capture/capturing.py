"""From an ``nn.Module`` to a program of affine stages and piecewise-linear cuts."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

from splinecam.capture.diagnosis import refuse
from splinecam.capture.explain import explained
from splinecam.capture.flat import flattened
from splinecam.capture.graph import export_graph
from splinecam.capture.leaves import leaves
from splinecam.capture.outputs import Output, check_output, one_output
from splinecam.capture.private import EXCLUSIVE
from splinecam.capture.reader import Reader
from splinecam.capture.untouched import unwrap
from splinecam.capture.walk import walked
from splinecam.errors import SplineCamError
from splinecam.program import Program

__all__ = ["capture", "captured_by_export", "captured_by_walk"]


def capture(
    model: nn.Module,
    input_shape: tuple[int, ...],
    *,
    device: torch.device | str = "cpu",
    output: Output = None,
) -> Program:
    """Turn a piecewise-linear model into a :class:`Program`; the model is left as it was.

    ``input_shape`` is the shape of one input, without the batch. ``output`` selects one of several
    outputs: an index, a name, or a function of the model's result.
    """
    check_output(output)
    input_shape = tuple(int(size) for size in input_shape)
    model, device = unwrap(model), torch.device(device)
    with EXCLUSIVE, torch.no_grad():
        program = captured_by_walk(model, input_shape, device) if output is None else None
        return program or captured_by_export(model, input_shape, device, output)


def captured_by_walk(
    model: nn.Module, input_shape: tuple[int, ...], device: torch.device
) -> Program | None:
    """The program of a chain or a tree of torch's own layers; None for any other model."""
    graph = walked(model, input_shape)
    if graph is not None:
        with contextlib.suppress(Exception):  # torch.export finds out what is wrong, and where
            return Reader(graph, device).read(input_shape)
    return None


def captured_by_export(
    model: nn.Module, input_shape: tuple[int, ...], device: torch.device, output: Output = None
) -> Program:
    """The program of any model that ``torch.export`` can follow."""
    refuse(model)
    with leaves(model), one_output(model, output):
        graph = flattened(export_graph(model, input_shape))
        reader = Reader(graph, device)
        try:
            return reader.read(input_shape)
        except SplineCamError as error:
            raise explained(error, model, graph, reader.needed) from None
        except Exception as error:
            raise explained(error, model, graph, reader.needed) from error
