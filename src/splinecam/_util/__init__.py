"""Helpers without knowledge of the domain: ragged arrays, graphs, tolerances, options, files."""
