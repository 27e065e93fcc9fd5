"""The verbs: partition, difference and sweep, here or by workers, with or without a store."""
