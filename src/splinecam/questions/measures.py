"""Numbers that describe regions: size, shape, slope and output; layers, and exact integrals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.arrays import lengths, take
from splinecam._util.backend import backend_of
from splinecam._util.graphs import components
from splinecam._util.text import pandas_if_installed
from splinecam.engine.box_bounds import AffineRange, BoxBounds
from splinecam.errors import SplineCamError
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels.kernel import kernel_for
from splinecam.kernels.walk import KINDS, face_integrals
from splinecam.questions.partition_data import PartitionData, whole_number
from splinecam.questions.wanted import Wanted


def integrals(mesh: Mesh, values: Tensor) -> Tensor:
    """The integrals of n functions, of their moduli and of their squares over all faces, (3, n).

    values: (V, n) at the vertices; the functions are affine on each face.

    >>> from splinecam.geometry.subdivision import polygon_mesh
    >>> corners = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [-1.0, 1.0]])
    >>> integrals(polygon_mesh(corners), corners[:, :1])[1]
    tensor([1.])
    """
    kernel = kernel_for(values.device) if values.dtype == torch.float64 else None
    found = []
    for kind in KINDS[1:]:
        if kernel is not None:
            found.append(face_integrals(kernel, mesh, kind, mesh.uv, values)[0].sum(0))
        else:
            found.append(triangle_integrals(triangles(mesh)[0], kind, mesh.uv, values).sum(0))
    return torch.stack(found)


def triangles(mesh: Mesh) -> tuple[Tensor, Tensor]:
    """Triangles that fill the faces, by their vertices, (3, T), and the face of each, (T,)."""
    vertex, owner, after = mesh.corner_vertices(), mesh.owners(), mesh.next_corner()
    first = take(mesh.offsets, owner)
    place = torch.arange(len(vertex), device=vertex.device)
    inner = ((place != first) & (after != first)).nonzero()[:, 0]
    corners = torch.stack([take(first, inner), inner, take(after, inner)])
    return take(vertex, corners.view(-1)).view(3, -1), take(owner, inner)


def triangle_integrals(corners: Tensor, kind: str, at: Tensor, *values: Tensor) -> Tensor:
    """The integrals over triangles (3, T) of functions with values (V, n), or of 1, (T, n).

    kind: one of ``KINDS``; at: (V, 2) the vertices.
    """
    columns = [c.contiguous() for x in (at, *values) for c in x.unbind(1)]  # faster than pairs
    (a, b, c), (d, e, f), *found = ([take(column, x) for x in corners] for column in columns)
    size = ((b - a) * (f - d) - (e - d) * (c - a)) / 2
    return torch.stack([size * _MEANS[kind](*three) for three in found] or [size], 1)


def _mean_square(p: Tensor, q: Tensor, r: Tensor) -> Tensor:
    """The mean of f^2 over triangles, from its values (T,) at their corners."""
    total = p + q + r
    return (p * p + q * q + r * r + total * total) / 12


def _mean_modulus(p: Tensor, q: Tensor, r: Tensor) -> Tensor:
    """The mean of |f| over triangles, from its values (T,) at their corners."""
    low, middle, high = torch.stack([p, q, r]).sort(0).values
    flipped = middle > 0  # turn signs so that one corner at most is positive
    a = torch.where(flipped, -low, high)
    b, c = torch.where(flipped, -high, low), -torch.where(flipped, middle, -middle)
    spread = (a - b) * (a - c)
    positive = torch.where(a > 0, a**3 / torch.where(spread > 0, spread, 1.0), 0.0) / 3
    return 2 * positive - (a + b + c) / 3


_MEANS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "output": lambda p, q, r: (p + q + r) / 3,
    "modulus": _mean_modulus,
    "square": _mean_square,
}


def regions_by_layer(part: PartitionData) -> list[int]:
    """The number of regions after each of ``part.layers``."""
    part._require("the regions after each layer")
    # The regions that a layer divided are united again, from the last layer to the second.
    counts, beside = [len(part)], part._edge_faces
    region = torch.arange(len(part), device=beside.device)
    for layer in reversed(range(1, len(part.layers))):
        a, b = region[beside[part.mesh.edge_layer == layer]].unbind(1)
        united = components(counts[-1], a, b)
        region = united[region]
        counts.append(int(united.max()) + 1)
    return counts[::-1][: len(part.layers)]


def last_layers(part: PartitionData) -> Tensor:
    """The last of ``part.layers`` that bounds each region, -1 if only the border does, (F,)."""
    mesh = part.mesh
    layer = mesh.edge_layer[mesh.corners >> 1]
    return torch.full_like(mesh.offsets[1:], -1).scatter_reduce(0, mesh.owners(), layer, "amax")


def layer_index(part: PartitionData, layer: str | int) -> int:
    """The index into ``part.layers`` of a layer that is given by index, name or module."""
    names = part.layers
    if not isinstance(layer, str):
        meant = f"layer must be the name or the number of one layer ({layer_names(part)})"
        index = whole_number(layer, meant)
        if not -len(names) <= index < len(names):
            raise IndexError(f"layer {index} of {len(names)} layers: {layer_names(part)}")
        return index % len(names)
    if layer in names:
        return names.index(layer)
    found = [k for k, name in enumerate(names) if name.startswith(f"{layer}.")]
    # A ReLU that is called as a function may be named by the module before it.
    found = found or [k for k, each in enumerate(part._network.layers) if each.after == layer]
    if len(found) != 1:
        for each in part._network.written:
            if layer in each.relus:
                how = "splinecam.nn.AsWritten(model) keeps them"
                raise SplineCamError(f"{layer!r} is no layer of its own, as {each}; {how}")
        what = f"{len(found)} layers are" if found else "no layer is"
        known = f"give one of {layer_names(part)}, or the module right before it"
        raise SplineCamError(f"{what} called {layer!r}; {known}")
    return found[0]


def layer_count(part: PartitionData, layer: str | int) -> int:
    """How many layers there are up to and including a named one; a number stands for itself."""
    if isinstance(layer, str):
        return layer_index(part, layer) + 1
    count = whole_number(layer, "layer must be the name of a layer or a number of layers")
    most = len(part.layers)
    if not 0 <= count <= most:
        known = f"give a number from 0 to {most}, or a name: {layer_names(part)}"
        raise IndexError(f"{count} layers: {known}")
    return count


def layer_names(part: PartitionData) -> str:
    """The names of all layers, as text for a message."""
    return ", ".join(map(repr, part.layers)) or "none, as the network is affine"


_BLOCK = 1 << 20  # corners in a block
MOST_OUTPUTS = 16  # outputs that get a column each


def table(part: PartitionData, *, full: bool = False) -> Any:
    """One row per region: a pandas DataFrame, or without pandas a dict of numpy arrays (F,).

    Columns: ``area``, ``vertices``, ``perimeter``, ``diameter`` and ``eccentricity`` (largest and
    largest over smallest distance between two vertices), ``slope_spectral`` and
    ``slope_frobenius`` (norms of the derivative within the plane; with ``full`` also those in
    input space, ``slope_spectral_full`` and ``slope_frobenius_full``), ``centroid_u`` and
    ``centroid_v``, ``class`` (the largest output at the centroid; of one output 1 above 0, else 0)
    and, of up to 16 outputs, their values there: ``output_0``, ... If smooth functions of the model
    were replaced, also how far the model is from the region's map at most: ``bound_0``, ...

    >>> import torch, splinecam as sc
    >>> relu = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
    >>> rows = sc.partition(relu, sc.Domain.box(-1, 1), progress=False).table()
    >>> [f"{x:.1f}" for x in sorted(rows["slope_frobenius"])]
    ['0.0', '1.0', '1.0', '1.4']
    """
    arrays, pandas = table_columns(part, full=full), pandas_if_installed()
    return arrays if pandas is None else pandas.DataFrame(arrays).rename_axis("region")


def table_columns(part: PartitionData, *, full: bool = False) -> dict[str, NDArray[Any]]:
    """The columns of the table of regions, (F,) each."""
    with torch.no_grad():
        columns = measures(part, full=full)
        columns["centroid_u"], columns["centroid_v"] = part.centroids.unbind(1)
        values = centroid_values(part)
        columns["class"] = largest_outputs(values)
        if values.shape[1] <= MOST_OUTPUTS:
            columns |= {f"output_{k}": column for k, column in enumerate(values.unbind(1))}
            if part.smoothing is not None:
                bounds = part.region_bounds.unbind(1)
                columns |= {f"bound_{k}": column for k, column in enumerate(bounds)}
        return {name: column.cpu().numpy().copy() for name, column in columns.items()}


def measures(part: PartitionData, *, full: bool = False) -> dict[str, Tensor]:
    """The sizes, shapes and slopes of all regions by their names in the table, (F,) each."""
    scale = part._frame.scale  # local coordinates lose no digits of short lengths
    shape, (spectral, frobenius) = shapes(part.mesh), slopes(part)
    columns = {
        "area": part.areas,
        "vertices": part.mesh.counts(),
        "perimeter": shape.perimeter * scale,
        "diameter": shape.diameter * scale,
        "eccentricity": shape.eccentricity,
        "slope_spectral": spectral,
        "slope_frobenius": frobenius,
    }
    if full:
        spectral, frobenius = slopes_in_input_space(part)
        columns |= {"slope_spectral_full": spectral, "slope_frobenius_full": frobenius}
    return columns


def largest_outputs(values: Tensor) -> Tensor:
    """The class of each row of outputs (N, n_out): the largest; of one output 1 above 0, (N,)."""
    return (values[:, 0] > 0).long() if values.shape[1] == 1 else values.argmax(1)


def region_classes(part: PartitionData) -> Tensor:
    """The class at the centroid of each region, (F,); -1 where it is undecided."""
    if part._wanted is None:
        return largest_outputs(centroid_values(part))
    part._require("other classes", Wanted.classes(part._n_out, "argmax"), partial=True)
    # Settled regions have the same class everywhere, and others their map.
    maps, first = part._known_maps, part._face_vertices[part.mesh.offsets[:-1]]
    off = part._frame.to_local(part.centroids) - maps.anchor
    inside = maps.value + (maps.weight @ off[:, :, None])[:, :, 0]
    found = largest_outputs(torch.where(part.complete[:, None], inside, part._outputs[first]))
    return found.masked_fill_(part.undecided, -1)


def centroid_values(part: PartitionData) -> Tensor:
    """The output at each region's centroid, which is its mean over the region, (F, n_out)."""
    maps = part._maps
    u, v = (part._frame.to_local(part.centroids) - maps.anchor).unbind(1)
    return maps.value + maps.weight[:, :, 0] * u[:, None] + maps.weight[:, :, 1] * v[:, None]


