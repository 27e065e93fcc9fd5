"""Check surfaces and partitions of random networks in three dimensions, and print what is wrong.

  python benchmarks/surface_fuzz.py --count 2000
  python benchmarks/surface_fuzz.py --kind large --seed 17 --count 1

Each seed is a network of its own: of ReLU, leaky ReLU, absolute values, clamps, maxima and skips,
with or without biases, with equal and dead units, or with an output that is zero in whole regions,
in boxes of 1e-6 to 1e6, and tetrahedra and polytopes of larger spaces. Small ones must have the
cells and faces of the oracle in rational arithmetic, which shares no code with the library. All
must pass ``validate()``: closed, oriented, and along exact segments no crossing is missing and none
too many. A surface is *reported* if it lists unresolved places itself; then the oracle is not
asked.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam._util.tolerances import SAFETY
from splinecam.geometry.solids import Solid
from splinecam.testing.oracle.steps import Abs

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from exact_solids import ExactSolid, Maxout, area_between, areas, at, cells, minus

PRECISION = 1e-9  # of areas and volumes, relative to the body's
ACTIVATIONS = (nn.ReLU, lambda: nn.LeakyReLU(0.25), Abs, nn.ReLU6, lambda: Maxout(3))
SPECIAL = ("", "lattice", "no biases", "equal units", "dead unit", "zero in regions")
SCALES = (1.0, 1.0, 1e-6, 1e6)


class Net(nn.Module):
    """Layers, some with a connection around them, and perhaps a last ReLU."""

    def __init__(self, layers: list[tuple[nn.Linear, nn.Module, bool]], last: nn.Module) -> None:
        super().__init__()
        self.linear = nn.ModuleList(linear for linear, _, _ in layers)
        self.act = nn.ModuleList(act for _, act, _ in layers)
        self.skips, self.last = [skip for _, _, skip in layers], last

    def forward(self, x: Tensor) -> Tensor:
        for linear, act, skip in zip(self.linear, self.act, self.skips, strict=True):
            y = act(linear(x))
            x = x + y if skip else y
        return self.last(x)


def linear(inputs: int, units: int, special: str, draw: random.Random) -> nn.Linear:
    """An affine layer, with what is special about it."""
    layer = nn.Linear(inputs, units, bias=special != "no biases").double()
    with torch.no_grad():
        if special == "lattice":
            layer.weight.copy_(torch.randint(-2, 3, layer.weight.shape))
            layer.bias.copy_(torch.randint(-2, 3, layer.bias.shape))
        if special == "equal units" and units > 1:
            sign = draw.choice([1.0, -1.0, 2.0])
            layer.weight[1], layer.bias[1] = sign * layer.weight[0], sign * layer.bias[0]
        if special == "dead unit":
            layer.weight[-1], layer.bias[-1] = 0.0, draw.choice([0.0, -1.0, 1.0])
    return layer


def body_of(draw: random.Random, large: bool) -> Solid:
    """A box, or a tetrahedron or polytope in three or more dimensions."""
    scale, kind = draw.choice(SCALES), draw.choice(["cube", "box", "tetrahedron", "polytope"])
    if kind == "cube":
        return sc.Domain.cube(-scale, scale)
    if kind == "box":
        middle = torch.tensor([draw.choice([0, 0, 1, -2]) for _ in range(3)])
        half = torch.tensor([draw.choice([0.5, 1, 2]) for _ in range(3)])
        return sc.Domain.box3(scale * (middle - half), scale * (middle + half))
    if kind == "tetrahedron":
        inputs = draw.choice([3, 4, 8]) if large else draw.choice([3, 3, 4])
        return sc.Domain.tetrahedron(*scale * torch.randn(4, inputs, dtype=torch.float64))
    inputs, count = draw.choice([3, 5]), draw.choice([6, 10])
    points = torch.randn(count, 3, dtype=torch.float64) @ torch.randn(3, inputs).double()
    return sc.Domain.polytope(scale * points)


def drawn(seed: int, large: bool) -> tuple[nn.Module, Solid, Any, str]:
    """A network, a body, the output or pair that is asked for, and what is special about them."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    body, special = body_of(draw, large), draw.choice(SPECIAL)
    most = draw.choice([8, 16, 32]) if large else 4
    depth, outputs = (
        draw.choice([1, 2, 2, 3] if not large else [1, 2, 3, 4]),
        draw.choice([1, 1, 2]),
    )
    layers, width = [], body.dim
    for _ in range(depth if large or most < 4 else min(depth, 2)):
        act = draw.choice(ACTIVATIONS)()
        skip = large and draw.random() < 0.3
        units = width if skip else draw.randint(2, most)
        layer = linear(width, units * (3 if isinstance(act, Maxout) else 1), special, draw)
        layers.append((layer, act, skip))
        width = units
    last = linear(width, outputs, "" if special in ("equal units", "dead unit") else special, draw)
    model = Net(layers, nn.Sequential(last)).eval()
    size = float((body.corners - body.corners.mean(0)).abs().max())
    with torch.no_grad():
        layers[0][0].weight /= size
        if layers[0][0].bias is not None and special != "lattice":
            x = body.to_input(body.corners.mean(0, keepdim=True))
            layers[0][0].bias -= (x @ layers[0][0].weight.T)[0]
        if special not in ("no biases", "lattice"):
            share = torch.rand(len(body.corners), dtype=torch.float64)
            x = body.to_input((share / share.sum() @ body.corners)[None])
            last.bias -= model(x)[0]
    if special == "zero in regions":
        model.last = nn.Sequential(last, nn.ReLU(), linear(outputs, outputs, "no biases", draw))
        with torch.no_grad():
            model.last[2].weight.copy_(-torch.eye(outputs))
    return model, body, (0, 1) if outputs == 2 else 0, special


