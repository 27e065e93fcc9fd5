"""Windows are exact at every depth, and agree with the whole partition and with each other."""

import math
from concurrent.futures import CancelledError
from fractions import Fraction

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.testing import assert_same_cells, exact_partition
from splinecam.viewer.frames import Limits, Network, TooMuch
from splinecam.viewer.panes import Pane, panes_of
from splinecam.viewer.windows import Window, start_window

BOX = sc.Domain.box(-1, 1)
WIDTHS = [1.0, 1e-3, 1e-6, 1e-9, 1e-12]


class Folds(nn.Module):
    """Folds each coordinate of [-1, 1] again and again: kinks at all multiples of 2^(1 - count)."""

    def __init__(self, count: int):
        super().__init__()
        self.count = count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.count):
            x = torch.abs(2 * x) - 1
        return x


def mlp(inputs: int = 2, width: int = 8, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)
    ).double()


def square(center, width: float) -> tuple[float, float, float, float]:
    u, v = map(float, center)
    return u - width / 2, v - width / 2, u + width / 2, v + width / 2


def looked_at(part: sc.Partition, box) -> tuple[Window, sc.Partition]:
    """A window of a partition, in coordinates relative to its centre."""
    window = Window.of(part.domain, box)
    return window, Pane("", [part]).computed(0, window.domain)


@pytest.mark.parametrize("inputs", [2, 6])
@pytest.mark.parametrize("width", WIDTHS)
def test_windows_at_vertices_and_in_regions(width, inputs):
    domain = BOX if inputs == 2 else sc.Domain.around([0.3] * inputs, side=2.0, seed=1)
    whole = sc.partition(mlp(inputs), domain, progress=False)
    inner = ((whole.vertices.abs() < 0.8).all(1) & (whole.mesh.vertex_layer > 0)).nonzero()[:, 0]
    largest = whole.centroids[whole.areas.argsort(descending=True)[:2]]
    for place in (*whole.vertices[inner[::5][:3]], *largest):
        window, part = looked_at(whole, square(place, width))
        oracle = exact_partition(whole.model, window.domain)
        assert_same_cells(part, oracle, atol=max(1e-9, 2e-15 / width))
        if width > 1e-3:
            continue
        # The same cells around the place as in the whole partition, with the same maps.
        far = torch.nn.functional.normalize(part.centroids, dim=1) * min(1e3 * width, 1e-3)
        region = whole.locate(domain.embed(place + (far if len(part) > 1 else 0 * far)))
        scale = whole.weight.abs().max()
        assert torch.allclose(part.weight, whole.weight[region], atol=1e-6 * scale, rtol=0)
        here = domain.embed(torch.tensor([window.center], dtype=torch.float64))
        assert torch.allclose(part.values, whole.model(here), atol=50 * width * scale, rtol=0)


@pytest.mark.few(2)
@pytest.mark.parametrize("width", [1e-8, 1e-9, 1e-10])
@pytest.mark.parametrize("center", [(0.3, -0.6), (0.1234567, 0.987)])
def test_cells_of_a_network_that_folds_34_times(center, width):
    (pane,) = panes_of([(Folds(34), BOX)], device="cpu")
    window = Window.of(BOX, square(center, width))
    part = pane.computed(0, window.domain)
    cells = 1
    for axis in range(2):
        corners = part.domain.corners[:, axis]
        ends = [Fraction(float(end)) for end in (corners.min(), corners.max())]
        middle, step = Fraction(window.center[axis]), Fraction(1, 2**33)
        first, last = (math.floor((middle + end) / step) for end in ends)
        lines = [float(k * step - middle) for k in range(first + 1, last + 1)]
        drawn = part.vertices[:, axis][part.mesh.vertex_layer >= 0]
        drawn = drawn[(drawn != float(ends[0])) & (drawn != float(ends[1]))]
        off = (drawn[:, None] - torch.tensor(lines, dtype=torch.float64)).abs().amin(1)
        assert float(off.max()) < 2e-16
        cells *= len(lines) + 1
    assert len(part) == cells
    assert not part.unresolved


def test_neighbouring_windows_fit_together():
    whole = sc.partition(mlp(6), sc.Domain.around([0.3] * 6, side=2.0), progress=False)
    place, width = whole.vertices[whole.mesh.vertex_layer > 0][3], 1e-9
    found = []
    for shift in (-0.25, 0.25):
        middle = place + torch.tensor([shift * width, 0.0], dtype=torch.float64)
        window, part = looked_at(whole, square(middle, width))
        center = torch.tensor(window.center, dtype=torch.float64)
        close = (part.vertices + (center - place)).norm(dim=1).argmin()
        found.append((part.vertices[close], center))
        assert len(part) > 1
    apart = (found[0][0] - found[1][0]) + (found[0][1] - found[1][1])
    assert float(apart.norm()) < 1e-6 * width


