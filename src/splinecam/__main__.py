"""``python -m splinecam`` is the command ``splinecam``."""

import sys

from splinecam.cli import main

if __name__ == "__main__":
    sys.exit(main())
