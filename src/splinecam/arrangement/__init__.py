"""Refinement of subdivisions: faces are cut along the zero sets of functions."""
