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
    check(drive().open(path), part)


def test_a_server(drive: Drive, part: sc.Partition, served: sc.Viewer) -> None:
    check(drive().open(served.url), part)