def chain(model: nn.Module) -> nn.Sequential:
    """The network as the oracle takes it."""
    pairs = zip(model.linear, model.act, strict=True)
    return nn.Sequential(*[each for pair in pairs for each in pair], *model.last)


def same(ours: Tensor, exact: list[float], size: float, what: str) -> None:
    """Raise an error unless the numbers are the same, but for those that are about zero."""
    theirs = torch.tensor(sorted(exact), dtype=torch.float64)
    pair = [x[x > PRECISION * size].sort().values for x in (ours, theirs)]
    if pair[0].shape != pair[1].shape:
        raise AssertionError(f"{len(pair[0])} {what} and {len(pair[1])} of the oracle")
    off = float((pair[0] - pair[1]).abs().max()) if len(pair[0]) else 0.0
    if off > PRECISION * size:
        raise AssertionError(f"{what} are off by {off / size:.1e}")


def beyond(cell: ExactSolid, rounding: float) -> bool:
    """Whether the output is above a number somewhere in the cell."""
    return any(at(cell.rows[0], p) > rounding for p in cell.points)


def settled(cell: ExactSolid, rounding: float) -> ExactSolid:
    """The cell as one that is not negative, if its output is negative by rounding at most."""
    if any(at(cell.rows[0], p) < -rounding for p in cell.points):
        return cell
    return ExactSolid(cell.faces, [(*[Fraction(0)] * 3, Fraction(1))])


def compare(model: nn.Module, body: Solid, found: Any, part: Any) -> None:
    """Raise an error unless the cells and faces are those of the oracle."""
    exact = cells(chain(model), body)
    volumes = [float(cell.volume) for cell in exact]
    same(part.volumes, volumes, body.volume, "volumes")
    if isinstance(found.output, tuple):
        exact = [ExactSolid(cell.faces, [minus(*cell.rows)]) for cell in exact]
    # The exact output may be 1e-17 beside zero on a whole face where float64 sees none of it.
    rounding = SAFETY * found.data.report["rounding"]
    exact = [settled(cell, rounding) for cell in exact]
    inside = areas([cell for cell in exact if beyond(cell, rounding)])
    beside = area_between(exact, rounding=rounding)
    size = float((body.corners[0] - body.corners[1]).norm()) ** 2
    if not beside:
        same(found.areas, inside, size, "areas")
    elif abs(found.area - sum(inside) - beside) > PRECISION * size:
        raise AssertionError(f"an area of {found.area}, and {sum(inside) + beside} of the oracle")


def checked(seed: int, large: bool, segments: int) -> str:
    """What became of a network: "ok", "empty" or "reported"; raises if something is wrong."""
    model, body, output, _ = drawn(seed, large)
    found = sc.surface(model, body, output=output, progress=False)
    found.validate(segments=segments)
    if len(found) and not found.capped().closed:
        raise AssertionError("the caps do not close the surface")
    if not large:
        part = sc.partition(model, body, progress=False)
        part.validate(samples=300)
        if part.unresolved or found.unresolved:
            return "reported"
        compare(model, body, found, part)
    if found.unresolved:
        return "reported"
    return "ok" if len(found) else "empty"


def main() -> int:
    """Print every network that is wrong, and at last how many there were."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=["small", "large"], help="by default in turns")
    parser.add_argument("--count", type=int, default=200, help="networks (200)")
    parser.add_argument("--seed", type=int, default=0, help="of the first one (0)")
    parser.add_argument("--segments", type=int, default=300, help="of each network (300)")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin none after this time")
    given = parser.parse_args()
    torch.set_num_threads(1)
    counts, start = Counter[str](), perf_counter()
    for seed in range(given.seed, given.seed + given.count):
        if perf_counter() - start > given.seconds:
            break
        large = given.kind == "large" or (given.kind is None and seed % 2 == 1)
        try:
            counts[checked(seed, large, given.segments)] += 1
        except Exception as error:  # each is a finding
            counts["wrong"] += 1
            kind, text = "large" if large else "small", str(error).replace("\n", " | ")
            special = drawn(seed, large)[3] or "plain"
            line = f"--kind {kind} --seed {seed} ({special}): {type(error).__name__}: {text}"
            print(line, flush=True)
    total = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    print(f"{sum(counts.values())} networks from seed {given.seed}: {total}")
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
