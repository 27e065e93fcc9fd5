"""Resize and Upsample: every output is a fixed mean of inputs, along one axis and another."""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import Any

import numpy as np
import torch

from splinecam.importing.onnx_nodes import Node, Refused, Value, named
from splinecam.importing.onnx_rules.linear import along_axis
from splinecam.importing.onnx_rules.registry import rule
from splinecam.importing.onnx_tensors import bounded

__all__: list[str] = []

# Where an output lies among the inputs: of its number, the scale, the sizes of input and output.
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
def _resize(node: Node) -> Value:
    if node.get("antialias", 0):
        raise Refused("antialias is not supported")
    old = node.opset < 11
    scales = node.optional(1 if old else 2, "scales")
    sizes = None if old else node.optional(3, "sizes")
    coordinates = "asymmetric" if old else node.get("coordinate_transformation_mode", "half_pixel")
    rounding = "floor" if old else node.get("nearest_mode", "round_prefer_floor")
    return _resized(node, _factors(node, scales, sizes), coordinates, rounding)


@rule("Upsample", "nearest and linear; constant scales")
def _upsample(node: Node) -> Value:
    given = node.get("scales")
    scales = torch.tensor(given) if given is not None else node.constant(1, "scales")
    return _resized(node, _factors(node, scales, None), "asymmetric", "floor")


def _factors(node: Node, scales: Any, sizes: Any) -> list[tuple[float, int]]:
    """For each axis its scale, and its new size."""
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
    bounded(tuple(size for _, size in found), f"The result of {node.label} ({node.kind})")
    return found


def _resized(
    node: Node, factors: list[tuple[float, int]], coordinates: str, rounding: str
) -> Value:
    x, mode = node.value(), node.get("mode", "nearest")
    if mode not in ("nearest", "linear", "bilinear", "trilinear"):
        raise Refused(f"the mode {mode!r} is not supported: nearest and linear are")
    if coordinates not in _COORDINATES or rounding not in _ROUNDINGS:
        raise Refused(f"the mode {coordinates!r}, {rounding!r} is not supported")
    changed = [
        axis for axis, (scale, size) in enumerate(factors) if size != x.shape[axis] or scale != 1
    ]
    tensor, dims = node.dims(x, changed)
    for axis, dim in zip(changed, dims, strict=True):
        scale, size = factors[axis]
        old = x.shape[axis]
        bounded((size, old), f"The matrix of {node.label} ({node.kind})")
        places = _COORDINATES[coordinates](np.arange(size), scale, old, size)
        if mode == "nearest":
            nearest = np.clip(_ROUNDINGS[rounding](places), 0, old - 1).astype(np.int64)
            tensor = node.call("index_select", named(tensor), dim, torch.from_numpy(nearest))
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
