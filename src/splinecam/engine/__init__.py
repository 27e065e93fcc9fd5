"""Runs a program over a subdivision: values at vertices, refinement, affine maps."""
