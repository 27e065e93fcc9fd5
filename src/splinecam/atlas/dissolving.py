"""Write the regions that were divided by artificial edges as tiles of their own."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam.atlas.completing import Dissolved
from splinecam.atlas.making import Making
from splinecam.atlas.rounding_errors import ERRORS, read_errors
from splinecam.atlas.strips import JoinedStrips
from splinecam.atlas.unit_files import rim_of
from splinecam.engine.artificial_cuts import UNDECIDED, switching, without_artificial_edges
from splinecam.engine.division import Coarse
from splinecam.engine.run import Outcome
from splinecam.engine.tiling import halves, sorted_faces
from splinecam.geometry.frame import Frame
from splinecam.geometry.subdivision import BORDER

__all__ = ["dissolved_tiles"]


def dissolved_tiles(making: Making, coarse: Coarse | None, joined: JoinedStrips) -> list[Dissolved]:
    """Remove the artificial edges of all strips, and write what is left as tiles."""
    if coarse is None or coarse.lines is None:
        raise ValueError("there are no artificial lines")
    program, domain, frame = making.plan.last.program, making.domain, Frame.of(making.domain)
    error, layer_errors = read_errors(making.folder / ERRORS)

    errors = {name: each.to(program.device) for name, each in layer_errors.items()}

    def switch(uv: Tensor) -> tuple[Tensor, Tensor]:
        sides = (domain.embed(frame.to_plane(side)) for side in uv.unbind(1))
        layer, unit = switching((program.walk(x) for x in sides), errors, 0)
        return layer.to(uv.device), unit.to(uv.device)

    widest = max([domain.dim, *(len(each) for each in layer_errors.values())])
    rows = max(1, backend_of(joined.mesh.uv.device).numbers // widest)
    fixed = joined.mesh.vertex_layer == BORDER
    mesh, kept, undecided = without_artificial_edges(joined.mesh, coarse.lines, fixed, switch, rows)
    values = joined.values[kept]
    order, waiting = sorted_faces(mesh), [range(mesh.num_faces)]
    found: list[Dissolved] = []
    while waiting:
        members = waiting.pop()
        if len(members) > making.sizes.regions:
            waiting += reversed(halves(members))
            continue
        faces = torch.sort(order[members.start : members.stop]).values
        some, vertex, _ = mesh.select(faces)
        name = f"strip{len(found):05d}"
        making.writer.make(name)
        outcome = Outcome(some, values[vertex], error, layer_errors, [])
        entry = making.writer.tile(name, outcome)
        found.append(Dissolved(entry, rim_of(some, kept[vertex])))
    if undecided.shape[0]:
        where = frame.to_plane(undecided.mean(1)).tolist()
        layer = program.layers[min(coarse.index, len(program.layers) - 1)].name
        places = [((u, v), layer, UNDECIDED) for u, v in where]
        entry = replace(found[0].entry, unresolved=found[0].entry.unresolved + places)
        found[0] = replace(found[0], entry=entry)
    return found
