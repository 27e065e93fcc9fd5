"""Partitions in files."""

from splinecam.io.partition_files import read, save

__all__ = ["read", "save"]
