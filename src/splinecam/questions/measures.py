"""Numbers that describe regions: size, shape, slope and output; layers, and exact integrals."""

from __future__ import annotations

import math
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
    if kernel is not None:
        return kernel.integrate(mesh, values.contiguous())
    return _by_tensors(mesh, values)


def _by_tensors(mesh: Mesh, values: Tensor) -> Tensor:
    """The same integrals without the compiled kernel, over the triangles of the faces."""
    n = values.shape[1]
    total = values.new_zeros((3, n))
    block = max(1, backend_of(values.device).numbers // (4 * max(1, n)))
    for _, vertex in mesh.by_size(block):
        k = vertex.shape[1]
        uv = take(mesh.uv, vertex.view(-1)).view(-1, k, 2)
        f = take(values, vertex.view(-1)).view(-1, k, n)
        off = uv - uv[:, :1]
        crosses = off[:, 1:-1, 0] * off[:, 2:, 1] - off[:, 1:-1, 1] * off[:, 2:, 0]
        area = crosses.clamp(min=0) / 2  # of the triangles of a fan, (B, k - 2)
        signed = torch.zeros_like(f[:, 0])
        for i in range(1, k - 1):
            p, q, r = f[:, 0], f[:, i], f[:, i + 1]
            whole = p + q + r
            signed += area[:, i - 1, None] * whole / 3
            square = whole.square() + p * p + q * q + r * r
            total[2].add_(area[:, i - 1] @ square / 12)
        total[0].add_(signed.sum(0))
        # Only on few faces does a function change its sign.
        face, column = ((f.amin(1) < 0) & (f.amax(1) > 0)).nonzero(as_tuple=True)
        modulus = signed.abs()
        modulus[face, column] = _modulus(area[face], f[face, :, column])
        total[1].add_(modulus.sum(0))
    return total


def _modulus(area: Tensor, f: Tensor) -> Tensor:
    """Integrals of moduli over faces with values (N, k) and triangles (N, k - 2), (N,).

    If the value p at a corner of a triangle has another sign than q and r, the line between them
    cuts off the share p^2 / ((p - q) (p - r)) of the area, on which the mean is p / 3.
    """
    p, q, r = f[:, :1].expand_as(area), f[:, 1:-1], f[:, 2:]
    cut = torch.zeros_like(area)
    for x, y, z in ((p, q, r), (q, r, p), (r, p, q)):
        sign = x.sign()
        alone = (sign != 0) & (sign * y <= 0) & (sign * z <= 0)
        cut = torch.where(alone, x * (x / (x - y)) * (x / (x - z)), cut)
    return (area * (p + q + r - 2 * cut).abs()).sum(1) / 3


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
