"""From an ``nn.Module`` to a program of affine stages and piecewise-linear cuts.

``graph`` exports the module to a flat graph; ``reader`` reads it node by node with the rules of
``splinecam.ops`` into a ``draft`` (helped by ``shapes`` and ``constants``), to which ``cutting``
and ``masks`` add the cuts; ``staging`` cuts the steps into stages; and ``probe`` runs the result
on random points to see that it keeps its word. What the user has registered is kept as one call
by ``leaves``, tried out by ``trial``, and added by ``taught`` (with ``differences`` where torch
has no derivative). Meanwhile ``outputs`` selects one of several outputs, ``known`` lets the module
read its own parameters, and ``untouched`` and ``private`` keep it as it was.
"""

from splinecam.capture.reader import capture

__all__ = ["capture"]
