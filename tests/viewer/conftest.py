"""No test of the viewer depends on how long something takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf

import pytest

from splinecam.viewer import panes, session
from splinecam.viewer.frames import Limits
from splinecam.viewer.windows import raster_pixels


@pytest.fixture(scope="module", autouse=True)
def no_haste() -> Iterator[None]:
    """On a busy machine windows and pixels may take longer than one would wait for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panes, "Limits", partial(Limits, seconds=inf))
        patch.setattr(panes, "_SEARCH", inf)
        patch.setattr(session, "raster_pixels", partial(raster_pixels, seconds=inf))
        yield
