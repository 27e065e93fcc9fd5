"""Bad input: whatever a file holds, the page says something, and what it shows is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from strategies import in_profile
from viewer.browser.checks import differences, is_blank
from viewer.browser.driver import PATIENCE, Driver
from viewer.browser.models import classifier, square

Drive = Callable[..., Driver]
SIZE = (760, 480)
TOGETHER = 10
DAMAGES = TOGETHER * in_profile(2)  # others are in test_damage.py


def damaged(content: bytes, place: int, bit: int) -> bytes:
    found = bytearray(content)
    found[place] ^= 1 << bit
    return bytes(found)


# What a frame shows: the words of its page, or what the viewer finds at some pixels.
SEEN = """async (patience) => {
    const one = async (frame) => {
        const { contentWindow: page, contentDocument: content } = frame;
        for (const end = Date.now() + patience; Date.now() < end; ) {
            const viewer = Array.isArray(page.splinecam) ? page.splinecam[0] : undefined;
            if (viewer && content.querySelector("canvas")) {
                await viewer.idle();
                const error = content.querySelector(".sc-error")?.innerText ?? "";
                const hits = [[60, 60], [100, 90], [80, 120]].map((each) => viewer.pick(each));
                if (error || hits.some((each) => each)) return { words: error, hits };
            }
            if (content.querySelector(".splinecam-failure")) break;
            const runs = content.documentElement?.classList.contains("splinecam-page");
            if (content.readyState === "complete" && !runs) break;
            await new Promise((resolve) => setTimeout(resolve, 20));
        }
        return { words: content.body?.innerText ?? "", hits: [] };
    };
    return Promise.all([...document.querySelectorAll("iframe")].map(one));
}"""


def test_a_byte_is_damaged(drive: Drive, tmp_path: Path) -> None:
    part = square(classifier(6))
    page = tmp_path / "regions.html"
    part.to_html(page)
    content = page.read_bytes()
    random = np.random.default_rng(0)
    # Half of the places are in the data, which is a small part of this file.
    data = content.index(b"splinecam-data")
    places = [*random.integers(0, len(content), DAMAGES // 2)]
    places += [*random.integers(data, len(content), DAMAGES - len(places))]
    pages = [damaged(content, int(place), int(random.integers(8))) for place in places]
    driver = drive(SIZE)
    driver.page.route("http://files.test/**", lambda route: answer(route, pages))
    silent = []
    for begin in range(0, DAMAGES, TOGETHER):
        driver.page.goto(f"http://files.test/from{begin}")
        for k, seen in enumerate(driver.page.evaluate(SEEN, PATIENCE)):
            if not says_or_shows(seen, part):
                silent.append((places[begin + k], seen))
    driver.said.clear()  # the browser itself reports damaged scripts and styles
    assert silent == []


def answer(route: Any, pages: list[bytes]) -> None:
    """Give the browser a damaged page by its number, or a page with some of them in frames."""
    name = route.request.url.rsplit("/", 1)[-1]
    if name.startswith("from"):
        begin = int(name.removeprefix("from"))
        frame = '<iframe src="{}" width="220" height="220"></iframe>'
        frames = "".join(frame.format(begin + k) for k in range(TOGETHER))
        content = f'<!doctype html><link rel="icon" href="data:,">{frames}'.encode()
    else:
        content = pages[int(name)]
    route.fulfill(content_type="text/html; charset=utf-8", body=content)


def says_or_shows(seen: dict[str, Any], part: Any) -> bool:
    """Whether a page has a sentence, or shows what is right."""
    hits = [each for each in seen["hits"] if each]
    if len(seen["words"]) > 20:
        return True
    return len(hits) > 0 and differences(hits, part, part.model) == []


def test_a_million_outputs(drive: Drive, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1_000_000))
    part = square(model)
    part.to_html(tmp_path / "outputs.html")
    driver = drive(SIZE).open(tmp_path / "outputs.html")
    driver.page.mouse.move(*driver.at(200, 200))
    driver.idle()
    hit = driver.ask("v.hovered()")
    assert hit is not None
    at = part.domain.embed(torch.tensor([hit["at"]], dtype=torch.float64))
    assert hit["region"] == int(part.locate(at)[0])
    assert not is_blank(driver.pixels())


def test_one_region(drive: Drive, tmp_path: Path) -> None:
    part = square(nn.Linear(2, 3).double())
    assert len(part) == 1
    part.to_html(tmp_path / "one.html")
    driver = drive(SIZE).open(tmp_path / "one.html")
    driver.page.mouse.click(*driver.at(200, 200))
    driver.idle()
    assert driver.ask("v.hovered()")["region"] == 0
    assert "Region 0" in driver.page.locator(".sc-inspector").inner_text()
    assert "1 region" in driver.page.locator(".sc-status").inner_text()


def test_points_that_are_not_numbers(drive: Drive, tmp_path: Path) -> None:
    points = torch.rand(8, 2)
    points[3] = torch.nan
    square(classifier(6)).to_html(tmp_path / "points.html", points=points)
    driver = drive(SIZE).open(tmp_path / "points.html")
    assert driver.page.locator(".sc-error").count() == 0
    assert not is_blank(driver.pixels())


def test_names_are_text(drive: Drive, tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    part = square(classifier(6, classes=2))
    part.to_html(tmp_path / "names.html", title=evil, names=[evil, "b"])
    driver = drive(SIZE)
    driver.page.on("dialog", lambda dialog: driver.said.append(dialog.message))
    driver.open(tmp_path / "names.html")
    assert driver.page.locator("h1").inner_text() == evil
    assert driver.page.locator("img").count() == 0
