"""Three-dimensional complexes on a GPU: what ``solid`` does, by the steps of solid.cu."""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam._util.arrays import offsets_of
from splinecam._util.backend import is_cuda
from splinecam.errors import SplineCamError
from splinecam.kernels.gpu import GpuKernel, Steps, gpu_kernel_for
from splinecam.kernels.solid import CutArrays, SolidArrays

MOST = 64  # functions of a cut
FEW = 8  # functions on a cell that are cut at once, as one thread cuts it
THREADS = 32  # of which one divides something
_POINTS, _EDGES, _FACES, _CORNERS, _CELLS, _SIDES, _UNCUTS = range(7)
_LISTS = 11
_NEEDED = {"edge": 192, "face": 1024, "cell": 4096}  # numbers to divide one, about
# How the arrays of ``SolidArrays`` are called in the structure of the steps.
_NAMES = [name.removesuffix("s") for name in SolidArrays._fields]


def gpu_of(array: Tensor) -> GpuKernel | None:
    """The kernel of the GPU on which an array lies, None on a CPU."""
    kernel = gpu_kernel_for(array.device)
    if kernel is None and is_cuda(array.device):
        raise SplineCamError(
            "Three dimensions on a GPU need NVRTC, which comes with CUDA builds of torch and could "
            'not be used. Give device="cpu".'
        )
    return kernel


def _steps(kernel: GpuKernel, solid: SolidArrays, vertices: int, **numbers: int) -> Steps:
    arrays = dict(zip(_NAMES, solid, strict=True))
    arrays["status"] = torch.zeros(2, dtype=torch.int64, device=solid.edges.device)
    sizes = {"edges": solid.edges.shape[0], "faces": solid.face_layer.shape[0]}
    sizes |= {"corners": solid.corners.shape[0], "cells": solid.cell_offsets.shape[0] - 1}
    sizes |= {"sides": solid.sides.shape[0], "vertices": vertices, "from_vertex": vertices}
    return kernel.steps("solid.cu", arrays, **sizes, **numbers)


def _find_signs(
    kernel: GpuKernel, solid: SolidArrays, z: Tensor, tolerance: Tensor, layer: int
) -> Steps:
    """The steps of a cut, with the signs of its functions."""
    steps = _steps(kernel, solid, z.shape[0], units=z.shape[1], layer=layer)
    run = steps.struct
    steps.set("z", z.contiguous())
    steps.set("tolerance", tolerance.contiguous())
    steps.allocate({"positive": run.vertices, "negative": run.vertices, "on_edge": run.edges})
    steps.allocate(dict.fromkeys(("above", "below", "on_face"), run.faces), fill=0)
    steps.allocate({"on_cell": run.cells})
    steps.run(run.vertices, "find_vertex_signs")
    steps.run(run.faces, "find_signs_of_face")
    steps.run(run.cells, "find_signs_of_cell")
    return steps


def functions_at_once(
    kernel: GpuKernel, solid: SolidArrays, z: Tensor, tolerance: Tensor, few: int = FEW
) -> int:
    """How many of the functions (V, m) are to be cut first, so that each cell is cut by few."""
    some = min(MOST, z.shape[1])
    steps = _find_signs(kernel, solid, z[:, :some], tolerance[:some], 0)
    steps.allocate({"most": MOST}, fill=0)
    steps.run(steps.struct.cells, "count_functions")
    most = torch.cummax(steps["most"], 0).values[:some]
    return max(1, int((most <= few).sum()))


def cut_solid(
    kernel: GpuKernel,
    solid: SolidArrays,
    z: Tensor,
    tolerance: Tensor,
    label: Tensor,
    layer: int,
) -> CutArrays:
    """The same as in ``solid``, for at most 64 functions; rounds are as ``gathered`` wants."""
    steps = _find_signs(kernel, solid, z, tolerance, layer)
    run, edges = steps.struct, solid.edges
    steps.set("label", label.contiguous())
    steps.run(run.edges, "find_signs_on_edge")
    points, ts, rounds = [], [], []

    def divided(kind: str, kept: Tensor) -> list[int]:
        """Divide all of a kind; kept: (7, N + 1), see ``_divide``."""
        item, sizes = _divide(steps, kind, kept)
        first = steps["first"].view(7, -1)[_POINTS]
        group = torch.cat([first[item], first[-1:]])
        rounds.append(group + (run.from_vertex - z.shape[0]))
        steps.set("group", group)
        steps.run(item.shape[0], "write_part")
        points.append(steps["point"].view(-1, 3))
        ts.append(steps["t"])
        return sizes

    kept = edges.new_zeros((7, run.edges + 1))
    kept[_EDGES, 1:] = 1
    sizes = divided("edge", kept)
    # Pieces of edges that are not divided are these edges.
    whole = (steps["on_edge"] == 0).nonzero()[:, 0]
    first_edge = steps["first"].view(7, -1)[_EDGES]
    steps["made_edge"].view(-1, 2)[first_edge[whole]] = edges[whole]
    steps["made_edge_layer"][first_edge[whole]] = solid.edge_layer[whole]
    steps.set("first_edge", first_edge)
    made_edges, made_layers = [steps["made_edge"]], [steps["made_edge_layer"]]
    steps.set("known_edge", made_edges[0])
    run.from_edge = sizes[_EDGES]
    _add_values(steps, sizes[_POINTS])

    kept = edges.new_zeros((7, run.faces + 1))
    kept[_FACES, 1:], kept[_CORNERS, 1:] = 1, solid.face_offsets.diff()
    sizes = divided("face", kept)
    steps.run(run.faces, "write_face")
    steps.set("first_face", steps["first"].view(7, -1)[_FACES])
    made_edges.append(steps["made_edge"])
    made_layers.append(steps["made_edge_layer"])
    faces = [[steps[name] for name in _FACE_ARRAYS]]
    steps.set("known_edge", torch.cat(made_edges))
    steps.set("known_offset", steps["made_offset"])
    steps.set("known_corner", steps["made_corner"])
    run.from_edge += sizes[_EDGES]
    run.from_face, corners = sizes[_FACES], sizes[_CORNERS]
    _add_values(steps, sizes[_POINTS])

    kept = edges.new_zeros((7, run.cells + 1))
    kept[_CELLS, 1:], kept[_SIDES, 1:] = 1, solid.cell_offsets.diff()
    sizes = divided("cell", kept)
    steps.run(run.cells, "write_cell_as_it_is")
    made_edges.append(steps["made_edge"])
    made_layers.append(steps["made_edge_layer"])
    faces.append([steps[name] for name in _FACE_ARRAYS])
    steps["made_offset"].add_(corners)
    faces[1][0] = faces[1][0][1:]
    offsets, made_corners, face_layers, face_units = map(torch.cat, zip(*faces, strict=True))
    made = SolidArrays(
        torch.cat(made_edges).view(-1, 2),
        torch.cat(made_layers),
        offsets,
        made_corners,
        face_layers,
        face_units,
        steps["made_cell_offset"],
        steps["made_side"],
    )
    cells = steps["count"].view(7, -1)[_CELLS, 1:]
    parent = torch.repeat_interleave(cells, output_size=sizes[_CELLS])
    rest = torch.cat(points), torch.cat(ts), steps["uncut"]
    return CutArrays(made, parent, *rest, parent[:0], 0, 0, rounds)


