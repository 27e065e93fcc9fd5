"""From a module to a flat graph of ATen calls.

``walk`` follows torch's own layers and frozen models, which is fast; ``export`` uses
``torch.export`` for any other module. ``opaque_modules`` stand for what the user has registered,
and ``diagnosis`` says why a model cannot be traced. The result is a ``flat_graph``.
"""
