"""Sharing: pictures, links and lines of Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from viewer.browser.checks import is_blank, pixels_of
from viewer.browser.driver import Driver
from viewer.browser.models import classifier, spirals, square

Drive = Callable[..., Driver]
SIZE = (1100, 600)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("sharing") / "regions.html"
    points, labels = spirals(40)
    square(classifier()).to_html(path, title="Regions & more", points=points, labels=labels)
    return path


def choose(driver: Driver, item: str) -> None:
    driver.page.locator("[aria-haspopup=menu]").click()
    driver.page.get_by_role("menuitem", name=item).click()


def saved(driver: Driver, item: str) -> tuple[str, bytes]:
    """The name and the content of a file that the page saves."""
    with driver.page.expect_download() as waiting:
        choose(driver, item)
    download = waiting.value
    return download.suggested_filename, Path(download.path()).read_bytes()


def test_a_png(drive: Drive, page: Path) -> None:
    driver = drive(SIZE, device_scale_factor=2).open(page)
    name, content = saved(driver, "PNG")
    assert name == "regions-more.png"
    assert not is_blank(content)
    canvas = driver.canvas()
    height, width, _ = pixels_of(content).shape
    assert width == pytest.approx(2 * canvas["width"], abs=2)
    assert height > 2 * canvas["height"]


def test_an_svg(drive: Drive, page: Path) -> None:
    driver = drive(SIZE).open(page)
    driver.page.keyboard.press("l")
    driver.page.mouse.click(*driver.at(*driver.place(0.2, 0.1)))
    driver.idle()
    name, content = saved(driver, "SVG")
    assert name == "regions-more.svg"
    root = ElementTree.fromstring(content)
    assert root.tag == f"{SVG}svg"
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == "Regions & more"
    assert len(list(root.iter(f"{SVG}path"))) > 100
    assert len(list(root.iter(f"{SVG}circle"))) == 40


def test_python_and_links(drive: Drive, page: Path) -> None:
    driver = drive(SIZE, permissions=["clipboard-read", "clipboard-write"]).open(page)
    driver.zoom(0.2, 0.1, 0.1)
    driver.page.locator("select.sc-select").first.select_option("slope")
    driver.idle()
    choose(driver, "Python")
    lines = driver.page.evaluate("navigator.clipboard.readText()")
    compile(lines, "copied", "exec")
    assert 'color="slope"' in lines
    choose(driver, "link")
    link = driver.page.evaluate("navigator.clipboard.readText()")
    other = drive(SIZE).open(link)
    assert other.state == driver.state
