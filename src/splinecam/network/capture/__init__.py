"""From an ``nn.Module`` to a program of affine stages and piecewise-linear cuts.

``capturing`` has the ways to a flat graph (``flat``): ``walk`` follows torch's own ``layers``
directly, unless ``modes`` of torch speak against it, ``graph`` exports any other module, with
``batches`` where it reads the size of its batch as a plain number; ``diagnosis`` and ``explain``
say why it cannot, or why the graph cannot be used. ``reader`` reads the graph node by node with the
rules of ``splinecam.network.ops`` into a ``draft`` (helped by ``shapes``, ``constants`` and
``composites``), to which ``cutting``, ``scattered`` and ``masks`` (with ``continuity``) add the
cuts. ``final`` leaves out a final softmax, sigmoid or tanh. ``staging`` cuts the steps into stages,
and ``probe`` runs the result on random points to see that it keeps its word. What the user has
registered is kept as one call by ``leaves``, tried out by ``trial``, and added by ``taught`` (with
``differences`` where torch has no derivative). Meanwhile ``outputs`` selects one of several
outputs, ``known`` lets the module read its own parameters, and ``untouched`` and ``private`` keep
it as it was. What was captured is ``kept`` with the model, as a ``template`` without weights where
that is possible, for as long as its ``fingerprint`` is the same.
"""

from splinecam.network.capture.capturing import capture

__all__ = ["capture"]
