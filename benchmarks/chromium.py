"""Drive Chromium without a window, and without looking at what its pages receive.

Drivers for tests watch the network: each message of a web socket is then copied as text from the
page to the driver, which takes a tenth of a second for four megabytes. Times of pages are measured
here through the two commands that load a page and run a script, and nothing else.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

SIZE = {"width": 1200, "height": 800}
FLAGS = (
    "--headless --no-sandbox --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --mute-audio "
    "--enable-unsafe-swiftshader --remote-debugging-port=0"
)
_ANNOUNCED = "DevTools listening on "
_PATIENCE = 300.0  # seconds


class Page:
    """An open page."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection, self._numbers, self._session = connection, count(1), ""
        self._target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        sizes = {**SIZE, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **sizes)

    def add_init_script(self, script: str) -> None:
        """Run a script in every page before its own ones."""
        self.send("Page.enable")
        self.send("Page.addScriptToEvaluateOnNewDocument", source=script)

    def goto(self, address: str) -> None:
        """Load a page, and wait until it is loaded."""
        self.send("Page.navigate", url=address)
        self.evaluate("""async () => {
            while (location.href === "about:blank" || document.readyState !== "complete") {
                await new Promise((resolve) => setTimeout(resolve, 5));
            }
        }""")

    def evaluate(self, script: str, argument: object = None) -> Any:
        """The value of an expression, or of a function of an argument; promises are awaited."""
        function = re.match(r"(async )?\(\w*\) =>", script)
        text = f"({script})({json.dumps(argument)})" if function else script
        options = {"awaitPromise": True, "returnByValue": True}
        answer = self.send("Runtime.evaluate", expression=text, **options)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def close(self) -> None:
        """Close the page."""
        self._session = ""
        self.send("Target.closeTarget", targetId=self._target)

    def send(self, method: str, browser: bool = False, **parameters: object) -> dict[str, Any]:
        """Send a command to the page, or to the browser, and wait for its answer."""
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": parameters}
        if self._session and not browser:
            command["sessionId"] = self._session
        self._connection.send(json.dumps(command))
        while True:
            answer = json.loads(self._connection.recv(timeout=_PATIENCE))
            if answer.get("id") != number:
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            found: dict[str, Any] = answer["result"]
            return found


class Browser:
    """A running browser."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    @contextmanager
    def page(self, address: str = "", script: str = "") -> Iterator[Page]:
        """A page, loaded from an address; script: is run before its own ones."""
        opened = Page(self._connection)
        if script:
            opened.add_init_script(script)
        if address:
            opened.goto(address)
        yield opened
        opened.close()


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium without a window, until the end of the block."""
    names = ("chromium", "google-chrome")
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        sys.exit("There is no Chromium.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [path, *FLAGS.split(), f"--user-data-dir={Path(folder)}", "about:blank"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            with connect(_address(process), max_size=None) as connection:
                yield Browser(connection)
        finally:
            process.terminate()
            process.wait()


def _address(process: subprocess.Popen[str]) -> str:
    """Where a browser takes commands, which it says when it has started."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(_ANNOUNCED):
            return line.removeprefix(_ANNOUNCED).strip()
    sys.exit("Chromium did not start.")
