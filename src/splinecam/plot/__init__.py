"""Pictures of partitions and curves with matplotlib, which is imported only when one is drawn."""

from splinecam.plot.regions import CLASSES, INK, plot, plot_curves, require_matplotlib

__all__ = ["CLASSES", "INK", "plot", "plot_curves", "require_matplotlib"]
