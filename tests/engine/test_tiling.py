from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.engine import plan
from splinecam.engine import run as engine_run
from splinecam.engine.activations import State
from splinecam.engine.plan import Place, Plan, free_memory
from splinecam.engine.run import run, start
from splinecam.engine.step import COARSE, Computation, Waiting
from splinecam.engine.tiling import MeshTile, halves, join_tiles, sorted_faces, tile_of
from splinecam.geometry.subdivision import Mesh
from splinecam.network.capture import capture
from splinecam.partitions.partition import Partition


def mlp(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for a, b in pairwise(widths[:-1]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1])).double()


def cut_in_two(mesh: Mesh) -> list[MeshTile]:
    order = sorted_faces(mesh)
    return [tile_of(mesh, order[half]) for half in map(list, halves(range(mesh.num_faces)))]


def within(model: nn.Module, domain: sc.Domain, memory: int) -> Partition:
    return sc.partition(model, domain, device="cpu", memory=memory, progress=False)


def cells(part: Partition) -> torch.Tensor:
    """Centroids and areas in an order that does not depend on the numbering."""
    rows = torch.cat([part.centroids, part.areas[:, None]], 1)
    key = (rows * 2**30).round()
    order = sorted(range(len(rows)), key=lambda i: key[i].tolist())
    return rows[order]


def test_glueing_untouched_tiles_gives_the_mesh_back():
    part = sc.partition(mlp(2, 20, 10, 1), sc.Domain.box(-2, 2), progress=False)
    tiles = cut_in_two(part.mesh)
    assert [tile.mesh.num_faces for tile in tiles] == [len(part) // 2, len(part) - len(part) // 2]
    glued, places = join_tiles(part.mesh, list(tiles))
    assert glued.num_vertices == part.mesh.num_vertices
    assert torch.equal(glued.edges, part.mesh.edges)
    assert torch.equal(glued.edge_layer, part.mesh.edge_layer)
    assert torch.equal(torch.unique(torch.cat(places)), torch.arange(glued.num_vertices))


@pytest.mark.parametrize("memory", [1_000_000, 2_000_000, 4_000_000])
def test_a_tiny_memory_budget_gives_the_same_cells(memory: int):
    model, domain = mlp(2, 24, 24, 24, 2), sc.Domain.box(-2, 2)
    whole = sc.partition(model, domain, progress=False)
    tiled = within(model, domain, memory)
    assert len(tiled) == len(whole)
    assert tiled.mesh.num_vertices == whole.mesh.num_vertices
    assert torch.allclose(cells(tiled), cells(whole), atol=1e-12, rtol=0)
    assert torch.equal(
        torch.bincount(tiled.mesh.edge_layer + 1), torch.bincount(whole.mesh.edge_layer + 1)
    ), "provenance"
    assert tiled.validate().ok


@pytest.mark.parametrize(("memory", "layers"), [(None, 2), (1_000_000, 2), (1_000_000, 9)])
def test_a_report_cancels_the_run(memory: int | None, layers: int):
    class Cancelled(Exception):
        pass

    told: list[str] = []

    def report(name: str, regions: int, share: float) -> None:
        told.append(name)
        if len(told) == layers:
            raise Cancelled

    torch.manual_seed(0)
    program, domain = capture(mlp(2, 48, 48, 48, 2), (2,)), sc.Domain.box(-2, 2)
    with pytest.raises(Cancelled):
        run(program, domain, memory=memory, report=report)
    assert len(told) == layers


def test_tiles_of_a_convolution_with_a_skip_connection():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(1, 4, 3, padding=1)
            self.body = nn.Conv2d(4, 4, 3, padding=1)
            self.head = nn.Linear(4 * 64, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.relu(self.stem(x))
            h = torch.relu(h + self.body(h))
            return self.head(h.flatten(1))

    model = Net().double()
    domain = sc.Domain.around(torch.randn(1, 8, 8), side=3.0)
    whole = sc.partition(model, domain, progress=False)
    tiled = within(model, domain, 4_000_000)
    assert len(tiled) == len(whole) > 300
    assert torch.allclose(cells(tiled), cells(whole), atol=1e-12, rtol=0)
    assert tiled.validate().ok


def test_a_vertex_that_only_one_tile_has_becomes_a_corner_of_both():
    mesh = sc.partition(mlp(2, 3, 1), sc.Domain.box(-1, 1), progress=False).mesh
    left, right = cut_in_two(mesh)
    shared = torch.isin(-2 - left.mesh.edge_layer, -2 - right.mesh.edge_layer).nonzero()[0]
    a, b = left.mesh.edges[shared[0]].tolist()
    new = left.mesh.num_vertices
    middle = (left.mesh.uv[a] + left.mesh.uv[b]) / 2
    corners, counts = left.mesh.corners.tolist(), left.mesh.counts()
    owner = left.mesh.owners()
    place = next(i for i, h in enumerate(corners) if h >> 1 == int(shared[0]))
    half, extra = corners[place], 2 * left.mesh.num_edges
    pieces = [half, extra] if half % 2 == 0 else [extra + 1, half]
    counts[owner[place]] += 1
    edges = torch.cat([left.mesh.edges, torch.tensor([[new, b]])])
    edges[shared[0], 1] = new
    grown = left.mesh.__class__(
        uv=torch.cat([left.mesh.uv, middle[None]]),
        edges=edges,
        offsets=torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)]),
        corners=torch.tensor(corners[:place] + pieces + corners[place + 1 :]),
        edge_layer=torch.cat([left.mesh.edge_layer, left.mesh.edge_layer[shared]]),
        edge_unit=torch.cat([left.mesh.edge_unit, left.mesh.edge_unit[shared]]),
        vertex_layer=torch.cat([left.mesh.vertex_layer, torch.tensor([0])]),
    )
    glued, _ = join_tiles(mesh, [MeshTile(grown, left.vertex_ids), right])
    from splinecam.geometry.checks import check_mesh

    area = float(mesh.areas_and_centroids()[0].sum())
    assert all(check.ok for check in check_mesh(glued, area))
    assert glued.num_vertices == mesh.num_vertices + 1
    assert glued.num_faces == mesh.num_faces


