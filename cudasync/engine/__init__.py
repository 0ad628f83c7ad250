"""Floor 2. What may run now, and where: variables, hazards, timelines, host workers, errors."""

from __future__ import annotations

from cudasync.engine.engine import Engine, engine, use, waitall
from cudasync.engine.hazards.variable import Var
from cudasync.engine.op import Op
from cudasync.engine.trace import Statistics, TraceEntry

__all__ = ["Engine", "Op", "Statistics", "TraceEntry", "Var", "engine", "use", "waitall"]
