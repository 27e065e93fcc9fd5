"""How long partitions of pruned networks take, beside those of the dense networks.

  python benchmarks/pruned.py
  SPLINECAM_KERNEL=earlier.so python benchmarks/pruned.py    # the same by another kernel

*classifier* has learnt two spirals. Then in three steps, each with a short training, the smallest
weights of all layers were set to zero. The others are random networks, dense and with random
weights of the hidden layers set to zero, the rest scaled up. Seconds are those of the processor
with one thread, the least of several turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from time import process_time

import torch
from common import Table, perceptron
from torch import nn
from torch.nn.utils import prune

import splinecam as sc
from splinecam.cli.demo import train, two_spirals

ZEROS = 0.95
TABLE = Table(
    {"network": "<24", "zeros": ">7.1%", "regions": ">10,", "CPU s": ">8.3f", "us each": ">9.2f"}
)


def classifier(width: int = 256, depth: int = 4, steps: int = 100) -> tuple[nn.Module, nn.Module]:
    """A classifier of two spirals, before and after most of its weights were set to zero."""
    x, label = two_spirals(600)
    dense = train(x, label, width=width, depth=depth, steps=2 * steps)
    model = deepcopy(dense)
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    for share in (0.8, 0.9, ZEROS):
        prune.global_unstructured(
            [(layer, "weight") for layer in layers], prune.L1Unstructured, amount=share
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=0.05)
        for _ in range(steps):
            optimizer.zero_grad()
            logits = model(x)[:, 0]
            nn.functional.binary_cross_entropy_with_logits(logits, label.float()).backward()
            optimizer.step()
        for layer in layers:
            prune.remove(layer, "weight")
    return dense.double(), model.double().eval()


def random(width: int, depth: int, zeros: float = ZEROS) -> tuple[nn.Module, nn.Module]:
    """A random network, and one with random weights of the hidden layers set to zero."""
    dense = perceptron(2, *[width] * depth, 1)
    sparse = deepcopy(dense)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in sparse:
            if isinstance(layer, nn.Linear) and layer.in_features == width == layer.out_features:
                kept = torch.rand(layer.weight.shape, generator=generator) >= zeros
                layer.weight.mul_(kept / (1 - zeros) ** 0.5)
    return dense, sparse


def zeros_of(model: nn.Module) -> float:
    """The share of the weights that are zero."""
    weights = torch.cat([x.detach().flatten() for x in model.parameters() if x.dim() == 2])
    return float((weights == 0).double().mean())


PAIRS: dict[str, tuple[Callable[[], tuple[nn.Module, nn.Module]], float]] = {
    "classifier 4 x 256": (classifier, 1.0),
    "random 4 x 256": (partial(random, 256, 4), 1.0),
    "random 3 x 512": (partial(random, 512, 3), 0.5),
    "random 3 x 1024": (partial(random, 1024, 3), 0.2),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, a dense and a sparse network of each kind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PAIRS, default=list(PAIRS), metavar="NAME")
    parser.add_argument("--repeat", type=int, default=5, help="turns (5)")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    print(TABLE.heading())
    for name in given.only:
        make, side = PAIRS[name]
        models = dict(zip((name, "  mostly zeros"), make(), strict=True))
        least = dict.fromkeys(models, float("inf"))
        regions = dict.fromkeys(models, 0)
        for _ in range(given.repeat):
            for each, model in models.items():
                start = process_time()
                part = sc.partition(model, sc.Domain.box(-side, side), device="cpu", progress=False)
                least[each] = min(least[each], process_time() - start)
                regions[each] = len(part)
        for each, model in models.items():
            row = {"network": each, "zeros": zeros_of(model), "regions": regions[each]}
            row |= {"CPU s": least[each], "us each": 1e6 * least[each] / regions[each]}
            print(TABLE.line(row), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
