"""Questions about a finished partition, one question in each module."""
