"""A network with its attention patterns and denominators held at their values at one input.

``expansions`` writes normalisations and attention out as products and quotients, ``held_values``
chooses the factors and divisors that are held, ``anchor`` computes them, and ``frozen_graph`` is
the module that runs the rest. ``making`` puts these together.
"""
