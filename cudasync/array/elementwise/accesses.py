"""Floor 4, elementwise. The reasons for the accesses of a generated launch, for `op.accesses`.

Such a launch names no tokens: it touches only its operands and its result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.hazards.accesses import Tokens, explained

if TYPE_CHECKING:
    from cudasync.engine.hazards.accesses import Accessed, Accesses


class _Operands:
    """The reasons, which are the same for all such launches."""

    def explained(self, accesses: Accesses) -> tuple[Accessed, ...]:
        return explained(accesses, "an operand, or the result")


NO_TOKENS = Tokens.of((), _Operands())
