"""Cellar. Source lines: the source line of a PTX line, by the module's `.loc` directives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.ptx.ir import Module


def source_of(module: Module, line: int) -> str:
    """`file:line` of the source, or "" if the PTX does not give it."""
    for function in module.functions:
        indices = [i for i, each in enumerate(function.body) if each.span.line == line]
        if indices and function.locations:
            before = [each for each in function.locations if each.index <= indices[0]]
            if before and before[-1].line:
                return f"{before[-1].file}:{before[-1].line}"
    return ""
