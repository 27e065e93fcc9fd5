"""A final softmax, sigmoid or tanh, and what follows it, is left out if decisions stay the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import splinecam as sc
from splinecam.errors import UnsupportedOpError
from splinecam.network.capture import capture

SAME = torch.full((6,), 3.0)
EACH = torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])


class Net(nn.Module):
    """Two layers, and a function of their six outputs, or of one."""

    def __init__(self, last: Callable[[Tensor], Tensor], outputs: int = 6) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.body = nn.Sequential(nn.Linear(2, 7), nn.ReLU(), nn.Linear(7, outputs)).double()
        with torch.no_grad():
            for parameter in self.body.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(x))


ACCEPTED: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "tanh": (torch.tanh, "tanh"),
    "tanh scaled and shifted": (lambda z: 2 * torch.tanh(z) + 0.25, "tanh"),
    "negative scale": (lambda z: -2.5 * torch.sigmoid(z), "sigmoid"),
    "one less": (lambda z: 1 - torch.sigmoid(z), "sigmoid"),
    "divided twice by negative numbers": (lambda z: torch.sigmoid(z) / -3 / -2, "sigmoid"),
    "less than": (lambda z: torch.sub(4.0, torch.tanh(z), alpha=2), "tanh"),
    "equal scales": (lambda z: SAME.to(z) * torch.sigmoid(z), "sigmoid"),
    "scale for each point": (
        lambda z: torch.sigmoid(z) * torch.full((z.shape[0], 1), 2.0, dtype=z.dtype),
        "sigmoid",
    ),
    "log of softmax": (lambda z: torch.log(torch.softmax(z, 1)), "softmax"),
    "cross entropies": (lambda z: -torch.log(torch.softmax(z, 1) + 1e-3), "softmax"),
    "exp of log-softmax": (lambda z: F.log_softmax(z, -1).exp(), "log_softmax"),
    "log-sigmoid": (lambda z: 2 * F.logsigmoid(z), "logsigmoid"),
    "view": (lambda z: torch.softmax(z.view(-1, 2, 3), 2).view(-1, 6), "softmax"),
    "rows in one dimension": (lambda z: F.softmax(z.reshape(-1, 3), 1).view(-1, 2, 3), "softmax"),
    "flatten": (lambda z: torch.softmax(z.view(-1, 2, 3), 1).flatten(1), "softmax"),
    "squeeze": (lambda z: torch.softmax(z[:, :, None], 1).squeeze(-1), "softmax"),
    "transpose": (
        lambda z: torch.softmax(z.view(-1, 2, 3), 2).transpose(1, 2).flatten(1),
        "softmax",
    ),
    "there and back": (lambda z: 2 * torch.softmax(z.t(), 0).t(), "softmax"),
    "all at once": (
        lambda z: -3 * torch.log(F.softmax(z.view(-1, 2, 3), 2).permute(0, 2, 1)).flatten(1),
        "softmax",
    ),
}


def points() -> Tensor:
    return torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.few(5)
@pytest.mark.parametrize("name", ACCEPTED)
def test_a_final_function_is_left_out(name: str) -> None:
    last, label = ACCEPTED[name]
    model = Net(last)
    part = sc.partition(model, sc.Domain.box(-2, 2))
    part.validate()
    assert part.stripped == label
    assert f"final {label} left out" in repr(part)
    x, program = points(), part._network
    expected, logits = model(x), program(x)
    assert program.output_shape == expected.shape[1:]
    torch.testing.assert_close(program.final(logits), expected)
    # What is left has the values of the body, up to their order and sign.
    body = model.body(x).sort(1).values
    found = logits.flatten(1).sort(1).values
    assert torch.equal(found, body) or torch.equal(found, (-body).sort(1).values)
    if "softmax" not in label:
        order, flat = logits.flatten(1).argsort(1), expected.flatten(1)
        assert (flat.gather(1, order).diff(dim=1) >= 0).all()


@pytest.mark.parametrize("name", ["tanh", "negative scale", "log of softmax", "cross entropies"])
def test_decisions_are_those_of_the_model(name: str) -> None:
    model = Net(ACCEPTED[name][0])
    part = sc.partition(model, sc.Domain.box(-2, 2))
    x = points()
    assert torch.equal(part._network(x).argmax(1), model(x).argmax(1))
    boundary = part.decision_boundary()
    assert boundary.length > 0
    both = model(part.domain.embed(boundary.points).to(x)).topk(2, 1).values
    torch.testing.assert_close(both[:, 0], both[:, 1])


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("last", "sign"),
    [
        (torch.tanh, 1),
        (lambda z: 1 - torch.sigmoid(z), -1),
        (lambda z: 2 * torch.sigmoid(z) - 1, 1),
        (lambda z: -torch.tanh(z) * torch.tensor([3.0], dtype=z.dtype), -1),
    ],
)
def test_the_boundary_of_one_output_is_that_of_its_logit(
    last: Callable[[Tensor], Tensor], sign: int
) -> None:
    model = Net(last, 1)
    domain = sc.Domain.box(-2, 2)
    part, bare = sc.partition(model, domain), sc.partition(model.body, domain)
    part.validate()
    torch.testing.assert_close(part.values, sign * bare.values)
    lengths = [p.decision_boundary().length for p in (part, bare)]
    assert lengths[0] > 0
    assert lengths[0] == pytest.approx(lengths[1])


REJECTED: dict[str, tuple[Callable[[Tensor], Tensor], str, str]] = {
    "scale for each output": (
        lambda z: torch.sigmoid(z) * EACH.to(z),
        "aten.mul",
        "does not treat all outputs alike",
    ),
    "shift for each output": (
        lambda z: torch.tanh(z) + EACH.to(z),
        "aten.add",
        "does not treat all outputs alike",
    ),
    "nothing": (lambda z: 0 * torch.sigmoid(z), "aten.mul", "constant"),
    "log of tanh": (lambda z: torch.log(torch.tanh(z)), "aten.log", "not piecewise linear"),
    "sum with itself": (
        lambda z: torch.sigmoid(z) + z,
        "aten.sigmoid",
        "only as the last operation",
    ),
    "one of the outputs": (
        lambda z: torch.softmax(z, 1)[:, :2],
        "aten.softmax",
        "only as the last operation",
    ),
    "over the batch": (lambda z: torch.softmax(z, 0), "aten.softmax", "not over the batch"),
    "over the batch and more": (
        lambda z: torch.softmax(z.reshape(-1, 3), 0).view(-1, 6),
        "aten.softmax",
        "not over the batch",
    ),
    "mixed": (lambda z: torch.tanh(z) @ torch.ones(6, 2).to(z), "aten.tanh", "only as the last"),
    "clamped": (lambda z: torch.tanh(z).clamp(min=0), "aten.tanh", "only as the last"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_other_functions_at_the_end_are_refused(name: str) -> None:
    last, target, reason = REJECTED[name]
    with pytest.raises(UnsupportedOpError) as caught:
        capture(Net(last), (2,))
    (op,) = caught.value.ops
    assert op.target == target
    assert reason in op.reason
    assert op.location.startswith("test_final_functions.py:")


def test_what_is_left_out_moves_with_the_program() -> None:
    program = capture(Net(ACCEPTED["all at once"][0]), (2,)).to("meta")
    made = program.final(program(torch.empty(5, 2, device="meta")))
    assert made.device.type == "meta"
    assert made.shape == (5, 6)
