"""Cellar, jit. Functions that are too large for LLVM, split into pieces.

LLVM's time for one function grows faster than the function: values that live long, and ways that
meet. So a function above a weight becomes several: `weights` says which, `pieces` where it is
split, `piece_text` writes a piece, `context` says where registers lie that pieces share, and
`dispatcher` is the function that calls one piece after the other.
"""
