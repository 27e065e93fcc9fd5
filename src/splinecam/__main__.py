"""``python -m splinecam`` is the command ``splinecam``."""

import sys

from splinecam.cli import script

if __name__ == "__main__":
    sys.exit(script())
