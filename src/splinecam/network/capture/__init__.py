"""From an ``nn.Module`` to a program of affine stages and piecewise-linear layers.

``tracing`` obtains a flat graph of ATen calls, ``reading`` turns it into a program, and
``capturing`` does both, or takes a program from the ``cache``. ``models`` leaves the model as it
was, and selects one of several outputs; ``pairs`` joins the programs of two networks.
"""

from splinecam.network.capture.capturing import (
    Both,
    FirstLayers,
    capture,
    captured_before,
    naming_option,
)

__all__ = ["Both", "FirstLayers", "capture", "captured_before", "naming_option"]
