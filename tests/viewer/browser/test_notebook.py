"""The widget in a page as a notebook shows it, answered by a real kernel."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

import splinecam as sc
from viewer.browser.checks import differences, hover_pixels, is_blank
from viewer.browser.driver import Driver

pytest.importorskip("jupyter_client")
from viewer.kernel import PARTITION, Kernel, running_kernel

# What anywidget does: the script is a module from a blob, and messages go through a model.
NOTEBOOK = """async ([script, style, height, still]) => {
    const sheet = document.createElement("style");
    sheet.textContent = style;
    document.head.append(sheet);
    const callbacks = [];
    const deliver = ([content, text]) => {
        const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
        const view = new DataView(bytes.buffer);
        for (const callback of [...callbacks]) callback(content, [view]);
    };
    globalThis.deliver = deliver;
    const model = {
        get: (name) => ({ height, still })[name],
        send: (content) => still || toKernel(content).then(deliver),
        on: (_, callback) => callbacks.push(callback),
        off: (_, callback) => callbacks.splice(callbacks.indexOf(callback), 1),
    };
    const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    const { default: widget } = await import(url);
    const el = document.createElement("div");
    document.body.append(el);
    globalThis.end = widget.render({ model, el });
}"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with running_kernel() as found:
        yield found


@pytest.fixture
def notebook(drive: Callable[..., Driver], kernel: Kernel) -> Driver:
    """A page with the widget in it."""

    def to_kernel(content: Any) -> Any:
        kernel.send(content)
        answered, data = kernel.receive_bytes()
        return answered, base64.b64encode(data).decode()

    driver = drive((760, 520))
    driver.page.expose_function("toKernel", to_kernel)
    state = kernel.state
    driver.page.evaluate(NOTEBOOK, [state["_esm"], state["_css"], state["height"]])
    driver.wait()
    return driver


def test_an_exported_notebook_keeps_a_picture(drive: Callable[..., Driver], kernel: Kernel) -> None:
    """Nobody answers: the picture in the state of the widget is shown."""
    kernel.run("viewer")
    still = "data:image/png;base64," + kernel.bundle["image/png"].strip()
    driver = drive((760, 520))
    state = kernel.state
    driver.page.evaluate(NOTEBOOK, [state["_esm"], state["_css"], state["height"], still])
    picture = driver.page.get_by_role("img", name="The regions of the network")
    picture.wait_for()
    assert not is_blank(picture.screenshot())
    driver.page.evaluate("end()")
    assert picture.count() == 0


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    """The partition that is also in the kernel."""
    space: dict[str, Any] = {}
    exec(PARTITION, space)
    found: sc.Partition = space["part"]
    return found


def test_a_notebook(notebook: Driver, part: sc.Partition, kernel: Kernel) -> None:
    found = notebook.hover_all(hover_pixels(notebook, part, 200))
    assert differences(found, part, deepcopy(part.model).double()) == []
    assert not is_blank(notebook.pixels())
    assert notebook.canvas()["height"] <= 300
    assert notebook.state["color"] == "slope"
    notebook.page.mouse.click(*notebook.at(*notebook.place(0.3, 0.4)))
    notebook.idle()
    region = int(part.locate(sc.Domain.box(-1, 1).embed(part.centroids.new_tensor([[0.3, 0.4]]))))
    assert kernel.run("viewer.selection.region.index") == str(region)
    kernel.run("viewer.set(color='area')")
    (notice,) = kernel.custom_messages()
    notebook.page.evaluate("x => deliver(x)", [{}, base64.b64encode(notice).decode()])
    notebook.idle()
    assert notebook.state["color"] == "area"
    notebook.page.evaluate("end()")
