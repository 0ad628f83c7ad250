"""Floor 3. Graphs: record a program once, optimise it as a whole, launch it often."""

from __future__ import annotations

from cudasync.graph.executable import Executable
from cudasync.graph.node import Node
from cudasync.graph.recording import RecordedGraph, graph

__all__ = ["Executable", "Node", "RecordedGraph", "graph"]
