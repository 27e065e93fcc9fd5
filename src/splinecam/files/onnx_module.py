"""The module that an ONNX file becomes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from splinecam._util.tolerances import VALUE_PRECISION
from splinecam.errors import CaptureError, FileError, SplineCamError
from splinecam.files.onnx_file import bounded, damaged, opset_of, read_message
from splinecam.files.onnx_graph import Imported, class_names_in, import_graph, input_of
from splinecam.files.onnx_nodes import layout
from splinecam.network.layer_graph import LayerGraph

Names = tuple[str, ...] | None

_TRIALS = 32  # inputs at which rows are compared


class OnnxModule(LayerGraph):
    """A network from an ONNX file, as layers that are named after the nodes of the file.

    It takes inputs (N, *input_shape) and returns (N, ...), or a dict of such tensors by the names
    of the outputs if there are several in the file. file: its name; opset: the version of its
    operations. class_names: of a classifier, if the file has them; left_out: the names of outputs
    that are not piecewise linear, such as the label of a classifier.
    """

    def __init__(
        self, imported: Imported, source: str, *, file: str, opset: int, class_names: Names
    ) -> None:
        writer = imported.writer
        super().__init__(
            writer.layers,
            writer.links,
            source=source,
            outputs={name: value.tensor for name, value in imported.outputs.items()},
            input_shape=tuple(writer.tensors[source].shape[1:]),
        )
        self.file, self.opset = file, opset
        self.class_names, self.left_out = class_names, imported.left_out

    def returned(self, values: Mapping[str, Any]) -> Any:
        """One output, or a dict by name if the file has several, also if only one is left."""
        found = super().returned(values)
        alone = self.left_out and len(self.outputs) == 1
        return dict.fromkeys(self.outputs, found) if alone else found

    def extra_repr(self) -> str:
        return f"{self.file!r}, opset {self.opset}, inputs {self.input_shape}"


def read_onnx(path: Path, input_shape: tuple[int, ...] | None = None) -> OnnxModule:
    """Read the network in an ONNX file; input_shape: of one input, if the file leaves it open."""
    try:
        return _read(path, input_shape)
    except SplineCamError:
        raise
    except Exception as error:  # anything else that a damaged file leads to
        text = str(error).strip().partition("\n")[0] or type(error).__name__
        raise damaged(path, f"it cannot be followed ({text[:200]})") from error


def _read(path: Path, input_shape: tuple[int, ...] | None) -> OnnxModule:
    model = read_message(path)
    opset = opset_of(model, path)
    graph = model.graph
    source = input_of(graph, path)
    shape, batch = _whole_shape(source, path, input_shape)

    def imported(shape: tuple[int, ...], batch: int | None) -> OnnxModule:
        found = import_graph(graph, path, opset, shape, batch)
        names = class_names_in(graph, path)
        return OnnxModule(found, source.name, file=path.name, opset=opset, class_names=names)

    if batch is None:
        return imported(shape, None)
    # The first size is a batch if the network computes each row as it computes a row alone.
    try:
        whole = imported(shape, None)
    except CaptureError:
        sizes = [item.type.tensor_type.shape.dim[:1] for item in graph.output]
        if not all(size and size[0].dim_value == batch for size in sizes):
            raise
        return imported((1, *shape[1:]), batch)
    with suppress(CaptureError, FileError):
        single = imported((1, *shape[1:]), batch)
        if _same(whole, single, shape):
            return single
    return whole


def _same(whole: OnnxModule, single: OnnxModule, shape: tuple[int, ...]) -> bool:
    """Whether rows together and each row alone have the same results.

    Inputs have several sizes, since units that are idle at small ones may still mix the rows.
    Results are float64, so that a weak mixture differs from rounding.
    """
    generator = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-2, 4, _TRIALS, dtype=torch.float64).view(-1, *[1] * len(shape))
    inputs = sizes * torch.randn((_TRIALS, *shape), generator=generator, dtype=torch.float64)
    with torch.no_grad():
        together = deepcopy(whole).double()(inputs)
        alone = deepcopy(single).double()(inputs.flatten(0, 1))
    many = together if isinstance(together, dict) else {"": together}
    each = alone if isinstance(alone, dict) else {"": alone}
    return all(_close(many[name], found) for name, found in each.items())


def _close(many: Tensor, each: Tensor) -> bool:
    """Whether results of batches ``(n, N, ...)`` agree with those of their rows ``(n N, ...)``."""
    if many.flatten(0, 1).shape != each.shape:
        return False
    found = each.view_as(many).flatten(1)
    error = VALUE_PRECISION * found.abs().amax(1, keepdim=True)
    return bool(((many.flatten(1) - found).abs() <= error).all())


def _whole_shape(
    source: Any, path: Path, input_shape: tuple[int, ...] | None
) -> tuple[tuple[int, ...], int | None]:
    """The shape of the input in the file with a batch of 1, and the batch if it is a fixed one."""
    tensor = source.type.tensor_type
    sizes = [item.dim_value if item.HasField("dim_value") else 0 for item in tensor.shape.dim]
    if not tensor.HasField("shape") or (not sizes and input_shape):
        if input_shape is None:
            raise CaptureError(_unknown(path, "no shape"))
        return (1, *input_shape), None
    if len(sizes) > 1 and sizes[0] <= 0:
        sizes[0] = 1
    if input_shape is not None:
        return _given_shape(sizes, path, tuple(input_shape)), None
    if any(size <= 0 for size in sizes):
        words = [
            str(x.dim_value) if x.dim_value > 0 else x.dim_param or "?" for x in tensor.shape.dim
        ]
        raise CaptureError(_unknown(path, f"the shape ({', '.join(words)})"))
    batch = sizes[0] if len(sizes) > 1 and sizes[0] > 1 else None
    bounded(tuple(sizes[1:] if batch else sizes), f"The input of the network in {path}")
    return tuple(sizes), batch


def _given_shape(sizes: list[int], path: Path, given: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the input, with the caller's sizes where the file leaves them open."""
    inner = layout(sizes)
    fits = len(inner) == len(given) and all(a in (b, 0) for a, b in zip(inner, given, strict=True))
    if fits:
        return (1, *given) if len(inner) < len(sizes) else given
    if 0 not in sizes:
        return tuple(sizes)  # the module reshapes its inputs, if they have as many numbers
    raise CaptureError(f"The network in {path} takes inputs of shape {inner}, not {given}.")


def _unknown(path: Path, what: str) -> str:
    return (
        f"The input of the network in {path} has {what}: say the shape of one input, without the "
        f"batch:\n    model = splinecam.load_model({path.name!r}, input_shape=(3, 32, 32))"
    )
