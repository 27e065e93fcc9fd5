"""Each door shows the partition: what the cursor finds is what Python says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import splinecam as sc
from viewer.browser.checks import differences, hover_pixels, is_blank
from viewer.browser.driver import Driver
from viewer.browser.models import classifier, square

Drive = Callable[..., Driver]
SIZE = (760, 520)


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    return square(classifier())


@pytest.fixture(scope="module")
def served(part: sc.Partition) -> Iterator[sc.results.Viewer]:
    with sc.view(part, browser=False, block=False) as viewer:
        yield viewer


def check(driver: Driver, part: sc.Partition) -> None:
    """200 places have the right region, class and outputs, and there is a picture."""
    found = driver.hover_all(hover_pixels(driver, part, 200))
    assert len(found) == 200
    assert differences(found, part, part.model) == []
    assert not is_blank(driver.pixels())


def test_a_file_from_disk(drive: Drive, part: sc.Partition, tmp_path: Path) -> None:
    path = tmp_path / "regions.html"
    part.to_html(path)
    check(drive(SIZE).open(path), part)


def test_a_server(drive: Drive, part: sc.Partition, served: sc.results.Viewer) -> None:
    driver = drive(SIZE).open(served.url)
    check(driver, part)
    x, y = driver.place(0.2, 0.3)
    driver.page.mouse.click(*driver.at(x, y))
    driver.idle()
    picked = driver.ask("v.pick(x)", [x, y])
    selection = served.selection
    assert selection is not None
    assert selection.region is not None
    assert selection.region.index == picked["region"]
    driver.page.keyboard.press("Escape")
    driver.until("splinecam[0].state.selected === null")
    driver.idle()
    assert served.selection is None or served.selection.region is None


def test_python_goes_away_and_the_picture_stays(drive: Drive, part: sc.Partition) -> None:
    viewer = sc.view(part, browser=False, block=False)
    driver = drive(SIZE).open(viewer.url)
    viewer.close()
    driver.page.get_by_text("Python has gone").wait_for()
    driver.said.clear()  # the browser itself reports connections that fail
    assert not is_blank(driver.pixels())
    assert driver.ask("v.pick([300, 200])") is not None
    driver.page.locator("select.sc-select").first.select_option("area")
    driver.page.get_by_text("The colours by area are not loaded").wait_for()
    assert driver.state["color"] == "class"  # as the picture shows
    assert driver.page.locator(".sc-card:visible").count() == 0  # nothing covers it
    driver.said.clear()


def test_a_run_is_followed_while_it_grows(drive: Drive) -> None:
    watch = sc.watch(classifier(8), sc.Domain.box(-1, 1), every=1)
    watch.step()
    with sc.view(watch, browser=False, block=False) as viewer:
        driver = drive(SIZE).open(viewer.url)
        chip = driver.page.get_by_role("button", name="following")
        assert not chip.is_visible()  # nothing has come, so that the run may have ended
        watch.step()
        chip.wait_for()
        driver.until("splinecam[0].state.frame === 1")
        driver.idle()


def test_no_webgl_is_said(drive: Drive, part: sc.Partition, served: sc.results.Viewer) -> None:
    driver = drive(SIZE)
    driver.page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null;")
    driver.page.goto(served.url)
    driver.page.get_by_text("This browser draws no WebGL2 pictures").wait_for()


def test_no_connection_is_said(drive: Drive, served: sc.results.Viewer) -> None:
    driver = drive(SIZE)
    driver.page.route_web_socket("**/socket", lambda socket: socket.close(code=1000, reason=""))
    driver.page.goto(served.url)
    driver.page.get_by_text("Python has gone").wait_for()
