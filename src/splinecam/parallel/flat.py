"""Many domains, and the outcomes of many domains, as a few flat arrays that travel well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from splinecam.arrangement.edge_crossings import Ambiguities
from splinecam.engine.run import Outcome
from splinecam.geometry.domain import Domain
from splinecam.geometry.subdivision import Mesh

__all__ = ["FlatDomains", "FlatOutcomes", "flat_domains", "flat_outcomes", "outcomes_of"]

Array = npt.NDArray[Any]


class FlatDomains(NamedTuple):
    """N domains of one input shape.

    origins: (N, D); bases: (N, 2, D); corners: (K, 2) of all, one after the other; counts: (N,) how
    many corners each has.
    """

    origins: Array
    bases: Array
    corners: Array
    counts: list[int]
    input_shape: tuple[int, ...]

    def domains(self) -> list[Domain]:
        """The domains, as they were: they are not checked again."""
        corners = torch.split(_tensor(self.corners), self.counts)
        columns = zip(_tensor(self.origins), _tensor(self.bases), corners, strict=True)
        return [self._domain(*row) for row in columns]

    def _domain(self, origin: Tensor, basis: Tensor, corners: Tensor) -> Domain:
        domain = object.__new__(Domain)
        row = {"origin": origin, "basis": basis, "corners": corners}
        vars(domain).update(row, input_shape=self.input_shape)
        return domain


def flat_domains(domains: Sequence[Domain]) -> FlatDomains:
    """Domains of one input shape as flat arrays."""
    return FlatDomains(
        torch.stack([domain.origin for domain in domains]).numpy(),
        torch.stack([domain.basis for domain in domains]).numpy(),
        torch.cat([domain.corners for domain in domains]).numpy(),
        [domain.corners.shape[0] for domain in domains],
        domains[0].input_shape,
    )


class FlatOutcomes(NamedTuple):
    """The outcomes of N domains.

    columns: the fields of all meshes and the outputs, each as one array. sizes: (N,) rows of every
    column. errors: the rounding errors of the output and of the units of each layer, for every
    batch; batch: (N,) which of them. ambiguities: of the domains that have some.
    """

    columns: dict[str, Array]
    sizes: dict[str, list[int]]
    errors: list[tuple[Array, dict[str, Array]]]
    batch: list[int]
    ambiguities: dict[int, list[tuple[str, Array, str]]]


def flat_outcomes(outcomes: Sequence[Outcome]) -> FlatOutcomes:
    """Outcomes as flat arrays, in the memory of the CPU."""
    names = [field.name for field in fields(Mesh)]
    found = {name: [getattr(outcome.mesh, name) for outcome in outcomes] for name in names}
    found["output"] = [outcome.output for outcome in outcomes]
    batches = {id(outcome.layer_errors): outcome for outcome in outcomes}
    number = {key: i for i, key in enumerate(batches)}
    return FlatOutcomes(
        {name: _array(torch.cat(tensors)) for name, tensors in found.items()},
        {name: [tensor.shape[0] for tensor in tensors] for name, tensors in found.items()},
        [
            (_array(each.error), {name: _array(x) for name, x in each.layer_errors.items()})
            for each in batches.values()
        ],
        [number[id(outcome.layer_errors)] for outcome in outcomes],
        {
            i: [(name, _array(place.uv), place.reason) for name, place in outcome.ambiguities]
            for i, outcome in enumerate(outcomes)
            if outcome.ambiguities
        },
    )


def outcomes_of(flat: FlatOutcomes, device: torch.device | None = None) -> list[Outcome]:
    """The outcomes, as views of the flat arrays, or of their copies on another device."""
    errors = [
        (_tensor(error, device), {name: _tensor(x, device) for name, x in layers.items()})
        for error, layers in flat.errors
    ]
    split = {
        name: torch.split(_tensor(column, device), flat.sizes[name])
        for name, column in flat.columns.items()
    }
    output = split.pop("output")
    rows = zip(*split.values(), strict=True)
    meshes = [Mesh(**dict(zip(split, row, strict=True))) for row in rows]
    ambiguities = {
        i: [(name, Ambiguities(_tensor(uv, device), reason)) for name, uv, reason in places]
        for i, places in flat.ambiguities.items()
    }
    return [
        Outcome(mesh, values, *errors[batch], ambiguities.get(i, []))
        for i, (mesh, values, batch) in enumerate(zip(meshes, output, flat.batch, strict=True))
    ]


def _array(tensor: Tensor) -> Array:
    array: Array = np.ascontiguousarray(tensor.detach().cpu().numpy())
    return array


def _tensor(array: Array, device: torch.device | None = None) -> Tensor:
    # Engines hand over arrays that must not be written to, and those would be shared.
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    return tensor if device is None else tensor.to(device)
