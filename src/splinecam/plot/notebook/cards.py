"""Cards for notebooks: a small picture beside the main numbers, in the colours of the page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from splinecam._util.backend import is_cpu
from splinecam._util.text_table import number_text
from splinecam.analysis.boundary import Boundary, LevelSet
from splinecam.analysis.class_regions import ClassRegions
from splinecam.analysis.curves import Curves
from splinecam.analysis.neurons import NeuronCurves
from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.regions import Region
from splinecam.geometry.domain import Domain
from splinecam.plot.arrays import to_numpy
from splinecam.plot.figures import is_input_plane
from splinecam.plot.notebook.pictures import Picture, curves_picture, partition_picture
from splinecam.plot.notebook.png import data_uri
from splinecam.plot.palette import CLASSES, class_palette
from splinecam.plot.regions import default_color

__all__ = ["class_regions_card", "curves_card", "domain_card", "partition_card", "region_card"]

_WIDE = 220  # pixels: the longer side of a picture
_FEW = 8  # classes, pairs of classes and outputs that are listed
_LONG = 32  # characters of a name
_NEIGHBOURS = 60  # of a region that are drawn
_CORNERS = 400  # of a polygon that are drawn
_ROOM = 0.35  # around a region, of its longer side

Rows = list[tuple[str, str]]  # of text, or HTML where they are made by ``_swatch``


def partition_card(part: PartitionData) -> str:
    """A picture of the regions, and the sizes of the partition."""
    picture, mesh = partition_picture(part), part.mesh
    stripped = f" (final {part.stripped} left out)" if part.stripped else ""
    rows = [
        ("regions", f"{len(part):,}"),
        ("edges", f"{mesh.num_edges:,}"),
        ("vertices", f"{mesh.num_vertices:,}"),
        ("layers", f"{len(part.layers):,} ({_list(part.layers)})" if part.layers else "0"),
        ("outputs", f"{part.values.shape[1]:,}{stripped}"),
        ("input shape", str(part.domain.input_shape)),
        ("domain area", f"{part.domain.area:.4g}"),
    ]
    if part.smoothing is not None:
        replaced = _list(list(dict.fromkeys(each.function for each in part.smoothing.layers)))
        rows.append(("maps", f"{part.smoothing.within} (replaced: {replaced})"))
    if part.unresolved:
        rows.append(("unresolved places", f"{len(part.unresolved):,}"))
    if part._model is None:
        rows.append(("model", "not attached"))
    if not is_cpu(mesh.uv.device):
        rows.append(("device", str(mesh.uv.device)))
    return _card("Partition", _image(picture, "regions"), _table(rows), _legend(part, picture))


def region_card(region: Region) -> str:
    """A picture of the region among its neighbours, its sizes and its outputs."""
    part, corners = region.partition, region.vertices
    (u, v), neighbours = region.centroid.tolist(), region.neighbours
    start, end = part.face_offsets[region.index], part.face_offsets[region.index + 1]
    middle = part.values[part.face_vertices[start:end]].mean(0)  # at the mean of the corners
    rows = [
        ("vertices", f"{len(corners):,}"),
        ("area", f"{region.area:.4g}"),
        ("share of the domain", f"{100 * region.area / part.domain.area:.3g} %"),
        ("centroid", f"({u:.4g}, {v:.4g})"),
        ("neighbours", _list([str(k) for k in neighbours])),
        ("output inside", _list([number_text(float(x)) for x in middle[: _FEW + 1]], len(middle))),
    ]
    if default_color(part) == "class":
        winner = int(middle.argmax()) if len(middle) > 1 else int(middle[0] > 0)
        name = part.names[winner] if part.names else str(winner)
        rows.append(("class inside", _short(name)))
    title = f"Region {region.index:,} of {len(part):,}"
    return _card(title, _region_svg(region, neighbours), _table(rows))


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
    return _card(type(curves).__name__, _image(curves_picture(curves), "curves"), _table(rows))


def class_regions_card(found: ClassRegions) -> str:
    """A picture of the classes, and the share of the domain that each has."""
    part = found.partition
    areas = to_numpy(found.areas)
    share = areas / areas.sum()
    order = np.argsort(-share, kind="stable")
    order = order[share[order] > 0]
    colors = class_palette(found.n_classes)
    some = order[:_FEW].tolist()
    rows = [(_swatch(colors[k], _name(part, k)), f"{100 * share[k]:.3g} %") for k in some]
    if part.smoothing is not None:
        rows.append(("undecided", f"{100 * found.undecided_regions().share:.3g} %"))
    body = _table(rows, escaped=True)
    if len(order) > _FEW:
        body += f"<div>and {len(order) - _FEW:,} more</div>"
    image = ""
    if found.kind == "argmax":
        image = _image(partition_picture(part, edges=False, level=found.level), "classes")
    return _card("Class regions", image, body)


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
    outline = _polygon(to_numpy(domain.corners), style)
    return _card("Domain", _svg([outline], low, high), _table(rows))


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
    return str(k) if part.values.shape[1] > 1 else ("at or below the level", "above it")[k]


def _pairs(boundary: Boundary) -> Rows:
    """The pairs of classes with the longest common boundaries, and these lengths."""
    pairs = sorted(boundary.pairs().items(), key=lambda item: -item[1])
    rows = [
        (" | ".join(_name(boundary.partition, k) for k in pair), f"{size:.4g}")
        for pair, size in pairs[:_FEW]
        if len(pairs) > 1 or boundary.partition.names is not None
    ]
    return [*rows, (f"and {len(pairs) - _FEW:,} more", "")] if len(pairs) > _FEW else rows


def _card(title: str, image: str, *bodies: str) -> str:
    """A picture at the left, a title and the rest at the right, or below on narrow pages."""
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start;margin:4px 0">'
        f'{image}<div style="flex:1 1 240px;min-width:0">'
        '<div style="font-weight:bold;margin-bottom:4px">'
        f"{html.escape(title)}</div>{''.join(bodies)}</div></div>"
    )


def _table(rows: Rows, *, escaped: bool = False) -> str:
    """A table of labels and values. Its styles are inline, as notebooks have their own."""
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


def _legend(part: PartitionData, picture: Picture) -> str:
    """A legend of the classes that are seen."""
    colors = class_palette(max(picture.classes, default=0) + 1)
    shown = [_swatch(colors[k], _name(part, k)) for k in picture.classes[:_FEW]]
    if len(picture.classes) > _FEW:
        shown.append(f"and {len(picture.classes) - _FEW:,} more")
    items = "".join(f'<span style="margin-right:12px">{item}</span>' for item in shown)
    return f'<div style="margin-top:4px">{items}</div>' if items else ""


def _swatch(color: Any, name: str) -> str:
    """A small square of a colour before a name."""
    rgb = "".join(f"{round(255 * c):02x}" for c in color)
    style = f"display:inline-block;width:.8em;height:.8em;border-radius:2px;background:#{rgb}"
    return f'<span style="{style}"></span> {html.escape(name)}'


def _image(picture: Picture, what: str) -> str:
    high, wide = picture.pixels.shape[:2]
    scale = _WIDE / max(wide, high)
    size = f"width:{scale * wide:.0f}px;height:{scale * high:.0f}px"
    source = data_uri(picture.pixels)
    return f'<img alt="{what}" src="{source}" style="{size};max-width:none;margin:0"/>'


def _region_svg(region: Region, neighbours: tuple[int, ...]) -> str:
    """The region in colour among the outlines of its neighbours."""
    corners = to_numpy(region.vertices)
    low, high = corners.min(0), corners.max(0)
    room = _ROOM * (float((high - low).max()) or 1.0)
    shown = [replace(region, index=k) for k in neighbours[:_NEIGHBOURS]]
    style = "fill:none;stroke:currentColor;stroke-opacity:.45"
    others = [_polygon(to_numpy(each.vertices), style) for each in shown]
    style = f"fill:{CLASSES[0]};fill-opacity:.45;stroke:currentColor;stroke-width:1.5"
    return _svg([*others, _polygon(corners, style)], low - room, high + room)


def _polygon(corners: Any, style: str) -> tuple[Any, str]:
    return corners[:: 1 + (len(corners) - 1) // _CORNERS], style


def _svg(polygons: list[tuple[Any, str]], low: Any, high: Any) -> str:
    """Polygons within limits, in the ink of the page."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    scale = _WIDE / float((high - low).max())
    wide, tall = np.maximum((high - low) * scale, 1.0)
    drawn = []
    for corners, style in polygons:
        x, y = ((np.asarray(corners) - low) * scale).clip(-1e4, 1e4).T
        points = " ".join(f"{a:.5g},{tall - b:.5g}" for a, b in zip(x, y, strict=True))
        drawn.append(f'<polygon points="{points}" style="stroke-linejoin:round;{style}"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide + 2:.0f}" height="{tall + 2:.0f}" '
        f'viewBox="-1 -1 {wide + 2:.5g} {tall + 2:.5g}" style="flex:none">{"".join(drawn)}</svg>'
    )
