"""Helpers for arrays, options and text, without knowledge of geometry or networks."""
