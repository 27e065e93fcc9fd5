"""Pictures of partitions and curves; matplotlib is imported when something is drawn."""

from splinecam.plot.curves import (
    plot_curves,
    plot_difference,
    plot_flow,
    plot_partition,
    plot_path,
    plot_preimage,
)
from splinecam.plot.figures import new_axes, require_matplotlib
from splinecam.plot.histograms import (
    plot_bands,
    plot_distributions,
    plot_histograms,
    plot_local_complexity,
)
from splinecam.plot.images import image_grid, plot_samples
from splinecam.plot.palette import CLASSES, INK, class_colors
from splinecam.plot.regions import plot, plot_band, plot_layers
from splinecam.plot.surface import plot_slices, plot_surface

__all__ = ["CLASSES", "INK", "class_colors", "image_grid", "new_axes", "plot", "plot_band"]
__all__ += ["plot_bands", "plot_curves", "plot_difference", "plot_distributions"]
__all__ += ["plot_histograms", "plot_layers", "plot_local_complexity", "plot_partition"]
__all__ += ["plot_flow", "plot_path", "plot_preimage"]
__all__ += ["plot_samples", "plot_slices", "plot_surface", "require_matplotlib"]
