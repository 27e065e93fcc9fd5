"""The kernel of a GPU: refinement, maxima of groups of units, and dissolved edges.

The steps are compiled when a GPU is first used. Where they cannot be compiled everything works by
tensor operations, only slower.
"""

from __future__ import annotations

import logging
from functools import cache

import torch
from torch import Tensor

from splinecam._util.backend import is_cuda
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels.gpu_refine import (
    GpuRefined,
    Halved,
    halve_faces,
    insert_chords,
    refine_mesh,
)
from splinecam.kernels.gpu_steps import Steps, steps_on_mesh
from splinecam.kernels.inputs import Candidates, LayerFunctions, SelectedChords
from splinecam.kernels.nvrtc import Launch, launcher

__all__ = ["GpuKernel", "gpu_kernel_for"]

_log = logging.getLogger("splinecam")


@cache
def gpu_kernel_for(device: torch.device) -> GpuKernel | None:
    """The kernel of a GPU, or None for other devices and where it cannot be compiled."""
    if not is_cuda(device):
        return None
    try:
        return GpuKernel(launcher(device))
    except (AttributeError, ImportError, OSError, RuntimeError) as error:
        _log.info("no kernel for %s, which is slower: %s", device, error)
        return None


class GpuKernel:
    """The compiled steps on one device; launch: runs a step for all items."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def refine(self, mesh: Mesh, functions: LayerFunctions) -> GpuRefined | str:
        """Cut a mesh along zero sets.

        Returns the refinement, or why there is none: "unchanged", "degenerate" or "too many faces".
        """
        return refine_mesh(self._launch, mesh, functions)

    def insert_chords(self, mesh: Mesh, chords: SelectedChords) -> GpuRefined | str:
        """Insert selected chords into a mesh; the result is as for ``refine``."""
        return insert_chords(self._launch, mesh, chords)

    def halve(self, mesh: Mesh, chords: SelectedChords) -> Halved | str:
        """Insert one chord each into selected faces; without a result the reason is returned.

        The part to the left of a chord keeps the face's number, the others come after all faces.
        """
        return halve_faces(self._launch, mesh, chords)

    def classify(self, candidates: Candidates) -> tuple[Tensor, Tensor, Tensor]:
        """Find where the maxima of groups change in their faces: see ``envelope.FaceStatus``."""
        steps, count = self._envelope(candidates), candidates.face.shape[0]
        steps.allocate({"kind": count, "pair": 2 * count, "side": count})
        steps.run(count, "classify")
        return steps["kind"], steps["pair"].view(-1, 2), steps["side"]

    def dominated(self, candidates: Candidates) -> Tensor:
        """Whether units are nowhere the only maximum of their group, (N, R)."""
        steps = self._envelope(candidates)
        found = torch.empty(candidates.units.shape, dtype=torch.bool, device=steps.device)
        steps.set("dominated", found)
        steps.run(found.numel(), "find_dominated")
        return found

    def tied_along_lines(
        self, candidates: Candidates, cut: Tensor, ends: Tensor, between: Tensor, probe: float
    ) -> Tensor:
        """Whether two units of groups may be equal all along the lines that cut their faces, (N,).

        cut: (N,) one of L lines each; ends, between: (L, 2) their end vertices, and the two units
        that are equal on them; probe: a fraction of a line at which units that are equal elsewhere
        on the line are not.
        """
        steps = self._envelope(candidates)
        for name, array in (("cut", cut), ("end", ends), ("between", between)):
            steps.set(name, array.contiguous())
        steps.struct.probe_t = probe
        found = torch.zeros(cut.shape, dtype=torch.bool, device=steps.device)
        steps.set("tied", found)
        steps.run(candidates.units.numel(), "find_ties")
        return found

    def _envelope(self, candidates: Candidates) -> Steps:
        mesh, (_, size) = candidates.mesh, candidates.units.shape
        arrays = {
            "uv": mesh.uv,
            "edge": mesh.edges,
            "offset": mesh.offsets,
            "corner": mesh.corners,
            "table": candidates.table,
            "tolerance": candidates.tolerance,
            "face": candidates.face,
            "member": candidates.units,
            "status": torch.zeros_like(mesh.offsets[:1]),
        }
        sizes = {"size": size, "units": candidates.table.shape[1], "width": mesh.uv.shape[1]}
        return Steps(self._launch, "envelope.cu", arrays, **sizes)

    def dissolve(self, mesh: Mesh, needless: Tensor, fixed: int) -> tuple[Mesh, Tensor] | None:
        """Dissolve edges as ``arrangement.dissolve`` does; None where slivers depend on slivers."""
        steps = steps_on_mesh(
            self._launch, "dissolve.cu", mesh, {"needless": needless}, fixed=fixed
        )
        run = steps.struct
        vertices, edges, faces, corners = run.vertices, run.edges, run.faces, run.corners
        steps.allocate(dict.fromkeys(("halfedge_face", "corner_of"), 2 * edges), fill=-1)
        steps.allocate(
            {"leaders": 2 * (corners + 1), "new_edge": edges + 1, "new_vertex": vertices + 1}
            | {"merged": faces, "degree": vertices, "made_offset": faces + 1},
            fill=0,
        )
        steps.allocate(
            {"root": faces, "removed": edges, "dropped": vertices, "ends": 2 * edges}
            | {"next": corners, "side": corners}
        )
        steps.run(faces, "find_halfedges")
        steps.run(needless.shape[0], "merge_faces")
        steps.run(edges, "find_removed")
        steps.run(vertices, "find_dropped")
        steps.run(corners, "link_corners", "find_leaders")
        leaders = steps.cumsum("leaders", 2)
        steps.run(corners, "keep_slivers", "keep_slivers", "measure")
        sums = [steps.cumsum("made_offset")]
        steps.run(corners, "write_sides")
        steps.run(vertices, "count_vertex")
        sums += [steps.cumsum(name) for name in ("new_edge", "new_vertex")]
        sizes = steps.totals(leaders[:, -1], *(total[0, -1:] for total in sums))
        gave_up, _, kept, united, made_corners, made_edges, made_vertices = sizes
        if gave_up:
            return None
        offsets = steps["made_offset"][: kept + united + 1].clone()
        steps.allocate_mesh(made_vertices, made_edges, 0, made_corners)
        steps.allocate({"kept": made_vertices})
        steps.run(made_corners, "write_corner")
        steps.run(edges, "write_edge")
        steps.run(vertices, "write_vertex")
        steps.set("made_offset", offsets)
        return steps.mesh(), steps["kept"]
