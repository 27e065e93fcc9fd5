"""Recurrent layers with relu, unrolled in time."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import splinecam as sc
from splinecam.errors import UnsupportedOpError
from splinecam.network.capture import capture


class Sequence(nn.Module):
    """A recurrent layer, and a linear function of its last output or of its last states."""

    def __init__(self, rnn: nn.Module, *, states: bool = False) -> None:
        super().__init__()
        self.rnn, self.states = rnn, states
        self.first = not rnn.batch_first

    def forward(self, x: Tensor) -> Tensor:
        output, states = self.rnn(x.transpose(0, 1) if self.first else x)
        if self.states:
            return states.transpose(0, 1).flatten(1)
        return output.flatten(1) if not self.first else output.permute(1, 0, 2).flatten(1)


def plane(*shape: int) -> sc.Domain:
    generator = torch.Generator().manual_seed(2)
    corners = torch.randn(3, *shape, dtype=torch.float64, generator=generator)
    return sc.Domain.through(*corners, margin=0.5)


@pytest.mark.few(3)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("states", [False, True])
def test_layers_and_directions(layers: int, bidirectional: bool, states: bool) -> None:
    torch.manual_seed(3)
    rnn = nn.RNN(2, 3, layers, nonlinearity="relu", batch_first=states, bidirectional=bidirectional)
    model = Sequence(rnn, states=states)
    part = sc.partition(model, plane(4, 2))
    part.validate()
    # The states of a direction, one time step after the other, in every layer.
    assert part.layers == tuple(
        "rnn" if i == 0 else f"rnn#{i + 1}" for i in range(4 * layers * (1 + bidirectional))
    )


@pytest.mark.parametrize("bias", [False, True])
def test_the_partition_is_that_of_the_network_written_out(bias: bool) -> None:
    torch.manual_seed(4)
    rnn = nn.RNN(2, 4, nonlinearity="relu", batch_first=True, bias=bias)

    class Unrolled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = rnn

        def forward(self, x: Tensor) -> Tensor:
            h = x.new_zeros(x.shape[0], 4)
            for step in x.unbind(1):
                new = F.linear(step, self.rnn.weight_ih_l0, self.rnn.bias_ih_l0 if bias else None)
                old = F.linear(h, self.rnn.weight_hh_l0, self.rnn.bias_hh_l0 if bias else None)
                h = torch.relu(new + old)
            return h

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = rnn

        def forward(self, x: Tensor) -> Tensor:
            return self.rnn(x)[1][-1]

    one, other = (sc.partition(model, plane(3, 2)) for model in (Last(), Unrolled()))
    assert len(one) == len(other) > 20
    torch.testing.assert_close(one.areas, other.areas)
    torch.testing.assert_close(one.values, other.values)


def test_the_first_state_may_depend_on_the_input() -> None:
    class Started(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.RNN(2, 3, nonlinearity="relu", batch_first=True)
            self.start = nn.Linear(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.rnn(x, F.relu(self.start(x[:, 0]))[None])[0][:, -1]

    torch.manual_seed(5)
    part = sc.partition(Started(), plane(3, 2))
    part.validate()
    assert part.layers == ("relu", "rnn", "rnn#2", "rnn#3")


def test_cells_in_a_loop() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.ModuleList(
                nn.RNNCell(size, 3, bias=size == 2, nonlinearity="relu") for size in (2, 3)
            )

        def forward(self, x: Tensor) -> Tensor:
            h = [None, None]
            for step in x.unbind(1):
                h[0] = self.cells[0](step, h[0])
                h[1] = self.cells[1](h[0], h[1])
            return h[1]

    torch.manual_seed(6)
    part = sc.partition(Loop(), plane(3, 2))
    part.validate()
    assert part.layers[:3] == ("cells.0", "cells.1", "cells.0#2")


def test_dropout_between_layers_is_random_in_training_mode() -> None:
    model = Sequence(nn.RNN(2, 3, 2, nonlinearity="relu", dropout=0.5, batch_first=True))
    with pytest.raises(UnsupportedOpError, match=r"call model\.eval\(\) first"):
        capture(model.train(), (4, 2))
    assert len(capture(model.eval(), (4, 2)).layers) == 8


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_other_recurrent_layers_are_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(UnsupportedOpError, match="it is not piecewise linear"):
        capture(Sequence(kind(2, 3, batch_first=True)), (4, 2))


def test_a_batch_that_is_taken_for_the_time_is_refused() -> None:
    class Unbatched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.RNN(2, 3, nonlinearity="relu")

        def forward(self, x: Tensor) -> Tensor:
            return self.rnn(x)[0]

    with pytest.raises(UnsupportedOpError, match="mixes the points of the batch"):
        capture(Unbatched(), (2,))
