"""Models with their attention patterns and denominators held at one input."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

from splinecam.analysis.gap import Gap, measure_gap
from splinecam.errors import CaptureError, DomainError
from splinecam.geometry.domain import Domain
from splinecam.geometry.paths import Path
from splinecam.importing.loading import loaded
from splinecam.network.capture.isolation import EXCLUSIVE, Wrapper, private_copy, unwrap
from splinecam.network.capture.outputs import Output, check_output
from splinecam.network.freezing.frozen_graph import FrozenGraph
from splinecam.network.freezing.making import Held, freeze_graph
from splinecam.network.model_files import instead_of

__all__ = ["Frozen", "freeze"]


class Frozen(Wrapper):
    """A model whose attention patterns and denominators are held at their values at one input.

    ``frozen(x)`` runs it on inputs (B, ...) in the floating-point type of x, whatever type its
    weights have. It has copies of the weights, and can be moved, copied and pickled.

    network: the module that computes what is left. real: a copy of the model as it was. at: the
    anchor, which is one input, in float64. held: what is held, each with its ``name`` in the model,
    its ``kind`` (attention pattern, denominator or gate) and its ``shape``. output: which of
    several outputs of the model is meant.
    """

    at: Tensor

    def __init__(
        self,
        network: FrozenGraph,
        real: nn.Module,
        at: Tensor,
        held: tuple[Held, ...],
        output: Output,
    ) -> None:
        super().__init__()
        self.inner = network
        self.real = real
        self.register_buffer("at", at)
        self.held = held
        self.output = output

    def forward(self, x: Tensor) -> Tensor:
        """The outputs at inputs (B, ...)."""
        result: Tensor = self.inner(x)
        return result

    def train(self, mode: bool = True) -> Frozen:
        """Change nothing: a frozen model is as the model was, which is in eval mode."""
        return self

    def gap(self, domain: Domain | Path, points: int = 4096, seed: int = 0) -> Gap:
        """How far the frozen model is from the real one on a domain, measured at random points.

        The result is no bound: between the points the two may differ by more. Both are run in
        float64.

        domain: a polygon or a path; points: how many, uniform on the domain; seed: of the random
        numbers.

        >>> norm = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2))
        >>> x = torch.tensor([1.0, 0.0, -1.0])
        >>> frozen = freeze(norm, at=x)
        >>> frozen.gap(Domain.around(x, side=0.1)).points
        4096
        """
        shape = getattr(domain, "input_shape", tuple(self.at.shape))
        if tuple(shape) != tuple(self.at.shape):
            raise DomainError(
                f"the model was frozen at an input of shape {tuple(self.at.shape)}, but the "
                f"domain's inputs have the shape {tuple(shape)}"
            )
        return measure_gap(self.inner, (self.real, self.output), domain, points, seed)

    def __repr__(self) -> str:
        kind, shape = type(self.real).__name__, tuple(self.at.shape)
        if not self.held:
            return f"Frozen({kind} at an input of shape {shape}: there is nothing to hold)"
        noun = "value" if len(self.held) == 1 else "values"
        lines = "".join(f"\n  {held}" for held in self.held)
        return (
            f"Frozen({kind} at an input of shape {shape}, {len(self.held)} {noun} held:{lines}\n)"
        )


def freeze(
    model: nn.Module | str | os.PathLike[str],
    at: Any,
    *,
    gates: bool = False,
    output: Output = None,
) -> Frozen:
    """A model with its attention patterns and denominators held at the values they have at ``at``.

    What is left consists of affine operations and functions of one variable, so that ``partition``
    takes it. At the anchor it computes what the model computes, elsewhere something else: how far
    the two are apart on a domain is measured by ``frozen.gap(domain)``.

    Held are attention patterns, that is the results of a softmax that weight something, and the
    divisors of layer-norm, RMS-norm, group-norm and of any other quotient of activations. Means
    are linear, and are not held. Queries and keys thus have no effect beyond the anchor; values,
    projections, residual connections and the layers between remain as they are.

    model: an ``nn.Module`` in eval mode, which is not changed; or the path of a file for
    ``load_model``. at: the anchor, one input, such as the residual states ``(positions, width)`` at
    which a transformer block is looked at; with or without a batch of one. gates: also hold one
    factor where activations are multiplied with each other, as in SwiGLU: the one that comes from
    a non-linearity. output: which of several outputs is meant, as for ``partition``.

    >>> _ = torch.manual_seed(0)
    >>> block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    >>> x = torch.randn(5, 8)
    >>> frozen = freeze(block, at=x)
    >>> frozen
    Frozen(TransformerEncoderLayer at an input of shape (5, 8), 3 values held:
      self_attn: attention pattern (2, 5, 5)
      norm1: denominator (5, 1)
      norm2: denominator (5, 1)
    )
    >>> torch.allclose(frozen(x[None]), block(x[None]), atol=1e-5)
    True
    """
    network = loaded(model)
    if not isinstance(network, nn.Module):
        raise TypeError(f"model must be an nn.Module, not {instead_of(model)}")
    check_output(output)
    anchor = _anchor(at)
    with EXCLUSIVE, torch.inference_mode(False):
        real = private_copy(unwrap(network), lambda tensor: tensor.detach().clone())
        home = next((tensor.device for tensor in real.parameters()), anchor.device)
        anchor = anchor.to(home)
        try:
            graph, held = freeze_graph(real, anchor, gates=gates, output=output)
        except CaptureError as error:
            if anchor.dim() < 2 or anchor.shape[0] != 1:
                raise
            anchor = anchor[0]  # it may have a batch of one
            try:
                graph, held = freeze_graph(real, anchor, gates=gates, output=output)
            except CaptureError:
                raise error from None
        return Frozen(graph, real, anchor, held, output)


def _anchor(at: Any) -> Tensor:
    """The anchor as a tensor in float64."""
    try:
        anchor = torch.as_tensor(at).detach().to(torch.float64, copy=True)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"at must be one input of the model, not {type(at).__name__}") from error
    if anchor.dim() == 0 or not bool(anchor.isfinite().all()):
        raise ValueError("at must be one input of the model, a tensor of finite numbers")
    return anchor
