"""The module that an ONNX file becomes: by rules for nodes, and by computing constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from splinecam._util.tolerances import VALUE_PRECISION
from splinecam.errors import (
    CaptureError,
    FileError,
    OffendingOp,
    SplineCamError,
    UnsupportedOpError,
)
from splinecam.files import onnx_file
from splinecam.files.onnx_file import MOST_ENTRIES, OnnxMessage, bounded, damaged, read_tensor
from splinecam.files.onnx_nodes import Eager, Node, Refused, Value, Writer, layout
from splinecam.files.onnx_rules import FOLDS, LEARNING, REJECTED, RULES
from splinecam.network.layer_graph import LayerGraph
from splinecam.network.ops.nonlinear import WINNER

_STANDARD, _LEARNING = ("", "ai.onnx"), "ai.onnx.ml"
_FLOATING = {1: torch.float32, 10: torch.float32, 11: torch.float64, 16: torch.float32}
_FEW = 16  # outputs that are tried one by one
_STRINGS = 8  # the type of tensors of texts
_FINAL = ("Softmax", "LogSoftmax")
# These may follow a final function: they are left out together with it.
_FOLLOWERS = (
    *("Identity", "Dropout", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"),
    *("Mul", "Div", "Add", "Sub", "Neg", "Log", "Exp", "Normalizer"),
)
_ADVICE = (
    "\nAn operation that is not piecewise linear has to be replaced before the network is written "
    "to the file. What can be read: "
    "https://github.com/splinecam/splinecam/blob/main/docs/howto/onnx.md"
)
_UNKNOWN = object()  # stands for results of nodes that cannot be imported


Imported = tuple[Writer, dict[str, Value], tuple[str, ...]]
"""The layers of a graph, its outputs by name, and the names of outputs that are left out."""


def input_of(graph: Any, path: Path) -> Any:
    """The only input of a graph, beside its initialisers."""
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {tensor.values.name for tensor in graph.sparse_initializer}
    inputs = [item for item in graph.input if item.name not in constants]
    if len(inputs) != 1:
        names = ", ".join(repr(item.name) for item in inputs) or "none"
        raise CaptureError(
            f"The network in {path} has {len(inputs)} inputs ({names}): it must have one. Make the "
            "others constant before it is written: give them as initialisers."
        )
    if inputs[0].type.tensor_type.elem_type not in _FLOATING:
        raise CaptureError(
            f"The input {inputs[0].name!r} of the network in {path} is not a tensor of "
            "floating-point numbers."
        )
    return inputs[0]


def import_graph(
    message: OnnxMessage, path: Path, opset: int, shape: tuple[int, ...], batch: int | None = None
) -> Imported:
    """Import the graph of a message for an input of a shape, with a batch of 1.

    Outputs that cannot be imported, such as labels, are left out, if there are others. batch: the
    size of the batch that the file was written for, if it is a fixed one.
    """
    graph = message.model.graph
    # ``ZipMap`` makes a list of dicts by class of the scores of a classifier: it stands for these.
    zipped = {
        node.output[0]: node.input[0]
        for node in graph.node
        if (node.domain, node.op_type) == (_LEARNING, "ZipMap") and node.output and node.input
    }
    outputs = {item.name: zipped.get(item.name, item.name) for item in graph.output}

    def run(some: Mapping[str, str]) -> Imported:
        return _Importer(message, path, opset, shape, batch, some).run()

    try:
        return run(outputs)
    except UnsupportedOpError as error:
        found, errors = {}, [error]
        for name, value in outputs.items() if 1 < len(outputs) <= _FEW else ():
            try:
                found[name] = run({name: value})
            except UnsupportedOpError as other:
                errors.append(other)
        if not found:  # the error of the output with the fewest obstacles
            raise min(errors, key=lambda each: len(each.ops)) from None
        if len(found) == len(outputs):
            raise
    writer, values, _ = run({name: outputs[name] for name in found})
    return writer, values, tuple(name for name in outputs if name not in found)


class _Importer:
    def __init__(
        self,
        message: OnnxMessage,
        path: Path,
        opset: int,
        shape: tuple[int, ...],
        batch: int | None,
        outputs: Mapping[str, str],
    ) -> None:
        graph = message.model.graph
        self.path, self.opset, self.batch = path, opset, batch
        self.large, self.outputs = message.large, outputs
        self.source = input_of(graph, path)
        self.offending: list[OffendingOp] = []
        self.made = 0  # entries of constants that nodes have made
        self.nodes = _needed(graph, path, set(outputs.values()))
        self.uses = Counter(name for node in self.nodes for name in node.input)
        self.uses.update(outputs.values())
        # The outputs, and the values that lead to them by followers of a final function alone.
        self.ends = set(outputs.values())
        for proto in reversed(self.nodes):
            if set(proto.output) <= self.ends and proto.op_type in _FOLLOWERS:
                self.ends.update(name for name in proto.input if self.uses[name] == 1)
        types = [tensor.data_type for tensor in graph.initializer]
        types.append(self.source.type.tensor_type.elem_type)
        self.dtype = torch.float64 if 11 in types else torch.float32
        self.writer = Writer(self.source.name, shape, self.dtype)
        first = self._outer("input", "Input").make(self.source.name, shape)
        self.values: dict[str, Any] = {"": None, self.source.name: first}
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.sparse = {tensor.values.name for tensor in graph.sparse_initializer}
        if len(self.constants) < len(graph.initializer):
            raise damaged(path, "two of its initialisers have the same name")

    def run(self) -> Imported:
        """Import all nodes; one error lists every node that cannot be imported."""
        for proto in self.nodes:
            self._import(proto)
        for proto in () if self.offending else self.nodes:
            inner = proto.op_type in _FINAL and not set(proto.output) <= self.ends
            if inner and any(isinstance(self.values.get(name), Value) for name in proto.input):
                reason = "it is not piecewise linear, and is allowed only at the end"
                self._reject(proto.name or proto.output[0], proto.op_type, True, reason)
        if self.offending:
            raise UnsupportedOpError(self.offending, _ADVICE)
        outputs = {}
        for name, source in self.outputs.items():
            value = self._value(source)
            if isinstance(value, Value):
                if 0 in value.shape:
                    raise CaptureError(
                        f"The output {name!r} of the network in {self.path} has the shape "
                        f"{value.shape}: there are no numbers in it."
                    )
                if len(value.shape) == 1:  # the tensor is to be (N, n), not (N,)
                    value = replace(value, tensor=self._outer(name, "Output").extended(value))
                outputs[name] = value
            elif len(self.outputs) == 1:
                raise CaptureError(
                    f"The output {name!r} of the network in {self.path} does not depend on "
                    "its input: there is nothing to partition."
                )
        if not outputs:
            raise CaptureError(f"No output of the network in {self.path} depends on its input.")
        self.writer.prune({value.tensor for value in outputs.values()})
        return self.writer, outputs, ()

    def _outer(self, label: str, kind: str) -> Node:
        """A node for the input or an output, which is not in the file."""
        return Node(kind, label, {}, [], [], self.opset, self.writer)

    def _import(self, proto: Any) -> None:
        kind, label = proto.op_type, proto.name or (proto.output[0] if proto.output else "")
        inputs = [self._value(name) for name in proto.input]
        standard = proto.domain == _LEARNING if kind in LEARNING else proto.domain in _STANDARD
        known = standard and (kind in RULES or kind in FOLDS)
        results: Any = [_UNKNOWN] * len(proto.output)
        unknown = any(item is _UNKNOWN for item in inputs)
        if not (standard and kind in RULES if unknown else known):
            self._reject(label, kind, standard)
        elif not unknown:
            try:
                results = self._results(self._node(proto, kind, label, inputs))
            except Refused as error:
                self._reject(label, kind, standard, str(error))
        self.made += sum(item.numel() for item in results if isinstance(item, Tensor))
        if self.made > 2 * MOST_ENTRIES:
            raise FileError(
                f"The constants that nodes of {self.path} make have more than {2 * MOST_ENTRIES} "
                "entries together, which is more than is made while a file is read."
            )
        made = list(zip(proto.output, results, strict=False))
        if any(item is None and self.uses[name] for name, item in made):
            self._reject(label, kind, standard, WINNER)
        for item in inputs:  # a product that is used cannot take a bias any more
            if isinstance(item, Value):
                self.writer.linear.pop(item.tensor, None)
        for name, result in made:
            if name and (name in self.values or name in self.constants):
                raise damaged(self.path, f"the value {name!r} is made twice")
            self.values[name] = _UNKNOWN if name and result is None else result

    def _node(self, proto: Any, kind: str, label: str, inputs: list[Any]) -> Node:
        attributes = {item.name: self._attribute(item, label) for item in proto.attribute}
        uses = [self.uses[name] if name else 0 for name in proto.output]
        about = self.opset, self.writer, self.batch, set(proto.output) <= self.ends
        return Node(kind, label, attributes, inputs, uses, *about)

    def _results(self, node: Node) -> list[Any]:
        if node.kind in FOLDS and not any(isinstance(item, Value) for item in node.inputs):
            return [FOLDS[node.kind](node, node.inputs)]
        if node.kind not in RULES:
            raise Refused(REJECTED.get(node.kind, "its inputs must be constants"))
        if not any(isinstance(item, Value) for item in node.inputs):  # run layers on the first one
            at = next((i for i, item in enumerate(node.inputs) if item is not None), None)
            if at is None:
                raise Refused("its inputs are missing")
            constant: Any = node.inputs[at]
            node.writer, node.inputs[at] = Eager(constant), Value("", tuple(constant.shape))
        found = RULES[node.kind](node)
        results = found if isinstance(found, list) else [found]
        if node.writer is self.writer:
            return results
        made = node.writer.tensors
        return [
            made[item.tensor].reshape(item.shape).detach() if isinstance(item, Value) else item
            for item in results
        ]

    def _value(self, name: str) -> Any:
        if name not in self.values:
            if name in self.sparse:
                raise CaptureError(
                    f"The initialiser {name!r} in {self.path} is sparse, which cannot be read: "
                    "write the file with dense weights."
                )
            if name not in self.constants:
                raise damaged(self.path, f"the value {name!r} is used before it is made")
            proto = self.constants.pop(name)
            if proto.data_type == _STRINGS:
                reason = "it is made of texts, not of numbers"
                self.offending.append(OffendingOp(name, "initializer", "", reason))
                self.values[name] = _UNKNOWN
            else:
                at = self.large.get(name)
                self.values[name] = self._plain(read_tensor(proto, self.path, repr(name), at))
        return self.values[name]

    def _plain(self, tensor: Tensor) -> Tensor:
        """A constant as floating-point numbers of the network, as int64 or as booleans."""
        if tensor.is_floating_point():
            return tensor.to(self.dtype)
        return tensor if tensor.dtype == torch.bool else tensor.long()

    def _attribute(self, item: Any, label: str) -> Any:
        kinds = {1: "f", 2: "i", 3: "s", 6: "floats", 7: "ints", 8: "strings"}
        if item.type in kinds:
            found = getattr(item, kinds[item.type])
            return _text(found) if item.type < 4 else [_text(each) for each in found]
        if item.type == 4:
            return self._plain(read_tensor(item.t, self.path, f"{item.name!r} of {label!r}"))
        return None

    def _reject(self, label: str, kind: str, standard: bool, reason: str | None = None) -> None:
        if not standard:
            general = "it is not an operation of ONNX itself, but of another library"
        else:
            general = REJECTED.get(kind, "it is not one of the operations that can be read")
        self.offending.append(OffendingOp(label, kind, "", reason or general))


def _text(item: Any) -> Any:
    """A text of the file, which it holds as bytes; anything else as it is."""
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else item


def class_names_in(message: OnnxMessage, path: Path) -> tuple[str, ...] | None:
    """The names of the classes, which are an attribute or input of a node that chooses a label."""
    graph = message.model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.domain != _LEARNING:
            continue
        labels = [item for item in node.attribute if item.name.startswith("classlabels_")]
        found = [*(labels[0].strings or labels[0].ints)] if labels else []
        chosen = constants.get(node.input[0]) if node.input else None
        if node.op_type == "ArrayFeatureExtractor" and chosen is not None:
            texts, at = chosen.data_type == _STRINGS, message.large.get(chosen.name)
            values = torch.empty(0) if texts else read_tensor(chosen, path, at=at)
            found = [*(chosen.string_data if texts else values.flatten().tolist())]
        names = tuple(str(_text(each)) for each in found)
        if names:  # numbers from 0 on are no names
            return None if names == tuple(map(str, range(len(names)))) else names
    return None


def _needed(graph: Any, path: Path, wanted: set[str]) -> list[Any]:
    """The nodes that wanted values depend on, in order."""
    if not wanted:
        raise damaged(path, "its graph has no outputs")
    found = []
    for node in reversed(graph.node):
        if not wanted.isdisjoint(node.output):
            found.append(node)
            wanted.update(name for name in node.input if name)
    return found[::-1]


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
        writer, values, left_out = imported
        super().__init__(
            writer.layers,
            writer.links,
            source=source,
            outputs={name: value.tensor for name, value in values.items()},
            input_shape=tuple(writer.tensors[source].shape[1:]),
        )
        self.file, self.opset = file, opset
        self.class_names, self.left_out = class_names, left_out

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
    message = onnx_file.read_message(path)
    opset = onnx_file.opset_of(message.model, path)
    graph = message.model.graph
    source = input_of(graph, path)
    shape, batch = _whole_shape(source, path, input_shape)

    def imported(shape: tuple[int, ...], batch: int | None) -> OnnxModule:
        found = import_graph(message, path, opset, shape, batch)
        names = class_names_in(message, path)
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
    """Whether rows together and each row alone have the same results."""
    generator = torch.Generator().manual_seed(0)
    # Units that are idle at small inputs may still mix the rows of large ones.
    sizes = torch.logspace(-2, 4, _TRIALS, dtype=torch.float64).view(-1, *[1] * len(shape))
    inputs = sizes * torch.randn((_TRIALS, *shape), generator=generator, dtype=torch.float64)
    with torch.no_grad():  # in float64, so that a weak mixture differs from rounding
        together = deepcopy(whole).double()(inputs)
        alone = deepcopy(single).double()(inputs.flatten(0, 1))
    many = together if isinstance(together, dict) else {"": together}
    each = alone if isinstance(alone, dict) else {"": alone}

    def close(many: Tensor, each: Tensor) -> bool:
        if many.flatten(0, 1).shape != each.shape:
            return False
        found = each.view_as(many).flatten(1)
        error = VALUE_PRECISION * found.abs().amax(1, keepdim=True)
        return bool(((many.flatten(1) - found).abs() <= error).all())

    return all(close(many[name], found) for name, found in each.items())


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
