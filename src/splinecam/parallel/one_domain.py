"""One large domain over workers: the first layers once, then parts of it, which are joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splinecam.engine.activations import State, join_states
from splinecam.engine.artificial_cuts import DividedFace, choose_lines
from splinecam.engine.division import Coarse, Ready, begin, shares
from splinecam.engine.plan import Plan, to_device
from splinecam.engine.run import Outcome, Report, Run
from splinecam.errors import LimitError
from splinecam.geometry.domain import Domain
from splinecam.network.program import Program
from splinecam.parallel.engines import Engine
from splinecam.parallel.flat import Packed
from splinecam.parallel.tasks import Job, run_tasks
from splinecam.parallel.workers import Worker

_PER_WORKER = 4  # parts that each worker is to have; more of them have more edges in common
_FACES = 4  # faces that each of these parts has at least, if there are as many
_MOST = 1 << 16  # regions that a layer may make of the undivided domain in this process


@dataclass(frozen=True, eq=False)
class _Shared:
    """What the parts share: the job, and the mesh after the first layers as arrays."""

    job: Job
    coarse: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class _Part:
    """A part at the end of the network, and the rounding errors of the units of each layer."""

    state: State
    layer_errors: dict[str, Tensor]


def run_domain(
    engine: Engine, jobs: list[Job], program: Program, domain: Domain, report: Report
) -> Outcome:
    """Partition a domain by the workers of an engine; the outcome is in this process, on the CPU.

    jobs: the same job in several forms, of which the first one that can be pickled is sent.
    program: on the CPU. report: called after each layer of this process, and after each part.
    """
    job, parts = jobs[0], _PER_WORKER * engine.workers
    plan = Plan.of(program, memory=job.memory)
    with torch.inference_mode():
        coarse = begin(plan, domain, enough=_FACES * parts, most=_MOST, report=report)
        if isinstance(coarse, Ready):
            _check_limit(coarse.state, job.max_regions)
            return coarse.run.result(coarse.state).kept()
        whole, face = coarse.state, None
        if coarse.mesh.num_faces == 1 and coarse.layer_input is not None:
            lines = choose_lines(coarse.sample(program), parts)
            coarse = coarse.cut(program, lines)
            if coarse.layer_input is not None:
                face = DividedFace(whole, coarse.index, lines, coarse.state, coarse.layer_input)
        arrays = coarse.arrays()
        members = shares(range(coarse.mesh.num_faces), parts)
        shared = Packed.first_of(*(_maker(each, arrays) for each in jobs))
    tasks = [(some.start, some.stop) for some in members]
    ends: list[State] = [whole] * len(tasks)
    run = Run(plan, job.max_regions, report, layer_errors=dict(coarse.layer_errors))
    left, regions = len(program.layers) - coarse.index, 0
    for number, part in run_tasks(engine, _run_part, shared, tasks):
        ends[number] = part.state
        _merge(run.layer_errors, part.layer_errors)
        regions += part.state.mesh.num_faces
        report(program.layers[-1].name, regions, left / len(tasks))
        if face is None and job.max_regions is not None and regions > job.max_regions:
            raise _too_many(job.max_regions)
    with torch.inference_mode():
        joined = _joined(coarse, members, ends, face, run)
        joined.ambiguities[:0] = whole.ambiguities
        _check_limit(joined, job.max_regions)
        return run.result(joined).kept()


def _maker(job: Job, arrays: dict[str, Tensor]) -> Any:
    return lambda: _Shared(job, arrays)


def _run_part(worker: Worker, task: tuple[int, int]) -> _Part:
    """Carry some faces of the coarse mesh to the end of the network, in a worker."""
    job = worker.shared.job
    if "ready" not in worker.kept:  # workers may be threads: both are kept at once
        plan = job.plan(worker)
        coarse = Coarse.from_arrays(worker.shared.coarse, plan.first.program)
        worker.kept["ready"] = plan, coarse
    plan, coarse = worker.kept["ready"]
    with torch.inference_mode():
        run = Run(plan, job.max_regions, lambda name, regions, share: None)
        end = coarse.unit(range(*task)).finish(run)
        part: _Part = to_device(_Part(end, run.layer_errors), torch.device("cpu"))
        return part


def _joined(
    coarse: Coarse, members: list[range], ends: list[State], face: DividedFace | None, run: Run
) -> State:
    tiles = [coarse.unit(some).tile for some in members]
    joined = join_states(coarse.mesh, tiles, ends)
    if face is None:
        return joined
    return face.rejoined(joined, run.program, run.layer_errors, run.block)


def _merge(known: dict[str, Tensor], more: dict[str, Tensor]) -> None:
    """Take over the larger of the errors of each unit."""
    for name, error in more.items():
        known[name] = torch.maximum(known[name], error) if name in known else error


def _check_limit(state: State, most: int | None) -> None:
    if most is not None and state.mesh.num_faces > most:
        raise _too_many(most)


def _too_many(most: int) -> LimitError:
    return LimitError(
        f"The partition exceeds max_regions={most:,}. "
        "Raise max_regions, or choose a smaller domain."
    )
