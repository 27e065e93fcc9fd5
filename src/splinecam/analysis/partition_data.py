"""The data of a partition: a mesh with the network's output on it, and what follows from both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from splinecam._util.backend import backend_of
from splinecam._util.deprecation import warn_renamed
from splinecam._util.tolerances import PLANAR
from splinecam.analysis.attached import Attached
from splinecam.analysis.class_names import few, names_of
from splinecam.analysis.smoothing import Smoothing
from splinecam.engine.affine_maps import AffineMaps, affine_maps, gradients
from splinecam.engine.merge import Merged, merge
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame
from splinecam.geometry.point_location import Locator
from splinecam.geometry.subdivision import Mesh
from splinecam.network.capture.outputs import Output
from splinecam.network.program import Program

__all__ = ["PartitionData", "Unresolved", "in_plane", "region_numbers"]

T = TypeVar("T")


class Unresolved(NamedTuple):
    """A place (u, v) of the plane that float64 could not settle, the layer, and the reason."""

    place: tuple[float, float]
    layer: str
    reason: str

    @property
    def cut(self) -> str:
        """The earlier name of ``layer``; deprecated."""
        warn_renamed("unresolved.cut", "unresolved.layer")
        return self.layer


@dataclass(eq=False, repr=False)
class PartitionData(Attached):
    """A convex polygon divided into V vertices, E edges and F regions, as flat tensors.

    domain: the polygon; mesh: its subdivision, in the coordinates of ``frame``; values: (V, n_out)
    the network's output at the vertices; value_error: (n_out,) the rounding error of the output;
    layer_errors: by the name of a layer, the rounding errors of its units, (n,) each; unresolved:
    places that float64 could not settle, usually none; layers: the names of the non-linearities, in
    the order of evaluation; stripped: the final softmax, sigmoid or tanh that was left out, if any;
    dtype: the model's floating-point type; output: the selected output of a model with several;
    smoothing: what was replaced in a model with smooth functions, None if it has none.
    """

    domain: Domain
    mesh: Mesh
    values: Tensor
    value_error: Tensor
    layer_errors: dict[str, Tensor]
    unresolved: tuple[Unresolved, ...]
    layers: tuple[str, ...]
    stripped: str | None
    dtype: torch.dtype
    output: Output = None
    smoothing: Smoothing | None = None
    _names: tuple[str, ...] | None = field(default=None, init=False)
    _model: nn.Module | None = field(default=None, init=False)
    _program: Program | None = field(default=None, init=False)
    _results: dict[str, tuple[Any, Any]] = field(default_factory=dict, init=False)
    _absent: ClassVar[str] = (
        "This needs the network, and the partition was loaded without it. Give the same model: "
        "sc.load(path, model=model), or part.attach(model)."
    )

    def __len__(self) -> int:
        return self.mesh.num_faces

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the classes, or None; assign a list of names, or None, to change them.

        A model with one output has two names: of the class at or below the level, and above it.

        >>> import splinecam as sc
        >>> part = sc.partition(nn.Linear(2, 3), Domain.box(-1, 1), names=["cat", "dog", "bird"])
        >>> part.names = ["a", "b", "c"]
        >>> part.names
        ('a', 'b', 'c')
        """
        return self._names

    @names.setter
    def names(self, names: Sequence[str] | None) -> None:
        self._names = names_of(names, self.values.shape[1])

    @cached_property
    def frame(self) -> Frame:
        """The local coordinates of ``mesh`` and ``maps``, which are centred and of unit size."""
        return Frame.of(self.domain)

    # -- how far the model may be from the maps -----------------------------------------------

    @property
    def smooth(self) -> Smoothing | None:
        """What was replaced in a model with smooth functions; None if the partition is exact."""
        return self.smoothing

    @property
    def region_bounds(self) -> Tensor:
        """How far the model's outputs are at most from the map of each region, (F, n_out).

        They are zero if the partition is exact.
        """
        if self.smoothing is None:
            return self.values.new_zeros((len(self), self.values.shape[1]))
        return self.smoothing.region_bounds

    @property
    def bound(self) -> Tensor:
        """How far each output of the model is at most from the maps, (n_out,)."""
        if self.smoothing is None:
            return self.values.new_zeros(self.values.shape[1])
        return self.smoothing.bound

    # -- arrays -------------------------------------------------------------------------------

    @cached_property
    def vertices(self) -> Tensor:
        """Plane coordinates of the vertices, (V, 2)."""
        return self.frame.to_plane(self.mesh.uv)

    @property
    def edges(self) -> Tensor:
        """End vertices of each edge, (E, 2)."""
        return self.mesh.edges

    @property
    def edge_layer(self) -> Tensor:
        """Index into ``layers`` of the layer that drew each edge, -1 on the border, (E,)."""
        return self.mesh.edge_layer

    @property
    def edge_unit(self) -> Tensor:
        """Unit (flat index) of that layer which switches on each edge, -1 on the border, (E,).

        The unit of a maximum is the group, which is a unit of the result; the unit of two sorted
        ones is the first.
        """
        return self.mesh.edge_unit

    @property
    def vertex_layer(self) -> Tensor:
        """Index into ``layers`` of the layer that made each vertex, -1 at the corners, (V,)."""
        return self.mesh.vertex_layer

    @property
    def face_offsets(self) -> Tensor:
        """The place in ``face_vertices`` where each region's vertices begin, (F + 1,)."""
        return self.mesh.offsets

    @cached_property
    def face_vertices(self) -> Tensor:
        """Vertices of all regions, counter-clockwise, region after region, (H,)."""
        return self.mesh.corner_vertices()

    @property
    def num_corners(self) -> Tensor:
        """Number of vertices of each region, (F,)."""
        return self.mesh.counts()

    @cached_property
    def areas(self) -> Tensor:
        """Area of each region, (F,)."""
        return self._areas_and_centroids[0] * self.frame.scale**2

    @cached_property
    def centroids(self) -> Tensor:
        """Centroid of each region, (F, 2)."""
        return self.frame.to_plane(self._areas_and_centroids[1])

    @cached_property
    def _areas_and_centroids(self) -> tuple[Tensor, Tensor]:
        return self.mesh.areas_and_centroids()

    @cached_property
    def maps(self) -> AffineMaps:
        """The affine maps in local coordinates, each relative to a point inside its region."""
        # Triangles of a refinement have other maps than the network.
        refined = self.smoothing is not None and self.smoothing.refined
        network = None if refined else self.program
        with torch.no_grad():
            return affine_maps(
                self.mesh, self.values, self.value_error, network, self.domain, self.frame
            )

    @cached_property
    def weight(self) -> Tensor:
        """Slope of each region's affine map in plane coordinates, (F, n_out, 2)."""
        return self.maps.weight / self.frame.scale

    @cached_property
    def bias(self) -> Tensor:
        """Offset of each region's affine map: output = weight @ uv + bias, (F, n_out)."""
        anchor = self.frame.to_plane(self.maps.anchor)
        return self.maps.value - (self.weight @ anchor[:, :, None])[:, :, 0]

    @cached_property
    def edge_faces(self) -> Tensor:
        """Regions left and right of each edge, -1 outside the domain, (E, 2)."""
        return self.mesh.halfedge_face().view(-1, 2)

    # -- regions ------------------------------------------------------------------------------

    def locate(self, x: Tensor) -> Tensor:
        """The region of each input (N, ...), (N,); -1 outside the domain or off its plane.

        An input on an edge or at a vertex belongs to the adjacent region in which it lies deepest,
        and of equals to the one with the lowest number. The domain includes its border. Inputs in
        single precision may be off the plane by their rounding. Check for -1 before indexing with
        the result: Python takes -1 for the last element.

        x: a batch of inputs (N, ...), a flat batch, or one input.
        """
        local, off = in_plane(self.domain, self.frame, x, self.mesh.uv)
        return torch.where(off, -1, self._locator(local))

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self.mesh)

    def neighbours(self, region: int) -> Tensor:
        """The numbers of the regions that share an edge with the given one, ascending."""
        index = int(self._indices(region)[0])
        start, end = self.mesh.offsets[index], self.mesh.offsets[index + 1]
        twins = self.mesh.corners[start:end] ^ 1
        found: Tensor = torch.unique(self.edge_faces.view(-1)[twins])
        return found[found >= 0]

    def _indices(self, regions: Tensor | Sequence[int] | int) -> Tensor:
        """The numbers (N,) of regions that are given by number, from the end too, or by mask."""
        return region_numbers(regions, len(self), self.mesh.uv.device)

    def patterns(self, regions: Tensor | Sequence[int] | int | None = None) -> dict[str, Tensor]:
        """The piece that each unit is on, by the name of the layer, (N, units) each.

        The piece of a function of one variable is the number of breakpoints below the unit's value
        (counted from the table's first, if it is periodic); of a maximum, the flat index of the
        unit of the layer's input that wins the group; of a sorting, whether the first of two units
        is the larger one, for the pairs 01, 02, ..., 12, ... of each group; of a registered
        operation, whether each function is positive.

        regions: numbers of regions, or a mask (F,), by default all.
        """
        chosen = slice(None) if regions is None else self._indices(regions)
        return self._patterns_at(self.mesh.means()[chosen])

    def _patterns_at(self, local: Tensor, errors: float = 1.0) -> dict[str, Tensor]:
        """Patterns at points (N, 2) in local coordinates.

        errors: a unit beyond a breakpoint by this many rounding errors counts as on it.
        """
        slack = {name: errors * error for name, error in self.layer_errors.items()}
        widest = max([self.domain.dim, *(len(error) for error in slack.values())])
        with torch.no_grad():
            blocks = [
                self.program.patterns(self.domain.embed(self.frame.to_plane(block)), slack)
                for block in torch.split(local, max(1, backend_of(local.device).numbers // widest))
            ]
        return {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}

    def jacobian(self, regions: Tensor | Sequence[int] | int) -> Tensor:
        """The derivative of the output in input space on some regions, (N, n_out, ...).

        regions: numbers of regions, or a mask (F,).
        """
        chosen = self._indices(regions)
        if not chosen.shape[0]:
            return self.values.new_zeros((0, self.values.shape[1], *self.domain.input_shape))
        return gradients(
            self.program, self.domain.embed(self.frame.to_plane(self.mesh.means()[chosen]))
        )

    def merged(self) -> Merged:
        """The pieces that neighbouring regions with the same affine map form together."""
        return merge(self.mesh, self.maps, self.areas)

    def inputs(
        self,
        uv: Tensor,
        *,
        dtype: torch.dtype | None = None,
        device: str | torch.device | None = None,
    ) -> Tensor:
        """The inputs (N, ...) at plane coordinates (N, 2), ready for the model.

        uv: plane coordinates. dtype, device: by default the model's floating-point type, and the
        device of the domain.
        """
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating-point type, not {dtype}")
        return self.domain.embed(uv).to(device or self.domain.origin.device, dtype or self.dtype)

    def _remembered(self, name: str, options: Any, compute: Callable[[], T]) -> T:
        """The result of a computation, which is kept until other options are asked for."""
        if name not in self._results or self._results[name][0] != options:
            self._results[name] = options, compute()
        found: T = self._results[name][1]
        return found

    def __repr__(self) -> str:
        parts = [
            f"{len(self):,} region{'s' * (len(self) != 1)}",
            f"{self.mesh.num_edges:,} edges",
            f"{self.values.shape[1]} output{'s' * (self.values.shape[1] != 1)}",
            f"{len(self.layers)} layer{'s' * (len(self.layers) != 1)}",
        ]
        if self.stripped:
            parts.append(f"final {self.stripped} left out")
        if self.smoothing is not None:
            parts.append(self.smoothing.within)
        if self.unresolved:
            parts.append(f"{len(self.unresolved):,} unresolved places")
        if self.names is not None:
            parts.append(f"classes {few(self.names)}")
        if self._model is None:
            parts.append("without its model")
        return f"{type(self).__name__}({', '.join(parts)}, on {self.mesh.uv.device})"


def in_plane(domain: Domain, frame: Frame, x: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Local coordinates (N, 2) of inputs (N, ...), and whether each is off the plane, (N,).

    like: a tensor of the type and on the device of the results.
    """
    uv, distance = domain.project(x)
    local = frame.to_local(uv.to(like))
    reach = float(domain.origin.abs().max()) + domain.diameter
    coarse = isinstance(x, Tensor) and x.is_floating_point()
    rounding = torch.finfo(x.dtype).eps * domain.dim**0.5 if coarse else 0.0
    return local, distance.to(local.device) > max(PLANAR, rounding) * reach


def region_numbers(
    regions: Tensor | Sequence[int] | int, count: int, device: torch.device
) -> Tensor:
    """The numbers (N,) of regions, of which there are ``count``, as ``_indices`` takes them."""
    index = torch.as_tensor(regions, device=device).reshape(-1)
    if index.dtype == torch.bool:
        if index.shape[0] != count:
            raise IndexError(f"a mask of {index.shape[0]} for {count:,} regions")
        return index.nonzero()[:, 0]
    if index.is_floating_point() and index.numel():
        raise TypeError("regions are numbered by whole numbers")
    index = index.long()
    index = torch.where(index < 0, index + count, index)
    if bool(((index < 0) | (index >= count)).any()):
        raise IndexError(f"there are {count:,} regions, numbered from 0")
    return index
