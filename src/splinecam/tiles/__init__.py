"""Partitions that stay on disk as tiles, for those that are larger than the memory."""
