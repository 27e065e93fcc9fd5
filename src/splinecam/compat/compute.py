"""Regions and decision boundary of a network in one call."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dis import opmap
from typing import Any

from torch import Tensor

from splinecam.compat.graph import Cycles
from splinecam.compat.utils import plane_coordinates
from splinecam.compat.wrappers import model_wrapper


class Found(tuple[Any, ...]):
    """Regions, boundary and maps; unpacked into two names, regions and boundary.

    The released README unpacks two values, and the released examples three. Both must run, and only
    the instruction that unpacks the result knows how many are wanted.
    """

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        caller = sys._getframe(1)
        place = caller.f_lasti
        two = caller.f_code.co_code[place : place + 2] == bytes([opmap["UNPACK_SEQUENCE"], 2])
        return iter(self[: 2 if two else 3])


def get_partitions_with_db(
    domain: Tensor | Sequence[Tensor], T: Tensor, NN: model_wrapper, **options: int
) -> Found:
    """The regions of a polygon of the input space, the decision boundary, and maps of the regions.

    Regions are a list of open polygons (k, 2) in the coordinates of T. The boundary is (S, 2, 2),
    both ends of each of its segments: where two classes tie and no third one is larger, or where a
    single output is zero; between two classes only after ``to_decision_boundary``. The maps are
    (F, n, 3), from coordinates of T to the units of the last layer with a non-linearity.

    domain: (k, ...) the vertices of a convex polygon. T: as NN was wrapped with. options: sizes of
    batches and numbers of workers, which are not needed.
    """
    if not T.detach().to(NN.T).equal(NN.T):
        raise ValueError("T is not the matrix of the plane that NN was wrapped with")
    part = NN.partition(plane_coordinates(domain, T))
    pair = getattr(NN.layers[-1], "between_class", None)
    boundary = NN.to_plane(part.decision_boundary(classes=pair).ends).cpu()
    maps = NN.maps(part.at_layer(len(part.layers))).as_subclass(Tensor).cpu()
    return Found((Cycles(NN, [part]), boundary, maps))
