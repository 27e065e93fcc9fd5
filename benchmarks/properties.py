"""Time verdicts on properties: eight slices of ACAS Xu, with and without their partitions.

Run ``python benchmarks/properties.py``, or ``--only first_smallest --repeat 9``. Without the folder
of trained networks a random network of the same shape stands for ACAS Xu. What the columns mean is
described in benchmarks/README.md.
"""

from __future__ import annotations

import math
from typing import Any

import networks
import torch
from common import Table, in_turns, machine, options, perceptron, warm_up
from torch import nn

import splinecam as sc

# Unsafe outputs, after the properties 1 to 4 of Katz et al., Reluplex, CAV 2017.
FIRST, OTHERS = torch.eye(5, dtype=torch.float64).split([1, 4])
UNSAFE = {
    "first_large": (-FIRST, [-3.991125645861615]),
    "first_largest": (OTHERS - FIRST, [0.0] * 4),
    "first_smallest": (FIRST - OTHERS, [0.0] * 4),
}
# The slices of SyReNN: distance and angle vary; heading and speed in the units of the networks.
LOW, HIGH = (-0.3284, -0.5), (0.6799, 0.5)
HEADINGS = (-0.5, -0.25, 0.0, 0.25)
SPEEDS = ((-0.4545, -0.375), (-0.1364, -0.0833))

TABLE = Table(
    {
        "workload": "<16",
        "regions": ">9,",
        "unsafe, %": ">11.3f",
        "partition": ">11.3f",
        "check": ">9.3f",
        "witness": ">9.3f",
        "all": ">9.3f",
        "verdict": ">9.3f",
    }
)


def acas() -> nn.Module:
    """ACAS Xu, or a random network of its shape."""
    if (networks.SHARED / "zoo" / "zoo.py").exists():
        return networks.zoo_model("acasxu_1_1")
    return perceptron(5, *[50] * 6, 5)


def slices() -> list[sc.Domain]:
    """The eight slices: distance and angle, for four headings and two pairs of speeds."""
    return [
        sc.Domain.slice(((*LOW, psi, *speed), (*HIGH, psi, *speed)), axes=(0, 1))
        for psi in HEADINGS
        for speed in SPEEDS
    ]


def measure(name: str, repeat: int, device: torch.device) -> dict[str, Any]:
    """All slices: partitioned, judged, and with a witness that the model confirms."""
    model, domains = acas().to(device), slices()
    parts: list[sc.Partition] = []
    checks: list[sc.results.PropertyCheck] = []

    def divide() -> None:
        parts[:] = [sc.partition(model, x, device=device, progress=False) for x in domains]

    def judge() -> None:
        checks[:] = [part.check([UNSAFE[name]]) for part in parts]
        for check in checks:
            _ = check.status, check.area

    def show() -> None:
        for check in checks:
            _ = check.witness

    def decide() -> None:
        options: Any = {"verdict_only": True, "device": device, "progress": False}
        found = [sc.check(model, x, [UNSAFE[name]], **options).status for x in domains]
        assert found == [check.status for check in checks]

    divide()
    judge()
    taken = [times.best for times in in_turns([divide, judge, show, decide], repeat, device)]
    total = math.fsum(domain.area for domain in domains)
    return {
        "workload": name,
        "regions": sum(map(len, parts)),
        "unsafe, %": 100 * math.fsum(check.area for check in checks) / total,
        "partition": taken[0],
        "check": taken[1],
        "witness": taken[2],
        "all": sum(taken[:3]),
        "verdict": taken[3],
    }


def main() -> None:
    """Print the table."""
    settings = options(__doc__, list(UNSAFE)).parse_args()
    device, repeat = settings.device, settings.repeat
    print(f"{machine(device)}, best of {repeat}, seconds\n")
    warm_up(device)
    print(TABLE.heading())
    for name in UNSAFE:
        if not settings.only or name in settings.only:
            print(TABLE.line(measure(name, repeat, device)), flush=True)


if __name__ == "__main__":
    main()
