"""Faces of a subdivision are cut along the zero sets of functions, and where a maximum changes."""
