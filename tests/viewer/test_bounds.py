"""What is promised of a model with smooth functions reaches the browser, and stays true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.viewer.container import Message
from splinecam.viewer.panes import Pane, SceneOptions
from splinecam.viewer.recording import Recording
from splinecam.viewer.session import Session
from viewer_messages import unpack


def smooth_partition(outputs: int, **options: Any) -> sc.Partition:
    torch.manual_seed(outputs)
    model = nn.Sequential(nn.Linear(2, 6), nn.GELU(), nn.Linear(6, outputs)).double()
    with torch.no_grad():
        model[2].bias -= model(torch.zeros(1, 2, dtype=torch.float64))[0]
    return sc.partition(model, sc.Domain.box(-1, 1), smooth=0.02, progress=False, **options)


def asked(session: Session, ask: str, **request: Any) -> Message:
    found = unpack(session.answer({"ask": ask, "pane": 0, **request}))
    assert found.message["kind"] != "error", found.message
    return found


def area_of(band: Message) -> float:
    """The area of all polygons, from the message alone."""
    total, points = 0.0, band.arrays["points"]
    for ring in np.split(points, np.cumsum(band.arrays["counts"].astype(int))[:-1]):
        (x, y), (p, q) = (ring - ring[0]).T, (np.roll(ring, -1, 0) - ring[0]).T
        total += float((x * q - y * p).sum()) / 2
    return total * float(band.message["scale"]) ** 2


def test_meshes_carry_the_bound_of_each_region() -> None:
    part = smooth_partition(3)
    header, arrays, _ = asked(Session([Pane("a", [part])]), "mesh", frame=0)
    assert header["within"] in repr(part)
    found, exact = arrays["regionBounds"], part.region_bounds.numpy()
    assert found.dtype == np.float32
    assert (found >= exact).all()  # rounded up, so that they are bounds
    assert np.allclose(found, exact, rtol=1e-6)


def test_windows_and_exact_partitions_have_no_bounds() -> None:
    session = Session([Pane("a", [smooth_partition(3)])])
    window = asked(session, "window", frame=0, window=[0, 0, 0.1, 0.1], pixels=100)
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
    exact = Session([Pane("a", [sc.partition(model, sc.Domain.box(-1, 1), progress=False)])])
    for header, arrays, _ in (window, asked(exact, "mesh", frame=0)):
        assert header["kind"] == "mesh"
        assert "within" not in header
        assert "regionBounds" not in arrays
    refused = unpack(exact.answer({"ask": "band", "pane": 0, "mesh": "0/0", "level": None}))
    assert "no band" in refused.message["message"]


def test_the_band_is_where_no_class_is_certain() -> None:
    part = smooth_partition(3)
    band = asked(Session([Pane("a", [part])]), "band", mesh="0/0", level=None)
    found = part.class_regions()
    assert area_of(band) == pytest.approx(found.undecided, rel=1e-9)
    assert band.message["share"] == pytest.approx(found.undecided / 4, rel=1e-9)
    center, scale = np.array(band.message["center"]), band.message["scale"]
    first = band.arrays["points"][: band.arrays["counts"][0]]
    at = torch.from_numpy(center + scale * first.mean(0))[None]
    output = part.model(at)[0].detach().sort().values
    assert float(output[-1] - output[-2]) <= 4 * float(part._bound.max())


def test_the_band_of_a_single_output_follows_the_level() -> None:
    part = smooth_partition(1, names=["no", "yes"])
    session = Session([Pane("a", [part])], SceneOptions(level=0.1))
    for level, meant in ((None, 0.1), (-0.1, -0.1)):
        band = asked(session, "band", mesh="0/0", level=level)
        assert area_of(band) == pytest.approx(part.level_set(meant).band.area, rel=1e-9)
    refused = unpack(session.answer({"ask": "band", "pane": 0, "mesh": "0/0", "level": "x"}))
    assert "level must be a number" in refused.message["message"]


def test_files_hold_the_band() -> None:
    session = Session([Pane("a", [smooth_partition(3)])], SceneOptions(live=False))
    answers = Recording(session).answers()
    band = unpack(answers['{"ask":"band","level":null,"mesh":"0/0","pane":0}'])
    assert band.message["kind"] == "band"
    assert len(band.arrays["points"]) == band.arrays["counts"].sum()
