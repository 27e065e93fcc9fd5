"""Compare hidden maxima, sparse weights and quadratic conditions with the oracle, and count errors.

  python benchmarks/written_fuzz.py --networks 3000 --seed 0 --processes 16

Each network writes maxima and minima of groups of functions with ReLUs, in one of several ways, in
pairs or trees. Layers of 48 and 64 units come before or behind, most of whose weights are zero, and
some of whose units are constant. Every third network has weights that are multiples of 1/4, so that
lines meet in points. The oracle computes with every ReLU, in rational arithmetic. A network is
*wrong* if a region does not unite cells of the oracle with its map, if ``validate()`` fails, if a
quadratic condition is not decided as the oracle's least value says, which is moved by 1e-7 of its
size up and down, or if there is an error. It is *reported* if the partition or a verdict leaves
something open by itself. *maxima* counts networks in which maxima were recognised.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.testing import exact_partition

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from exact_polynomials import exact_minimum, random_term
from written import WAYS, assert_united_cells, linear, tree

ATOL = 1e-9
ALIVE = 3  # units of a sparse layer that are not constant
SQUARE = sc.Domain.box(-1, 1)


def drawn(number: int) -> nn.Sequential:
    """A random network of two inputs and two outputs."""
    generator = torch.Generator().manual_seed(number)

    def whole(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    def numbers(*shape: int) -> Tensor:
        found = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return (4 * found).round() / 4 if number % 3 == 0 else found

    def dense(inputs: int, outputs: int) -> list[nn.Module]:
        return [linear(numbers(outputs, inputs) / inputs**0.5, numbers(outputs) / 2)]

    def sparse(inputs: int, outputs: int) -> list[nn.Module]:
        # Two weights far from each other for each input, so that the kernel lists them.
        (layer,) = dense(inputs, outputs)
        rows = torch.randperm(outputs, generator=generator)[:ALIVE]
        kept = torch.zeros(outputs, inputs, dtype=torch.float64)
        kept[rows] = (torch.rand(ALIVE, inputs, generator=generator) < 0.6).double()
        with torch.no_grad():
            layer.weight.mul_(kept)
        return [layer, nn.ReLU()]

    values, body, inputs = whole(3, 6), list[nn.Module](), 2
    if whole(0, 2):
        body += [*dense(2, 4), nn.ReLU(), *sparse(4, 64)]
        inputs = 64
    groups = []
    for _ in range(whole(1, 4)):
        order = torch.randperm(values, generator=generator).tolist()
        groups.append(order[: whole(2, values + 1)])
    lows = [bool(whole(0, 2)) for _ in groups]
    body += [*dense(inputs, values), *tree(groups, values, list(WAYS)[whole(0, len(WAYS))], lows)]
    inputs = len(groups)
    if whole(0, 2):
        body += [*dense(inputs, 4), nn.ReLU(), *sparse(4, 48), *sparse(48, 64)]
        inputs = 64
    return nn.Sequential(*body, *dense(inputs, 2)).eval()


def checked(number: int) -> Counter[str]:
    """Check one network, and a quadratic condition; raises if something is wrong."""
    found, model = Counter[str](networks=1), drawn(number)
    part = sc.partition(model, SQUARE, device="cpu", progress=False)
    part.validate(progress=False)
    found["regions"] += len(part)
    found["maxima"] += any(".." in name for name in part.layers)
    if part.unresolved:
        return found + Counter(reported=1)
    exact = exact_partition(model, SQUARE)
    found["cells"] += len(exact)
    assert_united_cells(part, exact, atol=ATOL)
    names = [sc.input(0), sc.input(1), sc.output(0), sc.output(1)]
    term = random_term(names, torch.Generator().manual_seed(number))
    lowest = exact_minimum(exact, term)
    gap = Fraction(1e-7) * max(1, abs(lowest))
    for shift, wanted in ((gap, "holds"), (-gap, "violated")):
        status = part.check(term - lowest + shift <= 0).status
        found["conditions"] += 1
        found["reported"] += status == "unresolved"
        if status not in (wanted, "unresolved"):
            raise AssertionError(f"the condition is {status}, not {wanted}: least {float(lowest)}")
    return found


def fuzzed(number: int, end: float) -> Counter[str]:
    """Check one network, if there is time for it, and print what is wrong."""
    if time.time() > end:
        return Counter()
    torch.set_num_threads(1)
    try:
        return checked(number)
    except Exception as error:  # it is counted, and the next network is tried
        print(f"seed {number}: {type(error).__name__}: {error}", flush=True)
        return Counter(networks=1, wrong=1)


def main(argv: list[str] | None = None) -> int:
    """Print the counts; 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0, help="of the first network")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no network after these")
    options = parser.parse_args(argv)
    check = partial(fuzzed, end=time.time() + options.seconds)
    seeds, counts = range(options.seed, options.seed + options.networks), Counter[str]()
    if options.processes == 1:
        for each in map(check, seeds):
            counts.update(each)
    else:
        with ProcessPoolExecutor(options.processes) as pool:
            for each in pool.map(check, seeds, chunksize=8):
                counts.update(each)
    for name in ("networks", "maxima", "cells", "regions", "conditions", "reported", "wrong"):
        print(f"{name:<10}{counts[name]:>12,}")
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