def output_ranges(part: PartitionData) -> Tensor:
    """The least and the largest value of each output on each region, (F, n_out, 2).

    With ``refine`` they are exact on complete regions. On each of the others outputs are somewhere
    between these two numbers; to find them takes the model.
    """
    found = torch.stack(part.mesh.ranges(part._outputs), 2)
    settled = (~part.complete).nonzero()[:, 0]
    if len(settled):
        program, (low, high) = part._network, part.mesh.boxes()[settled].view(-1, 2, 2).unbind(1)
        half = (high - low) / 2 * (1 + 2.0**-40)
        right, upper = (half * half.new_tensor(side) for side in ([1, 0], [0, 1]))
        points = (low + high) / 2 + torch.stack([torch.zeros_like(half), right, upper])
        x = part.domain.embed(part._frame.to_plane(points.view(-1, 2)))
        every = torch.eye(part._n_out, dtype=half.dtype, device=half.device)
        with torch.no_grad():
            rows, radius, _ = BoxBounds(program, every, kernel_for(half.device))(
                x.view(3, len(half), *x.shape[1:])
            )
        reach = AffineRange(rows, radius).reach()
        found[settled] = torch.stack([rows[0] - reach, rows[0] + reach], 2)
    return found


class Shapes(NamedTuple):
    """Of each face the perimeter, and the largest and smallest distance of two corners, (F,)."""

    perimeter: Tensor
    diameter: Tensor
    nearest: Tensor

    @property
    def eccentricity(self) -> Tensor:
        """The largest over the smallest distance between two corners, (F,)."""
        return self.diameter / self.nearest


