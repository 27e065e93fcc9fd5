"""How partitions, regions, curves and domains show themselves in notebooks, without matplotlib.

The PNG writer is our own, as Python and numpy have none. The cell at each point of a grid is found
as for ``part.plot``. The outputs at the point follow from the outputs at the corners of the cell:
nothing is computed for cells without a point.
"""

from __future__ import annotations

import base64
import html
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from splinecam._util.arrays import owners_of, take_rows
from splinecam._util.backend import is_cpu
from splinecam._util.text import number_text
from splinecam._util.tolerances import EPS
from splinecam.geometry.domain import Domain
from splinecam.geometry.subdivision import Mesh, polygon_mesh
from splinecam.plot.arrays import Bools, Floats, Ints, Pixels, Singles, classes_and_leads, to_numpy
from splinecam.plot.figures import is_input_plane
from splinecam.plot.palette import CLASSES, INK, PAPER, class_colors, paler, rgb
from splinecam.plot.rasters import Cells, PointGrid, counted
from splinecam.plot.regions import default_color
from splinecam.questions.boundary import Boundary, LevelSet
from splinecam.questions.class_regions import ClassRegions
from splinecam.questions.curves import Curves
from splinecam.questions.neurons import NeuronCurves
from splinecam.questions.partition_data import PartitionData, Region

_COLORS = 256
_MOST = 60_000  # bytes of a file; larger pictures are made coarser
_CODES = 1 << 21  # different colours when the palette is chosen


