"""Refinement on a GPU: the steps of ``refine.cu``, with running sums by torch in between.

The source is compiled when it is first needed, by the compiler that comes with CUDA builds of torch
(NVRTC). Where that is missing everything works by tensor operations, only slower.
"""

from __future__ import annotations

import ctypes
import logging
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from splinecam.births import Births, Kinks
from splinecam.kernels.kernel import Cutting, Refined
from splinecam.mesh import Mesh

__all__ = ["SOURCE", "GpuKernel", "RunStruct", "gpu_kernel_for"]

SOURCE = Path(__file__).with_name("refine.cu")
_THREADS = 256  # of one block

_log = logging.getLogger("splinecam")

Launch = Callable[[str, Any, int], None]
"""Runs a step, by its name, with a ``RunStruct`` for so many items."""


def _fields() -> list[tuple[str, Any]]:
    """The fields of the structure in the source: numbers and addresses, eight bytes each."""
    body = re.search(r"typedef struct \{(.*?)\} run_t;", SOURCE.read_text(), re.DOTALL)
    if body is None:
        raise ValueError(f"{SOURCE.name} does not describe its arguments")
    found: list[tuple[str, Any]] = []
    for line in re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL).split(";"):
        for name in re.sub(r"^(const )?(unsigned )?\w+", "", line.strip()).split(","):
            real = line.strip().startswith("double") and "*" not in name
            found.append((name.strip(" *"), ctypes.c_double if real else ctypes.c_int64))
    return [field for field in found if field[0]]


class RunStruct(ctypes.Structure):
    """What all steps are given: sizes, and addresses of arrays."""

    _fields_ = _fields()


@cache
def gpu_kernel_for(device: torch.device) -> GpuKernel | None:
    """The kernel of a GPU, where it can be compiled."""
    if device.type != "cuda":
        return None
    try:
        return GpuKernel(_launcher(device))
    except (AttributeError, ImportError, OSError, RuntimeError) as error:
        _log.info("no kernel for %s, which is slower: %s", device, error)
        return None


# Arrays of real numbers among the results.
_REAL = frozenset({"point_t", "point_bend", "cross_t", "slot_t", "slot_bend", "made_uv"})


class _Refining:
    """One refinement: the structure that its steps are given, and the arrays it points to."""

    def __init__(self, launch: Launch, mesh: Mesh, cutting: Cutting) -> None:
        self.launch, self.device = launch, mesh.uv.device
        self.arrays: dict[str, Tensor] = {}
        self.run: Any = RunStruct(
            vertices=mesh.num_vertices,
            edges=mesh.num_edges,
            faces=mesh.num_faces,
            corners=mesh.corners.shape[0],
            width=mesh.uv.shape[1],
            units=cutting.z.shape[1],
            words=cutting.positive.shape[1],
            op=cutting.op,
            uv_error=cutting.uv_error,
            safety=cutting.safety,
        )
        given = {
            "uv": mesh.uv,
            "edge": mesh.edges,
            "offset": mesh.offsets,
            "corner": mesh.corners,
            "edge_op": mesh.edge_op,
            "edge_unit": mesh.edge_unit,
            "vertex_op": mesh.vertex_op,
            "z": cutting.z,
            "positive": cutting.positive,
            "negative": cutting.negative,
            "error": cutting.error,
            "jump": cutting.jump,
            "wanted": cutting.wanted,
        }
        for name, array in given.items():
            self.point(name, array.contiguous())

    def point(self, name: str, array: Tensor) -> None:
        """Have the structure point to an array, and keep this."""
        self.arrays[name] = array
        setattr(self.run, name, array.data_ptr())

    def room(self, sizes: dict[str, int]) -> None:
        """Arrays of so many entries of eight bytes, which stand one after the other."""
        whole = torch.empty(sum(sizes.values()), dtype=torch.int64, device=self.device)
        for name, array in zip(sizes, torch.split(whole, list(sizes.values())), strict=True):
            self.point(name, array)

    def steps(self, count: int, *names: str) -> None:
        """Run steps for so many items each."""
        if count:
            for name in names:
                self.launch(name, self.run, count)

    def sum_up(self, name: str, rows: int = 1) -> Tensor:
        """Running sums of the rows of an array, in its place."""
        array = self.arrays[name].view(rows, -1)
        return torch.cumsum(array, 1, out=array)

    def result(self, name: str) -> Tensor:
        array = self.arrays[name]
        return array.view(torch.float64) if name in _REAL else array


