"""Partitions in files, and as objects of other libraries."""

from splinecam.io.geojson import to_geojson
from splinecam.io.networkx_graph import to_networkx
from splinecam.io.parquet import to_parquet
from splinecam.io.partition_files import read, save
from splinecam.io.ply import to_ply
from splinecam.io.shapely_polygons import to_shapely
from splinecam.io.vtk import to_vtk

__all__ = [
    "read",
    "save",
    "to_geojson",
    "to_networkx",
    "to_parquet",
    "to_ply",
    "to_shapely",
    "to_vtk",
]
