"""Each door shows the partition: what the cursor finds is what Python says."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

import splinecam as sc
from splinecam.viewer.assets import asset
from viewer.browser.checks import differences, hover_pixels, is_blank
from viewer.browser.driver import Driver
from viewer.browser.models import classifier, square

Drive = Callable[..., Driver]
SIZE = (760, 520)


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    return square(classifier())


@pytest.fixture(scope="module")
def served(part: sc.Partition) -> Iterator[sc.Viewer]:
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


def test_a_server(drive: Drive, part: sc.Partition, served: sc.Viewer) -> None:
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


# A notebook in miniature: anywidget calls `render` with a model, and gives it an element.
NOTEBOOK = """<!doctype html><html><head><link rel="icon" href="data:,"></head><body>
<div id="cell" style="width: 100%"></div><script type="module">
import viewer from "./viewer.js";
const listeners = new Set();
const model = {
  get: (name) => ({ height: 480 })[name],
  on: (event, callback) => listeners.add(callback),
  off: (event, callback) => listeners.delete(callback),
  send: async (content) => {
    const text = atob(await askPython(JSON.stringify(content)));
    const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
    // As in Jupyter, the buffer is a view that begins anywhere.
    const shifted = new Uint8Array(bytes.length + 3);
    shifted.set(bytes, 3);
    for (const each of [...listeners]) each({ id: content.id }, [new DataView(shifted.buffer, 3)]);
  },
};
globalThis.end = viewer.render({ model, el: document.getElementById("cell") });
globalThis.listening = () => listeners.size;
</script></body></html>"""


def test_a_notebook(drive: Drive, part: sc.Partition) -> None:
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    driver = drive(SIZE)
    with sc.view(part, door="widget") as viewer:
        answers: Queue[tuple[Any, list[bytes]]] = Queue()
        widget = viewer.widget
        widget.send = lambda content, buffers=None: answers.put((content, buffers))

        def ask(text: str) -> str:
            widget._take(widget, json.loads(text), [])
            _, buffers = answers.get(timeout=30)
            return base64.b64encode(buffers[0]).decode()

        driver.page.expose_function("askPython", ask)
        files = {
            "": ("text/html", NOTEBOOK),
            "viewer.js": ("text/javascript", asset("viewer.js")),
        }
        driver.page.route(
            "http://notebook.test/**",
            lambda route: route.fulfill(
                content_type=files[route.request.url.split("/")[-1]][0],
                body=files[route.request.url.split("/")[-1]][1],
            ),
        )
        driver.open("http://notebook.test/")
        driver.page.add_style_tag(content=asset("style.css"))
        driver.until("document.querySelector('canvas').clientHeight > 100")
        driver.idle()
        check(driver, part)
        assert driver.page.url == "http://notebook.test/"  # a notebook keeps its address
        driver.page.evaluate("end()")
        assert driver.page.evaluate("[splinecam.length, listening()]") == [0, 0]


def test_python_goes_away_and_the_picture_stays(drive: Drive, part: sc.Partition) -> None:
    viewer = sc.view(part, browser=False, block=False)
    driver = drive(SIZE).open(viewer.url)
    viewer.close()
    driver.page.get_by_text("Python has gone").wait_for()
    driver.said.clear()  # the browser itself reports connections that fail
    assert not is_blank(driver.pixels())
    assert driver.ask("v.pick([300, 200])") is not None
    driver.said.clear()


def test_no_webgl_is_said(drive: Drive, part: sc.Partition, served: sc.Viewer) -> None:
    driver = drive(SIZE)
    driver.page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null;")
    driver.page.goto(served.url)
    driver.page.get_by_text("This browser draws no WebGL2 pictures").wait_for()


def test_no_connection_is_said(drive: Drive, served: sc.Viewer) -> None:
    driver = drive(SIZE)
    driver.page.route_web_socket("**/socket", lambda socket: socket.close(code=1000, reason=""))
    driver.page.goto(served.url)
    driver.page.get_by_text("Python has gone").wait_for()
