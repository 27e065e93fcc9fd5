"""Vertices and triangles as they are read from a file, with larger polygons split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Polygons:
    """Vertices (V, 3), float64, and triangles (T, 3), int64."""

    vertices: NDArray[np.float64]
    triangles: NDArray[np.int64]

    @classmethod
    def ragged(
        cls, vertices: NDArray[np.float64], sizes: Sequence[int], indices: NDArray[np.int64]
    ) -> Polygons:
        """Split polygons with these numbers of corners, listed one after the other, into fans.

        >>> Polygons.ragged(np.zeros((4, 3)), [4], np.arange(4)).triangles
        array([[0, 1, 2],
               [0, 2, 3]])
        """
        counts = np.array(sizes, np.int64)
        fans = (counts - 2).clip(0)
        owner = np.repeat(np.arange(len(counts)), fans)
        start = (counts.cumsum() - counts)[owner]
        second = np.arange(len(owner)) - (fans.cumsum() - fans)[owner] + 1
        rows = (indices[start], indices[start + second], indices[start + second + 1])
        return cls(vertices, np.stack(rows, axis=1))

    def checked(self) -> Polygons:
        """The same without triangles of no area; raises ``ValueError`` if something is wrong."""
        vertices, triangles = self.vertices, self.triangles
        if vertices.ndim != 2 or vertices.shape[1] != 3 or not np.isfinite(vertices).all():
            raise ValueError("its vertices are not three finite numbers each")
        if triangles.ndim != 2 or triangles.shape[1] != 3 or not len(triangles):
            raise ValueError("it has no triangles")
        if triangles.min() < 0 or triangles.max() >= len(vertices):
            raise ValueError(f"a face names a vertex that is not one of its {len(vertices)}")
        a, b, c = vertices[triangles].transpose(1, 0, 2)
        triangles = triangles[np.cross(b - a, c - a).any(axis=1)]
        if not len(triangles):
            raise ValueError("all its triangles are without area")
        return Polygons(vertices, triangles)
