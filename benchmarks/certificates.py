"""Certificates: how long they take to write and to check, and whether changed ones are rejected.

python benchmarks/certificates.py [changes]
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

import splinecam as sc
import splinecam_check as checker

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from certificate_changes import changed

REJECTIONS = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError)


def network(widths: list[int], seed: int = 0, scale: float = 1.0) -> nn.Sequential:
    """A ReLU network with weights of a size that cuts the domain often."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for n, m in pairwise(widths):
        layers += [nn.Linear(n, m), nn.ReLU()]
        nn.init.normal_(layers[-2].weight, std=scale * (2 / n) ** 0.5)
        nn.init.normal_(layers[-2].bias, std=0.5)
    return nn.Sequential(*layers[:-1])


def times(folder: Path) -> None:
    """Seconds of processor time to write and to check partitions of 3 x 32 networks."""
    for side in (1.0, 2.0, 8.0):
        part = sc.partition(
            network([2, 32, 32, 32, 2], scale=1.5), sc.Domain.box(-side, side), progress=False
        )
        path = folder / "large.cert"
        start = time.process_time()
        written = part.certify(path, exact=True)
        middle = time.process_time()
        with path.open() as file:
            proved = checker.check(file)
        end = time.process_time()
        print(
            f"{written.regions:,} regions of 3 x 32: written in {middle - start:.1f} s, checked in"
        )
        print(
            f"  {end - middle:.1f} s, {path.stat().st_size / 1e6:.1f} MB; {proved[1]}", flush=True
        )


def changes(folder: Path, count: int) -> None:
    """How many changed certificates pass, of many."""
    passed: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for seed in range(count):
        if seed % 500 == 0:
            part = sc.partition(network([2, 6, 6, 2], seed), sc.Domain.box(-1, 1), progress=False)
            part.certify(folder / "small.cert", exact=True)
            lines = [json.loads(line) for line in (folder / "small.cert").open()]
        kind, text = changed(lines, random.Random(seed))
        kinds[kind] += 1
        try:
            checker.check(text)
            passed[kind] += 1
        except REJECTIONS:
            pass
    print(f"{count:,} changed certificates, {passed.total()} passed {dict(passed)}: {dict(kinds)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        times(Path(name))
        changes(Path(name), int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
