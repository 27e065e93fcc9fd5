from __future__ import annotations

import pickle

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
