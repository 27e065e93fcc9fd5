"""Run a captured network over many domains at once, as one stack of meshes.

All layers see all domains together, so that what a tensor operation costs by itself is paid once.
What does not fit is divided domain by domain: half of the stack goes on to the end of the network,
then the other half. Only a single domain is cut in tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam.engine.activations import LayerInput, State
from splinecam.engine.plan import Plan
from splinecam.engine.run import (
    Outcome,
    Report,
    Run,
    TooLarge,
    first_state,
)
from splinecam.engine.stacking import part_of, share_out, stack, unstack
from splinecam.errors import LimitError
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame
from splinecam.network.nonlinearities import Nonlinearity
from splinecam.network.program import Program

__all__ = ["run_together"]


def run_together(
    program: Program,
    domains: Sequence[Domain],
    *,
    memory: int | None = None,
    max_regions: int | None = None,
    report: Report = lambda name, regions, share: None,
    compiled: bool = True,
    plan: Plan | None = None,
) -> Iterator[Outcome]:
    """Partition domains by the program's network; their outcomes come in order.

    memory: bytes to stay within, apart from the outcomes; max_regions: of each domain; compiled,
    plan: as for ``engine.run``.
    """
    plan = plan or Plan.of(program, memory=memory, compiled=compiled)
    with torch.inference_mode():
        waiting = [_Part(range(len(domains)), _start(plan.first.program, domains), 0, None, {})]
    while waiting:
        part = waiting.pop()
        count = len(part.members)
        most = None if max_regions is None else count * max_regions
        kind = _StackRun if count > 1 else Run
        computation = kind(plan, most, report, part.at_second, layer_errors=part.layer_errors)
        with torch.inference_mode():
            try:
                end = computation.finish(part.state, part.index, layer_input=part.layer_input)
            except _Overflow as overflow:
                waiting += reversed(part.halves(overflow))
                continue
            except TooLarge as reason:
                raise LimitError(str(reason)) from None
            whole = computation.outcome(end)
        yield from _outcomes(whole.kept(), part, max_regions)


def _start(program: Program, domains: Sequence[Domain]) -> State:
    corners = [Frame.of(domain).to_local(domain.corners) for domain in domains]
    x = torch.cat([domain.embed(domain.corners) for domain in domains])
    return first_state(program, stack(corners), x)


class _Overflow(Exception):
    """A stack is too large before, or while, it is cut at the given stage."""

    def __init__(self, run: Run, state: State, index: int, layer_input: LayerInput | None) -> None:
        super().__init__(index)
        self.run, self.state, self.index, self.layer_input = run, state, index, layer_input


class _StackRun(Run):
    """A run that leaves it to others to divide what is too large."""

    @property
    def memory(self) -> int:
        return min(self.place.memory, backend_of(self.place.device).batch_bytes)

    def _in_tiles(
        self, state: State, index: int, share: float, layer_input: LayerInput | None
    ) -> State:
        raise _Overflow(self, state, index, layer_input)

    def _cut(self, state: State, layer: Nonlinearity, index: int, layer_input: LayerInput) -> None:
        try:
            super()._cut(state, layer, index, layer_input)
        except LimitError:
            raise _Overflow(self, state, index, layer_input) from None


@dataclass(frozen=True)
class _Part:
    """Consecutive domains, as a stack that waits before a stage.

    ready: see ``Run.finish``; at_second: whether it waits at the plan's second place.
    """

    members: range
    state: State
    index: int
    layer_input: LayerInput | None
    layer_errors: dict[str, Tensor]
    at_second: bool = False

    def halves(self, overflow: _Overflow) -> list[_Part]:
        """The two halves of what has become too large, to go on from there."""
        state, layer_input, middle = overflow.state, overflow.layer_input, len(self.members) // 2
        both = [self.members[:middle], self.members[middle:]]
        parts, run = [], overflow.run
        for members, ambiguities in zip(both, share_out(state.ambiguities, both), strict=True):
            tile = part_of(state.mesh, members)
            mine = replace(state.select(tile, run.block), ambiguities=ambiguities)
            waiting = layer_input and layer_input.select(tile)
            errors = dict(self.layer_errors)
            parts.append(_Part(members, mine, overflow.index, waiting, errors, run.at_second))
        return parts


def _outcomes(whole: Outcome, part: _Part, max_regions: int | None) -> Iterator[Outcome]:
    """What was found in each domain."""
    each = [part.members[i : i + 1] for i in range(len(part.members))]
    ambiguities = share_out(whole.ambiguities, each) if len(each) > 1 else [whole.ambiguities]
    pieces = unstack(whole.mesh, whole.output, part.members)
    for (mesh, values), doubtful in zip(pieces, ambiguities, strict=True):
        if max_regions is not None and mesh.num_faces > max_regions:
            raise LimitError(
                f"The partition exceeds max_regions={max_regions:,}: it has {mesh.num_faces:,} "
                "regions. Raise max_regions, or choose a smaller domain."
            )
        yield Outcome(mesh, values, whole.error, whole.layer_errors, doubtful)
