"""Certificates: how long they take to write and to check, and whether changed ones are rejected.

Run ``python benchmarks/certificates.py``, or ``--only changes --changes 1000``. Slices of ACAS Xu
need the folder of trained networks; a random network of the same shape stands for it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import pairwise
from pathlib import Path

import properties
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


def certify_slice(number: int) -> str:
    """The regions of a slice of ACAS Xu, its verdict, and seconds of processor time."""
    torch.set_num_threads(1)
    part = sc.partition(properties.acas(), properties.slices()[number], progress=False)
    with tempfile.TemporaryDirectory() as name:
        path, start = Path(name) / "slice.cert", time.process_time()
        verdict = part.check([properties.UNSAFE["first_large"]], certificate=path).status
        middle = time.process_time()
        with path.open() as file:
            proved = checker.check(file)
        taken = (
            f"written in {middle - start:.0f} s, checked in {time.process_time() - middle:.0f} s"
        )
        size = path.stat().st_size / 1e6
    return f"slice {number}, {len(part):,} regions, {verdict}: {taken}, {size:.0f} MB, {proved[1:]}"


def slices(workers: int) -> None:
    """Eight slices of ACAS Xu with a property, each in a process."""
    with ProcessPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(certify_slice, k) for k in range(8)]):
            print(done.result(), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["times", "changes", "slices"])
    parser.add_argument("--changes", type=int, default=10_000, help="certificates to change")
    parser.add_argument("--workers", type=int, default=2, help="processes for slices")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.only in (None, "times"):
            times(Path(folder))
        if options.only in (None, "changes"):
            changes(Path(folder), options.changes)
    if options.only in (None, "slices"):
        slices(options.workers)
