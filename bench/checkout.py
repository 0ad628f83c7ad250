"""Imported first by every bench program: puts this checkout first on the import path.

A result names the commit of the checkout it lies in, so the cudasync that is measured must be
that one, and never a copy that happens to be installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

sys.path.insert(0, str(ROOT))
