"""The tables and figures of the paper, each by one command: ``splinecam reproduce NAME``.

One module per experiment, which reads as an example; ``experiment`` says what an experiment is,
``report`` writes its figure, its numbers and its table, ``fitting`` trains with checkpoints,
``networks`` has the networks, and ``data`` reads the data sets.
"""
