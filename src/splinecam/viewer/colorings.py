"""The colours of a mesh as a message: the same colours and words as in the static pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.colors import Colormap, LogNorm, Normalize, TwoSlopeNorm, is_color_like, to_rgb
from torch import Tensor

from splinecam.analysis.measures import table_columns
from splinecam.analysis.partition_data import PartitionData
from splinecam.plot.arrays import Floats, Pixels, to_numpy
from splinecam.plot.cell_image import CellColors
from splinecam.plot.colors import (
    Coloring,
    ColorOptions,
    Limits,
    color_regions,
    output_name,
    output_scale,
)
from splinecam.viewer.answers import Answer, RequestError
from splinecam.viewer.class_colors import class_coloring
from splinecam.viewer.meshes import has_classes
from splinecam.viewer.samples import hex_color
from splinecam.viewer.scene import COLUMNS
from splinecam.viewer.scene_options import SceneOptions

__all__ = ["BY_OUTPUT", "check_name", "coloring_answer", "coloring_of", "given_colors", "lut_of"]

BY_OUTPUT = ("slope", "output")
_BUILT_IN = ("slope", "area", "layer", "vertices", "random", "merged")
_ENTRIES = 256  # colours of a table that a colour map is sent as


def coloring_of(
    part: PartitionData,
    name: str,
    output: int | None,
    options: SceneOptions,
    *,
    like: Limits | None = None,
    given: Any = None,
) -> Coloring:
    """The colours of a partition by one of the names that the scene lists.

    output: that which "slope" and "output" mean. like: the limits of the whole picture, of which
    the partition is a window. given: numbers or colours of the regions under a name of their own.
    """
    limits = options.limits if name == (options.color or "") else None
    chosen = ColorOptions(
        output if name in BY_OUTPUT else None,
        options.cmap,
        like or limits,
        options.level or 0.0,
        options.seed,
        options.names,
    )
    if given is not None:
        return replace(color_regions(part, given, chosen), label=name)
    if name == "class":
        if not has_classes(part, options.level):
            raise RequestError("There are no classes: the network has one output, or too many.")
        return class_coloring(part, chosen)
    if name == "output":
        return _output_coloring(part, output or 0, chosen)
    if name in _BUILT_IN:
        return color_regions(part, name, chosen)
    check_name(name, options)
    if not _is_column(name):
        return color_regions(part, name, chosen)
    columns = part._remembered("table", None, lambda: table_columns(part))
    if name not in columns:
        raise RequestError(f"There is no colouring {name[:60]!r}: the table has no such column.")
    numbers = np.asarray(columns[name], np.float64)
    return replace(color_regions(part, numbers, chosen), label=name.replace("_", " "))


def check_name(name: str, options: SceneOptions) -> None:
    """Raise an error unless there is a colouring by a name, or it is the name of a colour."""
    known = (*_BUILT_IN, "class", "output", *options.colors, *COLUMNS)
    if name not in known and not _is_column(name) and not is_color_like(name):
        names = ", ".join(map(repr, known))
        raise RequestError(f"There is no colouring {name[:60]!r}; choose of {names}.")


def _is_column(name: str) -> bool:
    """Whether a name may be that of a column of the table."""
    return name in COLUMNS or name.startswith("output_")


def _output_coloring(part: PartitionData, output: int, options: ColorOptions) -> Coloring:
    """Colours of an output, with its values in the middle of the regions.

    The browser interpolates the values at the vertices, so that no maps are needed.
    """
    mesh, values = part.mesh, part.values[:, output]
    middle = to_numpy(mesh.sums(values[mesh.corner_vertices()]) / mesh.counts())
    norm, cmap = output_scale(part, middle, options)
    extremes = float(values.min()), float(values.max())
    fill = CellColors(numbers=middle)
    return Coloring(mesh, fill, output_name(part, output), norm, cmap, extremes)


def given_colors(colors: Any, part: PartitionData, whole: PartitionData) -> Any:
    """The numbers or colours that were given for the regions of a partition.

    colors: an array, or a function of a partition. whole: the partition of the frame, of which
    ``part`` may be a window: its regions have the colours of those in which they lie.
    """
    if callable(colors):
        return colors(part)
    if part is whole or len(colors) != len(whole):
        return colors  # the colouring says what is wrong with them
    local = whole.frame.to_local(part.frame.to_plane(part.mesh.means()))
    parent = whole._locator(local).clamp(min=0)
    if isinstance(colors, Tensor):
        return colors.detach().cpu()[parent.cpu()]
    return np.asarray(colors)[to_numpy(parent)]


def coloring_answer(coloring: Coloring, about: Mapping[str, Any], outputs: Sequence[int]) -> Answer:
    """Colours as a message; about: the mesh, name and output that were asked for.

    outputs: those that the mesh holds.
    """
    fill, arrays = coloring.fill, dict[str, Any]()
    header: dict[str, Any] = {
        "kind": "coloring",
        **about,
        "label": coloring.label,
        "by": "region",
        "scale": _scale(coloring),
        "legend": [
            {"name": str(name), "color": hex_color(np.array(to_rgb(color)))}
            for name, color in coloring.legend
        ],
    }
    if about["name"] == "class":
        typical = 0.0 if coloring.scale is None else coloring.scale[1]
        header |= {"by": "class", "typical": typical}
    elif fill.colors is not None:
        arrays["colors"] = _bytes(fill.colors)
    else:
        assert fill.numbers is not None
        assert coloring.cmap is not None
        arrays["lut"] = lut_of(coloring.cmap)
        if about["name"] == "output":
            header["output"] = about["output"] or 0
        if about["name"] == "output" and header["output"] in outputs:
            header["by"] = "output"
        else:
            arrays["numbers"] = fill.numbers.astype(np.float32)
    if coloring.edges is not None:
        arrays["edges"] = to_numpy(coloring.edges).astype(np.uint32)
    return Answer(header, arrays)


def lut_of(cmap: Colormap) -> Pixels:
    """A colour map as a table, (256, 3), each entry in the middle of its part of the scale."""
    places = (np.arange(_ENTRIES) + 0.5) / _ENTRIES
    return _bytes(np.asarray(cmap(places)))


def _bytes(colors: Floats) -> Pixels:
    """Colours (n, 3 or 4) of numbers from 0 to 1 on white, as bytes (n, 3)."""
    rgb = colors[:, :3]
    if colors.shape[1] == 4 and (colors[:, 3] < 1).any():
        rgb = 1 - colors[:, 3:] * (1 - rgb)
    return np.asarray(255 * rgb + 0.5).astype(np.uint8)


def _scale(coloring: Coloring) -> dict[str, Any] | None:
    """How numbers become places in the table of colours."""
    norm = coloring.norm
    if norm is None:
        return None
    low, high = coloring.limits or (0.0, 1.0)
    kind, center = "linear", (low + high) / 2
    if isinstance(norm, LogNorm):
        kind, center = "log", (low * high) ** 0.5
    elif isinstance(norm, TwoSlopeNorm):
        kind, center = "centered", float(norm.vcenter)
    elif type(norm) is not Normalize:
        raise RequestError(f"A scale of {type(norm).__name__} cannot be shown.")
    return {"type": kind, "low": low, "center": center, "high": high, "extend": coloring.extend}
