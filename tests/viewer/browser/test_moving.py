"""Moving: frames, planes, and panes side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import splinecam as sc
from viewer.browser.checks import differences, hover_pixels
from viewer.browser.driver import Driver
from viewer.browser.models import classifier, square

Drive = Callable[..., Driver]
SIZE = (900, 560)


def frames(count: int) -> list[sc.Partition]:
    """Partitions of one network that changes from step to step."""
    model = classifier(12)
    found = []
    for _ in range(count):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        found.append(square(copy.deepcopy(model)))
    return found


def check_pane(driver: Driver, part: sc.Partition, pane: int = 0, count: int = 20) -> None:
    found = driver.hover_all(hover_pixels(driver, part, count, pane), pane)
    assert differences(found, part, part.model) == []


def test_the_slider(drive: Drive, tmp_path: Path) -> None:
    parts = frames(4)
    path = tmp_path / "frames.html"
    sc.to_html(parts, path)
    driver = drive(SIZE).open(path)
    slider = driver.page.locator("input[aria-label=Frame]")
    check_pane(driver, parts[0])
    slider.fill("2")
    driver.idle()
    assert driver.state["frame"] == 2
    check_pane(driver, parts[2])
    driver.page.keyboard.press("]")
    driver.idle()
    check_pane(driver, parts[3])
    for frame in (0, 3, 1, 2, 0, 1):  # faster than they can be shown: the last one counts
        slider.fill(str(frame))
    driver.idle()
    check_pane(driver, parts[1])


def test_frames_come_from_python(drive: Drive) -> None:
    parts = frames(3)
    with sc.view(parts, browser=False, block=False) as viewer:
        driver = drive(SIZE).open(viewer.url)
        driver.page.locator("input[aria-label=Frame]").fill("1")
        driver.idle()
        check_pane(driver, parts[1])


def test_two_panes_have_one_cursor(drive: Drive) -> None:
    left, right = square(classifier(12, seed=1)), square(classifier(12, seed=2))
    with sc.view(left, right, browser=False, block=False) as viewer:
        driver = drive((1200, 560)).open(viewer.url)
        check_pane(driver, left, 0)
        check_pane(driver, right, 1)
        driver.zoom(0.1, 0.1, 0.5)
        assert driver.ask("v.camera(0).center") == driver.ask("v.camera(1).center")
        driver.page.mouse.move(*driver.at(*driver.place(0.15, 0.05, 1), 1))
        driver.idle()
        other = driver.ask("v.pick(v.camera(0).toScreen([0.15, 0.05]), 0)")
        words = driver.page.locator(".sc-inspector").inner_text()
        assert f"Region {driver.ask('v.hovered()')['region']:,}" in words
        assert f"Region {other['region']:,}" in words


def plane_of_images() -> tuple[nn.Module, sc.Domain, torch.Tensor]:
    """A small convolutional network on the plane through three images."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    model += nn.Sequential(nn.Linear(18, 4))
    images = torch.rand(6, 1, 6, 6, dtype=torch.float64)
    return model.double(), sc.Domain.through(*images[:3], margin=0.3), images


def test_an_anchor_is_dragged(drive: Drive) -> None:
    model, domain, images = plane_of_images()
    part = sc.partition(model, domain, progress=False)
    with sc.view(part, browser=False, block=False, points=images, images=True) as viewer:
        driver = drive(SIZE).open(viewer.url)
        check_pane(driver, part)
        before = driver.ask("v.meshes()")[0]["id"]
        anchors = driver.page.locator(".sc-anchor")
        assert anchors.count() == 3
        box = anchors.nth(1).bounding_box()
        assert box is not None
        start = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        driver.drag(start, (start[0] - 60, start[1] - 50))
        driver.idle()
        assert driver.ask("v.meshes()")[0]["id"] != before
        moved = viewer.session.panes[0].partition(0)
        assert len(moved) == driver.ask("v.meshes()")[0]["regions"]
        assert not torch.equal(moved.domain.corners, part.domain.corners)
        check_pane(driver, moved)
