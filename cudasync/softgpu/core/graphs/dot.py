"""Cellar. Drawings of graphs in the DOT language of Graphviz."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, UNKNOWN, DriverFailure
from cudasync.softgpu.core.graphs.graph import PLAIN
from cudasync.softgpu.core.graphs.node_parameters import CopyWork, FillWork, HostWork, KernelWork

if TYPE_CHECKING:
    from cudasync.softgpu.core.graphs.graph import Graph, Node
    from cudasync.softgpu.core.graphs.node_parameters import Work

# CUgraphDebugDot_flags.
_VERBOSE: Final = 1 << 0
_KERNELS: Final = 1 << 2
_COPIES: Final = 1 << 3
_FILLS: Final = 1 << 4
_HOST_FUNCTIONS: Final = 1 << 5
_HANDLES: Final = 1 << 10
_ALL: Final = (1 << 17) - 1


def write_dot(graph: Graph, path: str, flags: int) -> None:
    """Draw a graph to a file: the names of nodes, and the details that `flags` select."""
    if flags & ~_ALL:
        raise DriverFailure(INVALID_VALUE, f"unknown flags {flags:#x}")
    text = "\n".join(["digraph dot {", *_lines(graph, flags), "}", ""])
    try:
        Path(path).write_text(text)
    except (OSError, ValueError) as problem:
        raise DriverFailure(UNKNOWN, f"{path}: {problem}") from problem


def _lines(graph: Graph, flags: int) -> list[str]:
    name = f"graph_{graph.identity}"
    lines = [f"subgraph cluster_{name} {{", f'label="{name}" graph[style="dashed"];']
    for node in graph.nodes:
        label = "\\n".join(_quoted(line) for line in _label(node, flags))
        shape = "octagon" if isinstance(node.work, KernelWork) else "record"
        lines.append(f'"{_name(node)}"[style="solid" shape="{shape}" label="{label}"];')
    for source, target, edge in graph.edges():
        data = "" if edge == PLAIN else f' [headlabel="{edge[1]}" taillabel="{edge[0]}"]'
        lines.append(f'"{_name(source)}" -> "{_name(target)}"{data};')
    lines.append("}")
    for node in graph.nodes:
        for inside in node.work.graphs:
            lines += _lines(inside, flags)
    return lines


def _name(node: Node) -> str:
    return f"graph_{node.graph.identity}_node_{node.number}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _label(node: Node, flags: int) -> list[str]:
    work = node.work
    lines = [str(node.number), work.kind.name, work.describe()]
    if flags & (_HANDLES | _VERBOSE):
        lines.append(f"node {node.handle:#x}")
    lines += [f"child graph_{inside.identity}" for inside in work.graphs]
    return lines + _details(work, flags)


def _details(work: Work, flags: int) -> list[str]:
    match work:
        case KernelWork() if flags & (_KERNELS | _VERBOSE):
            shape = f"grid {work.grid} block {work.block} shared {work.shared_bytes}"
            return [shape, f"arguments {work.parameters.hex()}"]
        case CopyWork() if flags & (_COPIES | _VERBOSE):
            box = work.box
            return [
                f"{work.source.address:#x} to {work.target.address:#x}",
                f"{box.width} x {box.height} x {box.depth}",
            ]
        case FillWork() if flags & (_FILLS | _VERBOSE):
            words = f"{work.width} x {work.height} words of {work.word_bytes} bytes"
            return [f"{work.target.address:#x}", f"{words}, value {work.value:#x}"]
        case HostWork() if flags & (_HOST_FUNCTIONS | _VERBOSE):
            return [f"user data {work.user_data:#x}"]
    return []
