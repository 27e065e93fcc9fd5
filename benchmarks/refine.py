"""How much faster decision boundaries are found if regions are divided only where they may lie.

  python benchmarks/refine.py --nets 4x64 4x128 6x256
  python benchmarks/refine.py --nets cnn_stride mlp256x6 zoo_acasxu_1_1

Classifiers of two spirals are trained here, which takes seconds to minutes; other names are those
of benchmark workloads, which are asked for their boundary or, with one output, for the level of its
median. CPU times (on a GPU those of the clock) of the whole partition and of the refined one are
measured in alternation, and the least of each counts. Their boundaries are compared segment by
segment. With ``--points``, the model itself is asked at so many points on each side of a boundary.
The last line fits the growth of the refined time with the number of regions: an exponent of 1/2 is
that of the length of the boundary. Beyond ``--most`` regions, which ``sc.estimate`` predicts, the
whole is not computed.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from time import process_time
from typing import Any

import torch
from common import Table, seconds
from networks import WORKLOADS
from torch import Tensor, nn

import splinecam as sc

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from refinement_cases import disagreement

DOMAIN = sc.Domain.box(-1, 1)
SAMPLE = 4096  # points at which the median of an output is found
TABLE = Table(
    {
        "network": "<16",
        "regions": ">11,",
        "refined": ">10,",
        "complete": ">10,",
        "segments": ">10,",
        "whole (s)": ">10.3f",
        "refined (s)": ">12.3f",
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


def trained(depth: int, width: int, steps: int, device: torch.device) -> nn.Module:
    """A classifier with one output."""
    torch.manual_seed(0)
    inner = [(nn.Linear(width, width), nn.ReLU()) for _ in range(depth - 1)]
    hidden = [module for pair in inner for module in pair]
    model = nn.Sequential(nn.Linear(2, width), nn.ReLU(), *hidden, nn.Linear(width, 1)).to(device)
    x, label = (each.to(device) for each in spirals())
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


def network(name: str, steps: int, device: torch.device) -> tuple[nn.Module, sc.Domain, Any]:
    """A network such as ``"4x128"`` or a workload, its domain, and what it is asked."""
    work = WORKLOADS.get(name)
    if work is None:
        depth, width = map(int, name.split("x"))
        return trained(depth, width, steps, device), DOMAIN, "boundary"
    model, domain = work.model().to(device), work.domain()
    share = torch.rand(SAMPLE, len(domain.corners), dtype=torch.float64)
    x = domain.embed(share / share.sum(1, keepdim=True) @ domain.corners).to(device)
    with torch.no_grad():
        y = model(x)
    return (
        model,
        domain,
        "boundary" if y[0].numel() > 1 else {"level": float(y.median()), "output": 0},
    )


def clocked(
    model: nn.Module, domain: sc.Domain, refine: Any, asked: Any, device: torch.device
) -> tuple[sc.Partition, float]:
    """The partition with its curves, and the seconds for both."""
    made: list[sc.Partition] = []

    def work() -> None:
        part = sc.partition(model, domain, refine=refine, device=device, progress=False)
        curves(part, asked)
        made.append(part)

    start = process_time()
    passed = seconds(work, device)
    return made[0], passed if device.type == "cuda" else process_time() - start


def curves(part: sc.Partition, asked: Any) -> Any:
    """The boundary of a partition, or the level set that is asked for."""
    if asked == "boundary":
        return part.decision_boundary()
    return part.level_set(asked["level"], output=asked["output"])


def wrong_sides(model: nn.Module, part: sc.Partition, asked: Any, points: int) -> int:
    """How many points beside the boundary of one output are not on the side that it says."""
    found = curves(part, asked)
    if not len(found) or part.values[0].numel() > 1:
        return 0
    start, end = found.ends.unbind(1)
    along = end - start
    which = torch.multinomial(found.lengths, points, replacement=True)
    normal = torch.stack([-along[:, 1], along[:, 0]], 1) / found.lengths[:, None]
    middle = start + along * torch.rand(len(start), 1, dtype=start.dtype, device=start.device)
    off = 1e-7 * part.domain.diameter * normal[which]
    with torch.no_grad():
        left, right = (
            model(part.domain.embed(middle[which] + each)).flatten() for each in (off, -off)
        )
        return int((left <= right).sum())


def measured(name: str, given: argparse.Namespace) -> dict[str, float | str]:
    """A row of the table."""
    device = torch.device(given.device)
    model, domain, asked = network(name, given.steps, device)
    expected = sc.estimate(model, domain).regions
    whole_too = expected < given.most
    times: list[list[float]] = [[], []]
    parts: list[sc.Partition] = []
    for _ in range(given.rounds):
        parts = []
        for refine, taken in zip((None, asked), times, strict=True):
            if refine is not None or whole_too:
                part, passed = clocked(model, domain, refine, asked, device)
                parts.append(part)
                taken.append(passed)
    part = parts[-1]
    whole, refined = (min(taken, default=math.nan) for taken in times)
    differs = bool(whole_too and disagreement(part, parts[0], asked))
    return {
        "network": name,
        "regions": len(parts[0]) if whole_too else round(expected),
        "refined": len(part),
        "complete": int(part.complete.sum()),
        "segments": len(curves(part, asked)),
        "whole (s)": whole,
        "refined (s)": refined,
        "ratio": whole / refined,
        "wrong": differs + wrong_sides(model, part, asked, given.points),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nets", nargs="+", default=["4x64", "4x128", "6x128"])
    parser.add_argument("--steps", type=int, default=1500, help="of the training")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--most", type=float, default=2e6, help="regions of a whole partition")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    print(TABLE.heading())
    rows = []
    for net in options.nets:
        rows.append(measured(net, options))
        print(TABLE.line(rows[-1]), flush=True)
    grown = [row for row in rows if row["complete"] != row["regions"]]
    if len(grown) > 1:
        columns = ([float(row[key]) for row in grown] for key in ("regions", "refined (s)"))
        x, y = (log - log.mean() for log in (torch.tensor(each).log() for each in columns))
        print(f"\nexponent of the refined time by regions: {float(x @ y / (x @ x)):.2f}")
    sys.exit(any(row["wrong"] for row in rows))
