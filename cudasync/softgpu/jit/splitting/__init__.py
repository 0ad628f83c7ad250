"""Cellar, jit. Splits functions that are too large for LLVM into pieces.

LLVM's time for one function grows faster than the function, because of long live ranges and
control-flow joins. So a function above a weight becomes several LLVM functions. `weights` estimates
the size, `pieces` chooses the split points, and `piece_text` writes a piece. `context` lays out the
registers that pieces share, and `dispatcher` calls one piece after the other.
"""
