"""Models with attention and denominators held at one input, and how far they are from the real."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from splinecam.errors import CaptureError, DomainError
from splinecam.files.loading import module_of
from splinecam.geometry.domain import Domain
from splinecam.geometry.paths import Path
from splinecam.geometry.subdivision import polygon_mesh
from splinecam.network.capture.models import (
    EXCLUSIVE,
    Output,
    Wrapper,
    check_output,
    dtype_of,
    private_copy,
    unwrap,
)
from splinecam.network.freezing import Held, freeze_graph
from splinecam.network.frozen_graph import FrozenGraph
from splinecam.questions.sampling import points_inside, sample_count, uniform
from splinecam.questions.validate import run_real

_ROWS = 512  # points that the networks are given at a time


@dataclass(frozen=True, eq=False, repr=False)
class Gap:
    """The distance of a frozen network from the real one at random points of a domain.

    It is measured, and so no bound: between the points the networks may differ by more.

    points: the number of points. largest, mean: (n_out,) the largest and the mean difference of
    each output, without sign. place: where the largest of all is, in plane coordinates, or the
    position on a path; input: the input there. changed: the share of points at which the decision
    differs: the largest output, or the sign of a single one. spread: (n_out,) largest minus
    smallest output of the real network at the points, to compare with.
    """

    points: int
    largest: Tensor
    mean: Tensor
    place: tuple[float, ...]
    input: Tensor
    changed: float
    spread: Tensor

    def __repr__(self) -> str:
        most = float(self.largest.max())
        place = ", ".join(f"{x:.4g}" for x in self.place)
        where = f" at ({place})" if most > 0 else ""
        return (
            f"Gap(measured at {self.points:,} points, not bounded: largest difference {most:.3g}"
            f"{where}, mean {float(self.mean.mean()):.3g}, where outputs range over "
            f"{float(self.spread.max()):.3g}; another decision at {100 * self.changed:.3g} % of "
            "the points)"
        )


def _decision(y: Tensor) -> Tensor:
    return y.argmax(1) if y.shape[1] > 1 else y[:, 0] > 0


def _places(domain: Domain | Path, count: int, generator: torch.Generator) -> Tensor:
    """Random places of a domain, uniform by area or by length, (count, 2) or (count, 1)."""
    if isinstance(domain, Path):
        return uniform((count, 1), generator, domain.corners.device)
    if not isinstance(domain, Domain):
        raise DomainError(f"domain must be a Domain or a path, not {type(domain).__name__}")
    corners = domain.corners
    chance = uniform((count, 3), generator, corners.device)
    every = torch.zeros(count, dtype=torch.int64, device=corners.device)
    return points_inside(polygon_mesh(corners), every, chance)


class Frozen(Wrapper):
    """A model whose attention patterns and denominators are held at their values at one input.

    ``frozen(x)`` runs it on inputs (B, ...) in the floating-point type of x, whatever type its
    weights have. It has copies of the weights, and can be moved, copied and pickled.

    inner: the module that computes the rest. real: a copy of the model as it was. at: the anchor,
    which is one input, in float64. held: the values that are held, each with its ``name`` in the
    model, its ``kind`` (attention pattern, denominator or gate) and its ``shape``. output: which of
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
        self.inner, self.real, self.held, self.output = network, real, held, output
        self.register_buffer("at", at)

    def train(self, mode: bool = True) -> Frozen:
        """Change nothing: a frozen model stays in eval mode."""
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
        count = sample_count(points)
        if count < 1:
            raise ValueError(f"points must be at least 1, not {count}")
        places = _places(domain, count, torch.Generator().manual_seed(seed))
        x = domain.embed(places.squeeze(1) if isinstance(domain, Path) else places)
        home = next((tensor.device for tensor in self.inner.parameters()), x.device)
        how: Any = {"wide": True, "device": x.device}
        with torch.no_grad(), run_real(self.real, self.output, dtype_of(self.real), **how) as real:
            rows = torch.split(x, _ROWS)
            own = torch.cat([real(some) for some in rows])
            frozen = torch.cat([self.inner(some.to(home)).flatten(1).to(x.device) for some in rows])
        difference = (frozen - own).abs()
        worst = int(difference.amax(1).argmax())
        return Gap(
            points=count,
            largest=difference.amax(0),
            mean=difference.mean(0),
            place=tuple(places[worst].tolist()),
            input=x[worst],
            changed=float((_decision(frozen) != _decision(own)).double().mean()),
            spread=own.amax(0) - own.amin(0),
        )

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
    factor where activations are multiplied with each other, as in SwiGLU: the factor from a
    non-linearity. output: which of several outputs is meant, as for ``partition``.

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
    network = module_of(model)
    check_output(output)
    anchor = _anchor(at)
    with EXCLUSIVE, torch.inference_mode(False):
        real = private_copy(unwrap(network), lambda tensor: tensor.detach().clone())
        home = next((tensor.device for tensor in real.parameters()), anchor.device)
        anchor = anchor.to(home)
        batch_of_one, errors = anchor.dim() > 1 and anchor.shape[0] == 1, []
        for one in (anchor, anchor[0]) if batch_of_one else (anchor,):
            try:
                graph, held = freeze_graph(real, one, gates=gates, output=output)
                return Frozen(graph, real, one, held, output)
            except CaptureError as error:
                errors.append(error)
        raise errors[0]


def _anchor(at: Any) -> Tensor:
    """The anchor as a tensor in float64."""
    try:
        anchor = torch.as_tensor(at).detach().to(torch.float64, copy=True)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"at must be one input of the model, not {type(at).__name__}") from error
    if anchor.dim() == 0 or not bool(anchor.isfinite().all()):
        raise ValueError("at must be one input of the model, a tensor of finite numbers")
    return anchor
