"""The same regions found by relucent, where it is installed: local search by linear programs.

Its search is restricted to the cells that meet the domain. It neither checks its result nor
computes more than it needs. A partition also has the vertices and the affine maps.
"""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

import torch
from common import Table, alone, mlp, seconds, warm_up

import splinecam as sc

# The domain is [-1, 1]²; its search takes a minute for a thousand regions.
WORKLOADS = {f"mlp{width}x2": mlp(width, width, side=2.0) for width in (8, 16, 24)}

TABLE = Table(
    {
        "workload": "<28",
        "regions": ">10,",
        "partition": ">11.4f",
        "theirs": ">10,",
        "relucent": ">11.4f",
        "ratio": ">9.0f",
    }
)


def measure(name: str, repeat: int, device: torch.device) -> dict[str, Any]:
    """Both from the model to all regions; ours the best of several runs, capture included."""
    import relucent

    workload = WORKLOADS[name]
    model, domain = workload.model(), workload.domain()
    warm_up(device)
    parts: list[sc.Partition] = []
    ours = min(
        seconds(
            lambda: parts.append(sc.partition(model, domain, device=device, progress=False)), device
        )
        for _ in range(repeat)
    )
    complexes: list[Any] = []

    def search() -> None:
        found = relucent.Complex(model)
        inside = torch.full((1, domain.dim), 0.01, dtype=torch.float64)  # on no line
        found.bfs(inside, cube_radius=1.0, cube_mode="intersect", verify=False, verbose=0)
        complexes.append(found)

    theirs = seconds(search, torch.device("cpu"))
    return {
        "workload": name,
        "regions": len(parts[0]),
        "partition": ours,
        "theirs": len(complexes[0]),
        "relucent": theirs,
        "ratio": theirs / ours,
    }


def report(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Print the table, or why there is none."""
    if importlib.util.find_spec("relucent") is None:
        print("\nAgainst relucent: not installed here (pip install relucent)")
        return []
    print(f"\nAgainst relucent\n{TABLE.heading()}")
    rows = []
    for name in WORKLOADS:
        row = alone(measure, name, settings.repeat, settings.device)
        rows.append({"group": "relucent", **row})
        print(TABLE.line(row), flush=True)
    return rows
