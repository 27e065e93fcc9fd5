"""The playground in a real browser: it trains, goes back, points, saves, and opens files."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.viewer.playground import write_playground
from viewer.browser.driver import Driver

Drive = Callable[..., Driver]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("playing") / "playground.html"
    write_playground(path)
    return path


def opened(drive: Drive, page: Path, address: str = "", **more: object) -> Driver:
    driver = drive(**more)
    driver.page.goto(page.as_uri() + address)
    driver.until("globalThis.playground && playground.answer")
    return driver


def regions(driver: Driver) -> int:
    found = driver.page.evaluate("playground.answer.history.regions.at(-1)")
    return int(found)


def press(driver: Driver, name: str) -> None:
    driver.page.get_by_role("button", name=name, exact=True).click()


def test_it_trains_and_goes_back(drive: Drive, page: Path) -> None:
    driver = opened(drive, page, "#data=moons&layers=8,8")
    begun = driver.page.evaluate("playground.answer.history.loss[0]")
    press(driver, "Play")
    driver.until("playground.answer.step >= 100")
    press(driver, "Pause")
    driver.until("!playground.playing")
    driver.page.wait_for_timeout(300)
    history = driver.page.evaluate("playground.answer.history")
    assert history["loss"][-1] < begun
    assert len(history["step"]) == len(history["regions"]) > 10
    driver.page.evaluate("playground.goTo(0)")
    driver.until("playground.answer.step === 0")
    press(driver, "Step")
    driver.until("playground.answer.step === 1")
    assert driver.page.evaluate("playground.answer.history.step") == [0, 1]
    driver.page.keyboard.press("s")  # the button has the focus
    driver.until("playground.answer.step === 2")
    # The link is the experiment, so that it begins with the same regions.
    again = opened(drive, page, driver.page.evaluate("location.hash"))
    assert regions(again) == history["regions"][0]


@pytest.mark.parametrize("address", ["data=moons&layers=12,12", "data=waves&layers=8,8"])
def test_what_the_processor_paints_is_what_the_graphics_card_draws(
    drive: Drive, page: Path, address: str
) -> None:
    """Without a graphics card, pictures that others follow are painted on a canvas below."""
    driver = opened(drive, page, f"#{address}")
    frame, below = (driver.page.locator(name) for name in (".pg-frame", ".pg-below"))
    below.wait_for(state="hidden")  # it has the first picture, until the other canvas has one
    press(driver, "Play")
    driver.until("playground.answer.step >= 20")
    # As if other frames followed.
    fixed = "{ configurable: true, get: () => false, set() {} }"
    driver.page.evaluate(f"Object.defineProperty(playground.picture, 'calm', {fixed})")
    press(driver, "Pause")
    driver.page.wait_for_timeout(500)
    assert below.is_visible()
    painted = pixels_of(frame.screenshot())
    driver.page.evaluate("{ delete playground.picture.calm; playground.picture.calm = true }")
    driver.page.evaluate("playground.goTo(playground.answer.moment)")
    below.wait_for(state="hidden")
    driver.page.wait_for_timeout(500)
    drawn = pixels_of(frame.screenshot())
    off = (painted - drawn).abs().amax(-1)
    assert off.mean() < 3  # of 255: borders of cells are smoothed in the end
    assert (off > 60).double().mean() < 0.01


def pixels_of(png: bytes) -> torch.Tensor:
    """Red, green and blue (height, width, 3) of a picture."""
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    return torch.from_numpy(np.array(image.open(io.BytesIO(png)).convert("RGB")).astype(float))


def test_the_saved_network_has_the_same_regions_in_python(
    drive: Drive, page: Path, tmp_path: Path
) -> None:
    driver = opened(drive, page, "#data=rings&layers=10,6&activation=leaky&seed=4")
    press(driver, "Step")
    driver.until("playground.answer.step === 1")
    count = regions(driver)
    saved = {}
    for item in ("Network (ONNX)", "Network (PyTorch)", "Picture (SVG)", "Picture (PNG)"):
        driver.page.locator(".pg-menu summary").click()
        with driver.page.expect_download() as waiting:
            press(driver, item)
        saved[item] = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(saved[item])
    code = saved["Network (PyTorch)"].read_text()
    names: dict[str, object] = {}
    exec(code, names)  # what the page says to do with it
    part = names["part"]
    assert isinstance(part, sc.Partition)
    assert len(part) == count
    assert saved["Picture (SVG)"].read_text().count("<path") > 3
    assert saved["Picture (PNG)"].read_bytes()[1:4] == b"PNG"
    pytest.importorskip("onnx", reason="onnx is not installed")
    read = sc.partition(str(saved["Network (ONNX)"]), sc.Domain.box(-1, 1), progress=False)
    assert len(read) == count


def test_units_and_regions_show_each_other(drive: Drive, page: Path) -> None:
    driver = opened(drive, page, "#data=moons&layers=1&seed=5")
    dot = driver.page.locator("circle.pg-unit")
    assert dot.count() == 1
    dot.hover()
    driver.page.get_by_text("Layer 1, unit 1: it switches").wait_for()
    box = driver.page.locator(".pg-canvas").bounding_box()
    assert box is not None
    driver.page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 4)
    driver.page.get_by_text("Neighbours").wait_for()
    # With keys: the unit has the focus, the picture zooms, and training plays.
    dot.focus()
    driver.page.get_by_text("Layer 1, unit 1: it switches").wait_for()
    driver.page.locator(".pg-canvas").focus()
    for _ in range(5):
        driver.page.keyboard.press("+")
    driver.until("playground.answer.snapshot.header.window !== null")
    driver.page.keyboard.press("0")
    driver.until("playground.answer.snapshot.header.window === null")


def test_a_tap_shows_a_region_until_the_next_one(drive: Drive, page: Path) -> None:
    phone = {"size": (390, 800), "has_touch": True, "is_mobile": True}
    driver = opened(drive, page, "#data=moons&layers=8", **phone)
    box = driver.page.locator(".pg-canvas").bounding_box()
    assert box is not None
    at = box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"]
    driver.page.touchscreen.tap(*at)
    driver.page.get_by_text("Neighbours").wait_for()
    driver.page.wait_for_timeout(200)
    shown = driver.page.locator(".pg-inspector").bounding_box()
    assert shown is not None
    assert shown["y"] < driver.page.locator(".pg-diagram").bounding_box()["y"]
    driver.page.touchscreen.tap(box["x"] + 3, box["y"] + 3)  # beside the square
    driver.page.get_by_text("Tap a region").wait_for()


def test_own_points_are_in_the_link(drive: Drive, page: Path) -> None:
    driver = opened(drive, page, "#data=own&layers=4")
    box = driver.page.locator(".pg-canvas").bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    driver.page.mouse.click(*middle)
    driver.page.get_by_label("A click puts").select_option("orange points")
    driver.page.mouse.click(middle[0] + 50, middle[1])
    driver.until("playground.answer.history.loss[0] > 0")
    points = driver.page.evaluate("playground.experiment.points").split("_")
    assert points[0] == "0.0.0"
    u, v, label = map(int, points[1].split("."))
    assert u > 100
    assert (v, label) == (0, 1)
    loss = driver.page.evaluate("playground.answer.history.loss[0]")
    again = opened(drive, page, driver.page.evaluate("location.hash"))
    assert again.page.evaluate("playground.answer.history.loss[0]") == loss
    press(again, "Remove all")
    again.until("playground.experiment.points === ''")


def test_active_units_are_shown_also_without_a_pointer(drive: Drive, page: Path) -> None:
    driver = opened(drive, page, "#data=moons&layers=5,4&color=code")
    driver.page.locator(".pg-canvas").focus()
    driver.page.keyboard.press("Enter")
    status = driver.page.locator(".pg-status", has_text="Active units: ")
    said = status.text_content()
    assert said is not None
    found = re.search(r"Active units: (\d) \+ (\d)", said)
    assert found is not None
    lit = driver.page.locator("circle.pg-active").count()
    assert lit == int(found[1]) + int(found[2])
    # The diagram is one stop of the tab key, and a menu closes.
    assert driver.page.locator('.pg-unit[tabindex="0"]').count() == 1
    assert driver.page.locator('.pg-unit[tabindex="-1"]').count() == 5 + 4 - 1
    driver.page.locator(".pg-menu summary").press("Enter")
    driver.page.locator(".pg-items").wait_for()
    driver.page.keyboard.press("Escape")
    driver.page.locator(".pg-items").wait_for(state="hidden")
    # Regions of the same colour have the same code: as many colours as codes, nearly.
    coloring = driver.page.evaluate("Array.from(playground.picture.coloring.arrays.numbers.data)")
    assert len({round(x, 6) for x in coloring}) > 0.9 * regions(driver)


def test_the_tour_has_three_scenes(drive: Drive, page: Path) -> None:
    driver = opened(drive, page, size=(390, 800))
    press(driver, "Tour")
    for title, count in (("1 ", 2), ("2 ", None), ("3 ", None)):
        driver.page.get_by_role("heading", name=re.compile(f"^{title}·")).wait_for()
        if count:
            driver.until(f"playground.answer.history.regions[0] === {count}")
        press(driver, "Done" if title == "3 " else "Next")
    assert driver.page.locator(".pg-guide").is_hidden()
    wide = driver.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390


def test_files_open_and_what_is_not_supported_is_named(
    drive: Drive, page: Path, tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    model = model.double().eval()
    path = tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (torch.zeros(1, 4).double(),), str(path), dynamo=False)
    driver = opened(drive, page)
    driver.page.set_input_files("input[type=file]", str(path))
    driver.page.get_by_role("group", name="Plane of the inputs").wait_for()
    driver.until("playground.answer.history.step.length === 0 && playground.answer.snapshot")
    corners = torch.tensor([[-1.0, -1, 0, 0], [1, -1, 0, 0], [1, 1, 0, 0], [-1, 1, 0, 0]])
    domain = sc.Domain.polygon(corners.double())
    expected = len(sc.partition(model, domain, progress=False))
    driver.until(f"playground.answer.snapshot.regions === {expected}")
    # Another input is set to a number that the slider does not reach.
    driver.page.get_by_label("x3, exactly").fill("40")
    driver.page.keyboard.press("Tab")
    corners[:, 2] = 40
    domain = sc.Domain.polygon(corners.double())
    moved = len(sc.partition(model, domain, progress=False))
    assert moved != expected
    driver.until(f"playground.answer.snapshot.regions === {moved}")
    other = tmp_path / "image.pt2"
    other.write_bytes(b"0")
    driver.page.set_input_files("input[type=file]", str(other))
    driver.page.locator(".pg-note", has_text="sc.partition").wait_for()


def test_small_convolutions_open_and_large_ones_are_named(
    drive: Drive, page: Path, tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    torch.manual_seed(1)
    model = nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1, groups=2), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.AvgPool2d(2), nn.Conv2d(4, 3, (2, 1), stride=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(6, 3)),
    )
    model[1].running_var.uniform_(0.5, 2)
    model = model.double().eval()
    large = nn.Sequential(nn.Conv2d(2, 20, 3), nn.ReLU(), nn.MaxPool2d(2)).double()
    for name, net, size in (("small", model, 4), ("large", large, 20)):
        x = torch.zeros(1, 2, size, size).double()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(net, (x,), str(tmp_path / f"{name}.onnx"), dynamo=False)
    driver = opened(drive, page)
    driver.page.set_input_files("input[type=file]", str(tmp_path / "small.onnx"))
    corners = torch.zeros(4, 32, dtype=torch.float64)
    corners[:, :2] = torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    domain = sc.Domain.polygon(corners.reshape(4, 2, 4, 4))
    part = sc.partition(model, domain, progress=False)
    assert len(part) > 3
    driver.until(f"playground.answer.snapshot?.regions === {len(part)}")
    ranges = torch.tensor(driver.page.evaluate("playground.answer.snapshot.header.ranges"))
    ends = torch.stack([part.values.amin(0), part.values.amax(0)], 1)
    assert torch.allclose(ranges.to(ends.dtype), ends, rtol=1e-6)
    # The plane through three points: three corners of the square.
    driver.page.get_by_label("What the plane goes through").select_option("three points")
    driver.page.get_by_label("Point 1").fill("1 2")
    driver.page.keyboard.press("Tab")
    driver.page.get_by_text("A point has 32 numbers.").wait_for()
    for k, (u, v) in enumerate(((-1, -1), (1, -1), (1, 1))):
        place = ", ".join(map(str, [u, v] + [0] * 30))
        driver.page.get_by_label(f"Point {k + 1}").fill(place)
        driver.page.keyboard.press("Tab")
    plane = sc.Domain.polygon(1.2 * corners.reshape(4, 2, 4, 4))
    expected = len(sc.partition(model, plane, progress=False))
    driver.until(f"playground.answer.snapshot.regions === {expected}")
    driver.page.set_input_files("input[type=file]", str(tmp_path / "large.onnx"))
    driver.page.locator(".pg-note", has_text="weights as a dense one").wait_for()


def test_tanh_shows_no_regions(drive: Drive, page: Path) -> None:
    driver = opened(drive, page, "#activation=tanh")
    assert driver.page.evaluate("playground.answer.snapshot") is None
    driver.page.locator(".pg-note", has_text="not piecewise linear").wait_for()


def test_it_respects_reduced_motion(drive: Drive, page: Path) -> None:
    driver = opened(drive, page, reduced_motion="reduce")
    press(driver, "Play")
    driver.until("playground.answer.step >= 200")
    press(driver, "Pause")
    moments = driver.page.evaluate("playground.answer.history.step")
    assert all(step % 100 == 0 for step in moments)  # pictures change rarely
