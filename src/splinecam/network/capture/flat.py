"""A model as a flat list of ATen calls, which ``reader`` reads into a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx

from splinecam.errors import CaptureError
from splinecam.network.capture.shapes import Batch

__all__ = ["FlatGraph", "flattened", "structure_of"]


@dataclass(frozen=True)
class FlatGraph:
    """The calls of a model in order, from its input to its output.

    constants: parameters, buffers and other constants, each with its name in the model. batch: how
    the shapes of values depend on the size of the batch.
    """

    nodes: list[fx.Node]
    x: fx.Node
    output: fx.Node
    constants: dict[fx.Node, tuple[str, Any]]
    batch: Batch


def flattened(exported: Any) -> FlatGraph:
    """The graph of a program that ``torch.export`` made."""
    nodes = {node.name: node for node in exported.graph.nodes}
    signature = exported.graph_signature
    x, output = _ends(signature, nodes)
    constants = {}
    for spec in signature.input_specs:
        if spec.kind.name != "USER_INPUT":
            found = exported.state_dict.get(spec.target)
            found = exported.constants.get(spec.target) if found is None else found
            constants[nodes[spec.arg.name]] = (str(spec.target), found)
    return FlatGraph(list(nodes.values()), x, output, constants, Batch(x))


def _ends(signature: Any, nodes: dict[str, fx.Node]) -> tuple[fx.Node, fx.Node]:
    """The input and the output of a graph."""
    inputs = [
        nodes[spec.arg.name] for spec in signature.input_specs if spec.kind.name == "USER_INPUT"
    ]
    results: Any = list(nodes.values())[-1].args[0]
    ends = zip(signature.output_specs, results, strict=True)
    outputs = [node for spec, node in ends if spec.kind.name == "USER_OUTPUT"]
    if len(inputs) != 1:
        raise CaptureError(f"the model has {len(inputs)} inputs: it must have one tensor")
    if len(outputs) != 1:
        raise CaptureError(
            f"the model returns {len(outputs)} values: it must return one tensor. "
            "Wrap it in a module that returns the one to be explained."
        )
    output = outputs[0]
    if not isinstance(output, fx.Node) or not isinstance(output.meta.get("val"), Tensor):
        raise CaptureError("the model must return a tensor")
    return inputs[0], output


def structure_of(graph: FlatGraph) -> list[Any]:
    """All of a graph but the values of its constants, to be compared with another's."""
    parts: list[Any] = [graph.x.meta["val"].shape, graph.output.name]
    for node in graph.nodes:
        parts += (node.name, node.target, node.meta.get("nn_module_stack"))
        parts += (item.name if isinstance(item, fx.Node) else item for item in node.args)
    parts += (tensor.shape for _, tensor in graph.constants.values())
    return parts
