"""Operations that move values about: shapes, parts, tensors put together, and resizing.

Where torch has no such operation, numpy moves the places of the values once, while the file is
read, and the layer picks the values from there.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from splinecam.files.onnx_file import bounded, dtype_of_code
from splinecam.files.onnx_nodes import Node, Refused, Value
from splinecam.files.onnx_rules.linear import along_axis
from splinecam.files.onnx_rules.registry import rule

_END = 2**31 - 1  # from here on, the end of a slice means the end of the axis


def places_of(value: Value) -> Any:
    """The number of each entry of a value, in the value's shape."""
    return np.arange(prod(value.shape)).reshape(value.shape)


def picked(node: Node, value: Value, places: Any) -> Value:
    """The entries of a value at given places, in the shape of the places."""
    node.bounded(places.shape)
    flat = node.reshaped(value.tensor, (prod(value.shape),))
    index = torch.from_numpy(np.ascontiguousarray(places).reshape(-1))
    return node.make(node.call("index_select", flat, 1, index), places.shape)


def sliced(node: Node, tensor: str, dim: int, start: int, end: int, step: int = 1) -> str:
    """A slice of a tensor in one dimension, from start to end with a positive step."""
    if (start, step) == (0, 1) and end >= node.shape_of(tensor)[dim - 1]:
        return tensor
    return node.call("slice.Tensor", tensor, dim, start, end, step)


# -- shapes ---------------------------------------------------------------------------------------


@rule("Identity Dropout", "eval mode")
def _identity(node: Node) -> Value:
    if any(node.uses[1:]):
        raise Refused("its mask is random")
    training = node.input(2)
    if isinstance(training, Value) or (training is not None and bool(training.any())):
        raise Refused("it is in training mode, where it is random")
    return node.value()


@rule("Cast CastLike", "between floating types, or of a comparison")
def _cast(node: Node) -> Value | Tensor:
    x = node.given(0)
    if isinstance(x, Tensor):  # it is cast like a value, which is a floating-point number
        return x.to(node.writer.dtype)
    if node.kind == "Cast":
        dtype = dtype_of_code(node.get("to", 1))
    else:
        like = node.given(1)
        dtype = like.dtype if isinstance(like, Tensor) else torch.float32
    if dtype is None or not dtype.is_floating_point:
        if x.mask:
            return x
        raise Refused("a conversion to whole numbers is discontinuous")
    if node.writer.tensors[x.tensor].dtype != torch.bool:
        return x
    return Value(node.call("to.dtype", x.tensor, node.writer.dtype), x.shape, x.mask)


@rule("Reshape", "constant shape")
def _reshape(node: Node) -> Value:
    x, target = node.value(), node.integers(1, "shape")
    if target is None:
        raise Refused("its shape is missing")
    new, shape = list(target), x.shape
    if not node.get("allowzero", 0):
        if any(size == 0 and i >= len(shape) for i, size in enumerate(new)):
            raise Refused(f"its shape {target} copies a size that is not there")
        new = [shape[i] if size == 0 else size for i, size in enumerate(new)]
    batch, count = node.batch, prod(shape)
    if batch and new[:1] == [batch] and (-1 in new or prod(new) == batch * count):
        new[0] = 1
    if new.count(-1) == 1:
        known = prod(size for size in new if size != -1)
        if known > 0 and count % known == 0:
            new[new.index(-1)] = count // known
    if any(size < 0 for size in new) or prod(new) != count:
        raise Refused(f"its shape {target} does not fit the shape {tuple(shape)}")
    return node.make(x.tensor, new)


