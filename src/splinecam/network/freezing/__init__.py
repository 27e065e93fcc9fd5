"""A network with its attention patterns and denominators held at their values at one input.

``held_values`` chooses the factors and divisors that are held, ``frozen_graph`` is the module that
runs the rest, and ``making`` puts these together.
"""
