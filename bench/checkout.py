"""Puts this checkout first on the import path; every bench program imports this file first.

A result names the commit of its checkout. So the measured cudasync must be that one, and never an
installed copy.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

sys.path.insert(0, str(ROOT))