@rule("Flatten")
def _flatten(node: Node) -> Value:
    x, axis = node.value(), node.get("axis", 1)
    rank = len(x.shape)
    if not -rank <= axis <= rank:
        raise Refused(f"its axis {axis} is not one of {rank}")
    return node.make(x.tensor, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@rule("Squeeze", "constant axes")
def _squeeze(node: Node) -> Value:
    x, given = node.value(), node.integers(1, "axes")
    rank = len(x.shape)
    if given is None:
        return node.make(x.tensor, [size for size in x.shape if size != 1])
    axes = {node.axis(axis, rank) for axis in given}
    if any(x.shape[axis] != 1 for axis in axes):
        raise Refused(f"its axes {given} of the shape {x.shape} are not of size 1")
    return node.make(x.tensor, [size for i, size in enumerate(x.shape) if i not in axes])


@rule("Unsqueeze", "constant axes")
def _unsqueeze(node: Node) -> Value:
    x, given = node.value(), node.integers(1, "axes")
    if given is None:
        raise Refused("its axes are missing")
    rank = len(x.shape) + len(given)
    axes, sizes = {node.axis(axis, rank) for axis in given}, iter(x.shape)
    if len(axes) != len(given):
        raise Refused(f"its axes {given} are not different")
    return node.make(x.tensor, [1 if i in axes else next(sizes) for i in range(rank)])


@rule("Transpose", "any permutation")
def _transpose(node: Node) -> Value:
    x = node.value()
    rank = len(x.shape)
    order = node.get("perm") or list(range(rank))[::-1]
    if sorted(order) != list(range(rank)):
        raise Refused(f"its perm {order} is no permutation of {rank} axes")
    shape = [x.shape[i] for i in order]
    moved = [i for i in order if x.shape[i] != 1]
    if moved == sorted(moved):  # nothing but axes of size 1 has moved
        return node.make(x.tensor, shape)
    if x.shape[0] == 1 and order[0] == 0:
        return node.make(node.call("permute", x.tensor, order), shape)
    tensor = node.call("permute", node.extended(x), [0, *(i + 1 for i in order)])
    return node.make(tensor, shape)


@rule("Expand", "constant shape")
def _expand(node: Node) -> Value:
    x, target = node.value(), node.integers(1, "shape")
    try:
        shape = node.bounded(np.broadcast_shapes(x.shape, tuple(target or ())))
    except ValueError:
        raise Refused(f"its shape {target} does not fit the shape {x.shape}") from None
    if shape == x.shape:
        return x
    return picked(node, x, np.broadcast_to(places_of(x), shape))


@rule("Tile", "constant repeats")
def _tile(node: Node) -> Value:
    x, repeats = node.value(), node.integers(1, "repeats") or []
    if len(repeats) != len(x.shape) or any(count < 0 for count in repeats):
        raise Refused(f"its repeats {repeats} do not fit the shape {x.shape}")
    node.bounded([a * b for a, b in zip(x.shape, repeats, strict=True)])
    return picked(node, x, np.tile(places_of(x), repeats))


@rule("DepthToSpace SpaceToDepth")
def _space_to_depth(node: Node) -> Value:
    x, block = node.value(), node.get("blocksize", 0)
    if len(x.shape) != 4 or block < 1:
        raise Refused("it takes images (1, channels, height, width)")
    n, c, h, w = x.shape
    places, b = places_of(x), block
    if node.kind == "SpaceToDepth":
        if h % b or w % b:
            raise Refused(f"its blocksize {b} does not divide the size {h} x {w}")
        parts = places.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
        return picked(node, x, parts.reshape(n, c * b * b, h // b, w // b))
    if c % (b * b):
        raise Refused(f"its blocksize {b} does not fit {c} channels")
    if node.get("mode", "DCR") == "CRD":
        parts = places.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    else:
        parts = places.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    return picked(node, x, parts.reshape(n, c // b**2, h * b, w * b))


# -- parts ----------------------------------------------------------------------------------------


@rule("Slice", "constant places, any step")
def _slice(node: Node) -> Value:
    x = node.value()
    starts, ends = node.integers(1, "starts"), node.integers(2, "ends")
    if starts is None or ends is None:
        raise Refused("its starts or ends are missing")
    axes = node.integers(3, "axes") or list(range(len(starts)))
    steps = node.integers(4, "steps") or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise Refused("its starts, ends, axes and steps do not fit")
    ranges = [range(size) for size in x.shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = node.axis(axis, len(x.shape))
        last = None if step < 0 and end <= -_END else end
        ranges[axis] = ranges[axis][start:last:step]
    shape = tuple(map(len, ranges))
    if any(item.step < 0 for item in ranges if len(item) > 1):
        return picked(node, x, places_of(x)[np.ix_(*ranges)])
    changed = [i for i, item in enumerate(ranges) if len(item) != x.shape[i]]
    tensor, dims = node.dims(x, changed)
    for i, dim in zip(changed, dims, strict=True):
        first, count = ranges[i].start, len(ranges[i])
        step = ranges[i].step if count > 1 else 1
        end = first + (count - 1) * step + 1 if count else first
        tensor = sliced(node, tensor, dim, first, end, step)
    return node.make(tensor, shape)


@rule("Split", "constant sizes")
def _split(node: Node) -> list[Value | Tensor]:
    x = node.value()
    axis = node.axis(node.get("axis", 0), len(x.shape))
    size, count = x.shape[axis], len(node.uses)
    parts = node.integers(1, "split")
    if parts is None:
        each = -(-size // (node.get("num_outputs") or count))
        parts = [max(0, min(each, size - i * each)) for i in range(count)]
    if sum(parts) != size or len(parts) != count or min(parts) < 0:
        raise Refused(f"its parts {parts} do not make up the size {size}")
    tensor, (dim,) = node.dims(x, [axis])
    results: list[Value | Tensor] = []
    start = 0
    for part, used in zip(parts, node.uses, strict=True):
        shape = (*x.shape[:axis], part, *x.shape[axis + 1 :])
        end = start + part
        piece = sliced(node, tensor, dim, start, end) if used else ""
        results.append(node.make(piece, shape) if used else Value("", shape))
        start = end
    return results


@rule("Gather", "constant indices")
def _gather(node: Node) -> Value:
    x, index = node.value(), node.constant(1, "indices")
    axis = node.axis(node.get("axis", 0), len(x.shape))
    index = _wrapped(index, x.shape[axis])
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    node.bounded(shape)
    tensor, (dim,) = node.dims(x, [axis])
    return node.make(node.call("index_select", tensor, dim, index.reshape(-1)), shape)


def _wrapped(index: Tensor, size: int) -> Tensor:
    """Indices that count from the start."""
    if index.dtype != torch.long or bool(((index < -size) | (index >= size)).any()):
        raise Refused(f"its indices do not lie between {-size} and {size - 1}")
    return torch.where(index < 0, index + size, index)


@rule("GatherElements", "constant indices")
def _gather_elements(node: Node) -> Value:
    x, index = node.value(), node.constant(1, "indices")
    axis = node.axis(node.get("axis", 0), len(x.shape))
    places = torch.from_numpy(places_of(x))
    if index.dim() != len(x.shape):
        raise Refused("its indices do not fit")
    return picked(node, x, torch.gather(places, axis, _wrapped(index, x.shape[axis])).numpy())


@rule("GatherND", "constant indices")
def _gather_nd(node: Node) -> Value:
    x, index = node.value(), node.constant(1, "indices")
    depth = index.shape[-1] if index.dim() else 0
    if node.get("batch_dims", 0) or not 0 < depth <= len(x.shape):
        raise Refused("batch_dims are not supported, or its indices do not fit")
    parts = [_wrapped(index[..., i], x.shape[i]).numpy() for i in range(depth)]
    return picked(node, x, places_of(x)[tuple(parts)])


# -- put together ---------------------------------------------------------------------------------


def _logit_of_pair(node: Node, items: list[Any]) -> str | None:
    """The argument of a final sigmoid p, if p is joined behind 1 - p, as skl2onnx does."""
    if not (node.final and [each.shape for each in items] == [(1, 1)] * 2):
        return None
    made = node.writer.made()
    rest, second = (made.get(getattr(each, "tensor", "")) for each in items)
    if rest is None or second is None or rest.inputs != (second.result,):
        return None
    layers = node.writer.layers
    with torch.no_grad():
        trial = torch.tensor([[0.0], [1.0], [3.0]], dtype=node.writer.dtype)
        one_less = torch.equal(layers[rest.module](trial), 1 - trial)
    sigmoid = isinstance(layers[second.module], nn.Sigmoid)
    return second.inputs[0] if sigmoid and rest.kind == "Sub" and one_less else None


@rule("Concat", "constants among the parts too")
def _concat(node: Node) -> Value:
    items: list[Any] = [node.given(i) for i in range(len(node.inputs))]
    rank = len(items[0].shape)
    axis = node.axis(node.get("axis", 0), rank)
    logit = _logit_of_pair(node, items) if axis == rank - 1 else None
    if logit is not None:  # the probabilities 1 - p and p are the softmax of 0 and the logit
        pair = node.call("constant_pad_nd", logit, [1, 0], 0.0)
        return Value(node.emit(nn.Softmax(-1), pair), (1, 2))
    rests = {(*item.shape[:axis], *item.shape[axis + 1 :]) for item in items}
    if len(rests) != 1 or any(len(item.shape) != rank for item in items):
        raise Refused("the shapes of its inputs do not fit")
    shape = list(items[0].shape)
    shape[axis] = sum(item.shape[axis] for item in items)
    node.bounded(shape)
    merged = axis != 0 and shape[0] == 1
    dim = axis if merged else axis + 1
    parts, before = [], 0
    last = max(i for i, item in enumerate(items) if isinstance(item, Value))
    for i, item in enumerate(items):
        if isinstance(item, Tensor):
            before += item.shape[axis]
            continue
        # Zeros take the places of constants, and the constants are added to the whole.
        after = sum(other.shape[axis] for other in items[i + 1 :]) if i == last else 0
        tensor = item.tensor if merged else node.extended(item)
        if before or after:
            sides = [0, 0] * (len(node.shape_of(tensor)) - dim) + [before, after]
            tensor = node.call("constant_pad_nd", tensor, sides, 0.0)
        parts.append(tensor)
        before = 0
    joined = node.call("cat", parts, dim) if parts[1:] else parts[0]
    if any(isinstance(item, Tensor) for item in items):
        constants = [x if isinstance(x, Tensor) else torch.zeros(x.shape) for x in items]
        shift = torch.cat([x.to(node.writer.dtype) for x in constants], axis)
        joined = node.call("add.Tensor", joined, shift[0] if merged else shift)
    return node.make(joined, shape)


@rule("Pad", "constant pads; constant, reflect, edge and wrap")
def _pad(node: Node) -> Value:
    x, rank = node.value(), len(node.value().shape)
    pads, given = node.integers(1, "pads"), node.integers(3, "axes")
    axes = [node.axis(a, rank) for a in (range(rank) if given is None else given)]
    if pads is None or len(pads) != 2 * len(axes):
        raise Refused("its pads do not fit")
    sides = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        sides[axis] = (pads[i], pads[i + len(axes)])
    shape = tuple(size + sum(pair) for size, pair in zip(x.shape, sides, strict=True))
    node.bounded(shape)
    mode = node.get("mode", "constant")
    if mode == "constant":
        fill = node.get("value", 0.0) if node.opset < 11 else node.optional(2, "constant value")
        number = 0.0 if fill is None else float(fill)
        changed = [axis for axis in range(rank) if sides[axis] != (0, 0)]
        tensor, dims = node.dims(x, changed)
        last = len(node.shape_of(tensor))
        amounts = dict(zip(dims, (sides[axis] for axis in changed), strict=True))
        flat = [n for dim in range(last, 0, -1) for n in amounts.get(dim, (0, 0))]
        return node.make(node.call("constant_pad_nd", tensor, flat, number), shape)
    if mode not in ("reflect", "edge", "wrap") or min(min(pair) for pair in sides) < 0:
        raise Refused(f"padding by {mode!r} with these pads is not supported")
    return picked(node, x, np.pad(places_of(x), sides, mode=mode))


# The place of an output among the inputs, from its number, the scale, and both sizes.
_COORDINATES: dict[str, Callable[[Any, float, int, int], Any]] = {
    "half_pixel": lambda i, scale, n, m: (i + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda i, scale, n, m: (i + 0.5) / scale - 0.5 if m > 1 else 0.0 * i,
    "asymmetric": lambda i, scale, n, m: i / scale,
    "align_corners": lambda i, scale, n, m: i * (n - 1) / (m - 1) if m > 1 else 0.0 * i,
    "tf_half_pixel_for_nn": lambda i, scale, n, m: (i + 0.5) / scale,
    "half_pixel_symmetric": lambda i, scale, n, m: (
        n / 2 * (1 - floor(scale * n) / (scale * n)) + (i + 0.5) / scale - 0.5
    ),
}
_ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@rule("Resize", "nearest and linear, without crops and antialiasing; constant scales or sizes")
@rule("Upsample", "nearest and linear; constant scales")
def _resize(node: Node) -> Value:
    if node.get("antialias", 0):
        raise Refused("antialias is not supported")
    old = node.opset < 11 or node.kind == "Upsample"
    given = node.get("scales")
    scales = node.optional(1 if old else 2, "scales") if given is None else torch.tensor(given)
    factors = _factors(node, scales, None if old else node.optional(3, "sizes"))
    if old:
        return _resized(node, factors, "asymmetric", "floor")
    coordinates = node.get("coordinate_transformation_mode", "half_pixel")
    return _resized(node, factors, coordinates, node.get("nearest_mode", "round_prefer_floor"))


def _factors(node: Node, scales: Any, sizes: Any) -> list[tuple[float, int]]:
    """The scale and the new size of each axis."""
    shape = node.value().shape
    axes = [node.axis(axis, len(shape)) for axis in node.get("axes", range(len(shape)))]
    found = [(1.0, size) for size in shape]
    given = scales if scales is not None and scales.numel() else sizes
    if given is None or given.numel() != len(axes):
        raise Refused("its scales or sizes are missing, or do not fit")
    numbers = [float(x) for x in given.flatten().tolist()]
    if given is scales:
        for axis, scale in zip(axes, numbers, strict=True):
            if not 0 < scale < float("inf"):
                raise Refused(f"its scale {scale} is not positive")
            found[axis] = (scale, floor(shape[axis] * scale))
    else:
        ratios = [number / shape[axis] for axis, number in zip(axes, numbers, strict=True)]
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [ratio] * len(axes)
            numbers = [floor(ratio * shape[axis] + 0.5) for axis in axes]
        for axis, ratio, number in zip(axes, ratios, numbers, strict=True):
            found[axis] = (ratio, int(number))
    if min(size for _, size in found) < 1:
        raise Refused("it leaves nothing of an axis")
    node.bounded([size for _, size in found])
    return found


def _resized(
    node: Node, factors: list[tuple[float, int]], coordinates: str, rounding: str
) -> Value:
    x, mode = node.value(), node.get("mode", "nearest")
    if mode not in ("nearest", "linear", "bilinear", "trilinear"):
        raise Refused(f"the mode {mode!r} is not supported: nearest and linear are")
    if coordinates not in _COORDINATES or rounding not in _ROUNDINGS:
        raise Refused(f"the mode {coordinates!r}, {rounding!r} is not supported")
    changed = [axis for axis, each in enumerate(factors) if each != (1, x.shape[axis])]
    tensor, dims = node.dims(x, changed)
    for axis, dim in zip(changed, dims, strict=True):
        scale, size = factors[axis]
        old = x.shape[axis]
        bounded((size, old), f"The matrix of {node.label} ({node.kind})")
        places = _COORDINATES[coordinates](np.arange(size), scale, old, size)
        if mode == "nearest":
            nearest = np.clip(_ROUNDINGS[rounding](places), 0, old - 1).astype(np.int64)
            tensor = node.call("index_select", tensor, dim, torch.from_numpy(nearest))
        else:
            weights = torch.from_numpy(_linear_weights(places, old)).to(node.writer.dtype)
            tensor = along_axis(node, tensor, dim, weights)
    return node.make(tensor, [size for _, size in factors])


def _linear_weights(places: Any, old: int) -> Any:
    """The matrix (outputs, inputs) of linear interpolation at places among the inputs."""
    places = np.clip(places, 0, old - 1)
    low = np.minimum(np.floor(places), max(old - 2, 0)).astype(np.int64)
    share = places - low
    weights = np.zeros((len(places), old))
    rows = np.arange(len(places))
    np.add.at(weights, (rows, low), 1 - share)
    np.add.at(weights, (rows, np.minimum(low + 1, old - 1)), share)
    return weights
