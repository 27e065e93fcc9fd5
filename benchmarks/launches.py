"""Small and middle problems on a GPU: seconds there, on the CPU and by default, and launches.

  python benchmarks/launches.py --repeat 9
  PYTHONPATH=path/to/another/checkout/src python benchmarks/launches.py

Each line shows one run without its capture: the regions, the seconds of the three ways, and per
layer how many kernels are launched and how often the CPU waits for the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import maxima
import networks
import torch
from common import Table, Workload, in_turns, machine, options, warm_up
from torch.profiler import ProfilerActivity, profile

from splinecam.engine.run import Outcome, run
from splinecam.network.capture import capture

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
NAMES = (
    *("line100_d2", "line300_d2", "line1000_d2", "line4000_d2"),
    *("mlp32x3", "mlp784_50x3", "mlp64x3", "mlp128x4", "mlp256x6", "mlp512x6", "deep64x16"),
    *("cnn_stride", "cnn_average", "cnn_max", "voronoi50", "voronoi500"),
)
WORKLOADS: dict[str, Workload] = {
    name: {**networks.WORKLOADS, **maxima.WORKLOADS}[name] for name in NAMES
}
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")

TABLE = Table(
    {
        "workload": "<16",
        "regions": ">10,",
        "layers": ">8",
        "cuda": ">10.4f",
        "median": ">10.4f",
        "cpu": ">10.4f",
        "auto": ">10.4f",
        "first": ">10.4f",
        "launches": ">10.0f",
        "waits": ">8.1f",
    }
)


def by_default(model: torch.nn.Module, shape: tuple[int, ...]) -> Callable[..., Outcome]:
    """What ``device="auto"`` does after the capture."""
    try:
        from splinecam.engine.plan import Plan, first_device
    except ImportError:  # versions that always choose the GPU
        return partial(run, capture(model, shape, device=CUDA))
    program = capture(model, shape, device=first_device("auto", model, shape))
    return lambda domain: run(program, domain, plan=Plan.of(program, CUDA))


def calls(work: Callable[[], object]) -> dict[str, int]:
    """How often each function of CUDA is called."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    return {event.key: event.count for event in seen.key_averages()}


def row(name: str, repeat: int) -> dict[str, Any]:
    """The figures of one workload."""
    workload = WORKLOADS[name]
    domain, model = workload.domain(), workload.model()
    shape = domain.input_shape
    ways = {
        "cuda": partial(run, capture(model, shape, device=CUDA)),
        "cpu": partial(run, capture(model, shape, device=CPU)),
        "auto": by_default(model, shape),
    }
    if workload.large:
        del ways["cpu"]
    works = {way: partial(work, domain) for way, work in ways.items()}
    with torch.no_grad():
        (first,) = in_turns([works["cuda"]], 1, CUDA, short=0)
        for work in works.values():
            work()
        found = works["cuda"]()
        times = dict(zip(works, in_turns(list(works.values()), repeat, CUDA), strict=True))
        called = calls(works["cuda"])
    layers = len(ways["cuda"].args[0].layers)
    return {
        "workload": name,
        "regions": found.mesh.num_faces,
        "layers": layers,
        **{way: time.best for way, time in times.items()},
        "median": times["cuda"].median,
        "first": first.best,
        "launches": sum(called.get(key, 0) for key in LAUNCHES) / layers,
        "waits": sum(called.get(key, 0) for key in WAITS) / layers,
    }


def main() -> None:
    """Print a table, one workload a line."""
    settings = options(__doc__, WORKLOADS).parse_args()
    print(f"{machine(CUDA)}, {machine(CPU).split(', ', 1)[1]}; best of {settings.repeat} or more")
    print(TABLE.heading())
    warm_up(CUDA)
    for name in settings.only or WORKLOADS:
        print(TABLE.line(row(name, settings.repeat)), flush=True)


if __name__ == "__main__":
    main()
