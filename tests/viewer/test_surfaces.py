"""What the viewer is told of surfaces, compared with the surfaces."""

from __future__ import annotations

import json
from concurrent.futures import CancelledError
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.errors import DomainError
from splinecam.viewer import surfaces
from splinecam.viewer.answers import RequestError
from splinecam.viewer.frames import Limits
from splinecam.viewer.subjects import session_of
from splinecam.viewer.surfaces import SurfaceSession


def ball(seed: int = 0, width: int = 16) -> nn.Sequential:
    """A network with a closed surface around the origin."""
    torch.manual_seed(seed)
    first, last = nn.Linear(3, width), nn.Linear(width, 1)
    with torch.no_grad():
        first.weight /= first.weight.norm(dim=1, keepdim=True)
        first.bias.fill_(-0.1)
        last.weight.copy_(0.5 + torch.rand(1, width))
        last.bias.fill_(-0.25 * width * 0.3)
    return nn.Sequential(first, nn.ReLU(), last).double()


def surface_of(model: nn.Module, **options: Any) -> sc.Surface:
    return sc.surface(model, sc.Domain.box3([-2, -2, -1], [1, 2, 2]), progress=False, **options)


@pytest.fixture(scope="module")
def surface() -> sc.Surface:
    return surface_of(ball())


def session(*subjects: Any, **options: Any) -> SurfaceSession:
    made = session_of(subjects, **options)
    assert isinstance(made, SurfaceSession)
    return made


def test_the_arrays_are_those_of_the_surface(surface: sc.Surface) -> None:
    shown = session(surface)
    scene = shown.reply({"ask": "scene"}).message
    header, arrays, _ = shown.reply({"ask": "surface", "frame": 0})
    assert len(surface) > 10
    places = torch.tensor(scene["center"]) + scene["scale"] * torch.tensor(arrays["vertices"])
    assert torch.allclose(places.double(), surface.vertices, atol=1e-6)
    assert np.abs(arrays["vertices"]).max() <= 1
    assert arrays["counts"].tolist() == surface.structure.counts.tolist()
    assert arrays["corners"].tolist() == surface.face_vertices.tolist()
    assert arrays["edgeLayer"].tolist() == surface.edge_layer.tolist()
    assert arrays["region"].tolist() == surface.face_region.tolist()
    assert np.allclose(arrays["gradients"], surface.gradients)
    assert np.array_equal(arrays["bias"], surface.bias)
    assert dict(header["facts"])["faces"] == len(surface)
    assert scene["layers"] == [{"name": "1", "units": 16}]
    middle, radius = torch.tensor(scene["ball"][:3]), scene["ball"][3]
    off = (torch.tensor(arrays["vertices"]).double() - middle).norm(dim=1)
    assert float(off.max()) <= radius * (1 + 1e-6)
    edges = shown.reply({"ask": "scene"}).arrays["edges"]
    assert len(edges) == 12


def test_colours(surface: sc.Surface) -> None:
    other = surface_of(ball(1))
    shown = session(surface, color=other)
    names = [each["name"] for each in shown.reply({"ask": "scene"}).message["colorings"]]
    assert names == ["plain", "normal", "layer", "region", "distance"]
    found = {name: shown.reply({"ask": "coloring", "frame": 0, "name": name}) for name in names[1:]}
    normal = found["normal"].arrays["colors"].astype(float) / 255
    assert np.abs(normal - (0.5 + 0.5 * surface.normals.numpy())).max() < 0.01
    parts = surface.vertices[surface.face_vertices].split(surface.structure.counts.tolist())
    centre = torch.stack([part.mean(0) for part in parts])
    numbers = found["distance"].arrays["numbers"]
    assert np.allclose(numbers, other.distance(centre), atol=1e-6)
    scale = found["distance"].message["scale"]
    assert scale["high"] == pytest.approx(float(numbers.max()), rel=1e-6)
    with pytest.raises(RequestError, match="no colouring"):
        shown.reply({"ask": "coloring", "frame": 0, "name": "slope"})


