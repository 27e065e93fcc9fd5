"""Three-dimensional complexes on a GPU: what ``solid`` does, by the steps of solid.cu."""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam._util.arrays import entries_of, offsets_of, places_in, take
from splinecam._util.backend import is_cuda
from splinecam.errors import SplineCamError
from splinecam.kernels.gpu import GpuKernel, Steps, gpu_kernel_for
from splinecam.kernels.solid import CutArrays, SolidArrays

MOST = 64  # functions of a cut
FEW = 12  # functions on a cell that are cut at once, as one thread cuts it
THREADS = 32  # of which one is a worker, which divides edges, faces or cells
WORKERS = 1 << 14  # at most
_POINTS, _EDGES, _FACES, _CORNERS, _CELLS, _SIDES, _UNCUTS = range(7)
_LISTS = 11
_NEEDED = {"edge": 24, "face": 64, "cell": 256}  # numbers that dividing one makes, about
_OWN = {"edge": 1024, "face": 4096, "cell": 16384}  # and what a worker needs beside that
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


def _steps(kernel: GpuKernel, solid: SolidArrays, vertices: int, **numbers: float) -> Steps:
    arrays = dict(zip(_NAMES, solid, strict=True))
    arrays["status"] = torch.zeros(3, dtype=torch.int64, device=solid.edges.device)
    sizes = {"edges": solid.edges.shape[0], "faces": solid.face_layer.shape[0]}
    sizes |= {"corners": solid.corners.shape[0], "cells": solid.cell_offsets.shape[0] - 1}
    sizes |= {"sides": solid.sides.shape[0], "vertices": vertices, "from_vertex": vertices}
    return kernel.steps("solid.cu", arrays, **sizes, **numbers)


def _find_signs(steps: Steps, few: int) -> list[int]:
    """Choose the first functions, and find their signs.

    Returns how many they are, and how many edges, faces and cells they divide.
    """
    run = steps.struct
    steps.allocate({"positive": run.vertices, "negative": run.vertices, "on_edge": run.edges})
    steps.allocate(dict.fromkeys(("above", "below", "on_face"), run.faces), fill=0)
    steps.allocate({"on_cell": run.cells, "some": 2})
    steps.allocate({"most": MOST}, fill=0)
    steps.run(run.vertices, "find_vertex_signs")
    steps.run(run.faces, "find_signs_of_face")
    steps.run(run.cells, "find_signs_of_cell", "count_functions")
    run.few = few
    steps.run(1, "choose_functions")
    steps.run(max(run.vertices, run.faces, run.cells), "keep_signs")
    steps.run(run.edges, "find_signs_on_edge")
    divided = [torch.count_nonzero(steps[f"on_{kind}"])[None] for kind in _NEEDED]
    counts: list[int] = torch.cat([steps["some"][:1], *divided]).tolist()
    return counts


def cut_solid(
    kernel: GpuKernel,
    solid: SolidArrays,
    z: Tensor,
    tolerance: Tensor,
    label: Tensor,
    layer: int,
    few: int = FEW,
) -> CutArrays:
    """The same as in ``solid``, for the first functions, as many as are on a cell few at most.

    Rounds are as ``gathered`` wants.
    """
    edges, most = solid.edges, min(MOST, z.shape[1])
    steps = _steps(kernel, solid, z.shape[0], units=most, layer=layer)
    run = steps.struct
    for name, array in (("z", z[:, :most]), ("tolerance", tolerance), ("label", label)):
        steps.set(name, array.contiguous())
    functions, *counts = _find_signs(steps, few)
    steps.set("z", z[:, :functions].contiguous())
    run.units = functions
    points, ts, rounds = [], [], []

    def divided(kind: str, kept: Tensor) -> list[int]:
        """Divide all of a kind; kept: (7, N + 1), see ``_divide``."""
        item, sizes = _divide(steps, kind, kept, counts.pop(0))
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
    steps.run(run.edges, "write_edge")
    steps.set("first_edge", steps["first"].view(7, -1)[_EDGES])
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
    return CutArrays(made, parent, *rest, parent[:0], 0, 0, rounds, functions)


_FACE_ARRAYS = ("made_offset", "made_corner", "made_face_layer", "made_face_unit")


def _divide(steps: Steps, kind: str, kept: Tensor, count: int) -> tuple[Tensor, list[int]]:
    """Divide the edges, faces or cells on which functions change sign, and number the parts.

    Returns those that are divided, and how many parts there are in all. kept: (7, N + 1) behind a
    zero what each of them makes if it is not divided; count: how many are.
    """
    run = steps.struct
    item, workers = places_in(steps[f"on_{kind}"] != 0, count), min(count, WORKERS)
    run.items, run.grain, run.threads = count, _OWN[kind] // 8, THREADS
    steps.set("item", item)
    run.all = kept.shape[1] - 1
    steps.set("count", kept)
    steps.allocate({"list": _LISTS * count})
    room = _NEEDED[kind] * count + _OWN[kind] * workers
    while True:
        run.room = room
        steps.allocate({"memory": room})
        steps["status"].zero_()
        steps.run(workers * THREADS, f"divide_{kind}")
        # Of one long row running sums are fast on a GPU.
        first = torch.cumsum(kept.view(-1), 0).view(7, -1)
        first = first - first[:, :1]
        short, _, _, *sizes = steps.totals(first[:, -1])
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
    steps = list_corners(kernel, solid)
    first, last = steps["first"][:-1], steps["last"]
    offsets = offsets_of(last - first)
    return offsets, take(steps["seen"], entries_of(first, last, offsets))


def list_corners(kernel: GpuKernel, solid: SolidArrays, **numbers: float) -> Steps:
    """Steps in which ``seen`` has the vertices of each cell between ``first`` and ``last``."""
    sizes = take(solid.face_offsets.diff(), solid.sides >> 1)
    steps = _steps(kernel, solid, 0, **numbers)
    steps.set("first", take(offsets_of(sizes), solid.cell_offsets))
    # A face is a side of at most two cells.
    steps.allocate({"seen": 2 * solid.corners.shape[0], "last": steps.struct.cells})
    steps.run(steps.struct.cells, "list_corners")
    return steps
