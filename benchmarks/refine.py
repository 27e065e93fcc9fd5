"""How much faster decision boundaries are found if regions are divided only where they may lie.

  python benchmarks/refine.py --nets 4x64 4x128 6x256

Classifiers of two spirals are trained here, which takes seconds to minutes. CPU times of the whole
partition and of the refined one are measured in alternation, and the least of each counts. Their
boundaries are compared segment by segment; with ``--points``, the model itself is asked at so many
points on each side of the boundary. The last line fits the growth of the refined time with the
number of regions: an exponent of 1/2 is that of the length of the boundary.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from time import process_time

import torch
from common import Table
from torch import Tensor, nn

import splinecam as sc

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from refinement_cases import disagreement

DOMAIN = sc.Domain.box(-1, 1)
TABLE = Table(
    {
        "network": "<10",
        "regions": ">11,",
        "refined": ">10,",
        "complete": ">10,",
        "segments": ">10,",
        "whole (s)": ">10.2f",
        "refined (s)": ">12.2f",
        "ratio": ">8.1f",
        "wrong": ">7,",
    }
)


def spirals(count: int = 2000, turns: float = 2.0) -> tuple[Tensor, Tensor]:
    """Points of two spirals, and which one each belongs to."""
    share, label = torch.rand(count).sqrt(), torch.arange(count) % 2
    angle = 2 * math.pi * turns * share + math.pi * label
    at = 0.9 * share[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    return at + 0.02 * torch.randn(count, 2), label


def trained(depth: int, width: int, steps: int) -> nn.Module:
    """A classifier with one output."""
    torch.manual_seed(0)
    inner = [(nn.Linear(width, width), nn.ReLU()) for _ in range(depth - 1)]
    hidden = [module for pair in inner for module in pair]
    model = nn.Sequential(nn.Linear(2, width), nn.ReLU(), *hidden, nn.Linear(width, 1))
    x, label = spirals()
    rate = 2e-3 if width < 400 else 5e-4
    optimizer = torch.optim.Adam(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        some = torch.randint(0, len(x), (256,))
        logit = model(x[some])[:, 0]
        loss = nn.functional.binary_cross_entropy_with_logits(logit, label[some].float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.double().eval()


def clocked(model: nn.Module, refine: str | None) -> tuple[sc.Partition, float]:
    """The partition with its boundary, and the CPU time for both."""
    start = process_time()
    part = sc.partition(model, DOMAIN, refine=refine, progress=False)
    part.decision_boundary()
    return part, process_time() - start


def wrong_sides(model: nn.Module, part: sc.Partition, points: int) -> int:
    """How many points beside the boundary are not on the side that it says."""
    found = part.decision_boundary()
    if not len(found):
        return 0
    start, end = found.ends.unbind(1)
    along = end - start
    which = torch.multinomial(found.lengths, points, replacement=True)
    normal = torch.stack([-along[:, 1], along[:, 0]], 1) / found.lengths[:, None]
    middle = start + along * torch.rand(len(start), 1, dtype=start.dtype)
    off = 1e-7 * normal[which]
    with torch.no_grad():
        left, right = (model(DOMAIN.embed(middle[which] + each))[:, 0] for each in (off, -off))
        return int((left <= right).sum())


def measured(name: str, steps: int, rounds: int, points: int) -> dict[str, float | str]:
    """A row of the table for a network such as ``"4x128"``."""
    model = trained(*map(int, name.split("x")), steps)
    times: dict[str | None, list[float]] = {None: [], "boundary": []}
    parts = {}
    for _ in range(rounds):
        for refine, taken in times.items():
            parts[refine], seconds = clocked(model, refine)
            taken.append(seconds)
    whole, part = parts[None], parts["boundary"]
    least = [min(taken) for taken in times.values()]
    return {
        "network": name,
        "regions": len(whole),
        "refined": len(part),
        "complete": int(part.complete.sum()),
        "segments": len(part.decision_boundary()),
        "whole (s)": least[0],
        "refined (s)": least[1],
        "ratio": least[0] / least[1],
        "wrong": bool(disagreement(part, whole, "boundary")) + wrong_sides(model, part, points),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nets", nargs="+", default=["4x64", "4x128", "6x128"])
    parser.add_argument("--steps", type=int, default=1500, help="of the training")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--points", type=int, default=10_000)
    options = parser.parse_args()
    print(TABLE.heading())
    rows = []
    for net in options.nets:
        rows.append(measured(net, options.steps, options.rounds, options.points))
        print(TABLE.line(rows[-1]), flush=True)
    if len(rows) > 1:
        columns = ([float(row[key]) for row in rows] for key in ("regions", "refined (s)"))
        x, y = (log - log.mean() for log in (torch.tensor(each).log() for each in columns))
        print(f"\nexponent of the refined time by regions: {float(x @ y / (x @ x)):.2f}")
    sys.exit(any(row["wrong"] for row in rows))
