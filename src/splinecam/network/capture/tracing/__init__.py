"""From a module to a flat graph of ATen calls.

``walk`` follows torch's own layers, which is fast; ``export`` uses ``torch.export`` for any other
module. ``any_batch`` helps models that read the size of their batch, ``known_values`` those that
read their weights, and ``opaque_modules`` stand for what the user has registered. ``diagnosis``
says why a model cannot be traced. The result is a ``flat_graph``.
"""
