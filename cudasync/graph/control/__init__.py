"""Floor 3, control flow. Blocks of a recorded program that run repeatedly or conditionally.

A block is one node of the program around it, with programs of its own inside.
"""

from __future__ import annotations

from typing import TypeAlias

from cudasync.graph.control.child import Child
from cudasync.graph.control.cond import Cond
from cudasync.graph.control.repeat import Repeat
from cudasync.graph.control.while_loop import WhileLoop

Control: TypeAlias = Child | Cond | Repeat | WhileLoop

__all__ = ["Child", "Cond", "Control", "Repeat", "WhileLoop"]
