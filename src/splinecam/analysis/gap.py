"""How far a frozen network is from the real one on a domain: measured at points, not bounded."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from splinecam.analysis.reference_model import run_real
from splinecam.analysis.sampling import choose, sample_count, uniform
from splinecam.errors import DomainError
from splinecam.geometry.domain import Domain
from splinecam.geometry.paths import Path
from splinecam.network.capture.isolation import dtype_of
from splinecam.network.capture.outputs import Output

__all__ = ["Gap", "measure_gap"]

_ROWS = 512  # points that the networks are given at a time


@dataclass(frozen=True, eq=False, repr=False)
class Gap:
    """The distance of a frozen network from the real one at random points of a domain.

    It is measured, and so no bound: between the points the networks may differ by more.

    points: the number of points. largest, mean: (n_out,) the largest and the mean difference of
    each output, without sign. place: where the largest of all is, in plane coordinates, or the
    position on a path; input: the input there. changed: the share of points at which the decision
    differs, which is the largest output, or the sign of a single one. spread: (n_out,) largest
    minus smallest output of the real network at the points, to compare with.
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


def measure_gap(
    network: nn.Module,
    real: tuple[nn.Module, Output],
    domain: Domain | Path,
    points: int,
    seed: int,
) -> Gap:
    """The gap between a network in float64 and a real model, of which one output is meant.

    points: the number of points, which are uniform on the domain; seed: of the random numbers.
    """
    count = sample_count(points)
    if count < 1:
        raise ValueError(f"points must be at least 1, not {count}")
    places = _places(domain, count, torch.Generator().manual_seed(seed))
    x = domain.embed(places.squeeze(1) if isinstance(domain, Path) else places)
    model, output = real
    with (
        torch.no_grad(),
        run_real(model, output, dtype_of(model), wide=True, device=x.device) as forward,
    ):
        found = [(_frozen(network, part), forward(part)) for part in torch.split(x, _ROWS)]
    frozen, own = (torch.cat(each) for each in zip(*found, strict=True))
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


def _frozen(network: nn.Module, x: Tensor) -> Tensor:
    """The outputs of a frozen network, which computes in the type of its input, (B, n_out)."""
    home = next((tensor.device for tensor in network.parameters()), x.device)
    y: Tensor = network(x.to(home)).flatten(1)
    return y.to(x.device)


def _decision(y: Tensor) -> Tensor:
    return y.argmax(1) if y.shape[1] > 1 else y[:, 0] > 0


def _places(domain: Domain | Path, count: int, generator: torch.Generator) -> Tensor:
    """Random places of a domain, uniform by area or by length, (count, 2) or (count, 1)."""
    if isinstance(domain, Path):
        return uniform((count, 1), generator, domain.corners.device)
    if not isinstance(domain, Domain):
        raise DomainError(f"domain must be a Domain or a path, not {type(domain).__name__}")
    corners = domain.corners
    first, a, b = corners[:1], corners[1:-1] - corners[:1], corners[2:] - corners[:1]
    chance = uniform((count, 3), generator, corners.device)
    triangle = choose((a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).abs(), chance[:, 0])
    s, t = chance[:, 1:2], chance[:, 2:3]
    s, t = torch.where(s + t > 1, 1 - s, s), torch.where(s + t > 1, 1 - t, t)
    return first + s * a[triangle] + t * b[triangle]
