"""Floor 3. Graphs: record a program once, optimise it as a whole, launch it often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync import late

if TYPE_CHECKING:
    from cudasync.graph.executable import Executable
    from cudasync.graph.node import Node
    from cudasync.graph.recording import RecordedGraph, graph

__all__ = ["Executable", "Node", "RecordedGraph", "graph"]

if not TYPE_CHECKING:  # With `__getattr__` a type checker would accept any name.
    __getattr__ = late.names(
        __name__,
        {
            "executable": ("Executable",),
            "node": ("Node",),
            "recording": ("RecordedGraph", "graph"),
        },
    )
