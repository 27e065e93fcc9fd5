"""Train networks as signed distances, and time their exact surfaces in the box [-1, 1]^3.

Run ``python benchmarks/surfaces.py``, or ``--only torus4x64 --steps 2000``. The bunny needs the
mesh (``npm pack bunny``, whose archive lies in the folder that SPLINECAM_DATA names) and the
package of the paper (``pip install -e paper``). ``--nets FOLDER`` times networks in files NAME.npz
instead, with arrays W0, b0, W1, ... and ReLU between. ``--against FOLDER`` measures edge
subdivision (ICML 2023), too; the folder is a clone of arturs-berzins/relu_edge_subdivision on
GitHub. What the columns mean is described in benchmarks/README.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from common import Table, machine, options, seconds, with_peak
from torch import Tensor, nn

import splinecam as sc

TABLE = Table(
    {
        "network": "<14",
        "faces": ">10,",
        "parts": ">6,",
        "genus": ">6,",
        "seconds": ">9.2f",
        "CPU s": ">9.2f",
        "MB": ">8,.0f",
        "mean |f|": ">10.1e",
        "learned": ">9.4f",
        "check": ">7",
    }
)
AGAINST = Table(
    {
        "network": "<14",
        "vertices": ">10,",
        "seconds": ">9.2f",
        "mean |f|": ">10.1e",
        "theirs": ">10,",
        "their s": ">9.2f",
        "their |f|": ">10.1e",
    }
)
NAMES = ("torus3x16", "torus4x64", "rings4x64", "bunny3x16", "bunny4x64", "bunny4x128")
PLACES, BATCH = 60_000, 4096  # points of a training, and in one step
NEAR = 0.1  # distance from the surface of two thirds of them


def torus(x: Tensor, centre: float = 0.0, upright: bool = False, radius: float = 0.6) -> Tensor:
    """The signed distance of a torus, which lies flat or stands upright."""
    x = x - torch.tensor([centre, 0.0, 0.0])
    flat, off = (x[:, [0, 2]], x[:, 1]) if upright else (x[:, :2], x[:, 2])
    return torch.stack([flat.norm(dim=1) - radius, off], 1).norm(dim=1) - 0.3 * radius


def rings(x: Tensor) -> Tensor:
    """The signed distance of two linked rings."""
    return torch.minimum(torus(x, -0.25, False, 0.5), torus(x, 0.25, True, 0.5))


def bunny() -> Callable[[Tensor], Tensor]:
    """The signed distance of the Stanford bunny."""
    from splinecam_paper.data.meshes import load_mesh, signed_distance

    mesh = load_mesh("bunny")
    return lambda x: torch.cat([signed_distance(mesh, some) for some in x.split(BATCH)])


SHAPES: dict[str, Callable[[], Callable[[Tensor], Tensor]]] = {
    "torus": lambda: torus,
    "rings": lambda: rings,
    "bunny": bunny,
}


def places(distance: Callable[[Tensor], Tensor], generator: torch.Generator) -> tuple[Tensor, ...]:
    """Points (N, 3), a third of them anywhere and the others near the surface, and distances."""
    anywhere = 2 * torch.rand((PLACES, 3), generator=generator) - 1
    found = distance(anywhere)
    # A step along the gradient, by finite differences, leads to the surface.
    steps = torch.eye(3) * 1e-3
    slope = torch.stack([distance(anywhere + step) - found for step in steps], 1) / 1e-3
    near = anywhere - found[:, None] * slope + NEAR * torch.randn((PLACES, 3), generator=generator)
    near = near.clamp(-1, 1)[: 2 * PLACES // 3]
    some = slice(0, PLACES // 3)
    return torch.cat([anywhere[some], near]), torch.cat([found[some], distance(near)])


def trained(name: str, steps: int, seed: int = 0) -> tuple[nn.Sequential, float]:
    """A network such as "torus4x64", and the mean error of its distances."""
    shape, depth, width = re.fullmatch(r"([a-z]+)(\d+)x(\d+)", name).groups()
    generator = torch.Generator().manual_seed(seed)
    x, y = places(SHAPES[shape](), generator)
    torch.manual_seed(seed)
    sizes = [3, *[int(width)] * int(depth), 1]
    layers = [each for a, b in pairwise(sizes) for each in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        some = torch.randint(len(x), (BATCH,), generator=generator)
        loss = (model(x[some])[:, 0] - y[some]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return model.eval(), float((model(x)[:, 0] - y).abs().mean())


def stored(path: Path) -> nn.Sequential:
    """The network in a file with arrays W0, b0, W1, ..."""
    arrays, layers = np.load(path), list[nn.Module]()
    for k in range(len(arrays.files) // 2):
        weight, bias = (torch.tensor(arrays[f"{kind}{k}"]).double() for kind in "Wb")
        layer = nn.Linear(weight.shape[1], weight.shape[0]).double()
        layer.weight.data, layer.bias.data = weight, bias
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()


def measured(name: str, model: nn.Module, learned: float | None, given: Any) -> dict[str, Any]:
    """A row of the table: the least time of several calls, and a check of the result."""
    box, times = sc.Domain.cube(-1, 1), []

    def compute() -> Any:
        return sc.surface(model, box, device=given.device, progress=False)

    for _ in range(given.repeat):
        start = perf_counter(), process_time()
        found = compute()
        times.append((perf_counter() - start[0], process_time() - start[1]))
    found, peak = with_peak(compute, given.device)
    try:
        found.validate(segments=given.segments)
        check = "ok"
    except sc.ValidationError as error:
        check = "FAIL"
        print(error)
    return {
        "network": name,
        "faces": len(found),
        "vertices": len(found.vertices),
        "parts": found.components,
        "genus": found.genus,
        "seconds": min(wall for wall, _ in times),
        "CPU s": min(cpu for _, cpu in times),
        "MB": peak / 1e6,
        "mean |f|": float(found.values(found.vertices).abs().mean()),
        "learned": learned,
        "check": check,
    }


def against(row: dict[str, Any], model: nn.Module, given: Any) -> dict[str, Any]:
    """The same by edge subdivision, which finds the vertices and edges, in single precision."""
    sys.path.insert(0, str(given.against))
    from edge_subdivision import skeletal_subdivision
    from NN import Net

    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    net = Net([3, *(layer.out_features for layer in layers)])
    for theirs, ours in zip(net.fcs, layers, strict=True):
        theirs.load_state_dict(ours.state_dict())
    found: list[Tensor] = []

    def compute() -> None:
        places, _, signs = skeletal_subdivision(net, device=given.device, verbose=False, prune=True)
        found[:] = [places[signs[:, -1] == 0].cpu().double()]

    with torch.no_grad():
        theirs = min(seconds(compute, given.device) for _ in range(given.repeat))
        off = float(model.double()(found[0]).abs().mean())
    return {**row, "theirs": len(found[0]), "their s": theirs, "their |f|": off}


def main() -> None:
    """Print a row for each network."""
    parser = options(__doc__, NAMES)
    parser.add_argument("--steps", type=int, default=3000, help="of the training (3000)")
    parser.add_argument("--segments", type=int, default=10_000, help="of the check (10000)")
    parser.add_argument("--nets", type=Path, help="folder of networks NAME.npz, not trained here")
    parser.add_argument("--against", type=Path, help="a clone of relu_edge_subdivision")
    given = parser.parse_args()
    table = TABLE if given.against is None else AGAINST
    print(f"{machine(given.device)}\n\n{table.heading()}")
    stems = [path.stem for path in sorted(given.nets.glob("*.npz"))] if given.nets else NAMES
    for name in given.only or stems:
        path = given.nets and given.nets / f"{name}.npz"
        model, learned = (stored(path), None) if path else trained(name, given.steps)
        row = measured(name, model, learned, given)
        print(table.line(against(row, model, given) if given.against else row), flush=True)


if __name__ == "__main__":
    main()
