"""Cellar. Lowering errors: unexpected failures on ill-typed PTX that the parser accepts.

Such PTX may fail anywhere in a lowering. The program sees PTX that cannot run here, at loading,
where it can react. The message names the instruction, as for deliberate refusals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.errors import PtxError

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction


def refusal(error: Exception, instruction: Instruction, file: str) -> PtxError:
    """The error to raise for an unexpected error in an instruction's lowering."""
    why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return PtxError(
        f"{instruction.opcode} cannot be lowered ({why})",
        file=file,
        line=instruction.span.line,
        column=instruction.span.column,
        instruction=instruction.text,
    )
