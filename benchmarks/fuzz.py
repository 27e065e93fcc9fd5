"""Compare partitions of random networks with the exact oracle, and count the wrong ones.

  python benchmarks/fuzz.py --count 1000 --seed 0
  python benchmarks/fuzz.py --only pooling near --count 50
  SPLINECAM_KERNEL=off python benchmarks/fuzz.py    # by tensor operations

The networks and domains are those of the property tests (``tests/strategies.py``), many of them
degenerate; ``--seed`` chooses which ones. The oracle computes in rational arithmetic and shares no
code with the library. A network is *wrong* if a region is missing, invented, misplaced or has
another map, if ``validate()`` fails, or if the computation ends with an error. It is *reported* if
the partition itself lists places in ``unresolved``; it must then still pass ``validate()``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from common import Table
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from torch import nn

import splinecam as sc
from splinecam.testing import assert_same_cells, exact_partition
from splinecam.testing.oracle.cells import exact_pieces

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from strategies import Layer, Net, boxes, domains, image_nets, maxima_nets, nets, planes

ATOL = 1e-9  # domain diameters that a corner may be off, and as much of outputs and slopes
SPACING = 2.0**-52  # cells narrower than this, in domain diameters, need not be found

TABLE = Table(
    {
        "kind": "<12",
        "networks": ">10,",
        "regions": ">12,",
        "reported": ">10,",
        "wrong": ">8,",
        "seconds": ">10.1f",
    }
)

Case = tuple[
    Any, sc.Domain | sc.results.Path
]  # what has a method module(), and where it is partitioned


@st.composite
def in_a_plane(draw: st.DrawFn) -> Case:
    """A network of three to six inputs, and a square in its input space."""
    inputs = draw(st.integers(3, 6))
    return draw(nets(inputs=inputs, width=5)), draw(planes(inputs))


@st.composite
def nearly_concurrent(draw: st.DrawFn) -> Case:
    """Lines that miss one point by 1e-6 to 1e-13, and perhaps a second layer."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    gap, lines = 10.0 ** -draw(st.integers(6, 13)), draw(st.integers(3, 10))
    weight = torch.randn(lines, 2, generator=generator).double()
    point = torch.rand(2, generator=generator).double() - 0.5
    bias = gap * torch.randn(lines, generator=generator).double() - weight @ point
    rows = tuple(tuple(row) for row in weight.tolist())
    following = torch.randn(3, lines + 1, generator=generator).tolist()
    head = Layer(tuple(tuple(row[1:]) for row in following), tuple(row[0] for row in following))
    second = draw(st.booleans())
    last = Layer(((1.0,) * (3 if second else lines),), (0.0,), "none")
    body = (Layer(rows, tuple(bias.tolist())), *([head] if second else []), last)
    return Net(body), sc.Domain.box(-1, 1)


@st.composite
def on_a_segment(draw: st.DrawFn) -> Case:
    """A network of two inputs of any other kind, and a segment between points of a grid."""
    concurrent = nearly_concurrent().map(lambda case: case[0])
    net = draw(st.one_of(nets(), maxima_nets(), concurrent))
    grid = st.tuples(*[st.integers(-16, 16)] * 4).filter(lambda ends: ends[:2] != ends[2:])
    a, b = torch.tensor(draw(grid), dtype=torch.float64).view(2, 2) / 8
    return net, sc.Domain.segment(a, b)


# kind -> (what it is, how a case is drawn)
KINDS: dict[str, tuple[str, Callable[[], st.SearchStrategy[Case]]]] = {
    "layers": (
        "one to three layers, eight activations, skip connections",
        lambda: st.tuples(nets(), domains()),
    ),
    "wide": ("one layer of up to 16 units", lambda: st.tuples(nets(depth=1, width=16), boxes())),
    "deep": (
        "up to six layers of up to 8 units",
        lambda: st.tuples(nets(depth=6, width=8), domains()),
    ),
    "plane": ("a square in a space of three to six inputs", in_a_plane),
    "maxima": (
        "maxout, minima, sorted groups, max-pooling in 1-D",
        lambda: st.tuples(maxima_nets(), domains()),
    ),
    "pooling": ("convolution and max-pooling", lambda: st.tuples(image_nets(), domains())),
    "near": ("lines that miss one point by 1e-6 to 1e-13", nearly_concurrent),
    "segments": ("pieces of a segment, for networks of the kinds above", on_a_segment),
}


@dataclass
class Count:
    """What became of the networks of one kind."""

    kind: str
    networks: int = 0
    regions: int = 0
    reported: int = 0
    wrong: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    def add(self, net: Any, domain: sc.Domain | sc.results.Path) -> None:
        """Check one network."""
        self.networks += 1
        check = checked_pieces if isinstance(domain, sc.results.Path) else checked
        try:
            regions, reported = check(net.module(), domain)
        except Exception as error:  # each is a finding
            self.wrong += 1
            self.failures.append(f"{net!r}\n{domain!r}\n{type(error).__name__}: {error}")
        else:
            self.regions += regions
            self.reported += reported


def checked(model: nn.Module, domain: sc.Domain) -> tuple[int, bool]:
    """How many regions there are, and whether places are reported; raises if they are wrong."""
    part = sc.partition(model, domain, device="cpu", progress=False)
    part.validate()
    if not part.unresolved:
        assert_same_cells(part, exact_partition(model, domain), atol=ATOL, resolution=SPACING)
    return len(part), bool(part.unresolved)


def checked_pieces(model: nn.Module, path: sc.results.Path) -> tuple[int, bool]:
    """The same for the pieces of a segment, whose breakpoints must be those of the oracle."""
    part = sc.along(model, path, device="cpu", progress=False)
    part.validate()
    ends = [float(piece.end) for piece in exact_pieces(model, *path.points)]
    off = (part.t[:, None] - torch.tensor([0.0, *ends], dtype=torch.float64)).abs()
    if float(off.amin(0).max()) > ATOL or float(off.amin(1).max()) > ATOL:
        raise AssertionError("a breakpoint is missing, or was invented")
    return len(part), bool(part.unresolved)


def fuzz(kind: str, count: int, first: int) -> Count:
    """Check so many networks of a kind."""
    made = Count(kind)
    start = perf_counter()

    @seed(first)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(KINDS[kind][1]())
    def check(case: Case) -> None:
        made.add(*case)

    check()
    made.seconds = perf_counter() - start
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, one kind a line, and every network that is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = "; ".join(f"{kind}: {what}" for kind, (what, _) in KINDS.items())
    parser.add_argument("--only", nargs="+", choices=KINDS, metavar="KIND", help=kinds)
    parser.add_argument("--count", type=int, default=200, help="networks of each kind (200)")
    parser.add_argument("--seed", type=int, default=0, help="which networks (0)")
    given_ = parser.parse_args(argv)
    torch.set_num_threads(1)
    print(TABLE.heading())
    total = Count("all")
    for kind in given_.only or KINDS:
        made = fuzz(kind, given_.count, given_.seed)
        print(TABLE.line(vars(made)), flush=True)
        for name in ("networks", "regions", "reported", "wrong", "seconds", "failures"):
            setattr(total, name, getattr(total, name) + getattr(made, name))
    print(TABLE.line(vars(total)))
    for failure in total.failures:
        print(f"\n{failure}")
    return int(total.wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