class GpuKernel:
    """The steps of ``refine.cu`` on one device; launch: runs a step for all items."""

    sees_zeros = True

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def refine(self, mesh: Mesh, cutting: Cutting) -> Refined | str:
        """The mesh cut along zero sets, or why not: unchanged, delicate, too many."""
        work = _Refining(self._launch, mesh, cutting)
        for part in (self._edges, self._chords, self._cut):
            reason = part(work, cutting)
            if reason:
                return reason
        return _refined(work)

    def _edges(self, work: _Refining, cutting: Cutting) -> str | None:
        """Count the new vertices on edges, and around faces."""
        run = work.run
        work.point("status", torch.zeros(2, dtype=torch.int64, device=work.device))
        work.room({"first": run.edges + 1, "before": run.corners + 1, "sums": 4 * (run.faces + 1)})
        work.steps(run.edges, "count_changes")
        work.sum_up("first")
        work.steps(run.corners, "count_sides")
        work.sum_up("before")
        work.steps(run.faces, "count_faces")
        sums = work.sum_up("sums", 4)
        ends = [work.arrays["first"][-1:], work.arrays["before"][-1:], sums[:, -1]]
        close, most, *sizes = torch.cat([work.arrays["status"], *ends]).tolist()
        run.points, run.marks, run.touched, run.chords, run.places, kept = sizes
        if close or most > 2 * cutting.max_chords:
            return "delicate"
        run.new_corners = kept + run.places + 2 * run.chords  # besides those at crossings
        return None if run.points else "unchanged"

    def _chords(self, work: _Refining, cutting: Cutting) -> str | None:
        """Find the new vertices on edges, the chords between them, and count their crossings."""
        run = work.run
        points, marks, chords = run.points, run.marks, run.chords
        each = ("raw_t", "raw_change", "raw_unit", "raw_edge", "change")
        found = ("mark_point", "mark_unit", "mark_corner", "mark_face", "mate")
        work.room(
            dict.fromkeys(each, points)
            | {"blur": 2 * points, "point_uv": run.width * points}
            | dict.fromkeys(found, marks)
            | {"lower": marks + 1, "half": run.places, "ends": run.places}
            | dict.fromkeys(("chord_face", "low", "high", "start", "stop", "taken"), chords)
            | {"line": 6 * chords}
        )
        work.room(
            dict.fromkeys(
                ("point_edge", "point_start", "point_end", "point_unit", "point_index"), points
            )
            | {"point_t": points, "point_bend": points, "slots": 2 * (chords + 1)}
        )
        work.steps(run.edges * run.words, "find_points")
        work.steps(points, "sort_points", "place_point")
        work.steps(marks, "find_marks", "find_mates")
        work.sum_up("lower")
        work.steps(run.corners, "place_corner")
        work.steps(marks, "place_mark")
        work.steps(chords, "count_crossings")
        slots = work.sum_up("slots", 2)
        close, _, run.crossings = torch.cat([work.arrays["status"], slots[:1, -1]]).tolist()
        faces = run.faces + chords + run.crossings
        if close:
            return "delicate"
        return "too many" if cutting.max_faces is not None and faces > cutting.max_faces else None

    def _cut(self, work: _Refining, cutting: Cutting) -> str | None:
        """Write the refined subdivision."""
        run = work.run
        points, chords, crossings = run.points, run.chords, run.crossings
        slots, least = 2 * crossings, cutting.least_bends
        run.bends = least is not None and points + crossings >= least
        run.new_corners += 2 * slots
        edges = run.edges + points + chords + slots
        faces, vertices = run.faces + chords + crossings, run.vertices + points + crossings
        raw = ("raw_along", "raw_reach", "raw_met", "raw_chord", "met", "slot_chord", "reach")
        work.room({"one": crossings, "two": crossings, "slot": slots} | dict.fromkeys(raw, slots))
        ends = ("cross_start", "cross_end", "cross_chord", "cross_slot", "cross_t")
        work.room(
            dict.fromkeys(ends, crossings)
            | dict.fromkeys(("slot_t", "slot_unit", "slot_bend"), slots)
        )
        work.room(
            {
                "made_uv": vertices * run.width,
                "made_edge": 2 * edges,
                "made_offset": faces + 1,
                "made_corner": run.new_corners,
                "made_edge_op": edges,
                "made_edge_unit": edges,
                "made_vertex_op": vertices,
            }
        )
        work.steps(chords, "find_pairs")
        work.steps(crossings, "meet")
        work.steps(slots, "sort_slots", "write_slot")
        work.steps(chords, "write_chord")
        work.steps(crossings, "write_crossing")
        work.steps(run.vertices, "write_vertex")
        work.steps(run.edges, "write_edge_start")
        work.steps(points, "write_point")
        work.steps(run.faces, "measure_kept")
        work.steps(run.touched + chords + crossings, "measure_face")
        work.sum_up("made_offset")
        work.steps(run.touched + chords + crossings, "write_face")
        work.steps(run.corners, "write_corner")
        return "delicate" if bool(work.arrays["status"][0]) else None


