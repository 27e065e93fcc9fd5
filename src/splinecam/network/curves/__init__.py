"""Smooth functions of one variable: values, derivatives, and bounds on these over intervals.

``curve`` says what a function gives, and finds its bounds from the places where its derivatives
have extrema. ``formulas`` has the functions of torch, and ``registered`` their multiples and the
functions of the user.
"""
