"""Runs one module of Warp's tests in this process, and records the outcome of each test.

    python bench/suites/warp_recorded.py MODULE RECORD [SKIP ...]

Tests named behind RECORD are left out. `warp_suite.py` calls this program.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import warp

from bench.suites import unittest_module, warp_module


def main(module: str, path: str, *skipped: str) -> int:
    """The exit status is 0 unless the process itself fails."""
    warp.config.quiet = True
    device = warp_module.begin(module)
    unittest_module.run(module, path, skipped)
    print(f"{device.launched} launches on the software GPU")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
