"""From an ``nn.Module`` to a program of affine stages and piecewise-linear cuts.

``graph`` exports the module to a flat graph, ``reader`` reads it node by node with the rules of
``splinecam.ops`` (helped by ``shapes``, ``constants`` and ``knots``), ``staging`` cuts the steps
into stages, and ``probe`` runs the result on random points to see that it keeps its word.
"""

from splinecam.capture.reader import capture

__all__ = ["capture"]
