"""Two partitions laid over each other: the regions and outputs of both networks run together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import splinecam as sc
from splinecam._util.tolerances import OVERLAY_SLACK
from splinecam.engine import overlay as common
from splinecam.engine.overlay import lines_coincide, run_both
from splinecam.engine.plan import Plan
from splinecam.engine.run import Outcome, run
from splinecam.geometry.domain import Frame
from splinecam.geometry.subdivision import Mesh, polygon_mesh
from splinecam.kernels.kernel import Kernel, available
from splinecam.network.capture import capture
from splinecam.network.capture.pairs import Pair, pair_of
from strategies import examples

pytestmark = pytest.mark.skipif(not available(), reason="the kernel was not built")

CPU = torch.device("cpu")
BOX = sc.Domain.box(-2, 2)


def mlp(*sizes: int, seed: int = 0, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [
        layer for n, m in pairwise(sizes) for layer in (nn.Linear(n, m, bias=bias), nn.ReLU())
    ]
    return nn.Sequential(*layers[:-1]).double()


def nearly(model: nn.Sequential, scale: float) -> nn.Sequential:
    """The same network with slightly other weights, whose lines meet its own at small angles."""
    other = mlp(*(layer.in_features for layer in model[::2]), model[-1].out_features)
    generator = torch.Generator().manual_seed(1)
    for mine, its in zip(other.parameters(), model.parameters(), strict=True):
        noise = torch.randn(its.shape, generator=generator, dtype=its.dtype)
        mine.data = its.data * (1 + scale * noise)
    return other


def pair(a: nn.Module, b: nn.Module, domain: sc.Domain = BOX) -> Pair:
    return pair_of(*(capture(model, domain.input_shape, device=CPU) for model in (a, b)))


def outcome(model: nn.Module, domain: sc.Domain = BOX) -> Outcome:
    return run(capture(model, domain.input_shape, device=CPU), domain)


def by_overlay(a: nn.Module, b: nn.Module, domain: sc.Domain = BOX) -> Outcome | str:
    return common.overlay_outcomes(outcome(a, domain), outcome(b, domain), Kernel(2), 2, 10**9)


def areas(mesh: Mesh) -> torch.Tensor:
    area, _ = mesh.areas_and_centroids()
    return area.sort().values


MODEL = mlp(2, 20, 20, 3)
PAIRS: dict[str, tuple[nn.Module, nn.Module]] = {
    "other": (MODEL, mlp(2, 20, 20, 3, seed=1)),
    "small angles": (MODEL, nearly(MODEL, 1e-2)),
    "tiny angles": (MODEL, nearly(MODEL, 1e-5)),
    "one line": (MODEL, mlp(2, 1, 1, 3, seed=2)),
    "few and many": (mlp(2, 2, 2, 3, seed=5), MODEL),
    "through one point": (MODEL, mlp(2, 9, 9, 3, bias=False)),
}
DOMAINS = {"square": BOX, "triangle": sc.Domain.polygon([(-2, -2), (2, -1.5), (0.3, 2)])}


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
@pytest.mark.parametrize("name", PAIRS)
def test_the_same_regions_as_of_both_networks_run_together(
    name: str, domain: sc.Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks = PAIRS[name]
    found, calls = {}, []

    def overlay_outcomes(*given: object) -> object:
        made = overlay(*given)  # type: ignore[arg-type]
        calls.append(isinstance(made, str))
        return made

    overlay = common.overlay_outcomes
    monkeypatch.setattr(common, "overlay_outcomes", overlay_outcomes)
    for overlaid in (True, False):
        found[overlaid] = run_both(pair(*networks, domain), domain, Plan.of, overlaid=overlaid)
    assert calls == [False]
    (one, _), (other, _) = found[True], found[False]
    assert one.mesh.num_faces == other.mesh.num_faces
    assert float((areas(one.mesh) - areas(other.mesh)).abs().max()) < 1e-13
    # Where several lines meet, more than one layer may count as that which makes the vertex.
    for layers in ("edge_layer", *["vertex_layer"] * (name != "through one point")):
        counts = [torch.bincount(getattr(x.mesh, layers) + 1).tolist() for x in (one, other)]
        assert counts[0] == counts[1]
    x = domain.embed(Frame.of(domain).to_plane(one.mesh.uv))
    with torch.no_grad():
        exact = torch.cat([model(x) for model in networks], 1)
    off = (one.output - exact).abs().amax(0)
    assert bool((off <= one.error + 1e-14).all())
    assert bool((one.error < 1e-12).all())


class Scaled(nn.Module):
    """The same function, whose units have the same zeros in other weights."""

    def __init__(self, body: nn.Sequential) -> None:
        super().__init__()
        self.body = nearly(body, 0.0)
        self.body[0].weight.data *= 2
        self.body[0].bias.data *= 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


@pytest.mark.parametrize(
    "other",
    [
        lambda: Scaled(MODEL),  # edges of both lie on each other
        lambda: nearly(MODEL, 1e-14),  # or nearly so
        lambda: nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 3)).double(),
    ],
    ids=["the same lines", "nearly the same lines", "through the corners"],
)
def test_partitions_that_touch_have_no_overlay(other: Callable[[], nn.Module]) -> None:
    network = other()
    if isinstance(network, nn.Sequential) and network[0].bias is None:
        network[0].weight.data = torch.tensor([[1.0, 1.0], [1.0, -1.0]]).double()
    assert by_overlay(MODEL, network) == "degenerate"
    diff = sc.difference(MODEL, network, BOX, device="cpu", progress=False)
    assert diff.partition.validate().ok


def test_lines_of_both_are_compared_before_anything_is_run() -> None:
    for network, expected in ((Scaled(MODEL), True), (PAIRS["tiny angles"][1], False)):
        programs = pair(MODEL, network)
        assert lines_coincide((programs.a, programs.b), BOX) == expected
    affine = pair(MODEL, nn.Linear(2, 3).double())
    assert not lines_coincide((affine.a, affine.b), BOX)


def test_the_number_of_regions_is_limited() -> None:
    networks = PAIRS["other"]
    with pytest.raises(sc.LimitError, match="both networks exceeds max_regions=500"):
        run_both(pair(*networks), BOX, Plan.of, max_regions=500)
    first, second = map(outcome, networks)
    assert common.overlay_outcomes(first, second, Kernel(1), 2, 100) == "too many faces"


# -- what is malformed --------------------------------------------------------------------------

SMALL = [outcome(mlp(2, 5, 4, 1, seed=seed)).mesh for seed in (0, 1)]


@examples(150)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("edges", "offsets", "corners", "uv")),
            st.integers(0, 10**6),
            st.sampled_from((-(2**62), -1, 0, 1, 2, 3, 5, 8, 40, 2**31, 2**62)),
        ),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_malformed_meshes_are_refused(damage: list[tuple[str, int, int]], second: bool) -> None:
    meshes = [Mesh(*(array.clone() for array in vars(mesh).values())) for mesh in SMALL]
    for name, place, number in damage:
        array = getattr(meshes[second], name).view(-1)
        array[place % array.shape[0]] = number
    with suppress(ValueError):  # which says that the arrays do not fit together
        made = Kernel(1).overlay(*meshes, 4, OVERLAY_SLACK)
        assert isinstance(made, str) or made.mesh.num_faces > 0


def test_values_must_belong_to_the_meshes() -> None:
    kernel, first, second = Kernel(1), *map(outcome, PAIRS["other"])
    made = kernel.overlay(first.mesh, second.mesh, 4, OVERLAY_SLACK)
    assert not isinstance(made, str)
    room = torch.empty(made.mesh.num_vertices, 6, dtype=torch.float64)
    with pytest.raises(ValueError, match="do not belong"):
        kernel.overlay_values(made, first.output[1:], second.output, room)
    with pytest.raises(ValueError, match="room for both"):
        kernel.overlay_values(made, first.output, second.output, room[1:])


def test_undivided_domains() -> None:
    square = polygon_mesh(torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]]).double())
    made = Kernel(1).overlay(square, square, 4, OVERLAY_SLACK)
    assert not isinstance(made, str)
    assert made.mesh.num_faces == 1
    assert made.mesh.kept().edges.equal(square.edges)
