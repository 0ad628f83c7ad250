"""Floor 3. A recorded program as text for drawing tools: a block is a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.graph.hazards import reduced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudasync.graph.node import Node


def to_dot(nodes: tuple[Node, ...]) -> str:
    """Graphviz' language: devices are boxes, the host is rounded, blocks are diamonds."""
    lines = ["digraph recorded {", "  node [fontname=Helvetica];", *_dot(nodes, "n", "  ")]
    lines += [f"  {one} -> {other};" for one, other in _edges(nodes, "n")]
    return "\n".join([*lines, "}"]) + "\n"


def _dot(nodes: Sequence[Node], prefix: str, space: str) -> Iterator[str]:
    for node in nodes:
        name = f"{prefix}{node.index}"
        text = _quoted("\n".join(_words(node)))
        if node.control is None:
            shape = "box" if node.device is not None else "box, style=rounded"
            yield f"{space}{name} [shape={shape}, label={text}];"
            continue
        yield f"{space}subgraph cluster_{name} {{"
        yield f"{space}  label={_quoted(node.name)};"
        yield f"{space}  {name} [shape=diamond, label={text}];"
        for number, body in enumerate(node.control.bodies):
            yield from _dot(body, f"{name}_{number}_", space + "  ")
        yield f"{space}}}"


def to_mermaid(nodes: tuple[Node, ...]) -> str:
    """A flowchart for Mermaid."""
    lines = ["flowchart TD", *_mermaid(nodes, "n", "  ")]
    lines += [f"  {one} --> {other}" for one, other in _edges(nodes, "n")]
    return "\n".join(lines) + "\n"


def _mermaid(nodes: Sequence[Node], prefix: str, space: str) -> Iterator[str]:
    for node in nodes:
        name = f"{prefix}{node.index}"
        text = "<br/>".join(_words(node)).replace('"', "#quot;")
        if node.control is None:
            opened, closed = ("[", "]") if node.device is not None else ("(", ")")
            yield f'{space}{name}{opened}"{text}"{closed}'
            continue
        yield f'{space}subgraph s{name} ["{node.name}"]'
        yield f'{space}  {name}{{"{text}"}}'
        for number, body in enumerate(node.control.bodies):
            yield from _mermaid(body, f"{name}_{number}_", space + "  ")
        yield f"{space}end"


def _words(node: Node) -> list[str]:
    where = "host" if node.device is None else f"device {node.device.ordinal}"
    return [node.name, where] if node.control is None else [node.name]


def _edges(nodes: tuple[Node, ...], prefix: str) -> Iterator[tuple[str, str]]:
    """All arrows; the first nodes inside of a block come after the block's own node."""
    for node, before in zip(nodes, reduced(nodes), strict=True):
        name = f"{prefix}{node.index}"
        for other in before:
            yield f"{prefix}{other.index}", name
        for number, body in enumerate(node.control.bodies if node.control is not None else ()):
            inside = f"{name}_{number}_"
            yield from ((name, f"{inside}{each.index}") for each in body if not each.before)
            yield from _edges(body, inside)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
