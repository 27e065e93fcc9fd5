"""The names of the code that was released with the paper, as thin functions over this library.

``import splinecam.compat as splinecam`` runs a script that was written for it, as do ``splinecam``
itself and ``import splinecam as sc``, whose ``utils``, ``wrappers``, ``graph``, ``compute`` and
``models`` are the modules of this package. Everything is computed in float64.

utils     planes, squares, and the sizes and shapes of polygons
wrappers  ``model_wrapper``, which shows a network layer by layer
graph     ``to_next_layer_partition``, the regions after one more layer
compute   ``get_partitions_with_db``, regions and decision boundary at once
plot      ``plot_partition``
models    VGG11 and VGG16 with average pooling
"""

from splinecam.compat import compute, graph, models, plot, utils, wrappers

__all__ = ["compute", "graph", "models", "plot", "utils", "wrappers"]
