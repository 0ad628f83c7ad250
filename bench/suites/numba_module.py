"""One module of numba-cuda's test-suite in this process, with a line of JSON for each step.

    python -m cudasync run bench/suites/numba_module.py MODULE RECORD [SKIP ...]

Tests named after RECORD are left out. numba_suite.py calls this program.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.suites import unittest_module


def main(module: str, path: str, *skipped: str) -> int:
    """The exit status is 0 unless the process itself fails."""
    unittest_module.run(module, path, skipped)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
