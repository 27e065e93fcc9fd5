"""Windows over more axes than torch has layers for, most of which they do not reach along.

JAX pools over all axes of an image, also over that of the channels, by windows of size 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from torch import Tensor

from splinecam.importing.onnx_nodes import Node, Value, named

__all__ = ["over_fewer_axes"]

_MOST = 3  # axes of space that layers of torch have
_PER_AXIS = ("kernel_shape", "strides", "dilations")


def over_fewer_axes(
    node: Node, x: Value, kernel: Sequence[int], run: Callable[[Node], Any]
) -> Value | None:
    """The result of a node whose idle axes become channels; None where torch has the layer.

    kernel: the sizes of the windows; run: the rule for the node with fewer axes.
    """
    space, idle = len(x.shape) - 2, _idle_axes(node, kernel)
    kept = [i for i in range(space) if i not in idle]
    if space <= _MOST or len(kernel) != space or not 1 <= len(kept) <= _MOST or x.shape[0] != 1:
        return None
    order = [0, 1, *(i + 2 for i in (*idle, *kept))]
    sizes = [x.shape[i] for i in order[1:]]
    channels = prod(sizes[: 1 + len(idle)])
    weights = _repeated(node, x, channels, kept)
    if weights is None:
        return None
    tensor = node.call("permute", named(x.tensor), order)
    fewer = (channels, *sizes[1 + len(idle) :])
    inner = Node(
        node.kind,
        node.label,
        _reduced(node, kept, space, channels),
        [Value(node.reshaped(tensor, fewer), (1, *fewer)), *weights],
        node.uses,
        node.opset,
        node.writer,
        node.others,
    )
    found: Value = run(inner)
    wide = (*sizes[: 1 + len(idle)], *found.shape[2:])
    back = [order.index(i) for i in range(len(order))]
    tensor = node.call("permute", named(node.reshaped(found.tensor, wide)), back)
    return node.make(tensor, (1, *(wide[i - 1] for i in back[1:])))


def _idle_axes(node: Node, kernel: Sequence[int]) -> list[int]:
    """The axes along which windows have size 1, and stand at every place."""
    space = len(kernel)
    strides, pads = node.get("strides", [1] * space), node.get("pads", [0] * 2 * space)
    if len(strides) != space or len(pads) != 2 * space:
        return []
    return [
        i for i in range(space) if kernel[i] == strides[i] == 1 and pads[i] == pads[i + space] == 0
    ]


def _repeated(node: Node, x: Value, channels: int, kept: list[int]) -> list[Any] | None:
    """The weights of a convolution for as many channels; only one channel can be repeated."""
    if node.kind != "Conv":
        return []
    weight, bias = node.constant(1, "weight"), node.optional(2, "bias")
    if x.shape[1] != 1 or tuple(weight.shape[:2]) != (1, 1):
        return None
    small = weight.reshape(1, 1, *(weight.shape[2 + i] for i in kept))
    found: list[Tensor] = [small.expand(channels, *small.shape[1:]).clone()]
    return found if bias is None else [*found, bias.reshape(-1).expand(channels).clone()]


def _reduced(node: Node, kept: list[int], space: int, channels: int) -> dict[str, Any]:
    """The attributes of the node with fewer axes."""
    found = dict(node.attributes)
    for name in _PER_AXIS:
        if name in found:
            found[name] = [found[name][i] for i in kept]
    if "pads" in found:
        found["pads"] = [found["pads"][i] for i in (*kept, *(i + space for i in kept))]
    return found | ({"group": channels} if node.kind == "Conv" else {})
