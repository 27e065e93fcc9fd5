"""One browser for all tests of this folder; they are skipped where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from viewer.browser.driver import PATIENCE, Driver

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --enable-unsafe-swiftshader"
)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Chromium, which draws WebGL2 by software."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("there is no Chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=path, args=FLAGS.split(), timeout=PATIENCE
        )
        yield started
        started.close()


@pytest.fixture
def drive(browser: Any) -> Iterator[Callable[..., Driver]]:
    """Make pages; at the end of the test, their consoles must not have said anything."""
    drivers: list[Driver] = []

    def make(size: tuple[int, int] = (1100, 720), **more: Any) -> Driver:
        drivers.append(Driver(browser, size, **more))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()
    assert [words for driver in drivers for words in driver.said] == []
