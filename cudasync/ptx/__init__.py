"""Floor 0. PTX: text in, values out. Lexer, parser, typed IR and access analysis."""

from __future__ import annotations

from cudasync.ptx.parsing.parser import parse

__all__ = ["parse"]
