"""Floor 4, functions. All elementwise functions, by the standard's names."""

from __future__ import annotations

from cudasync.array.functions.arithmetic import ARITHMETIC
from cudasync.array.functions.comparison import COMPARING
from cudasync.array.functions.transcendental import TRANSCENDENTAL

FUNCTIONS = {each.name: each for each in (*ARITHMETIC, *COMPARING, *TRANSCENDENTAL)}
