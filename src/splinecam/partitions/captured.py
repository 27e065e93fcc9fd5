"""A captured network: its operations in float64, and a copy of its model's weights."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

from splinecam._util.options import device_of
from splinecam.files.loading import module_of
from splinecam.network.capture import capture as _capture
from splinecam.network.capture import naming_option
from splinecam.network.capture.models import Output, check_output
from splinecam.network.program import Program
from splinecam.parallel.flat import Block, join, load, parts_of

_OPTION = "capture(..., smooth=True) takes it"


class Captured:
    """A model as ``capture`` found it: affine stages and layers, with a copy of its weights.

    ``captured(x)`` runs it in float64 on inputs (B, ...), without a final softmax, sigmoid or tanh.
    The copy stays as it is when the model changes, until ``update()``.

    model, input_shape, output, smooth: as they were given. device: where the copy is; wanted: the
    device that the caller gave, and a partition takes over. program: the stages. layers: the names
    of the non-linearities, in order.
    """

    def __init__(
        self,
        model: nn.Module,
        input_shape: tuple[int, ...],
        output: Output,
        device: str | torch.device,
        smooth: bool,
        program: Program | None = None,
    ) -> None:
        self.model, self.input_shape, self.output = model, input_shape, output
        self.device, self.wanted, self.smooth = device_of(device), device, smooth
        self.program: Program = self.update().program if program is None else program

    def update(self) -> Captured:
        """Take over what the model is now, and return this object.

        New weights alone take about a millisecond. If more has changed (a layer, the code of
        forward, an attribute that it reads), the model is captured anew.
        """
        how: Any = {"device": self.device, "output": self.output, "smooth": self.smooth}
        with torch.inference_mode(False), naming_option(_OPTION):
            self.program = _capture(self.model, self.input_shape, **how)
        return self

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(layer.name for layer in self.program.layers)

    def __call__(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.program(x)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the stages as they are, and the model by its own rules."""
        block = join(parts_of(self.program.to("cpu")))
        about: dict[str, Any] = {"model": self.model, "input_shape": self.input_shape}
        about |= {"output": self.output, "device": self.wanted, "smooth": self.smooth}
        return _unpickled, (block, about)

    def __repr__(self) -> str:
        shapes = f"{self.input_shape} -> {self.program.output_shape}"
        left_out = f", final {self.program.stripped} left out" if self.program.stripped else ""
        kind = type(self.model).__name__
        return f"Captured({kind}, {shapes}, layers {self.layers}{left_out}, on {self.device})"


def _unpickled(block: Block, about: dict[str, Any]) -> Captured:
    captured = Captured(**about, program=load(block))
    captured.program = captured.program.to(captured.device)
    return captured


def capture(
    model: nn.Module | str | os.PathLike[str],
    input_shape: tuple[int, ...],
    *,
    output: Output = None,
    device: str | torch.device = "auto",
    smooth: bool = False,
) -> Captured:
    """A network as ``partition`` sees it: its operations, and a copy of its weights in float64.

    Capturing a model shows whether it can be partitioned before there is a domain, which
    non-linearities it has, and what it computes in float64. ``partition`` and ``sweep`` take a
    captured network in place of its model, and use the model as it is at that moment, never as it
    was when it was captured. Capturing a model first saves no time: captures are cached as long as
    the model lives, so that a second partition only reads its weights.

    model: any ``nn.Module`` of continuous piecewise-linear operations, in eval mode, which is not
    changed; or the path of a file for ``load_model``. input_shape: of one input, without the batch.
    output, device: as for ``partition``. smooth: whether the model may have smooth functions such
    as GELU, which ``partition(captured, domain, smooth=1e-3)`` and ``sweep`` replace.

    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> captured = capture(model, (2,), device="cpu")
    >>> captured
    Captured(Sequential, (2,) -> (1,), layers ('1',), on cpu)
    >>> _ = model[0].weight.data.mul_(2)
    >>> captured(torch.ones(1, 2)).equal(captured.update()(torch.ones(1, 2)))
    False
    """
    network = module_of(model)
    check_output(output)
    if not isinstance(smooth, bool):
        raise TypeError(
            f"smooth is {smooth!r}: give True to allow smooth functions; the error that outputs "
            "may have is for partition(captured, domain, smooth=1e-3)"
        )
    try:
        shape = tuple(int(size) for size in input_shape)
    except (TypeError, ValueError):
        raise TypeError(
            "input_shape must be the shape of one input without the batch, such as (2,) or "
            f"(1, 28, 28), not {input_shape!r}"
        ) from None
    return Captured(network, shape, output, device, smooth)
