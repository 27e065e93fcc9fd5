"""A slow, obviously correct partition in exact rational arithmetic: the oracle of the tests.

Floats are dyadic rationals, so a network with float weights has an exact partition. It is found
here polygon by polygon, unit by unit, with Python integers and exact signs. No code is shared with
the fast path.
"""
