"""Folders that keep the results of long computations: what is done survives any interruption.

Every store begins with the head of ``manifest``, which tells whether it belongs to a model and a
domain. ``claims`` divides the work among processes, ``untrusted`` reads and writes files in folders
that anybody may have written, and ``result_store`` keeps the results of sweeps and grids.
"""
