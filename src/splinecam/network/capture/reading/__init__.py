"""From a flat graph to a program.

The ``reader`` goes through the nodes in order and adds constants, affine steps and layers to a
``graph_builder``: ``scalar_functions``, ``unit_groups``, ``masks``, ``custom_ops``, and the
``final`` function of a model. ``stages`` divides the steps into stages, and ``probe`` checks the
program.
"""
