"""A file that is damaged in any byte, or ends too early, is never blank."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from strategies import in_profile
from viewer.browser.driver import PATIENCE

TAGS = (b"<title>", b"<style>", b"<script type=module>", b'<script type="text/plain"')
# What a damaged byte becomes: characters that mean something in HTML, and others.
BECOMES = b" !\"'<>A\0\xff-"

# What a page shows, after it has had its time.
OUTCOME = """async (patience) => {
    const started = () => Array.isArray(globalThis.splinecam) && splinecam.length > 0;
    const message = () => document.querySelector(".splinecam-failure");
    const runs = document.documentElement.classList.contains("splinecam-page");
    const end = Date.now() + patience;
    while (runs && !started() && !message() && Date.now() < end) {
        await new Promise((resolve) => setTimeout(resolve, 10));
    }
    const text = document.body.innerText;
    if (message()) return message().innerText.length > 20 ? "message" : "blank";
    if (started()) return document.styleSheets.length ? "viewer" : "without style";
    return text.includes("could") && text.includes("start") ? "text" : `blank: ${text}`;
}"""


@pytest.fixture(scope="module")
def whole() -> bytes:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 2))
    file = BytesIO()
    sc.partition(model, sc.Domain.box(-1, 1), progress=False).to_html(file)
    return file.getvalue()


def outcome(page: Any, path: Path) -> str:
    """What a page shows: the viewer, a message of the viewer, or the text that was there."""
    page.goto(path.as_uri())
    return str(page.evaluate(OUTCOME, PATIENCE))


def assert_never_blank(browser: Any, pages: dict[str, bytes], folder: Path) -> set[str]:
    found, path = set(), folder / "damaged.html"
    context = browser.new_context(viewport={"width": 500, "height": 400})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    for about, data in pages.items():
        path.write_bytes(data)
        shown = outcome(page, path)
        assert shown in ("viewer", "message", "text"), about
        found.add(shown)
    context.close()
    return found


def damaged(whole: bytes, places: list[int], random: Random) -> dict[str, bytes]:
    pages = {}
    for place in places:
        byte = random.choice([each for each in BECOMES if each != whole[place]])
        around = whole[max(0, place - 8) : place + 8]
        data = whole[:place] + bytes([byte]) + whole[place + 1 :]
        pages[f"{bytes([byte])!r} at {place}, in {around!r}"] = data
    return pages


def test_damage_before_the_viewer(browser: Any, whole: bytes, tmp_path: Path) -> None:
    random = Random(0)
    first = whole.index(TAGS[0])
    places = random.sample(range(first), min(in_profile(8), first))
    for tag in TAGS:
        start = whole.index(tag)
        places += random.sample(range(start - 10, start + len(tag) + 4), 3)
    assert "text" in assert_never_blank(browser, damaged(whole, places, random), tmp_path)


def test_damage_in_the_viewer_and_the_data(browser: Any, whole: bytes, tmp_path: Path) -> None:
    random = Random(1)
    _, style, script, data = (whole.index(tag) for tag in TAGS)
    places = random.sample(range(style + 20, script - 20), 3)
    places += random.sample(range(script + 20, data - 20), 6)
    assert_never_blank(browser, damaged(whole, places, random), tmp_path)
    places = random.sample(range(data + 60, len(whole) - 20), 12)
    found = assert_never_blank(browser, damaged(whole, places, random), tmp_path)
    assert found == {"message"}


def test_files_that_end_too_early(browser: Any, whole: bytes, tmp_path: Path) -> None:
    _, style, script, data = (whole.index(tag) for tag in TAGS)
    ends = [style, script, (script + data) // 2, data, data + 60, (data + len(whole)) // 2]
    pages = {f"the first {end} bytes": whole[:end] for end in ends}
    assert assert_never_blank(browser, pages, tmp_path) == {"text", "message"}
