"""What is selected in a viewer, as objects of Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from splinecam._partition import Partition
from splinecam.analysis.regions import Region
from splinecam.viewer.answers import RequestError, integer, number, text

if TYPE_CHECKING:
    from splinecam.viewer.session import Session

__all__ = ["Selection", "selection_of"]


@dataclass(frozen=True, eq=False)
class Selection:
    """What was clicked in a viewer; it counts as False where nothing is selected.

    region: a region of the partition that was given to the viewer. Where none was given, or the
    plane was moved, it is a region of the partition that the viewer computed. compared: a second
    region, or None. uv: the plane coordinates of the place, or None. unit: the name of a layer and
    the number of its unit, if an edge was clicked. pane, frame: where it was clicked. partition: to
    which ``region`` belongs, or None if nothing is selected.
    """

    partition: Partition | None = None
    region: Region | None = None
    compared: Region | None = None
    uv: tuple[float, float] | None = None
    unit: tuple[str, int] | None = None
    pane: int = 0
    frame: int = 0

    @property
    def input(self) -> Tensor | None:
        """The input at the place, ready for the model, or None."""
        if self.uv is None or self.partition is None:
            return None
        return self.partition.inputs(torch.tensor([self.uv], dtype=torch.float64))[0]

    @property
    def key(self) -> tuple[Any, ...]:
        """What differs when something else is selected."""
        return self.region, self.compared, self.uv, self.unit, self.pane, self.frame

    def __bool__(self) -> bool:
        return self.partition is not None

    def __repr__(self) -> str:
        parts = [] if self else ["nothing"]
        if self.region is not None and self.partition is not None:
            parts.append(f"region {self.region.index} of {len(self.partition):,}")
        if self.compared is not None:
            parts.append(f"compared with {self.compared.index}")
        if self.uv is not None:
            parts.append(f"at ({self.uv[0]:.6g}, {self.uv[1]:.6g})")
        if self.unit is not None:
            parts.append("layer {}, unit {}".format(*self.unit))
        return f"Selection({', '.join(parts)})"


def selection_of(request: Mapping[str, Any], session: Session) -> Selection:
    """The selection that a request tells of, which may be that nothing is selected.

    A ``RequestError`` says what is wrong with a request.
    """
    place, pane = session.pane_of(request)
    frame = session.frame_of(request, pane)
    region, compared, unit = (request.get(name) for name in ("region", "compared", "unit"))
    if region is None and compared is None and unit is None:
        return Selection(pane=place, frame=frame)
    mesh = text(request, "mesh")
    uv = _place(request.get("at"))
    shown = None if region is None else _region(session, mesh, request, "region", uv)
    other = None
    if compared is not None:
        other_mesh = text(request, "comparedMesh") if request.get("comparedMesh") else mesh
        other = _region(session, other_mesh, request, "compared", None)
    seen = session.partition_of(mesh)
    part = seen if shown is None else shown.partition
    assert isinstance(part, Partition)
    return Selection(part, shown, other, uv, _unit(seen, unit), place, frame)


def _region(
    session: Session,
    mesh: str,
    request: Mapping[str, Any],
    name: str,
    uv: tuple[float, float] | None,
) -> Region:
    """The region of the given partition if there is one, else that of the mesh."""
    seen = session.partition_of(mesh)
    index = integer(request, name, len(seen), what="regions")
    given = _given_partition(session, mesh)
    if given is None or given is seen:
        return seen[index]
    place = seen.centroids[index].cpu() if uv is None else torch.tensor(uv, dtype=torch.float64)
    found = int(given.locate(given.domain.embed(place[None]))[0])
    return seen[index] if found < 0 else given[found]


def _given_partition(session: Session, mesh: str) -> Partition | None:
    """The partition that was given for the frame of a mesh, in the same plane, or None."""
    pane, frame, *rest = mesh.split("/")
    if any(part.startswith("p") for part in rest):  # the plane was moved
        return None
    return session.panes[int(pane)].frames.partition(int(frame))


def _place(at: Any) -> tuple[float, float] | None:
    if at is None:
        return None
    if not isinstance(at, list | tuple) or len(at) != 2:
        raise RequestError("at must be two numbers: u, v.")
    return number(at[0], "at"), number(at[1], "at")


def _unit(part: Partition, unit: Any) -> tuple[str, int] | None:
    if unit is None:
        return None
    if not isinstance(unit, list | tuple) or len(unit) != 2:
        raise RequestError("unit must be two numbers: layer, unit.")
    layer = integer({"layer": unit[0]}, "layer", len(part.layers))
    return part.layers[layer], integer({"unit": unit[1]}, "unit", 1 << 31)
