from functools import partial
from math import inf

import pytest

from splinecam.viewer import panes
from splinecam.viewer.windows import Limits


@pytest.fixture(autouse=True)
def no_haste(monkeypatch):
    """On a busy machine a window may take longer than one would wait for it."""
    monkeypatch.setattr(panes, "Limits", partial(Limits, seconds=inf))
