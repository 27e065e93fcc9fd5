"""A network with its attention patterns and denominators held at their values at one input.

``held_values`` chooses the factors and divisors that are held, and ``making`` writes the rest as
the calls of a ``FrozenGraph``.
"""
