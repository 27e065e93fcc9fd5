"""Small random networks and domains, many of them degenerate, for the property tests.

``HYPOTHESIS_PROFILE=thorough`` draws ten times as many examples, and new ones on every run;
``HYPOTHESIS_PROFILE=brief``, as in ``make test``, draws a fifth as many.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import nn

from splinecam.geometry.domain import Domain
from splinecam.testing import Abs, Max, Maximum, Min, Minimum, Residual, SortedGroups


def in_profile(count: int) -> int:
    """So many cases, and more or fewer in proportion if the profile asks for that."""
    return count * settings().max_examples // 100


def examples(count: int) -> settings:
    """Settings for so many examples, and more or fewer in proportion as the profile asks."""
    return settings(max_examples=in_profile(count))


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky": nn.LeakyReLU,
    "abs": Abs,
    "relu6": nn.ReLU6,
    "hardtanh": nn.Hardtanh,
    "prelu": nn.PReLU,
    "softshrink": nn.Softshrink,
    "hardsigmoid": nn.Hardsigmoid,
}


def _grouped(units: int, size: int, largest: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (units // size, size)), largest)


def _pooled(units: int, pool: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, units)), pool, nn.Flatten())


# name: (of how many units there must be a multiple, the module for so many units)
MAXIMA: dict[str, tuple[int, Callable[[int], nn.Module]]] = {
    "maxout2": (2, lambda n: _grouped(n, 2, Max(2))),
    "maxout3": (3, lambda n: _grouped(n, 3, Max(2))),
    "maxout5": (5, lambda n: _grouped(n, 5, Max(2))),
    "minout3": (3, lambda n: _grouped(n, 3, Min(2))),
    "max": (1, lambda n: Max(1, keepdim=True)),
    "maximum": (2, lambda n: Maximum()),
    "minimum": (2, lambda n: Minimum()),
    "sort2": (2, lambda n: SortedGroups(2)),
    "sort3": (3, lambda n: SortedGroups(3)),
    "pool": (2, lambda n: _pooled(n, nn.MaxPool1d(2))),
    "pool overlapping": (3, lambda n: _pooled(n, nn.MaxPool1d(3, 1))),
    "pool padded": (2, lambda n: _pooled(n, nn.MaxPool1d(3, 2, 1))),
    "pool dilated": (3, lambda n: _pooled(n, nn.MaxPool1d(2, 1, dilation=2))),
    "pool adaptive": (2, lambda n: _pooled(n, nn.AdaptiveMaxPool1d(2))),
}

Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Layer:
    """``act(weight @ x + bias)``, plus ``x`` if ``skip``; its repr can be pasted into a test.

    ``maxima`` names what is taken of the result's units in groups.
    """

    weight: Rows
    bias: tuple[float, ...]
    act: str = "relu"
    skip: bool = False
    maxima: str = "none"

    def module(self) -> nn.Module:
        linear = dense(self.weight, self.bias)
        body = linear if self.act == "none" else nn.Sequential(linear, ACTIVATIONS[self.act]())
        body = Residual(body) if self.skip else body
        if self.maxima == "none":
            return body
        return nn.Sequential(body, MAXIMA[self.maxima][1](len(self.bias)))

    @property
    def outputs(self) -> int:
        zero = torch.zeros(1, len(self.weight[0]), dtype=torch.float64)
        return self.module().double()(zero).shape[1]


@dataclass(frozen=True)
class Net:
    """A network by its numbers: ``Net(...).module()`` is the model, in float64."""

    layers: tuple[Layer, ...]

    def module(self) -> nn.Sequential:
        return nn.Sequential(*(layer.module() for layer in self.layers)).double().eval()


def dense(weight: Any, bias: Any = None) -> nn.Linear:
    """A linear layer with these numbers, (n, m) and (n,), in float64."""
    weight = torch.as_tensor(weight, dtype=torch.float64)
    n, m = weight.shape
    layer = nn.Linear(m, n, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(torch.as_tensor([0.0] * n if bias is None else bias, dtype=torch.float64))
    return layer


def mlp(*widths: int, seed: int = 0) -> nn.Sequential:
    """A ReLU network of these widths with torch's random weights, in float64."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for a, b in pairwise(widths[:-1]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1])).double().eval()


# ----------------------------------------------------------------------------------- networks


def _integers(draw: st.DrawFn, n: int, m: int) -> list[list[float]]:
    row = st.lists(st.integers(-3, 3), min_size=m, max_size=m)
    return [list(map(float, draw(row))) for _ in range(n)]


def _generator(draw: st.DrawFn) -> torch.Generator:
    return torch.Generator().manual_seed(draw(st.integers(0, 2**20)))