def data_uri(pixels: Pixels) -> str:
    """A picture (h, w, 4) as the source of an image element, of bounded length."""
    file = png(pixels)
    if len(file) > _MOST:  # every pixel becomes the mean of four
        high, wide = (size // 2 * 2 for size in pixels.shape[:2])
        four = pixels[:high, :wide].reshape(high // 2, 2, wide // 2, 2, 4).astype(np.float32)
        file = png(np.asarray(four.mean((1, 3)) + 0.5, np.uint8))
    return f"data:image/png;base64,{base64.b64encode(file).decode()}"


def png(pixels: Pixels) -> bytes:
    r"""A PNG file of a picture (h, w, 4) from the top, with the 256 colours that suit it best.

    >>> png(np.zeros((2, 3, 4), np.uint8))[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    palette, index = _indexed(pixels)
    high, wide = index.shape
    rows = np.zeros((high, wide + 1), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = index
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", wide, high, 8, 3, 0, 0, 0),
        b"PLTE": palette[:, :3].tobytes(),
        b"tRNS": palette[:, 3].tobytes(),
        b"IDAT": zlib.compress(rows.tobytes(), 9),
        b"IEND": b"",
    }
    file = b"\x89PNG\r\n\x1a\n"
    for kind, content in chunks.items():
        check = struct.pack(">I", zlib.crc32(kind + content))
        file += struct.pack(">I", len(content)) + kind + content + check
    return file


def _indexed(pixels: Pixels) -> tuple[Pixels, Pixels]:
    """Up to 256 colours (n, 4), and the number of each pixel's colour (h, w)."""
    flat = pixels.reshape(-1, 4).astype(np.int64)
    r, g, b, a = flat.T
    code = (r >> 2) << 15 | (g >> 2) << 9 | (b >> 2) << 3 | a >> 5
    count = np.bincount(code, minlength=_CODES)
    found = np.flatnonzero(count)
    place = np.zeros(_CODES, np.int64)
    place[found] = np.arange(len(found))
    which = place[code]
    size = count[found]
    mean = np.stack([np.bincount(which, channel) for channel in flat.T], 1) / size[:, None]
    # The most frequent colour of each part of the colour space comes first, so that no rare hue is
    # lost, and then the most frequent colours.
    by_count = np.argsort(-size, kind="stable")
    coarse = (mean[by_count] // 64 @ np.array([64, 16, 4, 1])).astype(np.int64)
    first = np.zeros(len(found), bool)
    first[np.unique(coarse, return_index=True)[1]] = True
    chosen = by_count[np.argsort(~first, kind="stable")[:_COLORS]]
    x, y = mean.astype(np.float32), mean[chosen].astype(np.float32)
    nearest = ((y**2).sum(1) - 2 * (x @ y.T)).argmin(1)
    palette = np.asarray(np.round(mean[chosen]), np.uint8)
    return palette, nearest[which].astype(np.uint8).reshape(pixels.shape[:2])


_SIDE, _FINE = 440, 2  # pixels of the longer side, and points per pixel and axis
_MANY = 200_000  # regions above which a pixel has one point
_NUMBERS = 2_000_000  # outputs computed for a picture, at most; more are on a coarser grid
_LINE, _BOUNDARY = 0.6, 0.9  # opacity of lines where there are few
_CROWDED = 0.2  # share of the picture above which lines are fainter
_GREY, _BORDER = "#7d838b", 0.9  # of the border, which is seen on light and dark pages
_BALANCE = 0.1  # share of the shorter side of the level above which there are two colours


def partition_picture(
    part: PartitionData, *, edges: bool = True, level: float = 0.0
) -> tuple[Pixels, list[int]]:
    """The regions in the colours of classes or of their single output, and the classes seen."""
    with torch.no_grad():
        fine = _FINE if len(part) < _MANY else 1
        grid = _grid(part.mesh, fine)
        owner = _owners(part.mesh, grid)
        step = max(_FINE, int(np.ceil((owner.size * part._n_out / _NUMBERS) ** 0.5)))
        some = slice(step // 2, None, step)  # the points for which outputs are computed
        coarse = owner[some, some]
        values = _values(part, coarse, grid.x()[some], grid.y(0, grid.rows)[some])
    ink = _faded(_borders(owner), _LINE) if edges else np.zeros(owner.shape, np.float32)
    seen: list[int] = []
    if default_color(part) == "class":
        winner, lead = classes_and_leads(torch.from_numpy(values), level)
        light = paler(winner, lead, float(np.median(lead)))
        seen = np.unique(winner[coarse >= 0]).tolist()
        if step == _FINE:
            lines = _borders(np.where(owner >= 0, _repeated(winner, step, owner.shape), -1))
            ink = np.maximum(ink, _faded(lines, _BOUNDARY))
    elif part._wanted is not None:  # neither classes nor outputs are known everywhere
        light = np.broadcast_to(np.asarray(rgb(PAPER)), (*coarse.shape, 3))
    else:
        light = _output_colors(values[..., 0], coarse >= 0, level)
    light = _repeated(light, step, owner.shape)
    light += ink[..., None] * (rgb(INK) - light)
    return _reduced(light, owner >= 0, fine), seen


def curves_picture(curves: Curves) -> Pixels:
    """Curves on white paper of the shape of the domain."""
    with torch.no_grad():
        part = curves.partition
        paper = polygon_mesh(part._frame.to_local(part.domain.corners).cpu())
        grid = _grid(paper, _FINE)
        inside = _owners(paper, grid) >= 0
        ends = to_numpy(curves.local_ends)
        color, palette = _curve_colors(curves)
    kind = np.full(inside.shape, -1)
    for column, row, segment in _points_along(ends, grid):
        kind[row, column] = color[segment]
    if (kind >= 0).mean() < _CROWDED:
        kind = _wider(_wider(kind))
    ink = _faded(kind >= 0, _BOUNDARY)[..., None]
    white = np.asarray(rgb(PAPER), np.float32)
    light = white + ink * (np.asarray(palette, np.float32)[np.maximum(kind, 0)] - white)
    return _reduced(light, inside, _FINE)


def _grid(mesh: Mesh, fine: int) -> PointGrid:
    """The points of a mesh's picture, with so many per pixel and axis."""
    low = to_numpy(mesh.uv.amin(0))
    extent = to_numpy(mesh.uv.amax(0)) - low
    pixels = np.maximum(1, np.round(_SIDE * extent / extent.max())).astype(int)
    columns, rows = (fine * pixels).tolist()
    step = extent / (columns, rows)
    (left, bottom), (run, rise) = low + step / 2, step
    return PointGrid(left, bottom, run, rise, columns, rows)


def _owners(mesh: Mesh, grid: PointGrid) -> Ints:
    """The cell of each point, (rows, columns) from below, -1 outside."""
    return np.concatenate([owner for _, _, owner in Cells.of(mesh, grid).bands(grid)])


def _values(part: PartitionData, owner: Ints, x: Floats, y: Floats) -> Floats:
    """The outputs (rows, columns, n) at points of a grid, in the coordinates of the mesh."""
    regions, place = np.unique(np.maximum(owner, 0), return_inverse=True)
    fit = _fitted(part, torch.from_numpy(regions).to(part.mesh.uv.device))
    middle, mean, slope = map(to_numpy, fit)
    place = place.reshape(owner.shape)
    found: Floats = mean[place]
    found += slope[place, 0] * (x - middle[place, 0])[..., None]
    found += slope[place, 1] * (y[:, None] - middle[place, 1])[..., None]
    return found


def _fitted(part: PartitionData, regions: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Affine functions through the outputs at the corners of some regions (R,).

    Returns the means of corners (R, 2), the outputs there (R, n), and their slopes (R, 2, n). A
    region that is too thin has only a slope along it.
    """
    mesh = part.mesh
    entries, count = take_rows(mesh.offsets, regions)
    vertex = mesh.edges.view(-1)[mesh.corners[entries]]
    which = owners_of(count)

    def total(values: torch.Tensor) -> torch.Tensor:
        zero = values.new_zeros((len(regions), *values.shape[1:]))
        return zero.index_add_(0, which, values)

    uv, z = mesh.uv[vertex], part._outputs[vertex]
    middle, mean = total(uv) / count[:, None], total(z) / count[:, None]
    p, q = uv - middle[which], z - mean[which]
    square = total(p[:, :, None] * p[:, None, :])
    moment = torch.stack([total(p[:, k : k + 1] * q) for k in range(2)], 1)
    size = square.diagonal(dim1=1, dim2=2).sum(1)
    slack = EPS**0.5 * size + torch.finfo(torch.float64).tiny
    square = square + slack[:, None, None] * torch.eye(2).to(square)
    slope = torch.linalg.solve(square, moment)
    return middle, mean, slope * part.complete[regions, None, None]  # settled ones have no map


def _output_colors(values: Floats, inside: Bools, level: float) -> Floats:
    """Two colours for the sides of the level, or one if nearly all values are on one side."""
    low, high = np.quantile(values[inside], (0.01, 0.99)) if inside.any() else (0.0, 1.0)
    below, above = level - low, high - level
    if min(below, above) > _BALANCE * max(below, above):
        reach = max(below, above)
        ends, place = (CLASSES[0], PAPER, CLASSES[1]), (values - level) / (2 * reach) + 0.5
    else:
        ends, place = (CLASSES[0], "#7fc4c9", "#fbf7d8"), (values - low) / (high - low or 1.0)
    stops = np.array([rgb(end) for end in ends])
    at = np.linspace(0, 1, len(stops))
    return np.stack([np.interp(place, at, channel) for channel in stops.T], -1)


def _curve_colors(curves: Curves) -> tuple[Ints, Floats]:
    """The number of each segment's colour (S,), and the colours."""
    if isinstance(curves, LevelSet) and len(curves.levels) > 1:
        share = np.linspace(0, 1, len(curves.levels))[:, None]
        shades = rgb(CLASSES[0]) + share * (rgb(CLASSES[4]) - rgb(CLASSES[0]))
        return curves.label.cpu().numpy(), shades
    if isinstance(curves, NeuronCurves):
        return curves.layer.cpu().numpy(), class_colors(len(curves.partition.layers))
    return np.zeros(len(curves), np.int64), rgb(INK)[None]


def _borders(kind: Ints) -> Bools:
    """The points next to another kind; the outside, -1, has no border."""
    found = np.zeros(kind.shape, bool)
    for kinds, marks in ((kind, found), (kind.T, found.T)):
        differ = (kinds[1:] != kinds[:-1]) & (kinds[1:] >= 0) & (kinds[:-1] >= 0)
        marks[1:] |= differ
        marks[:-1] |= differ
    return found


def _wider(kind: Ints) -> Ints:
    """Every point of a kind, at or above 0, with its four neighbours."""
    found = kind.copy()
    for kinds, wide in ((kind, found), (kind.T, found.T)):
        np.maximum(wide[1:], kinds[:-1], out=wide[1:])
        np.maximum(wide[:-1], kinds[1:], out=wide[:-1])
    return found


def _faded(lines: Bools, share: float) -> Singles:
    """The strength of lines, less where they take up much of the picture."""
    share *= min(1.0, _CROWDED / (float(lines.mean()) or 1.0))
    return lines * np.float32(share)


def _repeated(values: Any, step: int, shape: tuple[int, ...]) -> Any:
    """Values of a coarse grid, copied to all points of a finer one."""
    return values.repeat(step, 0).repeat(step, 1)[: shape[0], : shape[1]].copy()


def _points_along(ends: Floats, grid: PointGrid) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Columns, rows and segments of points along segments (S, 2, 2), a few at a time."""
    place = (ends - (grid.left, grid.low)) / (grid.step, grid.rise)
    reach = np.abs(place[:, 1] - place[:, 0]).max(1)
    for some in np.array_split(np.arange(len(ends)), 1 + int(reach.sum()) // (1 << 22)):
        count = np.ceil(reach[some]).astype(np.int64) + 1
        segment = np.repeat(some, count)
        t = counted(np.zeros_like(count), count) / np.maximum(1, np.repeat(count - 1, count))
        point = place[segment, 0] + t[:, None] * (place[segment, 1] - place[segment, 0])
        column, row = np.round(point).astype(np.int64).T
        column, row = np.clip(column, 0, grid.columns - 1), np.clip(row, 0, grid.rows - 1)
        yield column, row, segment


def _reduced(light: Floats, inside: Bools, fine: int) -> Pixels:
    """The pixels (h, w, 4) from the top, each the mean of a few points; clear outside."""
    outside = np.pad(np.where(inside, -1, 0), 2)
    rim = (_wider(_wider(outside))[2:-2, 2:-2] >= 0) & inside
    light = light + (_BORDER * rim)[..., None] * (rgb(_GREY) - light)
    pixels = np.zeros((inside.shape[0] // fine, inside.shape[1] // fine, 4), np.float32)
    for i in range(fine):
        for j in range(fine):
            some = inside[i::fine, j::fine]
            pixels[..., :3] += light[i::fine, j::fine] * some[..., None]
            pixels[..., 3] += some
    pixels[..., :3] /= np.maximum(pixels[..., 3:], 1)
    pixels[..., 3] /= fine**2
    return np.asarray(255 * np.clip(pixels[::-1], 0, 1) + 0.5, np.uint8)


_WIDE = 220  # pixels: the longer side of a picture
_FEW = 8  # classes, pairs of classes and outputs in a list
_LONG = 32  # characters of a name
_NEIGHBOURS, _CORNERS = 60, 400  # neighbours of a region and corners of a polygon in a drawing
_ROOM = 0.35  # around a region, of its longer side

Rows = list[tuple[str, str]]  # of text, or of HTML from ``_swatch``


def partition_card(part: PartitionData) -> str:
    """A picture of the regions, and the sizes of the partition."""
    (pixels, classes), mesh = partition_picture(part), part.mesh
    stripped = f" (final {part.stripped} left out)" if part.stripped else ""
    rows = [
        ("regions", f"{len(part):,}"),
        ("edges", f"{mesh.num_edges:,}"),
        ("vertices", f"{mesh.num_vertices:,}"),
        ("layers", f"{len(part.layers):,} ({_list(part.layers)})" if part.layers else "0"),
        ("outputs", f"{part._n_out:,}{stripped}"),
        ("input shape", str(part.domain.input_shape)),
        ("domain area", f"{part.domain.area:.4g}"),
    ]
    if part._wanted is not None:
        rows.append(("made for", part._wanted.words))
        rows.append(("complete regions", f"{int(part.complete.sum()):,}"))
        if part._is_partial:
            rows.append(("undecided regions", f"{int(part.undecided.sum()):,}"))
    if part.smoothing is not None:
        replaced = _list(list(dict.fromkeys(each.function for each in part.smoothing.layers)))
        rows.append(("maps", f"{part.smoothing.within} (replaced: {replaced})"))
    if part.unresolved:
        rows.append(("unresolved places", f"{len(part.unresolved):,}"))
    if part._model is None:
        rows.append(("model", "not attached"))
    if not is_cpu(mesh.uv.device):
        rows.append(("device", str(mesh.uv.device)))
    return card("Partition", picture(pixels, "regions"), table(rows), _legend(part, classes))


def region_card(region: Region) -> str:
    """A picture of the region among its neighbours, its sizes and its outputs."""
    part, corners = region.partition, region.vertices
    (u, v), neighbours = region.centroid.tolist(), region.neighbours
    start, end = part.mesh.offsets[region.index], part.mesh.offsets[region.index + 1]
    middle = part._outputs[part._face_vertices[start:end]].mean(0)  # at the mean of the corners
    rows = [
        ("vertices", f"{len(corners):,}"),
        ("area", f"{region.area:.4g}"),
        ("share of the domain", f"{100 * region.area / part.domain.area:.3g} %"),
        ("centroid", f"({u:.4g}, {v:.4g})"),
        ("neighbours", _list([str(k) for k in neighbours])),
    ]
    if bool(part.complete[region.index]):
        numbers = [number_text(float(x)) for x in middle[: _FEW + 1]]
        rows.append(("output inside", _list(numbers, len(middle))))
    if default_color(part) == "class":
        winner = int(middle.argmax()) if len(middle) > 1 else int(middle[0] > 0)
        name = part.names[winner] if part.names else str(winner)
        rows.append(("class inside", _short(name)))
    title = f"Region {region.index:,} of {len(part):,}"
    return card(title, _region_svg(region, neighbours), table(rows))


def curves_card(curves: Curves) -> str:
    """A picture of the curves, their length, and what they are."""
    rows = [("segments", f"{len(curves):,}"), ("length", f"{curves.length:.4g}")]
    if isinstance(curves, Boundary):
        rows = [("kind", curves.kind), *rows, *_pairs(curves)]
    if isinstance(curves, LevelSet):
        levels = [f"{level:.4g}" for level in curves.levels]
        rows = [("output", str(curves.output)), ("levels", _list(levels)), *rows]
    if isinstance(curves, NeuronCurves):
        layers = [curves.partition.layers[k] for k in np.unique(to_numpy(curves.layer))]
        rows = [("units", f"{len(curves.units):,}"), ("layers", _list(layers)), *rows]
    if getattr(curves, "unresolved", ()):
        rows.append(("unresolved places", f"{len(curves.unresolved):,}"))  # type: ignore[attr-defined]
    return card(type(curves).__name__, picture(curves_picture(curves), "curves"), table(rows))


def class_regions_card(found: ClassRegions) -> str:
    """A picture of the classes, and the share of the domain that each has."""
    part = found.partition
    areas = to_numpy(found.areas)
    share = areas / areas.sum()
    order = np.argsort(-share, kind="stable")
    order = order[share[order] > 0]
    colors = class_colors(found.n_classes)
    some = order[:_FEW].tolist()
    rows = [(_swatch(colors[k], _name(part, k)), f"{100 * share[k]:.3g} %") for k in some]
    if part.smoothing is not None:
        rows.append(("undecided", f"{100 * found.undecided_regions().share:.3g} %"))
    body = table(rows, escaped=True)
    if len(order) > _FEW:
        body += f"<div>and {len(order) - _FEW:,} more</div>"
    image = ""
    if found.kind == "argmax":
        image = picture(partition_picture(part, edges=False, level=found.level)[0], "classes")
    return card("Class regions", image, body)


def domain_card(domain: Domain) -> str:
    """A picture of the polygon, its size, and the plane that it lies in."""
    low, high = domain.corners.amin(0).tolist(), domain.corners.amax(0).tolist()
    inputs = is_input_plane(domain)
    rows = [
        ("corners", f"{len(domain.corners):,}"),
        ("u", f"{low[0]:.4g} to {high[0]:.4g}"),
        ("v", f"{low[1]:.4g} to {high[1]:.4g}"),
        ("area", f"{domain.area:.4g}"),
        ("diameter", f"{domain.diameter:.4g}"),
        ("input shape", str(domain.input_shape)),
        ("plane", "plane coordinates are the inputs" if inputs else "x = origin + uv @ basis"),
    ]
    style = f"fill:{CLASSES[0]};fill-opacity:.15;stroke:currentColor"
    outline = to_numpy(domain.corners), style
    return card("Domain", _svg([outline], low, high), table(rows))


def _list(words: Sequence[str], count: int | None = None) -> str:
    """The first few of some words, with their number if there are more."""
    count = len(words) if count is None else count
    if not count:
        return "none"
    shown = ", ".join(map(_short, words[:_FEW]))
    return shown if count <= _FEW else f"{count:,}: {shown}, ..."


def _short(word: str) -> str:
    return word if len(word) <= _LONG else f"{word[: _LONG - 1]}…"


def _name(part: PartitionData, k: int) -> str:
    if part.names is not None:
        return _short(part.names[k])
    return str(k) if part._n_out > 1 else ("at or below the level", "above it")[k]


def _pairs(boundary: Boundary) -> Rows:
    """The pairs of classes with the longest common boundaries, and their lengths."""
    pairs = sorted(boundary.pairs().items(), key=lambda item: -item[1])
    rows = [
        (" | ".join(_name(boundary.partition, k) for k in pair), f"{size:.4g}")
        for pair, size in pairs[:_FEW]
        if len(pairs) > 1 or boundary.partition.names is not None
    ]
    return [*rows, (f"and {len(pairs) - _FEW:,} more", "")] if len(pairs) > _FEW else rows


def card(title: str, image: str, *bodies: str) -> str:
    """A picture at the left, and a title and the rest at the right, or below on narrow pages."""
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start;margin:4px 0">'
        f'{image}<div style="flex:1 1 240px;min-width:0">'
        '<div style="font-weight:bold;margin-bottom:4px">'
        f"{html.escape(title)}</div>{''.join(bodies)}</div></div>"
    )


def table(rows: Rows, *, escaped: bool = False) -> str:
    """A table of labels and values, with inline styles, as notebooks have styles of their own."""
    cell = "border:none;background:none;padding:1px 14px 1px 0;text-align:left;vertical-align:top"
    body = "".join(
        '<tr style="background:none">'
        f'<td style="{cell};white-space:nowrap{"" if escaped else ";opacity:.7"}">'
        f"{label if escaped else html.escape(label)}</td>"
        f'<td style="{cell}">{html.escape(value)}</td></tr>'
        for label, value in rows
    )
    style = "border-collapse:collapse;border:none;margin:0;color:inherit;font:inherit"
    return f'<table style="{style}">{body}</table>'


def _legend(part: PartitionData, classes: list[int]) -> str:
    """A legend of the classes in the picture."""
    colors = class_colors(max(classes, default=0) + 1)
    shown = [_swatch(colors[k], _name(part, k)) for k in classes[:_FEW]]
    if len(classes) > _FEW:
        shown.append(f"and {len(classes) - _FEW:,} more")
    items = "".join(f'<span style="margin-right:12px">{item}</span>' for item in shown)
    return f'<div style="margin-top:4px">{items}</div>' if items else ""


def _swatch(color: Any, name: str) -> str:
    """A small square of a colour before a name."""
    rgb = "".join(f"{round(255 * c):02x}" for c in color)
    style = f"display:inline-block;width:.8em;height:.8em;border-radius:2px;background:#{rgb}"
    return f'<span style="{style}"></span> {html.escape(name)}'


def picture(pixels: Pixels, what: str) -> str:
    """A picture (h, w, 4) as an image element."""
    high, wide = pixels.shape[:2]
    scale = _WIDE / max(wide, high)
    size = f"width:{scale * wide:.0f}px;height:{scale * high:.0f}px"
    return f'<img alt="{what}" src="{data_uri(pixels)}" style="{size};max-width:none;margin:0"/>'


def _region_svg(region: Region, neighbours: tuple[int, ...]) -> str:
    """The region in colour among the outlines of its neighbours."""
    corners = to_numpy(region.vertices)
    low, high = corners.min(0), corners.max(0)
    room = _ROOM * (float((high - low).max()) or 1.0)
    shown = [replace(region, index=k) for k in neighbours[:_NEIGHBOURS]]
    style = "fill:none;stroke:currentColor;stroke-opacity:.45"
    others = [(to_numpy(each.vertices), style) for each in shown]
    style = f"fill:{CLASSES[0]};fill-opacity:.45;stroke:currentColor;stroke-width:1.5"
    return _svg([*others, (corners, style)], low - room, high + room)


def _svg(polygons: list[tuple[Any, str]], low: Any, high: Any) -> str:
    """Polygons within limits, in the ink of the page."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    scale = _WIDE / float((high - low).max())
    wide, tall = np.maximum((high - low) * scale, 1.0)
    drawn = []
    for corners, style in polygons:
        some = np.asarray(corners)[:: 1 + (len(corners) - 1) // _CORNERS]
        x, y = ((some - low) * scale).clip(-1e4, 1e4).T
        points = " ".join(f"{a:.5g},{tall - b:.5g}" for a, b in zip(x, y, strict=True))
        drawn.append(f'<polygon points="{points}" style="stroke-linejoin:round;{style}"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide + 2:.0f}" height="{tall + 2:.0f}" '
        f'viewBox="-1 -1 {wide + 2:.5g} {tall + 2:.5g}" style="flex:none">{"".join(drawn)}</svg>'
    )
