"""Cellar. What no emitter has thought of: ill-typed PTX that the parser lets pass.

It may fail anywhere in a lowering. To the program it is PTX that can not run here, and loading is
where it can act on that; the message names the instruction, as for what is refused on purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.errors import PtxError

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction


def refusal(error: Exception, instruction: Instruction, file: str) -> PtxError:
    """The error to raise for one that an instruction's lowering ran into."""
    why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return PtxError(
        f"{instruction.opcode} can not be lowered ({why})",
        file=file,
        line=instruction.span.line,
        column=instruction.span.column,
        instruction=instruction.text,
    )
