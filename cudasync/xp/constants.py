"""Floor 4, the standard's namespace: constants, as Python floats, and `newaxis`."""

from __future__ import annotations

import math

e = math.e
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi
