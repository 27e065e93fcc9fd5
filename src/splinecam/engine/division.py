"""Divide a computation into parts that are carried to the end of the network on their own.

The first layers are computed once, for the whole domain. Then the faces of the coarse mesh that
they make are divided among tiles, each of which is a state of its own: other processes can take
tiles, and a tile can be computed again after an interruption. What comes of the tiles is joined by
``engine.activations.join_states``, or stays apart in an atlas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import inf

import torch
from torch import Tensor

from splinecam.arrangement.crossings import Signs
from splinecam.engine.activations import Interpolated, LayerInput, State, nothing_new
from splinecam.engine.artificial_cuts import (
    CutLines,
    RegionSample,
    divide_face,
    divide_faces,
    sample_face,
    sample_regions,
)
from splinecam.engine.plan import Plan, to_device
from splinecam.engine.run import Outcome, finish, outcome_of, start
from splinecam.engine.step import Computation, Report, Waiting, silent
from splinecam.engine.tiling import MeshTile, halves, sorted_faces, tile_of
from splinecam.geometry.domain import Domain
from splinecam.geometry.subdivision import InterpolatedVertices, Mesh
from splinecam.network.ops.bounds import Bound
from splinecam.network.program import Program

ENOUGH = 1 << 12  # faces of a coarse mesh, from which on it is divided


@dataclass(frozen=True)
class Coarse:
    """The mesh after the first layers, which is divided into tiles.

    state: vertices that a layer has added lie between values that are known. layer_input: None if
    stage ``index`` is not evaluated yet.
    order: (F,) the faces such that those of any ``halves`` of it lie together. lines: that have cut
    the faces artificially; the vertices before that are the first ``fixed`` ones. Ambiguities are
    not part of it, nor of its tiles.
    """

    state: State
    index: int
    layer_input: LayerInput | None
    layer_errors: dict[str, Tensor]
    at_second: bool
    order: Tensor
    lines: CutLines | None = None
    fixed: int = 0

    @property
    def mesh(self) -> Mesh:
        return self.state.mesh

    def tile(self, members: range) -> MeshTile:
        """The faces at some places of ``order``."""
        return tile_of(self.mesh, self.order[members.start : members.stop])

    def finish(self, work: Computation, tile: MeshTile) -> State:
        """Carry a tile to the end of the network."""
        work.at_second = self.at_second
        work.layer_errors.update(self.layer_errors)
        if self.at_second:
            work.open_part = to_device(work.open_part, work.place.device)
        at = Waiting(self.state, self.index, self.layer_input).select(tile, 1)
        at = to_device(at, work.place.device).filled(work.block)
        return finish(work, at, all_open=False)

    def sample(self, program: Program) -> RegionSample:
        """A sample of the regions that the next layer makes, if there is one face so far."""
        mesh, layer, given = self.mesh, program.stages[self.index].layer, self.layer_input
        if mesh.num_faces > 1:  # it is not known how many each of them will have
            points = mesh.means()
            return RegionSample(mesh.uv, torch.inf, points, torch.ones_like(points[:, 0]))
        if layer is None or given is None:
            return sample_regions(mesh.uv[mesh.corner_vertices()], None)
        return sample_face(self.state, layer, given)

    def cut(self, program: Program, lines: CutLines) -> Coarse:
        """The same with faces that are cut along artificial lines."""
        layer, given = program.stages[self.index].layer, self.layer_input
        if layer is None or given is None:
            state = divide_faces(self.state.filled(1), lines)
        else:
            face = divide_face(self.state, self.index, layer.source, given, lines)
            state, given = face.state, face.layer_input
        if state.pending is not None:
            state = replace(state, pending=nothing_new(state.pending.layer, state.rows))
        fixed, order = self.mesh.num_vertices, sorted_faces(state.mesh)
        return replace(self, state=state, layer_input=given, order=order, lines=lines, fixed=fixed)

    # -- as arrays ----------------------------------------------------------------------------

    def arrays(self) -> dict[str, Tensor]:
        """Everything as tensors by name, of which ``from_arrays`` makes the same again."""
        state, given = self.state, self.layer_input
        found = {f"mesh/{field.name}": getattr(self.mesh, field.name) for field in fields(Mesh)}
        for name, value in state.rows.items():
            found[f"rows/{name}"] = value
        if isinstance(state.pending, Interpolated):
            found |= {f"edges/{name}": value for name, value in state.pending.values.items()}
            found |= {f"inside/{name}": value for name, value in vars(state.pending.inside).items()}
            found["count"] = torch.tensor(state.pending.count)
            if state.pending.shown is not None:
                found["shown"] = state.pending.shown
        for name, bound in state.bounds.items():
            found[f"magnitude/{name}"], found[f"error/{name}"] = bound
        for name, error in self.layer_errors.items():
            found[f"layer_error/{name}"] = error
        flags = [self.index, self.at_second, state.pending is not None]
        if given is not None:
            found |= {"input/low": given.low, "input/high": given.high}
            if given.signs is not None:
                for name in ("positive", "negative", "wanted"):
                    found[f"signs/{name}"] = getattr(given.signs, name)
                flags.append(given.signs.clear)
        if self.lines is not None:
            found |= {"lines/normal": self.lines.normal, "lines/level": self.lines.level}
        found["fixed"] = torch.tensor(self.fixed)
        return found | {"order": self.order, "flags": torch.tensor(flags)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor], program: Program) -> Coarse:
        """The same again; program: of the place where it was made."""

        def named(kind: str) -> dict[str, Tensor]:
            start = f"{kind}/"
            return {
                name.removeprefix(start): value
                for name, value in arrays.items()
                if name.startswith(start)
            }

        index, at_second, pends, *clear = arrays["flags"].tolist()
        rows, error, given = named("rows"), named("error"), named("input")
        bounds = {name: Bound(size, error[name]) for name, size in named("magnitude").items()}
        layer = program.stages[index - 1].layer if pends else None
        pending = layer and nothing_new(layer, rows)
        if pending is not None and named("inside"):
            values, inside = named("edges"), InterpolatedVertices(**named("inside"))
            shown = arrays.get("shown")
            count = int(arrays["count"])
            pending = replace(pending, values=values, count=count, shown=shown, inside=inside)
        state = State(Mesh(**named("mesh")), rows, bounds, pending)
        layer_input = None
        if given:
            signs = Signs(**named("signs"), clear=bool(clear[0])) if clear else None
            layer_input = LayerInput(given["low"], given["high"], signs)
        errors = named("layer_error")
        lines = CutLines(**named("lines")) if "lines/level" in arrays else None
        places = arrays["order"], lines, int(arrays["fixed"])
        return cls(state, index, layer_input, errors, bool(at_second), *places)


def begin(
    plan: Plan, domain: Domain, *, enough: int = ENOUGH, most: float = inf, report: Report = silent
) -> Coarse | Outcome:
    """Compute the first layers, until the mesh has enough faces or the next layer is too large.

    The outcome, if the network has come to its end before. most: how many regions, about, a layer
    may make of a single face.
    """
    work = Computation(plan, report=report)

    def divides(at: Waiting) -> bool:
        layer = work.program.stages[at.index].layer
        if layer is None:
            return False
        if at.layer_input is None:
            return at.faces >= enough
        return at.faces == 1 and most < sample_face(at.state, layer, at.layer_input).regions < inf

    at, _ = work.carry(start(plan, domain), wait=divides)
    if at.index == len(work.program.stages):
        return outcome_of(work, at.state)
    state = at.state.interpolated(work.block)
    given = at.layer_input and replace(at.layer_input, dense=None)
    order = sorted_faces(state.mesh)
    return Coarse(state, at.index, given, work.layer_errors, work.at_second, order)


# -- the order of faces -----------------------------------------------------------------------


def shares(members: range, count: int) -> list[range]:
    """About so many parts of equal size of a range of faces, made by repeated halving."""
    found = [members]
    while len(found) < count and max(map(len, found)) > 1:
        found = [half for each in found for half in (halves(each) if len(each) > 1 else (each,))]
    return found
