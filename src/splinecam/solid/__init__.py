"""Networks in three dimensions: the exact surface on which an output has a value."""