def _refined(work: _Refining) -> Refined:
    names = ("offset", "corner", "edge_op", "edge_unit", "vertex_op")
    uv, edges, *rest = (work.result(f"made_{name}") for name in ("uv", "edge", *names))
    kinks = None
    if work.run.bends:
        points = ("first", "point_t", "point_unit", "point_bend", "point_edge", "point_index")
        inner = ("slot_t", "slot_unit", "slot_bend", "cross_chord", "cross_slot")
        offsets = work.arrays["slots"].view(2, -1)[1]
        kinks = (
            Kinks(*(work.result(name) for name in points)),
            Kinks(offsets, *(work.result(name) for name in inner)),
        )
    return Refined(
        Mesh(uv.view(-1, work.run.width), edges.view(-1, 2), *rest),
        Births(*(work.result(f"point_{name}") for name in ("start", "end", "t"))),
        Births(*(work.result(f"cross_{name}") for name in ("start", "end", "t"))),
        kinks,
    )


# -- the compiler ------------------------------------------------------------------------------


def _launcher(device: torch.device) -> Launch:
    """Compile the source for a GPU; what runs its steps on torch's current stream."""
    with torch.cuda.device(device):
        torch.cuda.current_stream()  # so that torch has made a context
        driver, module = torch.cuda._utils._get_gpu_runtime_library(), ctypes.c_void_p()
        _check(driver.cuModuleLoadData(ctypes.byref(module), _compiled(device)))
    functions: dict[str, ctypes.c_void_p] = {}
    for name in re.findall(r"^STEP\((\w+)\)$", SOURCE.read_text(), re.MULTILINE):
        function = functions[name] = ctypes.c_void_p()
        called = f"all_{name}".encode()
        _check(driver.cuModuleGetFunction(ctypes.byref(function), module, called))

    def launch(name: str, run: Any, count: int) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
        items, blocks = ctypes.c_int64(count), -(-count // _THREADS)
        given = (ctypes.c_void_p * 2)(ctypes.addressof(run), ctypes.addressof(items))
        sizes = (blocks, 1, 1, _THREADS, 1, 1, 0)
        _check(driver.cuLaunchKernel(functions[name], *sizes, stream, given, None))

    return launch


def _compiled(device: torch.device) -> bytes:
    """The source as machine code of a GPU."""
    nvrtc, program = torch.cuda._utils._get_gpu_rtc_library(), ctypes.c_void_p()
    major, minor = torch.cuda.get_device_capability(device)
    options = [f"--gpu-architecture=sm_{major}{minor}".encode(), b"--fmad=false"]
    source = SOURCE.read_bytes()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"refine.cu", 0, None, None))
    given = (ctypes.c_char_p * len(options))(*options)
    _check(nvrtc.nvrtcCompileProgram(program, len(options), given))
    size = ctypes.c_size_t()
    _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    code = ctypes.create_string_buffer(size.value)
    _check(nvrtc.nvrtcGetCUBIN(program, code))
    _check(nvrtc.nvrtcDestroyProgram(ctypes.byref(program)))
    return code.raw


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"error {status} of CUDA")
