"""How partitions, regions, curves and domains show themselves in notebooks; needs no matplotlib."""

from splinecam.plot.notebook.cards import (
    class_regions_card,
    curves_card,
    domain_card,
    partition_card,
    region_card,
)

__all__ = [
    "class_regions_card",
    "curves_card",
    "domain_card",
    "partition_card",
    "region_card",
]