def _lattice(draw: st.DrawFn, n: int, m: int) -> list[list[float]]:
    """Integers by seed: hypothesis itself likes zeros too much."""
    rows: list[list[float]] = (
        torch.randint(-3, 4, (n, m), generator=_generator(draw)).double().tolist()
    )
    return rows


def _eighths(draw: st.DrawFn, n: int, m: int) -> list[list[float]]:
    rows: list[list[float]] = (
        torch.randint(-16, 17, (n, m), generator=_generator(draw)).double() / 8
    ).tolist()
    return rows


def _normals(draw: st.DrawFn, n: int, m: int) -> list[list[float]]:
    """Float32 numbers, so that sums of a few of them are exact in float64."""
    rows: list[list[float]] = torch.randn(n, m, generator=_generator(draw)).tolist()
    return rows


def _repeated(draw: st.DrawFn, rows: list[list[float]]) -> list[list[float]]:
    """Some rows become a multiple of the first one, or zero."""
    factors = draw(st.lists(st.sampled_from([None, 1, -1, 3, 0]), max_size=len(rows) - 1))
    for i, factor in enumerate(factors, start=1):
        if factor is not None:
            rows[i] = [factor * value for value in rows[0]]
    return rows


@st.composite
def layers(draw: st.DrawFn, inputs: int, units: int, act: str) -> Layer:
    """A layer with integer, dyadic or normal weights; bias-free, dead or with repeated units."""
    numbers = draw(st.sampled_from([_integers, _lattice, _eighths, _normals]))
    rows = numbers(draw, units, inputs + 1)
    if draw(st.sampled_from([False, False, True])):
        rows = _repeated(draw, rows)
    weight = tuple(tuple(row[:-1]) for row in rows)
    bias = tuple(row[-1] for row in rows)
    kind = draw(st.sampled_from(["bias"] * 12 + ["free"] * 3 + ["dead"]))
    if kind == "free":
        bias = (0.0,) * units
    elif kind == "dead":
        bias = (-1000.0,) * units
    skip = inputs == units and draw(st.booleans())
    return Layer(weight, bias, act, skip)


