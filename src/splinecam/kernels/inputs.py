"""What kernels cut meshes by: functions, selected chords, and candidate units of faces."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from splinecam.geometry.subdivision import Mesh

__all__ = ["Candidates", "LayerFunctions", "SelectedChords"]

# Chords of one face up to which a kernel compares all pairs of them.
MAX_CHORDS = 1 << 12


class LayerFunctions(NamedTuple):
    """Functions z (V, n) at the vertices of a mesh, to cut the faces along their zero sets.

    positive, negative: (V, W) words of their signs; error: (n,) rounding errors. slope_difference:
    (n,) the difference of the slopes of each result on both sides of zero, None for 1. layer: the
    provenance of what is cut. max_faces: the limit of faces, None for any number. breakpoints_from:
    the number of new vertices from which breakpoints are found, None for never. Only GPUs need
    negative, and wanted: (n,) whether a function may change sign.
    """

    z: Tensor
    positive: Tensor
    error: Tensor
    slope_difference: Tensor | None
    layer: int
    max_faces: int | None = None
    breakpoints_from: int | None = 0
    negative: Tensor | None = None
    wanted: Tensor | None = None


class SelectedChords(NamedTuple):
    """Chords (N,) to insert, where two units are equal in a face.

    key: (N,) ascending, (face * n + one unit) * n + another unit, of n units; unit: (N,) the unit
    of the new edges. table, error: (V, n) and (n,) values of all units and their rounding errors.
    Vertices from ``first_new`` on lie between two others: parents (W, 2), with position_error (W,)
    as a fraction of the distance of those. layer, max_faces: as in ``LayerFunctions``.
    """

    key: Tensor
    unit: Tensor
    table: Tensor
    error: Tensor
    first_new: int
    parents: Tensor
    position_error: Tensor
    layer: int
    max_faces: int | None


class Candidates(NamedTuple):
    """Groups of units (N, R) that may be the maximum in faces (N,) of a mesh.

    table, tolerance: (V, n) and (n,) values of all units and the tolerances of their comparisons.
    """

    mesh: Mesh
    table: Tensor
    tolerance: Tensor
    face: Tensor
    units: Tensor
