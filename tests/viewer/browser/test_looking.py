"""Looking: switches, colours, keys, small screens, and the address of the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from refinement_cases import eagerly
from viewer.browser.checks import pixels_of
from viewer.browser.driver import Driver
from viewer.browser.models import classifier, spirals, square

Drive = Callable[..., Driver]
SIZE = (1100, 600)
PHONE = (390, 700)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("looking") / "regions.html"
    points, labels = spirals(60)
    square(classifier()).to_html(path, points=points, labels=labels)
    return path


def changed(before: bytes, after: bytes) -> float:
    """The share of pixels that differ visibly between two pictures."""
    difference = np.abs(pixels_of(before).astype(int) - pixels_of(after).astype(int)).max(-1)
    return float((difference > 24).mean())


def test_layers_and_switches(drive: Drive, page: Path) -> None:
    driver = drive(SIZE).open(page)
    everything = driver.pixels()
    boxes = driver.page.locator(".sc-controls input[type=checkbox]:not([role=switch])")
    assert boxes.count() == 2  # one for each layer
    boxes.nth(0).uncheck()
    driver.idle()
    assert driver.state["hiddenLayers"] == [0]
    first_hidden = driver.pixels()
    assert changed(everything, first_hidden) > 0.005
    boxes.nth(1).uncheck()
    driver.idle()
    none = driver.pixels()
    assert changed(first_hidden, none) > 0.005
    driver.page.get_by_role("button", name="all", exact=True).click()
    driver.idle()
    assert driver.state["hiddenLayers"] == []
    assert changed(everything, driver.pixels()) < 0.001
    for key, name in [("e", "edges"), ("b", "boundary"), ("l", "levelSet"), ("p", "points")]:
        before, on = driver.pixels(), driver.state[name]
        driver.page.keyboard.press(key)
        driver.idle()
        assert driver.state[name] is not on
        assert changed(before, driver.pixels()) > 0.0005, name


def test_keys_step_from_region_to_region_and_the_overview_tells_where(
    drive: Drive, page: Path
) -> None:
    driver = drive(SIZE, reduced_motion="reduce").open(page)
    part = square(classifier())

    def press(key: str) -> tuple[int, str]:
        """The region that is kept after a key, and what screen readers are told."""
        driver.page.keyboard.press(key)
        driver.idle()
        at = torch.tensor([driver.state["selected"]["at"]], dtype=torch.float64)
        return int(part.locate(at)), driver.page.locator(".sc-said").inner_text()

    overview = driver.page.locator(".sc-overview")
    assert not overview.is_visible()
    region, said = press("Shift+ArrowRight")  # the one in the middle
    assert region == int(part.locate(torch.zeros(1, 2, dtype=torch.float64)))
    assert said.startswith(f"Region {region}, class ")
    for key in ("Shift+ArrowRight", "Shift+ArrowUp", "Shift+ArrowLeft"):
        before = region
        region, said = press(key)
        assert region in part[before].neighbours
        assert said.startswith(f"Region {region}, ")
        assert ", across layer " in said
    assert press(".")[0] == region + 1
    assert press(",")[0] == region
    for _ in range(100):
        said = press("Shift+ArrowUp")[1]
        if not said.startswith("Region"):
            break
    assert said == "The domain ends here."
    driver.zoom(0.3, 0.2, 1e-4)
    assert overview.is_visible()
    width, box = driver.ask("v.camera().width"), overview.bounding_box()
    assert box is not None
    driver.page.mouse.click(box["x"] + 0.25 * box["width"], box["y"] + 0.75 * box["height"])
    driver.idle()
    assert driver.ask("v.camera().center") == pytest.approx([-0.5, -0.5], abs=0.03)
    assert driver.ask("v.camera().width") == pytest.approx(width)


def test_a_curve_is_seen_and_named_as_in_python(drive: Drive, page: Path) -> None:
    driver = drive(SIZE).open(page)
    layers = square(classifier()).layers
    assert driver.page.locator(".sc-layer .sc-name").all_inner_texts() == list(layers)
    before = pixels_of(driver.pixels()).astype(int)
    x, y, layer, unit = driver.page.evaluate(
        """() => {
        for (let k = 0; k < 4000; k++) {
            const at = [200 + 300 * ((0.7548 * k) % 1), 100 + 300 * ((0.5698 * k) % 1)];
            const { unit } = splinecam[0].pick(at) ?? {};
            if (unit) return [...at, ...unit];
        }
    }"""
    )
    driver.page.mouse.move(*driver.at(x, y))
    driver.idle()
    said = driver.page.locator(".sc-edge").inner_text()
    assert said == f"layer {layers[layer]}, unit {unit}"
    assert driver.page.locator(".sc-facts td").last.inner_text() in layers
    after = pixels_of(driver.pixels()).astype(int)
    rows = np.abs(after - before).max(-1) > 24
    drawn = after[rows].mean(-1)
    assert (drawn < 80).sum() > 200  # dark lines on both sides of a bright one
    assert (after[rows][:, 0] - after[rows][:, 2] > 150).sum() > 100
    driver.page.locator("select.sc-select").first.select_option("layer")
    driver.idle()
    names = driver.page.locator(".sc-entry .sc-name").all_inner_texts()
    assert set(names) <= set(layers)


def test_every_colouring_has_a_picture_and_a_legend(drive: Drive, page: Path) -> None:
    driver = drive(SIZE).open(page)
    select = driver.page.locator("select.sc-select").first
    names = select.locator("option").evaluate_all("all => all.map((each) => each.value)")
    assert {"class", "slope", "area", "output", "layer", "vertices", "random"} <= set(names)
    seen = []
    for name in names:
        select.select_option(name)
        driver.idle()
        assert driver.state["color"] == name
        assert driver.page.locator(".sc-error").count() == 0
        seen.append(driver.pixels())
        assert driver.page.locator(".sc-corner > *").first.is_visible() or name == "random"
    # Nothing has been merged, and with several outputs two kinds of slope are nearly the same.
    assert len(set(seen)) >= len(names) - 1


def test_keys_move_and_zoom(drive: Drive, page: Path) -> None:
    driver = drive(SIZE, reduced_motion="reduce").open(page)
    whole = driver.ask("v.camera().width")
    driver.page.keyboard.press("+")
    driver.idle()
    assert driver.ask("v.camera().width") == pytest.approx(whole / 1.5)
    center = driver.ask("v.camera().center")
    driver.page.keyboard.press("ArrowRight")
    driver.page.keyboard.press("ArrowUp")
    driver.idle()
    moved = driver.ask("v.camera().center")
    assert moved[0] > center[0]
    assert moved[1] > center[1]
    driver.page.keyboard.press("0")
    driver.idle()
    assert driver.state["width"] == 0
    assert driver.ask("v.camera().width") == pytest.approx(whole)
    driver.page.keyboard.press("?")
    assert driver.page.get_by_role("dialog").is_visible()
    driver.page.keyboard.press("Escape")
    assert not driver.page.get_by_role("dialog").is_visible()


def test_dragging_is_exact_and_double_click_goes_deeper(drive: Drive, page: Path) -> None:
    driver = drive(SIZE, reduced_motion="reduce").open(page)
    driver.zoom(0.1, 0.2, 1.0)
    start = (200.0, 300.0)
    place = driver.ask("v.camera().toPlane(x)", start)
    driver.drag(driver.at(*start), driver.at(340, 220))
    driver.idle()
    assert driver.ask("v.camera().toScreen(x)", place) == pytest.approx([340, 220], abs=1e-6)
    width = driver.ask("v.camera().width")
    driver.double_click(*driver.at(300, 300))
    driver.idle()
    assert driver.ask("v.camera().width") == pytest.approx(width / 4)


def test_clicks_keep_and_compare(drive: Drive, page: Path) -> None:
    driver = drive(SIZE).open(page)
    driver.page.mouse.click(*driver.at(*driver.place(0.31, 0.22)))
    driver.page.keyboard.down("Shift")
    driver.page.mouse.click(*driver.at(*driver.place(-0.53, -0.41)))
    driver.page.keyboard.up("Shift")
    driver.idle()
    kept, compared = (
        driver.ask("v.pick(v.camera().toScreen(x))", driver.state[name]["at"])["region"]
        for name in ("selected", "compared")
    )
    words = driver.page.locator(".sc-inspector").inner_text()
    assert f"Region {kept:,}" in words
    assert f"Region {compared:,}" in words
    driver.page.keyboard.press("Escape")
    assert driver.state["compared"] is None
    driver.page.keyboard.press("Escape")
    assert driver.state["selected"] is None


def test_an_edge_names_its_unit(drive: Drive, page: Path, tmp_path: Path) -> None:
    part = square(classifier())
    driver = drive(SIZE).open(page)
    edge = next(k for k in range(len(part.mesh.edges)) if part.mesh.edge_layer[k] == 1)
    middle = part.vertices[part.mesh.edges[edge]].mean(0).tolist()
    driver.zoom(*middle, 0.2)
    driver.page.mouse.move(*driver.at(*driver.place(*middle)))
    driver.idle()
    assert driver.ask("v.hovered()")["unit"] == [1, int(part.mesh.edge_unit[edge])]
    assert driver.page.get_by_text(f"unit {int(part.mesh.edge_unit[edge])}").is_visible()


def test_the_address_restores_the_view(drive: Drive, page: Path) -> None:
    driver = drive(SIZE).open(page)
    driver.zoom(0.3, -0.2, 0.01)
    driver.page.keyboard.press("e")
    driver.page.locator("select.sc-select").first.select_option("slope")
    driver.page.mouse.click(*driver.at(250, 250))
    driver.until("location.hash.includes('select=')")
    driver.until("location.hash.includes('color=slope')")
    before, address = driver.state, driver.page.url
    other = drive(SIZE).open(address)
    assert other.state == before
    assert other.ask("v.camera().center") == driver.ask("v.camera().center")
    other.page.evaluate("location.hash = '#color=area'")
    other.until("splinecam[0].state.color === 'area'")
    assert other.state["width"] == 0


def test_a_phone(drive: Drive, page: Path) -> None:
    driver = drive(PHONE, has_touch=True, is_mobile=True, device_scale_factor=2).open(page)
    box = driver.canvas()
    assert box["width"] <= PHONE[0]
    assert box["height"] > 200
    assert driver.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    driver.page.touchscreen.tap(*driver.at(box["width"] / 2 + 20, box["height"] / 2))
    driver.until("splinecam[0].state.selected !== null")
    driver.idle()
    region = driver.ask("v.pick(v.camera().toScreen(v.state.selected.at))")["region"]
    assert driver.page.get_by_text(f"Region {region:,}").first.is_visible()


def test_two_fingers_pinch(drive: Drive, page: Path) -> None:
    driver = drive(PHONE, has_touch=True, is_mobile=True).open(page)
    touch = driver.context.new_cdp_session(driver.page)
    x, y = driver.at(190, 150)
    places = driver.ask("x.map((each) => v.camera().toPlane(each))", [[160, 150], [220, 150]])
    width = driver.ask("v.camera().width")
    for kind, reach in [("touchStart", 30), ("touchMove", 45), ("touchMove", 60), ("touchEnd", 0)]:
        ends = [{"x": x - reach, "y": y, "id": 0}, {"x": x + reach, "y": y, "id": 1}]
        points = [] if kind == "touchEnd" else ends
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    driver.idle()
    assert driver.ask("v.camera().width") == pytest.approx(width / 2, rel=0.02)
    shown = driver.ask("x.map((each) => v.camera().toScreen(each))", places)
    assert shown[0] == pytest.approx([130, 150], abs=1)
    assert shown[1] == pytest.approx([250, 150], abs=1)


def test_light_and_dark(drive: Drive, page: Path) -> None:
    light = pixels_of(drive(SIZE, color_scheme="light").open(page).page.screenshot())
    driver = drive(SIZE, color_scheme="dark").open(page)
    dark = pixels_of(driver.page.screenshot())
    assert light[4:40, 300:900].mean() > 200
    assert dark[4:40, 300:900].mean() < 60
    assert light[200:500, 350:700].mean() > 150  # the regions
    assert dark[200:500, 350:700].mean() < 100
    driver.page.locator("select.sc-select").first.select_option("output")
    driver.idle()
    assert pixels_of(driver.page.screenshot())[200:500, 350:700].mean() < 110
    driver.page.get_by_role("button", name="Theme: auto").click()
    driver.idle()
    assert driver.state["theme"] == "light"
    assert pixels_of(driver.page.screenshot())[4:40, 300:900].mean() > 200


def test_the_promise_of_a_smooth_network(drive: Drive, page: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.GELU(), nn.Linear(8, 3))
    part = sc.partition(model, sc.Domain.box(-1, 1), smooth=0.02, progress=False)
    path = page.with_name("smooth.html")
    part.to_html(path)
    driver = drive(SIZE).open(path)
    assert part.smoothing is not None
    status = driver.page.locator(".sc-status").first.inner_text()
    assert f"{part.smoothing.within}, " in status
    assert "% undecided" in status
    driver.page.mouse.move(*driver.at(*driver.place(0.1, 0.2)))
    driver.idle()
    assert "off by at most" in driver.page.locator(".sc-facts").inner_text()
    hatched = driver.pixels()
    driver.page.keyboard.press("u")
    driver.idle()
    assert not driver.state["band"]
    assert changed(hatched, driver.pixels()) > 0.3 * part.class_regions().undecided / 4
    exact = drive(SIZE).open(page)
    assert "within" not in exact.page.locator(".sc-status").first.inner_text()
    assert not exact.page.get_by_text("Undecided band", exact=True).is_visible()


def test_regions_that_are_not_divided_have_a_class_and_no_outputs(
    drive: Drive, tmp_path: Path
) -> None:
    model, box = classifier(48), sc.Domain.box(-1, 1)
    with eagerly():
        part = sc.partition(model, box, refine="boundary", progress=False)
    part.names = [f"kind {k}" for k in range(4)]
    part.to_html(tmp_path / "refined.html")
    driver = drive(SIZE, reduced_motion="reduce").open(tmp_path / "refined.html")
    inspector = driver.page.locator(".sc-inspector-body")
    parts = [inspector.get_by_text(words, exact=True) for words in ("Outputs", "Affine map")]
    sentence = "Not divided: the decision boundary does not cross it."
    for settled in (True, False, True):
        largest = int(torch.where(part.complete != settled, part.areas, 0.0).argmax())
        at = part.centroids[largest]
        (found,) = driver.hover_all([driver.place(*at.tolist())])
        outputs = model(at[None])[0].tolist()
        assert (found["region"], found["winner"]) == (largest, outputs.index(max(outputs)))
        assert f"kind {found['winner']}" in inspector.inner_text()
        assert (sentence in inspector.inner_text()) == settled
        assert [each.is_visible() for each in parts] == [not settled] * 2
        assert found["values"] == pytest.approx([] if settled else outputs, abs=1e-6)
