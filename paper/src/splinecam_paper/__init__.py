"""The tables and figures of the paper, each by one command: ``splinecam reproduce NAME``.

Each experiment is a module, which reads as an example. ``experiment`` says what an experiment is,
runs it and writes its files; ``training`` has the networks and trains them; ``neighbourhoods`` and
``fields`` have what several experiments share; and ``data`` reads the data sets.
"""
