"""The scene as a message: what is shown, with names, colours, data points and images."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch

from splinecam.analysis.partition_data import PartitionData
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame
from splinecam.geometry.subdivision import polygon_mesh
from splinecam.plot.arrays import to_numpy
from splinecam.plot.colors import class_names, output_name
from splinecam.plot.decorations import axis_names
from splinecam.plot.images import sample_limits
from splinecam.plot.palette import class_palette
from splinecam.plot.regions import default_color
from splinecam.viewer.answers import Answer
from splinecam.viewer.meshes import MAX_CLASSES, has_classes
from splinecam.viewer.panes import Pane
from splinecam.viewer.samples import anchors_of, hex_color, points_of
from splinecam.viewer.scene_options import SceneOptions

__all__ = ["COLUMNS", "pane_answer", "representative", "scene_answer"]

COLUMNS = (  # of ``part.table()``, beside those that have a colouring of their own
    "perimeter",
    "diameter",
    "eccentricity",
    "slope_spectral",
    "slope_frobenius",
    "centroid_u",
    "centroid_v",
)
_LABELS = {"layer": "last layer", "vertices": "corners", "merged": "merged pieces"}
_NAMED = 1000  # outputs whose names are sent
_PRECISE = 64  # inputs of so many numbers are shown as numbers, and sent in double precision
_GRID = 5  # inputs per axis from which the range of pixels is found


def scene_answer(panes: Sequence[Pane], options: SceneOptions) -> Answer:
    """The scene: all panes with their arrays."""
    answers = [pane_answer(number, pane, options) for number, pane in enumerate(panes)]
    header = {
        "kind": "scene",
        "title": options.title or " | ".join(dict.fromkeys(pane.title for pane in panes)),
        "live": options.live,
        "panes": [answer.message for answer in answers],
        "state": _state(representative(panes[0]), options),
        "python": options.python,
    }
    arrays: dict[str, Any] = {}
    for answer in answers:
        arrays |= answer.arrays
    return Answer(header, arrays)


def _state(part: PartitionData, options: SceneOptions) -> dict[str, Any]:
    """The state to begin with, as far as it is known."""
    color = options.color or default_color(part)
    if color == "class" and not has_classes(part, options.level):
        color = "output"
    begin: dict[str, Any] = {"color": color}
    if options.output is not None:
        begin["output"] = options.output
    if options.level is not None:
        begin["level"] = options.level
    return begin | dict(options.state)


def pane_answer(number: int, pane: Pane, options: SceneOptions) -> Answer:
    """The header of a pane, and its arrays under names that begin with the pane's number."""
    part, domain, plane = representative(pane), pane.domain, pane.plane
    n, notes = int(part.values.shape[1]), list[str]()
    if n > MAX_CLASSES:
        notes.append(f"There are {n:,} outputs: too many to show where each of them is largest.")
    points = points_of(part, domain, options, notes)
    anchors = anchors_of(domain, plane.inputs if plane else options.anchors, options.shape)
    header = {
        "title": pane.title,
        "frames": list(pane.labels),
        "grows": pane.grows and options.live,
        "live": plane is not None,
        "domain": _domain_header(domain, options),
        "layers": [
            {"name": name, "units": int(part.layer_errors[name].shape[0])} for name in part.layers
        ],
        "outputCount": n,
        "outputs": [output_name(part, k) for k in range(min(n, _NAMED))],
        "classes": _classes(part, options),
        "colorings": _colorings(part, options),
        "points": points.message or None,
        "anchors": anchors.message or None,
        "directions": [
            {"name": each.name, "turn": True, "reach": each.reach} for each in plane.directions
        ]
        if plane
        else [],
        "start": None if pane.start is None else list(pane.start),
        "notes": notes,
    }
    precision = np.float64 if domain.dim <= _PRECISE else np.float32
    arrays = {
        "origin": to_numpy(domain.origin).astype(precision),
        "basis": to_numpy(domain.basis).astype(precision),
        **points.arrays,
        **anchors.arrays,
    }
    return Answer(header, {f"{number}/{name}": array for name, array in arrays.items()})


def representative(pane: Pane) -> PartitionData:
    """A partition with the layers, outputs and names of a pane: its first, or the bare domain.

    A network whose partition is not known is not partitioned for this.
    """
    given = pane.frames.partition(0)
    if given is not None:
        return given
    network = pane.frames.network(0)
    program, domain = network.program, pane.domain
    local = Frame.of(domain).to_local(domain.corners)
    n = prod(program.output_shape)
    bare = PartitionData(
        domain=domain,
        mesh=polygon_mesh(local),
        values=torch.zeros((1, 1), dtype=torch.float64).expand(len(local), n),
        value_error=torch.zeros(1, dtype=torch.float64).expand(n),
        layer_errors={layer.name: torch.zeros(prod(layer.shape)) for layer in program.layers},
        unresolved=(),
        layers=tuple(layer.name for layer in program.layers),
        stripped=program.stripped,
        dtype=torch.float64,
    )
    bare.names = network.names
    return bare


def _domain_header(domain: Domain, options: SceneOptions) -> dict[str, Any]:
    return {
        "corners": domain.corners.tolist(),
        "inputShape": list(domain.input_shape),
        "image": _image(domain, options),
        "axes": list(axis_names(domain)),
    }


def _image(domain: Domain, options: SceneOptions) -> dict[str, Any] | None:
    """How an input is an image: its size, and the numbers that are black and white."""
    shape = tuple(domain.input_shape if options.shape is None else options.shape)
    if len(shape) == 2:
        shape = (1, *shape)
    if len(shape) != 3 or shape[0] not in (1, 3) or prod(shape) != domain.dim:
        return None
    corners = domain.corners
    side = torch.linspace(0, 1, _GRID, dtype=torch.float64)
    low, high = corners.amin(0), corners.amax(0)
    uv = low + torch.cartesian_prod(side, side) * (high - low)
    pixels = to_numpy(domain.embed(uv)).reshape(len(uv), -1)
    black, white = sample_limits(pixels, to_numpy(domain.origin))
    size = {"height": shape[1], "width": shape[2], "channels": shape[0]}
    return {**size, "low": black, "high": white}


def _classes(part: PartitionData, options: SceneOptions) -> list[dict[str, str]] | None:
    """The names and colours of the classes."""
    if not has_classes(part, options.level):
        return None
    names = class_names(part, options.names, options.level or 0.0)
    colors = [hex_color(color) for color in class_palette(len(names))]
    return [{"name": name, "color": color} for name, color in zip(names, colors, strict=True)]


def _colorings(part: PartitionData, options: SceneOptions) -> list[dict[str, Any]]:
    """What regions can be coloured by."""
    kinds = ["slope", "area", "output", "layer", "vertices", "random", "merged"]
    if has_classes(part, options.level):
        kinds.insert(0, "class")
    own = [name for name in options.colors if name not in kinds]
    if options.color not in (None, "class", *kinds, *COLUMNS, *own):  # the name of a colour
        own.append(str(options.color))
    columns = [name for name in COLUMNS if name not in own]
    return [
        {
            "name": name,
            "label": _LABELS.get(name, name.replace("_", " ") if name in COLUMNS else name),
            "byOutput": name in ("slope", "output") and part.values.shape[1] > 1,
        }
        for name in (*kinds, *own, *columns)
    ]
