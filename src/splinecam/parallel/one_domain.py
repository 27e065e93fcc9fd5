"""One large domain over workers: the first layers once, then parts of the domain, then joined."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from splinecam.engine.activations import State, join_states
from splinecam.engine.artificial_cuts import DividedFace, choose_lines
from splinecam.engine.division import Coarse, begin, shares
from splinecam.engine.open_part import Question, open_part
from splinecam.engine.plan import Plan, to_device
from splinecam.engine.run import Outcome, outcome_of
from splinecam.engine.step import Computation, Report
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


def run_domain(
    engine: Engine,
    jobs: list[Job],
    program: Program,
    domain: Domain,
    report: Report,
    question: Question | None = None,
) -> Outcome:
    """The outcome of a domain, on the CPU, computed by the workers of an engine.

    jobs: the same job in several forms; the first one that can be pickled is sent. program: on the
    CPU. report: called after each layer of this process, and after each part. question: divide
    faces only as long as it is open on them.
    """
    job, parts = jobs[0], _PER_WORKER * engine.workers

    def check_limit(regions: int) -> None:
        if job.max_regions is not None and regions > job.max_regions:
            raise LimitError(
                f"The partition exceeds max_regions={job.max_regions:,}. "
                "Raise max_regions, or choose a smaller domain."
            )

    plan = Plan.of(program, memory=job.memory)
    open_ = None
    if question is not None:
        open_ = open_part(plan.first, domain, question, report)
    with torch.inference_mode():
        coarse = begin(plan, domain, enough=_FACES * parts, most=_MOST, report=report)
        if isinstance(coarse, Outcome):
            check_limit(coarse.mesh.num_faces)
            return coarse.kept()
        whole, face = coarse.state, None
        if coarse.mesh.num_faces == 1 and coarse.layer_input is not None:
            lines = choose_lines(coarse.sample(program), parts)
            coarse, open_ = coarse.cut(program, lines), None
            if coarse.layer_input is not None:
                face = DividedFace(whole, coarse.index, lines, coarse.state, coarse.layer_input)
        arrays = coarse.arrays()
        members = shares(range(coarse.mesh.num_faces), parts)
        shared = Packed.first_of(*(partial(tuple, (each, arrays, open_)) for each in jobs))
    tasks = [(some.start, some.stop) for some in members]
    ends: list[State] = [whole] * len(tasks)
    work = Computation(plan, layer_errors=dict(coarse.layer_errors), open_part=open_)
    left, regions = len(program.layers) - coarse.index, 0
    for number, (end, layer_errors) in run_tasks(engine, _run_part, shared, tasks):
        ends[number] = end
        for name, error in layer_errors.items():  # the larger error of each unit
            known = work.layer_errors.get(name)
            work.layer_errors[name] = error if known is None else torch.maximum(known, error)
        regions += end.mesh.num_faces
        report(program.layers[-1].name, regions, left / len(tasks))
        if face is None:
            check_limit(regions)
    with torch.inference_mode():
        joined = join_states(coarse.mesh, [coarse.tile(some) for some in members], ends)
        if face is not None:
            joined = face.rejoined(joined, program, work.layer_errors, work.block)
        joined.ambiguities[:0] = whole.ambiguities
        check_limit(joined.mesh.num_faces)
        return outcome_of(work, joined).kept()


def _run_part(worker: Worker, task: tuple[int, int]) -> tuple[State, dict[str, Tensor]]:
    """Carry some faces of the coarse mesh to the end of the network, in a worker.

    Returns the end, and the rounding errors of the units of each layer.
    """
    job, arrays, open_ = worker.shared
    if "ready" not in worker.kept:  # workers may be threads: both are kept at once
        plan = job.plan(worker)
        coarse = Coarse.from_arrays(arrays, plan.first.program)
        worker.kept["ready"] = plan, coarse, to_device(open_, plan.first.device)
    plan, coarse, open_ = worker.kept["ready"]
    with torch.inference_mode():
        work = Computation(plan, job.max_regions, open_part=open_)
        end = coarse.finish(work, coarse.tile(range(*task)))
        return to_device((end, work.layer_errors), torch.device("cpu"))
