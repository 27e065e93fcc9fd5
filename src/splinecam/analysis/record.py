"""Everything that a partition consists of, apart from the network itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam.analysis.regions import Unresolved
from splinecam.engine.affine_maps import AffineMaps
from splinecam.geometry.domain import Domain
from splinecam.geometry.subdivision import Mesh
from splinecam.network.capture.outputs import Output

__all__ = ["Record"]


@dataclass(frozen=True, eq=False)
class Record:
    """A divided domain: V vertices, E edges and F regions, with the network's output on them.

    mesh: in the engine's own coordinates; values: (V, n_out) the output at the vertices;
    value_error: (n_out,) and layer_errors: (n,) per cut, rounding errors; cuts: names of the
    non-linearities; stripped: a final softmax or sigmoid that was left out; dtype: the model's
    floating-point type; maps: of the regions, if they are known already; output: which of several
    outputs of the model this is, if it has several; names: of the classes.
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
    maps: AffineMaps | None = None
    output: Output = None
    names: tuple[str, ...] | None = None

    def to(self, device: torch.device) -> Record:
        """The same on another device; domains stay where they are."""
        return replace(
            self,
            mesh=self.mesh.to(device),
            values=self.values.to(device),
            value_error=self.value_error.to(device),
            layer_errors={name: error.to(device) for name, error in self.layer_errors.items()},
            maps=self.maps and AffineMaps(*(t.to(device) for t in vars(self.maps).values())),
        )
