"""Floor 2. The scheduler of ops: variables, hazards, timelines, host workers, failures."""

from __future__ import annotations

from cudasync.engine.engine import Engine, engine, use, waitall
from cudasync.engine.hazards.variable import Var
from cudasync.engine.op import Op
from cudasync.engine.trace import Statistics, TraceEntry

__all__ = ["Engine", "Op", "Statistics", "TraceEntry", "Var", "engine", "use", "waitall"]
