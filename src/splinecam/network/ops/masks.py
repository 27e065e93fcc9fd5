"""Masks: comparisons of activations, which may choose between values that agree at the border."""

from __future__ import annotations

from splinecam.network.ops.registry import Comparison, register

__all__: list[str] = []

register("gt ge greater greater_equal", Comparison(("self", "other")))
register("lt le less less_equal", Comparison(("other", "self")))
register("logical_not bitwise_not", Comparison(None, notes="of a mask"))
register(
    "sign sgn",
    Comparison(None, signed=True, notes="times a value that is zero where the sign changes"),
)
