"""Partitions that stay on disk as tiles, as they may be larger than the memory."""
