"""The scene and its meshes as messages: arrays, names, colours, data points and images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch
from matplotlib.colors import LogNorm, Normalize, TwoSlopeNorm, is_color_like, to_hex
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.options import as_float64
from splinecam._util.tolerances import SAFETY
from splinecam.geometry.domain import Domain, Frame
from splinecam.geometry.subdivision import polygon_mesh
from splinecam.plot import arrays as plain
from splinecam.plot.arrays import Bools, Floats, Pixels, to_numpy
from splinecam.plot.colors import (
    Coloring,
    ColorOptions,
    Limits,
    class_legend,
    class_names,
    color_regions,
    output_name,
    output_scale,
)
from splinecam.plot.decorations import axis_names
from splinecam.plot.images import sample_limits
from splinecam.plot.palette import class_colors
from splinecam.plot.picture import Classes, pictures_of, samples_of
from splinecam.plot.rasters import CellColors
from splinecam.plot.regions import default_color
from splinecam.questions.boundary import knows_classes
from splinecam.questions.certainty import class_band
from splinecam.questions.class_regions import class_regions
from splinecam.questions.measures import table_columns
from splinecam.questions.partition_data import PartitionData
from splinecam.questions.wanted import Wanted
from splinecam.viewer.answers import RequestError, number
from splinecam.viewer.container import Message
from splinecam.viewer.panes import Pane, SceneOptions

_CUT = 20_000  # how many regions are few, and are cut along the decision boundary for the scale


def class_coloring(part: PartitionData, options: ColorOptions, *, most: int = _CUT) -> Coloring:
    """Return colours by class: their legend, and their scale up to the typical lead."""
    # Few regions are cut into cells of one class each, as for pictures; of many regions, those on
    # the boundary hardly change the median lead. With given limits, only classes are to be found.
    if options.limits is None and len(part) <= most:
        return color_regions(part, "class", options)
    values = part._outputs
    if options.limits is None:
        mesh, weight = part.mesh, to_numpy(part.areas)
        values = mesh.sums(values[mesh.corner_vertices()]) / mesh.counts()[:, None]
        winner, lead = plain.classes_and_leads(values, options.level)
        typical = float(plain.weighted_quantiles(lead, [0.5], weight)[0])
    else:
        winner, _ = plain.classes_and_leads(values, options.level)
        weight, typical = np.ones(len(winner)), options.limits[1]
    label, legend = class_legend(part, winner, weight, options)
    scale, fill = (0.0, typical) if typical > 0 else None, CellColors(colors=np.zeros((0, 4)))
    return Coloring(part.mesh, fill, label, legend=legend, scale=scale)


_STEPS = 127  # of a byte, on each side of 0


def winning_outputs(part: PartitionData, regions: Tensor) -> Tensor:
    """Return the largest output (N,) in the middle of each region (N,)."""
    mesh, n = part.mesh, part._n_out
    if n == 1:
        return torch.zeros_like(regions)
    if regions.shape[0] == 1:
        first, last = mesh.offsets[regions[0]], mesh.offsets[regions[0] + 1]
        corner = mesh.edges.view(-1)[mesh.corners[first:last]]
        return part._outputs[corner].mean(0).argmax()[None]
    middle = mesh.sums(part._outputs[mesh.corner_vertices()]) / mesh.counts()[:, None]
    return middle.argmax(1)[regions]


def gradients_at(part: PartitionData, regions: Tensor, outputs: Tensor) -> Tensor:
    """Return the derivative (N, D) of one output for each region; regions, outputs: (N,)."""
    if part._program is None and part.domain.dim == 2:  # maps are known without the network
        slope = part.weight[regions, outputs]
        return slope @ part.domain.basis.to(slope)
    program, domain = part._network, part.domain
    widest = max([domain.dim, *(prod(layer.shape) for layer in program.layers)])
    rows = max(1, backend_of(part.mesh.uv.device).traced_activations // widest)
    middle = part._frame.to_plane(part.mesh.means()[regions])
    found = []
    for uv, output in zip(torch.split(middle, rows), torch.split(outputs, rows), strict=True):
        with torch.inference_mode(False), torch.enable_grad():
            x = domain.embed(uv).clone().requires_grad_()
            # Points do not mix, so one backward pass is enough for all of them.
            chosen = program(x).flatten(1).gather(1, output[:, None]).sum()
            slope = torch.autograd.grad(chosen, x, materialize_grads=True)[0]
        found.append(slope.flatten(1))
    return torch.cat(found) if found else part._outputs.new_zeros((0, domain.dim))


def gradient_answer(part: PartitionData, mesh: str, region: int, output: int | None) -> Message:
    """Return the derivative of an output, or of the winning one, on a region as a message."""
    regions = torch.tensor([region], device=part.mesh.uv.device)
    part._require_complete(regions)
    chosen = winning_outputs(part, regions)
    if output is not None:
        chosen = torch.full_like(chosen, output)
    slope = to_numpy(gradients_at(part, regions, chosen)[0]).astype(np.float32)
    header = {"kind": "gradient", "mesh": mesh, "region": region, "output": int(chosen[0])}
    return Message(header, {"gradient": slope})


def quantized_gradients(part: PartitionData) -> dict[str, Any]:
    """Return bytes (F, D) that are, times their scales (F,), derivatives of the winning outputs."""
    regions = torch.arange(len(part), device=part.mesh.uv.device)
    outputs = winning_outputs(part, regions)
    slope = to_numpy(gradients_at(part, regions, outputs))
    scale = np.abs(slope).max(1, initial=0.0) / _STEPS
    steps = np.rint(slope / np.where(scale > 0, scale, 1)[:, None])
    return {
        "gradients": steps.astype(np.int8),
        "gradientScale": scale.astype(np.float32),
        "gradientOutput": to_numpy(outputs).astype(np.uint32),
    }


def band_answer(part: PartitionData, about: dict[str, Any], level: Any) -> Message:
    """Return the polygons on which no class is certain, in the partition's local coordinates."""
    band = class_band(part, smallest=False, level=number(level, "level"))
    frame = {"center": part._frame.center.tolist(), "scale": part._frame.scale}
    points = to_numpy(part._frame.to_local(band.vertices))
    arrays = {"points": points, "counts": _as(band.offsets.diff(), np.uint16)}
    return Message({"kind": "band", **about, **frame, "share": band.share}, arrays)


