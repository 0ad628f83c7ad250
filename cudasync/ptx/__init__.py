"""Floor 0. PTX: text in, values out. Lexer, parser, typed IR and access analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync import late

if TYPE_CHECKING:
    from cudasync.ptx.parsing.parser import parse

__all__ = ["parse"]

if not TYPE_CHECKING:  # With `__getattr__` a type checker would accept any name.
    __getattr__ = late.names(__name__, {"parsing.parser": ("parse",)})