def shapes(mesh: Mesh) -> Shapes:
    """The shapes of all faces, in the mesh's coordinates."""
    found = Shapes(*mesh.uv.new_empty((3, mesh.num_faces)))
    for face, vertex in mesh.by_size(_BLOCK):
        k = vertex.shape[1]
        uv = take(mesh.uv, vertex.view(-1)).view(-1, k, 2)
        distance = lengths(uv - uv.roll(-1, 1))
        farthest, nearest = distance.amax(1), distance.amin(1)
        found.perimeter[face] = distance.sum(1)
        for step in range(2, k // 2 + 1):  # half a turn visits all pairs
            distance = lengths(uv - uv.roll(-step, 1))
            farthest = torch.maximum(farthest, distance.amax(1))
            nearest = torch.minimum(nearest, distance.amin(1))
        found.diameter[face], found.nearest[face] = farthest, nearest
    return found


def slopes(part: PartitionData) -> tuple[Tensor, Tensor]:
    """The spectral and the Frobenius norm of each region's derivative within the plane, (F,)."""
    weight = part._maps.weight
    blocks = torch.split(weight, _rows(part, 2 * weight.shape[1]))
    spectral, frobenius = (torch.cat(norms) for norms in zip(*map(_norms, blocks), strict=True))
    return spectral / part._frame.scale, frobenius / part._frame.scale


def slopes_in_input_space(part: PartitionData) -> tuple[Tensor, Tensor]:
    """The spectral and the Frobenius norm of each region's derivative by all inputs, (F,)."""
    if part.domain.dim == 2:  # the plane is the input space
        return slopes(part)

    def compute() -> tuple[Tensor, Tensor]:
        units = sum(error.shape[0] for error in part._layer_errors.values())
        rows = _rows(part, part._n_out * part.domain.dim + units)
        regions = torch.arange(len(part), device=part.mesh.uv.device)
        norms = [_norms(part.jacobian(block).flatten(2)) for block in torch.split(regions, rows)]
        spectral, frobenius = (torch.cat(each) for each in zip(*norms, strict=True))
        return spectral, frobenius

    return part._remembered("slopes in input space", None, compute)


def _rows(part: PartitionData, numbers: int) -> int:
    """How many regions with so many numbers each make up a block."""
    return max(1, backend_of(part.mesh.uv.device).numbers // max(1, numbers))


def _norms(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The largest singular value and the Frobenius norm of matrices (N, n, m), (N,) each.

    The largest singular value is the root of the Gram matrix' largest eigenvalue, which squaring
    costs no digits. Division by a power of two does not round, and keeps squares within range.
    """
    largest = float(matrix.abs().max()) if matrix.numel() else 0.0
    power = math.ldexp(1.0, math.frexp(largest)[1] - 1)
    matrix = matrix / power
    frobenius = matrix.square().sum((1, 2)).sqrt() * power
    short = matrix if matrix.shape[1] <= matrix.shape[2] else matrix.mT
    if short.shape[1] == 1:
        return frobenius, frobenius
    if short.shape[1] == 2:
        a, b = short.unbind(1)
        p, q = short.square().sum(2).unbind(1)
        # All terms are positive, so that nothing cancels.
        square = (p + q) / 2 + torch.hypot((p - q) / 2, (a * b).sum(1))
    else:
        square = torch.linalg.eigvalsh(short @ short.mT)[:, -1].clamp(min=0)
    return square.sqrt() * power, frobenius
