"""Going deeper: cells appear all the way, and each is that of a fresh partition of the window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from viewer.browser.driver import Driver
from viewer.browser.models import Folding, classifier, square

Drive = Callable[..., Driver]
SIZE = (700, 480)
CLOSE = 1e-6  # of a window: coordinates in the plane have so many digits there


def fresh_partition(model: nn.Module, domain: sc.Domain, window: list[float]) -> sc.Partition:
    """The partition of a window, with coordinates from its middle, so that none are rounded."""
    u0, v0, u1, v1 = window
    middle = torch.tensor([(u0 + u1) / 2, (v0 + v1) / 2], dtype=torch.float64)
    corners = torch.tensor([[u0, v0], [u1, v0], [u1, v1], [u0, v1]], dtype=torch.float64) - middle
    origin = domain.origin + middle @ domain.basis
    return sc.partition(model, replace(domain, origin=origin, corners=corners), progress=False)


def shown_areas(driver: Driver, window: list[float]) -> tuple[dict[int, float], dict[int, Tensor]]:
    """The area of each region that is shown, and a place inside of it; from the window's middle."""
    u0, v0, u1, v1 = window
    middle = torch.tensor([(u0 + u1) / 2, (v0 + v1) / 2], dtype=torch.float64)
    areas: dict[int, float] = {}
    places: dict[int, Tensor] = {}
    largest: dict[int, float] = {}
    for cell in driver.ask("v.cells(x)", window):
        corners = torch.tensor(cell["corners"], dtype=torch.float64).reshape(-1, 2) - middle
        after = corners.roll(-1, 0)
        area = float((corners[:, 0] * after[:, 1] - corners[:, 1] * after[:, 0]).sum()) / 2
        region = cell["region"]
        areas[region] = areas.get(region, 0) + area
        if area > largest.get(region, 0):
            largest[region], places[region] = area, corners.mean(0)
    return areas, places


def check_cells(driver: Driver, model: nn.Module, domain: sc.Domain) -> int:
    """Compare all cells of the window that is shown with a fresh partition; how many there are."""
    shown: dict[str, Any] = driver.ask("v.meshes()")[0]
    window = shown["window"]
    assert window is not None
    fresh = fresh_partition(model, domain, window)
    areas, places = shown_areas(driver, window)
    size = (window[2] - window[0]) * (window[3] - window[1])
    known = fresh.areas
    # Slivers that rounding of coordinates in the plane could hide are not compared.
    visible = {region for region, area in areas.items() if area > CLOSE * size}
    assert len(visible) == int((known > CLOSE * size).sum())
    at = torch.stack([places[region] for region in visible])
    found = fresh.locate(fresh.domain.embed(at)).tolist()
    assert len(set(found)) == len(found)
    for region, where in zip(visible, found, strict=True):
        assert areas[region] == pytest.approx(float(known[where]), rel=1e-3, abs=CLOSE * size)
    return shown["regions"]


def test_at_a_vertex_to_a_billionth(drive: Drive) -> None:
    part = square(classifier())
    inner = part.vertices[(part.vertices.abs() < 0.5).all(1) & (part.mesh.vertex_layer == 1)]
    u, v = inner[0].tolist()
    with sc.view(part, browser=False, block=False) as viewer:
        driver = drive(SIZE).open(viewer.url)
        driver.zoom(u, v, 1e-9)
        assert driver.ask("v.camera().width") <= 1e-9
        assert 0 <= driver.place(u, v)[0] <= driver.canvas()["width"]
        assert check_cells(driver, part.model, part.domain) >= 3


def test_cells_of_every_scale(drive: Drive) -> None:
    center = (0.3, -0.2)
    model = Folding(16, center)
    part = square(model)
    with sc.view(part, browser=False, block=False) as viewer:
        driver = drive(SIZE).open(viewer.url)
        for exponent in range(10):
            driver.zoom(*center, 10.0**-exponent)
            window = driver.ask("v.camera().window")
            assert len({cell["region"] for cell in driver.ask("v.cells(x)", window)}) >= 6
        assert check_cells(driver, model, part.domain) >= 6


def test_a_file_says_how_deep_it_is(drive: Drive, tmp_path: Path) -> None:
    path = tmp_path / "regions.html"
    square(classifier()).to_html(path)
    driver = drive(SIZE).open(path)
    driver.zoom(0.2, 0.1, 1e-4)
    assert "exact to a width" not in driver.page.locator(".sc-status").inner_text()
    driver.zoom(0.2, 0.1, 1e-10)
    assert "exact to a width" in driver.page.locator(".sc-status").inner_text()


def test_too_many_regions_begin_with_a_window(drive: Drive) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(2, 60), nn.ReLU(), nn.Linear(60, 60), nn.ReLU())
    model.append(nn.Linear(60, 3)).double()
    domain = sc.Domain.box(-1, 1)
    options: dict[str, Any] = {"browser": False, "block": False, "max_regions": 600}
    with sc.view(model, domain, **options) as viewer:
        driver = drive(SIZE).open(viewer.url)
        shown = driver.ask("v.meshes()")
        assert len(shown) == 1
        assert shown[0]["window"] is not None
        assert 1 < shown[0]["regions"] <= 600
        window = shown[0]["window"]
        middle = ((window[0] + window[2]) / 2, (window[1] + window[3]) / 2)
        assert driver.ask("v.pick(v.camera().toScreen(x))", middle) is not None
        driver.page.mouse.move(*driver.at(*driver.place(*middle)))
        driver.page.mouse.wheel(0, 600)
        driver.page.get_by_text("more than 600 regions").wait_for()


def test_the_camera_follows_python_and_tells_it(drive: Drive) -> None:
    with sc.view(square(classifier()), browser=False, block=False) as viewer:
        driver = drive(SIZE).open(viewer.url)
        viewer.set(center=[0.25, 0.5], width=0.125, color="slope")
        driver.until("splinecam[0].state.width === 0.125")
        driver.idle()
        assert driver.state["center"] == [0.25, 0.5]
        assert driver.state["color"] == "slope"
        driver.zoom(0.25, 0.5, 0.01)
        width = pytest.approx(driver.state["width"])
        driver.until_python(lambda: viewer.state["width"] == width)
