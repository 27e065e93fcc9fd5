"""From a flat graph to a program.

The ``reader`` goes through the nodes in order and adds ``constants``, affine steps and layers to a
``graph_builder``: ``scalar_functions``, ``unit_groups``, ``masks`` whose ``continuity`` is shown,
``custom_ops`` that pass their ``custom_op_check``, and the ``final`` function of a model.
``stages`` divides the steps into stages, ``probe`` checks the program, and ``graph_errors`` says
what is wrong with a graph.
"""
