from __future__ import annotations

import pickle

import pytest
from torch import nn

import splinecam as sc
from splinecam.errors import OffendingOp


def test_unsupported_ops_survive_pickling():
    op = OffendingOp("act", "aten.gelu", "net.py:31", "it is not piecewise linear")
    error = sc.UnsupportedOpError([op])
    again = pickle.loads(pickle.dumps(error))
    assert again.ops == (op,)
    assert str(again) == str(error)
    assert "act (aten.gelu) at net.py:31: it is not piecewise linear" in str(error)


def test_every_error_is_a_splinecam_error():
    for name in sc.__all__:
        item = getattr(sc, name)
        if isinstance(item, type) and issubclass(item, Exception):
            assert issubclass(item, sc.SplineCamError)


def test_earlier_names_warn_and_work():
    place = sc.results.Unresolved((0.0, 0.0), "1", "too close")
    with pytest.warns(
        DeprecationWarning, match=r"unresolved\.cut is now unresolved\.layer; .* 0\.4"
    ):
        assert place.cut == "1"
    captured = sc.capture(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), (2,))
    with pytest.warns(DeprecationWarning, match=r"captured\.cuts is now captured\.layers"):
        assert captured.cuts == captured.layers == ("1",)
