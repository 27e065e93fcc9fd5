"""Layers of torch that are one operation, whose result has the shape of its input."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["ENTRYWISE"]

_ATEN = torch.ops.aten

ENTRYWISE: dict[type[nn.Module], Any] = {
    nn.ReLU: _ATEN.relu.default,
    nn.ReLU6: _ATEN.hardtanh.default,
    nn.Hardtanh: _ATEN.hardtanh.default,
    nn.LeakyReLU: _ATEN.leaky_relu.default,
    nn.RReLU: _ATEN.rrelu.default,
    nn.Hardsigmoid: _ATEN.hardsigmoid.default,
    nn.Softshrink: _ATEN.softshrink.default,
    nn.Threshold: _ATEN.threshold.default,
    nn.Sigmoid: _ATEN.sigmoid.default,
    nn.Tanh: _ATEN.tanh.default,
    nn.LogSigmoid: _ATEN.log_sigmoid.default,
    nn.Softmax: _ATEN.softmax.int,
    nn.LogSoftmax: _ATEN.log_softmax.int,
    nn.PReLU: _ATEN.prelu.default,
    nn.GELU: _ATEN.gelu.default,
    nn.SiLU: _ATEN.silu.default,
    nn.Mish: _ATEN.mish.default,
    nn.Softplus: _ATEN.softplus.default,
    nn.ELU: _ATEN.elu.default,
    nn.SELU: _ATEN.selu.default,
    nn.CELU: _ATEN.celu.default,
    nn.Hardswish: _ATEN.hardswish.default,
}
"""The operation of each; its arguments are the attributes of the layer that have their names."""
