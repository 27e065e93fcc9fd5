"""Convex domains and planar subdivisions: their arrays, coordinates and checks."""
