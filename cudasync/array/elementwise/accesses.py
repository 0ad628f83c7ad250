"""Floor 4, elementwise. Why a generated launch accesses what it does, for whoever asks its op.

Such a launch names no tokens: what it touches are its operands and its result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.hazards.accesses import Tokens, explained

if TYPE_CHECKING:
    from cudasync.engine.hazards.accesses import Accessed, Accesses


class _Operands:
    """The one reason that there is."""

    def explained(self, accesses: Accesses) -> tuple[Accessed, ...]:
        return explained(accesses, "an operand, or the result")


NO_TOKENS = Tokens.of((), _Operands())