@st.composite
def nets(draw: st.DrawFn, *, inputs: int = 2, depth: int = 3, width: int = 6) -> Net:
    """One to ``depth`` hidden layers of one to ``width`` units, mixed, and a linear output."""
    activations = st.sampled_from(["relu"] * len(ACTIVATIONS) + sorted(ACTIVATIONS) + ["none"])
    built = []
    size = inputs
    for _ in range(draw(st.integers(1, depth))):
        units = draw(st.sampled_from([*range(1, width + 1), *range(width // 2, width + 1)]))
        built.append(draw(layers(size, units, draw(activations))))
        size = units
    built.append(draw(layers(size, draw(st.integers(1, 3)), "none")))
    return Net(tuple(built))


@st.composite
def maxima_nets(draw: st.DrawFn, *, depth: int = 3, width: int = 15) -> Net:
    """Hidden layers most of which take maxima of their units or sort them, before or after ReLU."""
    activations = st.sampled_from(["none"] * 6 + ["relu"] * 4 + sorted(ACTIVATIONS))
    built: list[Layer] = []
    size = 2
    for place in range(draw(st.integers(1, depth))):
        maxima = draw(st.sampled_from([*sorted(MAXIMA), *["none"] * (3 if place else 0)]))
        multiple = MAXIMA[maxima][0] if maxima != "none" else 1
        groups = width // multiple
        units = multiple * draw(st.sampled_from([1, *range(groups // 2 + 1, groups + 1)]))
        layer = draw(layers(size, units, draw(activations)))
        built.append(replace(layer, maxima=maxima))
        size = built[-1].outputs
    built.append(draw(layers(size, draw(st.integers(1, 2)), "none")))
    return Net(tuple(built))


@dataclass(frozen=True)
class ImageNet:
    """A linear layer into an image, convolution, ReLU and max-pooling, and a linear output.

    ``numbers`` says which kind the weights are, ``seed`` which ones; ``twins`` makes the second
    channel equal to the first. ``pool`` is (kernel, stride, padding, dilation, ceil_mode), or the
    size of the output of adaptive pooling. ``first`` is what comes first, "relu" or "pool".
    """

    seed: int
    numbers: str
    side: int
    pool: tuple[int, int, int, int, bool] | int
    first: str = "relu"
    padding: int = 0
    bias: bool = True
    twins: bool = False

    def module(self) -> nn.Sequential:
        generator = torch.Generator().manual_seed(self.seed)
        bent = [nn.ReLU(), self._pool()]
        body: list[nn.Module] = [
            nn.Linear(2, self.side**2, bias=self.bias),
            nn.Unflatten(1, (1, self.side, self.side)),
            nn.Conv2d(1, 2, 2, padding=self.padding, bias=self.bias),
            *(bent if self.first == "relu" else reversed(bent)),
            nn.Flatten(),
        ]
        size = nn.Sequential(*body)(torch.zeros(1, 2)).shape[1]
        model = nn.Sequential(*body, nn.Linear(size, 2)).double().eval()
        with torch.no_grad():
            for tensor in model.parameters():
                tensor.copy_(_NUMBERS[self.numbers](tensor.shape, generator))
            if self.twins:
                for tensor in model[2].parameters():
                    tensor[1] = tensor[0]
        return model

    def _pool(self) -> nn.Module:
        if isinstance(self.pool, int):
            return nn.AdaptiveMaxPool2d(self.pool)
        kernel, stride, padding, dilation, ceil_mode = self.pool
        return nn.MaxPool2d(kernel, stride, padding, dilation, ceil_mode=ceil_mode)


_NUMBERS: dict[str, Callable[[torch.Size, torch.Generator], torch.Tensor]] = {
    "signs": lambda shape, generator: torch.randint(-1, 2, shape, generator=generator).double(),
    "integers": lambda shape, generator: torch.randint(-3, 4, shape, generator=generator).double(),
    "normal": lambda shape, generator: torch.randn(shape, generator=generator).double(),
}
_POOLS = [
    (2, 2, 0, 1, False),
    (2, 1, 0, 1, False),
    (2, 2, 1, 1, False),
    (2, 2, 0, 1, True),
    (2, 1, 0, 2, False),
    (3, 1, 1, 1, False),
    (3, 2, 1, 1, False),
    (3, 2, 1, 1, True),
    1,
    2,
]


def image_nets() -> st.SearchStrategy[ImageNet]:
    return st.builds(
        ImageNet,
        seed=st.integers(0, 2**20),
        numbers=st.sampled_from(sorted(_NUMBERS)),
        side=st.integers(3, 5),
        pool=st.sampled_from(_POOLS),
        first=st.sampled_from(["relu", "pool"]),
        padding=st.integers(0, 1),
        bias=st.booleans(),
        twins=st.booleans(),
    )


# ------------------------------------------------------------------------------------ domains


@st.composite
def boxes(draw: st.DrawFn) -> Domain:
    """Boxes with integer corners: integer lines run along their sides and through corners."""
    (left, low), (wide, high) = (draw(st.tuples(*[st.integers(*r)] * 2)) for r in ((-3, 1), (1, 5)))
    return Domain.box((left, low), (left + wide, low + high))


_LATTICE = [
    [(0, 0), (3, 0), (0, 3)],
    [(-1, -2), (2, 0), (1, 2), (-2, 1)],
    [(2, 0), (1, 1), (-1, 1), (-2, 0), (-1, -1), (1, -1)],
]


@st.composite
def convex(draw: st.DrawFn) -> Domain:
    """Three to eight points of an ellipse, or a polygon with integer corners."""
    if draw(st.booleans()):
        return Domain.polygon(torch.tensor(draw(st.sampled_from(_LATTICE)), dtype=torch.float64))
    third = st.integers(0, 7)  # a point in every third of the circle keeps the polygon fat
    steps = {24 * k // 3 + draw(third) for k in range(3)} | draw(st.sets(st.integers(0, 23)))
    wide, high = draw(st.sampled_from([(1.0, 1.0), (3.0, 1.0), (0.5, 4.0)]))
    angles = [2 * math.pi * step / 24 for step in sorted(steps)]
    points = [(wide * math.cos(a), high * math.sin(a)) for a in angles]
    # A corner 1e-17 beside a line would make cells that no float64 computation can see.
    rounded = (torch.tensor(points, dtype=torch.float64) * 1024).round() / 1024
    return Domain.polygon(rounded)


def domains() -> st.SearchStrategy[Domain]:
    """Boxes and convex polygons in the plane."""
    return st.one_of(boxes(), convex())


@st.composite
def planes(draw: st.DrawFn, inputs: int) -> Domain:
    """A square around a random point of a larger input space."""
    seed = draw(st.integers(0, 2**20))
    point = torch.randn(inputs, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Domain.around(point, side=draw(st.sampled_from([0.5, 2.0, 10.0])), seed=seed)


@st.composite
def lattice_networks(draw: st.DrawFn) -> nn.Sequential:
    """Integer weights, with repeated and ignored units, so that many maps are equal."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    widths = [2, *draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))]
    outputs = draw(st.integers(1, 3))
    layers: list[nn.Module] = []
    for a, b in zip(widths, [*widths[1:], outputs], strict=True):
        weight = torch.randint(-1, 2, (b, a), generator=generator).double()
        layers += [dense(weight, torch.randint(-1, 2, (b,), generator=generator)), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
