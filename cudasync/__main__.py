"""`python -m cudasync`: info, demo, experiments, run, trace, top, launch."""

from __future__ import annotations

import sys

from cudasync.command import main

if __name__ == "__main__":
    sys.exit(main())
