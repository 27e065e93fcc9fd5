"""Compare refined partitions of random networks with whole ones, and count the wrong answers.

  python benchmarks/refine_fuzz.py --networks 1000 --seed 0
  python benchmarks/refine_fuzz.py --networks 20000 --questions 2 --processes 14 --seconds 500

The networks are dense, convolutional, with skips, maxima, sorting and choices; many are degenerate.
Each is asked for its decision boundary, levels, conditions, pairs of classes and the order of its
outputs, or for its boundary and as many of the others as ``--questions`` leaves, in turn. An answer
is *wrong* if a segment, an area, a length or a verdict differs from that of the whole partition, if
``validate()`` fails (which every tenth network is asked), or if there is an error.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from refinement_cases import BOX, QUADRANGLE, Asked, disagreement, questions, random_network


def asked_of(every: list[Any], most: int, number: int) -> list[tuple[int, Any]]:
    """The first question, and others in turn, with their places in the list."""
    others = len(every) - 1
    chosen = range(others) if most > others else [(number + k) % others for k in range(most - 1)]
    return [(0, every[0]), *((1 + k, every[1 + k]) for k in chosen)]


def fuzzed(number: int, worth: float, most: int, end: float) -> Counter[str]:
    """Ask a random network; count questions, regions, settled regions and wrong answers."""
    found: Counter[str] = Counter()
    if time.time() > end:
        return found
    torch.set_num_threads(1)
    kind, model, n = random_network(number)
    domain = BOX if number % 3 else QUADRANGLE
    asked = Asked(model, domain, n)
    found["networks"] += 1
    for k, refine in asked_of(questions(model, domain, n, number), most, number):
        try:
            part = asked.refined(refine, worth, 1 if (k + number) % 2 else 9)  # both bounds
            found["regions"] += len(part)
            found["settled"] += int((~part.complete).sum())
            if number % 10 == 0:
                part.validate(progress=False)
            wrong = disagreement(part, asked.whole, refine)
        except Exception as error:  # it is counted, and the next network is tried
            wrong = f"{type(error).__name__}: {error}"
        found["questions"] += 1
        if wrong:
            found["wrong"] += 1
            print(f"seed {number}, {kind}, question {k} {refine!r}: {wrong}", flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worth", type=float, default=0.04, help="small numbers settle more")
    parser.add_argument("--questions", type=int, default=100, help="to each network, at most")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no network after these")
    options = parser.parse_args()
    end = time.time() + options.seconds
    ask = partial(fuzzed, worth=options.worth, most=options.questions, end=end)
    seeds, counts = range(options.seed, options.seed + options.networks), Counter[str]()
    with ProcessPoolExecutor(options.processes) as pool:
        for done in pool.map(ask, seeds, chunksize=8):
            counts.update(done)
    for name in ("networks", "questions", "regions", "settled", "wrong"):
        print(f"{name:<10}{counts[name]:>12,}")
    sys.exit(counts["wrong"] > 0)
