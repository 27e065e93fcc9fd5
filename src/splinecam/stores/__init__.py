"""Folders that keep the results of long computations: what is done survives any interruption.

``fingerprints`` tells whether a result belongs to a model, a domain and a function; ``encoding``
turns results into arrays; ``claims`` divides the work among processes; ``result_store`` reads and
writes the folder; ``filling`` computes what is missing.
"""
