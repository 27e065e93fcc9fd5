"""Bars of progress, and what they tell."""

from __future__ import annotations

import logging

import pytest

from splinecam._util.progress import progress_bar, tell


def test_a_bar_that_is_not_wanted_does_nothing(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO, logger="splinecam"):
        for _ in range(2):  # also after it was closed
            with progress_bar(2, "layer", wanted=False) as bar:
                tell(bar, "relu", 1234, 0.5)
    assert bar.disable
    assert bar.n == 0
    assert [record.getMessage() for record in caplog.records] == ["relu: 1,234 regions"] * 2
    assert "".join(capsys.readouterr()) == ""
