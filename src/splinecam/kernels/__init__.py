"""The compiled library and its thin Python face: arrays in, arrays out; it knows no networks.

The library is plain C, built when the package is installed; ``library.py`` loads it, and says how
it is switched off. For GPUs there are the steps of the ``.cu`` files, which are compiled when first
needed. Without either everything works by tensor operations, only slower.
"""
