"""Surfaces in a real browser: pointing finds the faces and maps of the surface."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import splinecam as sc
from viewer.browser.checks import is_blank, pixels_of
from viewer.browser.driver import Driver
from viewer.test_surfaces import Skipping, ball, surface_of

Drive = Callable[..., Driver]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def surface() -> sc.Surface:
    return surface_of(ball())


@pytest.fixture(scope="module")
def page(surface: sc.Surface, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("surfaces") / "ball.html"
    surface.to_html(path)
    return path


def picked(driver: Driver, surface: sc.Surface, count: int) -> list[Any]:
    """What is found at random points of the surface; nearer faces may hide some."""
    points = surface.sample(count, generator=torch.Generator().manual_seed(0)).points
    pixels = driver.ask("x.map((place) => v.toScreen(place))", points.tolist())
    return [driver.ask("v.pick(x)", pixel) for pixel in pixels]


def test_pointing_finds_faces_and_their_maps(drive: Drive, page: Path, surface: sc.Surface) -> None:
    driver = drive().open(page)
    found = [each for each in picked(driver, surface, 200) if each]
    assert len(found) > 190  # a few lie on the outline
    at = torch.tensor([each["at"] for each in found], dtype=torch.float64)
    face = torch.tensor([each["face"] for each in found])
    assert torch.allclose(surface.values(at), torch.zeros(len(at)).double(), atol=1e-5)
    assert [each["region"] for each in found] == surface.face_region[face].tolist()
    gradient = torch.tensor([each["gradient"] for each in found], dtype=torch.float64)
    x = at.clone().requires_grad_()
    (slope,) = torch.autograd.grad(ball()(x).sum(), x)
    same = torch.isclose(gradient, slope, atol=1e-5).all(1)
    assert same.float().mean() > 0.97  # rounding may put a point beside its face
    assert torch.allclose(gradient, surface.gradients[face], atol=1e-6)
    towards = torch.tensor(driver.ask("v.eye.place"), dtype=torch.float64)
    assert towards.norm() > 1


def test_the_inspector_and_the_keys(drive: Drive, page: Path, surface: sc.Surface) -> None:
    driver = drive().open(page)
    box = driver.canvas()
    driver.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    driver.until("splinecam[0].pointed() !== null")
    region = driver.ask("v.pointed().region")
    driver.page.get_by_text(f"Region {region:,}", exact=True).wait_for()
    before = driver.ask("[v.eye.azimuth, v.eye.distance, v.eye.target]")
    driver.page.locator("canvas.sc-canvas").focus()
    for key in ("ArrowRight", "Shift+ArrowUp", "+"):
        driver.page.keyboard.press(key)
        driver.idle()
    after = driver.ask("[v.eye.azimuth, v.eye.distance, v.eye.target]")
    assert all(a != b for a, b in zip(before, after, strict=True))
    driver.page.keyboard.press("0")
    driver.idle()
    assert driver.ask("v.eye.distance") == pytest.approx(before[1])
    driver.page.keyboard.press("e")
    assert driver.state["edges"] is False
    driver.page.keyboard.press("?")
    driver.page.get_by_role("dialog").wait_for()


def test_colours_and_dragging(drive: Drive, page: Path) -> None:
    driver = drive().open(page)
    seen = {driver.pixels()}
    for name in ("normal", "layer", "region"):
        driver.page.keyboard.press("c")
        driver.idle()
        assert driver.state["color"] == name
        seen.add(driver.pixels())
    assert len(seen) == 4
    box = driver.canvas()
    start = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    driver.drag(start, (start[0] + 80, start[1] + 30))
    driver.idle()
    assert driver.pixels() not in seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone(drive: Drive, page: Path, scheme: str) -> None:
    driver = drive((390, 844), color_scheme=scheme, has_touch=True, reduced_motion="reduce").open(
        page
    )
    assert driver.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not is_blank(driver.pixels())
    paper = pixels_of(driver.page.screenshot())[200, 4]
    assert (paper.mean() < 60) == (scheme == "dark")
    box = driver.canvas()
    driver.page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    driver.until("splinecam[0].pointed() !== null")
    distance = driver.ask("v.eye.distance")
    driver.page.get_by_role("button", name="Zoom in (+)").click()
    assert driver.ask("v.eye.distance") < distance  # at once, without motion


def test_a_slider_over_surfaces(drive: Drive, tmp_path: Path) -> None:
    surfaces = [surface_of(ball(seed)) for seed in range(3)]
    sc.to_html(surfaces, tmp_path / "run.html", frames=["a", "b", "c"])
    driver = drive().open(tmp_path / "run.html")
    for k, surface in enumerate(surfaces):
        driver.until(f"splinecam[0].state.frame === {k} && splinecam[0].faces === {len(surface)}")
        driver.page.keyboard.press("]")
    driver.page.get_by_text("c", exact=True).wait_for()


def test_python_answers_while_one_looks(drive: Drive, surface: sc.Surface) -> None:
    with surface.view(browser=False, block=False) as viewer:
        assert viewer.url
        driver = drive().open(viewer.url)
        assert driver.ask("v.faces") == len(surface)
        viewer.set(color="normal")
        driver.until("splinecam[0].state.color === 'normal'")
        driver.page.keyboard.press("e")
        driver.until_python(lambda: viewer.state.get("edges") is False)
        driver.close()


def plane_of(driver: Driver) -> sc.Domain:
    """The rectangle in which the plane of a page meets the box."""
    plane = driver.ask("v.plane")
    scene = driver.ask("({center: v.scene.center, scale: v.scene.scale})")
    axis = max(range(3), key=lambda k: abs(plane["normal"][k]))
    sign = plane["normal"][axis]
    height = scene["center"][axis] + sign * scene["scale"] * plane["offset"]
    low, high = [-2.0, -2, -1], [1.0, 2, 2]
    one, other = (axis + 1) % 3, (axis + 2) % 3
    corners = []
    for a, b in ((low, low), (high, low), (high, high), (low, high)):
        corner = [height] * 3
        corner[one], corner[other] = a[one], b[other]
        corners.append(corner)
    return sc.Domain.polygon(corners)


def regions(driver: Driver) -> int:
    driver.idle()
    return int(driver.ask("v.plane.regions"))


@pytest.mark.parametrize("live", [False, True])
def test_the_plane_shows_its_exact_regions(
    drive: Drive, page: Path, surface: sc.Surface, live: bool
) -> None:
    """In a file by the kernel of the page, otherwise by Python."""
    viewer = surface.view(browser=False, block=False) if live else None
    driver = drive().open(page if viewer is None else str(viewer.url))
    driver.page.locator("canvas.sc-canvas").focus()
    driver.page.keyboard.press("p")
    model = ball()
    for name in ("x₁", "x₂", "x₃"):
        driver.page.get_by_role("button", name=name, exact=True).click()
        for _ in range(2):
            driver.page.locator("canvas.sc-canvas").focus()
            driver.page.keyboard.press(".")
            part = sc.partition(model, plane_of(driver), progress=False)
            assert regions(driver) == len(part)
    box = driver.canvas()
    before = driver.ask("v.plane.offset")
    middle = driver.ask(
        "v.toScreen(x)", plane_of(driver).embed(plane_of(driver).corners).mean(0).tolist()
    )
    found = driver.ask("v.pick(x)", middle)
    assert found["on"] == "plane"
    at = torch.tensor([found["at"]], dtype=torch.float64)
    assert model(at).item() == pytest.approx(found["value"], abs=1e-5)
    start = box["x"] + middle[0], box["y"] + middle[1]
    driver.drag(start, (start[0] + 9, start[1] - 40))
    driver.idle()
    assert driver.ask("v.plane.offset") != before
    assert regions(driver) == len(sc.partition(model, plane_of(driver), progress=False))
    if viewer is not None:
        driver.close()
        viewer.close()


def test_a_file_without_a_dense_network_says_so(drive: Drive, tmp_path: Path) -> None:
    torch.manual_seed(0)
    surface = sc.surface(Skipping().double(), sc.Domain.cube(-1, 1), progress=False)
    surface.to_html(tmp_path / "skip.html")
    driver = drive().open(tmp_path / "skip.html")
    driver.page.locator("canvas.sc-canvas").focus()
    driver.page.keyboard.press("p")
    driver.page.get_by_text("connections that pass layers by").wait_for()
