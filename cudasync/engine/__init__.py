"""Floor 2. What may run now, and where: variables, hazards, timelines, host workers, errors."""

from __future__ import annotations

from cudasync.engine.engine import Engine, engine, use, waitall
from cudasync.engine.op import Op
from cudasync.engine.trace import Statistics, TraceEntry
from cudasync.engine.variable import Var

__all__ = ["Engine", "Op", "Statistics", "TraceEntry", "Var", "engine", "use", "waitall"]