_FACE_ARRAYS = ("made_offset", "made_corner", "made_face_layer", "made_face_unit")


def _divide(steps: Steps, kind: str, kept: Tensor) -> tuple[Tensor, list[int]]:
    """Divide the edges, faces or cells on which functions change sign, and number the parts.

    Returns those that are divided, and how many parts there are in all. kept: (7, N + 1) behind a
    zero what each of them makes if it is not divided.
    """
    run = steps.struct
    item = steps[f"on_{kind}"].nonzero()[:, 0]
    count, run.grain, run.threads = item.shape[0], _NEEDED[kind] // 2, THREADS
    steps.set("item", item)
    run.all = kept.shape[1] - 1
    steps.set("count", kept)
    steps.allocate({"list": _LISTS * count})
    room = _NEEDED[kind] * (count + 1024)
    while True:
        run.room = room
        steps.allocate({"memory": room})
        steps["status"].zero_()
        steps.run(count * THREADS, f"divide_{kind}")
        # Of one long row running sums are fast on a GPU.
        first = torch.cumsum(kept.view(-1), 0).view(7, -1)
        first = first - first[:, :1]
        short, _, *sizes = steps.totals(first[:, -1])
        if not short:
            break
        room *= 2
    steps.set("first", first.view(-1))
    points, edges, faces, corners, cells, sides, uncuts = sizes
    steps.allocate({"point": 3 * points, "t": points})
    steps.allocate({"made_edge": 2 * edges, "made_edge_layer": edges})
    steps.allocate({"made_offset": faces + 1, "made_corner": corners})
    steps.allocate({"made_face_layer": faces, "made_face_unit": faces})
    steps.allocate({"made_cell_offset": cells + 1, "made_side": sides, "uncut": uncuts})
    for name in ("made_offset", "made_cell_offset"):
        steps[name][:1] = 0
    return item, sizes


def _add_values(steps: Steps, count: int) -> None:
    """Find the values and signs of the functions at so many new points of edges or faces."""
    run = steps.struct
    z = steps["z"].view(-1, run.units)
    steps.set("z", torch.cat([z, z.new_empty((count, run.units))]))
    for name in ("positive", "negative"):
        steps.set(name, torch.cat([steps[name], steps[name].new_empty(count)]))
    steps.run(steps["group"].shape[0] - 1, "find_values")
    run.from_vertex += count


def gathered(kernel: GpuKernel, rows: Tensor, made: CutArrays) -> Tensor:
    """Rows (V, ...) of old vertices, and behind them those of new ones."""
    count = rows.shape[0]
    table = rows.new_empty((count + made.t.shape[0], *rows.shape[1:]))
    table[:count] = rows
    width = table[:1].numel()
    steps = _steps(kernel, made.solid, count, width=width)
    for name, array in (("table", table), ("point", made.points), ("t", made.t)):
        steps.set(name, array)
    for group in made.rounds:
        steps.set("group", group)
        steps.run((group.shape[0] - 1) * width, "interpolate")
    return table


def cell_corners(kernel: GpuKernel, solid: SolidArrays) -> tuple[Tensor, Tensor]:
    """The vertices of each cell, once each: offsets (C + 1,), and vertices."""
    sizes = solid.face_offsets.diff()[solid.sides >> 1]
    first = offsets_of(sizes)[solid.cell_offsets]
    steps = _steps(kernel, solid, 0)
    steps.set("first", first)
    steps.allocate({"seen": int(first[-1])})
    steps.run(steps.struct.cells, "list_corners")
    seen = steps["seen"]
    there = seen >= 0
    return offsets_of(there.long())[first], seen[there]
