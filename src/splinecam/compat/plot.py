"""The picture of a list of polygons."""