def test_frames_share_one_scale(surface: sc.Surface) -> None:
    other = surface_of(ball(1))
    numbers = [torch.linspace(0, 1, len(surface)), torch.linspace(0, 3, len(other))]
    shown = session([surface, other], color=numbers, frames=["first", "second"])
    assert shown.reply({"ask": "scene"}).message["frames"] == ["first", "second"]
    for frame in range(2):
        found = shown.reply({"ask": "coloring", "frame": frame, "name": "given"})
        assert found.message["scale"]["high"] == 3
        assert np.allclose(found.arrays["numbers"], numbers[frame])
    assert session((surface, other)).labels == ("0", "1")
    answers = shown.recorded()
    asked = [json.loads(key) for key in answers]
    assert [each["frame"] for each in asked if each["ask"] == "surface"] == [0, 1]
    assert len(answers) == 1 + 2 * 6


def test_wrong_options(surface: sc.Surface) -> None:
    elsewhere = sc.surface(ball(), sc.Domain.cube(-1, 1), progress=False)
    with pytest.raises(DomainError, match="another box"):
        session([surface, elsewhere])
    with pytest.raises(TypeError, match="'points'"):
        session(surface, points=torch.zeros(1, 3))
    with pytest.raises(TypeError, match="slider"):
        session(surface, ball())
    with pytest.raises(ValueError, match="choose of plain"):
        session(surface, color="slope")
    with pytest.raises(ValueError, match="number for each face"):
        session(surface, color=torch.zeros(3))
    with pytest.raises(ValueError, match="up is"):
        session(surface, up="w")
    with pytest.raises(ValueError, match="labels"):
        session(surface, frames=["a", "b"])
    with pytest.raises(TypeError, match="gradients"):
        surface.to_html(BytesIO(), gradients=True)


def test_the_file_is_one_page(surface: sc.Surface) -> None:
    file = BytesIO()
    surface.to_html(file, title="A <ball>", color="layer")
    page = file.getvalue().decode()
    assert page.startswith("<!doctype html>")
    assert "<title>A &lt;ball&gt;</title>" in page
    assert page.count("</script>") == 2
    assert "'wasm-unsafe-eval'" in page


def test_an_empty_surface_and_one_that_is_open() -> None:
    nothing = surface_of(ball(), level=-100.0)
    assert len(nothing) == 0
    header, arrays, _ = session(nothing).reply({"ask": "surface", "frame": 0})
    assert arrays["counts"].size == 0
    assert dict(header["facts"])["faces"] == 0
    shown = session(nothing)
    assert shown.recorded()
    capped = surface_of(ball(), level=1.0).capped()
    region = session(capped).reply({"ask": "surface", "frame": 0}).arrays["region"]
    assert (region < 0).any()


def test_a_viewer_of_a_surface(surface: sc.Surface) -> None:
    pytest.importorskip("starlette", reason="starlette is not installed")
    with surface.view(browser=False, block=False, color="normal", title="Ball") as viewer:
        viewer.set(edges=False)
        assert viewer.state["edges"] is False
        assert not viewer.selection
        file = BytesIO()
        viewer.to_html(file)
        assert b"<title>Ball</title>" in file.getvalue()
        assert "127.0.0.1" in repr(viewer)


class Skipping(nn.Module):
    """A network with a connection that passes a layer by."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(11, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cat([self.first(x).relu(), x], 1))


class Fixed(nn.Module):
    """A function without weights."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.function(z)


ACTIVATIONS = {
    "relu": nn.ReLU(),
    "leaky": nn.LeakyReLU(0.3),
    "abs": Fixed(torch.abs),
    "clip": nn.Hardtanh(-0.5, 0.75),
    "maxout": Fixed(lambda z: z.unflatten(-1, (-1, 2)).amax(-1)),
}


