"""From an ``nn.Module`` to a program of affine stages and piecewise-linear layers.

How a graph is obtained: ``walk`` follows torch's own layers, ``export`` uses ``torch.export`` for
all else (helped by ``any_batch``, ``known_values``, ``opaque_modules``, ``outputs``), and
``diagnosis`` says why it fails. Both give a ``flat_graph``.

How it is read: ``reader`` goes through the nodes with the rules of ``splinecam.network.ops`` and
adds steps and layers to a ``graph_builder``: ``constants``, ``scalar_functions``, ``unit_groups``,
``masks`` with ``continuity``, ``custom_ops`` with ``custom_op_check``, and the ``final`` function.
``stages`` divides them into stages, ``probe`` checks the result, ``graph_errors`` explains errors.

How it is cached: ``capturing`` looks in the ``cache`` first, where a capture remains valid while
the ``fingerprint`` of its model is the same. ``isolation`` keeps the model as it was.
"""

from splinecam.network.capture.capturing import capture

__all__ = ["capture"]
