"""Floor 1, graphs. The work of a node: a file for each kind, all with one interface.

A `Work` knows the driver's calls for its kind: to add a node, and to change the node in an
executable graph. The graph keeps the work's operands alive.
"""

from __future__ import annotations

from cudasync.driver.graph.work.children import Child
from cudasync.driver.graph.work.conditions import Conditional
from cudasync.driver.graph.work.copies import Copy
from cudasync.driver.graph.work.events import Record, WaitFor
from cudasync.driver.graph.work.fills import Fill
from cudasync.driver.graph.work.functions import HostFunction
from cudasync.driver.graph.work.kernels import Kernel
from cudasync.driver.graph.work.memory import Allocate, Free
from cudasync.driver.graph.work.work import Work

__all__ = [
    "Allocate",
    "Child",
    "Conditional",
    "Copy",
    "Fill",
    "Free",
    "HostFunction",
    "Kernel",
    "Record",
    "WaitFor",
    "Work",
]
