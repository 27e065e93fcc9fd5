"""The names of the paper's released code, as thin functions over this library.

``import splinecam.compat as splinecam`` runs a script for that code, and so do ``import splinecam``
and ``import splinecam as sc``: their ``utils``, ``wrappers``, ``graph``, ``compute`` and ``models``
are the modules of this package. Everything is computed in float64.

utils     planes, squares, and the sizes and shapes of polygons
wrappers  ``model_wrapper``, which shows a network layer by layer
graph     ``to_next_layer_partition``, the regions after one more layer: the module ``wrappers``
compute   ``get_partitions_with_db``, regions and decision boundary at once: the same module
plot      ``plot_partition``: the module ``splinecam.plot``
models    VGG11 and VGG16 with average pooling
"""

from splinecam import plot
from splinecam.compat import models, utils, wrappers
from splinecam.compat import wrappers as compute
from splinecam.compat import wrappers as graph

__all__ = ["compute", "graph", "models", "plot", "utils", "wrappers"]