MAX_CLASSES = 32_000  # the time to find the winner of every point grows with the outputs
_BLOCK = 1 << 22  # numbers in a block


@dataclass(frozen=True)
class MeshSizes:
    """How much a mesh may hold."""

    outputs: int = 1000  # how many are sent
    values: int = 16_000_000  # of all outputs together
    points: int = 8_000_000  # coordinates that are sent in double precision
    precise: int = 8_000_000  # values that are sent in double precision
    cut: int = 100_000  # with up to so many vertices, regions are cut to find all winners


def has_classes(part: PartitionData, level: float | None = None) -> bool:
    """Return whether outputs mean classes: as in pictures, or as names or a level are given."""
    named = part.names is not None or level is not None
    known = part._n_out <= MAX_CLASSES and knows_classes(part, level or 0.0)
    return known and (named or default_color(part) == "class")


def mesh_answer(
    part: PartitionData, about: dict[str, Any], level: float | None, sizes: MeshSizes
) -> Message:
    """Return the mesh of a partition; about: its id, pane, frame and window."""
    mesh, outputs, values = part.mesh, outputs_of(part, level, sizes), part._outputs
    if len(outputs) < values.shape[1]:
        values = values[:, torch.tensor(outputs, device=values.device)]
    header = {
        "kind": "mesh",
        **about,
        "center": part._frame.center.tolist(),
        "scale": part._frame.scale,
        "regionCount": len(part),
        "outputs": outputs,
        "outputNames": [output_name(part, k) for k in outputs],
        "errors": (SAFETY * part._value_error[outputs]).tolist(),
        "ranges": torch.stack([values.amin(0), values.amax(0)], 1).tolist(),
        "unresolved": len(part.unresolved),
    }
    few = to_numpy(mesh.counts()).max(initial=0) < 256
    arrays = {
        "points": _real(mesh.uv, sizes.points),
        "edges": _as(mesh.edges, np.uint32),
        "corners": _as(mesh.corners, np.uint32),
        "counts": _as(mesh.counts(), np.uint8 if few else np.uint16),
        "edgeLayer": _as(mesh.edge_layer, np.int16),
        "edgeUnit": _as(mesh.edge_unit, np.int32),
        "values": _real(values, sizes.precise),
    }
    if part.smoothing is not None:
        header["within"] = part.smoothing.within
        bounds = to_numpy(part.region_bounds)[:, outputs]
        single = bounds.astype(np.float32)  # and rounded up
        above = np.nextafter(single, np.float32(np.inf))
        arrays["regionBounds"] = np.where(single < bounds, above, single)
    if part._wanted is not None:
        header |= {"settled": _settled(part._wanted), "level": level or 0.0}
        arrays["complete"] = _as(part.complete, np.uint8)
    return Message(header, arrays)


