"""Load a network from a file that another program has written."""

from __future__ import annotations

import os
from pathlib import Path

from torch import nn

from splinecam.errors import FileError
from splinecam.importing.exported import read_program
from splinecam.importing.onnx_module import read_onnx
from splinecam.network.model_files import instead_of, kind_of_file

__all__ = ["load_model", "loaded"]


def load_model(
    path: str | os.PathLike[str], *, input_shape: tuple[int, ...] | None = None
) -> nn.Module:
    """The network in a file, as a module in eval mode: an ONNX file, or an exported program.

    The layers of an ONNX network are torch's own wherever there is one, are named after the nodes
    of the file, and hold its weights in float32, or in float64 where the file does. The module
    takes inputs ``(N, *input_shape)``, also where the file has a batch of one, a batch of another
    fixed size, or none; what it computes for a point is what the file gives for this point alone.
    Several outputs are returned as a dict by their names. Nothing in an ONNX file is executed, and
    nothing outside of its folder is read. An exported program is code: load those that you trust.

    path: of a ``.onnx`` or a ``.pt2`` file. input_shape: of one input, without the batch, where an
    ONNX file leaves it open.

    >>> load_model("net.h5")
    Traceback (most recent call last):
    ...
    splinecam.errors.FileError: There is no file net.h5.
    """
    place = Path(os.fsdecode(path))
    if not place.exists():
        raise FileError(f"There is no file {place}.")
    kind = kind_of_file(place)
    if kind == "onnx":
        return read_onnx(place, input_shape).eval()
    if kind == "exported":
        return read_program(place)[0]
    raise FileError(f"a model cannot be loaded from {instead_of(place)}")


def loaded(model: object) -> object:
    """The model itself, or the network in the file whose path is given for it.

    A path of a file that no model can be loaded from is returned as it is.
    """
    if not isinstance(model, (str, os.PathLike)):
        return model
    place = Path(os.fsdecode(model))
    return load_model(place) if kind_of_file(place) in ("onnx", "exported") else model
