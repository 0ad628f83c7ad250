"""Floor 3. A recorded program as text that others draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.graph.hazards import reduced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudasync.graph.node import Node


def to_dot(nodes: tuple[Node, ...]) -> str:
    """Graphviz' language: devices are boxes, the host is rounded."""
    lines = ["digraph recorded {", "  node [fontname=Helvetica];"]
    for node in nodes:
        shape = "box" if node.device is not None else "box, style=rounded"
        text = _quoted("\n".join(_words(node)))
        lines.append(f"  n{node.index} [shape={shape}, label={text}];")
    lines += [f"  n{one} -> n{other};" for one, other in _edges(nodes)]
    return "\n".join([*lines, "}"]) + "\n"


def to_mermaid(nodes: tuple[Node, ...]) -> str:
    """A flowchart of Mermaid."""
    lines = ["flowchart TD"]
    for node in nodes:
        text = "<br/>".join(_words(node)).replace('"', "#quot;")
        opened, closed = ("[", "]") if node.device is not None else ("(", ")")
        lines.append(f'  n{node.index}{opened}"{text}"{closed}')
    lines += [f"  n{one} --> n{other}" for one, other in _edges(nodes)]
    return "\n".join(lines) + "\n"


def _words(node: Node) -> list[str]:
    where = "host" if node.device is None else f"device {node.device.ordinal}"
    return [node.name, where]


def _edges(nodes: tuple[Node, ...]) -> Iterator[tuple[int, int]]:
    for node, before in zip(nodes, reduced(nodes), strict=True):
        for other in before:
            yield other.index, node.index


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