def _settled(wanted: Wanted) -> str:
    """Return what is known of a region that is not divided, as a sentence."""
    if wanted.condition is not None:
        return "Not divided: the condition on the outputs holds all over it, or nowhere in it."
    crosses = "do not cross" if len(wanted.levels) > 1 else "does not cross"
    return f"Not divided: {wanted.words} {crosses} it."


def _as(values: Tensor, dtype: Any) -> Any:
    return to_numpy(values).astype(dtype)


def _real(values: Tensor, precise: int) -> Any:
    return _as(values, np.float64 if values.numel() <= precise else np.float32)


def outputs_of(part: PartitionData, level: float | None, sizes: MeshSizes) -> list[int]:
    """Return the outputs to send, ascending: all, or those that win somewhere or come closest."""
    n, vertices = part._n_out, part.mesh.num_vertices
    most = max(2, min(sizes.outputs, sizes.values // max(1, vertices)))
    if n <= most:
        return list(range(n))
    exact = vertices <= sizes.cut  # among very many vertices, each winner wins at some of them
    classes = has_classes(part, level)

    def find() -> list[int]:
        values = part._outputs
        # How close each output comes to the largest at any vertex: 0, or the negative gap.
        lead = values.new_full((n,), -torch.inf)
        for block in torch.split(values, max(1, _BLOCK // n)):
            lead = torch.maximum(lead, (block - block.amax(1, keepdim=True)).amax(0))
        if classes:
            winners = torch.unique(class_regions(part).cell_class) if exact else lead == 0
            lead[winners] = torch.inf
        count = max(most, int(lead.isinf().sum()))
        return sorted(torch.topk(lead, count).indices.tolist())

    return part._remembered("outputs of a viewer", (most, exact, classes), find)


_LARGEST = 48  # pixels on the longer side of a thumbnail
_MOST = 64  # thumbnails of one scene
_NAMED_LABELS = 1 << 16  # the most names of labels that are sent


def points_of(
    part: PartitionData, domain: Domain, options: SceneOptions, notes: list[str]
) -> Message:
    """Return the data points in a domain; add a note about points that are left out."""
    if options.points is None:
        if options.labels is not None or options.images not in (None, False):
            raise ValueError("labels and images belong to points: give points= as well")
        return Message({})
    given = as_float64(options.points, "points")
    given = given.reshape(-1, *domain.input_shape) if given.numel() == domain.dim else given
    images = options.images
    if images is True:
        images = given if options.shape is None else given.reshape(-1, *options.shape)
    images = None if images is None or images is False else images
    labels, finite = options.labels, to_numpy(given.flatten(1).isfinite().all(1))
    if not finite.all():
        lost = int((~finite).sum())
        which = f"{lost:,} of {len(finite):,} data points"
        notes.append(f"{which} {'is' if lost == 1 else 'are'} left out: not finite.")
        given = given[torch.from_numpy(finite).to(given.device)]
        labels, images = _rows(labels, finite), _rows(images, finite)
    classes = Classes.of(part, options.names, options.level or 0.0, any_label=True)
    found = samples_of(domain, given, labels, classes, distinct=True)
    outside = len(given) - len(found.uv)
    if outside:
        notes.append(f"{outside:,} of {len(finite):,} data points are outside of the domain.")
    number = np.flatnonzero(finite)[found.kept].astype(np.uint32)
    off = found.off.astype(np.uint8)
    arrays: dict[str, Any] = {"points": found.uv, "off": off, "number": number}
    header: dict[str, Any] = {"count": len(found.uv), "thumbnail": None, "labels": [], "colors": []}
    if found.labels is not None:
        count = min(int(found.labels.max(initial=-1)) + 1, _NAMED_LABELS)
        header["labels"] = [found.classes.name(k) for k in range(count)]
        palette = class_colors(found.classes.first + count)[found.classes.first :]
        header["colors"] = [to_hex(color) for color in palette]
        arrays["label"] = found.labels.astype(np.int16 if count < 1 << 15 else np.int32)
    if images is not None:
        pictures = pictures_of(images)
        if len(pictures) != len(given):
            raise ValueError(
                f"images has {len(pictures)} pictures for {len(given)} points: give one each"
            )
        small = thumbnails(pictures[found.kept[:_MOST]])
        header["thumbnail"], arrays["thumbnails"] = list(small.shape[1:3]), small
    return Message(header, arrays)


def _rows(values: Any, kept: Bools) -> Any:
    """Return some of the labels or images; all if their number is wrong, as is noticed later."""
    if values is None:
        return None
    array = np.asarray(to_numpy(values))
    return array[kept] if len(array) == len(kept) else array


def anchors_of(domain: Domain, anchors: Any, shape: Sequence[int] | None) -> Message:
    """Return three inputs that span the plane, with thumbnails if they are images, or nothing."""
    if anchors is None:
        return Message({})
    given = as_float64(anchors, "anchors")
    if given.ndim < 2 or len(given) != 3 or not bool(given.isfinite().all()):
        raise ValueError(f"anchors must be three inputs of finite numbers, not {given.shape}")
    at = domain.project(given)[0]
    header: dict[str, Any] = {"at": at.tolist(), "thumbnail": None}
    size = tuple(domain.input_shape if shape is None else shape)
    if len(size) not in (2, 3) or (len(size) == 3 and size[0] not in (1, 3)):
        return Message(header)
    small = thumbnails(pictures_of(given.reshape(3, *size)))
    header["thumbnail"] = list(small.shape[1:3])
    return Message(header, {"anchors": small})


def thumbnails(pictures: Floats) -> Pixels:
    """Return pictures (N, h, w) or (N, h, w, 3 or 4) as small pixels (N, h, w, 4)."""
    array = np.nan_to_num(np.asarray(pictures, np.float64), posinf=0.0, neginf=0.0)
    if array.ndim == 3:  # grey ones are black at their smallest number and white at their largest
        low, high = (f(array, axis=(1, 2), keepdims=True) for f in (np.min, np.max))
        array = ((array - low) / np.where(high > low, high - low, 1))[..., None]
    if array.shape[3] < 3:
        array = np.repeat(array, 3, 3)
    if array.shape[3] == 3:
        array = np.pad(array, ((0, 0), (0, 0), (0, 0), (0, 1)), constant_values=1.0)
    height, width = array.shape[1:3]
    shrink = min(1.0, _LARGEST / max(height, width, 1))
    if shrink < 1 and len(array):
        size = max(1, round(shrink * height)), max(1, round(shrink * width))
        stacked = torch.from_numpy(np.moveaxis(array, 3, 1).copy())
        pooled = torch.nn.functional.adaptive_avg_pool2d(stacked, size)
        array = np.moveaxis(pooled.numpy(), 1, 3)
    return np.ascontiguousarray(255 * np.clip(array, 0, 1) + 0.5, np.uint8)


# Columns of ``part.table()`` by which regions are coloured, besides the built-in colourings.
_SIZES = ("perimeter", "diameter", "eccentricity")
COLUMNS = (*_SIZES, "slope_spectral", "slope_frobenius", "centroid_u", "centroid_v")
_LABELS = {"layer": "last layer", "vertices": "corners", "merged": "merged pieces"}
_NAMED = 1000  # the most names of outputs that are sent
_PRECISE = 64  # inputs of up to 64 numbers are shown as numbers, and sent in double precision
_GRID = 5  # the range of pixels is found from 5 x 5 inputs


def scene_answer(panes: Sequence[Pane], options: SceneOptions) -> Message:
    """Return the scene: all panes with their arrays."""
    answers = [pane_answer(number, pane, options) for number, pane in enumerate(panes)]
    part = representative(panes[0])
    color = options.color or default_color(part)
    if color == "class" and not has_classes(part, options.level):
        color = "output"
    begin = {"color": color, "output": options.output, "level": options.level}
    known = {name: value for name, value in begin.items() if value is not None}
    header = {
        "kind": "scene",
        "title": options.title or " | ".join(dict.fromkeys(pane.title for pane in panes)),
        "live": options.live,
        "panes": [answer.message for answer in answers],
        "state": known | dict(options.state),
        "python": options.python,
    }
    return Message(header, {name: array for each in answers for name, array in each.arrays.items()})


def pane_answer(number: int, pane: Pane, options: SceneOptions) -> Message:
    """Return the header of a pane, and its arrays; their names begin with the pane's number."""
    part, domain, plane = representative(pane), pane.domain, pane.plane
    n, notes = part._n_out, list[str]()
    if n > MAX_CLASSES:
        notes.append(f"There are {n:,} outputs: too many to show where each of them is largest.")
    if part._wanted is not None:
        what = "The others show no outputs, no level sets and not all lines of units."
        notes.append(f"Regions are divided for {part._wanted.words} alone. {what}")
    points = points_of(part, domain, options, notes)
    anchors = anchors_of(domain, plane.inputs if plane else options.anchors, options.shape)
    known = plane.directions if plane else ()
    directions = [{"name": each.name, "turn": True, "reach": each.reach} for each in known]
    units = {name: int(part._layer_errors[name].shape[0]) for name in part.layers}
    header = {
        "title": pane.title,
        "frames": list(pane.labels),
        "grows": pane.frames.grows and options.live,
        "live": plane is not None,
        "domain": {
            "corners": domain.corners.tolist(),
            "inputShape": list(domain.input_shape),
            "image": _image(domain, options),
            "axes": list(axis_names(domain)),
        },
        "layers": [{"name": name, "units": count} for name, count in units.items()],
        "outputCount": n,
        "outputs": [output_name(part, k) for k in range(min(n, _NAMED))],
        "classes": _classes(part, options),
        "colorings": _colorings(part, options),
        "points": points.message or None,
        "anchors": anchors.message or None,
        "directions": directions,
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
    return Message(header, {f"{number}/{name}": array for name, array in arrays.items()})


def representative(pane: Pane) -> PartitionData:
    """Return a partition with the layers, outputs and names of a pane: its first, or the domain."""
    given = pane.frames.partition(0)
    if given is not None:
        return given
    network, domain = pane.frames.network(0), pane.domain
    program, local = network.program, Frame.of(domain).to_local(domain.corners)
    n = prod(program.output_shape)
    bare = PartitionData(
        domain=domain,
        mesh=polygon_mesh(local),
        _outputs=torch.zeros((1, 1), dtype=torch.float64).expand(len(local), n),
        _value_error=torch.zeros(1, dtype=torch.float64).expand(n),
        _layer_errors={layer.name: torch.zeros(prod(layer.shape)) for layer in program.layers},
        unresolved=(),
        layers=tuple(layer.name for layer in program.layers),
        stripped=program.stripped,
        _dtype=torch.float64,
    )
    bare.names = network.names
    return bare


def _image(domain: Domain, options: SceneOptions) -> dict[str, Any] | None:
    """Return the size of inputs that are images, and the numbers that are black and white."""
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
    """Return the names and colours of the classes, if there are classes."""
    if not has_classes(part, options.level):
        return None
    names = class_names(part, options.names, options.level or 0.0)
    colors = [to_hex(color) for color in class_colors(len(names))]
    return [{"name": name, "color": color} for name, color in zip(names, colors, strict=True)]


def _colorings(part: PartitionData, options: SceneOptions) -> list[dict[str, Any]]:
    """Return the colourings of regions that a viewer offers."""
    kinds = ["slope", "area", "output", "layer", "vertices", "random", "merged"]
    if part._wanted is not None:
        kinds = ["area", "layer", "vertices", "random"]
    if has_classes(part, options.level):
        kinds.insert(0, "class")
    own = [name for name in options.colors if name not in kinds]
    if options.color not in (None, "class", *kinds, *COLUMNS, *own):  # the name of a colour
        own.append(str(options.color))
    columns = [name for name in COLUMNS if name not in own and part._wanted is None]
    return [
        {
            "name": name,
            "label": _LABELS.get(name, name.replace("_", " ") if name in COLUMNS else name),
            "byOutput": name in BY_OUTPUT and part._n_out > 1,
        }
        for name in (*kinds, *own, *columns)
    ]


BY_OUTPUT = ("slope", "output")
_BUILT_IN = ("slope", "area", "layer", "vertices", "random", "merged")
_ENTRIES = 256  # colours of the table for a colour map


def coloring_of(
    part: PartitionData,
    name: str,
    output: int | None,
    options: SceneOptions,
    *,
    like: Limits | None = None,
    given: Any = None,
) -> Coloring:
    """Return colours by one of the scene's names; like: the limits of the whole picture."""
    limits = like or (options.limits if name == (options.color or "") else None)
    level, by = options.level or 0.0, output if name in BY_OUTPUT else None
    chosen = ColorOptions(by, options.cmap, limits, level, options.seed, options.names)
    if given is not None:
        return replace(color_regions(part, given, chosen), label=name)
    if name == "class":
        if not has_classes(part, options.level):
            part._require("classes")
            raise RequestError("There are no classes: the network has one output, or too many.")
        return class_coloring(part, chosen)
    if name == "output":
        part._require("colours by outputs")
        mesh, values = part.mesh, part.values[:, output or 0]
        middle = to_numpy(mesh.sums(values[mesh.corner_vertices()]) / mesh.counts())
        scale, fill = output_scale(part, middle, chosen), CellColors(numbers=middle)
        ends = float(values.min()), float(values.max())
        return Coloring(mesh, fill, output_name(part, output or 0), *scale, ends)
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
    """Raise an error unless a name is that of a colouring or of a colour."""
    known = (*_BUILT_IN, "class", "output", *options.colors, *COLUMNS)
    if name not in known and not _is_column(name) and not is_color_like(name):
        names = ", ".join(map(repr, known))
        raise RequestError(f"There is no colouring {name[:60]!r}; choose of {names}.")


def _is_column(name: str) -> bool:
    """Return whether a name may be that of a column of the table."""
    return name in COLUMNS or name.startswith("output_")


def given_colors(colors: Any, part: PartitionData, whole: PartitionData) -> Any:
    """Return the numbers or colours that were given for the regions of a partition.

    colors: an array, or a function of a partition. whole: the partition of the frame; regions of a
    window get the colours of the regions around them.
    """
    if callable(colors):
        return colors(part)
    if part is whole or len(colors) != len(whole):
        return colors  # the colouring says what is wrong with them
    local = whole._frame.to_local(part._frame.to_plane(part.mesh.means()))
    parent = whole._locator(local).clamp(min=0)
    if isinstance(colors, Tensor):
        return colors.detach().cpu()[parent.cpu()]
    return np.asarray(colors)[to_numpy(parent)]


def coloring_answer(
    coloring: Coloring, about: Mapping[str, Any], outputs: Sequence[int]
) -> Message:
    """Return colours as a message; about: mesh, name and output; outputs: those of the mesh."""
    fill, arrays = coloring.fill, dict[str, Any]()
    header: dict[str, Any] = {
        "kind": "coloring",
        **about,
        "label": coloring.label,
        "by": "region",
        "scale": _scale(coloring),
        "legend": [{"name": str(name), "color": to_hex(color)} for name, color in coloring.legend],
    }
    if about["name"] == "class":
        typical = 0.0 if coloring.scale is None else coloring.scale[1]
        header |= {"by": "class", "typical": typical}
    elif fill.colors is not None:
        arrays["colors"] = _bytes(fill.colors)
    else:
        assert fill.numbers is not None
        assert coloring.cmap is not None
        # Each entry of the table is in the middle of its part of the scale.
        places = (np.arange(_ENTRIES) + 0.5) / _ENTRIES
        arrays["lut"] = _bytes(np.asarray(coloring.cmap(places)))
        if about["name"] == "output":
            header["output"] = about["output"] or 0
        if about["name"] == "output" and header["output"] in outputs:
            header["by"] = "output"
        else:
            arrays["numbers"] = fill.numbers.astype(np.float32)
    if coloring.edges is not None:
        arrays["edges"] = to_numpy(coloring.edges).astype(np.uint32)
    return Message(header, arrays)


def _bytes(colors: Floats) -> Pixels:
    """Return colours (n, 3 or 4) of numbers from 0 to 1 on white, as bytes (n, 3)."""
    rgb = colors[:, :3]
    if colors.shape[1] == 4 and (colors[:, 3] < 1).any():
        rgb = 1 - colors[:, 3:] * (1 - rgb)
    return np.asarray(255 * rgb + 0.5).astype(np.uint8)


def _scale(coloring: Coloring) -> dict[str, Any] | None:
    """Return how numbers become places in the table of colours."""
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
