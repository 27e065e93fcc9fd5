"""Compare refined partitions of random networks with whole ones, and count the wrong answers.

  python benchmarks/refine_fuzz.py --networks 1000 --seed 0

The networks are dense, convolutional, with skips, maxima, sorting and choices; many are degenerate.
Each is asked for its decision boundary, levels, conditions, pairs of classes and the order of its
outputs. An answer is *wrong* if a segment, an area, a length or a verdict differs from that of the
whole partition, if ``validate()`` fails (which every tenth network is asked), or if there is an
error.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from refinement_cases import BOX, QUADRANGLE, Asked, disagreement, questions, random_network


def fuzzed(networks: int, seed: int, worth: float) -> Counter[str]:
    """Ask random networks; count questions, regions, settled regions and wrong answers."""
    found: Counter[str] = Counter()
    for number in range(seed, seed + networks):
        kind, model, n = random_network(number)
        domain = BOX if number % 3 else QUADRANGLE
        asked = Asked(model, domain, n)
        found["networks"] += 1
        for k, refine in enumerate(questions(model, domain, n, number)):
            try:
                part = asked.refined(refine, worth, 1 if k % 2 else 9)  # both kinds of bounds
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
    options = parser.parse_args()
    counts = fuzzed(options.networks, options.seed, options.worth)
    for name in ("networks", "questions", "regions", "settled", "wrong"):
        print(f"{name:<10}{counts[name]:>12,}")
    sys.exit(counts["wrong"] > 0)
