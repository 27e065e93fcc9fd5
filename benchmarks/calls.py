"""Time the cost of a call beside its run: the first, a later one, and one with new weights.

Run ``python benchmarks/calls.py``, or ``--only mlp32x3 module32x3 --repeat 50``. All times are CPU
milliseconds of all threads. The first call has a process of its own; torch is imported before the
clock starts.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from time import process_time

import torch
from common import Table, machine, mlp, options, perceptron, square
from torch import Tensor, nn

import splinecam as sc
from splinecam.engine.run import run
from splinecam.network.capture import capture

_FIRST = """
import torch
from time import process_time
start = process_time()
import splinecam as sc
import calls
model, domain = calls.WORKLOADS[{name!r}]()
sc.partition(model, domain, device="cpu", progress=False)
print(1e3 * (process_time() - start))
"""


class Module(nn.Module):
    """A perceptron that has a forward of its own, for which torch.export is needed."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(m for m in perceptron(*widths) if isinstance(m, nn.Linear))

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = layer(x).relu()
        result: Tensor = last(x)
        return result


def _chain(*hidden: int, side: float) -> tuple[nn.Module, sc.Domain]:
    workload = mlp(*hidden, side=side)
    return workload.model(), workload.domain()


def _module(*hidden: int, side: float) -> tuple[nn.Module, sc.Domain]:
    return Module(2, *hidden, 1).double(), square(2, side)


WORKLOADS: dict[str, Callable[[], tuple[nn.Module, sc.Domain]]] = {
    "line100_d2": partial(_chain, 100, side=2.0),
    "mlp32x3": partial(_chain, 32, 32, 32, side=2.0),
    "module32x3": partial(_module, 32, 32, 32, side=2.0),
    "mlp64x3": partial(_chain, 64, 64, 64, side=4.0),
    "module64x3": partial(_module, 64, 64, 64, side=4.0),
}
STEPS = ("first", "again", "run", "capture", "new weights")
TABLE = Table({"workload": "<14", "regions": ">10,", **dict.fromkeys(STEPS, ">13.2f")})


def _milliseconds(work: Callable[[], object], repeat: int, before: Callable[[], object]) -> float:
    """The least CPU time of some calls, with something done before each of them."""
    times = []
    for _ in range(repeat):
        before()
        start = process_time()
        work()
        times.append(process_time() - start)
    return 1e3 * min(times)


def measure(name: str, repeat: int) -> dict[str, object]:
    """One row of the table."""
    model, domain = WORKLOADS[name]()
    part = sc.partition(model, domain, device="cpu", progress=False)
    again = partial(sc.partition, model, domain, device="cpu", progress=False)
    look = partial(capture, model, domain.input_shape)
    program = look()

    def train() -> None:
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1.0001)

    def nothing() -> None:
        pass

    first = subprocess.run(
        [sys.executable, "-c", _FIRST.format(name=name)],
        cwd=sys.path[0],
        capture_output=True,
        text=True,
        check=True,
    )
    with torch.no_grad():
        found = {
            "first": float(first.stdout),
            "again": _milliseconds(again, repeat, nothing),
            "run": _milliseconds(partial(run, program, domain), repeat, nothing),
            "capture": _milliseconds(look, repeat, nothing),
            "new weights": _milliseconds(again, repeat, train),
        }
    return {"workload": name, "regions": len(part), **found}


def main() -> None:
    """Print a table, one workload a line as soon as it is measured."""
    settings = options(__doc__, WORKLOADS).parse_args()
    cpu = torch.device("cpu")
    print(f"{machine(cpu)}, best of {settings.repeat}: CPU milliseconds\n")
    print(TABLE.heading())
    for name in settings.only or WORKLOADS:
        print(TABLE.line(measure(name, settings.repeat)), flush=True)


if __name__ == "__main__":
    main()
