"""Folders that keep the results of long computations: what is done survives any interruption.

``manifest`` has the head that every store begins with, and tells whether a store belongs to a model
and a domain; ``claims`` divides the work among processes; ``untrusted`` reads and writes files of
folders that anybody may have written; ``result_store`` keeps the results of sweeps and grids.
"""
