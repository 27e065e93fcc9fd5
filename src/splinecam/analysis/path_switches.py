"""The units that switch along a path, and the gradients of its pieces."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.csr import take
from splinecam.analysis.pieces import Pieces, piece_inputs, rows_in_pass

__all__ = ["Switches", "find_switches", "piece_gradients"]


@dataclass(frozen=True, eq=False, repr=False)
class Switches:
    """Units that are on other pieces before and after a point of a path, (N,) each, in order.

    point: the number of the point; layer: the number of the layer; unit: the flat index of the
    unit, or the group of a maximum; before, after: the pieces of the unit, or the winners of the
    group, see ``part.patterns``. layers: the names of the layers.
    """

    point: Tensor
    layer: Tensor
    unit: Tensor
    before: Tensor
    after: Tensor
    layers: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.point.shape[0])

    def at(self, point: int) -> list[tuple[str, int]]:
        """The units that switch at a point, each as the name of its layer and its index.

        point: its number among the points of the path.
        """
        chosen = (self.point == point).nonzero()[:, 0]
        rows = zip(self.layer[chosen].tolist(), self.unit[chosen].tolist(), strict=True)
        return [(self.layers[layer], unit) for layer, unit in rows]

    def __repr__(self) -> str:
        count = len(self)
        return f"Switches({count:,} unit{'s' * (count != 1)} in {len(self.layers)} layers)"


def find_switches(pieces: Pieces) -> Switches:
    """Compare the patterns of neighbouring pieces, which are found in the middle of each.

    The segments must form a path.
    """
    segment, t = piece_inputs(pieces)
    program, errors = pieces.program, pieces.errors[1]
    names = tuple(layer.name for layer in program.layers)
    found = []
    step = max(2, rows_in_pass(program))
    with torch.no_grad():
        for start in range(0, max(1, t.shape[0] - 1), step):
            rows = slice(start, start + step + 1)  # blocks share a piece
            x = pieces.inputs(segment[rows], t[rows])
            for number, (layer, z) in enumerate(program.walk(x)):
                state = layer.pieces(z, take(errors[layer.name], segment[rows]))
                point, unit = (state[1:] != state[:-1]).nonzero(as_tuple=True)
                sides = (state[point + side, unit].long() for side in (0, 1))
                found.append((point + start + 1, torch.full_like(point, number), unit, *sides))
    if not found:
        none = segment[:0]
        return Switches(none, none, none, none, none, names)
    point, layer_number, unit, before, after = (torch.cat(x) for x in zip(*found, strict=True))
    order = torch.sort(point, stable=True).indices
    return Switches(
        point=take(point, order),
        layer=take(layer_number, order),
        unit=take(unit, order),
        before=take(before, order),
        after=take(after, order),
        layers=names,
    )


def piece_gradients(pieces: Pieces, output: int) -> Tensor:
    """The gradient of an output on each piece, (M, *input_shape)."""
    segment, t = piece_inputs(pieces)
    rows, made = rows_in_pass(pieces.program), []
    with torch.inference_mode(False), torch.enable_grad():
        for own, at in zip(torch.split(segment, rows), torch.split(t, rows), strict=True):
            x = pieces.inputs(own, at).requires_grad_()
            y = pieces.program(x).reshape(x.shape[0], -1)[:, output]
            made.append(torch.autograd.grad(y.sum(), x, materialize_grads=True)[0])
    return torch.cat(made)
