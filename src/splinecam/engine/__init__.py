"""A program is run over a subdivision: values at vertices, refinement, affine maps."""