def after(name: str, z: torch.Tensor) -> torch.Tensor:
    module = ACTIVATIONS.get(name)
    return z if module is None else module(z)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_network_of_a_file_is_the_output_less_the_level(name: str) -> None:
    torch.manual_seed(1)
    half = 4 if name == "maxout" else 8
    module = ACTIVATIONS[name]
    model = nn.Sequential(nn.Linear(4, 8), module, nn.Linear(half, 8), module, nn.Linear(half, 3))
    body = sc.Domain.tetrahedron([0.0, 0, 0, 1], [2, 0, 0, 1], [0, 2, 0, 1], [0, 0, 2, -1])
    tie = sc.surface(model.double(), body, output=(0, 2), level=0.1, progress=False)
    message, arrays, _ = session(tie).reply({"ask": "network", "frame": 0})
    assert message["reason"] == ""
    assert [layer["activation"]["name"] for layer in message["layers"]] == [name, name, "linear"]
    x = torch.randn(50, 3).double()
    z = x
    for k, layer in enumerate(message["layers"]):
        z = after(layer["activation"]["name"], z @ arrays[f"weight{k}"] + arrays[f"bias{k}"])
    assert torch.allclose(z[:, 0], tie.values(x) - 0.1, atol=1e-12)


CLIPPED = nn.Linear(3, 6), nn.ReLU6(), nn.Linear(6, 1), Fixed(lambda z: z.relu() - 1)


@pytest.mark.parametrize(
    ("model", "refused"),
    [
        (Skipping(), "pass layers by"),
        (nn.Sequential(*CLIPPED), ""),
        (nn.Sequential(nn.Linear(3, 6), nn.PReLU(6), nn.Linear(6, 1)), "Layer '1'"),
    ],
)
def test_other_networks_say_why_there_is_no_plane(model: nn.Module, refused: str) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
    surface = sc.surface(model.double(), sc.Domain.cube(-1, 1), progress=False)
    message, arrays, _ = session(surface).reply({"ask": "network", "frame": 0})
    assert refused in message["reason"]
    if refused:
        assert not message["layers"]
        assert "need Python" in message["reason"]
        return
    assert not message["reason"]
    x = z = torch.randn(50, 3).double()
    for k, layer in enumerate(message["layers"]):
        z = z @ arrays[f"weight{k}"] + arrays[f"bias{k}"]
        kind = layer["activation"]
        z = z.clamp(kind["low"], kind["high"]) if kind["name"] == "clip" else after(kind["name"], z)
    assert torch.allclose(z[:, 0], surface.values(x), atol=1e-12)


SQUARE = [[-2.0, -2, 0.25], [1, -2, 0.25], [1, 2, 0.25], [-2, 2, 0.25]]


def test_a_section_is_the_partition_of_the_plane(surface: sc.Surface) -> None:
    shown = session(surface)
    scene = shown.reply({"ask": "scene"}).message
    message, arrays, _ = shown.reply({"ask": "section", "frame": 0, "corners": SQUARE})
    part = sc.partition(ball(), sc.Domain.polygon(SQUARE), progress=False)
    assert message["reason"] == ""
    assert len(arrays["counts"]) == len(part)
    places = torch.tensor(scene["center"]) + scene["scale"] * torch.tensor(arrays["vertices"])
    assert torch.allclose(places.amin(0), torch.tensor([-2, -2, 0.25]), atol=1e-6)
    assert torch.allclose(places.amax(0), torch.tensor([1, 2, 0.25]), atol=1e-6)
    values = surface.values(places.double())
    assert np.allclose(arrays["values"], values, atol=1e-5)
    sides = part.mesh.corners
    assert arrays["edgeLayer"].tolist() == part.mesh.edge_layer[sides >> 1].tolist()
    for corners in ([], SQUARE[:2], [[0, 0]] * 3, [["a", 0, 0]] * 3, SQUARE * 100, "abc"):
        with pytest.raises(sc.SplineCamError):
            shown.reply({"ask": "section", "frame": 0, "corners": corners})


def test_a_section_with_too_many_regions_says_so(
    surface: sc.Surface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surfaces, "Limits", partial(Limits, max_regions=3))
    message = session(surface).reply({"ask": "section", "frame": 0, "corners": SQUARE}).message
    assert message["reason"] == "more than 3 regions"


def test_an_outdated_section_is_given_up(surface: sc.Surface) -> None:
    with pytest.raises(CancelledError):
        session(surface).reply({"ask": "section", "frame": 0, "corners": SQUARE}, lambda: True)