@pytest.mark.parametrize("width", [0.5, 2**-20 * math.sqrt(2), 1e-9])
def test_a_window_has_the_coordinates_of_the_pane(width):
    domain = sc.Domain.around([0.3] * 6, side=2.0)
    whole = sc.partition(mlp(6), domain, names=["a", "b", "c"], progress=False)
    place = whole.vertices[whole.mesh.vertex_layer > 0][3]
    window, plain = looked_at(whole, square(place, width))
    part = Pane("", [whole]).window(0, window)
    assert torch.equal(part.domain.origin, domain.origin)
    assert torch.equal(part.domain.basis, domain.basis)
    assert part.names == whole.names
    moved = plain.vertices + torch.tensor(window.center, dtype=torch.float64)
    assert torch.allclose(part.vertices, moved, atol=4e-16, rtol=0)
    exact = part.mesh.uv * part._frame.scale - plain.mesh.uv * plain._frame.scale
    assert float(exact.abs().max()) == 0
    assert torch.equal(part.locate(part.domain.embed(part.centroids)), torch.arange(len(part)))
    if width > 1e-6:
        part.validate()


def test_a_window_is_clipped_at_the_border():
    triangle = sc.Domain.polygon([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    whole = sc.partition(mlp(), triangle, progress=False)
    window, part = looked_at(whole, (0.25, 0.25, 1.25, 1.25))
    assert part.domain.area == pytest.approx(1 / 8)
    assert len(part.domain.corners) == 3
    assert window.center == (0.75, 0.75)
    around, everything = looked_at(whole, (-1, -1, 2, 2))
    assert everything.domain.area == pytest.approx(triangle.area)
    assert len(everything) == len(whole)
    assert around.box == (-1, -1, 2, 2)


@pytest.mark.parametrize(
    ("box", "error", "text"),
    [
        ((2, 2, 3, 3), sc.DomainError, "outside of the domain"),
        ((1, 1, 2, 2), sc.DomainError, "outside|too little"),
        (square((0.5, 0.5), 1e-15), sc.DomainError, "float64 ends here"),
        ((0, 0, 0, 1), ValueError, "is empty"),
        ((0, 0, math.nan, 1), ValueError, "is empty"),
        ((0, 0, 1), TypeError, "four numbers"),
        ("abcd", TypeError, "four numbers"),
    ],
)
def test_windows_that_cannot_be_shown(box, error, text):
    with pytest.raises(error, match=text):
        Window.of(BOX, box)


def test_limits_of_regions_and_time():
    network = Network.of_model(mlp(width=16), BOX, device="cpu")
    with pytest.raises(TooMuch, match="more than 10 regions"):
        network.partition(BOX, Limits(max_regions=10, seconds=math.inf))
    with pytest.raises(TooMuch, match="seconds"):
        network.partition(BOX, Limits(seconds=-1.0))
    with pytest.raises(TooMuch, match="memory"):
        network.partition(BOX, Limits(memory=1000, seconds=math.inf))
    with pytest.raises(CancelledError):
        network.partition(BOX, Limits(seconds=math.inf), lambda: True)


@pytest.mark.few(1)
@pytest.mark.parametrize("folds", [4, 12, 34])
def test_a_network_that_is_too_large_begins_with_a_window(folds):
    limits = Limits(max_regions=200)
    network = Network.of_model(Folds(folds), BOX, device="cpu")
    clock = iter(range(1000)).__next__  # no time passes but by looking at it
    box, part = start_window(network, BOX, limits, clock=lambda: 1e-9 * clock())
    assert len(part) <= 200
    larger = Window.of(BOX, [2 * side for side in box]).domain
    double = network.partition(larger, Limits(max_regions=10**5, seconds=math.inf))
    assert len(double) > 200
    assert part.domain.area == pytest.approx((box[2] - box[0]) ** 2)


def test_a_pane_that_is_too_large():
    (pane,) = panes_of([(Folds(20), BOX)], max_regions=1000, device="cpu")
    for _ in range(2):
        with pytest.raises(TooMuch, match="more than 1,000 regions"):
            pane.partition(0)
    assert pane.start is not None
    assert 100 < len(pane.window(0, Window.of(BOX, pane.start))) <= 1000
    large = Window.of(BOX, (-0.5, -0.5, 0.5, 0.5))
    with pytest.raises(TooMuch, match="1,000 regions"):
        pane.window(0, large)
    pane.frames.network(0).__dict__["program"] = None  # nothing more is computed
    with pytest.raises(TooMuch, match="1,000 regions"):
        pane.window(0, Window.of(BOX, (-0.5, -0.6, 0.7, 0.5)))
    assert panes_of([sc.partition(mlp(), BOX, progress=False)])[0].start is None


def test_a_network_with_smooth_functions_is_computed_while_one_looks():
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    (pane,) = panes_of([(model, BOX)], smooth=1e-2)
    whole = sc.partition(model, BOX, smooth=1e-2, progress=False)
    assert torch.equal(pane.partition(0).values, whole.values)
    window = pane.window(0, Window.of(BOX, (0, 0, 0.5, 0.5)))
    assert 0 < float(window.region_bounds.max()) <= 1e-2