def test_regions_beyond_the_limit_stop_with_a_clear_error():
    with pytest.raises(sc.LimitError, match=r"max_regions=500 while cutting at '1'") as caught:
        sc.partition(mlp(2, 60, 1), sc.Domain.box(-2, 2), max_regions=500, progress=False)
    assert "smaller domain" in str(caught.value)


@pytest.mark.parametrize(
    "failure", [MemoryError("none"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_memory_that_runs_out_is_an_error_that_names_the_option(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr("splinecam.engine.step.evaluate", fail)
    with pytest.raises(
        sc.LimitError, match=r"no memory left while cutting at .* memory=2GB"
    ) as caught:
        sc.partition(
            nn.Sequential(nn.Linear(2, 3), nn.ReLU()), sc.Domain.box(-1, 1), progress=False
        )
    assert caught.value.__cause__ is failure


def test_a_budget_too_small_for_the_regions_themselves_is_an_error():
    with pytest.raises(sc.LimitError, match="memory=100,000 bytes"):
        sc.partition(mlp(2, 60, 1), sc.Domain.box(-2, 2), memory=100_000, progress=False)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_state_is_not_tiny_unless_it_clearly_fits(compiled: bool):
    program = capture(mlp(2, 24, 3, 24, 2), (2,))
    work = Computation(Plan.of(program, memory=1 << 40, compiled=compiled))
    seen = []

    def see(at: Waiting) -> bool:
        if at.layer_input is None:
            used = work._bytes(at.state, at.index)
            for memory in (used, int(used / COARSE) - 1):
                tight = Computation(Plan(Place(program, memory)))
                assert not tight.is_tiny(at.state)
            assert work.is_tiny(at.state)
            assert not Computation(work.plan, measured=True).is_tiny(at.state)
            seen.append(at.index)
        return False

    at, reason = work.carry(start(work.plan, sc.Domain.box(-2, 2)), wait=see)
    assert reason is None
    assert seen == [0, 1, 2, 3]
    assert at.faces > 100


def test_the_default_budget_is_most_of_the_free_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(plan, "_MEMINFO", tmp_path / "meminfo")
    assert free_memory(torch.device("cpu")) == plan._UNKNOWN_MEMORY > 0
    plan._MEMINFO.write_text("MemTotal:  9000 kB\nMemAvailable:    4000 kB\nBuffers:  10 kB\n")
    assert free_memory(torch.device("cpu")) == 3000 * 1024


def test_the_budget_is_that_of_the_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plan, "_MEMINFO", tmp_path / "meminfo")
    plan._MEMINFO.write_text("MemAvailable: 100 kB\n")
    with pytest.raises(sc.LimitError, match="memory=76,800 bytes"):
        sc.partition(mlp(2, 60, 1), sc.Domain.box(-2, 2), progress=False)


# Prints the regions, and the most memory beyond what was in use before.
PEAK = """
import ctypes
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

import splinecam as sc


def resident(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


torch.set_num_threads(1)  # each further one takes some MB, on some machines, whatever the memory
torch.manual_seed(0)
widths = [2, 160, 160, 160, 1]
layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
model, quiet = nn.Sequential(*layers[:-1]), {"device": "cpu", "progress": False}
sc.partition(model, sc.Domain.box(-1e-3, 1e-3), **quiet)
ctypes.CDLL(None).malloc_trim(0)
before = resident("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
part = sc.partition(model, sc.Domain.box(-2, 2), memory=3e7, **quiet)
print(len(part), resident("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="not Linux")
def test_the_process_takes_no_more_than_the_memory_and_a_quarter():
    made = subprocess.run([sys.executable, "-c", PEAK], check=True, capture_output=True, text=True)
    regions, peak = map(int, made.stdout.split())
    assert regions == 59_427  # which take 56 MB in one piece
    assert peak <= 1.25 * 3e7


def test_progress_is_told_once_although_attempts_are_given_up():
    model = mlp(2, 64, 64, 64, 1)
    told: dict[str, float] = {}
    program = capture(model, (2,), device=torch.device("cpu"))

    def report(name: str, regions: int, share: float) -> None:
        told[name] = told.get(name, 0.0) + share

    run(program, sc.Domain.box(-2, 2), memory=4_000_000, report=report)
    assert told == pytest.approx(dict.fromkeys((layer.name for layer in program.layers), 1.0))


@pytest.mark.slow
def test_the_first_tile_fits_the_memory_where_nothing_is_known_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    units, memory = 8000, 30_000_000
    model = nn.Sequential(
        *(nn.Linear(2, units), nn.ReLU(), nn.Unflatten(1, (1, units))),
        *(nn.Conv1d(1, 1, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(units, 2)),
    ).double()
    with torch.no_grad():  # few lines of many units
        model[0].bias.mul_(60)
        model[3].bias.add_(500)
    sizes = []
    filled = State.filled

    def measured(state: State, numbers: int) -> State:
        found = filled(state, numbers)
        sizes.append(sum(rows.nbytes for rows in found.rows.values()))
        return found

    monkeypatch.setattr(State, "filled", measured)
    monkeypatch.setattr(engine_run, "_PROBES", 1)  # so that it would be everything
    outcome = run(capture(model, (2,)), sc.Domain.box(-1, 1), memory=memory)
    assert 0 < max(sizes) <= 0.7 * memory < 8 * units * outcome.mesh.num_vertices / 8
